"""Attended pairs and slots against a loop over tokens, and against sums done by hand."""

from __future__ import annotations

import numpy as np
import pytest

from llmcap.arch.attention import attended_pairs, attended_slots
from llmcap.arch.parts import AttentionWork, Scope


def sees(token: int, scope: Scope, window: int) -> int:
    """Keys that one token (counted from 0) sees, itself included, by going through all of them."""
    first = {"full": 0, "sliding": token - window + 1, "chunked": token // window * window}[scope]
    found = sum(1 for key in range(token + 1) if key >= first)
    return found


@pytest.mark.parametrize("scope", ["full", "sliding", "chunked"])
@pytest.mark.parametrize("window", [1, 2, 3, 7, 8, 64])
def test_pairs_equal_the_loop_over_tokens(scope: Scope, window: int) -> None:
    new, cached = np.meshgrid(np.arange(0, 23), np.array([0, 1, 2, 6, 7, 8, 9, 15, 16, 17, 40]))
    got = attended_pairs(new, cached, scope, None if scope == "full" else window)
    for s, p, pairs in zip(new.ravel(), cached.ravel(), got.ravel(), strict=True):
        assert pairs == sum(sees(t, scope, window) for t in range(p, p + s)), (s, p)


def test_pairs_by_hand() -> None:
    # Full, 3 new after 2: tokens 2, 3, 4 see 3 + 4 + 5 = 12.
    assert float(attended_pairs(3, 2)) == 12.0
    # Sliding window 2: each sees itself and one before, 2 + 2 + 2 = 6.
    assert float(attended_pairs(3, 2, "sliding", 2)) == 6.0
    # Chunks of 4: tokens 2, 3 are third and fourth of theirs, token 4 opens the next: 3 + 4 + 1 = 8.
    assert float(attended_pairs(3, 2, "chunked", 4)) == 8.0


def test_a_million_tokens_of_llama_4() -> None:
    # Full: 1e6 (1e6 + 1) / 2.
    assert float(attended_pairs(1e6, 0)) == 500_000_500_000
    # Chunks of 8,192: 122 whole ones of 8192 x 8193 / 2 = 33,558,528, and 576 tokens of 576 x 577 / 2 = 166,176.
    assert float(attended_pairs(1e6, 0, "chunked", 8192)) == 122 * 33_558_528 + 166_176


def test_pairs_are_exact_at_ten_million_tokens() -> None:
    n = 10_000_000
    assert int(attended_pairs(float(n), 0.0)) == n * (n + 1) // 2
    assert int(attended_pairs(1.0, float(n))) == n + 1


@pytest.mark.parametrize(("scope", "window"), [("full", None), ("sliding", 1024), ("chunked", 8192)])
def test_splitting_a_prompt_splits_its_pairs(scope: Scope, window: int | None) -> None:
    whole = attended_pairs(50_000, 1_000, scope, window)
    front = attended_pairs(12_345, 1_000, scope, window)
    back = attended_pairs(50_000 - 12_345, 13_345, scope, window)
    assert float(whole) == float(front) + float(back)


def work(**changes: object) -> AttentionWork:
    given: dict[str, object] = {"kind": "full", "heads": 1, "qk_dim": 1, "v_dim": 1, "kv_elements": 2, "units": 1}
    return AttentionWork(**{**given, **changes})  # type: ignore[arg-type]


def test_slots_of_plain_attention_are_its_pairs() -> None:
    assert float(attended_slots(work(), 3, 2)) == 12.0
    assert float(attended_slots(work(scope="sliding", window=2), 3, 2)) == 6.0


def test_a_selection_caps_each_query() -> None:
    # Top 3 of all earlier tokens: tokens 0 .. 5 attend to 1, 2, 3, 3, 3, 3.
    assert float(attended_slots(work(selects=3), 6, 0)) == 15.0
    # Deep in a context each new token reads its 3.
    assert float(attended_slots(work(selects=3), 5, 1000)) == 15.0


def test_records_that_stand_for_several_tokens() -> None:
    # One record per 4 tokens and a ring of 2: tokens 0 .. 7 see (1 + ... + 8) / 4 = 9 records' worth
    # and 1 + 2 x 7 = 15 ring slots.
    assert float(attended_slots(work(stride=4, extra_slots=2), 8, 0)) == 24.0
