"""Request traces: who asked when, how much, and which blocks of the prompt others had asked before.

Two kinds are read, plain or gzipped: JSON lines with block hashes (Mooncake), and lengths only (CSV of the Azure LLM
inference traces, or JSON lines without hashes).
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import zlib
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.errors import DocumentError, OptionError, Problem, printable

Progress = Callable[[int, int], None]
"""Called now and then with the bytes read so far and the size of the file."""

MAX_LINE_BYTES: Final = 2**24
MAX_TOKENS: Final = 10**8  # of one request; the longest context on offer is a hundredth of it
MAX_BLOCKS: Final = 2**28
_MAX_SECONDS: Final = 1e12
_KEPT_PROBLEMS: Final = 20
_EARLY: Final = 1000  # bad lines after which a file is judged before its end
_UNITS: Final = {"ms": 1e-3, "s": 1.0}
_TIME_COLUMNS: Final = ("timestamp", "arrived_at", "time")
_INPUT_COLUMNS: Final = ("contexttokens", "input_length", "request tokens", "num_prefill_tokens")
_OUTPUT_COLUMNS: Final = ("generatedtokens", "output_length", "response tokens", "num_decode_tokens")


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


class _MalformedError(ValueError):
    """A line that is no request; says why and what would be right."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


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
            raise _MalformedError("some requests have hash_ids and others have none", "all of them or none")
        if blocks is not None:
            whole, over = divmod(inputs, self.block_tokens)
            if len(blocks) not in (whole, whole + (over > 0)):
                raise _MalformedError(
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
        JSON lines {"timestamp", "input_length", "output_length", "hash_ids"}, or CSV with a header
        (TIMESTAMP,ContextTokens,GeneratedTokens); either may be gzipped.
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
    file = Path(path).expanduser()
    limit = _limit(max_bad_lines)
    if time_unit not in _UNITS:
        raise OptionError("--time-unit", f"unknown unit '{printable(time_unit, 20)}'", "ms or s")
    found = _Requests(block_tokens)
    problems: list[Problem] = []
    lines = bad = 0
    parse: Callable[[bytes], tuple[float, int, int, array[int] | None]] | None = None
    try:
        if not file.is_file():
            raise OptionError("TRACE", f"there is no file '{printable(str(file), 200)}'", "check the path")
        for number, line in _lines(file, progress):
            if not line.strip():
                continue
            try:
                if parse is None:
                    parse, header = _parser(line, _UNITS[time_unit], str(file))
                    if header:
                        continue
                lines += 1
                found.add(*parse(line))
            except _MalformedError as why:
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
        raise DocumentError([Problem(str(file), None, "", "holds no requests", _EXAMPLE)])
    return _trace(str(file), found, lines, bad, tuple(problems))


_EXAMPLE: Final = 'a line is {"timestamp": 0, "input_length": 1000, "output_length": 100, "hash_ids": [1, 2]}'


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


# -- lines -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Limit:
    text: str
    share: float | None
    number: int

    def passed(self, bad: int, lines: int) -> bool:
        return bad > (self.number if self.share is None else self.share * lines)


def _limit(given: str | float) -> _Limit:
    text = str(given).strip()
    hint = "a share such as 1% or a number of lines such as 25"
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = math.nan
    if not 0 <= value < 1e15:
        raise OptionError("--max-bad-lines", f"'{printable(text, 40)}' is no limit", hint)
    if text.endswith("%"):
        return _share(value / 100.0, text, hint)
    if value < 1 and isinstance(given, float):
        return _share(value, f"{value:.3g} of all", hint)
    if not value.is_integer():
        raise OptionError("--max-bad-lines", f"'{printable(text, 40)}' is no limit", hint)
    return _Limit(f"{int(value):,}", None, int(value))


def _share(share: float, text: str, hint: str) -> _Limit:
    if share > 1:
        raise OptionError("--max-bad-lines", f"'{printable(text, 40)}' is more than the whole", hint)
    return _Limit(text, share, 0)


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


def _parser(line: bytes, unit: float, file: str) -> tuple[Callable[[bytes], Any], bool]:
    """How to read the lines of a file, from its first one; and whether that one is a header."""
    if line.lstrip()[:1] == b"{":
        return lambda text: _json_request(text, unit), False
    try:
        names = [n.strip().lower() for n in next(csv.reader([line.decode()]), [])]
    except (UnicodeDecodeError, csv.Error):
        names = []
    columns = [_column(names, wanted) for wanted in (_TIME_COLUMNS, _INPUT_COLUMNS, _OUTPUT_COLUMNS)]
    time, inputs, outputs = columns
    if time is None or inputs is None:
        raise DocumentError(
            [Problem(file, 1, "", "the first line is neither a JSON object nor a CSV header of a trace",
                     f"{_EXAMPLE}, a header is TIMESTAMP,ContextTokens,GeneratedTokens")]
        )  # fmt: skip
    return lambda text: _csv_request(text, time, inputs, outputs), True


def _column(names: list[str], wanted: tuple[str, ...]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _json_request(line: bytes, unit: float) -> tuple[float, int, int, array[int] | None]:
    if len(line) > MAX_LINE_BYTES:
        raise _MalformedError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise _MalformedError(f"no JSON: {printable(error)}", _EXAMPLE) from None
    if not isinstance(row, dict):
        raise _MalformedError("no JSON object", _EXAMPLE)
    ids = row.get("hash_ids")
    blocks = None if ids is None else _identities(ids, b"true" in line or b"false" in line)
    time = row.get("timestamp")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= _MAX_SECONDS / unit:
        raise _MalformedError(
            f"timestamp {printable(json.dumps(time), 40)} is no time", "a number of milliseconds from 0"
        )
    inputs = _tokens("input_length", row.get("input_length"), 1)
    return time * unit, inputs, _tokens("output_length", row.get("output_length", 0), 0), blocks


def _identities(ids: Any, has_words: bool) -> array[int]:
    wrong = _MalformedError("hash_ids is no list of whole numbers", '"hash_ids": [1, 2, 3]')
    if not isinstance(ids, list) or (has_words and any(isinstance(i, bool) for i in ids)):
        raise wrong
    try:
        return array("q", ids)
    except TypeError:
        raise wrong from None
    except OverflowError:
        try:
            return array("q", np.array(ids, dtype=np.uint64).view(np.int64).tolist())  # unsigned 64-bit hashes
        except (OverflowError, TypeError, ValueError):
            raise _MalformedError("hash_ids go beyond 64 bits") from None


def _csv_request(line: bytes, time: int, inputs: int, outputs: int | None) -> tuple[float, int, int, None]:
    if len(line) > MAX_LINE_BYTES:
        raise _MalformedError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        cells = next(csv.reader([line.decode()]))
        when, asked = cells[time], cells[inputs]
        answered = "0" if outputs is None else cells[outputs]
    except (UnicodeDecodeError, csv.Error, IndexError, StopIteration):
        raise _MalformedError("cells are missing, or it is no text", "2023-11-16 18:15:46.68,374,44") from None
    return (
        _moment(when.strip()),
        _tokens("input tokens", _whole(asked), 1),
        _tokens("output", _whole(answered), 0),
        None,
    )


def _whole(text: str) -> int | str:
    plain = text.strip()
    return int(plain) if plain.isascii() and plain.isdigit() and len(plain) < 19 else plain


def _moment(text: str) -> float:
    """A date and time (UTC unless it says otherwise), or seconds. [s]"""
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            raise _MalformedError(f"'{printable(text, 40)}' is no time", "2023-11-16 18:15:46.68, or seconds") from None
    if not 0 <= seconds <= _MAX_SECONDS:
        raise _MalformedError(f"'{printable(text, 40)}' is no time", "2023-11-16 18:15:46.68, or seconds")
    return seconds


def _tokens(name: str, value: Any, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_TOKENS:
        shown = printable(value, 30)
        raise _MalformedError(
            f"{name} '{shown}' is no number of tokens", f"a whole number from {minimum} to {MAX_TOKENS:,}"
        )
    return value
