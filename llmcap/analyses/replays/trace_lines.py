"""One line of a trace file: a request as JSON with block hashes, or as CSV with lengths only."""

from __future__ import annotations

import csv
import json
import math
from array import array
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np

from llmcap.errors import DocumentError, OptionError, Problem, printable
from llmcap.records import dataclass

MAX_LINE_BYTES: Final = 2**24
MAX_TOKENS: Final = 10**8  # of one request; the longest context on offer is a tenth of it
TIME_UNITS: Final = {"ms": 1e-3, "s": 1.0}
EXAMPLE: Final = 'a line is {"timestamp": 0, "input_length": 1000, "output_length": 100, "hash_ids": [1, 2]}'
_MAX_SECONDS: Final = 1e12
_TIME_COLUMNS: Final = ("timestamp", "arrived_at", "time")
_INPUT_COLUMNS: Final = ("contexttokens", "input_length", "request tokens", "num_prefill_tokens")
_OUTPUT_COLUMNS: Final = ("generatedtokens", "output_length", "response tokens", "num_decode_tokens")

Line = tuple[float, int, int, "array[int] | None"]
"""Time [s], input and output tokens, and the identities of the prompt's blocks."""


class MalformedLineError(ValueError):
    """A line that is no request; says why and what would be right."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class BadLineLimit:
    """How many malformed lines are skipped before a file is refused: a share of all, or a number."""

    text: str
    share: float | None
    number: int

    def passed(self, bad: int, lines: int) -> bool:
        return bad > (self.number if self.share is None else self.share * lines)


def limit_of(given: str | float) -> BadLineLimit:
    """Read "1%", 0.01 or "25".

    Raises
    ------
    OptionError
    """
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
    return BadLineLimit(f"{int(value):,}", None, int(value))


def _share(share: float, text: str, hint: str) -> BadLineLimit:
    if share > 1:
        raise OptionError("--max-bad-lines", f"'{printable(text, 40)}' is more than the whole", hint)
    return BadLineLimit(text, share, 0)


def line_parser(line: bytes, unit: float, file: str) -> tuple[Callable[[bytes], Any], bool]:
    """How to read the lines of a file, from its first one; and whether that one is a header.

    Raises
    ------
    DocumentError
        The first line is neither a request nor a header.
    """
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
                     f"{EXAMPLE}, a header is TIMESTAMP,ContextTokens,GeneratedTokens")]
        )  # fmt: skip
    return lambda text: _csv_request(text, time, inputs, outputs), True


def _column(names: list[str], wanted: tuple[str, ...]) -> int | None:
    return next((names.index(name) for name in wanted if name in names), None)


def _json_request(line: bytes, unit: float) -> Line:
    if len(line) > MAX_LINE_BYTES:
        raise MalformedLineError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise MalformedLineError(f"no JSON: {printable(error)}", EXAMPLE) from None
    if not isinstance(row, dict):
        raise MalformedLineError("no JSON object", EXAMPLE)
    ids = row.get("hash_ids")
    blocks = None if ids is None else _identities(ids, b"true" in line or b"false" in line)
    time = row.get("timestamp")
    if isinstance(time, bool) or not isinstance(time, int | float) or not 0 <= time <= _MAX_SECONDS / unit:
        raise MalformedLineError(
            f"timestamp {printable(json.dumps(time), 40)} is no time", "a number of milliseconds from 0"
        )
    inputs = _tokens("input_length", row.get("input_length"), 1)
    return time * unit, inputs, _tokens("output_length", row.get("output_length", 0), 0), blocks


def _identities(ids: Any, has_words: bool) -> array[int]:
    wrong = MalformedLineError("hash_ids is no list of whole numbers", '"hash_ids": [1, 2, 3]')
    if not isinstance(ids, list) or (has_words and any(isinstance(i, bool) for i in ids)):
        raise wrong
    try:
        return array("q", ids)
    except TypeError:
        raise wrong from None
    except OverflowError:
        try:
            if min(ids) >= 0:  # numpy 1.26 would wrap a negative one round
                return array("q", np.array(ids, dtype=np.uint64).view(np.int64).tolist())  # unsigned 64-bit hashes
        except (OverflowError, TypeError, ValueError):
            pass
        raise MalformedLineError("hash_ids go beyond 64 bits") from None


def _csv_request(line: bytes, time: int, inputs: int, outputs: int | None) -> Line:
    if len(line) > MAX_LINE_BYTES:
        raise MalformedLineError(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        cells = next(csv.reader([line.decode()]))
        when, asked = cells[time], cells[inputs]
        answered = "0" if outputs is None else cells[outputs]
    except (UnicodeDecodeError, csv.Error, IndexError, StopIteration):
        raise MalformedLineError("cells are missing, or it is no text", "2023-11-16 18:15:46.68,374,44") from None
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
    seconds = math.nan
    try:
        seconds = float(text)
    except ValueError:
        try:
            date = datetime.fromisoformat(text)
            seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
    if not 0 <= seconds <= _MAX_SECONDS:
        raise MalformedLineError(f"'{printable(text, 40)}' is no time", "2023-11-16 18:15:46.68, or seconds")
    return seconds


def _tokens(name: str, value: Any, minimum: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= MAX_TOKENS:
        shown = printable(value, 30)
        raise MalformedLineError(
            f"{name} '{shown}' is no number of tokens", f"a whole number from {minimum} to {MAX_TOKENS:,}"
        )
    return value
