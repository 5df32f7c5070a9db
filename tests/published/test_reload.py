"""Reloads that others measured or worked out, one row each, against what llmcap predicts."""

from __future__ import annotations

import numpy as np
import pytest

import llmcap
from llmcap.analyses.offload.tier_table import tier_table
from llmcap.analyses.options import Options
from llmcap.analyses.paths import Tier
from llmcap.analyses.setting import resolve
from llmcap.engine.queueing import batch
from llmcap.engine.transfer import dense_break_even_rule, link_rate

# vLLM KV offloading connector post (2026-01), figure 1: Llama-3.1-8B in bf16 on one H100, PCIe Gen5 x16, a prefix in
# host memory. Tokens -> time to first token with the prefix reloaded [s], read off the plot, +-15 ms.
VLLM_CPU_OFFLOAD = {
    1_000: 0.016,
    10_000: 0.045,
    20_000: 0.073,
    30_000: 0.101,
    40_000: 0.129,
    50_000: 0.152,
    60_000: 0.190,
    70_000: 0.218,
    80_000: 0.246,
    90_000: 0.274,
    100_000: 0.312,
}
LLAMA_8B_BYTES_PER_TOKEN = 2 * 8 * 128 * 2 * 32

# The same post, DMA bandwidth of one H100 against block size. kB -> GB/s, read off the plot by eye; below 64 kB the
# fitted line of t0 = 3.15 us and 51.5 GB/s runs up to 16 % above it.
DMA_CURVE = {4: 1.1, 8: 2.3, 16: 4.3, 32: 7.5, 64: 14.5, 128: 22.8, 256: 31.8, 512: 39.5, 1024: 44.4, 2048: 47.8,
             4096: 49.8, 8192: 50.7, 16384: 51.2}  # fmt: skip

# Mooncake documentation, prefill-to-decode transfer of Qwen3-8B in bf16 between H800 servers, 8 NICs, 200 GB/s in all.
# Tokens -> transfer [s].
MOONCAKE_PD = {128: 0.00054, 1024: 0.0015, 8192: 0.00884, 32768: 0.03165}

# mingxin-kvcache-bench 1.0.0 (CC-BY-4.0, a vendor's): Qwen3-Coder-480B in fp8, caches on one Gen4 drive. Concurrent
# reloads -> median time to first token [s]; lengths are not told, so that only ratios can be compared.
ONE_DRIVE = {8: 10.17, 16: 17.31, 32: 35.73}


def dram(tokens: int) -> dict[str, object]:
    answer = llmcap.estimate(
        model="llama-3.1-8b", hardware="dgx-h100", devices=1, weight_dtype="bf16", context=tokens, output_tokens=1
    )
    return next(tier for tier in answer.tiers if tier["tier"] == "dram")


def host_path() -> tuple[Tier, float]:
    """Host memory of a DGX H100 for one device, and the rate of its link with the engine's block."""
    machine = resolve(Options(model="llama-3.1-8b", hardware="dgx-h100", devices=1)).machine
    tier = machine.tiers[0]
    return tier, link_rate(machine.device_link, tier.reload.block, ideal=False)


def test_vllm_cpu_offload_with_the_documented_profile() -> None:
    """Median under 10 %, every point within the reading error of the plot or 10 %."""
    errors = []
    for tokens, measured in VLLM_CPU_OFFLOAD.items():
        row = dram(tokens)
        assert row["reload_s"] == pytest.approx(measured, rel=0.10, abs=0.015)
        assert row["winner"] == "reload"
        errors.append(abs(float(row["reload_s"]) / measured - 1))  # type: ignore[arg-type]
    assert np.median(errors) < 0.02


def test_vllm_cpu_offload_from_the_block_curve_alone() -> None:
    """No software cost, 2 MB blocks at the rate of the DMA curve: the short reloads show what is missing."""
    tier, rate = host_path()
    assert tier.reload.block == 2e6
    errors = {n: n * LLAMA_8B_BYTES_PER_TOKEN / rate / t - 1 for n, t in VLLM_CPU_OFFLOAD.items()}
    assert np.median(np.abs(list(errors.values()))) < 0.25
    assert errors[1_000] < -0.5


@pytest.mark.parametrize("kilobytes", DMA_CURVE)
def test_dma_rate_against_block_size(kilobytes: int) -> None:
    link = resolve(Options(model="llama-3.1-8b", hardware="dgx-h100", devices=1)).machine.device_link
    rate = link_rate(link, kilobytes * 1024, ideal=False) / 1e9
    assert rate == pytest.approx(DMA_CURVE[kilobytes], rel=0.03 if kilobytes >= 64 else 0.17)


@pytest.mark.parametrize("tokens", MOONCAKE_PD)
def test_prefill_to_decode_transfers(tokens: int) -> None:
    answer = llmcap.estimate(
        model="qwen3-8b", hardware="h800-8x", weight_dtype="bf16", context=tokens, output_tokens=1,
        tiers=("remote-hbm:640 GB:200 GB/s:through=peer",),
    )  # fmt: skip
    row = answer.tiers[-1]
    assert row["tier"] == "remote-hbm"
    assert row["reload_s"] == pytest.approx(MOONCAKE_PD[tokens], rel=0.10)


@pytest.mark.parametrize("discipline", ["sharing", "fcfs"])
def test_concurrent_reloads_from_one_drive_grow_as_measured(discipline: str) -> None:
    """Ratios from 8 to 16 to 32 within 20 %, whichever way the drive is shared."""
    table = tier_table(
        model="qwen3-coder-480b-a35b", hardware="mi300x-8x", weight_dtype="fp8", context="32k", users="8,16,32",
        output_tokens=1, drive="nvme-m2-4tb-gen4", drives=1, discipline=discipline,
    )  # fmt: skip
    found = {row["users"]: row["reload_mean_s"] for row in table.rows if row["tier"] == "nvme"}
    for few, many in ((8, 16), (16, 32), (8, 32)):
        assert found[many] / found[few] == pytest.approx(ONE_DRIVE[many] / ONE_DRIVE[few], rel=0.20)


def test_a_queue_explains_the_measured_ratios_better_than_sharing() -> None:
    """Medians of 8, 16, 32 requests in a row stand at (N + 1) / 2 services: 1.89 and 1.94, measured 1.70 and 2.06."""
    mean = {n: float(batch(n, 1.0, "fcfs")[0]) for n in ONE_DRIVE}
    assert mean[16] / mean[8] == pytest.approx(ONE_DRIVE[16] / ONE_DRIVE[8], rel=0.12)
    assert mean[32] / mean[16] == pytest.approx(ONE_DRIVE[32] / ONE_DRIVE[16], rel=0.06)


def test_mooncake_rule() -> None:
    """FAST 2025, eq. 2; the paper rounds its worked values to 6 and 19 GB/s."""
    rates = [
        dense_break_even_rule(8 * peak, 8192, 8192, element=2, gqa=8, pairs=4, matrices=22) / 1e9
        for peak in (312e12, 989e12)
    ]
    assert rates == pytest.approx([5.86, 18.57], abs=0.005)


def test_break_even_at_full_peak_is_the_published_rule() -> None:
    """Llama-3.1-70B counts the causal half (a = 2) and 2 (2 + 2/8 + 3 x 3.5) = 25.5 d^2 FLOP a token and layer.

    312 TFLOP/s is the bf16 peak of the A100 at which `ideal` computes.
    """
    table = tier_table(
        model="llama-3.1-70b", hardware="dgx-a100-80gb", assumptions="ideal", context=8192, output_tokens=1
    )
    rule = dense_break_even_rule(8 * 312e12, 8192, 8192, element=2, gqa=8, pairs=2, matrices=25.5)
    assert table.rows[-1]["break_even_bytes_per_s"] == pytest.approx(rule, rel=1e-3)


@pytest.mark.parametrize(("context", "published"), [("32k", 18e9), ("128k", 7.8e9), ("1M", 1.6e9)])
def test_break_even_of_maverick_at_half_the_peak(context: str, published: float) -> None:
    """fp8 products and bf16 attention at 50 %: half of the break-even at full peak, since compute bounds there.

    The published values are rounded to two digits.
    """
    table = tier_table(assumptions="ideal", attention_dtype="bf16", context=context)
    assert table.rows[-1]["break_even_bytes_per_s"] / 2 == pytest.approx(published, rel=0.05)


def test_effective_rate_of_one_pcie_gen5_link() -> None:
    """LMCache issue 1740: 1.3747 GiB from host memory to one H100 in 33.43 ms, 44.2 GB/s."""
    measured = 1.3747 * 2**30 / 33.43e-3
    assert dram(10_000)["effective_read_bytes_per_s"] == pytest.approx(measured, rel=0.05)
