"""Bars: what fills the memory of one device, and times side by side where there is no axis to draw along."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Final

import numpy as np
from matplotlib.ticker import FuncFormatter, MaxNLocator

from llmcap.report.figures.style import (
    BLUE,
    GREEN,
    HATCHES,
    INK,
    ORANGE,
    PURPLE,
    SHADE,
    VERMILION,
    axis_label,
    legend_below,
    legend_text,
    say_empty,
)
from llmcap.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

#: Part of a device's memory -> fill and hatch.
_PARTS: Final = {
    "weights": (BLUE, ""), "KV cache": (GREEN, "//"), "work space": (PURPLE, "xx"), "engine reserve": (ORANGE, ".."),
    "free": (SHADE, ""),
}  # fmt: skip


def memory_stack(axes: Axes, frame: pd.DataFrame) -> None:
    """What fills the memory of one device, a bar for each case.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `label`, `part`, `bytes`; parts of a label add up to the device's memory, a negative `free` is what is short.
    """
    axes.set_title("Memory of one device")
    axes.set_xlabel("memory of one device [bytes]")
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    labels = list(dict.fromkeys(frame["label"]))
    places = np.arange(len(labels))[::-1]
    left = np.zeros(len(labels))
    for part in dict.fromkeys(frame["part"]):
        fill, hatch = _PARTS.get(str(part), (VERMILION, "++"))
        sizes = frame[frame["part"] == part].set_index("label")["bytes"].reindex(labels).fillna(0.0).to_numpy(float)
        shown = np.maximum(sizes, 0.0)
        axes.barh(
            places, shown, left=left, height=0.62, color=fill, edgecolor="white" if hatch else INK,
            hatch=hatch, linewidth=0.0 if hatch else 0.4, label=str(part),
        )  # fmt: skip
        left += shown
        if part == "free" and (sizes < 0.0).any():
            # The bar beyond this mark is what the device does not have.
            short = sizes < 0.0
            ends = left[short] + sizes[short]
            axes.plot(
                ends, places[short], marker="|", markersize=26, markeredgewidth=2.4, color=VERMILION, linestyle="none",
                label="end of memory",
            )  # fmt: skip
    axes.set_yticks(places, [textwrap.fill(legend_text(str(label)), 26) for label in labels])
    axes.grid(False, axis="y")
    axes.set_xlim(0.0, float(left.max()) * 1.02)
    legend_below(axes, columns=2)


def time_bars(axes: Axes, frame: pd.DataFrame, column: str = "ttft_s") -> None:
    """A time for each case, with its band; for sweeps in which no number varies.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `label`, `column`, and for `ttft_s` its band.
    column : str
    """
    axes.set_title(axis_label(column).split(" [")[0].capitalize())
    axes.set_xlabel(axis_label(column))
    places = np.arange(len(frame))[::-1]
    values = frame[column].to_numpy(float)
    if not np.isfinite(values).any():
        say_empty(axes, "the users fit device memory nowhere")
    axes.barh(places, np.nan_to_num(values), height=0.6, color=BLUE, hatch=HATCHES[0], label=None)
    if column == "ttft_s" and {"ttft_low_s", "ttft_high_s"} <= set(frame.columns):
        low, high = frame["ttft_low_s"].to_numpy(float), frame["ttft_high_s"].to_numpy(float)
        known = np.isfinite(low) & np.isfinite(high)
        if known.any():
            around = np.array([values - low, high - values])[:, known]
            axes.errorbar(
                values[known], places[known], xerr=np.maximum(around, 0.0), fmt="none", ecolor=INK, capsize=3,
                label="uncertainty",
            )  # fmt: skip
    axes.set_yticks(places, [textwrap.fill(legend_text(str(label)), 30) for label in frame["label"]])
    axes.grid(False, axis="y")
    legend_below(axes)
