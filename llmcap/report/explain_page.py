"""A derivation for people: a table of what takes the time, then each formula with its numbers and its sources."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final

from llmcap.analyses.explaining.explain import Explanation
from llmcap.report.tables import Row, markdown_text, plain_table
from llmcap.report.words import question
from llmcap.units import format_bytes, format_rate, format_seconds, format_si

NONE: Final = "-"


def explain_page(told: Explanation, width: int = 120) -> str:
    """Title, table, formulas, notes, as aligned text."""
    title = (textwrap.fill(line, width, subsequent_indent="  ") for line in _title(told).splitlines())
    blocks = ["\n".join(title) + "\n"]
    if told.rows:
        blocks.append(plain_table(_lines(told.rows), right=_NUMBERS) + _sum(told) + "\n")
    if told.hops:
        blocks.append("The path\n" + plain_table(_path(told.hops), right=("nominal", "effective")))
    if told.rows:
        blocks.append("Formulas, in s, B and FLOP\n" + _formulas(told.rows + told.hops, width))
    notes = [f"{text[:1].upper()}{text[1:]}." for text in (*told.notes, *told.estimate.warnings[:1])]
    blocks.append("".join(textwrap.fill(note, width, subsequent_indent="  ") + "\n" for note in notes))
    blocks.append(_sources(told.sources, width))
    return "\n".join(block for block in blocks if block)


def explain_markdown(told: Explanation) -> str:
    """The same in Markdown."""
    blocks = [f"## {_title(told).splitlines()[0]}\n", "\n".join(_title(told).splitlines()[1:]) + "\n"]
    if told.rows:
        blocks += [markdown_text(_lines(told.rows)), _sum(told)]
    if told.hops:
        blocks.append(markdown_text(_path(told.hops)))
    shown = [
        {"operator": f"{r.get('phase', 'path')} {r['operator']}", "form": r["form"], "formula": r["formula"],
         "source": r["source"]}
        for r in (*told.rows, *told.hops)
    ]  # fmt: skip
    if shown:
        blocks.append(markdown_text(shown))
    blocks.append("".join(f"- {note}.\n" for note in told.notes))
    return "\n".join(block for block in blocks if block)


def _title(told: Explanation) -> str:
    setting = told.estimate.setting
    what = {
        "all": "End-to-end latency", "prefill": "Time to first token", "decode": "Decode", "kv": "KV cache",
    }.get(told.term, f"Time to first token with a reload from {told.term.removeprefix('tier:')}")  # fmt: skip
    return f"{what}: {setting.model.name} on {setting.machine.server.name}\n{question(told.estimate)}\n"


def _sum(told: Explanation) -> str:
    if told.term == "kv":
        return f"sum {format_bytes(told.estimate.results['kv_bytes_total'])}\n"
    return "" if told.total_s is None else f"sum {format_seconds(told.total_s)}\n"


_NUMBERS: Final = ("layers", "FLOP", "bytes", "time", "share", "efficiency", "slots", "per slot")


def _lines(rows: Sequence[Row]) -> list[dict[str, Any]]:
    if rows[0]["phase"] == "kv":
        return [
            {
                "kept": row["operator"],
                "layers": row["layers"],
                "slots": f"{row['slots']:,.0f}",
                "per slot": format_bytes(row["bytes_per_slot"]),
                "bytes": format_bytes(row["bytes"]),
            }
            for row in rows
        ]
    return [
        {
            "phase": row["phase"],
            "operator": row["operator"],
            "layers": row.get("layers", ""),
            "FLOP": format_si(row["flop"], "FLOP") if row.get("flop") else NONE,
            "bytes": format_bytes(row["bytes"]) if row.get("bytes") else NONE,
            "time": format_seconds(row["time_s"]) if row["time_s"] or not row["bytes"] else "hidden",
            "share": f"{row.get('share', 0.0):.1%}",
            "bound": row["bound"],
            "efficiency": NONE if row.get("efficiency") is None else f"{row['efficiency']:.1%}",
        }
        for row in rows
    ]


def _path(hops: Sequence[Row]) -> list[dict[str, str]]:
    return [
        {
            "hop": hop["operator"],
            "nominal": format_rate(hop["nominal_bytes_per_s"], "B/s"),
            "effective": format_rate(hop["effective_bytes_per_s"], "B/s"),
        }
        for hop in hops
    ]


def _formulas(rows: Sequence[Row], width: int) -> str:
    """Operators that are priced alike share the symbols; the numbers are each one's own."""
    found: list[str] = []
    for form in dict.fromkeys(row["form"] for row in rows):
        alike = [row for row in rows if row["form"] == form and row["formula"] != "0"]
        if not alike:
            continue
        found.append(textwrap.fill(form, width, subsequent_indent="  "))
        for i, row in enumerate(alike):
            head = f"{row.get('phase', 'path')} {row['operator']} = "
            found.append(_indented(head + row["formula"], width, 2))
            if i + 1 == len(alike) or alike[i + 1]["source"] != row["source"]:
                found.append(_indented(f"from {row['source']}", width, 6))
    return "\n".join(found) + "\n"


def _indented(text: str, width: int, by: int) -> str:
    return textwrap.fill(text, width, initial_indent=" " * by, subsequent_indent=" " * max(by, 6))


def _sources(sources: Sequence[Row], width: int) -> str:
    """One entry per document and origin, with the fields it vouches for."""
    fields: dict[tuple[str, ...], list[str]] = {}
    for s in sources:
        fields.setdefault((s["what"], s["document"], s["kind"], s["ref"]), []).append(s["field"])
    shown = [f"{what} {name} {', '.join(own)}: {kind}, {ref}" for (what, name, kind, ref), own in fields.items()]
    return "Sources\n" + "\n".join(_indented(text, width, 2) for text in shown) + "\n" if shown else ""
