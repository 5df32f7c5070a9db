"""KV and state sizes that engines, vendors and calculators have published."""

from __future__ import annotations

import pytest

from llmcap.arch.state import bytes_per_token, constant_bytes, reserved_bytes, state_bytes
from llmcap.arch.structure import Parallelism, Structure, structure_of
from llmcap.errors import LlmcapError
from llmcap.specs import registry
from llmcap.specs.model import Model

MI = 1_048_576
GIB = 2**30


def structure(name: str) -> Structure:
    return structure_of(registry.load("model", name).document)


# One sequence of 1,048,576 tokens in bf16, GB with two digits: what each architecture keeps when windows stop at the
# window, chunks at the chunk and a latent counts once (formulas per family: GQA, DeepSeek-V2 2.1, Gemma 3 report,
# gpt-oss model card, transformers' Llama 4).
TRUTHS = [
    ("llama-3.1-70b", 343.60),
    ("llama-4-maverick", 52.75),
    ("deepseek-v3", 73.69),
    ("gemma-3-27b", 86.34),
    ("gpt-oss-120b", 38.66),
]


@pytest.mark.parametrize(("name", "gigabytes"), TRUTHS)
def test_five_architectures_at_a_million_tokens(name: str, gigabytes: float) -> None:
    assert float(state_bytes(structure(name), MI, "bf16")) / 1e9 == pytest.approx(gigabytes, abs=0.005)


# KV bytes per token in a 2-byte dtype. Shapes and the right formula from the data of the LMCache documentation's KV
# cache calculator (Apache-2.0): id, hidden, heads, layers, KV heads, head_dim, (latent, rope), CLA factor, bytes.
Row = tuple[str, int, int, int, int, int | None, tuple[int, int] | None, int, int]
LMCACHE: list[Row] = [
    ("meta-llama/Llama-3.1-8B-Instruct", 4096, 32, 32, 8, None, None, 1, 131072),
    ("meta-llama/Llama-3.1-70B-Instruct", 8192, 64, 80, 8, None, None, 1, 327680),
    ("mistralai/Mistral-7B-Instruct-v0.2", 4096, 32, 32, 8, None, None, 1, 131072),
    ("mistralai/Mistral-Large-Instruct-2407", 12288, 96, 88, 8, None, None, 1, 360448),
    ("lmsys/longchat-7b-16k", 4096, 32, 32, 32, None, None, 1, 524288),
    ("Sao10K/L3-8B-Lunaris-v1", 4096, 32, 32, 8, None, None, 1, 131072),
    ("meta-llama/Llama-3.2-3B-Instruct", 3072, 24, 28, 8, None, None, 1, 114688),
    ("deepseek-ai/DeepSeek-V3", 7168, 128, 61, 128, None, (512, 64), 1, 70272),
    ("deepseek-ai/DeepSeek-R1", 7168, 128, 61, 128, None, (512, 64), 1, 70272),
    ("meta-llama/Llama-3.1-405B", 16384, 128, 126, 8, None, None, 1, 516096),
    ("meta-llama/Llama-3.2-1B-Instruct", 2048, 32, 16, 8, None, None, 1, 32768),
    ("Qwen/Qwen3-32B", 5120, 64, 64, 8, 128, None, 1, 262144),
    ("Qwen/Qwen3-14B", 5120, 40, 40, 8, 128, None, 1, 163840),
    ("Qwen/Qwen3-8B", 4096, 32, 36, 8, 128, None, 1, 147456),
    ("Qwen/Qwen3-4B", 2560, 32, 36, 8, 128, None, 1, 147456),
    ("Qwen/Qwen3-0.6B", 1024, 16, 28, 8, 128, None, 1, 114688),
    ("Qwen/Qwen2.5-7B-Instruct", 3584, 28, 28, 4, None, None, 1, 57344),
    ("Qwen/Qwen2.5-3B-Instruct", 2048, 16, 36, 2, None, None, 1, 36864),
    ("Qwen/Qwen2.5-0.5B", 896, 14, 24, 2, None, None, 1, 12288),
    ("Qwen/Qwen-7B", 4096, 32, 32, 32, None, None, 1, 524288),
    ("zai-org/GLM-4.5", 5120, 96, 92, 8, 128, None, 1, 376832),
    ("zai-org/GLM-4.6", 5120, 96, 92, 8, 128, None, 1, 376832),
    ("Qwen/Qwen3-30B-A3B-Instruct-2507", 2048, 32, 48, 4, 128, None, 1, 98304),
    ("Qwen/Qwen3-235B-A22B-Thinking-2507", 4096, 64, 94, 4, 128, None, 1, 192512),
    ("tencent/Hunyuan-0.5B-Instruct", 1024, 16, 24, 8, 128, None, 1, 98304),
    ("tencent/Hunyuan-1.8B-Instruct", 2048, 16, 32, 4, 128, None, 1, 65536),
    ("tencent/Hunyuan-4B-Instruct", 3072, 32, 36, 8, 128, None, 1, 147456),
    ("tencent/Hunyuan-7B-Instruct", 4096, 32, 32, 8, 128, None, 1, 131072),
    ("tencent/Hunyuan-A13B-Instruct", 4096, 32, 32, 8, 128, None, 1, 131072),
    ("tencent/Hunyuan-Large", 6400, 80, 64, 8, None, None, 2, 81920),
    ("Qwen/Qwen3-Coder-480B-A35B-Instruct", 6144, 96, 62, 8, 128, None, 1, 253952),
]
NOT_SHIPPED = {
    "tencent/Hunyuan-1.8B-Instruct",
    "tencent/Hunyuan-4B-Instruct",
    "tencent/Hunyuan-7B-Instruct",
}


@pytest.mark.parametrize("row", LMCACHE, ids=[row[0] for row in LMCACHE])
def test_bytes_per_token_of_the_lmcache_table(row: Row) -> None:
    name, hidden, heads, layers, kv_heads, head_dim, latent, shared_by, expected = row
    if latent is None:
        width = head_dim or hidden // heads
        own = {"kind": "attention", "heads": heads, "kv_heads": kv_heads, "head_dim": width}
    else:
        own = {
            "kind": "mla", "heads": heads, "kv_lora_rank": latent[0], "qk_rope_head_dim": latent[1],
            "qk_nope_head_dim": 128, "v_head_dim": 128,
        }  # fmt: skip
    mixers = {"own": own} | ({"reused": own | {"owns_kv": False}} if shared_by > 1 else {})
    block = [{"mixer": "own"}, *[{"mixer": "reused"}] * (shared_by - 1)]
    model = Model.model_validate(
        {
            "schema": "llmcap.model/1", "id": "row", "name": name, "max_context": MI, "hidden_size": hidden,
            "vocab_size": 1, "mixers": mixers, "layers": [{"repeat": layers // shared_by, "block": block}],
        }
    )  # fmt: skip
    for tokens in (1, MI):
        assert float(bytes_per_token(structure_of(model), tokens, "bf16")) == expected


@pytest.mark.parametrize("row", LMCACHE, ids=[row[0] for row in LMCACHE])
def test_shipped_models_agree_with_the_lmcache_table(row: Row) -> None:
    if row[0] in NOT_SHIPPED:
        with pytest.raises(LlmcapError):
            registry.load("model", row[0])
        return
    assert float(bytes_per_token(structure(row[0]), 8_192, "bf16")) == row[-1]


# Growing bytes of one sequence of 1,048,576 tokens, bf16 (vLLM announcement of DeepSeek-V4: 9.62 GiB against 83.9 GiB
# for a V3.2-style stack; the exact figures are the formula's).
def test_deepseek_v4_against_v32_at_a_million_tokens() -> None:
    v4, v32 = structure("deepseek-v4-pro"), structure("deepseek-v3.2")
    assert float(state_bytes(v32, MI, "bf16")) / GIB == pytest.approx(83.87, abs=0.01)
    ring = 61 * 128 * 512 * 2
    growing = float(state_bytes(v4, MI, "bf16")) - constant_bytes(v4, "bf16") - ring
    assert growing / GIB == pytest.approx(9.617, abs=0.001)
    assert growing / float(state_bytes(v32, MI, "bf16")) == pytest.approx(0.115, abs=0.001)


def test_deepseek_v4_keeps_rings_and_compressor_states() -> None:
    # vLLM models/deepseek_v4: 61 rings of 128 x 512 bf16, 30 CSA compressors of 64 + 16 KiB, 31 HCA ones of 512 KiB.
    v4 = structure("deepseek-v4-pro")
    compressors = 30 * 80 * 1024 + 31 * 512 * 1024
    assert constant_bytes(v4, "bf16") == compressors
    # 26.7 MB with the bf16 rings; short of one compressed record only the ring grows.
    assert compressors + 61 * 128 * 1024 == pytest.approx(26.7e6, rel=0.003)
    assert float(state_bytes(v4, 3, "bf16")) == compressors + 61 * 3 * 1024


# Engine records in fp8: vLLM's fp8_ds_mla of 656 bytes and index keys of 132 (capacity note for GLM-5: 61,464 B).
@pytest.mark.parametrize(
    ("name", "per_token"),
    [("glm-5", 61_464), ("glm-5.1", 61_464), ("glm-5.2", 78 * 656 + 21 * 132), ("deepseek-v3.2", 48_068)],
)
def test_reserved_records_of_sparse_latent_attention(name: str, per_token: int) -> None:
    tokens = 131_072
    held = float(reserved_bytes(structure(name), tokens, "fp8", Parallelism(), block=64))
    assert held == per_token * tokens


def test_logical_bytes_leave_engine_records_out() -> None:
    # 576 bytes of latent and 128 + 4 of index key a layer; the 656-byte record belongs to what is reserved.
    assert float(bytes_per_token(structure("deepseek-v3.2"), 1, "fp8")) == 61 * (576 + 132)
    assert float(bytes_per_token(structure("glm-5"), 1, "bf16")) == 78 * (576 + 128) * 2


@pytest.mark.parametrize(
    ("name", "bf16_per_token"),
    [
        ("qwen3-next-80b-a3b", 24_576),
        ("kimi-linear-48b", 8_064),
        ("granite-4.0-h-small", 16_384),
        ("jamba-1.5-large", 36_864),
        ("minimax-m1", 40_960),
        ("gemma-4-31b", 81_920),
        ("gemma-4-e4b", 16_384),
        ("gemma-3n-e4b", 8_192),
        ("step-3", 62_464),
        ("longcat-flash", 64_512),
        ("qwen3.5-397b-a17b", 30_720),
        ("falcon-7b", 8_192),
        ("nemotron-super-49b", 200_704),
        ("nemotron-3-nano-30b-a3b", 6_144),
        ("deepseek-v4-pro", 9_848),
        ("minimax-m3", 137_472),
    ],
)
def test_growth_far_past_every_window(name: str, bf16_per_token: int) -> None:
    """Growth from 65,536 to 1,048,576 tokens (vLLM state shapes of each family applied to the published configs)."""
    s = structure(name)
    grown = float(state_bytes(s, MI, "bf16")) - float(state_bytes(s, 65_536, "bf16"))
    assert grown == bf16_per_token * (MI - 65_536)


def test_recurrent_states_of_published_sizes() -> None:
    # openvino.genai issue 3968: about 51 MiB per state checkpoint of Qwen3.5-9B: 24 layers of [32, 128, 128] in fp32.
    assert constant_bytes(structure("qwen3.5-9b"), "bf16") / 2**20 == pytest.approx(51, rel=0.04)
    # Kimi Linear report: up to 75 % less KV than 27 latent layers.
    assert pytest.approx(0.75, abs=0.01) == 1 - 8_064 / (27 * 576 * 2)
    assert constant_bytes(structure("kimi-linear-48b"), "bf16") == 20 * (32 * 128**2 * 4 + 3 * 4096 * 3 * 2)
    # 77.3 MB in fp32 for Qwen3-Next, 152.8 MB for Granite 4 H Small, 293.6 MB for MiniMax-M1 (states in fp32).
    for name, megabytes in (("qwen3-next-80b-a3b", 77.3), ("granite-4.0-h-small", 152.8), ("minimax-m1", 293.6)):
        assert constant_bytes(structure(name), "bf16") / 1e6 == pytest.approx(megabytes, abs=0.06)


def test_mla_latent_is_copied_to_every_tensor_parallel_rank() -> None:
    # vllm-project/recipes 115: Kimi K2 with TP 8 gives up 8 x 70,272 bytes per token.
    held = reserved_bytes(structure("kimi-k2"), 131_072, "bf16", Parallelism(tp=8))
    assert float(held) == 8 * 70_272 * 131_072


def test_llama_4_keeps_whole_caches_without_a_hybrid_manager() -> None:
    # vLLM issue 16118: 24.00 GiB per GPU of eight for 1,048,576 tokens of Maverick, all 48 layers kept.
    held = reserved_bytes(structure("llama-4-maverick"), MI, "bf16", Parallelism(tp=8), policy="all-full")
    assert float(held) / 8 == 25_769_803_776


def test_rings_stay_rings_and_convolutions_divide_by_heads() -> None:
    """Keeping layers whole lengthens no ring of DeepSeek-V4; Granite's one Mamba group is copied, heads are not."""
    v4 = structure("deepseek-v4-pro")
    whole, windowed = (
        float(reserved_bytes(v4, MI, "bf16", Parallelism(), policy=policy)) for policy in ("all-full", "hybrid")
    )
    assert whole == windowed
    granite = structure("granite-4.0-h-small")
    one, eight = (float(reserved_bytes(granite, 16, "bf16", Parallelism(tp=tp))) for tp in (1, 8))
    # Seven more copies of B and C: 36 layers x 2 x 128 x 3 inputs x 2 bytes.
    assert eight - one == 7 * 36 * 2 * 128 * 3 * 2
