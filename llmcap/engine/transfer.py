"""Moving a cached state from a tier into device memory: path rate, reload time, and the best split with compute."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmcap.engine.cost import Value

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Link:
    """One hop of a path, all its parallel members together."""

    name: str
    bandwidth: float
    """Nominal, one direction, all members. [B/s]"""
    per_transfer: float = 0.0
    """Time each block costs one member before its bytes flow. [s]"""
    efficiency: float = 1.0
    """Share of the nominal bandwidth that large blocks reach."""
    members: int = 1
    operations: float | None = None
    """Most operations a second, all members. [1/s]"""
    copies: float = 1.0
    """Times each logical byte crosses this hop (a latent goes to every tensor-parallel rank)."""


def link_rate(link: Link, block: float, *, ideal: bool) -> float:
    """Logical bytes a second over one hop with transfers of `block` bytes.

    Notes
    -----
    Each member moves a block in t0 + block/(eff W/members); operations bound small blocks. PCIe Gen5 x16 measured:
    t0 = 3.15 us and 51.5 GB/s give 7.5 GB/s at 32 KB and 48 GB/s at 2 MB.

    Examples
    --------
    >>> round(link_rate(Link("pcie", 64e9, 3.15e-6, 51.5 / 64), 2e6, ideal=False) / 1e9, 1)
    47.6
    """
    if ideal:
        return link.bandwidth / link.copies
    share = link.bandwidth * link.efficiency / link.members
    rate = link.members * block / (link.per_transfer + block / share)
    if link.operations is not None:
        rate = min(rate, link.operations * block)
    return rate / link.copies


def path_rate(path: tuple[Link, ...], block: float, *, ideal: bool) -> tuple[float, str]:
    """The narrowest hop of a path: (logical bytes a second, its name)."""
    rates = [(link_rate(link, block, ideal=ideal), link.name) for link in path]
    return min(rates)


def reload_time(bytes_moved: Value, rate: float, fixed: float) -> Value:
    """Fixed software cost plus bytes over the shared rate; nothing to move costs nothing. [s]"""
    return np.where(bytes_moved > 0.0, fixed + bytes_moved / rate, 0.0)


def break_even_rate(bytes_moved: Value, saved: Value) -> Array:
    """Bandwidth above which reloading wins: bytes over the compute time saved; NaN when nothing is saved. [B/s]"""
    positive = (saved > 0.0) & (bytes_moved > 0.0)
    return np.asarray(np.where(positive, bytes_moved / np.where(positive, saved, 1.0), np.nan))


def reload_bandwidth(users: Value, users_of_fullest: Value, shared_rate: float, replica_rate: float) -> Array:
    """Logical bytes a second that all users together see when they reload at once.

    They share the hops before the devices; each replica's own links carry its users only.

    Parameters
    ----------
    users, users_of_fullest : float or ndarray
        All users, and those of the fullest replica.
    shared_rate, replica_rate : float
        [B/s]

    Examples
    --------
    >>> float(reload_bandwidth(2, 1, 100.0, 30.0)), float(reload_bandwidth(1, 1, 100.0, 30.0))
    (60.0, 30.0)
    """
    return np.asarray(np.minimum(shared_rate, users / np.asarray(users_of_fullest) * replica_rate))


def overlapped(load: Value, compute: Value, layers: int) -> Value:
    """Load and compute overlapped layer by layer: the longer one, and one layer's share of the shorter. [s]

    Compute of layer i waits for its load; at steady rates the pipeline takes max + min / L.
    """
    return np.maximum(load, compute) + np.minimum(load, compute) / layers


def best_split(prefix: Array, compute: Callable[[Array], Value], load: Callable[[Array], Value]) -> Array:
    """Time of the best split of a prefix: compute its front while loading the rest, both in parallel.

    Parameters
    ----------
    prefix : ndarray
        Reusable tokens. [tokens]
    compute, load : callable
        Time to compute the first x tokens, rising in x; time to load what follows them, falling in x. [s]

    Returns
    -------
    ndarray
        min over whole x in [0, prefix] of max(compute(x), load(x)), found by bisection on the sign of their
        difference. [s]

    Notes
    -----
    At steady rates the answer is 1 / (1/t_compute + 1/t_load); attention makes later tokens dearer, so the split
    point is solved for. Compute time may step up at a chunk's start; then both sides of the step are compared.
    """
    low = np.zeros_like(prefix)
    high = prefix.copy()
    for _ in range(int(np.ceil(np.log2(max(float(prefix.max(initial=0.0)), 1.0)))) + 1):
        middle = np.floor((low + high) / 2.0)
        more = compute(middle) <= load(middle)
        low = np.where(more, middle, low)
        high = np.where(more, high, middle)
    best = np.minimum(load(low), np.maximum(compute(high), load(high)))
    return np.asarray(best)
