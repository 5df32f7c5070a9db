"""What must hold for every time, whatever the case: order of bounds, monotony, scaling, shares of one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcap.analyses.steps import StepModel
from tests.properties.settings_under_test import (
    CHOICES,
    Numbers,
    choices,
    evaluate,
    faster,
    numbers,
    one,
    setting,
    tier,
)

EPS = 1 + 1e-9
Choice = dict[str, Any]


@given(choices, numbers())
def test_ideal_is_below_the_band_and_the_band_around_the_time(choice: Choice, n: Numbers) -> None:
    got = evaluate(setting(choice), n, with_tiers=False)
    if not one(got, "fits"):
        return
    ideal = evaluate(setting(choice, "ideal"), n, with_tiers=False)
    low, middle, high = one(got, "ttft_low_s"), one(got, "ttft_s"), one(got, "ttft_high_s")
    assert 0.0 < one(ideal, "ttft_s") <= low * EPS
    assert low <= middle <= high
    if n.output > 1:
        assert 0.0 < one(ideal, "tpot_s") <= one(got, "tpot_low_s") * EPS
        assert one(got, "tpot_low_s") <= one(got, "tpot_s") <= one(got, "tpot_high_s")
    else:
        assert np.isnan(one(got, "tpot_low_s"))
    assert np.isnan(one(ideal, "tpot_high_s"))
    assert one(ideal, "e2el_s") <= one(got, "e2el_s") * EPS


@given(choices, numbers(), st.sampled_from(["peak", "memory", "network"]), st.floats(1.01, 100.0))
def test_more_peak_or_bandwidth_is_never_slower(choice: Choice, n: Numbers, what: str, factor: float) -> None:
    for assumptions in ("calibrated", "ideal"):
        s = setting(choice, assumptions)
        before = evaluate(s, n, with_tiers=False)
        after = evaluate(faster(s, factor, what), n, with_tiers=False)
        for name in (
            "ttft_s",
            "tpot_s",
            "tpot_low_s",
            "tpot_high_s",
            "e2el_s",
            "ttft_mean_s",
            "ttft_low_s",
            "ttft_high_s",
        ):
            if not np.isnan(one(before, name)):
                assert one(after, name) <= one(before, name) * EPS, (assumptions, name)


@given(choices, numbers(longest=200_000), st.sampled_from(["links", "tiers"]), st.floats(1.01, 100.0))
def test_more_tier_bandwidth_is_never_slower(choice: Choice, n: Numbers, what: str, factor: float) -> None:
    s = setting(choice)
    before = evaluate(s, n, with_break_even_tokens=False)
    if not one(before, "fits"):
        return
    after = evaluate(faster(s, factor, what), n, with_break_even_tokens=False)
    for name in ("dram", "nvme"):
        for column in ("reload_s", "ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s"):
            assert tier(after, name, column) <= tier(before, name, column) * EPS, (name, column)


@given(choices, numbers(), st.floats(0.05, 20.0))
def test_scaling_every_rate_divides_every_ideal_time(choice: Choice, n: Numbers, factor: float) -> None:
    s = setting(choice, "ideal")
    before = evaluate(s, n, with_break_even_tokens=False)
    if not one(before, "fits"):
        return
    after = evaluate(faster(s, factor), n, with_break_even_tokens=False)
    for name in ("ttft_s", "ttft_mean_s", "e2el_s", "tpot_s"):
        assert one(after, name) * factor == pytest.approx(one(before, name), rel=1e-9, nan_ok=True)
    for name in ("mfu", "mbu"):
        assert one(after, name) == pytest.approx(one(before, name), rel=1e-9, nan_ok=True)
    for place in before.tiers:
        for column in ("reload_s", "ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s", "recompute_s"):
            assert tier(after, place, column) * factor == pytest.approx(tier(before, place, column), rel=1e-9)


@given(choices, numbers(), st.sampled_from(["ideal", "calibrated"]))
def test_shares_of_the_peaks_lie_between_nothing_and_one(choice: Choice, n: Numbers, assumptions: str) -> None:
    got = evaluate(setting(choice, assumptions), n, with_tiers=False)
    for name in ("mfu", "mbu"):
        share = one(got, name)
        assert np.isnan(share) or 0.0 < share <= EPS, name


@given(choices, numbers(), st.integers(1, 50), st.integers(1, 100_000))
def test_more_users_or_longer_contexts_are_never_faster(choice: Choice, n: Numbers, more: int, longer: int) -> None:
    """But for chunked layers: just past a chunk's end a token sees few others, so decode there may be faster."""
    s = setting(choice)
    chunked = "llama-3.1" not in choice.get("model", "llama-4")
    now = evaluate(s, n, with_tiers=False)
    for then, names in (
        (replace(n, users=n.users + more), ("ttft_s", "tpot_s", "e2el_s")),
        (replace(n, context=n.context + longer), ("ttft_s",) if chunked else ("ttft_s", "tpot_s", "e2el_s")),
        (replace(n, context=n.context + longer, cached=n.cached + longer), () if chunked else ("ttft_s", "tpot_s")),
    ):
        after = evaluate(s, then, with_tiers=False)
        assert one(after, "fits") <= one(now, "fits")
        if one(after, "fits"):
            for name in names:
                assert one(after, name) * EPS >= one(now, name) or np.isnan(one(now, name)), name


@given(choices, numbers(), st.integers(1, 1000))
def test_a_longer_cached_prefix_is_never_slower(choice: Choice, n: Numbers, more: int) -> None:
    """The same context with more of it cached: fewer tokens are computed, the attended ones stay."""
    s = setting(choice)
    if n.cached + more >= n.context or choice.get("pp", 1) > 1:
        return  # with stages, one full step and a scrap count as two equal ones that overlap
    now = evaluate(s, n, with_tiers=False)
    after = evaluate(s, replace(n, cached=n.cached + more), with_tiers=False)
    if one(now, "fits"):
        # Prompts are cut into chunks from where they start, so a shifted start may see a few keys more.
        assert one(after, "ttft_s") <= one(now, "ttft_s") * (1 + 1e-3)


@given(choices, numbers())
def test_times_add_up(choice: Choice, n: Numbers) -> None:
    for assumptions in ("calibrated", "ideal"):
        got = evaluate(setting(choice, assumptions), n, with_tiers=False)
        if not one(got, "fits"):
            continue
        phases = {k: float(np.asarray(v).reshape(-1)[0]) for k, v in got.phases.items()}
        assert all(t >= 0.0 for t in phases.values())
        assert sum(phases.values()) == pytest.approx(one(got, "e2el_s"), rel=1e-12)
        assert phases["embedding"] + phases["prefill"] == pytest.approx(one(got, "ttft_s"), rel=1e-12)
        decode = 0.0 if n.output == 1 else (n.output - 1) * one(got, "tpot_s")
        assert one(got, "e2el_s") == pytest.approx(one(got, "ttft_s") + decode, rel=1e-12)
        assert one(got, "output_tok_per_s") == pytest.approx(n.users * n.output / one(got, "e2el_s"), rel=1e-12)
        assert one(got, "ttft_s") / n.users <= one(got, "ttft_mean_s") * EPS
        assert one(got, "ttft_mean_s") <= one(got, "ttft_s") * EPS


@given(numbers(), st.sampled_from(["calibrated", "ideal"]))
def test_one_device_sends_no_message(n: Numbers, assumptions: str) -> None:
    s = setting({"model": "llama-3.1-8b", "devices": 1}, assumptions)
    steps = StepModel(s)
    new = n.context - n.cached
    for cost in (steps.prefill(n.users, new, n.cached), steps.decode(n.users, n.context, n.output)):
        assert np.all(np.asarray(cost.network) == 0.0)


@pytest.mark.parametrize("choice", [c for c in CHOICES if c.get("devices", 8) > 1])
def test_several_devices_do(choice: Choice) -> None:
    steps = StepModel(setting(choice))
    assert np.all(np.asarray(steps.prefill(1.0, 1000.0, 0.0).network) > 0.0)
