"""Alpha-beta times of collectives inside a server and between servers."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from llmcap.engine.cost import Cost, Value, banded
from llmcap.records import dataclass


@dataclass(frozen=True, slots=True)
class CollectiveParams:
    """t = l + (n-1)/n S/(beta B), l = alpha + alpha_log2 log2(n)."""

    alpha: float
    alpha_log2: float
    beta: float
    low: float
    high: float
    two_shot: float = 2.0
    """Latency of the two-shot all-reduce over that of the one-shot one."""
    in_switch: bool = False
    """The switch adds up in flight."""
    switch: float = 0.0
    """Latency of that, per doubling of the group. [s]"""


@dataclass(frozen=True, slots=True)
class Fabric:
    """Bandwidth one device has towards its group, one direction."""

    bandwidth: float
    """[B/s]"""


def all_reduce(
    size: Value, ranks: int, launches: Value, *, fabric: Fabric, params: CollectiveParams | None,
    inner: Fabric | None = None, servers: int = 1,
) -> Cost:  # fmt: skip
    """Sum a buffer over ranks so that all hold the result.

    Parameters
    ----------
    size : float or ndarray
        Bytes of the buffer on each rank, per launch. [B]
    ranks : int
    launches : float or ndarray
        Times it is called; the band and the latency scale with it.
    fabric, params
        None: the bandwidth bound alone, 2 (n-1)/n S/B, or (1 + 1/n) S/B where the switch reduces.
    inner, servers
        Of a group that spans servers, whose `fabric` is the network between them: the link inside, and how many.

    Returns
    -------
    Cost
        [s]; zero for one rank.

    Notes
    -----
    The fastest of one-shot, l + (n-1) S/(beta B), two-shot, k l + 2 (n-1)/n S/(beta B), and, where a switch adds up in
    flight, s log2(n) + (1 + 1/n) S/(beta B). Engines bring kernels of their own for the first two and call a library
    for the third, which takes tens of microseconds before the first byte moves.

    Between servers the sum goes in levels: within each server, between the ranks that hold the same of its g parts,
    and back. The network then carries S/g for each rank and its card: k l(g) + 2 (g-1)/g S/(beta B_inner), and after
    it an all-reduce of S/g over the servers. Llama 3.1 405B, 128,000 tokens, one layer's 4.2 GB on 8 GPUs a server:
    A. Yang et al., arXiv:2411.01783, table 7, took 29.9 s on two and 19.8 s on four servers (TP16, TP32).

    Examples
    --------
    16 MB over 8 ranks at 900 GB/s: two-shot moves 2 x 7/8 x 16 MB = 28 MB, 31 us at the full link rate.
    """
    if ranks <= 1:
        return Cost()
    levels = inner is not None and 1 < servers < ranks
    if params is None:
        if inner is None or not levels:
            return Cost(network=launches * size * _least_moved(ranks) / fabric.bandwidth)
        each = ranks / servers
        between = _least_moved(servers) / (each * fabric.bandwidth)
        return Cost(network=launches * size * max(_least_moved(each) / inner.bandwidth, between))
    fastest: Value = _fastest(size, ranks, fabric, params)
    if inner is not None and levels:
        each = ranks / servers
        inside = params.two_shot * _latency(each, params) + 2.0 * (each - 1.0) / each * size / (
            params.beta * inner.bandwidth
        )
        across = _fastest(size / each, servers, fabric, replace(params, in_switch=False))
        fastest = np.minimum(fastest, inside + across)
    return banded(params.low, params.high, network=launches * fastest)


def _least_moved(ranks: float) -> float:
    """Bytes that an all-reduce moves over each link, over the buffer's: a ring's, or a switch's that adds."""
    return min(2.0 * (ranks - 1.0) / ranks, 1.0 + 1.0 / ranks)


def _latency(ranks: float, params: CollectiveParams) -> float:
    return params.alpha + params.alpha_log2 * math.log2(ranks)


def _fastest(size: Value, ranks: int, fabric: Fabric, params: CollectiveParams) -> Value:
    """The fastest algorithm on one level. [s]"""
    ring = 2.0 * (ranks - 1) / ranks
    latency = _latency(ranks, params)
    rate = params.beta * fabric.bandwidth
    one_shot = latency + (ranks - 1) * size / rate
    fastest: Value = np.minimum(one_shot, params.two_shot * latency + ring * size / rate)
    if params.in_switch and ranks > 2:
        fastest = np.minimum(fastest, params.switch * math.log2(ranks) + (1.0 + 1.0 / ranks) * size / rate)
    return fastest


def exchange(size: Value, ranks: int, launches: Value, *, fabric: Fabric, params: CollectiveParams | None) -> Cost:
    """All-to-all, all-gather or reduce-scatter: (n-1)/n of a buffer crosses each link.

    Parameters
    ----------
    size : float or ndarray
        Bytes of the buffer on each rank, per launch; of an all-gather the whole that each rank ends with. [B]
    ranks, launches, fabric, params
        As in `all_reduce`; between servers the fabric is the network, with no levels.

    Returns
    -------
    Cost
        l + (n-1)/n S/(beta B) for each launch; zero for one rank. [s]

    Examples
    --------
    16 MB over 8 ranks at 900 GB/s: 7/8 x 16 MB cross, 15.6 us.

    >>> round(float(exchange(16e6, 8, 1.0, fabric=Fabric(900e9), params=None).network) * 1e6, 1)
    15.6
    """
    if ranks <= 1:
        return Cost()
    crossing = size * (ranks - 1) / ranks
    if params is None:
        return Cost(network=launches * crossing / fabric.bandwidth)
    each = _latency(ranks, params) + crossing / (params.beta * fabric.bandwidth)
    return banded(params.low, params.high, network=launches * each)


def send(size: Value, launches: Value, *, fabric: Fabric, params: CollectiveParams | None) -> Cost:
    """Point-to-point transfer of `size` bytes to the next pipeline stage: alpha + S/(beta B) for each launch. [s]"""
    if params is None:
        return Cost(network=launches * size / fabric.bandwidth)
    return banded(params.low, params.high, network=launches * (params.alpha + size / (params.beta * fabric.bandwidth)))
