"""What must hold for every byte count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.settings_under_test import Numbers, choices, evaluate, numbers, one, setting

Choice = dict[str, Any]
WHOLE = ("weight_bytes", "weight_bytes_per_device")


@given(choices, numbers(), st.integers(1, 100))
def test_caches_are_additive_in_users(choice: Choice, n: Numbers, more: int) -> None:
    s = setting(choice)
    a, b, both = (evaluate(s, replace(n, users=u), with_tiers=False) for u in (n.users, more, n.users + more))
    for name in ("kv_bytes_total", "kv_bytes_total_reserved"):
        assert one(a, name) + one(b, name) == pytest.approx(one(both, name), rel=1e-12)
    assert one(a, "kv_bytes_per_user") == one(both, "kv_bytes_per_user")
    assert one(a, "kv_bytes_total") == pytest.approx(n.users * one(a, "kv_bytes_per_user"), rel=1e-12)


@given(choices, numbers())
def test_the_marginal_token_is_the_difference_of_totals(choice: Choice, n: Numbers) -> None:
    s = setting(choice)
    now, next_ = (evaluate(s, replace(n, context=c), with_tiers=False) for c in (n.context, n.context + 1))
    step = one(next_, "kv_bytes_per_user") - one(now, "kv_bytes_per_user")
    assert one(now, "kv_bytes_per_token") == pytest.approx(step, rel=1e-6, abs=1e-3)


@given(choices, numbers(), st.sampled_from(["hybrid", "all-full"]))
def test_reserved_is_never_less_than_logical(choice: Choice, n: Numbers, policy: str) -> None:
    got = evaluate(setting({**choice, "kv_policy": policy}), n, with_tiers=False)
    assert one(got, "kv_bytes_total_reserved") >= one(got, "kv_bytes_total") * (1 - 1e-12)


@given(numbers())
def test_whole_policies_reserve_at_least_what_windows_need(n: Numbers) -> None:
    got = [evaluate(setting({"kv_policy": p}), n, with_tiers=False) for p in ("hybrid", "all-full")]
    assert one(got[0], "kv_bytes_total_reserved") <= one(got[1], "kv_bytes_total_reserved")
    assert one(got[0], "kv_bytes_total") == one(got[1], "kv_bytes_total")


@settings(max_examples=50)
@given(choices, numbers())
def test_the_most_users_fit_and_one_more_does_not(choice: Choice, n: Numbers) -> None:
    s = setting(choice)
    most = int(one(evaluate(s, n, with_tiers=False), "max_users_hbm"))
    if most:
        assert one(evaluate(s, replace(n, users=most), with_tiers=False), "fits")
        assert one(evaluate(s, replace(n, users=most), with_tiers=False), "hbm_free_bytes") >= -1.0
    beyond = evaluate(s, replace(n, users=most + 1), with_tiers=False)
    assert not one(beyond, "fits")
    assert one(beyond, "hbm_free_bytes") < 0.0


@given(choices, numbers())
def test_nothing_that_does_not_fit_has_a_time(choice: Choice, n: Numbers) -> None:
    s = setting(choice)
    too_many = replace(n, users=int(one(evaluate(s, n, with_tiers=False), "max_users_hbm")) + 1)
    got = evaluate(s, too_many)
    timed = ("prefill_s", "ttft_s", "ttft_low_s", "ttft_high_s", "ttft_mean_s", "tpot_s", "e2el_s")
    for name in (*timed, "output_tok_per_s", "mfu", "mbu"):
        assert np.isnan(one(got, name)), name
    assert all(np.isnan(np.asarray(v)).all() for v in got.phases.values())
    for columns in got.tiers.values():
        for name, value in columns.items():
            if (name.endswith("_s") and "bytes_per_s" not in name) or name in ("speedup", "break_even_tokens"):
                assert np.isnan(np.asarray(value)).all(), name
        assert np.isnan(np.asarray(columns["break_even_bytes_per_s"])).all()


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b"])
def test_tensor_parallelism_divides_the_weights(model: str) -> None:
    """All but the norms: 65 vectors of 4,096 (8B), 161 of 8,192 (70B), which every device holds."""
    n = Numbers(1, 100, 0, 2)
    norms = {"llama-3.1-8b": 65 * 4096, "llama-3.1-70b": 161 * 8192}[model] * 2.0
    for tp in (1, 2, 4, 8):
        got = evaluate(setting({"model": model, "devices": tp, "tp": tp}), n, with_tiers=False)
        whole, share = (one(got, name) for name in WHOLE)
        assert share == pytest.approx((whole - norms) / tp + norms, rel=1e-12)


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4, 8]))
def test_expert_parallelism_spreads_the_experts_over_its_group(tp: int, ep: int) -> None:
    """Maverick's routed experts: 24 layers of 128 experts of 3 x 5,120 x 8,192, one byte each."""
    if (8 // tp * tp) % ep:
        return
    experts = 24 * 128 * 3 * 5120 * 8192
    got = evaluate(setting({"tp": tp, "dp": 8 // tp, "ep": ep}), Numbers(1, 100, 0, 2), with_tiers=False)
    alone = evaluate(setting({"tp": tp, "dp": 8 // tp, "ep": 1}), Numbers(1, 100, 0, 2), with_tiers=False)
    group = np.lcm(tp, ep)
    spared = experts / tp - experts / group
    assert one(alone, WHOLE[1]) - one(got, WHOLE[1]) == pytest.approx(spared, rel=1e-9, abs=1.0)
