"""Steps worked by hand: Llama 3.1 8B on one H100, where every count is a round number of the config.

Hidden 4,096; 32 layers; 32 query and 8 KV heads of 128; width 14,336; vocabulary 128,256; bf16. H100: 989.4 TFLOP/s,
3.35 TB/s.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from llmcap.analyses.options import options_from
from llmcap.analyses.setting import Setting, resolve
from llmcap.analyses.steps import StepModel

#: qkv 4,096 x 6,144, o 4,096 x 4,096, up and gate 4,096 x 28,672, down 14,336 x 4,096; 32 layers.
MATRICES = 32 * (4096 * 6144 + 4096 * 4096 + 4096 * 28672 + 14336 * 4096)
HEAD = 4096 * 128256


def model(assumptions: str = "ideal", **options: object) -> StepModel:
    given = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 1} | options
    return StepModel(resolve(options_from({**given, "assumptions": assumptions})))


def setting_of(m: StepModel) -> Setting:
    return m.setting


def test_matrix_count() -> None:
    assert MATRICES == 6_979_321_856


def test_ideal_prefill_flop() -> None:
    s = 10_000
    cost = model().prefill(1.0, float(s), 0.0)
    # 2 FLOP per weight and token, logits once, 4 x 32 x 128 per attended pair and layer.
    flop = 2 * MATRICES * s + 2 * HEAD + 32 * 4 * 32 * 128 * s * (s + 1) / 2
    assert float(cost.flop_s) * 989.4e12 == pytest.approx(flop, rel=1e-12)
    assert float(model().seconds(cost)) == pytest.approx(flop / 989.4e12, rel=1e-12)


def test_a_cached_prefix_spares_matrices_but_is_attended_to() -> None:
    cost = model().prefill(1.0, 1000.0, 9000.0)
    pairs = 1000 * 9000 + 1000 * 1001 / 2
    flop = 2 * MATRICES * 1000 + 2 * HEAD + 32 * 4 * 32 * 128 * pairs
    assert float(cost.flop_s) * 989.4e12 == pytest.approx(flop, rel=1e-12)


def test_users_add_up() -> None:
    one, five = (float(model().prefill(u, 1000.0, 0.0).flop_s) for u in (1.0, 5.0))
    assert five == pytest.approx(5 * one, rel=1e-12)


def test_ideal_decode_reads_weights_and_cache_once() -> None:
    # One user at 8,000 tokens, 2 output tokens: one step that attends to 8,001 of 2 x 8 x 128 x 2 B in each layer.
    cost = model().decode(1.0, 8000.0, 2.0)
    cache = 32 * 8001 * 2 * 8 * 128 * 2
    weights = 2 * (MATRICES + HEAD)
    byte = float(cost.byte_s) * 3.35e12
    # What is left are activations: well under 1 % of the weights.
    assert weights + cache < byte < (weights + cache) * 1.01
    # Known bound: 15 GB of weights over 3.35 TB/s, 4.5 ms and the cache's 0.3.
    assert float(model().seconds(cost)) == pytest.approx((weights + cache) / 3.35e12, rel=0.01)


def test_decode_averages_over_the_output() -> None:
    m = model("calibrated")
    mean = float(np.asarray(m.decode(4.0, 1000.0, 101.0).byte_s))
    steps = [float(np.asarray(m.decode(4.0, 1000.0 + i, 2.0).byte_s)) for i in range(100)]
    assert mean == pytest.approx(sum(steps) / 100, rel=1e-12)


def test_reach_of_steps() -> None:
    m = model("calibrated", chunk_tokens=1000)
    # 2,500 new tokens after 400: steps end at 1,400, 2,400 and 2,900.
    assert m.reach_of_steps(2500, 400, np.inf).item() == 6700.0
    assert m.reach_of_steps(2000, 400, np.inf).item() == 3800.0
    assert m.reach_of_steps(0, 400, np.inf).item() == 0.0
    # A reach of 1,500 bounds each step: at most 3 x 1,500.
    assert m.reach_of_steps(2500, 400, 1500.0).item() == 4500.0
    # Without steps the one pass ends at 2,900.
    assert model().reach_of_steps(2500, 400, np.inf).item() == 2900.0


def test_prefill_is_the_sum_of_its_steps() -> None:
    m = model("calibrated", chunk_tokens=1000)
    whole = m.prefill(1.0, 2500.0, 0.0)
    # The same three steps alone; each alone also computes the logits of a prompt, the whole does it once.
    parts = [m.prefill(1.0, n, p) for n, p in ((1000.0, 0.0), (1000.0, 1000.0), (500.0, 2000.0))]
    head = float(np.asarray(m.logits(1.0).serial))
    assert float(whole.serial) == pytest.approx(sum(float(p.serial) for p in parts) - 2 * head, rel=1e-12)


def test_step_overhead_is_the_engines() -> None:
    m = model("calibrated")
    o = setting_of(m).engine.prefill
    cost = m.overhead("prefill")
    assert cost.serial == pytest.approx(o.step + 32 * o.layer)
    assert (cost.low, cost.high) == pytest.approx((cost.serial * o.low, cost.serial * o.high))
    assert model().overhead("prefill").serial == 0.0


def test_pipeline_fill() -> None:
    """n equal steps through p stages take n + p - 1 stage times: at 4 stages and 3 steps half the serial time."""
    eight = {"model": "llama-3.1-70b", "devices": 4, "chunk_tokens": 1000}
    deep, flat = model("calibrated", **eight, tp=1, pp=4), model("calibrated", **eight, tp=1, dp=4)
    # The hand-over between stages is the only work that the flat layout does not have.
    handover = deep.tokens(1000.0, 1.0, "prefill").network * 3
    serial = float(np.asarray(flat.prefill(1.0, 3000.0, 0.0).serial)) + float(np.asarray(handover))
    assert float(np.asarray(deep.prefill(1.0, 3000.0, 0.0).serial)) == pytest.approx(
        serial * (3 + 3) / (3 * 4), rel=1e-9
    )
    # Ideally a prompt is cut as finely as one likes: a quarter.
    deep, flat = model("ideal", **eight, tp=1, pp=4), model("ideal", **eight, tp=1, dp=4)
    assert float(deep.seconds(deep.prefill(1.0, 3000.0, 0.0))) == pytest.approx(
        float(flat.seconds(flat.prefill(1.0, 3000.0, 0.0))) / 4, rel=1e-9
    )


def test_published_reading_counts_all_pairs_of_all_layers() -> None:
    """48 layers, no mask, 46 % of 8 x 2.25 PFLOP/s: 4 x 40 x 128 x 48 x 1e12 FLOP and 2 x 15.115e9 x 1e6."""
    m = StepModel(resolve(options_from({"assumptions": "as-published"})))
    flop = 4 * 40 * 128 * 48 * 1e12 + 2 * 15.115e9 * 1e6
    assert float(m.seconds(m.prefill(1.0, 1e6, 0.0))) == pytest.approx(flop / (0.46 * 18e15), rel=1e-3)


def test_band_widens_beyond_what_was_measured() -> None:
    m = StepModel(resolve(options_from({"assumptions": "calibrated"})))
    op = next(a for a in m.setting.operators.attention if a.name == "global")
    beyond = m.setting.assumptions.extrapolation
    assert beyond is not None

    def spread(context: float) -> tuple[float, float]:
        cost = m.prefill_attention(op, np.float64(1), np.float64(context), np.float64(0), np.float64(1))
        return float(cost.low / cost.serial), float(cost.high / cost.serial)

    low, high = spread(16_384.0)
    assert spread(4_096.0) == pytest.approx((low, high))
    assert spread(1e6) == pytest.approx((low * beyond.low, high * beyond.high))
    # Halfway on the logarithmic scale, half of it.
    half = math.sqrt(16_384.0 * 1e6)
    assert spread(half) == pytest.approx((low * (1 + beyond.low) / 2, high * (1 + beyond.high) / 2))


def test_scales_multiply_times() -> None:
    m = StepModel(resolve(options_from({})))
    scales = m.setting.assumptions.scales.model_copy(update={"prefill": 1.5, "decode": 0.5})
    own = StepModel(replace(m.setting, assumptions=m.setting.assumptions.model_copy(update={"scales": scales})))
    assert float(own.prefill(2.0, 5000.0, 0.0).serial) == pytest.approx(1.5 * float(m.prefill(2.0, 5000.0, 0.0).serial))
    assert float(own.decode(2.0, 5000.0, 10.0).serial) == pytest.approx(0.5 * float(m.decode(2.0, 5000.0, 10.0).serial))
