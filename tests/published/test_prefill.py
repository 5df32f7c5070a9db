"""Calibrated prefill against measured runs, and against bands that were set before the model was written."""

from __future__ import annotations

import pytest

import llmcap

#: Llama-3.1-8B in bf16 on one H100, vLLM, one request, prefix cache off: tokens -> time to first token [s]. Read off
#: figure 1 of the vLLM KV offloading connector post (2026-01), +-15 ms.
VLLM_8B = {
    1_000: 0.045,
    10_000: 0.265,
    20_000: 0.636,
    30_000: 1.100,
    40_000: 1.654,
    50_000: 2.296,
    60_000: 3.019,
    70_000: 3.849,
    80_000: 4.792,
    90_000: 5.744,
    100_000: 6.833,
}
READING = 0.015


@pytest.mark.parametrize(("tokens", "seconds"), list(VLLM_8B.items()))
def test_llama_8b_on_one_h100_lies_in_the_band(tokens: int, seconds: float) -> None:
    got = llmcap.estimate(
        model="llama-3.1-8b", hardware="dgx-h100", devices=1, weight_dtype="bf16", kv_dtype="bf16", context=tokens,
        output_tokens=1,
    ).results  # fmt: skip
    assert got["ttft_low_s"] <= seconds + READING
    assert seconds - READING <= got["ttft_high_s"]


def test_long_prompts_of_llama_8b_are_within_a_quarter() -> None:
    for tokens, seconds in VLLM_8B.items():
        if tokens >= 30_000:
            got = llmcap.estimate(
                model="llama-3.1-8b", hardware="dgx-h100", devices=1, context=tokens, output_tokens=1
            ).results
            assert got["ttft_s"] == pytest.approx(seconds, rel=0.25), tokens


def test_scout_ingests_five_million_tokens_within_the_band() -> None:
    """A third-party run: 4.91M tokens in 957 s, vLLM 0.12, TP8 on 8 H200; its chunk size is not known."""
    got = llmcap.estimate(
        model="llama-4-scout", hardware="dgx-h200", tp=8, weight_dtype="bf16", kv_dtype="bf16", context=4_910_000,
        output_tokens=1,
    ).results  # fmt: skip
    assert got["ttft_low_s"] <= 957.0 <= got["ttft_high_s"]


@pytest.mark.parametrize(
    ("context", "users", "low", "high"),
    [
        ("1k", 1, 0.015, 0.070),
        ("10k", 1, 0.060, 0.170),
        ("100k", 1, 0.6, 1.6),
        ("1M", 1, 13.0, 38.0),
        ("250k", 10, 18.0, 48.0),
    ],
)
def test_maverick_lies_in_the_bands_of_the_feasibility_study(context: str, users: int, low: float, high: float) -> None:
    """From a prototype with other functional forms on the same kernel measurements, not from a measured run."""
    got = llmcap.estimate(context=context, users=users).results
    assert low <= got["prefill_s"] <= high
    assert got["ttft_low_s"] < got["ttft_s"] < got["ttft_high_s"]


def test_the_physical_limit_lies_below_every_band() -> None:
    for context in ("1k", "10k", "100k", "1M"):
        ideal = llmcap.estimate(context=context, assumptions="ideal").results["prefill_s"]
        assert ideal < llmcap.estimate(context=context).results["ttft_low_s"]
    assert 4.0 <= ideal <= 10.0


def test_ten_users_one_after_another() -> None:
    """First come, first served: the mean first token comes after about (10 + 1) / 20 of the last one's time."""
    got = llmcap.estimate(context="250k", users=10).results
    assert got["ttft_mean_s"] == pytest.approx(got["ttft_s"] * 11 / 20, rel=1e-9)
    assert 14.0 <= got["ttft_mean_s"] <= 26.0
