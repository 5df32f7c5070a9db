"""Made-up traces of conversations, for those without a recorded one: what a population of users would ask.

Each user holds one conversation. Every prompt is the shared system prompt, then all messages and answers so far, then
the new message; so a prompt shares its full blocks with the turn before, and with everybody else the system prompt.
"""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.options import count
from llmcap.analyses.replays.trace_lines import MAX_TOKENS
from llmcap.analyses.replays.traces import MAX_BLOCKS, Trace
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.units import QuantityError, parse_quantity

_OPTION: Final = "--generate"
_EXAMPLE: Final = "write for example users=1000,turns=8,system=2k,message=300,answer=250,think=60s,span=1h,seed=0"


@dataclass(frozen=True, slots=True)
class Population:
    """Who asks, how often and how much. Times between turns and lengths vary by the seed."""

    users: int = 1000
    """Conversations in all."""
    turns: int = 8
    """Requests of each conversation."""
    system: int = 2000
    """Tokens at the front of every prompt, the same for all."""
    message: int = 300
    """Mean tokens of a user's message (geometric, at least 1)."""
    answer: int = 250
    """Mean tokens of an answer (geometric, at least 1); it is part of the next prompt."""
    think: float = 60.0
    """Mean time from one turn to the next (exponential). [s]"""
    span: float = 3600.0
    """Conversations begin evenly spread at random over this time. [s]"""
    seed: int = 0


def population(given: str | Mapping[str, Any]) -> Population:
    """Read a population from "users=1000,turns=8,..." or a mapping.

    Raises
    ------
    OptionError
    """
    values: dict[str, Any] = {}
    known = [f.name for f in fields(Population)]
    pairs: list[tuple[str, Any]]
    if isinstance(given, str):
        cut = [part.partition("=") for part in given.split(",") if part.strip()]
        lone = next((name for name, sign, _ in cut if not sign), None)
        if lone is not None:
            raise OptionError(_OPTION, f"'{printable(lone, 40)}' has no value", _EXAMPLE)
        pairs = [(name.strip().lower(), value.strip()) for name, _, value in cut]
    else:
        pairs = list(given.items())
    for name, value in pairs:
        if name not in known:
            raise OptionError(_OPTION, f"unknown '{printable(name, 40)}'", did_you_mean(name, known) or _EXAMPLE)
        if name in values:
            raise OptionError(_OPTION, f"{name} is given twice", _EXAMPLE)
        values[name] = _value(name, value)
    return Population(**values)


def _value(name: str, value: Any) -> int | float:
    if name not in ("think", "span"):
        number = count(f"generate {name}", value, minimum=0 if name in ("system", "seed") else 1)
        if name in ("system", "message", "answer") and number > MAX_TOKENS:
            raise OptionError(_OPTION, f"{name} {number:,} is beyond {MAX_TOKENS:,} tokens", _EXAMPLE)
        return number
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return float(value)
    try:
        return parse_quantity(str(value), "seconds", allow_zero=True)
    except QuantityError as error:
        raise OptionError(_OPTION, f"{name}: {error.message}", _EXAMPLE) from None


def make_up(who: Population, *, block_tokens: int = 512) -> Trace:
    """The trace of a population.

    Parameters
    ----------
    who : Population
    block_tokens : int
        Tokens of a block.

    Returns
    -------
    Trace
        users x turns requests in order of arrival. A block that is not full yet has an identity of its own: its
        content changes with the next turn.

    Raises
    ------
    OptionError
        More blocks than can be replayed.
    """
    requests = who.users * who.turns
    mean_blocks = (who.system + (who.message + who.answer) * (who.turns + 1) / 2) / block_tokens + 0.5
    _check_size(requests * max(mean_blocks, 1.0))
    rng = np.random.default_rng(who.seed)
    shape = (who.users, who.turns)
    message = _lengths(rng, who.message, shape)
    answer = _lengths(rng, who.answer, shape)
    prompt = np.cumsum(message, axis=1, dtype=np.int64)
    prompt[:, 1:] += np.cumsum(answer, axis=1, dtype=np.int64)[:, :-1]
    prompt += who.system
    pauses = rng.exponential(1.0, shape) * who.think
    pauses[:, 0] = rng.random(who.users) * who.span
    times = np.cumsum(pauses, axis=1).reshape(-1)

    order = np.argsort(times, kind="stable")
    inputs, outputs = prompt.reshape(-1)[order], answer.reshape(-1)[order].astype(np.int64)
    times = times[order]
    # Identities: the system prompt's full blocks, then a range per user for full blocks, then one per request's end.
    shared = who.system // block_tokens
    full, over = inputs // block_tokens, inputs % block_tokens > 0
    per_user = prompt[:, -1] // block_tokens - shared
    first_own = np.concatenate([[0], np.cumsum(per_user)])
    counts = full + over
    starts = np.concatenate([[0], np.cumsum(counts)])
    total = int(starts[-1])
    _check_size(total)
    kind: type[np.int32 | np.int64] = np.int32 if shared + int(first_own[-1]) + requests < 2**31 else np.int64
    own = (first_own[order // who.turns] - starts[:-1]).astype(kind)
    blocks: NDArray[np.integer[Any]] = np.arange(total, dtype=kind)
    within = blocks - np.repeat(starts[:-1].astype(kind), counts)
    blocks += np.repeat(own, counts)  # shared blocks count among the user's own here, hence no offset for them
    np.copyto(blocks, within, where=within < shared)
    del within
    ends = starts[1:][over] - 1
    blocks[ends] = shared + int(first_own[-1]) + np.flatnonzero(over)
    return Trace(_name(who), times - times[0], inputs, outputs, block_tokens, blocks, starts, requests)


def _check_size(blocks: float) -> None:
    if blocks > MAX_BLOCKS:
        raise OptionError(
            _OPTION, f"makes about {blocks:,.0f} blocks, more than {MAX_BLOCKS:,}",
            "take fewer users or turns, or a larger --block-tokens",
        )  # fmt: skip


def _lengths(rng: np.random.Generator, mean: int, shape: tuple[int, int]) -> NDArray[np.int32]:
    # A geometric draw has a long tail; a cut at 50 means changes nothing that could be noticed.
    return np.minimum(rng.geometric(1.0 / mean, shape), 50 * mean).astype(np.int32)


def _name(who: Population) -> str:
    return "generated: " + ",".join(f"{f.name}={getattr(who, f.name):.15g}" for f in fields(Population))


def write_trace(trace: Trace, path: Path) -> None:
    """Write a trace as JSON lines, gzipped when the name ends in .gz; times in whole milliseconds."""
    raw = gzip.GzipFile(path, "wb", compresslevel=6, mtime=0) if path.suffix == ".gz" else path.open("wb")
    with raw, io.TextIOWrapper(raw, encoding="utf-8", newline="\n") as out:
        for i in range(trace.requests):
            row: dict[str, Any] = {
                "timestamp": round(float(trace.times[i]) * 1000),
                "input_length": int(trace.input_tokens[i]),
                "output_length": int(trace.output_tokens[i]),
            }
            if trace.blocks is not None:
                row["hash_ids"] = trace.blocks[trace.starts[i] : trace.starts[i + 1]].tolist()
            out.write(json.dumps(row) + "\n")
