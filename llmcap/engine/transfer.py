"""Moving a cached state from a tier into device memory: path rate, reload time, and the best split with compute."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from llmcap.engine.cost import Value
from llmcap.records import dataclass

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
    """Times each byte crosses this hop (a copy in host memory is written and read)."""
    in_flight: float | None = None
    """Most transfers under way at once, all members (queue depth times queues); None: as many as it takes."""
    latency: float = 0.0
    """Time between a request and its first byte, which only transfers in flight can hide. [s]"""
    readers: float = 1.0
    """Ranks that each fetch the same logical byte over this hop (a latent that every tensor-parallel rank reads)."""


def link_rate(link: Link, block: float, *, ideal: bool) -> float:
    """Logical bytes a second over one hop with transfers of `block` bytes.

    Notes
    -----
    Each member moves a block in t = t0 + block/(eff W/members), one after another. Q transfers in flight bring at most
    Q block/(latency + t) (Little's law), and a drive's operations a second bound small blocks. PCIe Gen5 x16 measured:
    t0 = 3.15 us and 51.5 GB/s give 8.7 GB/s at 32 KB (7.5 was read off the plot) and 48 GB/s at 2 MB.

    Examples
    --------
    >>> round(link_rate(Link("pcie", 64e9, 3.15e-6, 51.5 / 64), 2e6, ideal=False) / 1e9, 1)
    47.6

    One drive of 14 GB/s and 60 us read one 128 KiB block at a time: 131,072 B / (60 + 9.36 us).

    >>> round(link_rate(Link("drive", 14e9, in_flight=1, latency=60e-6), 131072, ideal=False) / 1e9, 2)
    1.89
    """
    if ideal:
        return link.bandwidth / (link.copies * link.readers)
    share = link.bandwidth * link.efficiency / link.members
    each = link.per_transfer + block / share
    rate = link.members * block / each
    if link.in_flight is not None:
        rate = min(rate, link.in_flight * block / (link.latency + each))
    if link.operations is not None:
        rate = min(rate, link.operations * block)
    return rate / (link.copies * link.readers)


def path_rate(path: tuple[Link, ...], block: float, *, ideal: bool) -> tuple[float, str]:
    """The narrowest hop of a path: (logical bytes a second, its name)."""
    rates = [(link_rate(link, block, ideal=ideal), link.name) for link in path]
    return min(rates)


def reload_time(bytes_moved: Value, rate: Value, fixed: float) -> Value:
    """Fixed software cost plus bytes over the shared rate; nothing to move costs nothing. [s]"""
    return np.where(bytes_moved > 0.0, fixed + bytes_moved / rate, 0.0)


def break_even_rate(bytes_moved: Value, saved: Value) -> Array:
    """Bandwidth above which reloading wins: bytes over the compute time saved; NaN when nothing is saved. [B/s]"""
    positive = (saved > 0.0) & (bytes_moved > 0.0)
    return np.asarray(np.where(positive, bytes_moved / np.where(positive, saved, 1.0), np.nan))


def dense_break_even_rule(
    flop_per_s: float, prefix: float, hidden: float, *, element: float, gqa: float, pairs: float, matrices: float
) -> float:
    """Bandwidth from which loading a prefix beats computing it, by the published rule for a dense transformer.

    Parameters
    ----------
    flop_per_s : float
        G, of all devices that would compute the prefix. [FLOP/s]
    prefix : float
        p. [tokens]
    hidden : float
        d, the model dimension.
    element : float
        s, bytes per cached number. [B]
    gqa : float
        Query heads over KV heads.
    pairs, matrices : float
        a and b: a layer costs a p^2 d + b p d^2 FLOP (a = 4 counts every pair, a = 2 the causal half).

    Returns
    -------
    float
        B = 2 d s G / (gqa (a p d + b d^2)). [B/s]

    Notes
    -----
    R. Qin et al., Mooncake: Trading More Storage for Less Computation, USENIX FAST 2025, eq. 2. Per layer and token
    2 d s / gqa bytes are loaded and a p d + b d^2 FLOP saved; the number of layers cancels. No overheads, G at 100 %.

    Examples
    --------
    The paper's 70B model on 8 A100 ("6 GB/s") and 8 H800 ("19 GB/s"):

    >>> model = dict(prefix=8192, hidden=8192, element=2, gqa=8, pairs=4, matrices=22)
    >>> [round(dense_break_even_rule(8 * g, **model) / 1e9, 2) for g in (312e12, 989e12)]
    [5.86, 18.57]
    """
    return flop_per_s * 2.0 * hidden * element / (gqa * (pairs * prefix * hidden + matrices * hidden**2))


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


def best_split(
    prefix: Array, compute: Callable[[Array], Value], load: Callable[[Array], Value], step: Array | None = None
) -> Array:
    """Time of the best split of a prefix: compute its front while loading the rest, both in parallel.

    Parameters
    ----------
    prefix : ndarray
        Reusable tokens. [tokens]
    compute, load : callable
        Time to compute the first x tokens, rising in x; time to load what follows them, falling in x. [s]
    step : ndarray, optional
        Where compute rises from step to step but may fall and rise again within one, as it does when a step of a few
        tokens fills pipeline stages as well as a whole one: tokens of a step. [tokens]

    Returns
    -------
    ndarray
        min over whole x in [0, prefix] of max(compute(x), load(x)), found by bisection on the sign of their
        difference; with steps over the ends of steps first, then by the slope within the one where they meet. [s]

    Notes
    -----
    At steady rates the answer is 1 / (1/t_compute + 1/t_load); attention makes later tokens dearer, so the split
    point is solved for. Compute time may step up at a chunk's start; then both sides of the step are compared.
    """
    if step is not None:
        return _best_split_in_steps(prefix, compute, load, step)
    low = np.zeros_like(prefix)
    high = prefix.copy()
    for _ in range(int(np.ceil(np.log2(max(float(prefix.max(initial=0.0)), 1.0)))) + 1):
        middle = np.floor((low + high) / 2.0)
        more = compute(middle) <= load(middle)
        low = np.where(more, middle, low)
        high = np.where(more, high, middle)
    best = np.minimum(load(low), np.maximum(compute(high), load(high)))
    return np.asarray(best)


def _best_split_in_steps(
    prefix: Array, compute: Callable[[Array], Value], load: Callable[[Array], Value], step: Array
) -> Array:
    """`best_split` where compute may fall within a step."""

    def both(x: Array) -> Array:
        return np.maximum(compute(x), load(x))

    def end(k: Array) -> Array:
        return np.minimum(np.floor(k * step), prefix)

    early, late = np.zeros_like(prefix), np.ceil(prefix / step) + 1.0
    while np.any(late - early > 1.0):
        middle = np.floor((early + late) / 2.0)
        x = end(middle)
        more = (compute(x) <= load(x)) | (middle == early)
        early, late = np.where(more, middle, early), np.where(more, late, middle)
    best = both(end(early))
    low, high = np.minimum(end(early) + 1.0, prefix), end(late)
    while np.any(low < high):
        middle = np.floor((low + high) / 2.0)
        falls = both(np.minimum(middle + 1.0, high)) < both(middle)
        low, high = np.where(falls, np.minimum(middle + 1.0, high), low), np.where(falls, high, middle)
    return np.asarray(np.minimum(best, both(low)))
