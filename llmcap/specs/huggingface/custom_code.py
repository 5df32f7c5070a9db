"""Families whose configuration class came with their weights: ChatGLM, Baichuan, Qwen 1, MiniCPM3, Hunyuan-Large."""

from __future__ import annotations

from typing import Any, Final

from llmcap.specs.huggingface.config import HEADS, INTERMEDIATE, Config
from llmcap.specs.huggingface.draft import Draft, Part, start
from llmcap.specs.huggingface.latent import mla
from llmcap.specs.huggingface.ordinary import LLAMA, Traits, dense, layer_count, mixture, ordinary, softmax


def chatglm(c: Config) -> Draft:
    """ChatGLM2 and 3, GLM-4-9B as first released: multi_query_group_num KV heads of kv_channels."""
    renamed = {"vocab_size": c.optional("padded_vocab_size"), "max_position_embeddings": c.optional("seq_length")}
    flat = Config({**c.data, **{k: v for k, v in renamed.items() if v}}, c.file, c.outer, c.path)
    d = start(flat)
    heads = c.count(*HEADS)
    shared = c.flag("multi_query_attention")
    mixer: Part = {
        "kind": "attention",
        "heads": heads,
        "kv_heads": c.count("multi_query_group_num") if shared else heads,
        "head_dim": c.count("kv_channels"),
    }
    if c.flag("add_bias_linear"):
        c.fail("add_bias_linear", "biases of all matrices are not understood")
    if c.flag("add_qkv_bias"):
        mixer["qkv_bias"] = True
    c.skip("multi_query_group_num", "vocab_size", "max_position_embeddings", "hidden_size", "tie_word_embeddings")
    c.skip("apply_query_key_layer_scaling", "apply_residual_connection_post_layernorm", "fp32_residual_connection")
    c.skip("bias_dropout_fusion", "post_layer_norm", "rmsnorm", "original_rope", "interleaved_qkv", "pre_seq_len")
    c.skip("prefix_projection", "quantization_bit", "padded_vocab_size")
    block = dense(c, LLAMA)
    for _ in range(layer_count(c)):
        d.layer(d.mixer("attention", mixer), d.ffn("dense", block))
    return d


def qwen1(c: Config) -> Draft:
    """The first Qwen: MHA with biases of q, k and v; intermediate_size counts both halves of the gated block."""
    d = start(c)
    heads = c.count(*HEADS)
    mixer: Part = {
        "kind": "attention", "heads": heads, "kv_heads": heads,
        "head_dim": c.optional("kv_channels") or d.hidden // heads, "qkv_bias": True,
    }  # fmt: skip
    c.skip("use_cache_quantization", "use_cache_kernel", "use_dynamic_ntk", "use_logn_attn", "no_bias", "fp32")
    c.skip("softmax_in_fp32", "seq_length")
    width = c.count(*INTERMEDIATE)
    if width % 2:
        c.fail("intermediate_size", "must be even: it counts gate and up together")
    block: Part = {"kind": "dense", "intermediate": width // 2}
    for _ in range(layer_count(c)):
        d.layer(d.mixer("attention", mixer), d.ffn("dense", block))
    return d


def minicpm3(c: Config) -> Draft:
    """MiniCPM3: latent attention with dense blocks; the value width is hidden over heads unless given."""
    heads = c.count(*HEADS)
    width = c.optional("v_head_dim") or c.count("hidden_size") // heads
    d = start(c, tied=True)
    mixer = mla(Config({**c.data, "v_head_dim": width}, c.file, c.outer, c.path))
    c.skip("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "attention_bias", "head_dim")
    c.skip("num_key_value_heads", "dim_model_base", "scale_depth", "scale_emb", "mup_denominator")
    block = dense(c, LLAMA)
    for _ in range(layer_count(c)):
        d.layer(d.mixer("mla", mixer), d.ffn("dense", block))
    return d


def hunyuan_large(c: Config) -> Draft:
    """Hunyuan-Large: cross-layer attention, where cla_share_factor layers in a row share one cache."""
    d = start(c, tied=True)
    layers = layer_count(c)
    c.skip("use_mixed_mlp_moe", "moe_drop_tokens", "moe_random_routing_dropped_token", "capacity_factor")
    c.skip("moe_intermediate_size", "attention_head_dim")
    own = softmax(c, d.hidden, Traits(qk_norm="head", qk_norm_on=False))
    factor = c.count("cla_share_factor", default=1, most=layers) if c.flag("use_cla") else 1
    c.skip("cla_share_factor")
    width = c.count(*INTERMEDIATE)
    shared = (c.optional("num_shared_expert", minimum=0) or 0) * width
    block = mixture(c, width=width, shared=shared)
    for i in range(layers):
        reused = i % factor != 0
        mixer = own | ({"owns_kv": False} if reused else {})
        d.layer(d.mixer("reused" if reused else "attention", mixer), d.ffn("moe", block))
    return d


def baichuan(c: Config) -> Draft:
    """Baichuan and Baichuan 2: MHA with one fused projection."""
    c.skip("z_loss_weight", "gradient_checkpointing")
    return ordinary(c, LLAMA)


READERS: Final[dict[str, Any]] = {
    "chatglm": chatglm,
    "qwen": qwen1,
    "minicpm3": minicpm3,
    "hunyuan": hunyuan_large,
    "baichuan": baichuan,
}
