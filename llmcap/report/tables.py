"""Rows as CSV, JSON, Markdown and aligned text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

from llmcap.errors import printable

Row = Mapping[str, Any]


def json_text(answer: object) -> str:
    """JSON with nulls for what has no value, never NaN."""
    return json.dumps(answer, indent=2, allow_nan=False, ensure_ascii=False)


def columns_of(rows: Sequence[Row]) -> list[str]:
    """All column names, in the order in which they first appear."""
    return list(dict.fromkeys(name for row in rows for name in row))


def csv_text(rows: Sequence[Row]) -> str:
    """CSV with a header; an empty cell where there is no value."""
    out = io.StringIO()
    names = columns_of(rows)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(names)
    writer.writerows([_cell(row.get(name)) for name in names] for row in rows)
    return out.getvalue()


def markdown_text(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    """A Markdown table."""
    names = list(columns or columns_of(rows))
    lines = ["| " + " | ".join(map(_escaped, names)) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(_escaped(_cell(row.get(name))) for name in names) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def plain_table(rows: Sequence[Row], columns: Sequence[str] | None = None) -> str:
    """Columns aligned with spaces, numbers to the right; for a terminal of any width."""
    names = list(columns or columns_of(rows))
    cells = [[printable(_cell(row.get(name)), 100) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) if cells else len(name) for i, name in enumerate(names)]
    right = [bool(rows) and all(_is_number(row.get(name)) for row in rows) for name in names]

    def line(texts: Sequence[str]) -> str:
        padded = (
            text.rjust(width) if to_right else text.ljust(width)
            for text, width, to_right in zip(texts, widths, right, strict=True)
        )  # fmt: skip
        return "  ".join(padded).rstrip()

    return "\n".join([line(names), *(line(texts) for texts in cells)]) + "\n"


def rows_text(rows: Sequence[Row], form: str) -> str:
    """Rows in one of the formats of the command: table, json, csv or md."""
    if form == "json":
        return json_text(list(rows))
    return {"csv": csv_text, "md": markdown_text, "table": plain_table}[form](rows)


def _cell(value: Any) -> Any:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return value


def _escaped(value: Any) -> str:
    return printable(value, 400).replace("\\", "\\\\").replace("|", "\\|")


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
