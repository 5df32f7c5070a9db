"""A sweep on a Dask cluster: each task writes one part of a partitioned Parquet data set, so no data comes back.

Parts are written under a working name and renamed: a worker that is lost leaves no half part, and its tasks run again
elsewhere. The folder must be one that all workers reach.
"""

from __future__ import annotations

import functools
import json
import os
import socket
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from llmcap.analyses.sweeps.sweep import Sweep
from llmcap.errors import OptionError, printable
from llmcap.report.arrow import file_end, file_start
from llmcap.report.row_groups import Group
from llmcap.report.sweep_files import Job, chunk_count, encoded_chunk, identity_of, meta_text

CHUNKS_PER_PART: Final = 16
"""With the default chunks about two million cases."""
META_NAME: Final = "_sweep.meta.json"
"""Readers of data sets leave out names that begin with an underscore."""
RETRIES: Final = 5
_PROTOCOLS: Final = ("tcp", "tls", "ucx", "ws", "wss")


def run_on_cluster(
    job: Job, sweep: Sweep, folder: Path, scheduler: str, *, resume: bool = False,
    chunks_per_part: int = CHUNKS_PER_PART, progress: Callable[[int], None] | None = None,
) -> int:  # fmt: skip
    """Run a job on the workers of a scheduler and return the number of rows.

    Parameters
    ----------
    job, sweep : Job, Sweep
    folder : Path
        Gets `part-000000.parquet` and so on, and `_sweep.meta.json`.
    scheduler : str
        Address, such as tcp://host:8786.
    resume : bool
        Keep the parts that are there.
    chunks_per_part : int
    progress : callable, optional
        Told the rows written so far.

    Raises
    ------
    OptionError
        No scheduler there, the extra is not installed, or the folder holds something else.
    """
    host, port = _host_and_port(scheduler)
    distributed = _distributed()
    meta = job.meta(sweep)
    _check(folder, meta, resume)
    chunks = chunk_count(sweep, job.limit)
    pieces = [(i, min(i + chunks_per_part, chunks)) for i in range(0, chunks, chunks_per_part)]
    paths = [folder / f"part-{number:06d}.parquet" for number in range(len(pieces))]
    rows = sum(_rows_of(path) for path in paths if path.exists())
    missing = [(piece, str(path)) for piece, path in zip(pieces, paths, strict=True) if not path.exists()]
    # Nothing is written before the scheduler has answered. Dask tries for 20 s where nobody listens: ask first.
    try:
        socket.create_connection((host, port), timeout=20.0).close()
        client = distributed.Client(scheduler, timeout="20s", set_as_default=False)
    except (OSError, ValueError) as error:
        hint = "start one with 'dask scheduler', and workers with 'dask worker ADDRESS'"
        raise OptionError("--scheduler", f"no Dask scheduler at '{printable(scheduler, 80)}': {error}", hint) from None
    with client:
        _begin(folder, meta)
        text = json.dumps([job.scenario, job.form, job.chunk_cases, job.limit, job.file])
        futures = client.map(
            functools.partial(_write_part, text), [p for p, _ in missing], [p for _, p in missing],
            pure=False, retries=RETRIES,
        )  # fmt: skip
        for _, part_rows in distributed.as_completed(futures, loop=client.loop, with_results=True):
            rows += part_rows
            if progress is not None:
                progress(rows)
    return rows


def _host_and_port(scheduler: str) -> tuple[str, int]:
    """Of an address [PROTOCOL://]HOST:PORT."""
    address = scheduler.strip() if "://" in scheduler else f"tcp://{scheduler.strip()}"
    try:
        split = urlsplit(address)
        host, port = (split.hostname or "").encode("idna").decode("ascii"), split.port
    except ValueError:  # a port that is none, brackets that do not close, a name that cannot be one
        host, port = "", None
    if not host or not port or address.partition("://")[0] not in _PROTOCOLS or address.count("/") > 2:
        shown = printable(scheduler, 80)
        raise OptionError("--scheduler", f"'{shown}' is no address of a scheduler", "write for example tcp://host:8786")
    return host, port


def _distributed() -> Any:
    try:
        import distributed
    except ImportError:
        hint = "pip install 'llmcap-model[distributed]'"
        raise OptionError("--scheduler", "needs Dask, which is not installed", hint) from None
    return distributed


def _check(folder: Path, meta: dict[str, Any], resume: bool) -> None:
    """Whether the folder is free, or holds the begin of the same sweep."""
    note, shown = folder / META_NAME, printable(str(folder), 200)
    try:
        if resume and note.exists():
            if identity_of(json.loads(note.read_text(encoding="utf-8"))) != identity_of(meta):
                raise OptionError(
                    "--resume",
                    f"'{shown}' was begun with other arguments, documents or versions",
                    "name another folder",
                )
        elif folder.exists() and any(folder.iterdir()):
            raise OptionError(
                "--output", f"the folder '{shown}' is not empty", "name a new folder, or continue with --resume"
            )
    except OSError as error:
        raise _unusable(folder, error) from None


def _begin(folder: Path, meta: dict[str, Any]) -> None:
    """The folder, with what is to be computed."""
    try:
        folder.mkdir(exist_ok=True)
        (folder / META_NAME).write_text(meta_text(meta), encoding="utf-8")
    except OSError as error:
        raise _unusable(folder, error) from None


def _unusable(folder: Path, error: OSError) -> OptionError:
    shown = printable(str(folder), 200)
    return OptionError("--output", f"'{shown}' cannot be used: {error.strerror}", "name a new folder")


@functools.lru_cache(maxsize=4)
def _sweep_of(text: str) -> tuple[Sweep, Job]:
    job = Job(*json.loads(text))
    return job.sweep(), job


def _write_part(text: str, piece: tuple[int, int], path: str) -> int:
    """On a worker: evaluate some chunks into one file."""
    sweep, job = _sweep_of(text)
    final = Path(path)
    working = final.with_name(f".{final.name}.{uuid.uuid4().hex}.partial")
    try:
        with working.open("wb") as file:
            file.write(file_start("parquet"))
            groups: list[Group] = []
            footer, rows = b"", 0
            for index in range(*piece):
                chunk = encoded_chunk(sweep, job, index)
                groups.append(Group(chunk.group, file.tell()))
                file.write(chunk.body)
                footer = footer or chunk.footer
                rows += chunk.rows
            file.write(file_end("parquet", footer, groups))
            file.flush()
            os.fsync(file.fileno())
        working.replace(final)
    finally:
        working.unlink(missing_ok=True)
    return rows


def _rows_of(path: Path) -> int:
    import pyarrow.parquet as pq

    return int(pq.read_metadata(path).num_rows)
