"""The public conversation trace of Mooncake (FAST 2025): what anybody who replays it must find."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import numpy as np
import pytest

import llmcap
from llmcap.analyses.replays.replay import Replay, Reuse
from llmcap.analyses.replays.traces import Trace, read_trace
from llmcap.engine.stack_distance import hits_at

TRACE = "mooncake-conversation"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return read_trace(TRACE)


@pytest.fixture(scope="module")
def reuse(trace: Trace) -> Reuse:
    return Reuse.of(trace)


def maverick(kv_policy: str, trace: Trace) -> Replay:
    return llmcap.replay(trace, drive="micron-9550-pro-7.68tb", kv_policy=kv_policy)


def test_the_shipped_file_is_the_published_one() -> None:
    file = Path(__file__).resolve().parents[2] / "measurements" / "traces" / f"{TRACE}.jsonl.gz"
    digest = hashlib.sha256(gzip.decompress(file.read_bytes())).hexdigest()
    assert digest in (file.parent / "SOURCES.md").read_text(encoding="utf-8")


def test_requests_and_blocks(trace: Trace, reuse: Reuse) -> None:
    assert (trace.requests, trace.bad_lines, trace.sorted_by_time) == (12_031, 0, True)
    assert reuse.unique == 182_790
    assert int(trace.tokens_of_blocks().sum()) == int(trace.input_tokens.sum())


def test_ideal_prefix_hits(trace: Trace, reuse: Reuse) -> None:
    """37.37 % of the tokens: told to that many digits by an independent replay with a plain LRU cache."""
    assert reuse.ideal_tokens / int(trace.input_tokens.sum()) == pytest.approx(0.3737, abs=0.0001)


@pytest.mark.parametrize(
    ("capacity", "ratio"), [(1_000, 0.0454), (5_859, 0.1382), (10_000, 0.2153), (20_000, 0.2931), (50_000, 0.3615)]
)
def test_lru_hits(trace: Trace, reuse: Reuse, capacity: int, ratio: float) -> None:
    """Four digits from an independent replay, one cache per capacity; half a unit of the last one is allowed."""
    found = hits_at(reuse.curve, np.array([capacity]))[0] / trace.input_tokens.sum()
    assert found == pytest.approx(ratio, abs=0.00005)


def test_capacity_for_nine_tenths_of_the_ideal(reuse: Reuse) -> None:
    blocks = reuse.capacity_for(0.9)
    assert blocks is not None
    assert blocks * 512 == pytest.approx(16.2e6, abs=0.05e6)


def test_blocks_that_are_never_asked_for_again(reuse: Reuse) -> None:
    """75.8 % of the blocks are used once."""
    assert 1 - reuse.second_touch().sum() / reuse.unique == pytest.approx(0.758, abs=0.0005)


@pytest.mark.parametrize(
    ("kv_policy", "through", "second_touch", "digit"), [("all-full", 3.7, 0.9, 0.05), ("hybrid", 0.91, 0.22, 0.005)]
)
def test_drive_writes_a_day(trace: Trace, kv_policy: str, through: float, second_touch: float, digit: float) -> None:
    """Maverick fp8 on 8 x 7.68 TB: 182,790 blocks x 512 tokens x 98,304 B (48 layers whole) or 24,576 B (the 12 full
    ones) in 3,537 s are 3.66 or 0.91 drive writes a day; 24.2 % of that when only second touches are written.
    """
    nvme = maverick(kv_policy, trace).tiers[-1]
    assert nvme["drive_writes_per_day"] == pytest.approx(through, abs=digit)
    assert nvme["drive_writes_per_day_second_touch"] == pytest.approx(second_touch, abs=digit)


def test_more_tiers_hit_more_and_save_more(trace: Trace) -> None:
    answer = maverick("all-full", trace)
    ratios = [row["hit_ratio"] for row in answer.tiers]
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(answer.summary["ideal_hit_ratio"])  # 61 TB hold all 9.2 TB of the trace
    means = [values["mean_s"] for values in answer.ttft.values()]
    assert means == sorted(means, reverse=True)
    saved = [values["gpu_s_saved"] for values in answer.ttft.values()]
    assert saved[0] == 0
    assert saved == sorted(saved)
