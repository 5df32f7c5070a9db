"""Sessions as an axis of a scenario: as many users as fit device memory are active."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llmcap
from llmcap.analyses.sweeps.grid import Grid
from llmcap.analyses.sweeps.sweep import Sweep
from llmcap.errors import DocumentError
from llmcap.specs.registry import load_as
from llmcap.specs.scenario import Scenario


def rows_of(axes: dict[str, Any], base: dict[str, Any] | None = None) -> dict[str, np.ndarray]:
    scenario = Scenario(
        id="x",
        name="x",
        question="x",
        axes=axes,
        base=base or {},
        columns=("sessions", "users", "context_tokens", "fits"),
    )
    chunks = list(Sweep(Grid(scenario)).all_rows())
    return {name: np.concatenate([chunk.arrays[name] for chunk in chunks]) for name in chunks[0].arrays}


def test_active_users_are_those_that_fit() -> None:
    most = {n: llmcap.estimate(context=n).results["max_users_hbm"] for n in (1_000_000, 100_000)}
    rows = rows_of({"context": ["1M", "100k"], "sessions": [1, 100, 1000]})
    assert rows["users"].tolist() == [min(s, most[n]) for n in (1_000_000, 100_000) for s in (1, 100, 1000)]
    assert rows["sessions"].tolist() == [1, 100, 1000] * 2
    assert rows["fits"].all()


def test_one_user_is_asked_for_where_none_fits() -> None:
    rows = rows_of({"sessions": [10]}, {"model": "llama-4-maverick", "hardware": "dgx-h100", "context": "10M"})
    assert (rows["users"].tolist(), rows["fits"].tolist()) == ([1], [False])


def test_sessions_in_the_base() -> None:
    assert rows_of({"context": ["1M"]}, {"sessions": 1000})["users"].tolist()[0] > 1


def test_users_and_sessions_together_are_refused() -> None:
    with pytest.raises(DocumentError, match="sessions decide"):
        rows_of({"users": [1], "sessions": [10]})


def test_the_shipped_scenario_has_every_case() -> None:
    grid = Grid(load_as(Scenario, "scenario", "kv-tiers").document)
    assert grid.count_cases() == (160, 480)
