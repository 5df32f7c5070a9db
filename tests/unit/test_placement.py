"""Placement of sessions over tiers: hand-worked cases, brute force, and bad input."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcap.analyses.offload.placement import Returns, parse_returns, place, zipf_sum
from llmcap.errors import OptionError


@pytest.mark.parametrize("exponent", [0.0, 0.5, 0.8, 1.0, 1.3, 2.0])
@pytest.mark.parametrize("n", [0, 1, 7, 999, 1000, 1001, 50_000])
def test_zipf_sum_is_the_plain_sum(n: int, exponent: float) -> None:
    assert float(zipf_sum(n, exponent)) == pytest.approx(sum(i**-exponent for i in range(1, n + 1)), rel=1e-9)


def test_zipf_sum_of_very_many() -> None:
    """H(n) = ln n + gamma + 1/(2n) - ..., gamma = 0.5772156649."""
    assert float(zipf_sum(1e12, 1.0)) == pytest.approx(np.log(1e12) + 0.5772156649, rel=1e-9)


def test_uniform_returns_by_hand() -> None:
    """100 sessions, room for 10 + 50: 10 %, 50 %, and 40 % are computed again; 0.1 x 0 + 0.5 x 2 + 0.4 x 10 = 5 s."""
    found = place(100, [10, 50], Returns(0.0))
    assert [float(p) for p in found.placed] == [10.0, 50.0]
    assert float(found.left_out) == 40.0
    assert float(found.mean([0.0, 2.0], 10.0)) == pytest.approx(5.0)


def test_zipf_returns_by_hand() -> None:
    """Three sessions, s = 1: weights 6/11, 3/11, 2/11 from the hottest down."""
    found = place(3, [1, 1], Returns(1.0))
    assert [float(r) for r in found.returns] == pytest.approx([6 / 11, 3 / 11])
    assert float(found.returns_left_out) == pytest.approx(2 / 11)


def test_a_tier_that_holds_nothing_needs_no_time() -> None:
    assert float(place(5, [10, 10], Returns()).mean([1.0, np.nan], 3.0)) == 1.0


@given(
    st.integers(1, 10**9),
    st.lists(st.integers(0, 10**9), min_size=1, max_size=4),
    st.floats(0.0, 3.0, allow_subnormal=False),
)
def test_everyone_lives_somewhere(sessions: int, held: list[int], exponent: float) -> None:
    found = place(sessions, held, Returns(exponent))
    assert sum(float(p) for p in found.placed) + float(found.left_out) == pytest.approx(sessions)
    assert sum(float(r) for r in found.returns) + float(found.returns_left_out) == pytest.approx(1.0)
    assert all(float(p) <= h for p, h in zip(found.placed, held, strict=True))


@given(st.integers(2, 10**6), st.integers(1, 10**6), st.floats(0.1, 2.0))
def test_skew_puts_more_returns_into_the_first_tier(sessions: int, held: int, exponent: float) -> None:
    skewed, even = (float(place(sessions, [held], Returns(s)).returns[0]) for s in (exponent, 0.0))
    assert skewed >= even * (1 - 1e-9)


def test_arrays_are_cases() -> None:
    found = place(np.array([10, 100]), [np.array([20, 20])], Returns())
    assert found.placed[0].tolist() == [10.0, 20.0]


@pytest.mark.parametrize(("text", "exponent"), [("uniform", 0.0), ("zipf", 1.0), (" Zipf:0.8 ", 0.8)])
def test_returns_as_typed(text: str, exponent: float) -> None:
    assert parse_returns(text).exponent == exponent


@pytest.mark.parametrize("text", ["", "zipf:", "zipf:-1", "zipf:9", "zipf:nan", "uniform:1", "lru", "zipf:1:2"])
def test_other_returns_are_refused(text: str) -> None:
    with pytest.raises(OptionError, match="--returns"):
        parse_returns(text)
