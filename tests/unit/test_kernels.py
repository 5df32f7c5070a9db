"""Kernel times worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmcap.engine import kernels
from llmcap.engine.cost import Cost, banded
from llmcap.engine.kernels import (
    AttentionParams,
    DecodeAttentionParams,
    DeviceRates,
    ExpertParams,
    GemmParams,
    StreamParams,
    touched_experts,
)

#: A round device: 1 PFLOP/s, 1 TB/s, 100 units.
RATES = DeviceRates(peak=1e15, bandwidth=1e12, compute_units=100)


def total(cost: Cost) -> float:
    return float(np.asarray(cost.serial))


def test_bare_gemm_terms() -> None:
    # 2 x 1000 x 1000 x 500 = 1e9 FLOP at 1e15: 1 us. (4 MB + 1000 x 1 kB) / 1e12 = 5 us.
    cost = kernels.gemm(1000.0, k=1000, n=500, weight_bytes=4e6, bytes_per_row=1000, rates=RATES, params=None)
    assert float(cost.compute) == pytest.approx(1e-6)
    assert float(cost.memory) == pytest.approx(5e-6)
    assert float(cost.overlapped) == pytest.approx(5e-6)
    assert float(cost.overhead) == 0.0


def test_fitted_gemm() -> None:
    # x = 16384 x 100 / (100 x 128^2) = 1 wave of tiles; with x0 = 1 the wave term doubles compute.
    # F = 2 x 16384 x 1e5 x 100 = 3.2768e11: 327.68 us at peak, / 0.5, x 2 = 1310.72 us.
    # Weights 491.52 MB / (0.5 x 1e12) = 983.04 us: hypot(1310.72, 983.04) = 1638.4 us (a 3-4-5 triangle).
    # Rows 16384 x 1000 B / (0.8 x 1e12) = 20.48 us; launch 10 us. In all 1668.88 us.
    params = GemmParams(t0=10e-6, e=0.5, x0=1.0, w=0.5, a=0.8, low=0.9, high=1.2)
    cost = kernels.gemm(16384.0, k=1e5, n=100, weight_bytes=491.52e6, bytes_per_row=1000, rates=RATES, params=params)
    assert total(cost) == pytest.approx(1668.88e-6, rel=1e-12)
    # The overlap is shared in proportion to the squares: 1638.4 x 16/25 and 9/25.
    assert float(cost.compute) == pytest.approx(1638.4e-6 * 0.64, rel=1e-12)
    assert float(cost.memory) == pytest.approx(1638.4e-6 * 0.36 + 20.48e-6, rel=1e-12)
    assert float(cost.low) == pytest.approx(0.9 * total(cost))
    assert float(cost.high) == pytest.approx(1.2 * total(cost))


def test_prefill_attention_adds_its_tail() -> None:
    # Tail: 0.5 x (12,800 / 128) rows x 100 units x tile 2 x 256 x 128^2 = 0.5 x 100 x 100 x 8,388,608 = 4.194e10 FLOP.
    # (1e12 + 4.194304e10) / (0.5 x 1e15) = 2083.886 us; 1 GB / (0.5 x 1e12) = 2000 us; 3 launches of 10 us.
    params = AttentionParams(t0=10e-6, e=0.5, tail=0.5, w=0.5, low=0.9, high=1.1)
    cost = kernels.prefill_attention(1e12, 12_800.0, 1e9, 3.0, dims=256.0, rates=RATES, params=params)
    assert total(cost) == pytest.approx(2083.886080e-6 + 2000e-6 + 30e-6, rel=1e-9)


def test_faster_units_work_on_more_queries_at_once() -> None:
    # H100: 989 TFLOP/s over 132 units, 7.492 each, one tile of 128 queries. B200: 2250 over 148, 15.20 each: 2.029.
    assert kernels.query_tiles(989e12, 132) == 1.0
    assert kernels.query_tiles(2250e12, 148) == pytest.approx(15.2027 / 7.49242, rel=1e-5)
    assert kernels.query_tiles(312e12, 108) == 1.0, "never less than one tile"
    # Two tiles double the tail of the case above: 2 x 4.194304e10 FLOP.
    params = AttentionParams(t0=10e-6, e=0.5, tail=0.5, w=0.5, low=0.9, high=1.1)
    rates = DeviceRates(peak=1e15, bandwidth=1e12, compute_units=100, query_tiles=2.0)
    cost = kernels.prefill_attention(1e12, 12_800.0, 1e9, 3.0, dims=256.0, rates=rates, params=params)
    assert total(cost) == pytest.approx((1e12 + 8.388608e10) / 0.5e15 + 2000e-6 + 30e-6, rel=1e-9)


def test_prefill_attention_is_linear_in_work() -> None:
    params = AttentionParams(t0=10e-6, e=0.5, tail=0.5, w=0.5, low=0.9, high=1.1)
    one = kernels.prefill_attention(1e12, 500.0, 1e8, 1.0, dims=256.0, rates=RATES, params=params)
    two = kernels.prefill_attention(3e12, 700.0, 2e8, 1.0, dims=256.0, rates=RATES, params=params)
    both = kernels.prefill_attention(4e12, 1200.0, 3e8, 2.0, dims=256.0, rates=RATES, params=params)
    assert total(one + two) == pytest.approx(total(both), rel=1e-12)


def test_decode_attention() -> None:
    # 1.2 GB / (0.8 x 1e12) = 1500 us beside 1e12 / (0.5 x 1e15) = 2000 us: 2500 us together, and 7 us of launch.
    params = DecodeAttentionParams(t0=7e-6, w=0.8, e=0.5, low=0.8, high=1.3)
    cost = kernels.decode_attention(1e12, 1.2e9, rates=RATES, params=params)
    assert total(cost) == pytest.approx(2507e-6, rel=1e-12)
    bare = kernels.decode_attention(1e12, 1.2e9, rates=RATES, params=None)
    assert (float(bare.compute), float(bare.memory)) == pytest.approx((1e-3, 1.2e-3))


def test_touched_experts_by_hand() -> None:
    # Two tokens, one of four experts each: 4 (1 - (3/4)^2) = 1.75.
    assert float(touched_experts(2.0, 4, 1)) == pytest.approx(1.75)
    assert float(touched_experts(1.0, 128, 1)) == pytest.approx(1.0)
    # A token meets k different ones, however many there are.
    assert float(touched_experts(1.0, 256, 8)) == pytest.approx(8.0)
    # 128 (1 - (127/128)^128) = 81.1.
    assert float(touched_experts(128.0, 128, 1)) == pytest.approx(128 * (1 - (127 / 128) ** 128), rel=1e-12)
    # All of them are always met.
    assert np.all(np.asarray(touched_experts(np.array([1.0, 5.0]), 8, 8)) == 8.0)


def test_touched_experts_are_the_mean_over_uniform_draws() -> None:
    """Exact enumeration: 3 tokens over 3 experts, 27 equally likely draws."""
    draws = [(a, b, c) for a in range(3) for b in range(3) for c in range(3)]
    mean = sum(len(set(d)) for d in draws) / len(draws)
    assert float(touched_experts(3.0, 3, 1)) == pytest.approx(mean, rel=1e-12)


def test_experts() -> None:
    # 1000 tokens on 4 experts: touched 4 (1 - .75^1000) = 4; each has 250. Half of the work is here.
    # F = 1000 x 2e9 x 0.5 = 1e12: 1000 us at peak, / 0.5 = 2000 us, x (1 + 50/250) = 2400 us.
    # Weights 4 x 1.8 GB x 0.5 = 3.6 GB / (0.5 x 1e12) = 7200 us; hypot(2400, 7200) = 2400 sqrt(10).
    # Rows 1000 x 1 MB / (0.5 x 1e12) = 2000 us; t0 45 us.
    params = ExpertParams(t0=45e-6, e=0.5, r0=50.0, w=0.5, a=0.5, low=0.8, high=1.4)
    cost = kernels.experts(
        1000.0, count=4, active=1.0, flop_per_token=2e9, bytes_per_expert=1.8e9, share=0.5, bytes_per_row=1e6,
        rates=RATES, params=params,
    )  # fmt: skip
    assert total(cost) == pytest.approx(2400e-6 * math.sqrt(10) + 2000e-6 + 45e-6, rel=1e-9)


def test_stream() -> None:
    params = StreamParams(t0=2e-6, w=0.5, e=0.1, low=0.5, high=1.8)
    # 300 MB / (0.5 x 1e12) = 600 us beside 8e10 / (0.1 x 1e15) = 800 us: 1000 us; 4 launches.
    assert total(kernels.stream(3e8, 8e10, 4.0, rates=RATES, params=params)) == pytest.approx(1008e-6, rel=1e-12)


def test_nothing_to_do_takes_only_the_launch() -> None:
    params = StreamParams(t0=2e-6, w=0.5, e=0.1, low=0.5, high=1.8)
    assert total(kernels.stream(0.0, 0.0, 1.0, rates=RATES, params=params)) == 2e-6


def test_costs_add_and_multiply_field_by_field() -> None:
    one = banded(0.5, 2.0, compute=1.0, memory=2.0, network=3.0, overhead=4.0, flop_s=0.5, byte_s=0.25)
    three = one + 2.0 * one
    assert three.fields() == pytest.approx((3.0, 6.0, 9.0, 12.0, 15.0, 60.0, 1.5, 0.75))
    assert one.overlapped == 3.0
