"""One prompt in pieces: its attention as a quadratic of the tokens within each chunk, for equations to be solved in.

Between two chunk boundaries the attention time of a prompt's first x tokens is a quadratic of x, except where a window
ends; there the quadratic is only near.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.closed_forms import ChunkedPrefill
from llmcap.records import dataclass

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Quadratics:
    """One prompt's attention time A(x), piece j holding x in (j w, (j + 1) w] as a0 + a1 y + a2 y^2, y = x - j w."""

    width: float
    a0: Array
    a1: Array
    a2: Array

    @classmethod
    def of(cls, prefill: ChunkedPrefill, width: float, number: int) -> Quadratics:
        """Fit `number` pieces through three points each."""
        begin = np.arange(number, dtype=np.float64) * width

        def attention(y: float) -> Array:
            return prefill.attention(begin + y, 0.0) + 0.0 * begin

        y1, y2, y3 = (max(float(np.floor(share * width)), least) for share, least in ((0.25, 1), (0.5, 2), (1.0, 3)))
        f1, f2, f3 = attention(y1), attention(y2), attention(y3)
        first, second = (f2 - f1) / (y2 - y1), (f3 - f2) / (y3 - y2)
        a2 = (second - first) / (y3 - y1)
        # Noise of a difference of differences is no curvature.
        a2 = np.where(np.abs(a2) * width**2 > 1e-12 * np.abs(f3), a2, 0.0)
        a1 = first - a2 * (y1 + y2)
        a0 = f1 - y1 * (a1 + y1 * a2)
        a0[0] = 0.0 if abs(a0[0]) < 1e-9 * f3[0] else a0[0]  # no tokens, no time
        return cls(width, a0, a1, a2)

    def at(self, x: Array) -> Array:
        """About A(x), x whole and at least 0. [s]"""
        j = np.ceil(x / self.width)
        j -= 1.0
        np.maximum(j, 0.0, out=j)
        piece = j.astype(np.intp)
        y = x - j * self.width
        value = self.a2.take(piece)
        value *= y
        value += self.a1.take(piece)
        value *= y
        value += self.a0.take(piece)
        return value


@dataclass(frozen=True, slots=True)
class Pieces:
    """What the equations for the split need of each prompt chunk j."""

    start: Array
    """Step terms and attention per prompt just past j C, logits included. [s]"""
    slope: Array
    """Time of a full step and C a1. [s]"""
    bend: Array
    """a2. [s]"""
    head: Array
    """Logits that each step adds: those of one prompt in the first piece, none later. [s]"""
    curve: tuple[float, float, float]
    """start as p0 + p1 j + p2 j^2, which holds past the windows."""
    attention: Quadratics
    """A(x) about, in pieces of a chunk's length."""

    @classmethod
    def of(cls, prefill: ChunkedPrefill, longest: float) -> Pieces:
        """Pieces for prefixes of up to `longest` tokens."""
        chunk = prefill.chunk
        number = int(np.ceil(longest / chunk)) + 3
        attention = Quadratics.of(prefill, chunk, number)
        steps = np.arange(number, dtype=np.float64)
        step = prefill.full["serial"]
        head = prefill.head_one["serial"]
        start = attention.a0 + steps * step + np.where(steps > 0, head, 0.0)
        heads = np.where(steps > 0, 0.0, head)
        slope = step + heads + chunk * attention.a1
        # Far apart, so that chunks of attention longer than a step do not bend the curve.
        j1, j2, j3 = number // 3, 2 * number // 3, number - 1
        lower, upper = (start[j2] - start[j1]) / (j2 - j1), (start[j3] - start[j2]) / (j3 - j2)
        p2 = max((upper - lower) / (j3 - j1), 0.0)
        p1 = max(upper - p2 * (j2 + j3), 1e-12)
        p0 = start[j3] - j3 * (p1 + p2 * j3)
        return cls(start, slope, attention.a2, heads, (float(p0), float(p1), float(p2)), attention)

    def missed(self, x: Array, attention: Array) -> Array:
        """What the quadratics miss of one prompt's attention over its first x tokens. [s]"""
        return attention - self.attention.at(x)
