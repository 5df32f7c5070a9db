"""`llmcap explain`: the derivation of one estimate."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from llmcap.cli.options import Format, OutputFile, chosen_format, option, with_case_options
from llmcap.cli.output import page_width, write_text

Term = Annotated[
    str | None,
    option(
        "Output",
        "--term",
        metavar="all|prefill|decode|kv|tier:NAME",
        help="What to derive: end-to-end latency (all, the "
        "default), time to first token, decode, the bytes of the KV cache, or a reload from a tier.",
    ),
]


@with_case_options()
def explain(given: dict[str, Any], term: Term = None, form: Format = None, output: OutputFile = None) -> None:
    """Derive an estimate operator by operator: formulas with the numbers put in, bounds, and who vouches for them.

    The times of all rows add up to the estimate. Exit status 4 when the active users do not fit device memory; the
    KV cache can be derived all the same.
    """
    chosen = chosen_format(form)
    from llmcap.analyses.explaining.explain import explain as derive

    told = derive(**given, **({} if term is None else {"term": term}))
    if chosen == "json":
        from llmcap.report.tables import json_text

        text = json_text(told.to_dict())
    elif chosen == "csv":
        from llmcap.report.tables import csv_text

        text = csv_text([{k: v for k, v in row.items() if k != "parameters"} for row in told.rows])
    elif chosen == "md":
        from llmcap.report.explain_page import explain_markdown

        text = explain_markdown(told)
    else:
        from llmcap.report.explain_page import explain_page

        text = explain_page(told, min(page_width(), 140))
    write_text(text, output)
    if not told.estimate.fits and told.term != "kv":
        print(f"Error: {told.estimate.warnings[-1]}", file=sys.stderr)
        raise typer.Exit(4)
