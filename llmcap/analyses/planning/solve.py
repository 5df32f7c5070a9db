"""Searches for the turning point of something that only ever turns once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Holds = Callable[[Array], NDArray[np.bool_]]

#: Points tried at once: an evaluator answers many cases in little more than the time of one.
_PROBES = 32
#: Share of the highest rate from which on rates are tried evenly, and how close an answer is taken to be found.
_MANY, _CLOSE = 0.05, 2e-5


def last_true(holds: Holds, low: int, high: int) -> int | None:
    """Largest whole x in [low, high] for which something holds that holds up to some x and not beyond.

    Parameters
    ----------
    holds : callable
        Takes an array of whole numbers.
    low, high : int

    Returns
    -------
    int or None
        None when it does not even hold at `low`.

    Examples
    --------
    >>> last_true(lambda x: x * x <= 2000.0, 1, 1000)
    44
    """
    if high < low:
        return None
    first = holds(np.array([float(low), float(high)]))
    if not first[0]:
        return None
    if first[1]:
        return high
    while high - low > 1:
        points = np.unique(np.floor(np.geomspace(low + 1, high - 1, _PROBES) if low > 0 else
                                    np.linspace(low + 1, high - 1, _PROBES)))  # fmt: skip
        good = holds(points)
        if good.all():
            low = int(points[-1])
        else:
            at = int(np.argmin(good))
            high = int(points[at])
            low = int(points[at - 1]) if at else low
    return low


def last_rate(holds: Holds, low: float, high: float) -> tuple[float, float] | None:
    """Largest x in [low, high] up to which something holds at every point tried, and the least that was seen to fail.

    Parameters
    ----------
    holds : callable
        Takes an array.
    low, high : float
        Both positive.

    Returns
    -------
    tuple of float or None
        The two within 2e-5 of one another; twice `high` when it holds there; None when it does not even hold at `low`.

    Examples
    --------
    >>> holds, fails = last_rate(lambda x: x * x <= 2.0, 1e-6, 100.0)
    >>> round(holds, 4), holds**2 <= 2.0 < fails**2
    (1.4142, True)
    """
    few, many = np.geomspace(low, _MANY * high, _PROBES // 2), np.linspace(_MANY * high, high, _PROBES + _PROBES // 2)
    points = np.unique(np.concatenate([few, many]))
    good = holds(points)
    if not good[0]:
        return None
    if good.all():
        return high, high
    while True:
        at = int(np.argmin(good))
        low, high = float(points[at - 1]), float(points[at])
        if high - low <= _CLOSE * high:
            return low, high
        points = np.linspace(low, high, 2 * _PROBES)
        # The ends were tried, and rounding beside other points must not undo that.
        good = np.concatenate([[True], holds(points[1:-1]), [False]])
