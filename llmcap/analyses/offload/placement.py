"""Where many kept sessions live: device memory first, then each tier in order, and what a returning one waits.

Each session sits in one tier only. The hottest sessions sit in the fastest tier; an LRU cache comes close to that when
returns are frequent, and replaying a trace gives the exact figure.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.errors import OptionError, printable
from llmcap.records import dataclass

Array = NDArray[np.float64]

_EXACT_TERMS = 1000


@dataclass(frozen=True, slots=True)
class Returns:
    """Which of the kept sessions comes back next: the i-th most popular one with probability proportional to i^-s."""

    exponent: float = 0.0
    """s; 0 is uniform."""

    def share(self, first: ArrayLike, last: ArrayLike, sessions: ArrayLike) -> Array:
        """Share of returns that ask for the ranks first + 1 .. last of all sessions, one of them at least."""
        whole = zipf_sum(sessions, self.exponent)
        return np.asarray((zipf_sum(last, self.exponent) - zipf_sum(first, self.exponent)) / whole)


@dataclass(frozen=True, slots=True)
class Placement:
    """Sessions and returns by tier, fastest first; the last row is what no tier holds."""

    placed: tuple[Array, ...]
    """Sessions in each tier. [1]"""
    returns: tuple[Array, ...]
    """Share of returns that each tier serves."""
    left_out: Array
    """Sessions that are dropped and computed again. [1]"""
    returns_left_out: Array

    def mean(self, ttft: Sequence[ArrayLike], recompute: ArrayLike) -> Array:
        """Expected time to first token of a return, given each tier's and that of computing. [s]

        A tier that holds nothing does not count, even when its time is unknown.
        """
        total = self.returns_left_out * np.asarray(recompute, dtype=np.float64)
        for share, seconds in zip(self.returns, ttft, strict=True):
            total = total + np.where(share > 0.0, share * np.asarray(seconds, dtype=np.float64), 0.0)
        return np.asarray(total)


def zipf_sum(n: ArrayLike, exponent: float) -> Array:
    """Sum of i^-s for i = 1 .. n, to nine digits for any n.

    Parameters
    ----------
    n : array_like
        Whole numbers, 0 and more.
    exponent : float
        s, 0 or more.

    Notes
    -----
    The first 1,000 terms are added; the rest is Euler-Maclaurin's integral with its two boundary corrections.

    Examples
    --------
    >>> [round(float(x), 4) for x in zipf_sum([0, 1, 4], 1.0)]
    [0.0, 1.0, 2.0833]
    """
    n, s = np.asarray(n, dtype=np.float64), float(exponent)
    head = np.concatenate([[0.0], np.cumsum(np.arange(1.0, _EXACT_TERMS + 1.0) ** -s)])
    exact = head[np.minimum(n, _EXACT_TERMS).astype(np.intp)]
    m, far = float(_EXACT_TERMS), np.maximum(n, _EXACT_TERMS)
    integral = np.log(far / m) if s == 1.0 else (far ** (1.0 - s) - m ** (1.0 - s)) / (1.0 - s)
    corrections = (far**-s - m**-s) / 2.0 - s * (far ** (-s - 1.0) - m ** (-s - 1.0)) / 12.0
    return np.asarray(exact + np.where(n > m, integral + corrections, 0.0))


def place(sessions: ArrayLike, held: Sequence[ArrayLike], returns: Returns) -> Placement:
    """Fill the tiers in order with the sessions, hottest first.

    Parameters
    ----------
    sessions : array_like
        U, kept in all. [1]
    held : sequence of array_like
        Sessions that each tier holds alone, fastest tier first. [1]
    returns : Returns

    Examples
    --------
    >>> found = place(100, [10, 50], Returns())
    >>> [float(x) for x in found.placed], float(found.left_out), [float(x) for x in found.returns]
    ([10.0, 50.0], 40.0, [0.1, 0.5])
    """
    everyone = np.asarray(sessions, dtype=np.float64)
    before = np.zeros_like(everyone)
    placed, shares = [], []
    for room in held:
        after = np.minimum(before + np.maximum(np.asarray(room, dtype=np.float64), 0.0), everyone)
        placed.append(after - before)
        shares.append(returns.share(before, after, everyone))
        before = after
    return Placement(tuple(placed), tuple(shares), everyone - before, returns.share(before, everyone, everyone))


def parse_returns(text: str) -> Returns:
    """Returns as they are typed: 'uniform', 'zipf' (s = 1), or 'zipf:0.8'.

    Raises
    ------
    OptionError
    """
    kind, colon, value = text.strip().lower().partition(":")
    if kind == "uniform" and not colon:
        return Returns(0.0)
    try:
        exponent = float(value) if colon else 1.0
    except ValueError:
        exponent = -1.0
    if kind != "zipf" or not 0.0 <= exponent <= 5.0:
        raise OptionError(
            "--returns", f"'{printable(text, 40)}' is not a pattern of returns", "write uniform, zipf, or zipf:0.8"
        )
    return Returns(exponent)
