"""Import of config.json files: what is read, what is derived, what is refused."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmcap
from llmcap.arch.parameters import parameters_total
from llmcap.arch.state import state_bytes
from llmcap.arch.structure import structure_of
from llmcap.errors import DocumentError
from llmcap.specs import registry
from llmcap.specs.base import dangling, dump_document, load_document, uncovered
from llmcap.specs.huggingface import import_config, load_config, model_types
from llmcap.specs.model import Attention, Model

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "torch_dtype": "bfloat16", "architectures": ["LlamaForCausalLM"], "rope_theta": 500000.0, "hidden_act": "silu",
}  # fmt: skip
QWEN3: dict[str, Any] = {
    "model_type": "qwen3", "hidden_size": 2560, "num_hidden_layers": 36, "num_attention_heads": 32,
    "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 9728, "vocab_size": 151936,
    "max_position_embeddings": 40960, "tie_word_embeddings": True,
}  # fmt: skip
DEEPSEEK: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "intermediate_size": 18432, "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 8, "first_k_dense_replace": 3,
    "moe_layer_freq": 1, "topk_method": "noaux_tc", "vocab_size": 129280, "max_position_embeddings": 163840,
    "num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}  # fmt: skip
GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64,
    "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "vocab_size": 201088,
    "max_position_embeddings": 131072, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
    },
}  # fmt: skip
GEMMA3: dict[str, Any] = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 5376, "num_hidden_layers": 62, "num_attention_heads": 32,
        "num_key_value_heads": 16, "head_dim": 128, "intermediate_size": 21504, "sliding_window": 1024,
        "vocab_size": 262208, "max_position_embeddings": 131072,
    },
    "vision_config": {"hidden_size": 1152}, "mm_tokens_per_image": 256, "boi_token_index": 255999,
}  # fmt: skip


def bf16_bytes(model: Model, tokens: int) -> float:
    return float(state_bytes(structure_of(model), tokens, "bf16"))


def refusal(config: dict[str, Any]) -> str:
    with pytest.raises(DocumentError) as caught:
        import_config(config)
    return str(caught.value)


@pytest.mark.parametrize(
    ("config", "shipped"),
    [
        (LLAMA, "llama-3.1-8b"),
        (QWEN3, "qwen3-4b"),
        (DEEPSEEK, "deepseek-v3"),
        (GPT_OSS, "gpt-oss-20b"),
        (GEMMA3, "gemma-3-27b"),
    ],
)
def test_published_configs_give_the_shipped_shapes(config: dict[str, Any], shipped: str) -> None:
    got, want = import_config(config), registry.load("model", shipped).document
    for field in ("hidden_size", "vocab_size", "mixers", "ffns", "tie_embeddings", "weight_dtype", "weight_dtypes"):
        assert getattr(got, field) == getattr(want, field), field
    assert list(got.layer_sequence()) == list(want.layer_sequence())


@pytest.mark.parametrize(
    ("config", "shipped"), [(LLAMA, "llama-3.1-8b"), (DEEPSEEK, "deepseek-v3"), (GPT_OSS, "gpt-oss-20b")]
)
def test_an_imported_config_is_estimated_as_the_shipped_spec(
    config: dict[str, Any], shipped: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    asked: dict[str, Any] = {"hardware": "dgx-h200", "context": "32k", "users": 2}
    got, want = llmcap.estimate(model=str(path), **asked), llmcap.estimate(model=shipped, **asked)
    assert (got.results, got.tiers, got.phases) == (want.results, want.tiers, want.phases)


def test_imported_documents_are_sound_and_can_be_written(tmp_path: Path) -> None:
    for config in (LLAMA, QWEN3, DEEPSEEK, GPT_OSS, GEMMA3):
        model = import_config(config, name="some/Model-Name", source="there/config.json")
        assert (model.id, model.sources[0].kind, model.sources[0].ref) == ("model-name", "config", "there/config.json")
        assert uncovered(model) == [] and dangling(model) == []
        path = tmp_path / "model-name.yaml"
        path.write_text(dump_document(model), encoding="utf-8")
        assert load_document(path, Model) == model


# Totals of the checkpoints (safetensors or PyTorch files on the Hub).
FAMILIES: list[tuple[dict[str, Any], int]] = [
    ({"model_type": "qwen", "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32,
      "num_hidden_layers": 32, "kv_channels": 128, "vocab_size": 151936, "max_position_embeddings": 32768,
      "seq_length": 8192, "no_bias": True}, 7_721_324_544),
    ({"model_type": "chatglm", "padded_vocab_size": 65024, "num_layers": 28, "hidden_size": 4096,
      "ffn_hidden_size": 13696, "kv_channels": 128, "num_attention_heads": 32, "multi_query_attention": True,
      "multi_query_group_num": 2, "add_qkv_bias": True, "add_bias_linear": False, "seq_length": 8192}, 6_243_584_000),
    ({"model_type": "baichuan", "hidden_size": 5120, "intermediate_size": 13696, "num_hidden_layers": 40,
      "num_attention_heads": 40, "vocab_size": 125696, "model_max_length": 4096, "z_loss_weight": 0}, 13_896_668_160),
    ({"model_type": "internlm2", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
      "bias": False, "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 92544,
      "max_position_embeddings": 32768}, 7_737_708_544),
    ({"model_type": "exaone", "hidden_size": 4096, "intermediate_size": 14336, "num_layers": 32,
      "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 102400, "max_position_embeddings": 32768},
     7_818_448_896),
    ({"model_type": "glm", "hidden_size": 4096, "intermediate_size": 13696, "num_hidden_layers": 40, "head_dim": 128,
      "num_attention_heads": 32, "num_key_value_heads": 2, "vocab_size": 151552, "attention_bias": True,
      "max_position_embeddings": 131072}, 9_399_951_360),
    ({"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024},
     124_439_808),
    ({"model_type": "opt", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "ffn_dim": 16384,
      "vocab_size": 50272, "max_position_embeddings": 2048, "word_embed_proj_dim": 4096}, 6_658_473_984),
    ({"model_type": "falcon", "hidden_size": 4544, "num_hidden_layers": 32, "num_attention_heads": 71, "bias": False,
      "multi_query": True, "parallel_attn": True, "vocab_size": 65024, "max_position_embeddings": 2048}, 6_921_720_704),
]  # fmt: skip


@pytest.mark.parametrize(("config", "total"), FAMILIES, ids=[str(config["model_type"]) for config, _ in FAMILIES])
def test_families_meet_the_totals_of_their_checkpoints(config: dict[str, Any], total: int) -> None:
    assert parameters_total(structure_of(import_config(config))) == total


def test_cross_layer_attention_shares_caches() -> None:
    # Hunyuan-Large: 64 layers, two of them share one cache: 32 x 2 x 8 x 80 x 2 bytes.
    config = {
        "model_type": "hunyuan", "hidden_size": 6400, "intermediate_size": 18304, "num_hidden_layers": 64,
        "num_attention_heads": 80, "num_key_value_heads": 8, "num_experts": 16, "moe_topk": 1, "num_shared_expert": 1,
        "use_cla": True, "cla_share_factor": 2, "use_qk_norm": True, "vocab_size": 129024,
        "max_position_embeddings": 131072, "tie_word_embeddings": True, "use_mixed_mlp_moe": True,
    }  # fmt: skip
    model = import_config(config)
    assert bf16_bytes(model, 1) == 81_920
    assert parameters_total(structure_of(model)) == pytest.approx(389e9, rel=0.02)


def test_head_dim_is_read_not_guessed() -> None:
    # 36 x 8 x 128 x 2 x 2 bytes; hidden / heads = 80 would give 92,160 (a calculator's known mistake).
    assert bf16_bytes(import_config(QWEN3), 1) == 147_456
    without = {key: value for key, value in LLAMA.items() if key != "head_dim"}
    assert bf16_bytes(import_config(without), 1) == 131_072
    assert "head_dim" in refusal(LLAMA | {"num_attention_heads": 24, "hidden_size": 4100})


def test_layer_pattern_comes_from_the_model_type_when_layer_types_is_missing() -> None:
    gemma = import_config(GEMMA3)
    assert bf16_bytes(gemma, 131_072) == 8_192 * (10 * 131_072 + 52 * 1_024)
    oss = import_config(GPT_OSS)
    assert bf16_bytes(oss, 131_072) == 2 * 8 * 64 * 2 * (12 * 131_072 + 12 * 128)
    first, second = (oss.mixers[layer.mixers[0]] for layer in list(oss.layer_sequence())[:2])
    assert isinstance(first, Attention) and isinstance(second, Attention)
    assert (first.scope, second.scope) == ("sliding", "full")


def test_layer_types_go_before_the_pattern() -> None:
    kinds = ["full_attention"] * 23 + ["sliding_attention"]
    model = import_config(GPT_OSS | {"layer_types": kinds})
    assert bf16_bytes(model, 100_000) == 2 * 8 * 64 * 2 * (23 * 100_000 + 128)
    assert "24 layers" in refusal(GPT_OSS | {"layer_types": kinds[:3]})
    assert "did you mean" in refusal(GPT_OSS | {"layer_types": ["full_atention"] * 24})


def test_qwen_windows_count_only_when_switched_on() -> None:
    windowed = QWEN3 | {"sliding_window": 4096, "max_window_layers": 30}
    assert bf16_bytes(import_config(windowed | {"use_sliding_window": False}), 40_000) == 147_456 * 40_000
    on = bf16_bytes(import_config(windowed | {"use_sliding_window": True}), 40_000)
    assert on == 4_096 * (30 * 40_000 + 6 * 4_096)


def test_both_spellings_of_expert_keys() -> None:
    renamed = dict(GPT_OSS)
    renamed["num_experts"] = renamed.pop("num_local_experts")
    renamed["experts_per_token"] = renamed.pop("num_experts_per_tok")
    assert import_config(renamed).ffns == import_config(GPT_OSS).ffns
    assert "num_experts" in refusal(GPT_OSS | {"num_experts": 64})


def test_flat_and_nested_text_configs_are_the_same_model() -> None:
    flat = import_config(GEMMA3["text_config"])
    nested = import_config(GEMMA3)
    assert (flat.mixers, flat.layers, flat.weight_dtypes) == (nested.mixers, nested.layers, nested.weight_dtypes)


def test_multi_token_prediction_is_counted_apart() -> None:
    model = import_config(DEEPSEEK)
    assert parameters_total(structure_of(model)) == pytest.approx(671e9, rel=0.001)
    # DeepSeek-V3's README: 685B in the repository, 671B of the main model, 14B of MTP with its embedding and head.
    assert model.parameters_apart["mtp"] + 2 * 129_280 * 7_168 == pytest.approx(14e9, rel=0.05)


@pytest.mark.parametrize(
    ("quantization", "dtype", "attention"),
    [
        ({"quant_method": "fp8"}, "fp8", None),
        ({"quant_method": "fbgemm_fp8"}, "fp8", None),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "int4", None),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", None),
        (
            {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.*.self_attn*"]},
            "nvfp4", "bf16",
        ),
        ({"quant_method": "modelopt", "quantization": {"quant_algo": "FP8"}}, "fp8", None),
        ({"quant_method": "compressed-tensors", "format": "nvfp4-pack-quantized"}, "nvfp4", None),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
                "ignore": ["lm_head", "re:.*self_attn.*"],
            },
            "int4",
            "bf16",
        ),
    ],
)  # fmt: skip
def test_weight_dtype_from_quantization_config(quantization: dict[str, Any], dtype: str, attention: str | None) -> None:
    model = import_config(LLAMA | {"quantization_config": quantization})
    assert model.weight_dtype == dtype
    assert model.weight_dtypes.get("attention") == attention
    assert model.weight_dtypes["embedding"] == model.weight_dtypes["lm_head"] == "bf16"


def test_kept_layers_must_be_many_to_pin_a_class() -> None:
    one = {"quant_method": "fp8", "modules_to_not_convert": ["model.layers.0.self_attn.q_proj"]}
    assert "attention" not in import_config(LLAMA | {"quantization_config": one}).weight_dtypes
    all_layers = [f"model.layers.{i}.self_attn.q_proj" for i in range(32)]
    kept = {"quant_method": "fp8", "modules_to_not_convert": all_layers}
    assert import_config(LLAMA | {"quantization_config": kept}).weight_dtypes["attention"] == "bf16"


@pytest.mark.parametrize(
    "quantization",
    [{"quant_method": "hqq"}, {"quant_method": 7}, [], "fp8", {"quant_method": "modelopt", "quant_algo": "FP3"},
     {"quant_method": "awq", "bits": 3}, {"quant_method": "awq", "bits": 4, "group_size": "many"}],
)  # fmt: skip
def test_unknown_quantisation_is_refused(quantization: Any) -> None:
    if quantization == []:
        quantization = [1]
    assert "quantization_config" in refusal(LLAMA | {"quantization_config": quantization})


# Refusals by name ---------------------------------------------------------------------------------------------------


def test_unknown_model_type_is_refused_by_name() -> None:
    assert "'retnet'" in refusal(LLAMA | {"model_type": "retnet"})
    assert "did you mean 'qwen3'" in refusal(LLAMA | {"model_type": "qwen33"})
    assert "model_type: missing" in refusal({"hidden_size": 64})


@pytest.mark.parametrize(
    "key",
    [
        "sliding_window",
        "kv_share_groups",
        "attention_sink_tokens",
        "num_memory_layers",
        "cla_share_factor",
        "index_topk",
    ],
)
def test_a_key_that_may_change_state_or_compute_is_refused_by_name(key: str) -> None:
    text = refusal(LLAMA | {key: 4})
    assert key in text and ("not understood" in text or "no sliding layers" in text)


def test_switched_off_features_and_harmless_keys_pass() -> None:
    quiet = import_config(LLAMA | {"sliding_window": None, "kv_share_groups": False, "pad_token_id": 0})
    assert quiet.layers == import_config(LLAMA).layers
    assert "flavour" in import_config(LLAMA | {"flavour": "mild"}).notes


def test_encoder_decoders_are_refused() -> None:
    assert "encoder-decoder" in refusal(LLAMA | {"is_encoder_decoder": True})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hidden_size", -1), ("hidden_size", 0), ("hidden_size", "4096"), ("hidden_size", 10**30),
        ("hidden_size", 4096.0),
        ("hidden_size", None), ("hidden_size", [4096]), ("hidden_size", True), ("hidden_size", math.nan),
        ("num_hidden_layers", 10**6), ("num_hidden_layers", {}), ("num_key_value_heads", 5), ("vocab_size", math.inf),
        ("num_attention_heads", -32), ("tie_word_embeddings", "yes"), ("attention_bias", 1),
        ("max_position_embeddings", "128K"),
        ("torch_dtype", "float12"), ("torch_dtype", ["bfloat16"]), ("intermediate_size", [[1]]),
    ],
)  # fmt: skip
def test_hostile_values_name_the_key(key: str, value: Any) -> None:
    assert key in refusal(LLAMA | {key: value})


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
KEYS = sorted({key for config in (LLAMA, QWEN3, DEEPSEEK, GPT_OSS, GEMMA3, GEMMA3["text_config"]) for key in config})
MORE_KEYS = [
    "layer_types", "hybrid_override_pattern", "block_configs", "compress_ratios", "linear_attn_config",
    "attn_type_list",
    "layers_block_type", "moe_layers", "moe_layers_enum", "mlp_only_layers", "attn_config", "text_config", "gating",
    "sliding_window_pattern", "moe_layer_freq", "no_rope_layers", "mlp_layer_types", "ffn_mult", "attn_layer_indices",
]  # fmt: skip


@given(
    st.sampled_from([LLAMA, QWEN3, DEEPSEEK, GPT_OSS, GEMMA3, GEMMA3["text_config"]]),
    st.dictionaries(st.sampled_from(KEYS + MORE_KEYS), JUNK, max_size=4),
    st.sampled_from(["", *model_types()]),
)
def test_junk_ends_in_a_model_or_a_document_error(base: dict[str, Any], junk: dict[str, Any], kind: str) -> None:
    config = base | junk | ({"model_type": kind} if kind else {})
    try:
        model = import_config(config)
    except DocumentError as error:
        assert 0 < len(str(error)) < 2_400
    else:
        assert bf16_bytes(model, 1_000) >= 0


@given(st.dictionaries(st.text(max_size=12), JUNK, max_size=5))
def test_random_objects_are_refused_or_read(config: dict[str, Any]) -> None:
    with pytest.raises(DocumentError):
        import_config(config)


# Files --------------------------------------------------------------------------------------------------------------


def test_load_config_takes_a_file_or_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA), encoding="utf-8")
    by_folder, by_file = load_config(folder), load_config(folder / "config.json")
    assert by_folder == by_file and by_folder.id == "my-model"
    other = tmp_path / "org--Some_Model.json"
    other.write_text(json.dumps(QWEN3), encoding="utf-8")
    assert load_config(other).id == "some_model"


@pytest.mark.parametrize("content", [b"", b"{", b"[1, 2]", b"\xff\xfe{}", b'"llama"', b"[" * 100_000, b"{}"])
def test_files_that_are_no_config_are_refused(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(DocumentError, match=r"config\.json"):
        load_config(path)


def test_missing_file_is_a_document_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="cannot be read"):
        load_config(tmp_path / "nowhere.json")
