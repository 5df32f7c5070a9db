"""`llmcap report`: a scenario or an earlier answer as one page with figures, tables and sources."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from llmcap.cli.options import Override, chosen_format, option
from llmcap.cli.output import write_file, write_text
from llmcap.errors import OptionError, printable

if TYPE_CHECKING:
    from llmcap.report.document import Report

FORMATS = ("html", "md")

Source = Annotated[
    str, typer.Argument(metavar="SOURCE", help="Scenario (an id or a YAML file), or a result: .json, .csv, .parquet.")
]
Output = Annotated[
    Path | None,
    option(
        "Output",
        "--output",
        "-o",
        metavar="FILE",
        help="File to write, .html or .md (figures in a folder beside it); without it the text goes to stdout.",
    ),
]
Form = Annotated[
    str | None,
    option("Output", "--format", metavar="html|md", help="Form, if the file's name does not tell (default: html)."),
]
Sets = Annotated[
    list[str] | None,
    option(
        "Scenario",
        "--set",
        metavar="NAME=VALUES",
        help="Replace or add an option or axis of the scenario: users=1,10,100. May be repeated.",
    ),
]
Prices = Annotated[
    str | None,
    option("Scenario", "--prices", metavar="ID|FILE", help="Price list: adds the cost of a million output tokens."),
]


def report(
    source: Source,
    output: Output = None,
    form: Form = None,
    sets: Sets = None,
    override: Override = None,
    prices: Prices = None,
) -> None:
    """One page that answers a question: sentences, figures, tables that sort and filter, assumptions and sources.

    The page is a single file that loads nothing, reads without scripts, and prints. A scenario with many cases is
    shown at some of them, evenly spread; a file of results is shown as it is.
    """
    chosen = _form(output, form)
    if output is None and form is None and sys.stdout.isatty():
        raise OptionError("--output", "a page of a megabyte is no sight for a terminal", "add -o report.html")
    command = _command(source, output, form, sets or [], override, prices)
    made = _made(source, sets or [], override, prices, command)
    if chosen == "html":
        from llmcap.report.html import report_html

        write_text(report_html(made), output)
    else:
        _write_markdown(made, output)
    if output is not None:
        print(f"report in {printable(str(output), 200)}", file=sys.stderr)


def _made(source: str, sets: list[str], override: str | None, prices: str | None, command: str) -> Report:
    from llmcap.report.result_files import SUFFIXES, read_result

    if Path(source).suffix.lower() in SUFFIXES:
        if sets or override or prices:
            raise OptionError(
                "SOURCE", "a file of results is shown as it is", "--set, --override, --prices go with a scenario"
            )
        from llmcap.report.result_report import result_report

        return result_report(read_result(Path(source)), command)
    from llmcap.analyses.sweeps.scenarios import adjusted
    from llmcap.analyses.sweeps.survey import Survey
    from llmcap.report.scenario_report import scenario_report
    from llmcap.specs.prices import PriceList
    from llmcap.specs.registry import load_as
    from llmcap.specs.scenario import Scenario

    scenario = load_as(Scenario, "scenario", source).document
    if sets or override:
        scenario = adjusted(scenario, sets, override)
    listed = load_as(PriceList, "prices", prices).document if prices else None
    return scenario_report(Survey(scenario, listed), command)


def _form(output: Path | None, form: str | None) -> str:
    suffix = output.suffix.lower() if output is not None else ".html"
    known = {".html": "html", ".htm": "html", ".md": "md", ".markdown": "md"}
    if form is not None:
        chosen = chosen_format(form, allowed=FORMATS)
        if output is not None and known.get(suffix, chosen) != chosen:
            shown = printable(output.name, 80)
            raise OptionError("--format", f"{chosen} does not go with the name '{shown}'", "leave one of the two out")
        return chosen
    if suffix not in known:
        shown = printable(str(output), 80)
        raise OptionError(
            "--output", f"'{shown}' tells no form of a report", "end it in .html or .md, or give --format"
        )
    return known[suffix]


def _command(
    source: str, output: Path | None, form: str | None, sets: list[str], override: str | None, prices: str | None
) -> str:
    words = ["llmcap", "report", source]
    words += [word for text in sets for word in ("--set", text)]
    words += ["--override", override] if override else []
    words += ["--prices", prices] if prices else []
    words += ["--format", form] if form else []
    words += ["-o", output.name if output is not None else "report.html"]
    return shlex.join(words)


def _write_markdown(made: Report, output: Path | None) -> None:
    from llmcap.report.report_markdown import report_markdown

    if output is None:
        text, _ = report_markdown(made)
        write_text(text, None)
        return
    folder = f"{output.stem}-figures"
    text, pictures = report_markdown(made, folder)
    if pictures:
        place = output.parent / folder
        try:
            place.mkdir(exist_ok=True)
        except OSError as error:
            shown = printable(str(place), 200)
            raise OptionError(
                "--output", f"'{shown}' cannot be made: {error.strerror}", "choose another file"
            ) from None
        for name, content in pictures.items():
            write_file(place / name, lambda path, content=content: path.write_bytes(content))  # type: ignore[misc]
    write_text(text, output)
