"""Prefill at 100 % of the peak: an arithmetic that several public tools do, and some get wrong by a factor of two.

Llama 3.1 70B in bf16, TP8 on 8 H200 (989 TFLOP/s each, dense). Causal attention, logits once per prompt: the figures of
vllm-sr-sim and of the count below. llm-analysis and GenZ count masked pairs too and print 0.03 s and 394 s at the ends.
"""

from __future__ import annotations

import pytest

import llmcap

SECONDS = {1024: 0.0179, 8 * 1024: 0.153, 32 * 1024: 0.745, 128 * 1024: 5.11, 1024 * 1024: 200.3}

#: 80 layers of q, k, v 8,192 x 10,240, o 8,192 x 8,192 and three matrices of 8,192 x 28,672.
MATRICES = 80 * (8192 * 10240 + 8192 * 8192 + 3 * 8192 * 28672)


def by_hand(tokens: int, peak: float) -> float:
    flop = 2 * MATRICES * tokens + 2 * 8192 * 128256 + 80 * 4 * 64 * 128 * tokens * (tokens + 1) / 2
    return flop / (8 * peak)


@pytest.mark.parametrize(("tokens", "seconds"), list(SECONDS.items()))
def test_llama_70b_prefill_at_the_peak(tokens: int, seconds: float) -> None:
    got = llmcap.estimate(
        model="llama-3.1-70b", hardware="dgx-h200", tp=8, context=tokens, output_tokens=1, assumptions="ideal"
    )
    assert by_hand(tokens, 989e12) == pytest.approx(seconds, rel=5e-3)
    assert got.results["prefill_s"] == pytest.approx(seconds, rel=5e-3)
    assert got.results["prefill_s"] == pytest.approx(by_hand(tokens, 989.4e12), rel=1e-9)


def test_maverick_at_the_physical_limit() -> None:
    """1M tokens in fp8, attention too: 3.02e16 + 4 x 40 x 128 x (12 x 5e11 + 36 x 4.1e9) FLOP at 36 PFLOP/s: 4.3 s."""
    got = llmcap.estimate(context="1M", assumptions="ideal").results
    flop = 2 * 15.115e9 * 1e6 + 20480 * (12 * 500_000_500_000 + 36 * 4_094_306_592)
    assert flop / 36e15 == pytest.approx(4.34, abs=0.02)
    # The router stays in bf16, and every device computes it whole: 2 x 24 x 5,120 x 128 x 1e6 FLOP at 2.25 PFLOP/s.
    router = 2 * 24 * 5120 * 128 * 1e6
    assert got["prefill_s"] == pytest.approx((flop - router) / 36e15 + router / 2.25e15, rel=1e-4)
    assert got["prefill_s"] == pytest.approx(4.3, abs=0.1)


def test_a_forgotten_mask_would_double_attention() -> None:
    ideal = by_hand(1024 * 1024, 989e12)
    unmasked = (2 * MATRICES * 2**20 + 80 * 4 * 64 * 128 * 2**40) / (8 * 989e12)
    assert unmasked == pytest.approx(393.6, rel=0.03)  # as printed by tools that forget the mask
    assert 1.9 < unmasked / ideal < 2.0
