"""Waiting for a shared tier and for the devices: a batch that arrives at once, and Poisson arrivals in steady state.

Two disciplines. First come, first served moves one state after another; processor sharing moves all of them at once,
each at its share of the rate. Both take the same total time; they differ in who waits.

Symbols: s service time of one request alone [s], lambda arrivals a second [1/s], rho = lambda s utilisation.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmcap.engine.cost import Value
from llmcap.records import dataclass

Array = NDArray[np.float64]
Discipline = Literal["fcfs", "sharing"]


@dataclass(frozen=True, slots=True)
class Moments:
    """First two moments of a delay that is never negative; NaN where the queue has no steady state."""

    mean: Array
    """[s]"""
    variance: Array
    """[s^2]"""

    def __add__(self, other: Moments) -> Moments:
        """Of the sum of two delays that are taken as independent."""
        return Moments(self.mean + other.mean, self.variance + other.variance)


def batch(
    requests: Value, service: Value, discipline: Discipline, quantile: float = 0.95
) -> tuple[Array, Array, Array]:
    """When equal requests that arrive together are done.

    Parameters
    ----------
    requests : float or ndarray
        N, at least 1.
    service : float or ndarray
        Time of one alone. [s]
    discipline : "fcfs" or "sharing"
    quantile : float

    Returns
    -------
    tuple of ndarray
        Mean, quantile and last completion. [s]

    Notes
    -----
    First come, first served: the i-th is done at i s, the mean is (N + 1) s / 2, the quantile q at ceil(q N) s.
    Sharing: all are done at N s.

    Examples
    --------
    >>> [float(x) for x in batch(8, 2.0, "fcfs")]
    [9.0, 16.0, 16.0]
    >>> [float(x) for x in batch(8, 2.0, "sharing")]
    [16.0, 16.0, 16.0]
    """
    n, s = np.asarray(requests, dtype=np.float64), np.asarray(service, dtype=np.float64)
    last = n * s
    if discipline == "sharing":
        return last, last, last
    # The tolerance keeps 0.95 x 20 from becoming 20.
    return (n + 1.0) / 2.0 * s, np.ceil(quantile * n - 1e-9) * s, last


def delay(arrivals: Value, service: Value, discipline: Discipline = "fcfs", servers: float = 1.0) -> Moments:
    """Delay beyond the service time itself, for Poisson arrivals of equal requests (M/D/1).

    Parameters
    ----------
    arrivals : float or ndarray
        lambda, all requests together. [1/s]
    service : float or ndarray
        s. [s]
    discipline : "fcfs" or "sharing"
    servers : float
        Replicas; arrivals are split evenly and at random, so that each sees Poisson arrivals at its share.

    Returns
    -------
    Moments
        NaN where rho >= 1.

    Notes
    -----
    First come, first served (Pollaczek-Khinchine and Takacs, service constant):
    E[W] = rho s / (2 (1 - rho)), E[W^2] = 2 E[W]^2 + lambda s^3 / (3 (1 - rho)).

    Processor sharing: the mean response is s / (1 - rho) whatever the distribution of the service; for constant
    service its variance is s^2 / (1 - rho)^2 [1 - 2 (1 - rho) (e^rho - 1 - rho) / rho^2], from the conditional
    variance of M/G/1-PS with the M/D/1 waiting time (1 - rho) e^(lambda t) on 0 <= t < s.

    Sources: L. Kleinrock, Queueing Systems, vol. 1 (1975), ch. 5, and vol. 2 (1976), ch. 4; T. J. Ott, The sojourn-time
    distribution in the M/G/1 queue with processor sharing, J. Appl. Probab. 21 (1984).

    Examples
    --------
    One request of 1 s every 2 s: rho = 0.5.

    >>> float(delay(0.5, 1.0).mean), float(delay(0.5, 1.0, "sharing").mean)
    (0.5, 1.0)
    """
    rate = np.asarray(arrivals, dtype=np.float64) / servers
    s = np.asarray(service, dtype=np.float64)
    rho = rate * s
    idle = np.where(rho < 1.0, 1.0 - rho, np.nan)
    if discipline == "fcfs":
        mean = rho * s / (2.0 * idle)
        return Moments(mean, mean**2 + rho * s**2 / (3.0 * idle))
    # (e^rho - 1 - rho) / rho^2 as its series where the difference would cancel.
    small = rho < 1e-3
    safe = np.where(small | (rho > 1.0), 1.0, rho)
    shape = np.where(small, 0.5 + rho / 6.0, (np.expm1(safe) - safe) / safe**2)
    return Moments(s * rho / idle, (s / idle) ** 2 * (1.0 - 2.0 * idle * shape))


def slot_delay(stay: Value, slots: Value, busy: Value) -> Moments:
    """Wait for one of several slots, for Poisson arrivals of equal requests (M/D/m).

    Parameters
    ----------
    stay : float or ndarray
        Time that a request keeps its slot. [s]
    slots : float or ndarray
        m.
    busy : float or ndarray
        rho, the arrival rate over the largest that the slots can serve.

    Returns
    -------
    Moments
        NaN where rho >= 1.

    Notes
    -----
    A request waits with probability p = rho^(sqrt(2 (m + 1)) - 1), and then as an exponential of mean
    stay / (2 m (1 - rho)): half that of M/M/m, for constant stays. One slot gives the mean of M/D/1
    exactly. H. Sakasegawa, An approximation formula Lq = alpha rho^beta / (1 - rho), Ann. Inst. Stat. Math. 29 (1977);
    A. O. Allen, Probability, Statistics, and Queueing Theory (1990).

    Examples
    --------
    One slot, 1 s, half busy: as M/D/1, 0.5 s. A hundred slots half busy: next to nothing.

    >>> float(slot_delay(1.0, 1.0, 0.5).mean), float(slot_delay(1.0, 100.0, 0.5).mean) < 1e-5
    (0.5, True)
    """
    m, rho = np.asarray(slots, dtype=np.float64), np.asarray(busy, dtype=np.float64)
    idle = np.where(rho < 1.0, 1.0 - rho, np.nan)
    chance = np.maximum(rho, 0.0) ** (np.sqrt(2.0 * (m + 1.0)) - 1.0)
    once = stay / (2.0 * m * idle)
    mean = chance * once
    return Moments(mean, 2.0 * chance * once**2 - mean**2)


def quantile(moments: Moments, q: float = 0.95) -> Array:
    """Quantile of a delay from two moments: zero with probability 1 - p, else exponential with mean b.

    p b is the mean and 2 p b^2 the second moment. Exact for M/M/1; within 2 % of M/D/1 at rho 0.5 and 0.8. A delay with
    less spread than an exponential (p would pass 1) is taken as an exponential, which errs on the long side. [s]

    Examples
    --------
    M/M/1 with 1 s and rho 0.5: P(W > t) = 0.5 e^(-t/2), so t(0.95) = 2 ln 10.

    >>> round(float(quantile(Moments(np.array(1.0), np.array(3.0)))), 3)
    4.605
    """
    mean, variance = moments.mean, moments.variance
    positive = mean > 0.0
    safe = np.where(positive, mean, 1.0)
    b = np.maximum((variance + safe**2) / (2.0 * safe), safe)
    found = b * np.log(np.maximum(safe / b / (1.0 - q), 1.0))
    return np.asarray(np.where(np.isnan(mean), np.nan, np.where(positive, found, 0.0)))


def utilisation(arrivals: Value, service: Value, servers: float = 1.0) -> Array:
    """rho, the share of time that a resource is busy; 1 and more has no steady state."""
    return np.asarray(arrivals, dtype=np.float64) * np.asarray(service, dtype=np.float64) / servers
