"""The best split of a prefix between computing and loading, solved chunk by chunk instead of by bisection.

Prompts' first x tokens are computed while the rest is loaded; both take max(compute(x), load(x)), and x is whole.
compute rises and load falls, so the optimum lies at the last x with compute(x) <= load(x), or one token further. With
load(x) = R - r x (R the reload of everything) that x is where compute(x) + r x passes R. Per prompt and tokens this
left side is, between two prompt chunks, a full-step term plus a quadratic: which prompt chunk and which step it is
follow from two quadratic equations, the place in the step from a table and one step of Newton's rule. That is a guess,
and single precision does for it; what counts is compute(x) itself on both sides of it. Where a window ends inside a
chunk the quadratic misses: the guess is repeated with what it missed by. The few cases that are off still are tried
token by token.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.closed_forms import ChunkedPrefill
from llmcap.analyses.prompt_chunks import Pieces
from llmcap.analyses.prompt_times import PromptTimes
from llmcap.records import dataclass

Array = NDArray[np.float64]
Half = NDArray[np.float32]
Whole = NDArray[np.intp]

_CELLS: Final = 4096
_AROUND: Final = np.array([-512, -64, -16, -4, -3, -2, -1, 0, 1, 2, 3, 4, 16, 64, 512], dtype=np.float64)
"""Where to look beside a wrong guess, which is off by a token as a rule. [tokens]"""
_BETWEEN: Final = np.arange(1.0, 16.0) / 16.0
_STEEP: Final = 1e20
"""A rise that lets no token pass. [s]"""
_FLAT: Final = 1e-6
"""Least rise of a step's time from one token to all, over the latter, that the inverse resolves. [1]"""
_HARDLY: Final = 1e-3
"""No token, and not less than none after rounding. [tokens]"""
_NONE: Final = np.zeros((), np.float32)
_MANY: Final = 0.05
"""Share of wrong guesses from which another round for all is cheaper than trying those."""
_ROUNDS: Final = 2
_MISSED: Final = 1e-9
"""What a quadratic may miss, over the load time, before it matters."""


class SplitSolver:
    """Best splits of a calibrated setting without pipeline stages; tables grow with the longest prefix asked for."""

    def __init__(self, prefill: ChunkedPrefill, times: PromptTimes) -> None:
        self.prefill = prefill
        self.times = times
        self._pieces: tuple[float, Pieces | None] = (0.0, None)
        # The last step's time inverted: how many tokens at each of many equidistant times, and the rise from there. No
        # token before the first one's time, and the whole chunk behind the last cell.
        table = prefill.last["serial"]
        self._cell = max(float(table[-1] - table[1]), _FLAT * float(table[-1]), 1e-30) / _CELLS
        self._begin = float(table[1]) - self._cell
        edges = float(table[1]) + self._cell * np.arange(_CELLS + 1.0)
        places = np.interp(edges, np.maximum.accumulate(table[1:]), np.arange(1.0, table.size))
        rises = self._cell / np.maximum(np.diff(places), 1e-9)
        self._place = _half(np.concatenate(([_HARDLY], places)))
        self._rise = _half(np.concatenate(([_STEEP], rises, [_STEEP])))
        # Nearly all of the table is a line: its later half, drawn on to zero tokens.
        half = min(table.size // 2, table.size - 2)
        self._token = max(float(table[-1] - table[half]) / (table.size - 1 - half), 1e-300)
        self._ahead = float(table[-1]) - self._token * (table.size - 1) - self._begin

    def pieces(self, longest: float) -> Pieces:
        """The pieces, made anew when a longer prefix comes."""
        reach, pieces = self._pieces
        if pieces is None or longest > reach:
            reach = max(longest, 2.0 * reach, 16.0 * self.prefill.chunk)
            pieces = Pieces.of(self.prefill, reach)
            self._pieces = (reach, pieces)  # in one step, for other threads
        return pieces

    def best(self, fullest: Array, prefix: Array, reload: Array, relief: Array, floor: float) -> Array:
        """Time of the best split.

        Parameters
        ----------
        fullest, prefix : ndarray
            Prompts of the fullest replica; reusable tokens. Broadcastable. [1], [tokens]
        reload : ndarray
            Loading everything; of the broadcast shape. [s]
        relief : ndarray
            Load time that each token computed instead saves. [s]
        floor : float
            Least load time (software), however much is computed. [s]

        Returns
        -------
        ndarray
            min over whole x in [0, prefix] of max(compute(x), load(x)). [s]
        """
        pieces = self.pieces(float(prefix.max(initial=0.0)))
        target, shortest = reload, np.min(prefix, initial=np.inf)
        for _ in range(1 + _ROUNDS):
            k = self._guess(pieces, fullest, target, relief)
            ends = np.max(k, initial=0.0) >= shortest
            if ends:
                np.minimum(k, prefix, out=k)
            now, then = self.times.beside(fullest, k)
            if ends:
                then[k >= prefix] = np.inf
            load = relief * k
            np.subtract(reload, load, out=load)
            after = load - relief
            wrong = now > load
            wrong |= then <= after
            if np.count_nonzero(wrong) <= _MANY * wrong.size:
                break
            missed = pieces.missed(k, self.times.attention(k))
            if not np.any(np.abs(missed) > _MISSED * load):
                break
            target = reload - fullest * missed
        # Where software bounds the load, these loads are not the ones to compare with.
        if np.min(after, initial=np.inf) < floor:
            wrong |= after < floor
        best = np.minimum(load, then)
        if wrong.any():
            some = np.flatnonzero(wrong.reshape(-1))
            cases = _Cases.of(some, k.shape, fullest, prefix, reload, relief, floor)
            best.reshape(-1)[some] = self._exactly(cases, k.reshape(-1)[some, None])
        return best

    # -- steps of the solution ---------------------------------------------------------------------------------------

    def _guess(self, pieces: Pieces, fullest: Array, target: Array, relief: Array) -> Array:
        """About the last x whose time to compute, together with the load it saves, is within the target. [tokens]

        Parameters
        ----------
        target : ndarray
            Of the broadcast shape, as the result. [s]
        """
        chunk = self.prefill.chunk
        share = 1.0 / fullest
        per_chunk = relief * share * chunk
        t = _half(target)
        piece: Whole | int = 0
        if not np.all(t <= _half(fullest * (pieces.start[1] + per_chunk))):
            piece = self._piece(pieces, target, fullest, per_chunk)
        if not isinstance(piece, int) or pieces.start[piece] > 0.0:
            t = _half(target - fullest * (pieces.start.take(piece) + per_chunk * piece))
        if np.min(t, initial=0.0) < 0.0:
            np.maximum(t, _NONE, out=t)
        # Which step within it: B s + D s^2 = t, counted in full steps.
        b = pieces.slope.take(piece) + per_chunk
        bend = pieces.bend.take(piece) * share
        d = bend * (chunk * chunk)
        s = t * _half(4.0 * d)
        s += _half(b * b)
        np.sqrt(s, out=s)
        s += _half(b)
        np.divide(t, s, out=s)
        s += s
        np.floor(s, out=s)
        # Where in the step: T[m] + m (c + bend m) = t, c what attention and the load saved add to a token. A line, then
        # the table's inverse, then Newton's rule. Times count from one cell before the first token's.
        head = pieces.head.take(piece)
        rest = s * _half(d)
        rest += _half(b)
        rest *= s
        t -= rest
        t -= _half(head + self._begin)
        c = s * _half(d * (2.0 / chunk))
        c += _half((b - head - self.prefill.full["serial"]) / chunk)
        slope = c + _half(bend * chunk)
        m = t - self._ahead
        m /= slope + self._token
        np.maximum(m, _NONE, out=m)
        m *= slope
        cell = t - m
        cell *= 1.0 / self._cell
        np.floor(cell, out=cell)
        whole = cell.astype(np.intp)
        cell *= self._cell
        t -= cell
        m = self._place.take(whole, mode="clip")
        curve = _half(bend) * m
        c += curve
        t -= c * m
        c += curve
        c += self._rise.take(whole, mode="clip")
        t /= c
        m += t
        s *= chunk
        m += s
        m /= _half(fullest)
        if not isinstance(piece, int) or piece:
            np.minimum(m, chunk, out=m)
        np.floor(m, out=m)
        k = m.astype(np.float64)
        if not isinstance(piece, int) or piece:
            k += piece * chunk
        return k

    def _piece(self, pieces: Pieces, target: Array, fullest: Array, per_chunk: Array) -> Whole | int:
        """Prompt chunk in which the target is met; one number if all agree."""
        # p2 j^2 + (p1 + r C / F) j + p0 = target / F
        p0, p1, p2 = pieces.curve
        linear = p1 + per_chunk
        t = target / fullest
        t -= p0
        np.maximum(t, 0.0, out=t)
        if p2 > 0.0:
            j = t * (4.0 * p2)
            j += linear * linear
            np.sqrt(j, out=j)
            j += linear
            np.divide(t, j, out=j)
            j += j
        else:
            j = t / linear
        np.minimum(j, float(pieces.start.size - 1), out=j)
        piece = j.astype(np.intp)
        first = int(np.min(piece))
        return first if first == int(np.max(piece)) else piece

    def _exactly(self, cases: _Cases, k: Array) -> Array:
        """Best splits of some cases by trial of whole tokens, begun around a guess of the last early x. [s]"""
        # The last x that is early enough, the first that is late or past the end, and the latter's time.
        low, high = np.zeros_like(cases.prefix), cases.prefix + 1.0
        over = np.full_like(low, np.inf)
        some, here, below, above = np.arange(k.size), cases, low, high
        x = k + _AROUND
        while True:
            x = np.minimum(np.maximum(x, below), above)
            time = self.times.seconds(here.fullest, x)
            inside = x < above
            early = time <= here.load(x)
            early &= inside
            late = inside & ~early
            low[some] = below = np.max(np.where(early, x, below), axis=1, keepdims=True)
            high[some] = above = np.min(np.where(late, x, above), axis=1, keepdims=True)
            over[some] = np.min(np.where(late, time, over[some]), axis=1, keepdims=True)
            apart = (above - below)[:, 0] > 1.0
            if not apart.any():
                return np.minimum(cases.load(low), over)[:, 0]
            some, below, above = some[apart], below[apart], above[apart]
            here = cases.pick(some)
            x = below + np.ceil((above - below) * _BETWEEN)


def _half(values: Array) -> Half:
    """In single precision."""
    return values.astype(np.float32)


@dataclass(frozen=True, slots=True)
class _Cases:
    """Some of the cases, as columns."""

    fullest: Array
    prefix: Array
    reload: Array
    relief: Array
    floor: float

    @classmethod
    def of(
        cls, index: Whole, shape: tuple[int, ...], fullest: Array, prefix: Array, reload: Array, relief: Array,
        floor: float,
    ) -> _Cases:  # fmt: skip
        place = np.unravel_index(index, shape)
        f, p, r, g = (np.broadcast_to(v, shape)[place][:, None] for v in (fullest, prefix, reload, relief))
        return cls(f, p, r, g, floor)

    def load(self, x: Array) -> Array:
        return np.maximum(self.reload - self.relief * x, self.floor)

    def pick(self, some: Whole) -> _Cases:
        return _Cases(self.fullest[some], self.prefix[some], self.reload[some], self.relief[some], self.floor)
