"""Steady state of serving: closed forms against worked numbers, slow twins and each other."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from llmcap.analyses.accuracy.engine_fit import SCALARS, Composition, fit, fold, scalars_of, sections
from llmcap.analyses.accuracy.engine_recipes import RECIPES, after_one_row, band
from llmcap.analyses.accuracy.measured import predict, settings_of, shipped_files
from llmcap.analyses.accuracy.measured_rows import MeasuredRow, measured_row, read_rows
from llmcap.analyses.accuracy.serving_terms import terms_of
from llmcap.analyses.options import options_from
from llmcap.analyses.serving.steady_state import ServingModel, with_experts
from llmcap.analyses.setting import resolve
from llmcap.engine import serving
from llmcap.specs.engine import Engine
from llmcap.specs.registry import load_as


def model(**options: object) -> ServingModel:
    return ServingModel.of(
        resolve(options_from({"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 1} | options))
    )


def shipped_rows(engine: str) -> list[MeasuredRow]:
    rows = [r for file in shipped_files() for r in read_rows(file)[0]]
    return [r for r in rows if r.engine == engine and r.value > 0.0]


def test_time_per_output_token_counts_each_other_client_once() -> None:
    # 8 clients: 7 prefills of 100 ms over 1,000 tokens are 0.7 ms on each.
    assert float(serving.time_per_output_token(0.010, 0.1, 8, 1000, 1.0)) == pytest.approx(0.0107)


def test_one_client_waits_for_nobody() -> None:
    ttft = serving.time_to_first_token(
        0.3, 0.2, 0.01, 1, 500, ahead=0, own=1.0, burst=0.5, slot=1.0, running_steps=3.0, dispatch=0.0
    )
    assert float(ttft) == pytest.approx(0.3)


def test_a_burst_of_ten_prompts_per_client_waits_a_twentieth() -> None:
    # One burst in ten waves; within it the mean request waits for half of the others: 1 / 20 of 15 x 0.2 s.
    waits = [i * 0.2 for i in range(16)]
    mean_over_ten_waves = sum(waits) / 16 / 10
    ttft = serving.time_to_first_token(
        0.0, 0.2, 0.0, 16, 1, ahead=15, own=1.0, burst=0.05, slot=0.0, running_steps=0.0, dispatch=0.0
    )
    assert float(ttft) == pytest.approx(mean_over_ten_waves)


def test_clients_beyond_the_pool_wait() -> None:
    running, excess = serving.admitted(np.array([30.0, 60.0]), 40.0)
    assert list(running) == [30.0, 40.0]
    assert excess == pytest.approx([0.0, 0.5])


def test_throughput_is_what_a_loop_over_requests_gives() -> None:
    # B sequences for o steps of D, and each costs its prefill once.
    b, d, p, o = 40, 0.02, 0.3, 200
    seconds = sum(d for _ in range(o)) + sum(p for _ in range(b))
    assert float(serving.throughput(b, d, p, o)) == pytest.approx(b * o / seconds)


@pytest.mark.parametrize("rate", [0.1, 1.0, 4.0])
def test_sequences_that_run_obey_littles_law(rate: float) -> None:
    def stay(b: np.ndarray) -> np.ndarray:
        return 1.5 + 0.03 * b + 0.0 * rate

    b = float(serving.running_at(rate, stay, 1000.0))
    assert b == pytest.approx(rate * 1.5 / (1.0 - 0.03 * rate), rel=1e-9)


def test_no_more_run_than_there_are_slots() -> None:
    assert float(serving.running_at(30.0, lambda b: 1.0 + 0.05 * b, 512.0)) == pytest.approx(512.0)


def test_a_closed_loop_comes_near_its_saturation_and_no_further() -> None:
    # Of B that run, 10 / s each 1 s: a queue grows without bound as B nears 10. present = B / (1 - B / 10) = c.
    def present(b: np.ndarray) -> np.ndarray:
        return b / np.maximum(1.0 - b / 10.0, 1e-300)

    c = np.array([1.0, 10.0, 1e6])
    assert serving.running_of_clients(c, present, 10.0) == pytest.approx(10.0 * c / (10.0 + c))


@pytest.mark.parametrize("drafted", [1, 2, 4])
def test_speculation_yields_what_enumerating_acceptances_gives(drafted: int) -> None:
    a = 0.6
    expected = 0.0
    for outcome in itertools.product((True, False), repeat=drafted):
        chance = math.prod(a if ok else 1.0 - a for ok in outcome)
        expected += chance * (1 + len(list(itertools.takewhile(bool, outcome))))
    assert float(serving.tokens_per_step(a, drafted)) == pytest.approx(expected)


def test_more_clients_are_never_faster_and_never_fewer_tokens() -> None:
    c = np.array([1.0, 4.0, 16.0, 64.0, 256.0])
    found = model().closed_loop(c, 1000, 0, 500)
    assert np.all(np.diff(found["tpot_s"]) > 0.0)
    assert np.all(np.diff(found["ttft_s"]) > 0.0)
    assert np.all(np.diff(found["output_tok_per_s"]) > 0.0)


def test_one_client_decodes_as_an_estimate_says() -> None:
    m = model()
    found = m.closed_loop(1, 2000, 0, 200)
    assert float(found["tpot_s"]) == pytest.approx(float(m.steps.decode(1.0, 2000.0, 200.0).serial))


def test_a_pool_that_is_full_caps_what_runs() -> None:
    m = model(model="llama-3.1-70b", weight_dtype="fp8", hardware="dgx-h200")
    found = m.closed_loop(np.array([4.0, 4000.0]), 8192, 0, 1024)
    assert found["running"][0] == 4.0
    assert found["running"][1] < 4000.0
    assert found["ttft_s"][1] > 10.0 * found["ttft_s"][0]


def test_prefill_inside_full_steps_costs_less_than_alone() -> None:
    m = model()
    n, k = np.array([500.0, 1000.0, 4000.0]), np.zeros(3)
    assert np.all(m.prefill_shared(n, k) < m.prefill_alone(n, k))


def test_replicas_that_share_experts_step_together() -> None:
    shared = model(model="Qwen/Qwen3-235B-A22B", hardware="dgx-h200", devices=8, tp=1, dp=8, ep=8, weight_dtype="fp8")
    apart = model(devices=8, tp=1, dp=8)
    running, each = np.array(64.0), np.array(8.0)
    assert (float(shared.ahead(running, each)), float(apart.ahead(running, each))) == (63.0, 7.0)


def test_experts_at_saturation_take_longer_by_their_factor() -> None:
    plain = model(model="Qwen/Qwen3-30B-A3B", hardware="dgx-h200").setting
    op = plain.operators.experts[0]
    before, after = (ServingModel.of(s).steps.experts(op, 512.0, "decode") for s in (plain, with_experts(plain, 2.0)))
    assert float(after.compute + after.memory) == pytest.approx(2.0 * float(before.compute + before.memory))
    assert float(after.overhead) == pytest.approx(float(before.overhead))


@pytest.mark.parametrize("engine", sorted(RECIPES))
def test_the_fit_adds_up_times_as_the_model_does(engine: str) -> None:
    rows = shipped_rows(engine)
    rows = [r for r in rows if not any(n == "pp" and v not in ("", "1") for n, v in r.structure)][::7]
    terms = terms_of(rows)
    composed = np.exp(Composition(terms).log_time(scalars_of(load_as(Engine, "engine", engine).document)))
    predicted = {id(p.row): p.predicted for p in predict(list(terms.rows))[0]}
    assert composed == pytest.approx([predicted[id(r)] for r in terms.rows], rel=2e-3)


def test_scalars_survive_the_way_into_a_document_and_back() -> None:
    engine = load_as(Engine, "engine", "vllm").document
    p = scalars_of(engine)
    written = sections(p, {"prefill": {"low": 0.4, "high": 2.5}, "decode": {"low": 0.5, "high": 1.7}, "serving": {}})
    assert written["decode"]["layer"] == f"{1e6 * engine.decode.layer:.3g} us"
    assert written["kernels"]["families"]["hopper"]["experts"]["fp8"]["decode"] == pytest.approx(
        engine.kernels.families["hopper"].experts["fp8"].decode, rel=5e-3
    )


def test_a_fit_finds_the_scalars_that_made_the_rows() -> None:
    rows = shipped_rows("vllm-2023")
    terms = terms_of(rows)
    names = [s.name for s in SCALARS]
    free = ("decode.layer", "decode.sequence", "prefill.layer", "prefill_products")
    truth = scalars_of(load_as(Engine, "engine", "vllm-2023").document)
    made = np.exp(Composition(terms).log_time(truth))
    synthetic = terms_of([replace(r, value=float(v)) for r, v in zip(terms.rows, made, strict=True)])
    start = truth.copy()
    for name, factor in zip(free, (1.5, 0.6, 0.5, 1.3), strict=True):
        start[names.index(name)] *= factor
    found = fit(synthetic, start=start, free=free, prior_weight=0.0)
    for name in free:
        i = names.index(name)
        assert found[i] == pytest.approx(truth[i], rel=0.02), name


def test_a_configuration_is_never_split() -> None:
    rows = shipped_rows("vllm")
    folds: dict[str, set[int]] = {}
    for row in rows:
        folds.setdefault(row.configuration, set()).add(fold(row))
    assert all(len(found) == 1 for found in folds.values())
    assert len({f for found in folds.values() for f in found}) == 5


def test_one_row_takes_a_configurations_bias_away() -> None:
    row = {
        "model": "m",
        "hardware": "h",
        "metric": "tpot_s",
        "isl": "10",
        "osl": "10",
        "concurrency": "4",
        "value": "1",
    }
    rows = [measured_row(row | {"id": str(i), "tp": str(1 + i // 3)}) for i in range(6)]
    left = after_one_row(rows, np.array([0.5, 0.5, 0.5, -0.2, -0.2, -0.2]))
    assert left.size == 4
    assert left == pytest.approx(np.zeros(4))


def test_a_band_holds_eight_of_ten() -> None:
    error = np.random.default_rng(1).normal(0.1, 0.3, 4000)
    found = band(error)
    ratio = np.exp(-error)  # measured over predicted
    assert np.mean((ratio >= found["low"]) & (ratio <= found["high"])) == pytest.approx(0.8, abs=0.01)


def test_gpt_oss_runs_8_bit_activations_on_blackwell_only() -> None:
    row = {"model": "openai/gpt-oss-120b", "hardware": "dgx-b200", "metric": "tpot_s", "isl": "10", "osl": "10",
           "concurrency": "4", "value": "1", "weight_dtype": "mxfp4"}  # fmt: skip
    assert settings_of(measured_row(row)).activation_dtype == "fp8"
    assert settings_of(measured_row(row | {"hardware": "dgx-h200"})).activation_dtype == "bf16"
