"""Parameter counts of the shipped models against what their publishers state."""

from __future__ import annotations

import math

import pytest

from llmcap.arch.parameters import WeightDtypes, parameters_active, parameters_total, weight_bytes
from llmcap.arch.structure import structure_of
from llmcap.specs import registry
from llmcap.specs.model import Model

MODELS = registry.list_ids("model")


def model(name: str) -> Model:
    found: Model = registry.load("model", name).document
    return found


def near_a_rounded_count(value: float, published: int) -> bool:
    """Within 3 %, or within half of the last digit that the publisher gave (8B may be 7.5B to 8.5B)."""
    digits = str(published).rstrip("0")
    last = 10 ** (len(str(published)) - len(digits))
    # Billions are the unit of a name: 120B ends in a zero that is a digit.
    last = min(last, 10**9)
    return math.isclose(value, published, rel_tol=0.03) or abs(value - published) <= last / 2


@pytest.mark.parametrize("name", MODELS)
def test_total(name: str) -> None:
    m = model(name)
    if m.published is None or m.published.parameters_total is None:
        assert m.notes, "a model without a published total says why"
        return
    total = parameters_total(structure_of(m))
    if m.published.count == "exact":
        assert total == pytest.approx(m.published.parameters_total, rel=0.005)
    else:
        assert near_a_rounded_count(total, m.published.parameters_total)


@pytest.mark.parametrize("name", MODELS)
def test_active(name: str) -> None:
    """Publishers count a token's parameters with both ends of the vocabulary, with the head alone, or with neither."""
    m = model(name)
    if m.published is None or m.published.parameters_active is None:
        return
    s = structure_of(m)
    active, end = parameters_active(s), s.vocab * s.hidden
    published = m.published.parameters_active
    assert any(near_a_rounded_count(active - ends * end, published) for ends in (0, 1, 2))


# To the digit: totals of the checkpoints (safetensors metadata), Llama 4 by the text model's shapes.
EXACT = {
    "llama-4-maverick": 400_711_848_960,
    "llama-4-scout": 107_769_861_120,
    "llama-2-70b": 68_976_648_192,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-4b": 4_300_079_472 - 419_816_304,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "granite-4.0-h-small": 32_207_337_984,
    "nemotron-nano-9b-v2": 8_888_227_328,
    "jamba-v0.1": 51_570_323_328,
    "bloom": 176_247_271_424,
    "mpt-7b": 6_649_286_656,
    "gpt-j-6b": 6_050_882_784,
    "opt-6.7b": 6_658_473_984,
    "falcon-7b": 6_921_720_704,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "mistral-nemo": 12_247_782_400,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "dbrx": 131_596_523_520,
    "starcoder2-15b": 15_957_889_024,
}


@pytest.mark.parametrize("name", EXACT)
def test_total_to_the_digit(name: str) -> None:
    assert parameters_total(structure_of(model(name))) == EXACT[name]


def test_llama_4_active() -> None:
    assert parameters_active(structure_of(model("llama-4-maverick"))) == pytest.approx(17.185e9, abs=0.5e6)
    assert parameters_active(structure_of(model("llama-4-scout"))) == pytest.approx(17.173e9, abs=0.5e6)


def test_glm_4_5_checkpoint_holds_one_mtp_layer_with_its_own_ends() -> None:
    # 358,337,791,296 in the safetensors metadata of zai-org/GLM-4.5.
    m = model("glm-4.5")
    ends = 2 * m.vocab_size * m.hidden_size
    assert parameters_total(structure_of(m)) + m.parameters_apart["mtp"] + ends == pytest.approx(
        358_337_791_296, rel=1e-5
    )


# Sizes of the released files, GB (10^9 bytes).
WEIGHTS = [
    ("gpt-oss-120b", 65.2, 0.01),  # model card: checkpoint of 60.8 GiB
    ("gpt-oss-20b", 13.8, 0.01),  # model card: 12.8 GiB
    ("deepseek-v3", 673, 0.01),  # 671e9 of fp8, embedding and head in bf16; 85.3 GB on each of 8 GPUs with scales
    ("kimi-k2.5", 595, 0.01),  # repository size
    ("llama-3.1-70b", 141.1, 0.001),
    ("qwen1.5-moe-a2.7b", 28.6, 0.01),
]


@pytest.mark.parametrize(("name", "gigabytes", "tolerance"), WEIGHTS)
def test_weight_bytes(name: str, gigabytes: float, tolerance: float) -> None:
    m = model(name)
    dtypes = WeightDtypes(m.weight_dtype, tuple(m.weight_dtypes.items()), m.int4_group)
    assert weight_bytes(structure_of(m), dtypes) / 1e9 == pytest.approx(gigabytes, rel=tolerance)
