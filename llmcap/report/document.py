"""What a report holds, whatever form it takes: question, answer, pictures, tables, assumptions, sources."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from llmcap.errors import printable
from llmcap.glossary import GLOSSARY
from llmcap.records import dataclass
from llmcap.report.tables import Row
from llmcap.units import format_bytes, format_count, format_rate, format_seconds

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NONE: Final = "-"
_MOST_TEXT: Final = 600


@dataclass(frozen=True, slots=True)
class Head:
    """Head of a column."""

    label: str
    text: str = ""
    """What the column means."""
    numeric: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell as shown, and what it sorts by."""

    text: str
    value: float | None = None


@dataclass(frozen=True, slots=True)
class Table:
    """A table with its caption."""

    name: str
    """Identifier on the page."""
    caption: str
    heads: list[Head]
    rows: list[list[Cell]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure with what it shows in words."""

    name: str
    caption: str
    alternative: str
    """The content in a sentence or two, for those who cannot see it."""
    figure: Figure


@dataclass(frozen=True, slots=True)
class Assumption:
    """One assumption as readers see it."""

    name: str
    text: str
    source: str
    bias: str
    inferred: bool = False


@dataclass(frozen=True, slots=True)
class Report:
    """A whole report."""

    title: str
    question: str
    answer: list[str]
    pictures: list[Picture]
    tables: list[Table]
    command: str
    """Makes the same report again."""
    notes: list[str] = field(default_factory=list)
    assumptions: list[Assumption] = field(default_factory=list)
    sources: Sequence[Row] = ()
    documents: Sequence[tuple[str, str, str]] = ()
    """(id, sha256, kind) of each."""
    version: str = ""


def table_of(
    name: str, caption: str, rows: Sequence[Row], columns: Sequence[str], note: str = "",
    labels: Mapping[str, str] | None = None,
) -> Table:  # fmt: skip
    """Rows as a table; cells and heads by the unit and label that the glossary has for a column.

    Columns that no row has a value for are left out.
    """
    kept = [c for c in columns if any(not _missing(row.get(c)) for row in rows)]
    heads = [_head(c, [row.get(c) for row in rows], (labels or {}).get(c)) for c in kept]
    return Table(name, caption, heads, [[cell_of(c, row.get(c)) for c in kept] for row in rows], note)


def _head(name: str, values: Sequence[Any], label: str | None) -> Head:
    entry = GLOSSARY.get(name)
    shown = label or (entry.label if entry else name.replace("_", " "))
    numeric = all(_missing(v) or (isinstance(v, int | float) and not isinstance(v, bool)) for v in map(_plain, values))
    return Head(shown, entry.text if entry else "", numeric)


def cell_of(name: str, value: Any) -> Cell:
    """A value as a person reads it, and the number it sorts by."""
    value = _plain(value)
    if _missing(value):
        return Cell(NONE)
    if isinstance(value, bool):
        return Cell("yes" if value else "no", float(value))
    if isinstance(value, str):
        return Cell(printable(value, _MOST_TEXT))
    return Cell(quantity(name, float(value)), float(value))


def quantity(name: str, value: float) -> str:
    """A number with the unit that its column's name and the glossary tell."""
    entry = GLOSSARY.get(name)
    unit = entry.unit if entry else ""
    if unit == "s" or (name.endswith("_s") and not name.endswith("_per_s")):
        return format_seconds(value)
    if unit == "B" or name.endswith(("_bytes", "bytes_per_day")):
        return format_bytes(value)
    if unit == "B/s" or name.endswith("bytes_per_s"):
        return format_rate(value, "B/s")
    if unit == "tokens/s":
        return format_rate(value, "tokens/s")
    if name in ("arrivals_per_s", "serving_requests_per_s", "serving_saturation_requests_per_s"):
        return format_rate(value, "requests/s")
    if name in ("mfu", "mbu") or name.endswith(("_ratio", "share", "utilisation")):
        return f"{value:.1%}".replace("%", " %")
    if name == "speedup":
        return f"{value:,.0f}x" if value >= 10 else f"{value:.2g}x"
    if "usd" in name:
        return f"{value:,.4g} USD"
    if value.is_integer() and abs(value) < 1e15:
        return format_count(int(value)) if unit == "tokens" else f"{int(value):,}"
    return f"{value:,.4g}"


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def _missing(value: Any) -> bool:
    value = _plain(value)
    return value is None or (isinstance(value, float) and not math.isfinite(value)) or str(value) == "<NA>"
