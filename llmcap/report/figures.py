"""Figures of tables: each draws a DataFrame on an axis, and reads as well in grey.

Nothing here needs a display, and no state is shared between figures.
"""

from __future__ import annotations

import io
import logging
import os
import tempfile
import textwrap
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from llmcap.analyses.context_axis import along_context
from llmcap.analyses.result import Estimate
from llmcap.errors import OptionError, printable
from llmcap.units import format_bytes, format_count

# A first run, or a home that cannot be written to, is no reason for messages beside the answer.
if logging.getLogger("matplotlib").level == logging.NOTSET:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from matplotlib.transforms import ScaledTranslation

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

FORMATS: Final = ("png", "svg", "pdf")

# Okabe and Ito's palette: told apart with any colour vision. Dashes and markers tell lines apart in grey.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
_RECOMPUTE: Final[dict[str, Any]] = {"color": VERMILION, "linestyle": "-", "linewidth": 2.4}
_TIERS: Final[tuple[dict[str, Any], ...]] = (
    {"color": BLUE, "linestyle": (0, (6, 2)), "marker": "o"},
    {"color": GREEN, "linestyle": (0, (6, 2, 1.5, 2)), "marker": "s"},
    {"color": PURPLE, "linestyle": (0, (2, 1.5)), "marker": "^"},
    {"color": ORANGE, "linestyle": (0, (8, 2, 1, 1, 1, 2)), "marker": "D"},
    {"color": SKY, "linestyle": (0, (1, 1)), "marker": "v"},
)
_STYLE: Final[dict[Any, Any]] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.markersize": 5,
    "svg.hashsalt": "llmcap",
}


def plot_estimate(answer: Estimate, path: Path | str) -> None:
    """Write a figure of an estimate's question along the context.

    Parameters
    ----------
    answer : Estimate
    path : Path or str
        File to write; its suffix picks the format: .png, .svg or .pdf. It appears whole or not at all.

    Raises
    ------
    OptionError
        Another suffix, or a file that cannot be written.
    """
    form = format_of(path)
    frame = along_context(answer)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11.0, 5.4), layout="constrained")
        left, right = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
        prefill_against_reload(left, frame, mark=answer.inputs["context_tokens"])
        cache_against_capacity(right, frame, mark=answer.inputs["context_tokens"])
        figure.suptitle(heading(answer), x=0.01, ha="left", fontsize=12.5, fontweight="bold")
        figure.supxlabel(footer(answer), x=0.01, ha="left", fontsize=7.5, color="#555555")
        save(figure, path, form)


def heading(answer: Estimate) -> str:
    """What the figure is about."""
    setting, users = answer.setting, answer.inputs["users"]
    who = "1 user" if users == 1 else f"{users:,} users together"
    return textwrap.fill(f"{setting.model.name} on {setting.machine.server.name}, {who}", 88)


def footer(answer: Estimate) -> str:
    """The assumptions behind the figure, in two lines."""
    i = answer.inputs
    layout = ", ".join(f"{name.upper()} {i[name]}" for name in ("tp", "pp", "dp", "ep", "cp") if i[name] > 1)
    new = i["context_tokens"] - i["cached_tokens"]
    prefix = (
        f"the last {new:,} tokens of each context are new, the rest is reloaded" if i["cached_tokens"]
        else "the whole context is reloaded"
    )  # fmt: skip
    numbers = (
        f"{i['weight_dtype']} weights, {i['kv_dtype']} KV cache ({i['kv_policy']}), {i['devices']} devices"
        f"{', ' + layout if layout else ''}, {i['output_tokens']:,} output tokens, "
        f"prefill steps of {i['chunk_tokens']:,} tokens"
    )
    names = ", ".join(a["name"] for a in answer.assumptions)
    return f"{numbers}; {prefix}.\nAssumptions '{i['assumptions']}': {names}. llmcap {answer.provenance['version']}"


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
    axes.set_yscale("log")
    axes.set_ylabel("time to first token of the last user [s]")
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    if not np.isfinite(recompute).any():
        axes.text(0.5, 0.5, "the users fit device memory at no context", transform=axes.transAxes, ha="center")
        _finish(axes, mark)
        return
    axes.plot(contexts, recompute, **_RECOMPUTE, label="prefill, nothing cached")
    if np.isfinite(low).any():
        axes.fill_between(contexts, low, high, color=VERMILION, alpha=0.2, linewidth=0, label="its uncertainty")
    for (name, rows), style in zip(frame.groupby("tier", sort=False), cycle(_TIERS), strict=False):
        reload = rows["ttft_reload_s"].to_numpy()
        label = _reload_label(name, contexts, recompute, reload)
        axes.plot(contexts, reload, **style, linewidth=1.6, markevery=_every(contexts), label=label)
        at, time = crossing(contexts, recompute, reload)
        if np.isfinite(at):
            axes.plot([at], [time], marker="o", markersize=11, color=BLACK, fillstyle="none", linestyle="none")
    last = contexts[np.isfinite(recompute)][-1]
    if last < contexts[-1]:
        axes.axvspan(last, contexts[-1], facecolor="#eeeeee", hatch="//", edgecolor="#cccccc", linewidth=0,
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
    axes.set_yscale("log")
    axes.set_ylabel("KV cache of all users [bytes]")
    axes.yaxis.set_major_locator(LogLocator(numticks=12))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.plot(contexts, cache, color=BLACK, linewidth=2.4, label="KV cache")
    pool = frame.attrs.get("hbm_pool_bytes", np.nan)
    if pool > 0:
        axes.axhline(pool, color=VERMILION, linewidth=1.6, label=f"HBM, {format_bytes(pool)} for caches")
    for (name, rows), style in zip(frame.groupby("tier", sort=False), cycle(_TIERS), strict=False):
        capacity = float(rows["capacity_bytes"].iloc[0])
        axes.axhline(
            capacity,
            color=style["color"],
            linestyle=style["linestyle"],
            linewidth=1.6,
            label=f"{tier_name(name)}, {format_bytes(capacity)}",
        )
    _finish(axes, mark)


def tier_name(tier: object) -> str:
    """A tier as a person writes it: DRAM, NVMe, remote."""
    return {"hbm": "HBM", "dram": "DRAM", "nvme": "NVMe", "cxl": "CXL"}.get(str(tier), str(tier))


def format_of(path: Path | str) -> str:
    """Format that a file's suffix picks.

    Raises
    ------
    OptionError
        A suffix of no known format.
    """
    suffix = Path(path).suffix
    if suffix.lower().removeprefix(".") not in FORMATS:
        known = ", ".join(f".{name}" for name in FORMATS)
        shown = f"'{printable(suffix, 20)}' is no format for figures" if suffix else "the file has no suffix"
        raise OptionError("--plot", shown, f"end the file's name in {known}")
    return suffix.lower().removeprefix(".")


def save(figure: Figure, path: Path | str, form: str) -> None:
    """Write a figure in one step: a reader never sees half of it, and the same figure gives the same bytes."""
    held = io.BytesIO()
    metadata: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    figure.savefig(held, format=form, dpi=160, metadata=metadata)
    target, temporary = Path(path), None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(held.getvalue())
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        shown = printable(str(target), 200)
        raise OptionError("--plot", f"'{shown}' cannot be written: {error.strerror}", "choose another file") from None


def _context_axis(axes: Axes, contexts: np.ndarray[Any, Any]) -> None:
    axes.set_xscale("log")
    axes.set_xlabel("context of each user [tokens]")
    axes.set_xlim(contexts[0], contexts[-1])
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _short(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _short(tokens: float) -> str:
    for suffix, size in (("M", 1e6), ("k", 1e3)):
        if tokens >= size:
            return f"{tokens / size:,g}{suffix}"
    return f"{tokens:g}"


def _reload_label(
    tier: object, contexts: np.ndarray[Any, Any], recompute: np.ndarray[Any, Any], reload: np.ndarray[Any, Any]
) -> str:
    name = f"reload from {tier_name(tier)}"
    at, _ = crossing(contexts, recompute, reload)
    if np.isfinite(at):
        return f"{name}: faster from {float(f'{at:.2g}'):,.0f} tokens (circle)"
    known = np.isfinite(recompute) & np.isfinite(reload)
    if (reload[known] < recompute[known]).all():
        return f"{name}: faster throughout"
    return f"{name}: slower at {_short(contexts[known][-1])} tokens"


def _every(contexts: np.ndarray[Any, Any]) -> int:
    return max(1, contexts.size // 12)


def _finish(axes: Axes, mark: float | None) -> None:
    """Mark the context that was asked for, and put the legend below the axis, where it covers nothing."""
    if mark is not None:
        label = f"asked: {format_count(int(mark))} tokens"
        axes.axvline(mark, color="#777777", linewidth=1.2, linestyle=(0, (1, 2)), label=label)
    # A distance in points, whatever the height that the legends leave to the axes.
    below = axes.transAxes + ScaledTranslation(0.0, -38.0 / 72.0, axes.figure.dpi_scale_trans)
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.02, 0.0), bbox_transform=below, borderaxespad=0.0, borderpad=0.1,
        handlelength=3.4,
    )  # fmt: skip
