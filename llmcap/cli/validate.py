"""`llmcap validate`: the model held against what others published."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated

import typer

from llmcap.cli.options import Format, OutputFile, chosen_format
from llmcap.cli.output import write_text

DEFAULT_SUITE = "million-token-context"

Suite = Annotated[
    str | None,
    typer.Option(
        "--suite", metavar="ID|FILE",
        help=f"Published claims to judge (default: {DEFAULT_SUITE}).",
        rich_help_panel="What to validate",
    ),
]  # fmt: skip


def validate(suite: Suite = None, form: Format = None, output: OutputFile = None) -> None:
    """Hold published figures against the model: which stand, which do not, and why.

    Each claim is computed twice: as the publication must have done, and architecture-true and calibrated. The verdict
    says how the published figure fares against the second. Exit status 0 whatever the verdicts are.
    """
    write_text(_suite(suite or DEFAULT_SUITE, chosen_format(form), to_file=output is not None), output)


def _suite(name: str, form: str, *, to_file: bool) -> str:
    from llmcap.analyses.claims import judge_suite

    rows = judge_suite(name)
    if form == "json":
        from llmcap.report.tables import json_text

        return json_text({"schema": "llmcap.validate/1", "suite": name, "rows": rows})
    from llmcap.report.claims_page import COLUMNS

    short = [{column: row[column] for column in COLUMNS} for row in rows]
    if form == "table":
        from llmcap.report.claims_page import claims_page

        color = not to_file and sys.stdout.isatty() and "NO_COLOR" not in os.environ
        return claims_page(rows, min(shutil.get_terminal_size((100, 24)).columns, 140), color=color)
    from llmcap.report.tables import csv_text, markdown_text

    return csv_text(short) if form == "csv" else markdown_text(short)
