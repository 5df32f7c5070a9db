"""The roofline of a device with the operators of a case on it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.ticker import FuncFormatter, NullFormatter

from llmcap.report.figures.style import BLACK, INK, LINES, MUTED, legend_below, legend_text
from llmcap.units import format_flop_rate, format_rate

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

NAMED: Final = 4
"""Operators of each phase that the legend names: those that take longest."""
_DASHES: Final[tuple[Any, ...]] = ("-", (0, (4, 2)), (0, (1, 1)), (0, (6, 1, 1, 1)), (0, (8, 2)))
_PHASES: Final = {"prefill": ("o", "full"), "decode": ("^", "none")}


def roofline(axes: Axes, frame: pd.DataFrame, peaks: dict[str, float], bandwidth: float, devices: int = 1) -> list[str]:
    """Operators by arithmetic intensity and by the rate they reach, under the roofs of one device.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        One row per operator and phase: `phase`, `operator`, `flop`, `bytes` of all devices, `time_s`. Rows without
        FLOP (collectives, overhead) have no place on the figure.
    peaks : dict
        Dense peak by dtype. [FLOP/s]
    bandwidth : float
        Memory of one device. [B/s]
    devices : int
        That share the work of the rows.

    Returns
    -------
    list of str
        Operators that are named, longest first.
    """
    axes.set_title("Operators under the roofs of one device")
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("arithmetic intensity [FLOP/byte]")
    axes.set_ylabel("rate of one device [FLOP/s]")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_flop_rate(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_minor_formatter(NullFormatter())
    points = placed(frame, devices)
    ridge = max(peaks.values()) / bandwidth
    reach = [0.1, *points["intensity"], 3.0 * ridge]
    low, high = min(reach) / 2, max(reach) * 2
    axes.set_xlim(low, high)
    along = np.geomspace(low, high, 200)
    roofs = sorted(peaks.items(), key=lambda item: item[1])
    for (dtype, peak), dash in zip(
        roofs, ("-", (0, (4, 2)), (0, (1, 1)), (0, (6, 1, 1, 1)), (0, (8, 2))), strict=False
    ):
        label = f"{dtype} peak {format_flop_rate(peak)}, ridge at {peak / bandwidth:,.0f} FLOP/byte"
        axes.plot(along, np.minimum(peak, bandwidth * along), color=INK, linewidth=1.2, linestyle=dash, label=label)
    axes.plot([], [], " ", label=f"slope: memory, {format_rate(bandwidth, 'B/s')}")
    named: list[str] = []
    for phase, rows in points.groupby("phase", sort=False, observed=True):
        marker, fill = _PHASES.get(str(phase), ("D", "full"))
        ordered = rows.sort_values("time_s", ascending=False)
        rest = ordered.iloc[NAMED:]
        for (_, row), look in zip(ordered.iloc[:NAMED].iterrows(), LINES, strict=False):
            label = f"{phase}: {row['operator']}, {row['share']:.0%} of its time"
            named.append(f"{phase} {row['operator']}")
            axes.plot(
                row["intensity"], row["rate"], marker=marker, fillstyle=fill, color=look["color"], linestyle="none",
                markersize=9, markeredgewidth=1.6, label=legend_text(label),
            )  # fmt: skip
        if len(rest):
            options: dict[str, Any] = {"color": MUTED, "fillstyle": fill, "linestyle": "none", "markersize": 5}
            axes.plot(rest["intensity"], rest["rate"], marker=marker, **options, label=f"{phase}: {len(rest)} others")
    if not len(points):
        axes.plot([], [], " ", color=BLACK, label="no operator with FLOP")
    legend_below(axes)
    return named


def placed(frame: pd.DataFrame, devices: int) -> pd.DataFrame:
    """Operators with FLOP and bytes: intensity [FLOP/B], rate of one device [FLOP/s], share of their phase's time."""
    share = frame["time_s"] / frame.groupby("phase", observed=True)["time_s"].transform("sum")
    found = frame.assign(share=share)
    found = found[(found["flop"] > 0) & (found["bytes"] > 0) & (found["time_s"] > 0)]
    return found.assign(
        intensity=found["flop"] / found["bytes"], rate=found["flop"] / found["time_s"] / devices
    ).reset_index(drop=True)
