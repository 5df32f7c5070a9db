"""Sides of a comparison in columns, ratios beside the figures, and the reasons in sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final

from llmcap.analyses.explaining.compare import Comparison
from llmcap.glossary import GLOSSARY
from llmcap.report.markdown import unmarked
from llmcap.report.tables import Row, markdown_text, plain_table
from llmcap.report.words import layout, question
from llmcap.units import format_bytes, format_rate, format_seconds, format_si

NONE: Final = "-"
_FORMS: Final[dict[str, Callable[[Any], str]]] = {
    "s": format_seconds,
    "B": format_bytes,
    "tokens/s": lambda v: format_rate(v, "tok/s"),
    "users": lambda v: f"{v:,}",
    "1": lambda v: f"{v:.1%}",
    "W": lambda v: format_si(v, "W"),
    "J": lambda v: format_si(v, "J"),
    "USD/h": lambda v: f"{v:,.2f} USD",
    "USD": lambda v: f"{v:,.3g} USD",
}


def compare_page(sides: Comparison, width: int = 120) -> str:
    """As aligned text; sides that are too many for the width stand in several tables."""
    heads = [_head(v.name) for v in sides.variants]
    blocks = [plain_table(part, right=heads) for part in _parts(sides, width)]
    told = [textwrap.fill(f"{row['text']}.", width, subsequent_indent="  ") for row in sides.reasons]
    notes = [f"{v.name}: {v.estimate.warnings[-1]}" for v in sides.variants if not v.estimate.fits]
    told += [textwrap.fill(f"{note}.", width, subsequent_indent="  ") for note in notes]
    head = "".join(textwrap.fill(line, width, subsequent_indent="  ") + "\n" for line in _asked(sides))
    legend = textwrap.fill(_LEGEND, width) + "\n"
    return "\n".join([*([head] if head else []), *blocks, legend, *(["\n".join(told) + "\n"] if told else [])])


def compare_markdown(sides: Comparison) -> str:
    """The same in Markdown."""
    told = "".join(f"- {row['text']}.\n" for row in sides.reasons)
    head = "".join(f"{unmarked(line)}\n\n" for line in _asked(sides)).removesuffix("\n")
    return "\n".join([head, markdown_text(_lines(sides, range(len(sides.variants)))), _LEGEND + "\n", told])


_LEGEND: Final = "In brackets: ratio to the first; + marks the best."


def _asked(sides: Comparison) -> list[str]:
    """What all sides have in common, and where they share neither model nor machine, what each side is."""
    settings = [v.estimate.setting for v in sides.variants]
    models, machines = [s.model.name for s in settings], [s.machine.server.name for s in settings]
    said = []
    if len(set(models)) > 1 and len(set(machines)) > 1:
        pairs = zip(sides.variants, models, machines, strict=True)
        said = [f"{_head(v.name)}: {model} on {machine}" for v, model, machine in pairs]
        models = machines = []
    where = [*(set(models) if len(set(models)) == 1 else ()), *(set(machines) if len(set(machines)) == 1 else ())]
    loads = {question(v.estimate) for v in sides.variants}
    layouts = {layout(v.estimate) for v in sides.variants}
    common = [" on ".join(where), *(loads if len(loads) == 1 else ()), *(layouts if len(layouts) == 1 else ())]
    shared = "; ".join(part for part in common if part)
    return [*said, shared] if shared else said


def _parts(sides: Comparison, width: int) -> list[list[Row]]:
    """Tables that fit the width: the first side stands in each of them."""
    everything = range(len(sides.variants))
    for number in range(len(sides.variants) - 1, 0, -1):
        groups = [list(everything)[i : i + number] for i in range(1, len(sides.variants), number)]
        parts = [_lines(sides, [0, *group]) for group in groups]
        if number == 1 or max(len(line) for part in parts for line in plain_table(part).splitlines()) <= width:
            return parts
    return [_lines(sides, everything)]


def _lines(sides: Comparison, which: Sequence[int]) -> list[Row]:
    lines: list[Row] = []
    for row in sides.rows:
        line: dict[str, Any] = {"figure": _label(row["metric"])}
        for i in which:
            line[_head(sides.variants[i].name)] = _cell(row, i)
        lines.append(line)
    return lines


def _head(name: str) -> str:
    return name if len(name) <= 40 else name[:37] + "..."


def _label(metric: str) -> str:
    tier, _, column = metric.rpartition(" ")
    known = GLOSSARY[column].label if column in GLOSSARY else column
    return f"{tier}: {known}" if tier else known


def _cell(row: Row, i: int) -> str:
    value, ratio = row["values"][i], row["ratios"][i]
    if value is None:
        return NONE
    text = _written(row, value)
    if i and ratio is not None:
        text += f" ({ratio:.2f})" if ratio < 100 else f" ({ratio:,.0f})"
    # The best is marked where a digit that is shown tells it from another side.
    others = {_written(row, v) for v in row["values"] if v is not None}
    return text + " +" if row["best"] == i and len(others) > 1 else text


def _written(row: Row, value: Any) -> str:
    return value if isinstance(value, str) else str(_FORMS.get(row["unit"], str)(value))
