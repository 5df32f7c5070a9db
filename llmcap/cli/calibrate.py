"""`llmcap calibrate`: parameters from measurements, of kernels or of one's own machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from llmcap.cli.options import OutputFile, RowsEngine, only_with, option
from llmcap.cli.output import write_text
from llmcap.errors import OptionError, printable

_PANEL = "What to calibrate from"
Kernels = Annotated[
    Path | None,
    option(
        _PANEL,
        "--kernels",
        metavar="DIR",
        help="Folder of kernel measurements; -o names the folder for the calibration documents.",
    ),
]
Measured = Annotated[
    Path | None,
    option(
        _PANEL,
        "--measured",
        metavar="FILE",
        help="CSV of one's own end-to-end measurements, one row or more; -o names the assumptions document, to be used "
        "as --assumptions FILE.",
    ),
]
Engines = Annotated[
    Path | None,
    option(
        _PANEL,
        "--engines",
        metavar="DIR",
        help="Folder of measured rows to fit the shipped engine profiles to, with errors held out (minutes); -o names "
        "the folder for engines/*.yaml and held_out.json.",
    ),
]
Assumptions = Annotated[
    str | None,
    typer.Option("--assumptions", metavar="ID|FILE", help="With --measured: the set to scale (default: calibrated)."),
]


def calibrate(
    kernels: Kernels = None, measured: Measured = None, engines: Engines = None, engine: RowsEngine = None,
    assumptions: Assumptions = None, output: OutputFile = None,
) -> None:  # fmt: skip
    """Fit parameters to measurements: kernels of a device, or two factors for one's own machine.

    With --kernels, every operator form is fitted to the rows of a folder and written as calibration documents. With
    --measured, prefill and decode times get one factor each, from as little as one row. With --engines, the shipped
    engine profiles are fitted anew.
    """
    if sum(given is not None for given in (kernels, measured, engines)) != 1:
        one = "give one of --kernels DIR, --measured FILE and --engines DIR"
        raise OptionError("--measured", one, "for example --measured mine.csv")
    if measured is None:
        only_with("--measured", engine=engine, assumptions=assumptions)
    if kernels is not None:
        _kernels(kernels, output)
    elif engines is not None:
        _engines(engines, output)
    elif measured is not None:
        _measured(measured, assumptions or "calibrated", engine, output)


def _folders(option: str, folder: Path, output: Path | None) -> Path:
    if output is None:
        raise OptionError("--output", "names the folder for the documents", "add -o FOLDER")
    if not folder.is_dir():
        shown = printable(str(folder), 200)
        raise OptionError(option, f"'{shown}' is not a folder", "name the folder that holds the CSV files")
    if output.exists() and not output.is_dir():
        raise OptionError("--output", f"'{printable(str(output), 200)}' is not a folder", "name another")
    return output


def _engines(folder: Path, output: Path | None) -> None:
    target = _folders("--engines", folder, output)
    from llmcap.analyses.accuracy.held_out import refit
    from llmcap.report.tables import json_text

    files = sorted((*folder.glob("*.csv"), *folder.glob("*.csv.gz")))
    if not files:
        raise OptionError("--engines", f"no CSV files in '{printable(str(folder), 200)}'", "name another folder")
    documents, held_out = refit(files, lambda text: print(text, file=sys.stderr))
    (target / "engines").mkdir(parents=True, exist_ok=True)
    for name, text in documents.items():
        write_text(text, target / "engines" / f"{name}.yaml")
    write_text(json_text(held_out), target / "held_out.json")


def _kernels(folder: Path, output: Path | None) -> None:
    target = _folders("--kernels", folder, output)
    from llmcap.analyses.accuracy.calibrate import fit_kernels, write_documents
    from llmcap.analyses.accuracy.kernel_errors import kernel_errors
    from llmcap.analyses.accuracy.kernel_rows import read_kernel_rows
    from llmcap.report.tables import json_text

    documents = fit_kernels(folder)
    target.mkdir(parents=True, exist_ok=True)
    write_text(json_text(kernel_errors(read_kernel_rows(folder))), target / "kernel_errors.json")
    for path in write_documents(documents, target):
        print(path, file=sys.stderr)


def _measured(file: Path, assumptions: str, engine: str | None, output: Path | None) -> None:
    from llmcap.analyses.accuracy.own_scales import own_assumptions
    from llmcap.specs.base import dump_document

    document, report = own_assumptions(file, assumptions, engine)
    write_text(dump_document(document), output)
    scales, before, after = report["scales"], report["before"], report["after"]
    print(
        f"{report['used']} of {report['rows']} rows used: prefill times x {scales['prefill']:g}, decode times x "
        f"{scales['decode']:g}; median error {before['median_ape']:.1%} before, {after['median_ape']:.1%} after",
        file=sys.stderr,
    )
    if report["lengths_unsaid"]:
        from llmcap.report.measured_page import EQUAL_LENGTHS

        print(EQUAL_LENGTHS, file=sys.stderr)
    for reason, n in report["skipped"].items():
        print(f"left out: {n} rows, {reason}", file=sys.stderr)
