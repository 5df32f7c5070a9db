"""Rows as CSV, JSON, Markdown and aligned text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Collection, Mapping, Sequence
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


def plain_table(rows: Sequence[Row], columns: Sequence[str] | None = None, right: Collection[str] = ()) -> str:
    """Columns aligned with spaces; numbers, and the columns named in `right`, to the right."""
    names = list(columns or columns_of(rows))
    cells = [[printable(_cell(row.get(name)), 100) for name in names] for row in rows]
    widths = [max(len(name), *(len(line[i]) for line in cells)) if cells else len(name) for i, name in enumerate(names)]
    to_right = [name in right or (bool(rows) and all(_is_number(row.get(name)) for row in rows)) for name in names]

    def line(texts: Sequence[str]) -> str:
        padded = zip(texts, widths, to_right, strict=True)
        return "  ".join(text.rjust(width) if number else text.ljust(width) for text, width, number in padded).rstrip()

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
