"""Weights and caches, added up over the devices that hold them."""

from __future__ import annotations

import pytest

import llmcap

#: (model, published size of its released weights [B], where from, tolerance)
SIZES = [
    ("deepseek-v3", 671.0e9, "671 B parameters, FP8 but for the ends of the network (DeepSeek-V3 report)", 0.01),
    ("gpt-oss-120b", 65.2e9, "safetensors of openai/gpt-oss-120b: 60.8 GiB of MXFP4 experts and bf16 rest", 0.03),
    ("llama-4-maverick", 400.7e9, "400.7 B parameters at one byte, the ends in bf16", 0.01),
]


@pytest.mark.parametrize(("model", "size", "source", "tolerance"), SIZES)
def test_released_weights_have_their_published_size(model: str, size: float, source: str, tolerance: float) -> None:
    found = llmcap.estimate(model=model, hardware="dgx-b200", context="8k").results["weight_bytes"]
    assert found == pytest.approx(size, rel=tolerance), source


@pytest.mark.parametrize("model", ["deepseek-v3", "gpt-oss-120b", "llama-4-maverick", "llama-4-scout"])
@pytest.mark.parametrize(
    ("devices", "tp", "dp", "ep", "copies_of_experts"),
    [(1, 1, 1, 1, 1), (8, 8, 1, 1, 1), (8, 8, 1, 8, 1), (16, 8, 2, 16, 1), (16, 8, 2, 1, 2)],
)
def test_devices_hold_the_whole_model_and_what_is_copied(
    model: str, devices: int, tp: int, dp: int, ep: int, copies_of_experts: int
) -> None:
    """All devices together hold the experts once per copy and the rest at least once per replica.

    What tensor parallelism cannot divide (routers, latents, norms) is on every rank: a few per cent at most.
    """
    options = {"model": model, "hardware": "dgx-b200", "context": "4k"}
    alone = llmcap.estimate(**options, devices=1, tp=1).results
    spread = llmcap.estimate(**options, devices=devices, tp=tp, dp=dp, ep=ep).results
    assert spread["weight_bytes"] == alone["weight_bytes"] == alone["weight_bytes_per_device"]
    experts = _expert_bytes(model)
    rest = alone["weight_bytes"] - experts
    least = copies_of_experts * experts + dp * rest
    held = devices * spread["weight_bytes_per_device"]
    assert least * (1 - 1e-12) <= held <= least + 0.08 * dp * rest + 0.02 * alone["weight_bytes"]


def _expert_bytes(model: str) -> float:
    """Routed experts by hand from the document: layers x experts x 3 matrices x hidden x width x bytes."""
    spec = llmcap.load_model(model)
    counts = spec.ffn_counts()
    width = {"fp8": 1.0, "mxfp4": 0.53125, "bf16": 2.0}
    total = 0.0
    for name, block in spec.ffns.items():
        if block.kind == "moe":
            dtype = spec.weight_dtypes.get("expert", spec.weight_dtype)
            hidden = block.latent or spec.hidden_size
            total += counts[name] * block.experts * 3 * hidden * block.intermediate * width[dtype]
    return total


@pytest.mark.parametrize(("model", "heads"), [("llama-4-maverick", 8), ("gpt-oss-120b", 8), ("deepseek-v3", 1)])
@pytest.mark.parametrize("tp", [1, 4, 8])
def test_reserved_caches_are_the_logical_ones_times_their_copies(model: str, heads: int, tp: int) -> None:
    """KV heads divide until one is left; a latent (one head) is copied to every rank. 16-token blocks divide 8,192."""
    r = llmcap.estimate(
        model=model, hardware="dgx-b200", devices=tp, tp=tp, context=8191, output_tokens=1, kv_dtype="bf16", users=3
    ).results
    assert r["kv_bytes_total_reserved"] == pytest.approx(r["kv_bytes_total"] * max(tp / heads, 1), rel=1e-12)


def test_cxl_modules_make_a_tier() -> None:
    """Eight modules of 256 GB and 31.5 GB/s; 0.85 of that is reached by host memory: 8 x 26.775 = 214.2 GB/s."""
    answer = llmcap.estimate(expander="micron-cz120-256gb", expanders=8, context="128k", users=4)
    tier = next(t for t in answer.tiers if t["tier"] == "cxl")
    assert [t["tier"] for t in answer.tiers] == ["hbm", "dram", "nvme", "cxl"]
    assert tier["capacity_bytes"] == 8 * 256e9
    assert tier["read_bytes_per_s"] == pytest.approx(252e9)
    assert tier["effective_read_bytes_per_s"] == pytest.approx(214.2e9)
    with pytest.raises(llmcap.OptionError, match="expander"):
        llmcap.estimate(expanders=8)
