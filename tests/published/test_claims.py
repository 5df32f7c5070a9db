"""The published figures of "1 million token context: the good, the bad and the ugly" (May 2025), C1 to C9.

Under `as-published` each has to come out as printed; the sizes that the architecture gives instead are counted here by
hand. Single user and 1,000 output tokens unless said otherwise.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

import llmcap


@cache
def published(
    context: str, users: int = 1, hardware: str = "dgx-b200", model: str = "llama-4-maverick"
) -> dict[str, Any]:
    answer = llmcap.estimate(
        model=model, hardware=hardware, context=context, users=users, assumptions="as-published"
    ).to_dict()
    return {**answer["results"], **{t["tier"]: t for t in answer["tiers"]}, "assumptions": answer["assumptions"]}


def test_c1_small_contexts_prefill_in_under_a_second() -> None:
    for context in ("1k", "10k"):
        assert 0.0 < published(context)["prefill_s"] < 1.0


def test_c2_a_million_tokens_take_over_two_minutes() -> None:
    """By hand: 48 layers x 4 x 40 x 128 x 1e12 pairs + 2 x 15.115e9 x 1e6 = 1.013e18 FLOP at 46 % of 18 PFLOP/s."""
    assert published("1M")["prefill_s"] > 120.0
    assert published("1M")["prefill_s"] == pytest.approx(1.0133e18 / (0.46 * 18e15), rel=2e-3)


def test_c3_ten_users_of_250k_take_over_30_seconds() -> None:
    """By hand: 10 x (48 x 20,480 x 6.25e10 + 2 x 15.115e9 x 2.5e5) = 6.9e17 FLOP: 83 s."""
    assert published("250k", 10)["prefill_s"] > 30.0
    assert published("250k", 10)["prefill_s"] == pytest.approx(83.1, rel=0.01)


def test_c4_and_c5_sizes() -> None:
    # 12 layers x 2 x 5 heads x 128 x 1 B = 15,360 B per token; 10 x 251,000 and 1,001,000 tokens.
    assert published("250k", 10)["kv_bytes_total"] == 15_360 * 251_000 * 10
    assert 38.5e9 <= published("250k", 10)["kv_bytes_total"] < 39.5e9
    assert published("1M")["kv_bytes_total"] == 15_360 * 1_001_000
    assert 14.5e9 <= published("1M")["kv_bytes_total"] <= 15.7e9


def test_c6_dram_reload_takes_15_ms() -> None:
    # 15,360 x 1,000,000 B over 1 TB/s.
    assert published("1M")["dram"]["reload_s"] == pytest.approx(15.36e-3, rel=1e-9)
    assert 14.5e-3 <= published("1M")["dram"]["reload_s"] < 15.5e-3


def test_c7_eight_drives_reload_in_140_ms() -> None:
    # 15.36 GB over 8 x 14 GB/s.
    assert published("1M")["nvme"]["reload_s"] == pytest.approx(15.36 / 112, rel=1e-9)
    assert 135e-3 <= published("1M")["nvme"]["reload_s"] <= 145e-3


def test_c8_capacity_of_the_drives() -> None:
    assert published("1M")["nvme"]["capacity_bytes"] == pytest.approx(8 * 30.72e12)
    small = llmcap.estimate(hardware="dgx-b200-3.84tb").tiers
    assert next(t for t in small if t["tier"] == "nvme")["capacity_bytes"] == pytest.approx(8 * 3.84e12)


def test_c9_gen6_drives_halve_it() -> None:
    gen6 = published("1M", hardware="dgx-b200-gen6")["nvme"]["reload_s"]
    assert gen6 / published("1M")["nvme"]["reload_s"] == pytest.approx(0.5, abs=0.05)


def test_reload_wins_in_the_published_picture() -> None:
    for tier in ("dram", "nvme"):
        row = published("1M")[tier]
        assert row["winner"] == "reload"
        assert row["recompute_s"] > 120.0


def test_every_liberty_is_named_and_marked_as_inferred() -> None:
    said = {a["name"]: a for a in published("1M")["assumptions"]}
    for name in (
        "all layers full",
        "constant efficiency",
        "five KV heads",
        "twelve layers kept",
        "host links both ways",
    ):
        assert said[name]["inferred"] is True
        assert said[name]["bias"]


def test_what_the_architecture_gives_instead() -> None:
    """fp8, 8 heads: 2 x 8 x 128 B x (12 x T + 36 x 8,192) per user."""

    def total(context: str, users: int, **options: Any) -> int:
        return int(llmcap.estimate(context=context, users=users, **options).results["kv_bytes_total"])

    assert total("1M", 1) == 2 * 8 * 128 * (12 * 1_001_000 + 36 * 8_192) == 25_204_555_776
    assert total("250k", 10) == 10 * 2 * 8 * 128 * (12 * 251_000 + 36 * 8_192) == 67_725_557_760
    assert total("1M", 1, kv_dtype="bf16") == 2 * 25_204_555_776
    # NVFP4: half a byte and a one-byte scale per 16 elements.
    assert total("1M", 1, kv_dtype="nvfp4") == 25_204_555_776 * 9 // 16


def test_engines_without_a_hybrid_manager_reserve_all_layers() -> None:
    """vLLM issue 16118: 24,576 bytes per token and GPU at TP8 in bf16; 24.00 GiB for 1,048,576 tokens."""
    answer = llmcap.estimate(context=1_048_576 - 1000, kv_dtype="bf16", kv_policy="all-full", tp=8)
    per_device = answer.results["kv_bytes_total_reserved"] / 8
    assert per_device == 1_048_576 * 24_576
    assert per_device / 2**30 == 24.0
    # 48 layers x 2 x 1 head x 128 x 2 B.
    assert 48 * 2 * 128 * 2 == 24_576


def test_all_layers_whole_as_in_the_comparison_of_sizes() -> None:
    """196.8 and 98.4 GB at 1M + 1,000 tokens in bf16 and fp8, 493.5 and 246.7 GB for 10 users of 250k."""
    for kv, context, users, gigabytes in (
        ("bf16", "1M", 1, 196.8), ("fp8", "1M", 1, 98.4), ("bf16", "250k", 10, 493.5), ("fp8", "250k", 10, 246.7),
    ):  # fmt: skip
        answer = llmcap.estimate(context=context, users=users, kv_dtype=kv, kv_policy="all-full")
        assert answer.results["kv_bytes_total_reserved"] / 1e9 == pytest.approx(gigabytes, abs=0.06)


def test_scout_takes_ten_million_tokens() -> None:
    answer = llmcap.estimate(model="llama-4-scout", context="10M")
    assert answer.fits
    assert answer.results["kv_bytes_total"] == 2 * 8 * 128 * (12 * 10_001_000 + 36 * 8_192)
