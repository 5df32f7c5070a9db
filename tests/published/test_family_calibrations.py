"""Families without kernel rows against the published benchmarks that their calibrations come from.

Sources stand in hardware/calibration/{cdna3,cdna4,ampere,ada,blackwell-rtx}.yaml. Rates are TFLOP/s, bandwidths those
of the bus in GB/s.
"""

from __future__ import annotations

import numpy as np
import pytest

import llmcap
from llmcap.engine import collectives, kernels
from llmcap.specs.calibration import CalibrationDocument
from llmcap.specs.hardware import Device
from llmcap.specs.registry import load_as


def device(name: str) -> tuple[Device, CalibrationDocument]:
    found = load_as(Device, "device", name).document
    return found, load_as(CalibrationDocument, "calibration", found.calibration).document


@pytest.mark.parametrize(
    ("name", "dtype", "size", "measured", "tolerance"),
    [
        ("mi300x", "fp8", 4096, 955.2, 0.10),  # Azure's benchmarking guide, hipBLASLt
        ("mi300x", "fp8", 8192, 1159.2, 0.10),
        ("mi300x", "fp8", 32768, 1029.1, 0.20),
        ("mi355x", "bf16", 8192, 1605.5, 0.10),  # HipKittens, AITER
        ("mi355x", "bf16", 16384, 1601.1, 0.05),
        ("mi355x", "fp8", 4096, 2780.5, 0.10),  # HipKittens, hipBLASLt
        ("mi355x", "fp8", 16384, 3308.2, 0.10),
        ("a100-80gb", "bf16", 2048, 221.8, 0.05),  # Azure's benchmarking guide, cuBLASLt
        ("a100-80gb", "bf16", 4096, 228.0, 0.10),
        ("a100-80gb", "bf16", 16384, 256.5, 0.05),
        ("rtx-4090", "bf16", 8192, 163.5, 0.05),  # hgemm-wmma
        ("rtx-5090", "bf16", 2048, 171.5, 0.05),  # torch-performance-test-data, cuBLAS
        ("rtx-5090", "bf16", 4096, 182.2, 0.10),
        ("rtx-5090", "bf16", 10240, 237.0, 0.15),  # its clock rises above the one of the data sheet
        ("rtx-pro-6000", "bf16", 4096, 399.9, 0.05),
        ("rtx-pro-6000", "bf16", 8192, 417.3, 0.05),
        ("rtx-pro-6000", "bf16", 10240, 387.0, 0.15),
    ],
)
def test_square_products(name: str, dtype: str, size: int, measured: float, tolerance: float) -> None:
    spec, fitted = device(name)
    fit, width = fitted.gemm[dtype], {"fp8": 1.0, "bf16": 2.0}[dtype]  # type: ignore[index]
    rates = kernels.DeviceRates(spec.peaks[dtype], spec.memory.bandwidth, spec.compute_units)  # type: ignore[index]
    n = float(size)
    cost = kernels.gemm(
        n, k=n, n=n, weight_bytes=n * n * width, bytes_per_row=n * (width + 2.0), rates=rates,
        params=kernels.GemmParams(fit.t0, fit.e, fit.x0, fit.w, fit.a, fit.low, fit.high),
    )  # fmt: skip
    assert 2.0 * n**3 / float(np.asarray(cost.serial)) / 1e12 == pytest.approx(measured, rel=tolerance)


@pytest.mark.parametrize(
    ("name", "batch", "heads", "kv_heads", "tokens", "measured", "tolerance"),
    [
        ("mi300x", 16, 16, 16, 16384, 494.0, 0.05),  # M. Reshadi 2026, AITER
        ("mi355x", 16, 64, 8, 1024, 715.3, 0.10),  # HipKittens, AITER
        ("mi355x", 16, 64, 8, 4096, 1102.4, 0.10),
        ("mi355x", 16, 64, 8, 16384, 1252.4, 0.10),
        ("a100-80gb", 16, 32, 32, 1024, 143.7, 0.10),  # GPU_travel, FlashAttention-2
        ("a100-80gb", 1, 32, 8, 4096, 159.4, 0.05),
    ],
)
def test_causal_attention_in_bf16(
    name: str, batch: int, heads: int, kv_heads: int, tokens: int, measured: float, tolerance: float
) -> None:
    spec, fitted = device(name)
    fit, peak = fitted.prefill_attention["bf16"], spec.peaks["bf16"]
    tiles = kernels.query_tiles(peak, spec.compute_units)
    flop = 4.0 * batch * heads * 128 * tokens**2 / 2
    cost = kernels.prefill_attention(
        flop, float(tokens), batch * tokens * 128.0 * (heads * 4.0 + kv_heads * 4.0), 1.0, dims=256.0,
        rates=kernels.DeviceRates(peak, spec.memory.bandwidth, spec.compute_units, tiles),
        params=kernels.AttentionParams(fit.t0, fit.e, fit.tail, fit.w, fit.low, fit.high),
    )  # fmt: skip
    assert flop / float(np.asarray(cost.serial)) / 1e12 == pytest.approx(measured, rel=tolerance)


@pytest.mark.parametrize(
    ("name", "link", "mebibytes", "bus", "tolerance"),
    [
        ("mi300x", 448e9, 16, 171.5, 0.05),  # RCCL, Azure's benchmarking guide
        ("mi300x", 448e9, 1024, 313.9, 0.05),
        ("a100-80gb", 300e9, 64, 166.6, 0.15),  # NCCL, the same
        ("a100-80gb", 300e9, 1024, 228.1, 0.12),
    ],
)
def test_all_reduce_of_eight(name: str, link: float, mebibytes: int, bus: float, tolerance: float) -> None:
    fit = device(name)[1].collectives.all_reduce
    size = mebibytes * 2.0**20
    params = collectives.CollectiveParams(
        fit.alpha, fit.alpha_log2, fit.beta, fit.low, fit.high, two_shot=fit.two_shot, in_switch=fit.in_switch
    )
    cost = collectives.all_reduce(size, 8, 1.0, fabric=collectives.Fabric(link), params=params)
    assert 2 * 7 / 8 * size / float(np.asarray(cost.network)) / 1e9 == pytest.approx(bus, rel=tolerance)


def test_decode_on_mi300x_as_amd_measured() -> None:
    """Llama 3.1 70B FP8 on 8 x MI300X, 128 in, 2,048 out, one at a time: 15.6, 17.2, 15.9 s (vLLM 0.8, 0.9, 0.10)."""
    answer = llmcap.estimate(
        model="llama-3.1-70b", hardware="mi300x-8x", weight_dtype="fp8", kv_dtype="fp8", context=128, output_tokens=2048
    )
    assert answer.results["e2el_s"] == pytest.approx(16.2, rel=0.08)


@pytest.mark.parametrize(
    ("model", "engine", "dtype", "rate"),
    [
        ("llama-3.1-8b", "sglang", "fp8", 20.5),
        ("llama-3.1-70b", "sglang", "fp8", 2.7),
        ("llama-3.1-8b", "tensorrt-llm", "nvfp4", 38.65),
    ],
)
def test_decode_on_a_dgx_spark(model: str, engine: str, dtype: str, rate: float) -> None:
    """One user, 2,048 tokens in, 128 out, as tables of 2025 and 2026 have it."""
    answer = llmcap.estimate(
        model=model, hardware="dgx-spark", engine=engine, weight_dtype=dtype, context=2048, output_tokens=128
    )
    assert 1.0 / answer.results["tpot_s"] == pytest.approx(rate, rel=0.25)


def test_an_answer_says_how_little_was_measured() -> None:
    def said(hardware: str) -> dict[str, str]:
        told = llmcap.estimate(model="llama-3.1-8b", hardware=hardware, devices=1, context="1k").to_dict()
        return {statement["name"]: statement["text"] for statement in told["assumptions"]}

    assert "Published benchmarks of the MI300X" in said("mi300x-8x")["kernels of the device"]
    assert "No kernel of" in said("gaudi3-8x")["kernels of the device"]
    assert "kernels of the device" not in said("dgx-h100")


@pytest.mark.parametrize("family", ["cdna3", "cdna4", "ampere", "ada", "blackwell-rtx"])
def test_what_is_called_carried_over_is_the_pooled_kernels(family: str) -> None:
    own, pooled = (load_as(CalibrationDocument, "calibration", name).document for name in (family, "generic"))
    whole = [fit for fit in own.fits if fit.note.startswith("carried over")]
    for fit in own.fits:
        if fit.operator not in ("gemm", "prefill_attention", "decode_attention", "moe") or fit.rows:
            continue
        mine, theirs = (getattr(doc, fit.operator)[fit.dtype].model_dump() for doc in (own, pooled))
        same = {name: mine[name] == theirs[name] for name in mine if name not in ("low", "high")}
        assert all(same.values()) == (fit in whole), (fit.operator, fit.dtype)
        assert (mine["low"], mine["high"]) != (theirs["low"], theirs["high"])
        if fit not in whole:
            changed, kept = fit.note.split(" as the sources say")
            assert set(changed.split(", ")) == {name for name, held in same.items() if not held}
            assert all(name in kept for name, held in same.items() if held)
