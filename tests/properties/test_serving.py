"""What must hold under any load: bands around times, Little's law, no time past saturation, scaling, every model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcap.analyses.options import options_from
from llmcap.analyses.serving.load import COLUMNS, LoadModel, plain, under_load
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError
from llmcap.specs.registry import list_ids

STRUCTURES: list[dict[str, Any]] = [
    {"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 2},
    {"model": "llama-3.1-70b", "hardware": "dgx-b200", "weight_dtype": "fp8", "pp": 2},
    {"model": "qwen3-235b-a22b", "hardware": "dgx-h200", "weight_dtype": "fp8", "tp": 1, "ep": 8},
    {"model": "deepseek-v3", "hardware": "dgx-b200", "engine": "sglang"},
    {"model": "gpt-oss-120b", "hardware": "dgx-h100", "engine": "tensorrt-llm", "tp": 2},
]
WAYS: list[dict[str, Any]] = [{}, {"draft_tokens": 2, "acceptance": 0.7}, {"prefill_devices": 1}]
LENGTHS = st.tuples(st.integers(1, 100_000), st.integers(1, 5_000))


def load(structure: dict[str, Any], **options: Any) -> LoadModel:
    asked = options_from(structure | options, under_load=True)
    return LoadModel.of(under_load(resolve(asked.together()), asked))


def one(model: LoadModel, users: float, context: float, output: float) -> dict[str, Any]:
    found = model.columns(users, context, 0, output)
    return {name: plain(name, np.asarray(value).reshape(-1)[0]) for name, value in found.items()}


def sound(found: dict[str, Any], output: int) -> None:
    """Every figure is one that can be, or none is given."""
    for name, value in found.items():
        if isinstance(value, float):
            assert math.isfinite(value), name
            assert value >= -1e-9, name
    if not found["fits"] or found["limit"] == "saturated":
        assert all(
            v is None for n, v in found.items() if n.endswith("_s") and "_per_s" not in n and "saturation" not in n
        )
        return
    assert found["ttft_low_s"] <= found["ttft_s"]
    assert found["utilisation"] <= 1.0 + 1e-6
    assert found["queue_s"] <= found["ttft_s"]
    if output > 1:
        assert found["tpot_low_s"] <= found["tpot_s"]
        assert found["tpot_high_s"] is None or found["tpot_s"] <= found["tpot_high_s"]
    else:
        assert found["tpot_s"] is None


@given(st.sampled_from(STRUCTURES), st.sampled_from(WAYS), LENGTHS, st.integers(1, 10**6))
def test_a_closed_loop(structure: dict[str, Any], way: dict[str, Any], lengths: tuple[int, int], users: int) -> None:
    try:
        model = load(structure, arrivals="closed", **way)
    except OptionError:
        return
    found = one(model, users, *lengths)
    sound(found, lengths[1])
    if found["fits"]:
        present = found["running"] + found["waiting"]
        assert present == pytest.approx(users, rel=1e-6)
        assert found["requests_per_s"] * found["e2el_s"] == pytest.approx(users, rel=0.15)


@given(st.sampled_from(STRUCTURES), st.sampled_from(WAYS), LENGTHS, st.floats(-4.0, 3.0))
def test_arrivals_at_random(
    structure: dict[str, Any], way: dict[str, Any], lengths: tuple[int, int], logarithm: float
) -> None:
    rate = 10.0**logarithm
    try:
        model = load(structure, arrivals=f"{rate:.9f}/s", **way)
    except OptionError:
        return
    found = one(model, 1, *lengths)
    sound(found, lengths[1])
    if found["fits"] and found["limit"] != "saturated":
        assert found["requests_per_s"] == pytest.approx(rate, rel=1e-4)
        present = found["running"] + found["waiting"]
        assert found["requests_per_s"] * found["e2el_s"] == pytest.approx(present, rel=1e-6)
        assert found["ttft_s"] <= found["ttft_p95_s"] * 1.5
        assert found["ttft_p95_s"] <= found["ttft_p99_s"]


@given(st.sampled_from(STRUCTURES), LENGTHS, st.lists(st.integers(1, 3000), min_size=2, max_size=5, unique=True))
def test_cases_together_are_cases_apart(structure: dict[str, Any], lengths: tuple[int, int], users: list[int]) -> None:
    model = load(structure, arrivals="closed")
    together = model.columns(np.array(users, dtype=float), lengths[0], 0, lengths[1])
    for i, c in enumerate(users):
        apart = model.columns(float(c), lengths[0], 0, lengths[1])
        for name in COLUMNS:
            if name in apart:
                assert np.asarray(together[name])[i] == pytest.approx(float(apart[name]), rel=1e-9, nan_ok=True), name


@pytest.mark.parametrize("model", list_ids("model"))
def test_every_model_can_be_drafted_for_and_split(model: str) -> None:
    for way in WAYS:
        try:
            asked = load({"model": model, "hardware": "gb200-nvl72", "devices": 32}, arrivals="closed", **way)
        except OptionError as error:
            assert error.hint
            continue
        found = one(asked, 16, 2000, 200)
        sound(found, 200)
        if way.get("draft_tokens") and found["fits"]:
            assert found["tokens_per_step"] == pytest.approx(1.0 + 0.7 + 0.49)
