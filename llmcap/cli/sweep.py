"""`llmcap sweep`: a scenario's cases into a CSV or Parquet file, here, in several processes, or on a cluster."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from llmcap.cli.options import Override, chosen_format, option
from llmcap.errors import OptionError, printable

if TYPE_CHECKING:
    from llmcap.analyses.sweeps.sweep import Sweep
    from llmcap.report import arrow
    from llmcap.report.sweep_files import Job
    from llmcap.specs.scenario import Scenario

ScenarioName = Annotated[
    str | None, typer.Argument(metavar="[SCENARIO]", help="Id of a shipped scenario, or a YAML file.")
]
Output = Annotated[
    Path | None,
    option(
        "Output",
        "--output",
        "-o",
        metavar="FILE",
        help="File to write, .parquet or .csv; without it CSV goes to stdout.",
    ),
]
FileFormat = Annotated[
    str | None,
    option(
        "Output",
        "--format",
        metavar="parquet|csv|json",
        help="Form of a file whose name does not tell; json: the size under --dry-run as JSON.",
    ),
]
Sets = Annotated[
    list[str] | None,
    option(
        "Scenario",
        "--set",
        metavar="NAME=VALUES",
        help="Replace or add an option or axis: users=1,10,100 or 'context=log 1k..1M 40 points'. May be repeated.",
    ),
]
Limit = Annotated[str | None, option("Scenario", "--limit", metavar="N", help="Only the first N points of the grid.")]
From = Annotated[
    Path | None, option("Scenario", "--from", metavar="FILE", help="Repeat the sweep of a .meta.json, byte for byte.")
]
DryRun = Annotated[bool, option("Running", "--dry-run", help="Tell the size and stop.")]
Resume = Annotated[bool, option("Running", "--resume", help="Continue a sweep that was interrupted.")]
Workers = Annotated[
    str | None,
    option("Running", "--workers", metavar="N", help="Local processes (default: two threads of this one)."),
]
Scheduler = Annotated[
    str | None,
    option(
        "Running",
        "--scheduler",
        metavar="ADDRESS",
        help="Dask scheduler such as tcp://host:8786; the output is then a folder of Parquet parts.",
    ),
]
ChunkCases = Annotated[
    str | None,
    option(
        "Running", "--chunk-cases", metavar="N", help="Cases evaluated together; bounds the memory (default: 131072)."
    ),
]
Plot = Annotated[
    list[str] | None,
    option(
        "Output",
        "--plot",
        metavar="KIND[=FILE]",
        help="Also draw a figure (.png, .svg, .pdf; default: SCENARIO-KIND.png): prefill, cache, reload, tiers, "
        "break-even, roofline, pareto, memory, interactivity and load of a steady state, or cost with --prices. May be "
        "repeated.",
    ),
]
Prices = Annotated[str | None, option("Output", "--prices", metavar="ID|FILE", help="Price list for --plot cost.")]
Quiet = Annotated[bool, option("Running", "--quiet", "-q", help="No size and no progress on stderr.")]


def sweep(
    scenario: ScenarioName = None,
    output: Output = None,
    form: FileFormat = None,
    sets: Sets = None,
    override: Override = None,
    limit: Limit = None,
    source: From = None,
    dry_run: DryRun = False,
    resume: Resume = False,
    workers: Workers = None,
    scheduler: Scheduler = None,
    chunk_cases: ChunkCases = None,
    plot: Plot = None,
    prices: Prices = None,
    quiet: Quiet = False,
) -> None:
    """Evaluate every case of a scenario into a CSV or Parquet file.

    Cases that do not fit stay in the file, with empty times, fits false and limit capacity. Without SCENARIO the
    shipped scenarios are listed.
    """
    if scenario is None and source is None:
        _list_scenarios()
        return
    from llmcap.analyses.options import count
    from llmcap.report.sweep_files import Job

    if prices is not None and not plot:
        raise OptionError("--prices", "is for the figure of costs", "add --plot cost, or leave it out")
    numbers = {
        name: None if text is None else count(name, text)
        for name, text in (("limit", limit), ("workers", workers), ("chunk_cases", chunk_cases))
    }
    if source is not None:
        job, output = _repeated(source, output, scenario, sets, override, limit, chunk_cases)
    else:
        assert scenario is not None
        document, file = _load(scenario, sets or [], override)
        chosen = _file_format(output, None if dry_run else form, scheduler)
        from llmcap.analyses.sweeps.grid import CHUNK_CASES

        job = Job.of(
            document, chosen, chunk_cases=numbers["chunk_cases"] or CHUNK_CASES, limit=numbers["limit"], file=file
        )
    planned = job.sweep()
    if dry_run:
        _dry_run(planned, job, chosen_format(form, allowed=("table", "json")))
        return
    say: Callable[[str], None] = (lambda text: None) if quiet else (lambda text: print(text, file=sys.stderr))
    say(_size(planned, job))
    if plot:
        _plot(plot, prices, job, output, say)
        if output is None:
            return
    if scheduler is not None:
        _on_cluster(job, planned, output, scheduler, resume, say)
        return
    if output is None:
        for name, given in (("--resume", resume), ("--workers", workers is not None)):
            if given:
                raise OptionError(name, "needs a file to write", "give -o FILE")
        _to_stdout(planned, job)
        return
    _to_file(planned, job, output, resume, numbers["workers"] or 0, quiet, say)


def _load(name: str, sets: list[str], override: str | None) -> tuple[Scenario, str]:
    from llmcap.analyses.sweeps.scenarios import adjusted
    from llmcap.specs.registry import load_as
    from llmcap.specs.scenario import Scenario

    loaded = load_as(Scenario, "scenario", name)
    return adjusted(loaded.document, sets, override), printable(str(loaded.path), 200)


def _file_format(output: Path | None, form: str | None, scheduler: str | None) -> arrow.FileFormat:
    """What the rows are written as: by the option, else by the ending of the file."""
    from llmcap.report.sweep_files import format_of

    asked = None if form is None else chosen_format(form, allowed=("csv", "parquet"))
    if scheduler is not None:
        if asked == "csv":
            raise OptionError("--format", "a cluster writes Parquet", "leave out --format, or --scheduler")
        return "parquet"
    if output is None:
        return "parquet" if asked == "parquet" else "csv"
    return format_of(output, asked)


def _repeated(source: Path, output: Path | None, *others: object) -> tuple[Job, Path]:
    if any(other not in (None, [], False) for other in others):
        raise OptionError(
            "--from", "repeats a sweep as it was", "leave out SCENARIO, --set, --override, --limit and --chunk-cases"
        )
    from llmcap.report.sweep_files import Job, changed_since, read_meta

    meta = read_meta(source)
    job = Job.from_meta(meta, str(source))
    for line in changed_since(meta, job):
        print(f"Warning: {line}; the file may differ", file=sys.stderr)
    if output is None:
        if not source.name.endswith(".meta.json"):
            raise OptionError("--output", "no file to write", "give -o FILE")
        output = source.with_name(source.name.removesuffix(".meta.json"))
    return job, output


def _size(planned: Sweep, job: Job) -> str:
    grid = planned.grid
    name = grid.scenario.id
    columns = f"{len(planned.columns)} columns"
    if grid.points > 200_000_000:
        return f"{name}: up to {grid.points:,} cases, {len(grid.settings):,} settings, {columns}"
    cases, rows = grid.count_cases()
    limited = f", of which the first {job.limit:,}" if job.limit is not None and job.limit < grid.points else ""
    rows = rows if planned.by_tier else cases
    return f"{name}: {cases:,} cases, {rows:,} rows{limited}; {len(grid.settings):,} settings, {columns}"


def _dry_run(planned: Sweep, job: Job, form: str) -> None:
    if form == "table":
        print(_size(planned, job))
        return
    import json

    cases, rows = planned.grid.count_cases()
    size = {
        "scenario": planned.grid.scenario.id, "cases": cases, "rows": rows if planned.by_tier else cases,
        "settings": len(planned.grid.settings), "columns": [c.name for c in planned.columns],
    }  # fmt: skip
    print(json.dumps(size, indent=1))


def _to_stdout(planned: Sweep, job: Job) -> None:
    from llmcap.report.sweep_files import chunk_count, encoded_chunk

    if job.form != "csv":
        raise OptionError("--output", "Parquet needs a file", "give -o FILE.parquet")
    for index in range(chunk_count(planned, job.limit)):
        sys.stdout.buffer.write(encoded_chunk(planned, job, index).body)
    sys.stdout.buffer.flush()


def _to_file(
    planned: Sweep, job: Job, output: Path, resume: bool, workers: int, quiet: bool, say: Callable[[str], None]
) -> None:
    from llmcap.report.sweep_files import write_sweep

    start = time.perf_counter()
    with _told_how_to_go_on():
        if not quiet and sys.stderr.isatty():
            from llmcap.cli.progress import progress_bar

            with progress_bar(_expected_rows(planned, job)) as advance:
                rows = write_sweep(job, output, sweep=planned, resume=resume, workers=workers, progress=advance)
        else:
            rows = write_sweep(job, output, sweep=planned, resume=resume, workers=workers)
    seconds = time.perf_counter() - start
    say(f"{rows:,} rows in {seconds:.1f} s ({rows / seconds:,.0f} rows/s): {printable(str(output), 200)}")


@contextmanager
def _told_how_to_go_on() -> Iterator[None]:
    """What an interrupt or SIGTERM leaves is a beginning, and whoever sent it may not know that."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        print("Interrupted. What is done is kept: give the same command with --resume to go on.", file=sys.stderr)
        raise


def _expected_rows(planned: Sweep, job: Job) -> int | None:
    if planned.grid.points > 200_000_000 or job.limit is not None:
        return None
    cases, rows = planned.grid.count_cases()
    return rows if planned.by_tier else cases


def _on_cluster(
    job: Job, planned: Sweep, output: Path | None, scheduler: str, resume: bool, say: Callable[[str], None]
) -> None:
    if output is None:
        raise OptionError("--scheduler", "needs a folder for the parts", "give -o FOLDER, which all workers can reach")
    from llmcap.report.cluster import run_on_cluster

    with _told_how_to_go_on():
        rows = run_on_cluster(job, planned, output, scheduler, resume=resume)
    say(f"{rows:,} rows in {printable(str(output), 200)}")


def _plot(kinds: list[str], prices: str | None, job: Job, output: Path | None, say: Callable[[str], None]) -> None:
    """Figures of the scenario, drawn before its rows: what cannot be drawn costs no sweep."""
    from llmcap.analyses.sweeps.survey import Survey
    from llmcap.cli.output import write_file
    from llmcap.report.figures.style import format_of, rendered, styled
    from llmcap.report.pictures import Material, picture
    from llmcap.specs.prices import PriceList
    from llmcap.specs.registry import load_as
    from llmcap.specs.scenario import Scenario

    scenario = Scenario.model_validate(job.scenario)
    folder = output.parent if output is not None else Path()
    wanted = [text.partition("=") for text in kinds]
    files = [(kind, Path(name) if name else folder / f"{scenario.id}-{kind}.png") for kind, _, name in wanted]
    forms = [format_of(file) for _, file in files]
    listed = load_as(PriceList, "prices", prices).document if prices else None
    material = Material(Survey(scenario, listed))
    for (kind, file), form in zip(files, forms, strict=True):
        with styled():
            found = picture(kind, material)
            if found is None:
                hint = "give --prices" if kind == "cost" and listed is None else "choose another kind"
                raise OptionError("--plot", f"the scenario has no figure '{kind}'", hint)
            content = rendered(found.figure, form)
        write_file(file, lambda path, content=content: path.write_bytes(content), "--plot")  # type: ignore[misc]
        say(f"{found.caption} Figure in {printable(str(file), 200)}")


def _list_scenarios() -> None:
    import textwrap
    from itertools import zip_longest

    from llmcap.cli.output import page_width
    from llmcap.specs.registry import list_ids, load_as
    from llmcap.specs.scenario import Scenario

    for identity in list_ids("scenario"):
        document: Any = load_as(Scenario, "scenario", identity).document
        question, width = " ".join(document.question.split()), page_width()
        if width < 80:
            print(identity, *textwrap.wrap(question, width - 4), sep="\n    ")
            continue
        lines = textwrap.wrap(question, width - 34)
        print("\n".join(f"{name:<33} {line}" for name, line in zip_longest([identity], lines, fillvalue="")))
