"""How far llmcap's stated approximations are from a walk through every step, token and user.

The bounds are what a reader may rely on; docs/theory.md repeats them. Only the calibrated set has steps.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import cache

import pytest

from tests.oracle.estimate_oracle import Case, Oracle, mean_ttft
from tests.oracle.test_estimate import LATENT, WINDOWS, random_case


@cache
def cases(n: int = 90) -> list[Case]:
    rng = random.Random(3)
    drawn = [replace(random_case(rng), assumptions="calibrated", weight_dtype=None) for _ in range(n)]
    return [c for c in drawn if Oracle(c).pool > 0]


def stepwise(case: Case) -> tuple[float, float, list[float]]:
    """(documented, step by step, each user's own) prefill seconds."""
    o = Oracle(case)
    new = case.context - case.cached
    walked, done = o.prefill_stepwise(o.fullest, new, case.cached)
    return o.prefill(o.fullest, new, case.cached).serial, walked, done


@pytest.mark.parametrize("model", ["llama-3.1-8b", "llama-3.1-70b", LATENT])
@pytest.mark.parametrize(("context", "cached"), [(700, 0), (50_000, 0), (50_000, 17_123), (16_384, 8_192)])
def test_one_prompt_of_a_full_attention_model_needs_no_approximation(model: str, context: int, cached: int) -> None:
    documented, walked, _ = stepwise(Case(model, context=context, cached=cached))
    assert walked == pytest.approx(documented, rel=1e-9)


def test_prefill_is_near_the_walk() -> None:
    """Packing and windows; with pipeline stages also their fill, which the closed form takes at the mean step."""
    ratios = []
    for case in cases():
        documented, walked, _ = stepwise(case)
        ratios.append(walked / documented)
        assert 0.8 <= ratios[-1] <= (1.02 if case.pp == 1 else 1.4), case
    assert abs(sorted(ratios)[len(ratios) // 2] - 1.0) < 0.01


@pytest.mark.parametrize("model", [WINDOWS, "llama-4-maverick"])
def test_long_prompts_with_windows_are_within_two_per_cent(model: str) -> None:
    """What is bounded rather than counted there: the keys in sight of windowed layers, never too few."""
    for context in (20_000, 60_000, 200_000):
        documented, walked, _ = stepwise(Case(model, context=context))
        assert 0.98 * documented <= walked <= documented * (1 + 1e-12)


def test_mean_ttft_is_within_two_fifths_of_user_by_user() -> None:
    """Worst for a few prompts in a few steps: those that straddle two finish with the later one."""
    checked = 0
    for case in cases():
        if case.dp > 1:
            continue
        o = Oracle(case)
        documented, walked, done = stepwise(case)
        share = sum(done) / len(done) / walked
        assert 0.7 <= share / (mean_ttft(o, case.context - case.cached, documented) / documented) <= 1.4, case
        checked += case.users > 1
    assert checked >= 10


def test_decode_at_the_mean_position_equals_the_mean_over_positions() -> None:
    """Attention time is all but linear in the tokens attended to."""
    for case in cases()[:40]:
        o = Oracle(replace(case, output=min(case.output, 200)))
        if o.case.output > 1:
            mean = o.seconds(o.decode(o.fullest, case.context, o.case.output))
            assert o.decode_stepwise(o.fullest, case.context, o.case.output) == pytest.approx(mean, rel=1e-4), case
