"""Figures of load: the front of time to first token against throughput, and hits of a cache against its size."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import PercentFormatter

from llmcap.report.figures.series import cases_of, label_for, telling, varying
from llmcap.report.figures.style import (
    BLUE,
    INK,
    LINES,
    TIERS,
    bytes_axis,
    close_ticks,
    count_axis,
    legend_below,
    legend_text,
    say_empty,
    seconds_axis,
    tier_name,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array = np.ndarray[Any, Any]


def pareto(axes: Axes, frame: pd.DataFrame) -> pd.DataFrame:
    """Time to first token against output rate: all cases, and the front of those that nothing beats in both.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        Rows of a sweep with `ttft_s` and `output_tok_per_s`.

    Returns
    -------
    DataFrame
        The cases on the front, by time to first token.
    """
    axes.set_title("Waiting against throughput")
    seconds_axis(axes.xaxis, "time to first token of the last user [s]")
    count_axis(axes.yaxis, "output rate [tokens/s]")
    cases = cases_of(frame).dropna(subset=["ttft_s", "output_tok_per_s"])
    front = cases.iloc[front_of(cases["ttft_s"].to_numpy(float), cases["output_tok_per_s"].to_numpy(float))]
    if not len(cases):
        say_empty(axes, "the users fit device memory nowhere")
        return front
    every = varying(cases)
    told = {*telling(cases, every, "ttft_s"), *telling(cases, every, "output_tok_per_s")}
    names = [n for n in every if n in told]
    few = next((n for n in names if 2 <= cases[n].nunique() <= len(LINES)), None)
    groups = cases.groupby(few, sort=False, observed=True) if few else [("", cases)]
    for (value, rows), look in zip(groups, LINES, strict=False):
        axes.plot(
            rows["ttft_s"], rows["output_tok_per_s"], marker=look["marker"], color=look["color"], linestyle="none",
            fillstyle="none", label=legend_text(label_for([few], value) if few else "cases"),
        )  # fmt: skip
    axes.plot(front["ttft_s"], front["output_tok_per_s"], color=INK, linewidth=1.6, label="front: nothing beats these")
    for end, position in (("start", 0), ("end", len(front) - 1)) if names else ():
        what = label_for(names, tuple(front.iloc[position][n] for n in names))
        axes.plot([], [], " ", label=legend_text(f"its {end}: {what}"))
    close_ticks(axes.yaxis, cases["output_tok_per_s"].to_numpy(float), most=0)
    legend_below(axes)
    return front


def front_of(cost: Array, gain: Array) -> Array:
    """Positions of the points that no other point beats: less cost and no less gain, or more gain at no more cost.

    >>> front_of(np.array([1.0, 2.0, 3.0]), np.array([5.0, 4.0, 9.0])).tolist()
    [0, 2]
    """
    order = np.lexsort((-gain, cost))
    best = np.maximum.accumulate(gain[order])
    before = np.concatenate([[-np.inf], best[:-1]])
    return order[gain[order] > before]


def hit_ratio(axes: Axes, frame: pd.DataFrame, tiers: pd.DataFrame | None = None, ideal: float | None = None) -> None:
    """Hits of an LRU prefix cache against its capacity.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `capacity_bytes` and `hit_ratio`, as a replay's curve.
    tiers : DataFrame, optional
        `tier`, `capacity_bytes`: drawn in.
    ideal : float, optional
        Hit ratio when nothing is ever evicted.
    """
    axes.set_title("Hits of a prefix cache")
    bytes_axis(axes.xaxis, "capacity for KV caches [bytes]")
    axes.set_ylabel("tokens found in the cache [% of the input]")
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    sizes, hits = frame["capacity_bytes"].to_numpy(float), frame["hit_ratio"].to_numpy(float)
    # Between two capacities the ratio is at least that of the smaller one.
    axes.step(sizes, hits, where="post", color=BLUE, linewidth=2.0, marker="o", label="least recently used goes first")
    highest = float(np.max(hits, initial=0.0))
    if ideal is not None:
        axes.axhline(ideal, color=INK, linestyle=(0, (4, 2)), label=f"nothing ever evicted, {ideal:.1%}")
        highest = max(highest, ideal)
    axes.set_ylim(0.0, max(highest * 1.1, 0.01))
    if tiers is not None:
        for (_, row), look in zip(tiers.iterrows(), cycle(TIERS), strict=False):
            if not np.isfinite(float(row["capacity_bytes"])) or float(row["capacity_bytes"]) <= 0:
                continue
            share = f", {row['hit_ratio']:.1%} with all before it" if "hit_ratio" in tiers.columns else ""
            label = legend_text(f"{tier_name(row['tier'])}{share}")
            axes.axvline(row["capacity_bytes"], color=look["color"], linestyle=look["linestyle"], label=label)
    legend_below(axes)
