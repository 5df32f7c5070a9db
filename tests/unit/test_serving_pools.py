"""Speculation, and prefill on devices of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import llmcap
from llmcap.analyses.options import options_from
from llmcap.analyses.serving.disaggregation import SplitModel
from llmcap.analyses.serving.load import LoadModel, under_load
from llmcap.analyses.setting import resolve

BASE: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 2, "tp": 1}


def load(**options: Any) -> LoadModel:
    asked = options_from({**BASE, "arrivals": "closed"} | options, under_load=True)
    return LoadModel.of(under_load(resolve(asked.together()), asked))


def served(**options: Any) -> dict[str, Any]:
    return llmcap.estimate(**{**BASE, "context": 1000, "output_tokens": 200, **options}).serving


def test_a_draft_that_is_always_accepted_divides_a_step_by_its_tokens() -> None:
    model = load(draft_tokens=3, acceptance=1.0).model
    assert model.draft is not None
    never = load(draft_tokens=3, acceptance=0.0).model
    assert float(model.decode(4.0, 1000.0, 200.0)) == pytest.approx(float(never.decode(4.0, 1000.0, 200.0)) / 4.0)
    assert float(never.decode(4.0, 1000.0, 200.0)) > float(load().model.decode(4.0, 1000.0, 200.0))


def test_a_verifying_step_reads_each_cache_once() -> None:
    steps = load().model.steps
    op = steps.setting.operators.attention[0]
    one, four = (steps.decode_attention(op, 8.0, 4000.0, 100.0, queries=q) for q in (1.0, 4.0))
    assert float(four.byte_s) == float(one.byte_s)
    assert float(four.flop_s) == pytest.approx(4.0 * float(one.flop_s))


def test_deepseeks_own_layer_speeds_decode_up_as_its_report_says() -> None:
    # DeepSeek-V3 technical report, 5.4.3: 85 to 90 % acceptance of the second token, 1.8 times the tokens a second.
    options: dict[str, Any] = {"model": "deepseek-v3", "hardware": "dgx-h200", "devices": 8, "tp": 8, "context": 1000,
               "output_tokens": 500, "users": 1, "arrivals": "closed"}  # fmt: skip
    plain = llmcap.estimate(**options).serving
    drafted = llmcap.estimate(**options, draft_tokens=1, acceptance=0.875).serving
    assert plain["tpot_s"] / drafted["tpot_s"] == pytest.approx(1.8, rel=0.12)


def split(**options: Any) -> SplitModel:
    model = load(**{"devices": 4, "prefill_devices": 1} | options).split
    assert model is not None
    return model


def test_a_cache_moves_over_the_links_of_the_narrower_replica() -> None:
    # Llama 3.1 8B: 32 layers x 2 x 8 heads x 128 x 2 B = 131,072 B a token; within a server each device sends 450 GB/s,
    # of which the peer path reaches its share.
    model = split()
    engine = model.prefill.setting.engine.reloads.peer
    assert engine.link_share is not None
    assert model.link == pytest.approx(engine.link_share * 450e9)
    found = model.at_rate(0.1, 16_000, 0, 100)
    moved = 16_000 * 131_072
    assert float(found["transfer_s"]) == pytest.approx(engine.fixed + moved / model.link)  # type: ignore[arg-type]


def test_pools_on_several_servers_meet_over_the_network_cards() -> None:
    near, far = split(), split(devices=16, prefill_devices=8, tp=8)
    cards = far.prefill.setting.machine.nic_bandwidth
    assert cards is not None
    assert far.link == pytest.approx(far.prefill.setting.engine.reloads.peer.link_share * 8 * cards)  # type: ignore[operator]
    assert near.prefill.setting.parallelism.dp == 1


def test_each_pool_sustains_what_its_replicas_do() -> None:
    one, three = split(prefill_devices=1), split(prefill_devices=3)
    n, k, o = np.array(4000.0), np.array(0.0), np.array(200.0)
    a, b = one.rates(n, k, o), three.rates(n, k, o)
    assert float(b[0]) == pytest.approx(3.0 * float(a[0]))
    assert float(a[1]) == pytest.approx(3.0 * float(b[1]))


def test_a_long_prefill_feeds_its_decode_hardly_at_all() -> None:
    found = served(context="1M", output_tokens=2, devices=8, tp=4, prefill_devices=4, users=3, arrivals="closed")
    assert found["ttft_s"] > 10.0
    assert found["requests_per_s"] * found["e2el_s"] == pytest.approx(3.0)


def test_pools_may_have_degrees_of_their_own() -> None:
    found = served(devices=8, tp=4, prefill_devices=4, prefill_tp=2, users=4, arrivals="closed")
    assert (found["prefill_tp"], found["prefill_dp"], found["decode_tp"], found["decode_dp"]) == (2, 2, 4, 1)
    # The narrower replica bounds the transfer: half the devices, twice the time beyond the fixed cost.
    wide = served(devices=8, tp=4, prefill_devices=4, users=4, arrivals="closed")
    fixed = split().prefill.setting.engine.reloads.peer.fixed
    assert found["transfer_s"] - fixed == pytest.approx(2.0 * (wide["transfer_s"] - fixed))


def test_apart_no_prompt_holds_up_a_decode() -> None:
    together = served(users=16, arrivals="closed", context=4000)
    apart = served(users=16, arrivals="closed", context=4000, prefill_devices=1)
    assert apart["tpot_s"] < together["tpot_s"]
    assert math.isclose(apart["prefill_utilisation"], apart["utilisation"], rel_tol=1e-6) or (
        apart["saturation_limit"] != "prefill devices"
    )
