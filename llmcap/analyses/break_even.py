"""The prefix from which reloading wins: for some users and new tokens once, then cheap for each tier.

Reloading a prefix of P tokens wins when it takes less than it saves. What it saves does not depend on the tier, so it
is tabulated once at prefixes far apart; a tier is compared with it there, and between two of them closer and closer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.engine.cost import Value

Array = NDArray[np.float64]

#: Longest prefix for which a break-even is looked for, if the model's own limit is shorter. [tokens]
LONGEST: Final = 2.0**24
#: Cases searched together: their tables stay in the cache.
MOST_CASES: Final = 1024
_BETWEEN: Final = np.arange(1.0, 16.0) / 16.0
_AHEAD: Final = np.arange(32.0)
_ROUNDS: Final = 256


class BreakEven:
    """Smallest prefixes from which reloading wins on a tier, the new tokens held fixed.

    Reloading wins at P when recompute(P + S) > reload(P) + prefill(S after P). From the prefix named here on it wins at
    every longer one too, up to the model's longest context or LONGEST, whichever is more; a shorter one may win early
    in a step of prefill and lose later in it.
    """

    def __init__(
        self, users: Array, new: Array, saved: Callable[[Array, Array, Array], Value], moved: Callable[[Array], Array],
        *, limit: float, block: int, step: Array | None = None,
    ) -> None:  # fmt: skip
        """
        Parameters
        ----------
        users, new : ndarray
            Of one dimension: active users, and tokens after the prefix, of each case.
        saved : callable
            Compute time that reloading a prefix saves, from users, new tokens and prefix, all broadcastable. [s]
        moved : callable
            Bytes that reloading a prefix moves for each user, of the prefix. [B]
        limit : float
            Longest context of the model. [tokens]
        block : int
            Tokens that travel together, 0 when any number does.
        step : ndarray, optional
            Tokens of each prompt that a prefill step takes, of each case; None where prompts run in one step.
        """
        self._users, self._new, self._saved, self._moved, self._block = (
            users[:, None],
            new[:, None],
            saved,
            moved,
            block,
        )
        self._step = None if step is None else np.maximum(step, 1.0)
        knots = np.geomspace(1.0, max(limit, 2.0), 48)
        if limit < LONGEST:
            knots = np.concatenate([knots, np.geomspace(limit, LONGEST, 12)])
        self._knots = _rising(np.floor(knots))
        at = np.broadcast_to(self._knots, (users.size, self._knots.size))
        self._saved_at = np.asarray(saved(self._users, self._new, at))
        self._moved_at = moved(self._knots)[None, :]

    def tokens(self, reload: Callable[[Array, Array], Value]) -> Array:
        """The prefix of each case; NaN when there is none. [tokens]

        Parameters
        ----------
        reload : callable
            Time to reload, from users and bytes per user. [s]
        """
        knots = self._knots
        won = np.asarray(reload(self._users, self._moved_at) < self._saved_at)
        lost_last = knots.size - 1 - np.argmax(~won[:, ::-1], axis=1)
        always, never = won.all(axis=1), ~won[:, -1]
        low = knots[lost_last]
        high = knots[np.minimum(lost_last + 1, knots.size - 1)]
        low, high = np.where(always, 0.0, low), np.where(always, 1.0, high)
        self._narrow(reload, low, high, np.flatnonzero(high - low > 1.0))
        if (self._step is not None or self._block) and not never.all():
            self._past_jumps(reload, low, high, np.flatnonzero(~never))
        return np.asarray(np.where(never, np.nan, high))

    def _narrow(
        self, reload: Callable[[Array, Array], Value], low: Array, high: Array, open_: NDArray[np.intp]
    ) -> None:
        """Bring `low`, where reloading loses, and `high`, where it wins, next to each other in the cases `open_`."""
        while open_.size:
            below, above = low[open_, None], high[open_, None]
            x = np.minimum(below + np.ceil((above - below) * _BETWEEN), above - 1.0)
            lost = ~self._wins(reload, open_, x)
            low[open_] = below = np.max(np.where(lost, x, below), axis=1)
            high[open_] = above = np.min(np.where(x > below[:, None], x, above), axis=1)
            open_ = open_[above - below > 1.0]

    def _past_jumps(
        self, reload: Callable[[Array, Array], Value], low: Array, high: Array, some: NDArray[np.intp]
    ) -> None:
        """Move on to where reloading does not lose again at the end of a step or the start of a block.

        Computing gets dearer in jumps, where a step begins, and reloading steadily: while the two keep pace reloading
        wins early in a step and loses late in it. Where whole blocks travel, each costs most at its first token.
        """
        for _ in range(_ROUNDS):
            won = high[some, None]
            places = [won]
            if self._step is not None:
                step, new = self._step[some, None], self._new[some]
                places.append(np.floor((np.floor((won + new) / step) + _AHEAD) * step) - new)
                if np.min(step) < _AHEAD.size:  # ends of whole tokens are uneven then
                    places.append(won + _AHEAD)
            if self._block:
                near = won + self._block * _AHEAD
                places = [np.floor((p - 1.0) / self._block) * self._block + 1.0 for p in (*places, near)] + places
            ends = np.sort(np.minimum(np.maximum(np.concatenate(places, axis=1), won), self._knots[-1]), axis=1)
            lost = ~self._wins(reload, some, ends)
            again = lost.any(axis=1)
            if not again.any():
                return
            some, ends, lost = some[again], ends[again], lost[again]
            last = ends.shape[1] - 1 - np.argmax(lost[:, ::-1], axis=1)
            low[some] = ends[np.arange(some.size), last]
            # The place behind it wins, or lies behind what was looked at.
            after = np.minimum(last + 1, ends.shape[1] - 1)
            high[some] = np.maximum(ends[np.arange(some.size), after], low[some] + 1.0)
            self._narrow(reload, low, high, some[high[some] - low[some] > 1.0])

    def _wins(
        self, reload: Callable[[Array, Array], Value], some: NDArray[np.intp], prefix: Array
    ) -> NDArray[np.bool_]:
        users = self._users[some]
        saved = self._saved(users, self._new[some], prefix)
        return np.asarray(reload(users, self._moved(prefix)) < saved)


def _rising(values: Array) -> Array:
    """Sorted values without repeats; np.unique would import all of numpy.ma for it."""
    return values[np.concatenate(([True], np.diff(values) > 0.0))]
