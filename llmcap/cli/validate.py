"""`llmcap validate`: the model held against what others published."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Annotated, Any

import typer

from llmcap.cli.options import Format, OutputFile, RowsEngine, chosen_format, only_with, option
from llmcap.cli.output import page_width, write_text
from llmcap.errors import OptionError

DEFAULT_SUITE = "million-token-context"

Suite = Annotated[
    str | None,
    option(
        "What to validate", "--suite", metavar="ID|FILE", help=f"Published claims to judge (default: {DEFAULT_SUITE})."
    ),
]

Measured = Annotated[
    str | None,
    option(
        "What to validate",
        "--measured",
        metavar="FILE|shipped",
        help="CSV of measured values to predict, or the shipped measurements; -o FILE.csv writes each row with its "
        "prediction.",
    ),
]
Assumptions = Annotated[
    str | None,
    typer.Option("--assumptions", metavar="ID|FILE", help="With --measured: assumption set (default: calibrated)."),
]


def validate(
    suite: Suite = None, measured: Measured = None, assumptions: Assumptions = None, engine: RowsEngine = None,
    form: Format = None, output: OutputFile = None,
) -> None:  # fmt: skip
    """Hold published figures against the model: which stand, which do not, and why.

    Each claim is computed twice: as the publication must have done, and architecture-true and calibrated. The verdict
    says how the published figure fares against the second. With --measured, measured values are predicted from what
    they were measured on, and the errors are told by metric and group. Exit status 0 whatever the verdicts are.
    """
    if measured is not None:
        if suite is not None:
            raise OptionError("--measured", "judges measured rows, --suite claims", "give one of the two")
        text, table = _measured(measured, assumptions or "calibrated", engine, chosen_format(form))
        if output is not None:
            write_text(table, output)
        write_text(text, None)
        return
    only_with("--measured", assumptions=assumptions, engine=engine)
    write_text(_suite(suite or DEFAULT_SUITE, chosen_format(form), to_file=output is not None), output)


def _measured(name: str, assumptions: str, engine: str | None, form: str) -> tuple[str, str]:
    """The summary in the form asked for, and the rows with their predictions as CSV."""
    from llmcap.analyses.accuracy.measured import shipped_files, validate_file, validate_files
    from llmcap.report.tables import csv_text, json_text, markdown_text
    from llmcap.specs.registry import as_path

    if name == "shipped":
        summary, table = validate_files(shipped_files(), assumptions, engine)
    else:
        summary, table = validate_file(as_path(name), assumptions, engine)
    rows: list[dict[str, Any]] = [{"metric": m, "by": "", "group": "all", **e} for m, e in summary["metrics"].items()]
    rows += summary["groups"]
    if form == "json":
        text = json_text(summary)
    elif form == "csv":
        text = csv_text(rows)
    elif form == "md":
        text = markdown_text(rows)
    else:
        from llmcap.analyses.accuracy.measured_rows import lengths_unsaid
        from llmcap.report.measured_page import EQUAL_LENGTHS, measured_page

        note = EQUAL_LENGTHS if name != "shipped" and lengths_unsaid(table) else ""
        text = measured_page(summary, table, page_width(), note=note, fitted=sys.stdout.isatty())
    return text, csv_text(table)


def _suite(name: str, form: str, *, to_file: bool) -> str:
    from llmcap.analyses.claims.suite import judge_suite

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
