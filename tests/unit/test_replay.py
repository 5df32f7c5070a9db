"""Placing tiers on a trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmcap
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import options_from
from llmcap.analyses.replays.replay import Reuse, replay
from llmcap.analyses.replays.trace_generator import Population, make_up
from llmcap.analyses.replays.traces import Trace
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError
from llmcap.glossary import GLOSSARY
from llmcap.report.figures.replay import hits_figure
from llmcap.report.figures.style import styled


def small(requests: list[list[int]], *, tokens: int = 512, gap: float = 10.0) -> Trace:
    """A trace of full blocks, one request every `gap` seconds."""
    counts = np.array([len(r) for r in requests], dtype=np.int64)
    return Trace(
        "small", gap * np.arange(len(requests), dtype=np.float64), counts * tokens, np.ones_like(counts), tokens,
        np.array([b for r in requests for b in r], dtype=np.int64), np.concatenate([[0], np.cumsum(counts)]),
    )  # fmt: skip


def test_a_request_waits_for_its_tier_and_its_rest() -> None:
    """Three prompts of 20 blocks, the last one as the first. Device memory holds all 40 blocks, so nothing is reloaded
    and the repeated prompt computes one token only.
    """
    trace = small([list(range(20)), list(range(20, 40)), list(range(20))], gap=100.0)
    answer = replay(trace, model="llama-3.1-8b", hardware="dgx-h100")
    assert answer.summary["ideal_hit_ratio"] == pytest.approx(1 / 3)
    setting = resolve(options_from({"model": "llama-3.1-8b", "hardware": "dgx-h100"}))
    tiers = Evaluator.of(setting).tiers
    whole = float(tiers.prefill(1.0, 10240.0, 0.0))
    one = float(tiers.prefill(1.0, 1.0, 10239.0))
    assert answer.ttft["none"]["mean_s"] == pytest.approx(whole)
    assert answer.ttft["hbm"]["mean_s"] == pytest.approx((2 * whole + one) / 3)
    assert answer.ttft["hbm"]["gpu_s_saved"] == pytest.approx((whole - one) * 8)
    assert answer.tiers[1]["served_ratio"] == 0
    # The first two prompts are new: 2 x 10,240 tokens of 2 x 8 heads x 128 x 2 B x 32 layers = 131,072 B.
    assert answer.tiers[1]["write_bytes"] == 2 * 10240 * 131072
    assert answer.tiers[1]["write_bytes_per_day_second_touch"] == pytest.approx(10240 * 131072 * 86400 / 200)


def test_each_block_comes_from_the_fastest_tier_that_holds_it() -> None:
    """Ten blocks come back, with one new block behind them, after 1,600 others have passed: too many for what a 70B
    model leaves of four H100s, few for their DRAM.
    """
    prompt = list(range(10))
    others = [list(range(1000 * i, 1000 * i + 200)) for i in range(1, 9)]
    trace = small([prompt, *others, [*prompt, 77]])
    options = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "devices": 4}
    answer = replay(trace, **options)
    hbm, dram = answer.tiers[0], answer.tiers[1]
    assert hbm["capacity_blocks"] < 1610 < dram["capacity_blocks"]
    assert (hbm["hit_ratio"], dram["served_ratio"]) == (0.0, pytest.approx(10 / 1621))
    tiers = Evaluator.of(resolve(options_from(options))).tiers
    moved = 5120 * 327_680  # 2 x 8 heads x 128 x 2 B x 80 layers a token
    expected = float(tiers.prefill(1.0, 512.0, 5120.0)) + float(tiers.reload(tiers.rates[0], 1.0, moved))
    computed = float(tiers.prefill(1.0, 5632.0, 0.0))  # all eleven blocks, where the ten are not found
    quicker = (answer.ttft["hbm"]["mean_s"] - answer.ttft["dram"]["mean_s"]) * trace.requests
    assert quicker == pytest.approx(computed - expected)
    assert dram["read_bytes"] == pytest.approx(moved)
    assert dram["read_peak_bytes_per_s"] == pytest.approx(moved / 60)


def test_the_latent_is_kept_on_every_device_but_once_on_tiers() -> None:
    answer = replay(small([[1, 2], [1, 2]]), model="deepseek-v3", hardware="dgx-h200")
    hbm, dram = answer.tiers[:2]
    assert hbm["bytes_per_block"] == pytest.approx(8 * dram["bytes_per_block"])


def test_a_tier_smaller_than_device_memory_adds_nothing() -> None:
    trace = make_up(Population(users=50, turns=3))
    answer = replay(trace, dram="1 GB", drives=1)
    assert answer.tiers[1]["hit_ratio"] == answer.tiers[0]["hit_ratio"]
    assert any(note.startswith("dram holds no more") for note in answer.warnings)


def test_splitting_the_requests_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = make_up(Population(users=60, turns=4, seed=7))
    whole = replay(trace, kv_policy="all-full").to_dict()
    monkeypatch.setattr("llmcap.analyses.replays.replay_tiers._CHUNK", 17)
    parts = replay(trace, kv_policy="all-full").to_dict()
    for name, values in whole["ttft"].items():
        assert parts["ttft"][name] == pytest.approx(values)
    for one, other in zip(whole["tiers"], parts["tiers"], strict=True):
        assert other == pytest.approx(one)


def test_a_model_that_does_not_fit_keeps_the_curve() -> None:
    answer = replay(small([[1], [1]]), model="llama-3.1-405b", hardware="dgx-h100", weight_dtype="bf16")
    assert not answer.fits
    assert (answer.tiers, answer.ttft) == ([], {})
    assert answer.curve


def test_a_trace_without_time_has_no_rates() -> None:
    answer = replay(small([[1], [1]], gap=0.0))
    assert answer.tiers[1]["write_mean_bytes_per_s"] is None
    json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.parametrize("span", [0.001, 59.0, 60.0])
def test_a_day_is_told_from_a_minute_on(span: float) -> None:
    """A millisecond of requests is no rate of a day: 2 x 512 tokens of 131,072 B would be 11.6 PB a day."""
    answer = replay(small([[1], [2]], gap=span), model="llama-3.1-8b", hardware="dgx-h100")
    nvme = next(row for row in answer.tiers if row["tier"] == "nvme")
    told = [nvme.get(n) for n in ("write_bytes_per_day", "drive_writes_per_day", "drive_life_years")]
    warned = [note for note in answer.warnings if "too short to tell what a day brings" in note]
    if span < 60.0:
        assert told == [None, None, None] and len(warned) == 1
        assert nvme["write_bytes"] == 2 * 512 * 131_072
    else:
        assert told[0] == pytest.approx(2 * 512 * 131_072 * 1440) and told[1] > 0.0 and not warned


def test_requests_without_any_block() -> None:
    trace = Trace(
        "none", np.zeros(2), np.array([10, 20]), np.zeros(2, dtype=np.int64), 512, np.zeros(0, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
    )  # fmt: skip
    answer = replay(trace)
    assert answer.summary["ideal_hit_ratio"] == 0
    assert [row["hit_ratio"] for row in answer.curve] == [0.0] * len(answer.curve)


@given(st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True), min_size=1, max_size=12))
def test_the_curve_never_falls_and_ends_at_the_ideal(requests: list[list[int]]) -> None:
    reuse = Reuse.of(small(requests))
    assert (np.diff(reuse.curve[1]) > 0).all()
    seen: set[int] = set()
    ideal = 0
    for blocks in requests:
        run = next((i for i, b in enumerate(blocks) if b not in seen), len(blocks))
        ideal += 512 * run
        seen.update(blocks)
    assert reuse.ideal_tokens == ideal


@pytest.mark.parametrize(
    "options",
    [{"capacities": "0"}, {"capacities": "a"}, {"capacities": ""}, {"window": "5 apples"}, {"window": 0},
     {"block_tokens": 0}, {"time_unit": "us"}, {"context": "1M"}],
)  # fmt: skip
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        replay("mooncake-conversation", **options)


def test_a_trace_or_a_population_but_not_both() -> None:
    for values in ({}, {"trace": "x", "generate": "users=1"}):
        with pytest.raises(OptionError, match="either"):
            llmcap.replay(**values)


def test_every_column_is_explained() -> None:
    answer = replay(make_up(Population(users=20, turns=3)))
    rows = [answer.summary, *answer.curve, *answer.tiers, *answer.ttft.values()]
    page = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
    for name in {name for row in rows for name in row}:
        assert name in GLOSSARY or name in ("drive", "drives")
        assert f"`{name}`" in page


def test_the_figure_shows_the_curve_and_every_tier() -> None:
    answer = replay(make_up(Population(users=20, turns=4)), model="llama-3.1-8b", hardware="dgx-h100")
    with styled():
        figure = hits_figure(answer.inputs, answer.curve, answer.tiers, answer.summary["ideal_hit_ratio"])
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    for name, row in zip(("HBM", "DRAM", "NVMe"), answer.tiers, strict=True):
        assert f"{name}, {row['hit_ratio']:.1%} with all before it" in labels
    curve = axes.lines[0]
    assert curve.get_ydata().tolist() == [point["hit_ratio"] for point in answer.curve]
    assert curve.get_xdata().tolist() == [point["capacity_bytes"] for point in answer.curve]
