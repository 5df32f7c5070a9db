"""Steady state as a user asks for it: one code path with validate, limits, Little's law, and what cannot be served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import llmcap
from llmcap.analyses.accuracy.measured import predict, settings_of, shipped_files
from llmcap.analyses.accuracy.measured_rows import MeasuredRow, read_rows
from llmcap.analyses.options import options_from
from llmcap.analyses.serving.load import LoadModel, under_load
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.analyses.setting import resolve
from llmcap.errors import LlmcapError

BASE: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 2, "tp": 1}
QUESTION: dict[str, Any] = {**BASE, "context": 1000, "output_tokens": 200}


def load(**options: Any) -> LoadModel:
    asked = options_from({**BASE, "arrivals": "closed"} | options, under_load=True)
    return LoadModel.of(under_load(resolve(asked.together()), asked))


def served(**options: Any) -> dict[str, Any]:
    return llmcap.estimate(**{**QUESTION, **options}).serving


# -- one code path with validate ---------------------------------------------------------------------------------------


def measured_rows() -> dict[tuple[object, ...], list[MeasuredRow]]:
    rows = [row for file in shipped_files() for row in read_rows(file)[0]]
    groups: dict[tuple[object, ...], list[MeasuredRow]] = {}
    for row in rows:
        if row.protocol in ("spread", "fixed", "saturated") and not row.wait_steps:
            groups.setdefault((*row.setting, row.protocol), []).append(row)
    return groups


def test_every_measured_row_that_can_be_asked_for_gets_the_prediction_of_validate() -> None:
    compared = dict.fromkeys(("ttft_s", "tpot_s", "output_tok_per_s", "output_tok_per_s_per_device"), 0)
    for rows in measured_rows().values():
        try:
            setting = settings_of(rows[0])
        except LlmcapError:
            continue
        lengths = {"spread": "varied", "fixed": "equal"}.get(rows[0].protocol)
        model = LoadModel.of(under_load(setting, replace(setting.options, arrivals="closed", lengths=lengths)))
        if model.model.pool != ServingModel.of(setting, took_place=True).pool:
            continue  # the run took place although the memory seems short
        clients, n, k, o = (
            np.array([getattr(r, name) for r in rows]) for name in ("concurrency", "isl", "cached", "osl")
        )
        clients, k = np.nan_to_num(clients, nan=1.0), np.minimum(k, n - 1.0)
        found = model.columns(clients, n, k, o)
        predicted = {id(p.row): p.predicted for p in predict(rows)[0]}
        held = model.model.held(n, o)
        apart = (model.model.slots(n, k, o) < held / setting.parallelism.dp) | ([r.requests for r in rows] < held)
        for i, row in enumerate(rows):
            if not found["fits"][i] or apart[i] or row.metric not in compared:
                continue
            name = "saturation_tok_per_s" if row.protocol == "saturated" else row.metric
            if o[i] <= 1.0 and name == "tpot_s":
                continue
            one = setting.parallelism.devices if row.metric.endswith("device") and name != row.metric else 1
            assert found[name][i] / one == pytest.approx(predicted[id(row)], rel=1e-9), (row.cells.get("id"), name)
            compared[row.metric] += 1
    assert compared["ttft_s"] > 900
    assert compared["tpot_s"] > 900
    assert compared["output_tok_per_s"] + compared["output_tok_per_s_per_device"] > 50


def test_a_row_typed_into_estimate_gets_the_prediction_of_validate() -> None:
    tried = 0
    for rows in measured_rows().values():
        row = next((r for r in rows if r.protocol == "fixed" and r.metric == "ttft_s"), None)
        if row is None or tried >= 12:
            continue
        try:
            options = settings_of(row).options
            answer = llmcap.estimate(
                users=int(row.concurrency), context=int(row.isl), output_tokens=int(row.osl), lengths="equal",
                cached_tokens=int(min(row.cached, row.isl - 1)), arrivals="closed",
                **{n: getattr(options, n) for n in ("model", "hardware", "engine", *dict(row.structure))},
                **{n: v for n in ("weight_dtype", "kv_dtype", "activation_dtype") if (v := getattr(options, n))},
            )  # fmt: skip
        except LlmcapError:
            continue
        if answer.serving["fits"]:
            tried += 1
            assert answer.serving["ttft_s"] == pytest.approx(predict([row])[0][0].predicted, rel=1e-9)
    assert tried >= 8


# -- limits ------------------------------------------------------------------------------------------------------------


def test_one_client_is_a_request_alone_and_its_dispatch() -> None:
    alone = llmcap.estimate(**QUESTION, users=1)
    found = served(users=1, arrivals="closed")
    dispatch = alone.setting.engine.serving.dispatch  # type: ignore[union-attr]
    assert found["tpot_s"] == pytest.approx(alone.results["tpot_s"])
    assert found["ttft_s"] == pytest.approx(alone.results["ttft_s"] + dispatch)


def test_rare_arrivals_are_requests_alone() -> None:
    rare, one = served(arrivals="0.0001/s"), served(users=1, arrivals="closed")
    assert rare["tpot_s"] == pytest.approx(one["tpot_s"], rel=1e-3)
    assert rare["ttft_s"] == pytest.approx(one["ttft_s"], rel=2e-3)
    assert rare["queue_s"] == pytest.approx(0.0, abs=1e-6)


def test_one_client_of_split_pools_waits_for_nobody() -> None:
    found = served(users=1, arrivals="closed", prefill_devices=1)
    assert found["queue_s"] == pytest.approx(0.0, abs=1e-4)
    together = served(users=1, arrivals="closed")
    assert found["ttft_s"] - found["transfer_s"] == pytest.approx(together["ttft_s"], rel=0.1)


@pytest.mark.parametrize("options", [{}, {"prefill_devices": 1}, {"draft_tokens": 2, "acceptance": 0.7}])
def test_more_clients_never_mean_less_throughput_nor_shorter_times(options: dict[str, Any]) -> None:
    c = np.array([1.0, 2.0, 5.0, 20.0, 80.0, 300.0, 1200.0, 5000.0])
    found = load(**options).columns(c, 1000, 0, 200)
    assert np.all(np.diff(found["output_tok_per_s"]) >= -1e-4 * found["output_tok_per_s"][1:])
    assert np.all(np.diff(found["tpot_s"]) >= -1e-4 * found["tpot_s"][1:])
    assert np.all(np.diff(found["ttft_s"]) >= -1e-9)
    assert np.all(found["requests_per_s"] <= found["saturation_requests_per_s"] * (1.0 + 1e-9))


@pytest.mark.parametrize("options", [{}, {"prefill_devices": 1}, {"draft_tokens": 3, "acceptance": 0.5}])
@pytest.mark.parametrize("lengths", [(1000, 200), (8000, 50), (100, 1000)])
def test_littles_law(options: dict[str, Any], lengths: tuple[int, int]) -> None:
    n, o = lengths
    c = np.array([1.0, 7.0, 60.0, 500.0, 4000.0])
    closed = load(**options).columns(c, n, 0, o)
    present = closed["running"] + closed["waiting"]
    assert present == pytest.approx(c)
    # Little's law holds for those that run by construction of the rate, and for all by that of the waiting.
    assert closed["requests_per_s"] * closed["e2el_s"] == pytest.approx(c, rel=0.03)
    top = float(np.min(closed["saturation_requests_per_s"]))
    for share in (0.05, 0.4, 0.8):
        found = load(**options, arrivals=f"{share * top:.6f}/s").columns(1, n, 0, o)
        assert float(found["running"] + found["waiting"]) == pytest.approx(
            float(found["requests_per_s"] * found["e2el_s"]), rel=1e-6
        )


@pytest.mark.parametrize("lengths", [(1000, 200), (4000, 100), (100, 1000), (500, 1)])
def test_closed_and_open_loops_saturate_at_one_rate(lengths: tuple[int, int]) -> None:
    n, o = lengths
    closed = load().columns(50_000, n, 0, o)
    most = float(closed["saturation_requests_per_s"])
    assert float(closed["requests_per_s"]) == pytest.approx(most, rel=0.07)
    below, above = (load(arrivals=f"{f * most:.6f}/s").columns(1, n, 0, o) for f in (0.98, 1.02))
    assert np.isfinite(below["ttft_s"])
    assert np.isnan(above["ttft_s"])
    assert below["fits"] and above["fits"]


def test_open_and_closed_loops_of_one_rate_have_one_time_per_token() -> None:
    model = load()
    c = np.array([4.0, 16.0, 64.0])
    closed = model.columns(c, 1000, 0, 200)
    for i, rate in enumerate(closed["requests_per_s"]):
        found = load(arrivals=f"{rate:.6f}/s").columns(1, 1000, 0, 200)
        assert float(found["tpot_s"]) == pytest.approx(float(closed["tpot_s"][i]), rel=0.06)


def test_the_band_of_a_rate_is_that_of_a_slower_engine() -> None:
    # With all times f-fold, x requests a second are met as f x are with the times as they are.
    model = load(arrivals="4/s")
    band = model.model.engine.tpot
    found = model.columns(1, 1000, 0, 200)
    slower = load(arrivals=f"{4 * band.high:.9f}/s").columns(1, 1000, 0, 200)
    assert float(found["tpot_high_s"]) == pytest.approx(band.high * float(slower["tpot_s"]), rel=1e-6)


def test_a_rate_near_saturation_has_no_upper_end() -> None:
    most = float(load().columns(1, 1000, 0, 200)["saturation_requests_per_s"])
    answer = llmcap.estimate(**QUESTION, arrivals=f"{0.97 * most:.4f}/s")
    assert answer.serving["tpot_s"] is not None
    assert answer.serving["tpot_high_s"] is None
    assert any("no upper end" in said for said in answer.warnings)


@pytest.mark.parametrize(("share", "told"), [(0.5, False), (0.8, True)])
def test_a_rate_within_the_band_of_saturation_is_said_to_be_unsure(share: float, told: bool) -> None:
    # The profile's throughput band begins at 0.7.
    most = float(load().columns(1, 1000, 0, 200)["saturation_requests_per_s"])
    answer = llmcap.estimate(**QUESTION, arrivals=f"{share * most:.4f}/s")
    assert answer.serving["tpot_high_s"] is not None
    found = [said for said in answer.warnings if said.startswith("the band of saturation begins at")]
    assert bool(found) == told


def test_a_single_token_has_no_time_between_tokens_and_yet_an_upper_end() -> None:
    # No time per output token was taken for a band that is past saturation.
    answer = llmcap.estimate(**{**QUESTION, "output_tokens": 1}, arrivals="1/s")
    assert answer.serving["tpot_high_s"] is None
    assert answer.serving["ttft_high_s"] > answer.serving["ttft_s"]
    assert not any("no upper end" in said for said in answer.warnings)


# -- what cannot be served ---------------------------------------------------------------------------------------------


def test_past_saturation_there_is_no_time() -> None:
    answer = llmcap.estimate(**QUESTION, arrivals="5000/s")
    assert not answer.answered
    assert answer.serving["limit"] == "saturated"
    times = [name for name in answer.serving if name.endswith("_s") and "per_s" not in name and "tok" not in name]
    assert times
    assert all(answer.serving[name] is None for name in times)
    assert answer.serving["output_tok_per_s"] is None
    assert answer.serving["saturation_requests_per_s"] > 1.0
    assert "at most" in answer.warnings[-1]


def test_more_clients_than_the_pool_holds_are_served_one_after_another() -> None:
    answer = llmcap.estimate(model="llama-3.1-70b", hardware="dgx-h100", weight_dtype="fp8", users=5000, context="8k",
                             output_tokens=200, arrivals="closed")  # fmt: skip
    assert not answer.fits  # not all at once
    assert answer.answered
    assert answer.serving["running"] < answer.serving["held"] + 1e-6
    assert answer.serving["running"] + answer.serving["waiting"] == pytest.approx(5000)
    assert answer.serving["queue_s"] > 10 * answer.results.get("ttft_s", 0.0) if answer.fits else True
    assert any("the others wait" in said for said in answer.warnings)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
@pytest.mark.parametrize("lengths", [(2, 10), (1, 300), (8000, 100), (32_768, 3)])
def test_no_more_run_than_there_is_room_for(engine: str, lengths: tuple[int, int]) -> None:
    # The stay of a request has parts outside of the batch, which Little's law alone would take for places.
    c = np.array([1.0, 300.0, 3000.0, 100_000.0])
    closed = load(engine=engine).columns(c, lengths[0], 0, lengths[1])
    assert np.all(closed["running"] <= np.maximum(closed["held"], 2.0) * (1.0 + 1e-9))
    assert closed["running"] + closed["waiting"] == pytest.approx(c)
    most = float(closed["saturation_requests_per_s"][0])
    for share in (0.5, 0.9, 0.999):
        found = load(engine=engine, arrivals=f"{share * most:.6f}/s").columns(1, lengths[0], 0, lengths[1])
        assert float(found["running"]) <= max(float(found["held"]), 2.0) * (1.0 + 1e-9)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"context": 2000, "users": 2000}, "the cache pool holds"),
        ({"context": 2, "users": 20_000}, "the engine runs at most 2,048"),  # two replicas of 1,024
        ({"context": 20_000, "output_tokens": 10, "users": 2000}, "steps have no room for more prefill"),  # 2 x 4.1
        ({"context": 8000, "output_tokens": 10, "users": 2000, "prefill_devices": 1}, "the prefill devices take"),
        ({"context": 100, "output_tokens": 4000, "users": 20_000, "prefill_devices": 1}, "the decode devices have"),
    ],
)
def test_clients_are_told_what_they_wait_for(options: dict[str, Any], why: str) -> None:
    warnings = llmcap.estimate(**{**QUESTION, "arrivals": "closed", **options}).warnings
    assert sum("the others wait" in said for said in warnings) == 1
    assert any(f"the others wait: {why}" in said for said in warnings)


def test_a_throughput_above_saturation_is_explained() -> None:
    ask = {**QUESTION, "model": "mixtral-8x7b", "tp": 2, "users": 2000, "arrivals": "closed"}
    for engine in ("vllm", "tensorrt-llm"):
        answer = llmcap.estimate(**ask, engine=engine)
        above = answer.serving["requests_per_s"] > 1.02 * answer.serving["saturation_requests_per_s"]
        assert above == (engine == "tensorrt-llm")
        assert any("throughput is above saturation" in said for said in answer.warnings) == above


@pytest.mark.parametrize("options", [{}, {"prefill_devices": 1}])
def test_cases_solved_piece_by_piece_are_the_cases(options: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    model = load(**options, arrivals="3/s")
    context, output = np.array([[10.0], [1000.0], [30_000.0], [4000.0], [2.0]]), np.array([1.0, 50.0, 900.0])
    whole = model.columns(1, context, 0, output)
    monkeypatch.setattr("llmcap.analyses.serving.load._PIECE", 4)
    pieces = model.columns(1, context, 0, output)
    assert list(pieces) == list(whole)
    for name in whole:
        assert np.shape(pieces[name]) == np.broadcast_shapes(np.shape(whole[name]), (5, 3))
        assert pieces[name] == pytest.approx(np.broadcast_to(whole[name], (5, 3)), rel=1e-12, nan_ok=True), name


def test_a_request_that_no_replica_holds_has_no_time() -> None:
    answer = llmcap.estimate(model="llama-3.1-8b", hardware="dgx-h100", devices=1, context="3M", output_tokens=10,
                             arrivals="closed")  # fmt: skip
    assert not answer.answered
    assert answer.serving["limit"] == "capacity"
    assert answer.serving["saturation_requests_per_s"] is None
    assert "does not fit" in answer.warnings[-1]


def test_a_draft_takes_memory_from_the_pool() -> None:
    plain, drafting = load(), load(draft_tokens=1, acceptance=0.9)
    assert drafting.model.pool < plain.model.pool
    assert float(drafting.model.reserved(1000.0)) > float(plain.model.reserved(1000.0))
