"""Rows of a sweep along an axis: time to first token with its band, cache size against capacity, and money."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from llmcap.report.figures.series import Lines, cases_of, lines_of
from llmcap.report.figures.style import (
    INK,
    LINES,
    TIERS,
    VERMILION,
    axis_label,
    bytes_axis,
    close_ticks,
    legend_below,
    legend_text,
    markers,
    quantity_axis,
    say_empty,
    tier_name,
)
from llmcap.units import format_bytes

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MOST_BANDS: Final = 3
"""Bands of more lines than this would cover one another."""
MOST_CAPACITIES: Final = 4


def first_token_time(axes: Axes, frame: pd.DataFrame, x: str = "context_tokens") -> Lines:
    """Time to first token along an axis, with its band where there are few lines.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        Rows of a sweep: `x`, `ttft_s`; `ttft_low_s` and `ttft_high_s` where there is a band.
    x : str
        Column of the axis.

    Returns
    -------
    Lines
        What was drawn, and of how many.
    """
    axes.set_title("Time to first token")
    found = along(axes, frame, x, "ttft_s")
    if len(found.lines) <= MOST_BANDS and {"ttft_low_s", "ttft_high_s"} <= set(frame.columns):
        for (_, rows), look in zip(found.lines, LINES, strict=False):
            low, high = rows["ttft_low_s"].to_numpy(float), rows["ttft_high_s"].to_numpy(float)
            if np.isfinite(low).any():
                label = "uncertainty" if rows is found.lines[0][1] else None
                axes.fill_between(
                    rows[x].to_numpy(float), low, high, color=look["color"], alpha=0.18, linewidth=0, label=label
                )
    legend_below(axes)
    return found


def cache_size(axes: Axes, frame: pd.DataFrame, x: str = "context_tokens") -> Lines:
    """KV cache of all active users along an axis, with the capacities of the tiers drawn in.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `x`, `kv_bytes_total`; `tier` and `capacity_bytes` for the capacities, `hbm_free_bytes` and
        `kv_bytes_total_reserved` for what device memory has left for caches.
    x : str
    """
    axes.set_title("KV cache, and what holds it")
    found = along(axes, frame, x, "kv_bytes_total")
    bytes_axis(axes.yaxis, "KV cache of all users [bytes]")
    looks = cycle(TIERS)
    for name, size in capacities(frame):
        look = {"color": INK} if name == "hbm" else next(looks)
        axes.axhline(
            size, color=look["color"], linestyle=(0, (1, 1.5)), linewidth=1.8,
            label=legend_text(f"{'HBM for caches' if name == 'hbm' else tier_name(name)}, {format_bytes(size)}"),
        )  # fmt: skip
    legend_below(axes)
    return found


def capacities(frame: pd.DataFrame) -> list[tuple[str, float]]:
    """(tier, bytes): what device memory has for caches, and each tier's size; those alone that all rows share.

    The pool of device memory varies with model and machine; it is given where the rows agree on it.
    """
    found: list[tuple[str, float]] = []
    if {"hbm_free_bytes", "kv_bytes_total_reserved", "fits"} <= set(frame.columns):
        fitting = frame[frame["fits"].astype(bool)]
        pools = (fitting["hbm_free_bytes"] + fitting["kv_bytes_total_reserved"]).to_numpy(float)
        if pools.size and np.ptp(pools) <= 1e-6 * abs(pools[0]):
            found.append(("hbm", float(pools[0])))
    if {"tier", "capacity_bytes"} <= set(frame.columns):
        for name, rows in frame[frame["tier"] != "hbm"].groupby("tier", sort=False, observed=True):
            sizes = rows["capacity_bytes"].dropna().unique()
            found += [(str(name), float(size)) for size in sizes[:1] if sizes.size == 1]
    return found[:MOST_CAPACITIES]


def reload_time(axes: Axes, frame: pd.DataFrame, x: str = "context_tokens") -> Lines:
    """Time to first token with a reload along an axis, tier by tier.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `x`, `tier`, `ttft_reload_s`.
    x : str
    """
    axes.set_title("Time to first token with a reload")
    found = along(axes, frame[frame["tier"] != "hbm"], x, "ttft_reload_s", by_tier=True)
    legend_below(axes)
    return found


def cost_per_million(axes: Axes, frame: pd.DataFrame, x: str = "users") -> Lines:
    """Price of a million output tokens along an axis.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `x`, `usd_per_million_output_tokens`.
    x : str
    """
    axes.set_title("Cost of a million output tokens")
    found = along(axes, frame, x, COST)
    axes.set_ylabel("cost per million output tokens [USD]")
    legend_below(axes)
    return found


COST: Final = "usd_per_million_output_tokens"


def along(axes: Axes, frame: pd.DataFrame, x: str, y: str, *, by_tier: bool = False) -> Lines:
    """Lines of one column along another, logarithmic both; gaps where there is no value."""
    found = lines_of(frame if by_tier else cases_of(frame), x, y)
    quantity_axis(axes.xaxis, x)
    quantity_axis(axes.yaxis, y)
    axes.set_xlabel(axis_label(x))
    whole = float(np.nanmin(frame[x].to_numpy(float)))
    if whole <= 0.0:
        axes.set_xscale("symlog", linthresh=1.0)
    drawn = False
    for (label, rows), look in zip(found.lines, cycle(LINES), strict=False):
        values = rows[y].to_numpy(float)
        drawn |= bool(np.isfinite(values).any())
        width = 2.2 if look["color"] == VERMILION else 1.6
        options: dict[str, Any] = {**look, "linewidth": width, "markevery": markers(values.size)}
        axes.plot(rows[x].to_numpy(float), values, **options, label=legend_text(label or axis_label(y).split(" [")[0]))
    shown = [np.concatenate([rows[n].to_numpy(float) for _, rows in found.lines]) for n in (x, y)]
    close_ticks(axes.xaxis, shown[0])
    close_ticks(axes.yaxis, shown[1], most=0)
    if not drawn:
        say_empty(axes, "the users fit device memory nowhere")
    return found
