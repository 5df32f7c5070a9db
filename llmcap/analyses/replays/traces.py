"""Request traces: who asked when, how much, and which blocks of the prompt others had asked before.

Two kinds are read, plain or gzipped: JSON lines with block hashes (Mooncake), and lengths only (CSV of the Azure LLM
inference traces, or JSON lines without hashes).
"""

from __future__ import annotations

import gzip
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.replays.trace_lines import (
    EXAMPLE,
    MAX_LINE_BYTES,
    TIME_UNITS,
    Line,
    MalformedLineError,
    limit_of,
    line_parser,
)
from llmcap.errors import DocumentError, OptionError, Problem, did_you_mean, printable
from llmcap.specs.registry import search_roots

Progress = Callable[[int, int], None]
"""Called now and then with the bytes read so far and the size of the file."""

MAX_BLOCKS: Final = 2**28
_KEPT_PROBLEMS: Final = 20
_EARLY: Final = 1000  # bad lines after which a file is judged before its end


@dataclass(frozen=True, slots=True)
class Trace:
    """Requests in the order of arrival; blocks lie request after request."""

    name: str
    times: NDArray[np.float64]
    """Since the first arrival. [s]"""
    input_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    block_tokens: int
    blocks: NDArray[np.integer[Any]] | None = None
    """Identity of each block of each prompt; None when the trace has lengths only."""
    starts: NDArray[np.int64] = field(default_factory=lambda: np.zeros(1, dtype=np.int64))
    """Where each request's blocks begin, and their number at the end."""
    lines: int = 0
    bad_lines: int = 0
    problems: tuple[Problem, ...] = ()
    """The first of the bad lines."""
    sorted_by_time: bool = True
    """False: the file was out of order and was put in order of arrival."""

    @property
    def requests(self) -> int:
        return int(self.times.size)

    @property
    def duration(self) -> float:
        """From the first to the last arrival. [s]"""
        return float(self.times[-1]) if self.times.size else 0.0

    def tokens_of_blocks(self, first: int = 0, last: int | None = None) -> NDArray[np.int32]:
        """Tokens that each block of the requests first .. last - 1 holds: full ones, and what is left for the last."""
        starts = self.starts[first : None if last is None else last + 1]
        tokens = np.full(int(starts[-1] - starts[0]), self.block_tokens, dtype=np.int32)
        counts = np.diff(starts)
        some = counts > 0
        rest = self.input_tokens[first:last][some] - (counts[some] - 1) * self.block_tokens
        tokens[starts[1:][some] - 1 - starts[0]] = np.minimum(rest, self.block_tokens)
        return tokens


@dataclass(slots=True)
class _Requests:
    """Growing columns of the requests read so far."""

    block_tokens: int
    times: array[float] = field(default_factory=lambda: array("d"))
    inputs: array[int] = field(default_factory=lambda: array("q"))
    outputs: array[int] = field(default_factory=lambda: array("q"))
    counts: array[int] = field(default_factory=lambda: array("q"))
    blocks: array[int] = field(default_factory=lambda: array("q"))
    hashed: bool | None = None

    def add(self, time: float, inputs: int, outputs: int, blocks: array[int] | None) -> None:
        if self.hashed is None:
            self.hashed = blocks is not None
        elif self.hashed != (blocks is not None):
            raise MalformedLineError("some requests have hash_ids and others have none", "all of them or none")
        if blocks is not None:
            whole, over = divmod(inputs, self.block_tokens)
            if len(blocks) not in (whole, whole + (over > 0)):
                raise MalformedLineError(
                    f"{len(blocks):,} hash_ids do not make {inputs:,} tokens in blocks of {self.block_tokens:,}",
                    "is --block-tokens the trace's own?",
                )
            self.blocks.extend(blocks)
            self.counts.append(len(blocks))
        self.times.append(time)
        self.inputs.append(inputs)
        self.outputs.append(outputs)


def read_trace(
    path: str | Path, *, block_tokens: int = 512, max_bad_lines: str | float = "1%", time_unit: str = "ms",
    progress: Progress | None = None,
) -> Trace:  # fmt: skip
    """Read a trace file.

    Parameters
    ----------
    path : str or Path
        A file, or the id of a shipped trace (mooncake-conversation). JSON lines {"timestamp", "input_length",
        "output_length", "hash_ids"}, or CSV with a header (TIMESTAMP,ContextTokens,GeneratedTokens); either may be
        gzipped.
    block_tokens : int
        Tokens of a hashed block (Mooncake: 512).
    max_bad_lines : str or float
        Share ("1%", 0.01) or number ("25") of malformed lines that are skipped; more refuse the file.
    time_unit : {"ms", "s"}
        Of numeric timestamps in JSON lines; those of a CSV are dates, or seconds.
    progress : callable, optional
        Told the bytes read and the size of the file.

    Raises
    ------
    OptionError
        There is no such file, or an option cannot be.
    DocumentError
        The file holds no requests, or too many of its lines are malformed.
    """
    file = _located(path)
    limit = limit_of(max_bad_lines)
    if time_unit not in TIME_UNITS:
        raise OptionError("--time-unit", f"unknown unit '{printable(time_unit, 20)}'", "ms or s")
    found = _Requests(block_tokens)
    problems: list[Problem] = []
    lines = bad = 0
    parse: Callable[[bytes], Line] | None = None
    try:
        for number, line in _lines(file, progress):
            if not line.strip():
                continue
            try:
                if parse is None:
                    parse, header = line_parser(line, TIME_UNITS[time_unit], str(file))
                    if header:
                        continue
                lines += 1
                found.add(*parse(line))
            except MalformedLineError as why:
                bad += 1
                if len(problems) < _KEPT_PROBLEMS:
                    problems.append(Problem(str(file), number, "", why.message, why.hint))
                if bad >= _EARLY and limit.passed(bad, lines):
                    break
            if len(found.blocks) > MAX_BLOCKS:
                raise OptionError("TRACE", f"more than {MAX_BLOCKS:,} blocks", "replay a part of it")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DocumentError([Problem(str(file), None, "", f"broken gzip file: {printable(error)}")]) from None
    except OSError as error:
        raise OptionError("TRACE", f"'{printable(str(file), 200)}' cannot be read: {error.strerror}") from None
    if limit.passed(bad, lines):
        summary = f"{bad:,} of {lines:,} lines read are malformed, more than {limit.text} (--max-bad-lines)"
        raise DocumentError([Problem(str(file), None, "", summary), *problems])
    if not found.times:
        raise DocumentError([Problem(str(file), None, "", "holds no requests", EXAMPLE)])
    return _trace(str(path), found, lines, bad, tuple(problems))


def _located(path: str | Path) -> Path:
    """The file itself, or the shipped trace of that name."""
    name = str(path)
    try:
        file = Path(path).expanduser()
        if file.is_file():
            return file
    except (OSError, ValueError, RuntimeError):  # too long, a NUL inside, the home of a user who does not exist
        file = Path(name)
    shipped = {p.name.removesuffix(".jsonl.gz"): p for r in search_roots() for p in r.glob("measurements/traces/*.gz")}
    if name in shipped:
        return shipped[name]
    hint = did_you_mean(name, shipped) or f"check the path, or take a shipped one: {', '.join(shipped)}"
    raise OptionError("TRACE", f"there is no file '{printable(name, 200)}'", hint)


def _trace(name: str, found: _Requests, lines: int, bad: int, problems: tuple[Problem, ...]) -> Trace:
    times = np.frombuffer(found.times, dtype=np.float64)
    inputs, outputs = (np.frombuffer(column, dtype=np.int64) for column in (found.inputs, found.outputs))
    blocks: NDArray[np.int64] | None = None
    starts = np.zeros(times.size + 1, dtype=np.int64)
    if found.hashed:
        blocks = np.frombuffer(found.blocks, dtype=np.int64) if found.blocks else np.zeros(0, dtype=np.int64)
        np.cumsum(np.frombuffer(found.counts, dtype=np.int64), out=starts[1:])
    in_order = bool((times[1:] >= times[:-1]).all())
    if not in_order:
        order = np.argsort(times, kind="stable")
        if blocks is not None:
            counts = np.diff(starts)[order]
            moved = np.concatenate([[0], np.cumsum(counts)])
            blocks = blocks[np.arange(blocks.size) + np.repeat(starts[:-1][order] - moved[:-1], counts)]
            starts = moved
        times, inputs, outputs = times[order], inputs[order], outputs[order]
    return Trace(
        name, times - times[0], inputs, outputs, found.block_tokens, blocks, starts, lines, bad, problems, in_order
    )


def _lines(file: Path, progress: Progress | None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines; one beyond the limit comes cut short, and its rest is passed over."""
    size = file.stat().st_size
    with file.open("rb") as raw:
        zipped = raw.read(2) == b"\x1f\x8b"
        raw.seek(0)
        stream: IO[bytes] = gzip.GzipFile(fileobj=raw) if zipped else raw  # type: ignore[assignment]
        number = 0
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
            yield number, line
            tail = line
            while len(tail) > MAX_LINE_BYTES and not tail.endswith(b"\n"):
                tail = stream.readline(MAX_LINE_BYTES + 1)
            if progress is not None and number % 5000 == 0:
                progress(raw.tell(), size)
    if progress is not None:
        progress(size, size)
