"""Exact LRU stack distances of block accesses: the hit ratio at every capacity from one pass.

A cache of c blocks that evicts the least recently used one always holds the c blocks touched last (Mattson's stack
property), so one number per access, the smallest capacity that still holds the block, answers for all capacities.

References
----------
[1] R. L. Mattson, J. Gecsei, D. R. Slutz, I. L. Traiger, "Evaluation techniques for storage hierarchies",
    IBM Systems Journal 9(2), 1970.
[2] B. T. Bennett, V. J. Kruskal, "LRU stack processing", IBM Journal of Research and Development 19(4), 1975.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Int32 = NDArray[np.int32]
Int64 = NDArray[np.int64]

#: Capacity needed by a block that was never touched before: none suffices.
NEVER: Final = 2**31 - 1
#: Most accesses of one trace; positions are 32-bit and never reach NEVER.
MAX_ACCESSES: Final = 2**30

_BASE_BITS: Final = 8  # groups of 256 are counted by comparing all pairs, a byte each
_CACHE_BITS: Final = 17  # arrays of up to 2**17 eight-byte words stay in a core's second-level cache
_LOW: Final = np.int64(2**32 - 1)


def previous_access(blocks: NDArray[np.integer[Any]]) -> tuple[Int32, int]:
    """Where each block was touched last, and how many distinct blocks there are.

    Parameters
    ----------
    blocks : ndarray of int (n,)
        Block identities in the order of access; any integers.

    Returns
    -------
    previous : ndarray of int32 (n,)
        Position of the same block's last access before this one, -1 when there is none.
    distinct : int

    Raises
    ------
    ValueError
        More accesses than 32-bit positions can count.

    Examples
    --------
    >>> previous_access(np.array([7, 9, 7, 7]))
    (array([-1, -1,  0,  2], dtype=int32), 2)
    """
    n = blocks.size
    previous = np.full(n, -1, dtype=np.int32)
    if n == 0:
        return previous, 0
    if n > MAX_ACCESSES:
        raise ValueError(f"{n:,} accesses are more than the {MAX_ACCESSES:,} that 32-bit positions are used for")
    low, high = int(blocks.min()), int(blocks.max())
    bits = max(int(n - 1).bit_length(), 1)
    if high - low < 2 ** (63 - bits):
        # Identity and position in one word: sorting words is stable and much quicker than sorting an index.
        key = blocks.astype(np.int64)
        key -= low
    else:
        key = np.unique(blocks, return_inverse=True)[1].astype(np.int64)
    key <<= bits
    key |= np.arange(n, dtype=np.int64)
    key.sort()
    position = (key & (2**bits - 1)).astype(np.int32)
    key >>= bits
    again = np.flatnonzero(key[1:] == key[:-1])
    del key
    previous[position[again + 1]] = position[again]
    return previous, n - again.size


def greater_before(permutation: NDArray[np.integer[Any]]) -> Int32:
    """For each value of a permutation of 0..m-1: how many greater values stand before it.

    Parameters
    ----------
    permutation : ndarray of int (m,)

    Returns
    -------
    ndarray of int32 (m,)
        Indexed by value, not by place.

    Notes
    -----
    Values are split by their bits from the top, keeping their order: among values that share all higher bits, those
    with a 1 that stand before one with a 0 are greater than it. As every value occurs once, each half of a group has
    a known size, so the whole level is a few passes over one array. The last eight levels compare all pairs of a group
    of 256 instead. O(m log m); large parts are halved depth first, so that the rest of the work stays in the cache.

    Examples
    --------
    >>> greater_before(np.array([2, 0, 3, 1]))
    array([1, 2, 0, 0], dtype=int32)
    """
    counts = np.zeros(permutation.size, dtype=np.int32)
    words = permutation.astype(np.int64)  # low half: the value; high half: its count so far
    start = 0
    while words.size > 2**_BASE_BITS:
        # The largest power of two is split off; the rest is a smaller permutation.
        size = 2 ** (words.size.bit_length() - 1)
        if size < words.size:
            below, words = _split(words, ((words & _LOW) - start) >= size, 1)
        else:
            below, words = words, words[:0]
        _count_full(below, start, counts)
        start += size
    if words.size:
        # Values that do not exist are appended in order at the end, where they are greater than nothing after them.
        rest = words.size
        missing = np.arange(start + rest, start + 2**_BASE_BITS, dtype=np.int64)
        padded = np.zeros(start + 2**_BASE_BITS, dtype=np.int32) if missing.size else counts
        _count_groups(np.concatenate([words, missing]), padded)
        counts[start:] = padded[start : start + rest]
    return counts


def _split(words: Int64, one: NDArray[np.bool_], groups: int) -> tuple[Int64, Int64]:
    """Words with a 0 and with a 1, in order; each 0 adds the ones before it in its group to its count."""
    zeros = np.flatnonzero(~one)
    below = words[zeros]
    before = zeros.reshape(groups, -1)
    # Place within the group, less the zeros before it.
    before -= np.arange(zeros.size).reshape(groups, -1)
    if groups > 1:
        before -= (np.arange(groups) * ((words.size - zeros.size) // groups))[:, None]
    zeros <<= 32
    below += zeros
    return below, words[np.flatnonzero(one)]


def _count_full(words: Int64, start: int, counts: Int32) -> None:
    """Count within the values start .. start + 2**k - 1, all of which are there."""
    size = words.size
    if size > 2**_CACHE_BITS:
        half = size // 2
        below, above = _split(words, ((words & _LOW) - start) >= half, 1)
        del words
        _count_full(below, start, counts)
        del below
        _count_full(above, start + half, counts)
        return
    while size > 2**_BASE_BITS:
        groups, half = words.size // size, size // 2
        # A group starts at a multiple of its size above `start`, itself a multiple of all sizes below.
        below, above = _split(words, (words & half) != 0, groups)
        words = np.stack([below.reshape(groups, half), above.reshape(groups, half)], axis=1).reshape(-1)
        size = half
    _count_groups(words, counts)


def _count_groups(words: Int64, counts: Int32) -> None:
    """Compare all pairs within groups of 256 consecutive values, which stand together."""
    size = 2**_BASE_BITS
    low = np.ascontiguousarray(words.astype(np.uint8).reshape(-1, size).T)
    greater = np.zeros_like(low)
    for i in range(1, size):
        np.add.reduce((low[:i] > low[i]).view(np.uint8), axis=0, out=greater[i])
    counts[words & _LOW] = (words >> 32) + greater.T.reshape(-1)


def needed_capacities(previous: Int32, starts: NDArray[np.integer[Any]]) -> Int32:
    """Smallest LRU capacity at which each block is resident when its request starts.

    Parameters
    ----------
    previous : ndarray of int32 (n,)
        Position of each block's last access, from `previous_access`; blocks lie request after request, and within a
        request in the order in which they are touched.
    starts : ndarray of int (r + 1,)
        Where each request's blocks begin, and n at the end.

    Returns
    -------
    ndarray of int32 (n,)
        [blocks]; NEVER for a block that nothing touched before, 0 for one that its own request has named already.

    Notes
    -----
    A request looks all its blocks up before it touches any. With p the last access of a block before its request's
    start s, the block stands at place 1 + (distinct blocks touched in between) of the stack. An access j in between is
    its block's first there unless its own previous access lies after p as well, hence

        needed = 1 + (s - p - 1) - #{j < s : previous(j) > p},

    and the last term counts, over the accesses in order, greater values before a smaller one. Within a request the
    previous accesses are put in rising order, so that no request counts itself.

    Examples
    --------
    Three requests: [1 2], [3], [1 2]. Before the last one the stack is 3, 2, 1, and its first block comes third.

    >>> previous, _ = previous_access(np.array([1, 2, 3, 1, 2]))
    >>> (needed_capacities(previous, np.array([0, 2, 3, 5])) % NEVER).tolist()
    [0, 0, 0, 3, 2]
    """
    n = previous.size
    needed = np.full(n, NEVER, dtype=np.int32)
    again = np.flatnonzero(previous >= 0)
    if again.size == 0:
        return needed
    last = previous[again]
    touched_later = np.zeros(n, dtype=bool)
    touched_later[last] = True
    rank = np.cumsum(touched_later, dtype=np.int32)
    rank -= 1
    del touched_later
    start = np.repeat(starts[:-1].astype(np.int32), np.diff(starts))[again]
    order = rank[last]
    falls = (order[1:] < order[:-1]) & (start[1:] == start[:-1])
    if falls.any():
        key = start.astype(np.int64)
        key <<= 32
        key |= order
        key.sort(kind="stable")  # it merges rising runs, and requests in order consist of few
        greater = greater_before((key & _LOW).astype(np.int32))
        del key
    else:
        greater = greater_before(order)
    found = start - last
    found -= greater[order]
    found[last >= start] = 0
    needed[again] = found
    return needed


def running_maximum(needed: Int32, starts: NDArray[np.integer[Any]]) -> Int32:
    """Smallest capacity at which a block and all before it in its request are resident.

    Parameters
    ----------
    needed : ndarray of int32 (n,)
        [blocks]
    starts : ndarray of int (r + 1,)

    Returns
    -------
    ndarray of int32 (n,)
        [blocks]

    Examples
    --------
    >>> running_maximum(np.array([3, 1, 4, 2], dtype=np.int32), np.array([0, 2, 4])).tolist()
    [3, 3, 4, 4]
    """
    # A request's number in the high half restarts the maximum.
    words = np.repeat(np.arange(starts.size - 1, dtype=np.int64) << 32, np.diff(starts))
    words |= needed
    np.maximum.accumulate(words, out=words)
    words &= _LOW
    return words.astype(np.int32)


def hits_by_capacity(run: Int32, weights: NDArray[np.integer[Any]]) -> tuple[Int64, Int64]:
    """The hit curve: weight of all blocks that are resident, at each capacity where it rises.

    Parameters
    ----------
    run : ndarray of int32 (n,)
        Smallest capacity at which a block is hit. [blocks]
    weights : ndarray of int (n,)
        Tokens of each block. [tokens]

    Returns
    -------
    capacities, hits : ndarray of int64 (k,)
        Rising capacities [blocks] and the weight hit from there on [tokens]; below the first capacity nothing is hit.

    Examples
    --------
    >>> hits_by_capacity(np.array([3, 1, 3], dtype=np.int32), np.array([10, 5, 1]))
    (array([1, 3]), array([ 5, 16]))
    """
    hit = run != NEVER
    at, weight = run[hit], weights[hit]
    if at.size == 0:
        return np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)
    # Token counts stay below 2**53, so summing them as floats is exact.
    summed = np.bincount(at, weights=weight)
    capacities = np.flatnonzero(summed)
    return capacities.astype(np.int64), np.cumsum(summed[capacities]).astype(np.int64)


def hits_at(curve: tuple[Int64, Int64], capacities: NDArray[np.integer[Any]]) -> Int64:
    """Weight hit at given capacities, from a curve of `hits_by_capacity`.

    Examples
    --------
    >>> hits_at((np.array([1, 3]), np.array([5, 16])), np.array([0, 1, 2, 1000]))
    array([ 0,  5,  5, 16])
    """
    knots, hits = curve
    return np.concatenate([[0], hits])[np.searchsorted(knots, capacities, side="right")].astype(np.int64)
