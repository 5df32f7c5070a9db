"""How long the first x tokens of F equal prompts take, exact on whole tokens, and cheap where many cases ask.

One prompt's attention depends on x alone and is tabulated by x; the time of all prompts depends on F and x and is
tabulated by both when few numbers of prompts meet many cases, as on a grid. A table holds what the formula gives, bit
for bit, so that neither its presence nor its length changes an answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.closed_forms import ChunkedPrefill

Array = NDArray[np.float64]
_T = TypeVar("_T")

_LONGEST: Final = 1 << 22
"""Entries of the longest table by tokens."""
_LARGEST: Final = 1 << 21
"""Entries of the largest table by tokens and prompts."""
_MOST_TABLES: Final = 4
_ENTRIES_PER_CASE: Final = 0.5
"""A table is made when cases have asked for twice as many values as it has entries: about what it costs."""
_SLAB: Final = 16_384
"""Entries of a table made at a time, so that the working arrays stay in the cache."""


class ByToken:
    """A function of whole tokens, tabulated as far as enough cases have asked."""

    def __init__(self, function: Callable[[Array], Array]) -> None:
        self._function = function
        self._table = np.zeros(0)
        self._asked = 0

    def __call__(self, x: Array) -> Array:
        """Its values at x, of the same shape."""
        self._asked += x.size
        longest = int(np.max(x, initial=0.0))
        table = self._table
        if longest >= table.size and longest < min(_ENTRIES_PER_CASE * self._asked, _LONGEST):
            table = self._function(np.arange(max(longest + 2, 3 * table.size // 2), dtype=np.float64))
            self._table = table  # threads that share it work with the one that they found or made
        if longest < table.size:
            return table.take(x.astype(np.intp))
        return np.asarray(np.broadcast_to(self._function(x), x.shape))


class PromptTimes:
    """Prefill times of prompts with nothing cached, for a calibrated setting without pipeline stages."""

    def __init__(self, prefill: ChunkedPrefill) -> None:
        self.prefill = prefill
        self.attention = ByToken(lambda x: prefill.attention(x, 0.0))
        """One prompt's attention over its first x tokens. [s]"""
        self._tables: dict[bytes, Array] = {}
        self._asked: dict[bytes, int] = {}

    def seconds(self, fullest: Array, x: Array) -> Array:
        """Time of the first x tokens of each prompt.

        Parameters
        ----------
        fullest, x : ndarray
            Prompts of the fullest replica; whole tokens. Broadcastable. [1], [tokens]

        Returns
        -------
        ndarray
            [s]
        """
        prefill = self.prefill
        total = fullest * x
        full = total / prefill.chunk
        np.floor(full, out=full)
        total -= full * prefill.chunk
        value = prefill.last["serial"].take(total.astype(np.intp))
        count = full + (total > 0.0)
        value += prefill.head_seconds(fullest, count)
        full *= prefill.full["serial"]
        value += full
        value += fullest * self.attention(x)
        return value

    def beside(self, fullest: Array, x: Array) -> tuple[Array, Array]:
        """Times of the first x tokens and of one token more, x of the broadcast shape. [s]"""
        table = self._table(fullest, x)
        if table is None:
            return self.seconds(fullest, x), self.seconds(fullest, x + 1.0)
        width = table.size // fullest.size
        cell = x.astype(np.intp)
        cell += (np.arange(fullest.size) * width).reshape(fullest.shape)
        return table.take(cell), table[1:].take(cell)

    def _table(self, fullest: Array, x: Array) -> Array | None:
        """Times by entry of `fullest` and tokens, up to one token past x, flat; None while it would not pay."""
        number = fullest.size
        if 4 * number > x.size:
            return None
        size = (int(np.max(x, initial=0.0)) + 3) * number
        if size > _LARGEST:
            return None
        key = fullest.tobytes()
        table = self._tables.get(key)
        if table is not None and size <= table.size:
            return table
        asked = self._asked.get(key, 0) + x.size
        self._asked = _newest({**self._asked, key: asked}, 64)
        if size > _ENTRIES_PER_CASE * asked:
            return None
        return self._made(key, fullest.reshape(-1, 1), table, size)

    def _made(self, key: bytes, fullest: Array, before: Array | None, size: int) -> Array:
        number = fullest.size
        known = 0 if before is None else before.size // number
        width = min(max(size, 2 * known * number), _LARGEST) // number
        width -= 1 - width % 2  # rows at odd distances do not compete for cache lines
        table = np.empty((number, width))
        if before is not None:
            table[:, :known] = before.reshape(number, known)
        step = max(_SLAB // number, 1)
        for start in range(known, width, step):
            x = np.arange(float(start), float(min(start + step, width)))[None, :]
            table[:, start : start + x.size] = self.seconds(fullest, x)
        flat = table.reshape(-1)
        self._tables = _newest({**self._tables, key: flat}, _MOST_TABLES)
        return flat


def _newest(entries: dict[bytes, _T], most: int) -> dict[bytes, _T]:
    """A copy with the last ones only; dicts that threads share are replaced, never changed."""
    return dict(list(entries.items())[-most:])
