"""What passes between the stages of an evaluation: the terms of lengths and users, then the cases up to their tiers."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.closed_forms import TIMES
from llmcap.engine.cost import Value
from llmcap.records import dataclass

Array = NDArray[np.float64]


#: Tier columns without an answer when the users do not fit, the break-even bandwidth aside.
TIER_ANSWERS: Final = (
    "reload_s", "ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s", "speedup", "break_even_tokens",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Lengths:
    """What depends on users or on lengths alone, computed once for a grid and cut into blocks of it."""

    users: Array
    context: Array
    cached: Array
    output: Array
    any_cached: bool
    values: dict[str, Array]
    """State per user, attention of one prompt, decode terms: by name."""

    def cut(self, block: tuple[slice, ...]) -> Lengths:
        """The same for a block of the grid; every array has one dimension per axis of it, or none."""

        def part(a: Array) -> Array:
            if a.ndim == 0:
                return a
            return a[tuple(s if n > 1 else slice(None) for s, n in zip(block, a.shape, strict=True))]

        return Lengths(
            part(self.users), part(self.context), part(self.cached), part(self.output), self.any_cached,
            {name: part(a) for name, a in self.values.items()},
        )  # fmt: skip

    def terms(self, group: str) -> dict[str, Array]:
        """The values of one group, such as `decode each`."""
        return {n.removeprefix(group + " "): a for n, a in self.values.items() if n.startswith(group + " ")}


@dataclass(frozen=True, slots=True)
class Cases:
    """Cases evaluated up to their tiers: everything that does not depend on where caches are kept."""

    users: Array
    context: Array
    cached: Array
    output: Array
    results: dict[str, Any]
    phases: dict[str, Value]
    fits: NDArray[np.bool_]
    gap: Array | None
    """NaN where the users do not fit and 0 elsewhere; None when all fit."""
    prefix: Array
    """Reusable tokens: the cached ones, or the whole context when none are. [tokens]"""
    new: Array
    """Tokens after the prefix. [tokens]"""
    recompute: Value
    """Prefill of the whole context. [s]"""
    rest: Value
    """Prefill of the new tokens on top of the prefix. [s]"""
    moved: Array
    """Bytes that a reload of the prefix moves. [B]"""
    copies: dict[str, Array]
    """Stored over logical bytes, with latents stored once and per rank; absent where nothing is copied. [1]"""

    def nan_unless_fits(self, value: Value) -> Value:
        return value if self.gap is None else value + self.gap

    def with_answers_that_fit(self, columns: dict[str, Any]) -> dict[str, Any]:
        """Columns of a tier with NaN for the answers of users who do not fit; columns that are one array stay one."""
        if self.gap is None:
            return columns
        answers = {name: columns[name] for name in TIER_ANSWERS if name in columns}
        masked = {id(value): value + self.gap for value in {id(v): v for v in answers.values()}.values()}
        return columns | {name: masked[id(value)] for name, value in answers.items()}


def prefill_fields(wanted: Collection[str] | None) -> frozenset[str]:
    """Fields of a prefill's cost that the wanted columns need."""
    columns = (("low", "ttft_low_s"), ("high", "ttft_high_s"), ("flop_s", "mfu"))
    return TIMES | {name for name, column in columns if wanted is None or column in wanted}


def decode_fields(wanted: Collection[str] | None) -> frozenset[str]:
    """Fields of a decode step's cost that the wanted columns need."""
    columns = (("low", "tpot_low_s"), ("high", "tpot_high_s"), ("byte_s", "mbu"))
    return TIMES | {name for name, column in columns if wanted is None or column in wanted}


def largest(*shares: Value) -> NDArray[np.int8]:
    """Index of the first largest of some broadcastable shares."""
    largest = np.asarray(shares[0])
    index = np.zeros(np.broadcast_shapes(*(np.shape(s) for s in shares)), dtype=np.int8)
    for position, share in enumerate(shares[1:], start=1):
        more = np.asarray(share > largest)
        np.maximum(index, more.view(np.int8) * np.int8(position), out=index)
        largest = np.maximum(largest, share)
    return index
