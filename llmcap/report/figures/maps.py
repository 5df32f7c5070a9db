"""The break-even map: where along context and users reloading beats computing again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from matplotlib.collections import PolyCollection
from matplotlib.patches import Patch

from llmcap.report.figures.style import (
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    RULE,
    SHADE,
    SKY,
    VERMILION,
    axis_label,
    legend_text,
    quantity_axis,
    tier_name,
)

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

Array = np.ndarray[Any, Any]

NOT_FITTING: Final = "the users do not fit HBM"
COMPUTING: Final = "computing again is faster than any reload"
#: Fill and hatch of the answers other than these two, in the order in which they appear.
_RELOADS: Final = ((BLUE, ""), (SKY, ".."), (GREEN, "\\\\"), (PURPLE, "xx"), (ORANGE, "++"))


def break_even_map(axes: Axes, frame: pd.DataFrame, x: str = "context_tokens", y: str = "users") -> list[str]:
    """What is fastest for each context and number of users, by colour and by hatch.

    Parameters
    ----------
    axes : Axes
    frame : DataFrame
        Rows of a sweep on a grid of `x` and `y`: `tier`, `winner` (empty where the users do not fit).
    x, y : str
        Columns of the axes.

    Returns
    -------
    list of str
        The answers that occur, as the legend names them.
    """
    axes.set_title("Which tiers beat computing again")
    xs, ys, answers, names = answers_of(frame, x, y)
    quantity_axis(axes.xaxis, x)
    quantity_axis(axes.yaxis, y)
    axes.set_xlabel(axis_label(x))
    axes.set_ylabel(axis_label(y))
    edges_x, edges_y = _edges(xs), _edges(ys)
    axes.set_xlim(edges_x[0], edges_x[-1])
    axes.set_ylim(edges_y[0], edges_y[-1])
    axes.grid(False)
    handles = []
    reloads = iter(_RELOADS * (len(names) // len(_RELOADS) + 1))
    for code, name in enumerate(names):
        if name == NOT_FITTING:
            fill, hatch, line = SHADE, "//", RULE
        elif name == COMPUTING:
            fill, hatch, line = VERMILION, "", "white"
        else:
            (fill, hatch), line = next(reloads), "white"
        boxes = _boxes(answers == code, edges_x, edges_y)
        axes.add_collection(
            PolyCollection(boxes, facecolor=fill, edgecolor=line, hatch=hatch, linewidth=0.0, antialiased=False)
        )
        handles.append(Patch(facecolor=fill, edgecolor=line, hatch=hatch, linewidth=0.0, label=legend_text(name)))
    axes.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(0.0, -0.17), borderaxespad=0.0, handlelength=2.4,
        handleheight=1.2,
    )  # fmt: skip
    return names


def answers_of(frame: pd.DataFrame, x: str, y: str) -> tuple[Array, Array, Array, list[str]]:
    """Values of both axes, the code of the answer in each cell (-1 where the grid has a hole), and what codes mean."""
    offload = frame[frame["tier"] != "hbm"]
    tiers = list(offload["tier"].unique())
    xs, ys = np.unique(offload[x].to_numpy(float)), np.unique(offload[y].to_numpy(float))
    shape = (ys.size, xs.size)
    wins, known, seen = np.zeros((len(tiers), *shape), bool), np.zeros(shape, bool), np.zeros(shape, bool)
    for i, tier in enumerate(tiers):
        rows = offload[offload["tier"] == tier]
        at = (np.searchsorted(ys, rows[y].to_numpy(float)), np.searchsorted(xs, rows[x].to_numpy(float)))
        winner = rows["winner"].astype(object).to_numpy()
        wins[(i, *at)] = winner == "reload"
        known[at] |= (winner == "reload") | (winner == "recompute")
        seen[at] = True
    codes = np.full(shape, -1)
    keys = [""] * codes.size
    for cell, (j, k) in enumerate(np.ndindex(*shape)):
        if seen[j, k]:
            keys[cell] = _answer([t for i, t in enumerate(tiers) if wins[i, j, k]], tiers, bool(known[j, k]))
    names = sorted({key for key in keys if key}, key=lambda n: (n == NOT_FITTING, n == COMPUTING, -len(n), n))
    for cell, (j, k) in enumerate(np.ndindex(*shape)):
        if keys[cell]:
            codes[j, k] = names.index(keys[cell])
    return xs, ys, codes, names


def _answer(winning: list[str], tiers: list[str], known: bool) -> str:
    if not known:
        return NOT_FITTING
    if not winning:
        return COMPUTING
    shown = [tier_name(t) for t in winning]
    if len(winning) == len(tiers) > 1:
        return f"reload is faster from every tier ({', '.join(shown)})"
    only = " alone" if len(tiers) > 1 else ""
    return f"reload is faster from {' and '.join(shown)}{only}"


def _edges(values: Array) -> Array:
    """Borders of cells around values, halfway on a logarithmic axis."""
    if values.size == 1:
        return np.array([values[0] / 1.5, values[0] * 1.5])
    logs = np.log(np.maximum(values, 0.5))
    middle = (logs[1:] + logs[:-1]) / 2
    edges: Array = np.exp(np.concatenate([[2 * logs[0] - middle[0]], middle, [2 * logs[-1] - middle[-1]]]))
    return edges


def _boxes(mask: Array, xs: Array, ys: Array) -> list[Array]:
    """Rectangles that cover the true cells: runs of each row, joined with equal runs of the rows below."""
    found: list[Array] = []
    open_runs: dict[tuple[int, int], int] = {}
    for j in range(mask.shape[0] + 1):
        runs = set(_runs(mask[j])) if j < mask.shape[0] else set()
        for run in [r for r in open_runs if r not in runs]:
            first = open_runs.pop(run)
            (left, right), (low, high) = (xs[run[0]], xs[run[1]]), (ys[first], ys[j])
            if j < mask.shape[0] and mask[j, run[0] : run[1]].any():
                high *= 1.006  # a hair of overlap, or a hair of background shows between the rows
            found.append(np.array([[left, low], [right, low], [right, high], [left, high]]))
        for run in runs:
            open_runs.setdefault(run, j)
    return found


def _runs(row: Array) -> list[tuple[int, int]]:
    steps = np.flatnonzero(np.diff(np.concatenate([[0], row.astype(int), [0]])))
    return [(int(a), int(b)) for a, b in zip(steps[::2], steps[1::2], strict=True)]
