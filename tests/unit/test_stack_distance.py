"""Stack distances against a least-recently-used cache that is played out block by block."""

from __future__ import annotations

import doctest
from collections import OrderedDict
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcap.engine import stack_distance
from llmcap.engine.stack_distance import (
    NEVER,
    greater_before,
    hits_at,
    hits_by_capacity,
    needed_capacities,
    previous_access,
    running_maximum,
)

Requests = list[list[int]]


def played_out(requests: Requests, capacity: int) -> list[int]:
    """Leading resident blocks of each request, from a cache that does as the rule says, one block at a time."""
    cache: OrderedDict[int, None] = OrderedDict()
    found = []
    for blocks in requests:
        run = 0
        while run < len(blocks) and blocks[run] in cache:
            run += 1
        found.append(run)
        for block in blocks:
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return found


def from_distances(requests: Requests, capacity: int) -> list[int]:
    blocks = np.array([b for r in requests for b in r], dtype=np.int64)
    starts = np.cumsum([0, *map(len, requests)])
    previous, _ = previous_access(blocks)
    run = running_maximum(needed_capacities(previous, starts), starts)
    return [int((run[a:b] <= capacity).sum()) for a, b in pairwise(starts)]


def capacities(requests: Requests) -> range:
    return range(1, len({b for r in requests for b in r}) + 2)


distinct_blocks = st.lists(st.lists(st.integers(0, 9), max_size=7, unique=True), max_size=15)
repeating_blocks = st.lists(st.lists(st.integers(0, 5), max_size=7), max_size=10)


@given(distinct_blocks | repeating_blocks)
def test_every_capacity_agrees_with_a_cache_played_out(requests: Requests) -> None:
    for capacity in capacities(requests):
        assert from_distances(requests, capacity) == played_out(requests, capacity)


def test_a_longer_trace_of_shared_prefixes_agrees_with_a_cache_played_out() -> None:
    rng = np.random.default_rng(5)
    requests = []
    for _ in range(400):  # a shared head, a conversation's own blocks, and now and then a shuffled one
        own, length = int(rng.integers(25)), int(rng.integers(1, 12))
        blocks = [0, 1, *(100 * (own + 1) + np.arange(length))]
        requests.append([int(b) for b in (rng.permutation(blocks) if rng.random() < 0.1 else blocks)])
    everything = len({b for r in requests for b in r})
    for capacity in [*range(1, 30), *range(30, everything + 2, 7)]:
        assert from_distances(requests, capacity) == played_out(requests, capacity)


@pytest.mark.parametrize("size", [0, 1, 2, 3, 255, 256, 257, 511, 512, 513, 1000, 3 * 256, 4000])
def test_greater_values_before_agree_with_a_count_of_all_pairs(size: int) -> None:
    permutation = np.random.default_rng(size).permutation(size)
    expected = {int(v): int((permutation[:i] > v).sum()) for i, v in enumerate(permutation)}
    assert dict(enumerate(greater_before(permutation).tolist())) == expected


def test_greater_values_before_of_a_large_reversal() -> None:
    size = 2**18 + 2**17 + 3  # beyond what is halved level by level, and no power of two
    counts = greater_before(np.arange(size)[::-1])
    assert np.array_equal(counts, size - 1 - np.arange(size))


def test_greater_values_before_add_up_to_the_inversions_of_a_large_permutation() -> None:
    # Swapping neighbours (0 1)(2 3)... makes one inversion each, whatever the depth.
    size = 2**18 + 1000
    swapped = np.arange(size).reshape(-1, 2)[:, ::-1].reshape(-1)
    counts = greater_before(swapped)
    assert counts[::2].tolist() == [1] * (size // 2)
    assert not counts[1::2].any()


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), max_size=30))
def test_previous_access_of_any_identities(blocks: list[int]) -> None:
    previous, distinct = previous_access(np.array(blocks, dtype=np.int64))
    last: dict[int, int] = {}
    expected = []
    for i, block in enumerate(blocks):
        expected.append(last.get(block, -1))
        last[block] = i
    assert previous.tolist() == expected
    assert distinct == len(set(blocks))


def test_a_block_never_touched_before_ends_the_leading_run() -> None:
    previous, _ = previous_access(np.array([1, 2, 1, 3, 2]))
    run = running_maximum(needed_capacities(previous, np.array([0, 2, 5])), np.array([0, 2, 5]))
    assert run.tolist() == [NEVER, NEVER, 2, NEVER, NEVER]


def test_the_curve_counts_tokens_not_blocks() -> None:
    run = np.array([2, 2, NEVER, 5], dtype=np.int32)
    curve = hits_by_capacity(run, np.array([512, 100, 512, 7]))
    assert hits_at(curve, np.array([0, 1, 2, 4, 5, 10**9])).tolist() == [0, 0, 612, 612, 619, 619]


def test_no_hits_at_all() -> None:
    curve = hits_by_capacity(np.array([NEVER], dtype=np.int32), np.array([512]))
    assert hits_at(curve, np.array([1, 1000])).tolist() == [0, 0]


def test_the_examples_in_the_docstrings_hold() -> None:
    assert doctest.testmod(stack_distance).failed == 0


def test_a_permutation_longer_than_positions_can_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stack_distance, "MAX_ACCESSES", 3)
    with pytest.raises(ValueError, match="more than the 3"):
        previous_access(np.arange(4))
