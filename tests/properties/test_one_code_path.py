"""An estimate is a row of a table, a table is an array, and neither order nor cuts nor grids change a number."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import llmcap
from llmcap.analyses.cases import evaluate_cases
from llmcap.analyses.evaluate import Columns, Evaluator
from llmcap.analyses.result import CaseArrays, flatten
from llmcap.analyses.setting import Setting
from tests.properties.settings_under_test import CHOICES, Numbers, choices, numbers, rows, same, setting

Choice = dict[str, Any]
tables = st.lists(numbers(longest=400_000), min_size=2, max_size=8)


def arrays(s: Setting, table: list[Numbers]) -> CaseArrays:
    u, c, k, o = (rows([getattr(n, f) for n in table]) for f in ("users", "context", "cached", "output"))
    return flatten(s, Evaluator.of(s).evaluate(u, c, k, o), u, c, k, o)


def assert_same(a: CaseArrays, b: CaseArrays, rel: float = 1e-12) -> None:
    for name in a.results:
        assert same(a.results[name], b.results[name], rel), name
    assert a.tier_names == b.tier_names
    for place in a.tier_names:
        for name in a.tiers[place]:
            assert same(a.tiers[place][name], b.tiers[place][name], tolerance(name, rel)), (place, name)


def tolerance(name: str, rel: float = 1e-12) -> float:
    """The time saved is a difference of two prefills, which may all but cancel."""
    return 1e-9 if name == "break_even_bytes_per_s" else rel


def picked(a: CaseArrays, order: Any) -> CaseArrays:
    return CaseArrays(
        a.setting,
        {k: v[order] for k, v in a.inputs.items()},
        {k: v[order] for k, v in a.results.items()},
        {t: {k: v[order] for k, v in values.items()} for t, values in a.tiers.items()},
    )


@settings(max_examples=40)
@given(choices, tables, st.randoms(use_true_random=False))
def test_order_and_cuts_change_nothing(choice: Choice, table: list[Numbers], rng: Any) -> None:
    s = setting(choice)
    whole = arrays(s, table)
    order = list(range(len(table)))
    rng.shuffle(order)
    assert_same(arrays(s, [table[i] for i in order]), picked(whole, order))
    cut = rng.randint(1, len(table) - 1)
    assert_same(arrays(s, table[:cut]), picked(whole, slice(0, cut)))
    assert_same(arrays(s, table[cut:]), picked(whole, slice(cut, None)))


@settings(max_examples=30)
@given(choices, tables)
def test_an_estimate_is_one_row_of_the_array(choice: Choice, table: list[Numbers]) -> None:
    s = setting(choice)
    whole = arrays(s, table)
    for i, n in enumerate(table):
        assert_same(arrays(s, [n]), picked(whole, slice(i, i + 1)))


@settings(max_examples=10)
@given(st.lists(numbers(longest=400_000), min_size=1, max_size=3), st.sampled_from(CHOICES))
def test_the_estimate_call_and_the_table_of_cases_say_the_same(table: list[Numbers], choice: Choice) -> None:
    given_rows = [
        {"users": n.users, "context": n.context, "cached_tokens": n.cached, "output_tokens": n.output, **choice}
        for n in table
    ]
    wanted = [row for case in given_rows for row in llmcap.estimate(**case).rows()]
    got = evaluate_cases(given_rows)
    assert len(got) == len(wanted)
    for have, want in zip(got, wanted, strict=True):
        for name, value in have.items():
            other = want[name]
            if isinstance(value, float) and isinstance(other, float | int):
                assert same(value, other, tolerance(name)), name
            else:
                assert value == other, name


@settings(max_examples=15)
@given(
    choices,
    st.lists(st.integers(1, 100), min_size=1, max_size=4),
    st.lists(st.integers(1, 300_000), min_size=1, max_size=4),
)
def test_a_grid_is_the_list_of_its_points(choice: Choice, users: list[int], contexts: list[int]) -> None:
    s = setting(choice)
    u, c = rows(users)[:, None], rows(contexts)[None, :]
    zero, out = np.float64(0.0), np.float64(100.0)
    grid = flatten(s, Evaluator.of(s).evaluate(u, c, zero, out), u, c, np.asarray(zero), np.asarray(out))
    points = arrays(s, [Numbers(a, b, 0, 100) for a in users for b in contexts])
    assert_same(grid, points)


@settings(max_examples=40)
@given(choices, numbers(), st.sampled_from(["calibrated", "ideal"]))
def test_json_holds_no_nan_and_no_infinity(choice: Choice, n: Numbers, assumptions: str) -> None:
    answer = llmcap.estimate(
        users=n.users, context=n.context, cached_tokens=n.cached, output_tokens=n.output,
        **{**choice, "assumptions": assumptions},
    )  # fmt: skip
    text = json.dumps(answer.to_dict(), allow_nan=False)
    assert json.loads(text)["results"]["fits"] is answer.fits


def test_columns_can_be_left_out_without_changing_the_others() -> None:
    s = setting({})
    whole: Columns = Evaluator.of(s).evaluate(3, 100_000, 50_000, 100)
    bare = Evaluator.of(s).evaluate(3, 100_000, 50_000, 100, with_tiers=False)
    for name in whole.results:
        assert same(whole.results[name], bare.results[name]), name
