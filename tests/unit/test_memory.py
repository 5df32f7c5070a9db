"""What fits, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from llmcap.engine.memory import cache_pool, sequences_held


def test_pool_is_what_is_left() -> None:
    # 100 GB x 0.9 - 3 - 50 - 7 = 30 GB.
    assert cache_pool(100e9, 0.9, 3e9, 50e9, 7e9) == pytest.approx(30e9)


def test_a_pool_may_be_short() -> None:
    assert cache_pool(100e9, 0.9, 3e9, 95e9, 7e9) == pytest.approx(-15e9)


def test_whole_sequences_only() -> None:
    assert sequences_held(30e9, 7e9).item() == 4.0
    assert sequences_held(28e9, 7e9).item() == 4.0
    assert sequences_held(27.9e9, 7e9).item() == 3.0
    assert sequences_held(-1.0, 7e9).item() == 0.0


def test_a_model_that_keeps_nothing_holds_any_number() -> None:
    assert np.isinf(sequences_held(1.0, 0.0))


def test_many_at_once() -> None:
    assert sequences_held(10.0, np.array([1.0, 3.0, 20.0])).tolist() == [10.0, 3.0, 0.0]
