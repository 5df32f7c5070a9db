"""`llmcap estimate`: one question answered, or a table of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmcap.cli.options import (
    Format,
    GpuHour,
    Kwh,
    OutputFile,
    Prices,
    chosen_format,
    help_of,
    option,
    with_case_options,
)
from llmcap.cli.output import write_file, write_text
from llmcap.errors import OptionError, printable

if TYPE_CHECKING:
    from llmcap.analyses.result import Estimate

CasesFile = Annotated[Path | None, option("Output", "--cases", metavar="FILE", help=help_of("cases"))]
PlotFile = Annotated[Path | None, option("Output", "--plot", metavar="FILE", help=help_of("plot"))]


@with_case_options(under_load=True)
def estimate(
    given: dict[str, Any],
    form: Format = None,
    output: OutputFile = None,
    cases: CasesFile = None,
    plot: PlotFile = None,
    prices: Prices = None,
    price_gpu_hour: GpuHour = None,
    price_kwh: Kwh = None,
) -> None:
    """Time to first token, KV cache, memory, and reload against recompute for each tier.

    With --arrivals closed or a rate also what its users see in steady state, when requests come and go.

    Exit status 4 when the active users do not fit device memory, or requests arrive faster than they can be served; the
    answer then says what is short and what would help.
    """
    asked = {"prices": prices, "price_gpu_hour": price_gpu_hour, "price_kwh": price_kwh}
    money: dict[str, Any] = {name: value for name, value in asked.items() if value is not None}
    if cases is not None:
        if money:
            raise OptionError(f"--{next(iter(money)).replace('_', '-')}", "is for one case", "leave out --cases")
        _table_of_cases(given, form, output, cases, plot)
        return
    chosen = chosen_format(form)
    from llmcap.analyses.estimate import estimate as ask

    answer = ask(**given, **money)
    if plot is not None:
        from llmcap.report.figures import plot_estimate

        write_file(plot, lambda path: plot_estimate(answer, path), "--plot")
        print(f"figure in {printable(str(plot), 200)}", file=sys.stderr)
    write_text(_rendered(answer, chosen, to_file=output is not None), output)
    if not answer.answered:
        # A person at a terminal has just read the details on the page.
        told = chosen == "table" and output is None and sys.stdout.isatty()
        short = "cannot be served" if answer.serving else "does not fit device memory"
        print(f"Error: {f'{short}, see above' if told else answer.warnings[-1]}", file=sys.stderr)
        raise typer.Exit(4)


def _rendered(answer: Estimate, form: str, *, to_file: bool) -> str:
    if form == "table":
        from llmcap.report.page import estimate_page, terminal

        return estimate_page(answer, terminal(None if to_file else sys.stdout))
    from llmcap.report.tables import csv_text, json_text

    if form == "json":
        return json_text(answer.to_dict())
    if form == "csv":
        return csv_text(answer.rows())
    from llmcap.report.markdown import estimate_markdown

    return estimate_markdown(answer)


def _table_of_cases(
    given: dict[str, Any], form: str | None, output: Path | None, cases: Path, plot: Path | None
) -> None:
    from llmcap.analyses.cases import evaluate_cases, read_cases
    from llmcap.report.tables import rows_text

    if plot is not None:
        raise OptionError("--plot", "draws one case, not a table of cases", "leave out --cases, or plot a sweep")
    chosen = chosen_format(form, default="csv")
    rows = evaluate_cases(read_cases(cases), given, file=str(cases))
    if chosen == "table":
        from llmcap.report.case_table import cases_table

        write_text(cases_table(rows), output)
        return
    write_text(rows_text(rows, chosen), output)
