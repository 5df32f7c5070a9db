"""One question along the context: computing the prompt against reloading it, and the cache against what holds it."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from llmcap.report.figures.style import (
    BLACK,
    RECOMPUTE,
    RULE,
    SHADE,
    TIERS,
    VERMILION,
    bytes_axis,
    count_axis,
    legend_below,
    legend_text,
    markers,
    say_empty,
    seconds_axis,
    short_count,
    tier_name,
)
from llmcap.units import format_bytes, format_count

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


def prefill_against_reload(axes: Axes, frame: pd.DataFrame, mark: float | None = None) -> None:
    """Time to the first token against context: computed, with its band, and reloaded from each tier.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `context_tokens`, `tier`, `recompute_s`, `recompute_low_s`, `recompute_high_s`, `ttft_reload_s`.
    mark : float, optional
        Context to mark. [tokens]
    """
    axes.set_title("Compute the prompt, or reload its KV cache?")
    one = frame[frame["tier"] == frame["tier"].iloc[0]]
    contexts, recompute = one["context_tokens"].to_numpy(), one["recompute_s"].to_numpy()
    low, high = one["recompute_low_s"].to_numpy(), one["recompute_high_s"].to_numpy()
    _context_axis(axes, contexts)
    seconds_axis(axes.yaxis, "time to first token of the last user [s]")
    if not np.isfinite(recompute).any():
        say_empty(axes, "the users fit device memory at no context")
        _finish(axes, mark)
        return
    axes.plot(contexts, recompute, **RECOMPUTE, label="prefill, nothing cached")
    if np.isfinite(low).any():
        axes.fill_between(contexts, low, high, color=VERMILION, alpha=0.2, linewidth=0, label="its uncertainty")
    for (name, rows), style in zip(frame.groupby("tier", sort=False, observed=True), cycle(TIERS), strict=False):
        reload = rows["ttft_reload_s"].to_numpy()
        known = frame.attrs.get("break_even_tokens", {}).get(name)
        label = _reload_label(name, contexts, recompute, reload, known)
        axes.plot(contexts, reload, **style, linewidth=1.6, markevery=markers(contexts.size), label=label)
        at, time = crossing(contexts, recompute, reload)
        if np.isfinite(at):
            axes.plot([at], [time], marker="o", markersize=11, color=BLACK, fillstyle="none", linestyle="none")
    last = contexts[np.isfinite(recompute)][-1]
    if last < contexts[-1]:
        axes.axvspan(last, contexts[-1], facecolor=SHADE, hatch="//", edgecolor=RULE, linewidth=0,
                     label="the users do not fit HBM")  # fmt: skip
    _finish(axes, mark)


def crossing(
    contexts: np.ndarray[Any, Any], recompute: np.ndarray[Any, Any], reload: np.ndarray[Any, Any]
) -> tuple[float, float]:
    """Context from which reloading stays faster, and the time there; NaN where the lines do not cross.

    >>> crossing(np.array([1.0, 10.0, 100.0]), np.array([1.0, 10.0, 100.0]), np.array([10.0, 10.0, 10.0]))
    (10.0, 10.0)
    """
    known = np.isfinite(recompute) & np.isfinite(reload)
    x, a, b = contexts[known], recompute[known], reload[known]
    loses = np.flatnonzero(b >= a)
    if not loses.size or loses[-1] + 1 >= x.size:
        return np.nan, np.nan
    i = int(loses[-1])
    # Between two neighbours both lines are straight on logarithmic axes.
    gaps = np.log(b[i : i + 2] / a[i : i + 2])
    share = float(gaps[0] / (gaps[0] - gaps[1]))
    at = x[i] * (x[i + 1] / x[i]) ** share
    return float(at), float(b[i] * (b[i + 1] / b[i]) ** share)


def cache_against_capacity(axes: Axes, frame: pd.DataFrame, mark: float | None = None) -> None:
    """KV cache of all users against context, with the capacity of device memory and of each tier.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        `context_tokens`, `tier`, `kv_bytes_total`, `capacity_bytes`; `attrs["hbm_pool_bytes"]`, if known.
    mark : float, optional
        Context to mark. [tokens]
    """
    axes.set_title("KV cache, and what holds it")
    one = frame[frame["tier"] == frame["tier"].iloc[0]]
    contexts, cache = one["context_tokens"].to_numpy(), one["kv_bytes_total"].to_numpy()
    _context_axis(axes, contexts)
    bytes_axis(axes.yaxis, "KV cache of all users [bytes]")
    axes.plot(contexts, cache, color=BLACK, linewidth=2.4, label="KV cache")
    pool = frame.attrs.get("hbm_pool_bytes", np.nan)
    if pool > 0:
        axes.axhline(pool, color=VERMILION, linewidth=1.6, label=f"HBM, {format_bytes(pool)} for caches")
    for (name, rows), style in zip(frame.groupby("tier", sort=False, observed=True), cycle(TIERS), strict=False):
        capacity = float(rows["capacity_bytes"].iloc[0])
        axes.axhline(
            capacity,
            color=style["color"],
            linestyle=style["linestyle"],
            linewidth=1.6,
            label=legend_text(f"{tier_name(name)}, {format_bytes(capacity)}"),
        )
    _finish(axes, mark)


def _context_axis(axes: Axes, contexts: np.ndarray[Any, Any]) -> None:
    count_axis(axes.xaxis, "context of each user [tokens]")
    axes.set_xlim(contexts[0], contexts[-1])


def _reload_label(
    tier: object,
    contexts: np.ndarray[Any, Any],
    recompute: np.ndarray[Any, Any],
    reload: np.ndarray[Any, Any],
    break_even: int | None,
) -> str:
    name = f"reload from {tier_name(tier)}"
    at, _ = crossing(contexts, recompute, reload)
    if np.isfinite(at):
        # What the tables say, where it is known; read off the lines between two points otherwise.
        exact = break_even is not None
        return f"{name}: faster from {f'{break_even:,}' if exact else f'about {_two_digits(at):,.0f}'} tokens (circle)"
    known = np.isfinite(recompute) & np.isfinite(reload)
    if (reload[known] < recompute[known]).all():
        return f"{name}: faster throughout"
    return f"{name}: slower at {short_count(contexts[known][-1])} tokens"


def _two_digits(value: float) -> float:
    return float(f"{value:.2g}")


def _finish(axes: Axes, mark: float | None) -> None:
    """Mark the context that was asked for, and add the legend."""
    if mark is not None:
        label = f"asked: {format_count(int(mark))} tokens"
        axes.axvline(mark, color="#777777", linewidth=1.2, linestyle=(0, (1, 2)), label=label)
    legend_below(axes)
