"""The best split of a prefix between computing and loading, solved chunk by chunk instead of by bisection.

Prompts' first x tokens are computed while the rest is loaded; both take max(compute(x), load(x)), and x is whole.
compute rises and load falls, so the optimum lies at the last x with compute(x) <= load(x), or one token further. With
load(x) = R - r x (R the reload of everything) that x is where compute(x) + r x passes R. Per prompt and tokens this
left side is, between two prompt chunks, a full-step term plus a quadratic: which prompt chunk and which step it is
follow from two quadratic equations, the place in the step from a table and Newton's rule. The result is then checked
on both sides; the few cases where it misses (a window that ends inside a chunk, a bend of the table) are bisected.
"""

from __future__ import annotations

import itertools
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.closed_forms import ChunkedPrefill
from llmcap.analyses.prompt_chunks import Pieces
from llmcap.records import dataclass

Array = NDArray[np.float64]

_INVERSE_CELLS: Final = 4096
_NEWTON: Final = 2
"""Steps of Newton's rule; after them one case in several hundred is off, as a rule by one token."""


class SplitSolver:
    """Best splits of a calibrated setting without pipeline stages; tables grow with the longest prefix asked for."""

    def __init__(self, prefill: ChunkedPrefill) -> None:
        self.prefill = prefill
        self._pieces: tuple[float, Pieces | None] = (0.0, None)
        table = prefill.last["serial"]
        self._table = table
        self._rise = np.append(np.diff(table), 0.0)
        self._rise[0] = self._rise[1] if table.size > 2 else 0.0
        self._first = float(table[1])
        times = np.linspace(self._first, table[-1], _INVERSE_CELLS + 1)
        self._inverse = np.rint(np.interp(times, np.maximum.accumulate(table[1:]), np.arange(1.0, table.size)))

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
        k, excess, doubtful = self._guess(pieces, fullest, reload, relief)
        load = relief * k
        np.subtract(reload, load, out=load)
        after = load - relief
        # Past the prefix, or where software bounds the load, the equations do not hold.
        doubtful |= after < floor
        doubtful |= k >= prefix
        after += excess
        best = np.minimum(load, after)
        if doubtful.any():
            some = np.flatnonzero(doubtful.reshape(-1))
            cases = _Cases.of(pieces, some, k.shape, fullest, prefix, reload, relief, floor)
            best.reshape(-1)[some] = self._exactly(cases, k.reshape(-1)[some])
        return best

    # -- steps of the solution ---------------------------------------------------------------------------------------

    def _guess(
        self, pieces: Pieces, fullest: Array, reload: Array, relief: Array
    ) -> tuple[Array, Array, NDArray[np.bool_]]:
        """Solve for the last x that computes no longer than it loads.

        Returns
        -------
        ndarray
            That x; of the broadcast shape, as all three. [tokens]
        ndarray
            How much longer x + 1 tokens compute than they load. [s]
        ndarray of bool
            Where it is not certain that x is right.
        """
        chunk = self.prefill.chunk
        per_chunk = relief / fullest * chunk
        share = 1.0 / fullest
        target = reload * share
        # Which prompt chunk: p2 j^2 + (p1 + r C / F) j + p0 = target.
        p0, p1, p2 = pieces.curve
        linear = p1 + per_chunk
        t = target - p0
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
        np.floor(j, out=j)
        np.minimum(j, float(pieces.start.size - 1), out=j)
        piece: NDArray[np.intp] | int = j.astype(np.intp)
        first = int(np.min(piece))
        if first == int(np.max(piece)):
            piece = first  # one piece for all: what follows from it depends on users alone
        target -= pieces.start.take(piece)
        target -= per_chunk * j
        t = target
        t *= fullest
        doubtful = t < 0.0  # between two pieces, or the wrong one
        np.maximum(t, 0.0, out=t)
        # Which step within it: B s + D s^2 = t, counted in full steps.
        b = pieces.slope.take(piece) + per_chunk
        bend = pieces.bend.take(piece) * share
        d = bend * (chunk * chunk)
        s = t * (4.0 * d)
        s += b * b
        np.sqrt(s, out=s)
        s += b
        np.divide(t, s, out=s)
        s += s
        np.floor(s, out=s)
        doubtful |= s >= fullest
        d = d * s
        b = b + d  # B + D s
        t -= s * b
        head = pieces.head.take(piece)
        if first == 0 and np.max(fullest) > 1.0:
            # Few steps: the logits of several prompts share one, which makes them dearer than one prompt's each.
            count = j * fullest
            count += s
            count += 1.0
            t -= self.prefill.head_seconds(fullest, count)
            t += head * s
            t += (self.prefill.head_one["serial"] - head) * fullest
            doubtful |= t < 0.0
        else:
            t -= head
        # Where in the step: T[m] + m (b + bend m) = t. The table's inverse, stretched, then Newton's rule.
        full = self.prefill.full["serial"]
        b += d
        b -= head
        b -= full
        b *= 1.0 / chunk  # what attention and the load saved add to a token of the step
        cell = b + bend * chunk
        cell *= chunk
        cell += full - self._first
        np.divide(t - self._first, cell, out=cell)
        cell *= float(_INVERSE_CELLS)
        np.maximum(cell, 0.0, out=cell)
        np.minimum(cell, float(_INVERSE_CELLS), out=cell)
        m = self._inverse.take(cell.astype(np.intp))
        for _ in range(_NEWTON):
            m += self._newton(m, b, bend, t)
            np.maximum(m, 0.0, out=m)
            np.minimum(m, chunk, out=m)
            np.floor(m, out=m)
        m *= t > self._first
        m += 0.5  # whole tokens are exact; rounding of the division below must not lose one
        s *= chunk
        m += s
        m *= share
        np.floor(m, out=m)
        if pieces.holds_from is not None:
            doubtful |= m < pieces.holds_from.take(piece)
        # Residuals of x and x + 1 within the step; before its first token any x is early enough.
        j *= chunk
        k = m + j
        m *= fullest
        m -= s
        early = self._excess(np.maximum(m, 0.0), b, bend, t)
        early *= m > 0.0
        doubtful |= early > 0.0
        m += fullest
        doubtful |= m > chunk
        np.minimum(m, chunk, out=m)
        excess = self._excess(m, b, bend, t)
        doubtful |= excess <= 0.0
        return k, excess, doubtful

    def _newton(self, m: Array, b: Array, bend: Array, t: Array) -> Array:
        """Correction of m, a whole number of tokens."""
        whole = m.astype(np.intp)
        curve = bend * m
        rise = self._rise.take(whole)
        rise += b
        rise += curve
        rise += curve
        curve += b
        curve *= m
        curve += self._table.take(whole)
        np.subtract(t, curve, out=curve)
        curve /= rise
        return curve

    def _excess(self, m: Array, b: Array, bend: Array, t: Array) -> Array:
        """T[m] + m (b + bend m) - t, m whole. [s]"""
        value = bend * m
        value += b
        value *= m
        value += self._table.take(m.astype(np.intp))
        value -= t
        return value

    def _compute(self, pieces: Pieces, fullest: Array, x: Array) -> Array:
        """Prefill of the first x tokens of each prompt, x of the full shape. [s]"""
        chunk = self.prefill.chunk
        total = fullest * x
        full = np.floor(total / chunk)
        rest = total - full * chunk
        short = bool(x.min() < chunk)
        value = self._table.take(rest.astype(np.intp))
        if short:
            count = full + (rest > 0.0)
            value += self.prefill.head_seconds(fullest, count)
        else:
            value += fullest * self.prefill.head_one["serial"]
        full *= self.prefill.full["serial"]
        value += full
        if pieces.attention.exact:
            attention = pieces.attention.at(x)
        else:
            attention = np.array(np.broadcast_to(self.prefill.attention(x, 0.0), x.shape))
        attention *= fullest
        value += attention
        return value

    def _exactly(self, cases: _Cases, k: Array) -> Array:
        """Best splits of some cases, begun at a guess of the last early x. [s]"""
        k = np.minimum(k, cases.prefix)
        before, after = self._times(cases, k), self._times(cases, k + 1.0)
        # A wrong guess is off by one token as a rule: of the two times beside it one is known.
        late, soon = before > cases.load(k), after <= cases.load(k + 1.0)
        soon &= k < cases.prefix
        if late.any() or soon.any():
            x = np.minimum(np.maximum(np.where(late, k - 1.0, np.where(soon, k + 2.0, k)), 0.0), cases.prefix + 1.0)
            time = self._times(cases, x)
            k = np.where(late, x, np.where(soon, k + 1.0, k))
            before, after = (
                np.where(late, time, np.where(soon, after, before)),
                np.where(late, before, np.where(soon, time, after)),
            )
            right = before <= cases.load(k)
            right &= (after > cases.load(k + 1.0)) | (k >= cases.prefix)
            if not right.all():
                self._search(cases, np.flatnonzero(~right), k, after)
        return np.where(k >= cases.prefix, cases.load(cases.prefix), np.minimum(cases.load(k), after))

    def _search(self, cases: _Cases, wrong: NDArray[np.intp], k: Array, after: Array) -> None:
        """Bracket and bisect the wrong ones."""
        those = cases.pick(wrong)
        guess = k[wrong]
        low, high = np.zeros_like(guess), those.prefix + 1.0  # low is early enough; high is late, or past the prefix
        below, above = -those.load(low), np.full_like(guess, np.inf)
        where = np.arange(guess.size)
        probes = [guess - 2.0, guess + 2.0, guess - 64.0, guess + 64.0]
        for turn in itertools.count():
            a, b = low[where], high[where]
            halfway = np.floor((a + b) / 2.0)
            x = halfway
            if turn < len(probes):
                x = probes[turn][where]
            elif turn % 3:  # where a line points to
                x = a + np.floor((b - a) * below[where] / (below[where] - above[where]))
                x = np.where(np.isfinite(x), x, halfway)
            x = np.minimum(np.maximum(x, a + 1.0), b - 1.0)
            here = those.pick(where)
            value = self._times(here, x) - here.load(x)
            early = value <= 0.0
            low[where], below[where] = np.where(early, x, a), np.where(early, value, below[where])
            high[where], above[where] = np.where(early, b, x), np.where(early, above[where], value)
            where = where[high[where] - low[where] > 1.0]
            if not where.size:
                break
        k[wrong], after[wrong] = low, self._times(those, low + 1.0)

    def _times(self, cases: _Cases, x: Array) -> Array:
        return self._compute(cases.pieces, cases.fullest, x)


@dataclass(frozen=True, slots=True)
class _Cases:
    """Some of the cases, as flat arrays."""

    pieces: Pieces
    fullest: Array
    prefix: Array
    reload: Array
    relief: Array
    floor: float

    @classmethod
    def of(
        cls, pieces: Pieces, index: NDArray[np.intp], shape: tuple[int, ...], fullest: Array, prefix: Array,
        reload: Array, relief: Array, floor: float,
    ) -> _Cases:  # fmt: skip
        place = np.unravel_index(index, shape)
        f, p, r, g = (np.broadcast_to(v, shape)[place] for v in (fullest, prefix, reload, relief))
        return cls(pieces, f, p, r, g, floor)

    def load(self, x: Array) -> Array:
        return np.maximum(self.reload - self.relief * x, self.floor)

    def pick(self, some: NDArray[np.intp]) -> _Cases:
        return _Cases(
            self.pieces, self.fullest[some], self.prefix[some], self.reload[some], self.relief[some], self.floor
        )
