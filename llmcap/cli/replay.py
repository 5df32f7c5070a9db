"""`llmcap replay`: a request trace played against prefix caches of every size."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmcap.cli.options import Format, OutputFile, chosen_format, option, with_case_options
from llmcap.cli.output import write_file, write_text
from llmcap.errors import printable

if TYPE_CHECKING:
    from llmcap.analyses.replays.traces import Progress

TraceFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="TRACE",
        help="JSON lines with block hashes (Mooncake), or lengths only (Azure CSV); either may be gzipped.",
    ),
]
Generate = Annotated[
    str | None,
    option(
        "Trace",
        "--generate",
        metavar="NAME=N,...",
        help="Make a trace up instead: users=1000,turns=8,system=2k,message=300,answer=250,think=60s,span=1h,seed=0.",
    ),
]
WriteTrace = Annotated[
    Path | None,
    option("Trace", "--write-trace", metavar="FILE", help="Also write the trace as JSON lines (.gz packs)."),
]
BlockTokens = Annotated[
    str | None, option("Trace", "--block-tokens", metavar="N", help="Tokens of a block of the trace (default: 512).")
]
Capacities = Annotated[
    str | None,
    option(
        "Trace", "--capacities", metavar="N,...", help="Blocks at which the hit ratio is told (default: 1-2-5 steps)."
    ),
]
Window = Annotated[
    str | None, option("Trace", "--window", metavar="TIME", help="Peaks are means over this time (default: 60s).")
]
MaxBadLines = Annotated[
    str | None,
    option(
        "Trace",
        "--max-bad-lines",
        metavar="N|SHARE",
        help="Malformed lines that are skipped; more refuse the trace (default: 1%).",
    ),
]
TimeUnit = Annotated[
    str | None,
    option("Trace", "--time-unit", metavar="ms|s", help="Unit of numeric timestamps in JSON lines (default: ms)."),
]

PlotFile = Annotated[
    Path | None,
    option(
        "Output", "--plot", metavar="FILE", help="Also draw hits against capacity, with the tiers (.png, .svg, .pdf)."
    ),
]


@with_case_options(leave_out=("users", "context", "output_tokens", "cached_tokens", "sessions"))
def replay(
    given: dict[str, Any],
    trace: TraceFile = None,
    generate: Generate = None,
    block_tokens: BlockTokens = None,
    capacities: Capacities = None,
    window: Window = None,
    max_bad_lines: MaxBadLines = None,
    time_unit: TimeUnit = None,
    write_trace: WriteTrace = None,
    form: Format = None,
    output: OutputFile = None,
    plot: PlotFile = None,
) -> None:
    """The hit ratio of a prefix cache at every capacity, and what each tier makes of a request trace.

    A request looks its blocks up when it starts, the leading run of resident ones is hit, and the blocks touched
    least recently go first. The tiers of the server stand on that curve: hits, traffic, wear of the drives, and the
    times to first token with and without each. csv holds the curve. Exit status 4 when the longest request does not
    fit device memory; the curve is told all the same.
    """
    chosen = chosen_format(form)
    from llmcap.analyses.replays.replay import load_trace
    from llmcap.analyses.replays.replay import replay as ask

    reading: dict[str, Any] = {
        "generate": generate, "block_tokens": block_tokens, "max_bad_lines": max_bad_lines, "time_unit": time_unit,
    }  # fmt: skip
    with _progress_bar() as progress:
        read = load_trace(trace, progress=progress, **{k: v for k, v in reading.items() if v is not None})
    asked: dict[str, Any] = {"capacities": capacities, "window": window}
    answer = ask(read, **given, **{k: v for k, v in asked.items() if v is not None})
    if plot is not None:
        from llmcap.report.figures.replay import plot_replay

        write_file(plot, lambda path: plot_replay(answer, path), "--plot")
        print(f"figure in {printable(str(plot), 200)}", file=sys.stderr)
    if write_trace is not None:
        from llmcap.analyses.replays.trace_generator import write_trace as write

        write_file(write_trace, lambda path: write(read, path))
        print(f"trace in {printable(str(write_trace), 200)}", file=sys.stderr)
    if read.bad_lines:
        for line in answer.malformed["first"]:
            print(f"Warning: {line}", file=sys.stderr)
    if chosen == "json":
        from llmcap.report.tables import json_text

        text = json_text(answer.to_dict())
    elif chosen == "csv":
        from llmcap.report.tables import csv_text

        text = csv_text(answer.curve)
    elif chosen == "md":
        from llmcap.report.replay_page import replay_markdown

        text = replay_markdown(answer)
    else:
        from llmcap.report.replay_page import replay_page

        width = min(shutil.get_terminal_size((120, 24)).columns, 140)
        text = replay_page(answer, width, fitted=output is None and sys.stdout.isatty())
    write_text(text, output)
    if not answer.fits:
        print(f"Error: {answer.warnings[-1]}", file=sys.stderr)
        raise typer.Exit(4)


@contextmanager
def _progress_bar() -> Iterator[Progress | None]:
    """A bar of the bytes read, on stderr and only where that is a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("reading"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda done, size: bar.update(task, completed=done, total=size)
