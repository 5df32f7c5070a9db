"""A sweep into a file: what it is made of, who encodes its chunks, and how it is repeated."""

from __future__ import annotations

import hashlib
import json
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from llmcap import __version__
from llmcap.analyses.sweeps.grid import Grid
from llmcap.analyses.sweeps.sweep import Sweep
from llmcap.errors import DocumentError, OptionError, Problem, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.report.arrow import Encoded, FileFormat, encode
from llmcap.report.processes import in_processes
from llmcap.report.stream import StreamFile
from llmcap.specs.bounded_files import read_bounded
from llmcap.specs.scenario import Scenario

META_SCHEMA: Final = "llmcap.sweep-meta/1"
MOST_META_BYTES: Final = 20_000_000


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that the bytes of a sweep's file depend on; small, and the same in every process."""

    scenario: Mapping[str, Any]
    """The scenario's document as plain data, options of the command included."""
    form: FileFormat
    chunk_cases: int
    limit: int | None = None
    """Only the first points of the grid."""
    file: str = ""

    @classmethod
    def of(
        cls, scenario: Scenario, form: FileFormat, *, chunk_cases: int, limit: int | None = None, file: str = ""
    ) -> Job:
        return cls(scenario.model_dump(mode="json", by_alias=True), form, chunk_cases, limit, file)

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any], file: str = "") -> Job:
        """The job that a `.meta.json` records."""
        arguments = meta["arguments"]
        return cls(meta["scenario"], arguments["format"], arguments["chunk_cases"], arguments["limit"], file)

    def sweep(self) -> Sweep:
        """The sweep, built afresh."""
        return Sweep(Grid(Scenario.model_validate(self.scenario), file=self.file, chunk_cases=self.chunk_cases))

    def meta(self, sweep: Sweep) -> dict[str, Any]:
        """Versions, documents and arguments: enough to repeat the file, and nothing that changes between runs."""
        documents = sorted({d for setting, _ in sweep.grid.settings for d in setting.documents})
        return {
            "schema": META_SCHEMA,
            "versions": {"llmcap": __version__, "pyarrow": pa.__version__},
            "specs": [document.row() for document in documents],
            "arguments": {"format": self.form, "chunk_cases": self.chunk_cases, "limit": self.limit},
            "scenario": dict(self.scenario),
        }


def meta_text(meta: Mapping[str, Any]) -> str:
    """The `.meta.json` of a file."""
    return json.dumps(meta, indent=1, ensure_ascii=False) + "\n"


def meta_path(path: Path) -> Path:
    """Where the arguments of a sweep's file are kept."""
    return path.with_name(f"{path.name}.meta.json")


def identity_of(meta: Mapping[str, Any]) -> str:
    """Digest of what the bytes depend on."""
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def read_meta(path: Path) -> dict[str, Any]:
    """The arguments of an earlier sweep.

    Raises
    ------
    DocumentError
    """
    file = printable(str(path), 200)
    try:
        meta = json.loads(read_bounded(path, MOST_META_BYTES, "name a .meta.json of a sweep"))
    except (ValueError, RecursionError) as error:
        raise DocumentError(
            [Problem(file, None, "", f"cannot be read: {error}", "name a .meta.json of a sweep")]
        ) from None
    if not isinstance(meta, dict) or meta.get("schema") != META_SCHEMA:
        raise DocumentError([Problem(file, 1, "schema", f"is not {META_SCHEMA}", "name a .meta.json of a sweep")])
    return meta


def changed_since(meta: Mapping[str, Any], job: Job) -> list[str]:
    """What differs now from when a `.meta.json` was written: versions and documents."""
    now = job.meta(job.sweep())
    changes = [
        f"{name} is {now['versions'][name]}, was {version}"
        for name, version in meta.get("versions", {}).items()
        if now["versions"].get(name) != version
    ]
    # Several kinds may have a document of one id; files from before kinds were noted have only the id.
    before = {(spec["id"], spec["sha256"]) for spec in meta.get("specs", ())}
    known = {identity for identity, _ in before}
    changes += [
        f"document {s['id']} ({s['kind']}) has changed"
        for s in now["specs"]
        if s["id"] in known and (s["id"], s["sha256"]) not in before
    ]
    return changes


def format_of(path: Path, asked: str | None) -> FileFormat:
    """File format by option or by the ending of the name.

    Raises
    ------
    OptionError
    """
    ending = path.suffix.lstrip(".").strip().lower()
    ending = {"pq": "parquet"}.get(ending, ending)
    plain = ending if asked is None else asked.strip().lower()
    if ending in ("csv", "parquet") and plain != ending:
        shown = printable(path.name, 80)
        raise OptionError(
            "--format", f"{printable(plain, 40)} does not go with the name '{shown}'", "leave one of the two out"
        )
    if plain == "parquet":
        return "parquet"
    if plain == "csv":
        return "csv"
    hint = did_you_mean(plain, ("parquet", "csv")) or "end it in .parquet or .csv"
    raise OptionError("--output", f"'{printable(path.name, 80)}' tells no format of a sweep", hint)


def chunk_count(sweep: Sweep, limit: int | None) -> int:
    """Chunks that are needed for the first `limit` points of the grid."""
    if limit is None or limit >= sweep.grid.points:
        return sweep.grid.chunks
    return next(i + 1 for i in range(sweep.grid.chunks) if sweep.grid.offset(i + 1) >= limit)


def write_sweep(
    job: Job, path: Path, *, sweep: Sweep | None = None, resume: bool = False, workers: int = 0,
    progress: Callable[[int], None] | None = None,
) -> int:  # fmt: skip
    """Run a job into a file and return the number of rows.

    Parameters
    ----------
    job : Job
    path : Path
        The file; beside it appears `<name>.meta.json`.
    sweep : Sweep, optional
        The job's sweep if it is at hand.
    resume : bool
        Continue after a kill.
    workers : int
        Processes that evaluate and encode; 0: threads of this one.
    progress : callable, optional
        Told the number of rows in the file after each chunk.
    """
    sweep = sweep or job.sweep()
    meta = job.meta(sweep)
    with StreamFile(path, job.form, identity_of(meta), resume=resume) as file:
        if progress is not None:
            progress(file.rows)
        indices = range(file.chunks, chunk_count(sweep, job.limit))
        made = in_processes(_encoder, job, indices, workers) if workers else _in_threads(sweep, job, indices)
        file.extend(made, progress)
        file.finish((meta_path(path), meta_text(meta)))
        return file.rows


def encoded_chunk(sweep: Sweep, job: Job, index: int) -> Encoded:
    """Evaluate and encode one chunk."""
    return encode(sweep.columns, sweep.rows_of(sweep.grid.box(index), job.limit), job.form)


def _in_threads(sweep: Sweep, job: Job, indices: range) -> Iterator[Encoded]:
    """Two threads: while one encodes, the other evaluates; numpy and Arrow let go of the interpreter's lock."""
    with ThreadPoolExecutor(2) as pool:
        yield from _ordered(lambda i: pool.submit(encoded_chunk, sweep, job, i), indices, ahead=2)


def _encoder(job: Job) -> Callable[[int], Encoded]:
    """What a worker process does with an index."""
    sweep = job.sweep()
    return lambda index: encoded_chunk(sweep, job, index)


def _ordered(submit: Callable[[int], Future[Encoded]], indices: range, *, ahead: int) -> Iterator[Encoded]:
    """Results in order, with at most `ahead` chunks in memory beside the one in use."""
    waiting: deque[Future[Encoded]] = deque()
    try:
        for index in indices:
            waiting.append(submit(index))
            if len(waiting) >= ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
