"""Collectives worked by hand, 8 ranks at 100 GB/s unless said otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from llmcap.engine.collectives import CollectiveParams, Fabric, all_reduce, exchange, send
from llmcap.specs.calibration import CalibrationDocument
from llmcap.specs.registry import load_as

LINK = Fabric(100e9)


def params(**changes: float | bool) -> CollectiveParams:
    given = {"alpha": 4e-6, "alpha_log2": 2e-6, "beta": 0.5, "low": 0.8, "high": 1.4, "two_shot": 3.0}
    return CollectiveParams(**{**given, **changes})  # type: ignore[arg-type]


def seconds(cost: object) -> float:
    return float(np.asarray(cost.network))  # type: ignore[attr-defined]


def test_one_rank_sends_nothing() -> None:
    for operation in (all_reduce, exchange):
        assert operation(1e9, 1, 1.0, fabric=LINK, params=params()).serial == 0.0


def test_bare_all_reduce_moves_the_less_of_ring_and_switch() -> None:
    # Ring 2 x 7/8 = 1.75; a switch that adds: 1 + 1/8 = 1.125 times 800 MB over 100 GB/s = 9 ms.
    assert seconds(all_reduce(800e6, 8, 1.0, fabric=LINK, params=None)) == pytest.approx(9e-3)
    # Two ranks: each sends its half and gets the other, 1.0 times.
    assert seconds(all_reduce(800e6, 2, 1.0, fabric=LINK, params=None)) == pytest.approx(8e-3)


def test_all_reduce_picks_the_faster_algorithm() -> None:
    # l = 4 + 2 log2(8) = 10 us; rate 50 GB/s.
    # 100 kB: one-shot 10 + 7 x 2 us = 24 us; two-shot 30 + 1.75 x 2 = 33.5 us.
    assert seconds(all_reduce(1e5, 8, 1.0, fabric=LINK, params=params())) == pytest.approx(24e-6)
    # 10 MB: one-shot 10 + 7 x 200 = 1410 us; two-shot 30 + 1.75 x 200 = 380 us.
    assert seconds(all_reduce(1e7, 8, 1.0, fabric=LINK, params=params())) == pytest.approx(380e-6)
    # With reduction in the switch 20 x log2(8) + 1.125 x 200 = 285 us, for more than two ranks.
    switch = params(in_switch=True, switch=20e-6)
    assert seconds(all_reduce(1e7, 8, 1.0, fabric=LINK, params=switch)) == pytest.approx(285e-6)
    # 1 MB: 60 + 22.5 = 82.5 us in the switch; two-shot 30 + 1.75 x 20 = 65 us, the engine's own kernel is faster.
    assert seconds(all_reduce(1e6, 8, 1.0, fabric=LINK, params=switch)) == pytest.approx(65e-6)
    # Two ranks: l = 6 us, one-shot 6 + 200 = 206 us, switch or not.
    assert seconds(all_reduce(1e7, 2, 1.0, fabric=LINK, params=switch)) == pytest.approx(206e-6)


def test_launches_multiply() -> None:
    one = all_reduce(1e7, 8, 1.0, fabric=LINK, params=params())
    many = all_reduce(1e7, 8, 97.0, fabric=LINK, params=params())
    assert seconds(many) == pytest.approx(97 * seconds(one))
    assert float(many.low) == pytest.approx(97 * 0.8 * seconds(one))
    assert float(many.high) == pytest.approx(97 * 1.4 * seconds(one))


def test_exchange_leaves_out_the_own_part() -> None:
    # 7/8 of 80 MB = 70 MB: 0.7 ms bare; 10 us + 1.4 ms at half rate.
    assert seconds(exchange(80e6, 8, 1.0, fabric=LINK, params=None)) == pytest.approx(0.7e-3)
    assert seconds(exchange(80e6, 8, 1.0, fabric=LINK, params=params())) == pytest.approx(1.41e-3)


def test_send() -> None:
    assert seconds(send(5e6, 1.0, fabric=LINK, params=None)) == pytest.approx(50e-6)
    assert seconds(send(5e6, 1.0, fabric=LINK, params=params())) == pytest.approx(4e-6 + 100e-6)


@pytest.mark.parametrize(
    ("mebibytes", "measured", "tolerance"),
    # vLLM 0.24 and TensorRT-LLM 1.3, graph mode; at 16 MiB the engines' own kernels take 58 to 85 us.
    [(1, 17.5e-6, 0.15), (16, 85e-6, 0.30), (64, 0.28e-3, 0.20), (128, 0.4e-3, 0.15), (1024, 2.6e-3, 0.10)],
)
def test_b200_all_reduce_against_measured_times(mebibytes: float, measured: float, tolerance: float) -> None:
    """8 x B200, bf16, measured rows of NVIDIA AIConfigurator's package data (Apache-2.0)."""
    fit = load_as(CalibrationDocument, "calibration", "b200").document.collectives.all_reduce
    p = CollectiveParams(
        fit.alpha, fit.alpha_log2, fit.beta, fit.low, fit.high, two_shot=fit.two_shot, in_switch=fit.in_switch,
        switch=fit.switch,
    )  # fmt: skip
    got = seconds(all_reduce(mebibytes * 2**20, 8, 1.0, fabric=Fabric(900e9), params=p))
    assert got == pytest.approx(measured, rel=tolerance)
