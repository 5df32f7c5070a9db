"""Bands of a steady state: as measured where a profile knows the devices, wider by the kernels' bands elsewhere."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmcap.analyses.accuracy.engine_recipes import RECIPES, rows_of_stages
from llmcap.analyses.accuracy.held_out import rows_of
from llmcap.analyses.accuracy.measured import predict, settings_of, shipped_files
from llmcap.analyses.accuracy.measured_rows import measured_row
from llmcap.analyses.options import options_from
from llmcap.analyses.serving.bands import bands
from llmcap.analyses.serving.load import LoadModel, under_load
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.analyses.setting import resolve
from llmcap.specs.engine import Engine
from llmcap.specs.registry import load_as

QUESTION = {"model": "llama-3.1-70b", "devices": 8, "tp": 8}
ROW = {
    "model": "llama-3.1-70b", "devices": "8", "tp": "8", "engine": "vllm", "isl": "1000", "osl": "200",
    "concurrency": "16", "value": "1",
}  # fmt: skip


@pytest.mark.parametrize("engine", RECIPES)
def test_profiles_name_the_families_of_the_rows_behind_their_bands(engine: str) -> None:
    rows = {row.hardware: row for row in rows_of_stages(engine, rows_of(shipped_files()))}
    families = {settings_of(row).machine.device.family for row in rows.values()}
    serving = load_as(Engine, "engine", engine).document.serving
    assert serving is not None
    assert set(serving.families) == families


@pytest.mark.parametrize(("hardware", "wider"), [("dgx-h100", False), ("dgx-a100-80gb", True), ("mi300x-8x", True)])
def test_kernels_that_no_run_vouches_for_widen_the_bands(hardware: str, wider: bool) -> None:
    model = ServingModel.of(resolve(options_from(QUESTION | {"hardware": hardware})))
    found, cost = bands(model, 1000.0, 0.0, 200.0, 16.0), model.decode_cost(16.0, 1000.0, 200.0)
    measured = model.engine.tpot
    if not wider:
        assert found.tpot == (measured.low, measured.high)
        return
    low, high = (math.log(float(end / cost.serial)) for end in (cost.low, cost.high))
    assert math.log(float(found.tpot[0])) ** 2 == pytest.approx(math.log(measured.low) ** 2 + low**2)
    assert math.log(float(found.tpot[1])) ** 2 == pytest.approx(math.log(measured.high) ** 2 + high**2)
    for ends in (found.tpot, found.ttft, found.throughput):
        assert ends[0] < 1.0 < ends[1]


@pytest.mark.parametrize("metric", ["tpot_s", "ttft_s", "output_tok_per_s"])
def test_a_measured_row_has_the_band_of_its_answer_under_load(metric: str) -> None:
    row = measured_row(ROW | {"hardware": "mi300x-8x", "metric": metric})
    (found,), _ = predict([row])
    asked = options_from(
        QUESTION | {"hardware": "mi300x-8x", "arrivals": "closed", "lengths": "equal"}, under_load=True
    )
    answer = LoadModel.of(under_load(resolve(asked.together()), asked)).columns(16, 1000, 0, 200)
    low, high = (float(answer[metric.replace("_", f"_{end}_", 1)]) for end in ("low", "high"))
    assert float(answer[metric]) == pytest.approx(found.predicted, rel=1e-9)
    if metric == "output_tok_per_s":  # its band is told at the slots' size
        assert low < found.predicted < high
    else:
        assert (low, high) == (pytest.approx(found.low, rel=1e-9), pytest.approx(found.high, rel=1e-9))


def test_bands_hold_for_every_case_of_an_axis() -> None:
    model = ServingModel.of(resolve(options_from(QUESTION | {"hardware": "mi300x-8x"})))
    context = np.array([100.0, 4000.0, 30000.0])
    found = bands(model, context, np.zeros(3), np.full(3, 200.0), np.array([1.0, 8.0, 64.0]))
    for i in range(3):
        alone = bands(model, context[i], 0.0, 200.0, [1.0, 8.0, 64.0][i])
        for name in ("tpot", "ttft", "throughput"):
            for ends, one in zip(getattr(found, name), getattr(alone, name), strict=True):
                assert float(ends[i]) == pytest.approx(float(one))
