"""Ring attention by hand, and against the figures of its paper."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import llmcap
from llmcap.engine.collectives import CollectiveParams, Fabric, all_reduce
from llmcap.engine.ring import RingMessages, ring

LINK = Fabric(100e9)


def params(**changes: float | bool) -> CollectiveParams:
    given = {"alpha": 4e-6, "alpha_log2": 2e-6, "beta": 0.5, "low": 0.8, "high": 1.4, "two_shot": 3.0}
    return CollectiveParams(**{**given, **changes})  # type: ignore[arg-type]


def visible(messages: RingMessages, attention: float, ranks: int = 4, **how: Any) -> float:
    return float(np.asarray(ring(messages, attention, ranks, 0.0, fabric=LINK, params=params(**how)).network))


def test_one_rank_sends_nothing() -> None:
    assert ring(RingMessages(1e9, 1e9, 1e9), 0.0, 1, 1.0, fabric=LINK, params=params()).serial == 0.0


def test_hops_hide_behind_attention() -> None:
    # 10 MB a hop at 50 GB/s take 200 us. A quarter of 1 ms of attention is 250 us: nothing shows; of 400 us it is
    # 100 us: three hops show 100 us each, less than an exchange of 40 MB (3/4 x 800 us) would.
    messages = RingMessages(10e6, 20e6, 40e6)
    assert visible(messages, 1e-3) == 0.0
    assert visible(messages, 400e-6) == pytest.approx(300e-6)


def test_queries_travel_where_they_are_smaller() -> None:
    # Keys: 3 x (200 - 25) = 525 us. Queries of 1 MB (20 us) hide; 4 MB of results show 3/4 x 80 = 60 us.
    assert visible(RingMessages(10e6, 1e6, 4e6), 100e-6) == pytest.approx(60e-6)


def test_each_ring_pays_its_latencies() -> None:
    # Seven rings of three hops of 4 us.
    cost = ring(RingMessages(0.0, 0.0, 0.0), 0.0, 4, 7.0, fabric=LINK, params=params())
    assert float(np.asarray(cost.overhead)) == pytest.approx(7 * 3 * 4e-6)


def test_the_bare_ring_counts_all_bytes_of_the_cheaper_way() -> None:
    # 3 x 10 MB over 100 GB/s; or 3 x 1 MB and 3/4 of 4 MB.
    assert float(np.asarray(ring(RingMessages(10e6, 20e6, 40e6), 1.0, 4, 1.0, fabric=LINK, params=None).network)) == (
        pytest.approx(300e-6)
    )
    assert float(np.asarray(ring(RingMessages(10e6, 1e6, 4e6), 1.0, 4, 1.0, fabric=LINK, params=None).network)) == (
        pytest.approx(60e-6)
    )


@pytest.mark.parametrize(
    ("new", "attention", "keys_travel"),
    # Table 5 of arXiv:2411.01783: 128,000 tokens in sight, one hop's attention 414 and 1,608 us; at 2.5 % new tokens
    # passing the queries was faster, at 10 % passing keys and values.
    [(3_200, 414e-6, False), (12_800, 1608e-6, True)],
)
def test_what_travels_is_what_was_faster(new: int, attention: float, keys_travel: bool) -> None:
    # A GPU holds one KV head and 16 query heads of 128: 512 B of keys and values, 4,096 B of queries a token in bf16.
    own = new / 4
    messages = RingMessages(32_000 * 512.0, own * 4096.0, 4 * own * 16 * 260.0)
    link, free = Fabric(26.1e9), CollectiveParams(0.0, 0.0, 1.0, 1.0, 1.0)
    cost = ring(messages, 4 * attention, 4, 1.0, fabric=link, params=free)
    alone = max(messages.keys / 26.1e9 - attention, 0.0) * 3
    assert (float(np.asarray(cost.network)) == pytest.approx(alone, abs=1e-12)) == keys_travel


def test_a_hop_of_the_paper_over_400_gbit() -> None:
    # 16.4 MB took 627 and 631 us over one 400 Gbit/s card (table 5); priced with the fit of H100 gathers.
    from llmcap.specs.calibration import CalibrationDocument
    from llmcap.specs.registry import load_as

    fit = load_as(CalibrationDocument, "calibration", "h100").document.collectives.all_gather
    p = CollectiveParams(fit.alpha, fit.alpha_log2, fit.beta, 1.0, 1.0)
    cost = ring(RingMessages(16.384e6, 1e12, 1e12), 0.0, 2, 1.0, fabric=Fabric(50e9), params=p)
    assert float(np.asarray(cost.network + cost.overhead)) == pytest.approx(629e-6, rel=0.06)


def test_sums_between_servers_go_in_levels() -> None:
    # 16 ranks on 2 servers, 160 MB: inside 3 x (4 + 2 x 3) us + 7/4 x 160 MB / 450 GB/s = 30 + 622.2 us at half of
    # 900 GB/s; between the servers an eighth, 20 MB, at 50 GB/s: 3 x 6 + 400 us or, one-shot, 6 + 400 us.
    cost = all_reduce(160e6, 16, 1.0, fabric=LINK, params=params(), inner=Fabric(900e9), servers=2)
    assert float(np.asarray(cost.network)) == pytest.approx((30 + 622.2222 + 406) * 1e-6, rel=1e-6)
    # A short one is faster all at once: 4 + 2 x 4 us + 15 x 1 kB / 50 GB/s.
    cost = all_reduce(1e3, 16, 1.0, fabric=LINK, params=params(), inner=Fabric(900e9), servers=2)
    assert float(np.asarray(cost.network)) == pytest.approx(12.3e-6)
    # The bound: 9/8 x 160 MB / 900 GB/s = 200 us inside; 20 MB / 100 GB/s = 200 us between.
    cost = all_reduce(320e6, 16, 1.0, fabric=LINK, params=None, inner=Fabric(900e9), servers=2)
    assert float(np.asarray(cost.network)) == pytest.approx(400e-6)


def test_context_parallelism_inside_a_server_and_across() -> None:
    options = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "context": "128k", "output_tokens": 2}
    whole = {"chunk_tokens": 128_000}
    inside = llmcap.estimate(devices=8, tp=4, cp=2, **options, **whole)
    across = llmcap.estimate(devices=16, tp=8, cp=2, **options, **whole)
    assert inside.results["prefill_s"] > across.results["prefill_s"]
    # Chunks of 8,192 on 16 ranks leave 512 queries a rank: the hops no longer hide, and the prompt takes longer.
    many = {"devices": 128, "tp": 8, "cp": 16}
    chunks, one = (llmcap.estimate(**many, **options, **extra).results["prefill_s"] for extra in ({}, whole))
    assert chunks > 1.5 * one
