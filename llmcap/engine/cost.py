"""A time with its anatomy: what bounds it, how wide it may be, and what the bare peaks would allow."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llmcap.records import dataclass

Array = NDArray[np.float64]
#: A number or an array over cases; fields broadcast against each other, so a term that does not vary stays a number.
Value = float | Array


@dataclass(frozen=True, slots=True)
class Cost:
    """Seconds of one piece of work, all fields broadcastable.

    `compute + memory + network + overhead` is the time; `low` and `high` bracket it; `flop_s` and `byte_s` are the
    seconds that the same FLOP and HBM bytes take at bare peak, from which MFU and MBU follow.
    """

    compute: Value = 0.0
    memory: Value = 0.0
    network: Value = 0.0
    overhead: Value = 0.0
    low: Value = 0.0
    high: Value = 0.0
    flop_s: Value = 0.0
    byte_s: Value = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(*(a + b for a, b in zip(self.fields(), other.fields(), strict=True)))

    def __mul__(self, factor: Value) -> Cost:
        """The same work `factor` times (users, layers, steps)."""
        return Cost(*(a * factor for a in self.fields()))

    __rmul__ = __mul__

    def scaled(self, work: float, launch: float) -> Cost:
        """Work and launch floor taken times two factors; the band keeps its width in proportion."""
        if work == 1.0 and launch == 1.0:
            return self
        before = self.serial
        parts = (self.compute * work, self.memory * work, self.network * work, self.overhead * launch)
        after = parts[0] + parts[1] + parts[2] + parts[3]
        ratio = after / np.where(np.asarray(before) > 0.0, before, 1.0)
        return Cost(*parts, self.low * ratio, self.high * ratio, self.flop_s, self.byte_s)

    def fields(self) -> tuple[Value, ...]:
        """The eight fields in declaration order."""
        return (
            self.compute, self.memory, self.network, self.overhead, self.low, self.high, self.flop_s, self.byte_s,
        )  # fmt: skip

    @property
    def serial(self) -> Value:
        """Everything after another. [s]"""
        return self.compute + self.memory + self.network + self.overhead

    @property
    def overlapped(self) -> Value:
        """Compute, memory and network hidden behind the longest of them, overheads left out. [s]"""
        return np.maximum(np.maximum(self.compute, self.memory), self.network)

    def at(self, rows: NDArray[np.intp]) -> Cost:
        """Pick rows of fields that are one-dimensional tables; numbers stay numbers."""
        return Cost(*(f[rows] if isinstance(f, np.ndarray) and f.ndim == 1 else f for f in self.fields()))


def banded(
    low: float, high: float, *, compute: Value = 0.0, memory: Value = 0.0, network: Value = 0.0,
    overhead: Value = 0.0, flop_s: Value = 0.0, byte_s: Value = 0.0,
) -> Cost:  # fmt: skip
    """A cost whose band is its time times two factors (low <= 1 <= high)."""
    total = compute + memory + network + overhead
    return Cost(compute, memory, network, overhead, total * low, total * high, flop_s, byte_s)
