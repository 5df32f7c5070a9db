"""Searches for the turning point of something that only ever turns once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Holds = Callable[[Array], NDArray[np.bool_]]

#: Points tried at once: an evaluator answers many cases in little more than the time of one.
_PROBES = 32


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
