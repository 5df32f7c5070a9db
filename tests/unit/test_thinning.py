"""Reports show some of many cases, evenly spread."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import llmcap
from llmcap.analyses.sweeps.survey import Survey, break_even_grid
from llmcap.analyses.sweeps.thinning import spread_positions, thinned
from llmcap.specs.registry import list_ids, load_as
from llmcap.specs.scenario import Scenario


@pytest.mark.parametrize("name", list_ids("scenario"))
def test_a_thinned_scenario_asks_some_of_the_same_cases(name: str) -> None:
    whole = load_as(Scenario, "scenario", name).document
    some = thinned(whole, 200)
    grids = [Survey(s).grid for s in (whole, some)]
    assert grids[1].points <= max(200, 4 ** len(whole.axes))
    for axis, fewer in zip(grids[0].axes, grids[1].axes, strict=True):
        for key, values in axis.numbers.items():
            assert set(fewer.numbers[key]) <= set(values)
            if whole.combine == "grid":
                assert (fewer.numbers[key][0], fewer.numbers[key][-1]) == (values[0], values[-1])
        assert all(choice in axis.choices for choice in fewer.choices)


def test_positions_are_spread_by_ratio_over_a_wide_span() -> None:
    numbers = np.arange(1.0, 10_001.0)
    assert [numbers[i] for i in spread_positions(numbers, 5)] == [1.0, 10.0, 100.0, 1000.0, 10_000.0]
    assert spread_positions(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3) == [0, 2, 4]


def test_the_map_of_an_estimate_agrees_with_estimates() -> None:
    answer = llmcap.estimate(context="100k")
    frame = break_even_grid(answer, contexts=5, users=4)
    for _, row in frame.sample(8, random_state=1).iterrows():
        one = llmcap.estimate(context=int(row["context_tokens"]), users=int(row["users"]))
        wanted = next(t["winner"] for t in one.tiers if t["tier"] == row["tier"])
        assert pd.isna(row["winner"]) if wanted is None else row["winner"] == wanted
