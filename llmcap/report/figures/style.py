"""How figures look: colours, dashes and hatches that grey keeps apart, axes with units, files that appear whole."""

from __future__ import annotations

import io
import logging
import os
import re
import tempfile
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from llmcap.errors import OptionError, printable
from llmcap.glossary import GLOSSARY
from llmcap.units import format_bytes, format_rate, format_seconds

# A first run, or a home that cannot be written to, is no reason for messages beside the answer.
if logging.getLogger("matplotlib").level == logging.NOTSET:
    logging.getLogger("matplotlib").setLevel(logging.ERROR)

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from numpy.typing import NDArray

FORMATS: Final = ("png", "svg", "pdf")

# Okabe and Ito's palette: told apart with any colour vision. Dashes and markers tell lines apart in grey.
BLACK, ORANGE, SKY, GREEN, BLUE, VERMILION, PURPLE = (
    "#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7",
)  # fmt: skip
INK, MUTED, RULE, SHADE = "#1a1a1b", "#555556", "#dddddc", "#eeeeed"
"""Text, lesser text, grid, and areas without data: unlike any other colour, so that a page can exchange them."""

RECOMPUTE: Final[dict[str, Any]] = {"color": VERMILION, "linestyle": "-", "linewidth": 2.4}
TIERS: Final[tuple[dict[str, Any], ...]] = (
    {"color": BLUE, "linestyle": (0, (6, 2)), "marker": "o"},
    {"color": GREEN, "linestyle": (0, (6, 2, 1.5, 2)), "marker": "s"},
    {"color": PURPLE, "linestyle": (0, (2, 1.5)), "marker": "^"},
    {"color": ORANGE, "linestyle": (0, (8, 2, 1, 1, 1, 2)), "marker": "D"},
    {"color": SKY, "linestyle": (0, (1, 1)), "marker": "v"},
)
LINES: Final[tuple[dict[str, Any], ...]] = ({"color": VERMILION, "linestyle": "-", "marker": "X"}, *TIERS)
HATCHES: Final = ("", "//", "..", "xx", "\\\\", "++", "oo")
STYLE: Final[dict[Any, Any]] = {
    "font.size": 9.5,
    "axes.titlesize": 10.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "lines.markersize": 5,
    "svg.hashsalt": "llmcap",
    # A name with two dollar signs is a name, not a formula.
    "text.parse_math": False,
}
WIDTH, HEIGHT = 5.6, 4.6
"""Of a figure with one axis. [inch]"""


@contextmanager
def styled() -> Iterator[None]:
    """The style of all figures; letters that the font lacks become boxes without a word on stderr."""
    with mpl.rc_context(STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from", category=UserWarning)
        yield


def tier_name(tier: object) -> str:
    """A tier as a person writes it: DRAM, NVMe, remote."""
    return {"hbm": "HBM", "dram": "DRAM", "nvme": "NVMe", "cxl": "CXL"}.get(str(tier), printable(tier, 30))


def legend_text(text: str) -> str:
    """A label for the legend; matplotlib would leave out one that begins with an underscore."""
    shown = textwrap.fill(printable(text, 110), 56)
    return f"\u200a{shown}" if shown.startswith("_") else shown


def short_count(count: float) -> str:
    """A count on an axis: 250, 1k, 1M."""
    for suffix, size in (("M", 1e6), ("k", 1e3)):
        if count >= size:
            return f"{float(f'{count / size:.3g}'):,g}{suffix}"
    return f"{float(f'{count:.3g}'):g}"


def axis_label(name: str) -> str:
    """A column's name on an axis, with its unit."""
    entry = GLOSSARY.get(name)
    if entry is None:
        return name.replace("_", " ")
    # "users [users]" says nothing twice.
    return entry.label if entry.unit in ("1", entry.label) else entry.axis.replace("[B]", "[bytes]")


def count_axis(axis: Axis, label: str, *, log: bool = True) -> None:
    """A horizontal or vertical axis of counts."""
    _scale(axis, log)
    axis.set_label_text(label)
    axis.set_major_formatter(FuncFormatter(lambda value, _: short_count(value)))
    axis.set_minor_formatter(NullFormatter())


def seconds_axis(axis: Axis, label: str) -> None:
    """A logarithmic axis of times."""
    _scale(axis, True)
    axis.set_label_text(label)
    axis.set_major_locator(LogLocator(numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def bytes_axis(axis: Axis, label: str, *, log: bool = True) -> None:
    """An axis of sizes."""
    _scale(axis, log)
    axis.set_label_text(label)
    if log:
        axis.set_major_locator(LogLocator(numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: format_bytes(value)))
    axis.set_minor_formatter(NullFormatter())


def quantity_axis(axis: Axis, name: str) -> None:
    """The axis of a column, by the unit that the glossary gives it."""
    entry = GLOSSARY.get(name)
    unit = entry.unit if entry else ""
    if unit == "s":
        seconds_axis(axis, axis_label(name))
    elif unit == "B":
        bytes_axis(axis, axis_label(name))
    else:
        count_axis(axis, axis_label(name))


def _scale(axis: Axis, log: bool) -> None:
    scale = "log" if log else "linear"
    if axis.axis_name == "x":  # type: ignore[attr-defined]
        axis.axes.set_xscale(scale)
    else:
        axis.axes.set_yscale(scale)


def close_ticks(axis: Axis, values: NDArray[np.float64], most: int = 8) -> None:
    """Ticks for a logarithmic axis that spans little: at the values themselves if they are few, else at 1, 2, 5.

    Powers of ten alone would leave such an axis with a tick or two.
    """
    known = np.unique(values[np.isfinite(values)])
    if not known.size or known[0] <= 0.0:
        return
    if known.size <= most and (known[1:] / known[:-1] >= 1.2).all() and known[-1] / known[0] < 1e4:
        axis.set_major_locator(FixedLocator(known.tolist()))
        axis.set_minor_locator(NullLocator())
    elif known[-1] / known[0] < 50:
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))


def say_empty(axes: Axes, text: str) -> None:
    """What stands in the place of data that there are none of."""
    axes.text(0.5, 0.5, text, transform=axes.transAxes, ha="center", color=MUTED)


def markers(points: int) -> int:
    """Every how many points a marker stands."""
    return max(1, points // 12)


def legend_below(axes: Axes, columns: int = 1) -> None:
    """Put the legend below the axis, where it covers nothing."""
    if not axes.get_legend_handles_labels()[1]:
        return
    # A distance in points, whatever the height that the legends leave to the axes.
    below = axes.transAxes + ScaledTranslation(0.0, -38.0 / 72.0, axes.figure.dpi_scale_trans)
    axes.legend(
        loc="upper left", bbox_to_anchor=(-0.02, 0.0), bbox_transform=below, borderaxespad=0.0, borderpad=0.1,
        handlelength=3.4, ncols=columns,
    )  # fmt: skip


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> tuple[Figure, Axes]:
    """A figure with one axis; to be called, drawn on and saved inside `styled`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def put_footer(figure: Figure, text: str, plot_height: float = 3.0) -> None:
    """The assumptions behind a figure, below everything else; then as much height as legend and footer need.

    Parameters
    ----------
    figure : Figure
    text : str
    plot_height : float
        Left for the axes themselves. [inch]
    """
    lines = [line for part in text.split("\n") for line in textwrap.wrap(printable(part, 600), 92)]
    figure.supxlabel("\n".join(lines), x=0.01, ha="left", fontsize=7.5, color=MUTED)
    entries = 0
    for axes in figure.axes:
        legend = axes.get_legend()
        if legend is not None:
            lines_of_text = sum(1 + text.get_text().count("\n") for text in legend.get_texts())
            entries = max(entries, -(-lines_of_text // max(legend._ncols, 1)))  # type: ignore[attr-defined]
    figure.set_figheight(plot_height + 0.85 + 0.19 * entries + 0.13 * len(lines))


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


def rendered(figure: Figure, form: str) -> bytes:
    """A figure as the bytes of a file; the same figure gives the same bytes."""
    held = io.BytesIO()
    metadata: dict[str, Any] = {"png": {"Software": None}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}[form]
    figure.savefig(held, format=form, dpi=160, metadata=metadata)
    return held.getvalue()


def save(figure: Figure, path: Path | str, form: str) -> None:
    """Write a figure in one step: a reader never sees half of it.

    Raises
    ------
    OptionError
        The file cannot be written.
    """
    content = rendered(figure, form)
    target, temporary = Path(path), None
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.name[:40]}.", dir=target.parent)
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
        mask = os.umask(0)
        os.umask(mask)
        temporary.chmod(0o666 & ~mask)
        temporary.replace(target)
    except OSError as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        shown = printable(str(target), 200)
        raise OptionError("--plot", f"'{shown}' cannot be written: {error.strerror}", "choose another file") from None


_NAMED: Final = {BLACK: "ink", INK: "ink", MUTED: "muted", RULE: "rule", SHADE: "shade"}
_PROLOGUE: Final = re.compile(r"^.*?(?=<svg)", re.DOTALL)
#: Comments, metadata, the style rule that would apply to the whole page, and names of groups, which nothing refers to.
_SHORTENED: Final = re.compile(r' (?:d|x|y|width|height|points)="[^"]*"|translate\([^)]*\)')
"""Coordinates, of which hundredths of a point are enough; the scale of letters needs all its digits."""
_LEFT_OUT: Final = re.compile(r"<!--.*?-->|<metadata>.*?</metadata>|<style.*?</style>|(?<=<g) id=\"[^\"]*\"", re.DOTALL)


def inline_svg(figure: Figure, prefix: str) -> str:
    """A figure as an element of a page, without background, its greys exchanged for the page's own.

    Parameters
    ----------
    figure : Figure
    prefix : str
        Goes before every id, so that several figures can stand on one page.

    Returns
    -------
    str
        `<svg ...>`, hidden from screen readers: the text alternative is the page's business.
    """
    held = io.StringIO()
    figure.savefig(held, format="svg", metadata={"Date": None, "Creator": None}, transparent=True)
    svg = _LEFT_OUT.sub("", _PROLOGUE.sub("", held.getvalue()))
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r"(href=\"#|url\(#)", rf"\1{prefix}-", svg)
    for colour, name in _NAMED.items():
        svg = svg.replace(colour, f"var(--figure-{name})")
    svg = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", svg, count=1)
    svg = re.sub(r"\n\s*", "\n", svg)
    svg = _SHORTENED.sub(lambda m: re.sub(r"\d+\.\d{4,}", lambda n: f"{float(n[0]):.2f}", m[0]), svg)
    return svg.replace("<svg", '<svg aria-hidden="true" focusable="false"', 1).strip()


def shown_value(name: str, value: Any) -> str:
    """An input as part of a line's label: '10 users', 'TP 8', '128k tokens', 'dgx-b200'."""
    entry = GLOSSARY.get(name)
    if name == "tier":
        return tier_name(value)
    if isinstance(value, str):
        return printable(value, 40) if name in ("model", "hardware", "override") else f"{label_of(name)} {value}"
    if entry is not None and entry.unit == "B":
        return f"{entry.label} {format_bytes(float(value))}"
    if entry is not None and entry.unit == "s":
        return f"{entry.label} {format_seconds(float(value))}"
    if name == "users":
        return "1 user" if value == 1 else f"{int(value):,} users"
    if name == "draft_tokens":
        return f"{int(value):,} drafted"
    if name == "acceptance":
        return f"{float(value):.0%} accepted"
    if name == "arrivals_per_s":
        return format_rate(float(value), "requests/s")
    if name == "sessions":
        return "1 session" if value == 1 else f"{int(value):,} sessions"
    if name in ("context_tokens", "output_tokens", "cached_tokens", "new_tokens"):
        what = {"context_tokens": "in", "output_tokens": "out", "cached_tokens": "cached", "new_tokens": "new"}[name]
        return f"{short_count(float(value))} tokens {what}"
    return f"{label_of(name)} {short_count(float(value))}"


def label_of(name: str) -> str:
    """Short name of a column."""
    entry = GLOSSARY.get(name)
    return entry.label if entry else name.replace("_", " ")
