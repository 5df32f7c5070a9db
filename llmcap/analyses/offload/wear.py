"""What storing caches writes to drives, and how long the drives last.

Rated endurance is for small random writes; caches are written in large blocks that drives take better, so a write
amplification of one is assumed and the rating errs on the safe side.
"""

from __future__ import annotations

from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.records import dataclass
from llmcap.specs.hardware import Drive

Array = NDArray[np.float64]
WritePolicy = Literal["through", "second-touch", "back"]

USED_ONCE: Final = 0.758
"""Share of the blocks of the public Mooncake conversation trace (FAST 2025, 182,790 blocks of 512 tokens) that are
never asked for again."""
DAY: Final = 86_400.0
YEAR: Final = 365.0


@dataclass(frozen=True, slots=True)
class DriveWear:
    """Load and life of a set of equal drives."""

    writes_per_day: Array
    """Full drive writes a day (DWPD) that the load asks for. [1/d]"""
    years: Array | None
    """Until the rated endurance is used up; infinite without writes; None where the rating is not known."""
    share_of_bandwidth: Array
    """Of the drives' sequential write rate; above 1 they cannot keep up."""


def bytes_written(
    produced: ArrayLike, policy: WritePolicy, *, used_once: float = USED_ONCE, displaced: float = 1.0
) -> Array:
    """Writes that a stream of new state causes.

    Parameters
    ----------
    produced : array_like
        New state, each byte once (what prefill computes and no tier had). [B/s], or any amount of bytes
    policy : "through", "second-touch" or "back"
        through: everything, when it is computed. second-touch: only what is asked for a second time. back: what the
        faster tier displaces before it is dropped.
    used_once : float
        Share of the state that is never asked for again.
    displaced : float
        Share that a faster write-back tier pushes out; 1 in steady state, when that tier is full.

    Returns
    -------
    ndarray
        As `produced`.

    Notes
    -----
    Under write-back a block that is read back and pushed out again is clean: it is not written twice.
    """
    share = {"through": 1.0, "second-touch": 1.0 - used_once, "back": displaced}[policy]
    return np.asarray(produced, dtype=np.float64) * share


def drive_wear(written: ArrayLike, drive: Drive, count: int) -> DriveWear:
    """Wear of `count` drives that share `written` bytes a second evenly.

    Parameters
    ----------
    written : array_like
        All drives. [B/s]
    drive : Drive
    count : int

    Examples
    --------
    93.6 M new tokens in 3,537 s of Maverick's fp8 state kept whole (98,304 B a token) on 8 x 7.68 TB:

    >>> from llmcap.specs.registry import load_as
    >>> drive = load_as(Drive, "drive", "micron-9550-pro-7.68tb").document
    >>> found = drive_wear(182_790 * 512 * 98_304 / 3537, drive, 8)
    >>> round(float(found.writes_per_day), 1), round(float(found.years), 1)
    (3.7, 1.4)
    """
    rate = np.asarray(written, dtype=np.float64)
    per_day = rate * DAY / (drive.capacity * count)
    years = None
    if drive.dwpd is not None:
        with np.errstate(divide="ignore"):
            years = np.asarray(drive.dwpd * drive.warranty_years / per_day)
    return DriveWear(np.asarray(per_day), years, np.asarray(rate / (drive.write * count)))
