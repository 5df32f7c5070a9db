"""Bands of an engine's overheads, from rows whose edges are worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from llmcap.analyses.accuracy.estimate_bands import (
    TAILS,
    OwnTimes,
    band,
    coverage,
    inside,
    joined,
    overhead_band,
    widest_needed,
)


def own(measured: list[float], parts: str, *, low: float = 2.0, high: float = 3.0, overhead: float = 2.0) -> OwnTimes:
    n = len(measured)
    return OwnTimes(np.array(measured), np.full(n, low), np.full(n, high), np.full(n, overhead), np.array(list(parts)))


def test_the_overhead_makes_up_for_what_the_kernels_band_lacks() -> None:
    # Kernels take 2 to 3 s, overheads 2 s. Eleven rows 3.0, 3.4, ... 7.0 s: the second is 3.4 = 2 + 0.7 x 2, the last
    # but one 6.6 = 3 + 1.8 x 2.
    rows = own([3.0 + 0.4 * i for i in range(11)], "a" * 11)
    assert band(rows) == pytest.approx((0.7, 1.8))
    assert inside(rows, 0.7, 1.8).tolist() == [False, *[True] * 9, False]


def test_a_band_never_excludes_its_own_best_value() -> None:
    # All within the kernels' band: 1 x 2 s on either end is enough.
    assert band(own([4.2, 4.5, 4.8], "abc")) == (1.0, 1.0)
    # Measured far below what kernels alone take: no factor helps, and none is zero.
    assert band(own([0.5, 0.5, 0.5], "abc"))[0] == 0.1


def test_coverage_is_that_of_rows_left_out() -> None:
    # Part b lies where part a does not: each band misses all rows of the other.
    apart = own([4.0] * 5 + [40.0] * 5, "aaaaabbbbb")
    assert coverage(apart, TAILS[0]) == pytest.approx(0.5)  # 4 s is inside bands up to 40 s, 40 s outside those of a
    alike = own([4.0, 4.2, 4.4, 4.6, 4.8] * 2, "aaaaabbbbb")
    assert coverage(alike, TAILS[0]) == 1.0


def test_bands_widen_until_rows_left_out_are_held() -> None:
    rng = np.random.default_rng(5)
    parts = "".join(p * 8 for p in "abcde")
    centres = np.repeat(rng.normal(0.0, 0.3, 5), 8)
    rows = own(list(4.5 * np.exp(centres + rng.normal(0.0, 0.1, 40))), parts)
    tail = widest_needed(rows)
    assert tail in TAILS
    assert all(coverage(rows, wider) < 0.8 for wider in TAILS if wider > tail)
    low, high, share = overhead_band(rows, (0.4, 2.5))
    assert (low, high) == band(rows, tail)
    assert share == coverage(rows, tail)


def test_few_rows_keep_the_band_there_is() -> None:
    few = own([4.0, 4.1, 9.9], "abc")
    # 2 + 0.4 x 2 = 2.8 s to 3 + 2.5 x 2 = 8 s: two of three.
    assert overhead_band(few, (0.4, 2.5)) == pytest.approx((0.4, 2.5, 2 / 3))
    assert overhead_band(own([4.0] * 12, "a" * 12), (0.4, 2.5))[:2] == (0.4, 2.5), "one part cannot be held out"


def test_parts_join() -> None:
    both = joined([own([4.0], "a"), own([5.0, 6.0], "bb")])
    assert both.measured.tolist() == [4.0, 5.0, 6.0]
    assert both.part.tolist() == ["a", "b", "b"]
