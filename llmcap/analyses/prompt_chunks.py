"""One prompt in pieces: its attention as a quadratic of the tokens within each chunk, for equations to be solved in.

Between two chunk boundaries the attention time of a prompt's first x tokens is a quadratic of x, except where a window
ends; then it is one in shorter pieces, of a width that chunk and windows are multiples of.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.closed_forms import ChunkedPrefill
from llmcap.records import dataclass

Array = NDArray[np.float64]

_CLOSE: Final = 1e-13
"""Relative error of a piece's quadratic that still counts as rounding."""
_NARROWEST: Final = 32
"""Tokens of the shortest pieces; windows that do not share such a width are evaluated at length instead."""


@dataclass(frozen=True, slots=True)
class Quadratics:
    """One prompt's attention time A(x), piece j holding x in (j w, (j + 1) w] as a0 + a1 y + a2 y^2, y = x - j w."""

    width: float
    a0: Array
    a1: Array
    a2: Array
    exact: bool
    """Whether every piece is a quadratic; not so when windows end inside pieces."""

    @classmethod
    def of(cls, prefill: ChunkedPrefill, width: float, number: int) -> Quadratics:
        """Fit `number` pieces through three points each, and look whether they hold elsewhere."""
        begin = np.arange(number, dtype=np.float64) * width

        def attention(y: Array | float) -> Array:
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
        exact = True
        for share in np.linspace(0.0, 0.98, 9):
            y = float(np.floor(share * width)) + 1.0
            wrong = np.abs(a0 + y * (a1 + y * a2) - attention(y))
            exact &= bool(np.all(wrong <= _CLOSE * np.maximum(f3, 1e-300)))
        return cls(width, a0, a1, a2, exact)

    def at(self, x: Array) -> Array:
        """A(x), x whole and at least 0. [s]"""
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
    holds_from: Array | None
    """Tokens into the chunk from which on its quadratic holds; None when all hold from the start. [tokens]"""
    attention: Quadratics
    """A(x) in pieces short enough to be exact, or else of a chunk's length."""

    @classmethod
    def of(cls, prefill: ChunkedPrefill, longest: float) -> Pieces:
        """Pieces for prefixes of up to `longest` tokens."""
        chunk = prefill.chunk
        number = int(np.ceil(longest / chunk)) + 3
        coarse = Quadratics.of(prefill, chunk, number)
        steps = np.arange(number, dtype=np.float64)
        step = prefill.full["serial"]
        head = prefill.head_one["serial"]
        start = coarse.a0 + steps * step + np.where(steps > 0, head, 0.0)
        heads = np.where(steps > 0, 0.0, head)
        slope = step + heads + chunk * coarse.a1
        # Far apart, so that chunks of attention longer than a step do not bend the curve.
        j1, j2, j3 = number // 3, 2 * number // 3, number - 1
        lower, upper = (start[j2] - start[j1]) / (j2 - j1), (start[j3] - start[j2]) / (j3 - j2)
        p2 = max((upper - lower) / (j3 - j1), 0.0)
        p1 = max(upper - p2 * (j2 + j3), 1e-12)
        p0 = start[j3] - j3 * (p1 + p2 * j3)
        attention, holds_from = coarse, None
        if not coarse.exact:
            holds_from = np.full(number, np.inf)
            width = _common_width(prefill)
            if _NARROWEST <= width < chunk:
                attention = Quadratics.of(prefill, width, number * int(chunk / width))
                if attention.exact:
                    holds_from = _holds_from(coarse, attention, number)
        return cls(start, slope, coarse.a2, heads, (float(p0), float(p1), float(p2)), holds_from, attention)


def _holds_from(coarse: Quadratics, fine: Quadratics, number: int) -> Array:
    """For each coarse piece the end of its last fine piece that differs; three points tell quadratics apart."""
    ends = np.arange(number * round(coarse.width / fine.width)).reshape(number, -1) * fine.width
    differs = np.zeros(ends.shape, dtype=np.bool_)
    for share in (0.3, 0.6, 1.0):
        x = ends + np.floor(share * fine.width)
        exact = fine.at(x)
        differs |= np.abs(coarse.at(x) - exact) > _CLOSE * np.maximum(exact, 1e-300)
    last = np.max(np.where(differs, np.arange(1.0, ends.shape[1] + 1.0), 0.0), axis=1)
    return np.asarray(last * fine.width)


def _common_width(prefill: ChunkedPrefill) -> float:
    """Largest width of which the chunk and all windows are multiples."""
    width = int(prefill.chunk)
    for op in prefill.steps.setting.operators.attention:
        work = op.work
        ends = (work.window, None if work.selects is None else work.selects * work.stride, work.extra_slots or None)
        width = math.gcd(width, *(int(end) for end in ends if end is not None))
    return float(width)
