"""Figures of serving in steady state: throughput against interactivity, and times as the load grows."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from llmcap.report.figures.series import Lines, cases_of, lines_of
from llmcap.report.figures.style import (
    LINES,
    axis_label,
    close_ticks,
    legend_below,
    legend_text,
    quantity_axis,
    say_empty,
)
from llmcap.report.figures.sweeps import along

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

USER: Final = "serving_output_tok_per_s_per_user"
DEVICE: Final = "serving_output_tok_per_s_per_device"
MOST_LINES: Final = 6


def interactivity(axes: Axes, frame: pd.DataFrame, load: str) -> Lines:
    """Tokens a second of a device against those of a user, as the load grows along each line.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        Rows of a sweep with USER and DEVICE.
    load : str
        Column that grows along a line: users, or arrivals_per_s.
    """
    axes.set_title("Throughput against interactivity")
    found = lines_of(cases_of(frame).dropna(subset=[USER, DEVICE]), load, DEVICE, MOST_LINES)
    quantity_axis(axes.xaxis, USER)
    quantity_axis(axes.yaxis, DEVICE)
    axes.set_xlabel(axis_label(USER))
    for (label, rows), look in zip(found.lines, cycle(LINES), strict=False):
        # A full pool or a steady queue adds users, no tokens: the line ends where it turns back.
        options: dict[str, Any] = {**look, "linewidth": 1.6, "markevery": max(len(rows) // 8, 1)}
        axes.plot(
            rows[USER].to_numpy(float), rows[DEVICE].to_numpy(float), **options, label=legend_text(label or "cases")
        )
    shown = [np.concatenate([rows[n].to_numpy(float) for _, rows in found.lines]) for n in (USER, DEVICE)]
    if not any(len(rows) for _, rows in found.lines):
        say_empty(axes, "no load can be served")
        return found
    close_ticks(axes.xaxis, shown[0])
    close_ticks(axes.yaxis, shown[1], most=0)
    legend_below(axes)
    return found


def first_token_served(axes: Axes, frame: pd.DataFrame, load: str) -> Lines:
    """Mean time to first token as the load grows; lines end at saturation.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        Rows of a sweep with `serving_ttft_s`.
    load : str
        Column along the axis: users, or arrivals_per_s.
    """
    axes.set_title("Time to first token as the load grows")
    found = along(axes, frame, load, "serving_ttft_s")
    legend_below(axes)
    return found
