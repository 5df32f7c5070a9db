"""What must hold between loading, computing, overlapping and splitting."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llmcap.analyses.evaluate import Evaluator
from llmcap.engine.transfer import best_split
from tests.properties.settings_under_test import Numbers, choices, evaluate, numbers, one, rows, setting, tier

Choice = dict[str, Any]
EPS = 1 + 1e-9


@given(choices, numbers(longest=300_000))
def test_order_of_the_ways_to_a_first_token(choice: Choice, n: Numbers) -> None:
    """hybrid <= min(reload, recompute); the longer of load and rest <= overlap <= their sum."""
    got = evaluate(setting(choice), n, with_break_even_tokens=False)
    if not one(got, "fits"):
        return
    for name in ("dram", "nvme"):
        reload, ttft, hybrid, overlap, recompute = (
            tier(got, name, c) for c in ("reload_s", "ttft_reload_s", "ttft_hybrid_s", "ttft_overlap_s", "recompute_s")
        )
        rest = ttft - reload
        assert 0.0 < hybrid <= min(ttft, recompute) * EPS
        assert max(reload, rest) <= overlap * EPS
        assert overlap <= ttft * EPS
        assert tier(got, name, "speedup") == pytest.approx(recompute / ttft, rel=1e-12)
        assert bool(tier(got, name, "wins")) == (ttft < recompute)
    if n.cached == 0:
        assert recompute == pytest.approx(one(got, "ttft_s"), rel=1e-12)
        assert rest == pytest.approx(0.0, abs=1e-12)
    else:
        assert rest == pytest.approx(one(got, "ttft_s"), rel=1e-9, abs=1e-12)


@given(choices, numbers(longest=300_000))
def test_break_even_bandwidth_is_where_the_winner_flips(choice: Choice, n: Numbers) -> None:
    """At this rate, without fixed costs, loading takes just as long as the compute it saves."""
    s = setting(choice)
    e = Evaluator.of(s)
    got = e.evaluate(n.users, n.context, n.cached, n.output, with_break_even_tokens=False)
    if not one(got, "fits"):
        return
    edge = tier(got, "nvme", "break_even_bytes_per_s")
    if np.isnan(edge):
        return
    rates = next(r for r in e.tiers.rates if r.name == "nvme")
    prefix = n.cached or n.context
    rest = 0.0 if n.cached == 0 else one(got, "ttft_s")
    recompute = tier(got, "nvme", "recompute_s")
    u, p = rows([n.users]), rows([prefix])
    for factor, wins in ((1.001, True), (0.999, False)):
        path = replace(rates, shared=edge * factor, replica=np.inf, fixed=0.0)
        assert bool(e.tiers.evaluate(path, u, p, recompute, rest)["wins"]) is wins


@given(
    st.integers(1, 100_000), st.floats(1e-6, 1e-3), st.floats(1e-6, 1e-3)
)  # fmt: skip
def test_best_split_at_steady_rates_is_the_harmonic_sum(prefix: int, compute: float, load: float) -> None:
    """t = 1 / (1/t_compute + 1/t_load), up to the one token that cannot be cut."""
    p = rows([prefix])
    got = float(best_split(p, lambda x: compute * x, lambda x: load * (p - x))[0])
    exact = 1.0 / (1.0 / (compute * prefix) + 1.0 / (load * prefix))
    assert exact * (1 - 1e-9) <= got <= exact + max(compute, load)


@given(
    st.integers(0, 300), st.floats(0.0, 2.0), st.floats(0.0, 0.05), st.integers(1, 64), st.floats(0.0, 50.0),
    st.floats(0.01, 2.0), st.floats(0.0, 30.0),
)  # fmt: skip
def test_best_split_finds_the_best_whole_split(
    prefix: int, linear: float, square: float, chunk: int, step: float, load: float, fixed: float
) -> None:
    """Against every x, for compute that grows with the square and jumps at each chunk."""

    def compute(x: Any) -> Any:
        return linear * x + square * x * x + step * np.ceil(x / chunk)

    every = np.arange(prefix + 1, dtype=np.float64)
    best = np.maximum(compute(every), fixed + load * (prefix - every)).min()
    p = rows([prefix])
    assert float(best_split(p, compute, lambda x: fixed + load * (p - x))[0]) == pytest.approx(best, rel=1e-12)


@settings(max_examples=30)
@given(choices, numbers(longest=300_000))
def test_from_the_break_even_context_on_reload_wins(choice: Choice, n: Numbers) -> None:
    s = setting(choice)
    e = Evaluator.of(s)
    got = e.evaluate(n.users, n.context, n.cached, n.output)
    if not one(got, "fits"):
        return
    new = n.context - n.cached if n.cached else 0
    for name in ("dram", "nvme"):
        edge = tier(got, name, "break_even_tokens")
        if np.isnan(edge):
            continue
        prefixes = [int(edge), int(edge) + 1, int(edge * 1.5) + 1, int(edge * 3) + 7]
        if edge > 1:
            prefixes.append(int(edge) - 1)
        p = rows(prefixes)
        if new:
            then = e.evaluate(n.users, p + new, p, 1, with_break_even_tokens=False)
        else:
            then = e.evaluate(n.users, p, 0, 1, with_break_even_tokens=False)
        fits = np.broadcast_to(then.results["fits"], p.shape)
        wins = np.broadcast_to(then.tiers[name]["wins"], p.shape)
        assert wins[:4][fits[:4]].all()
        if edge > 1 and fits[4]:
            assert not wins[4]


@given(numbers(longest=300_000), st.integers(2, 50))
def test_users_who_reload_together_share_the_path(n: Numbers, times: int) -> None:
    s = setting({})
    alone = evaluate(s, replace(n, users=1), with_break_even_tokens=False)
    crowd = evaluate(s, replace(n, users=times), with_break_even_tokens=False)
    if one(crowd, "fits"):
        fixed = next(r.fixed for r in Evaluator.of(s).tiers.rates if r.name == "nvme")
        moving = tier(alone, "nvme", "reload_s") - fixed
        assert tier(crowd, "nvme", "reload_s") == pytest.approx(fixed + times * moving, rel=1e-9)
