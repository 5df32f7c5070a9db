"""Models whose layers mix attention with states of constant size: delta rules, lightning, Mamba, short convolutions."""

from __future__ import annotations

from typing import Any, Final

from llmcap.specs.huggingface.config import EXPERT_WIDTH, INTERMEDIATE, Config
from llmcap.specs.huggingface.draft import Draft, Part, start
from llmcap.specs.huggingface.experts import MIXTURES, after_dense
from llmcap.specs.huggingface.ordinary import LLAMA, Traits, dense, layer_count, mixture, shared_experts, softmax

_STATE_DTYPES: Final = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def state_dtype(c: Config, d: Draft) -> None:
    """Dtype of recurrent states when the file names one; fp32 otherwise."""
    name = c.text("mamba_ssm_cache_dtype", "mamba_ssm_dtype")
    if not name or name == "auto":
        return
    if name not in _STATE_DTYPES:
        c.fail("mamba_ssm_cache_dtype", f"'{name[:40]}' is not understood", f"one of {', '.join(_STATE_DTYPES)}")
    d.recurrent_dtype = _STATE_DTYPES[name]


def qwen_next(c: Config) -> Draft:
    """Qwen3-Next and Qwen3.5: three gated delta layers and one gated attention layer in turn."""
    d = start(c)
    layers = layer_count(c)
    state_dtype(c, d)
    c.skip("mtp_num_hidden_layers", "use_sliding_window", "sliding_window", "max_window_layers")
    kinds = c.kinds("layer_types", layers, {"linear_attention": "linear", "full_attention": "full"})
    interval = c.optional("full_attention_interval") or 4
    if kinds is None:
        kinds = ["full" if (i + 1) % interval == 0 else "linear" for i in range(layers)]
    delta: Part = {
        "kind": "gated_delta",
        "key_heads": c.count("linear_num_key_heads"),
        "value_heads": c.count("linear_num_value_heads"),
        "key_dim": c.count("linear_key_head_dim"),
        "value_dim": c.count("linear_value_head_dim"),
        "conv_kernel": c.count("linear_conv_kernel_dim"),
    }
    mixer = softmax(c, d.hidden, Traits(qk_norm="head"))
    if c.flag("attn_output_gate", default=True):
        mixer["output_gate"] = True
    if c.has("num_experts", "moe_intermediate_size") and (c.optional("num_experts", minimum=0) or 0) > 0:
        blocks = MIXTURES["qwen3_moe"][1](c, d, layers, LLAMA)
    else:
        c.skip("mlp_only_layers", "decoder_sparse_step")
        blocks = [dense(c, LLAMA)] * layers
    for kind, block in zip(kinds, blocks, strict=True):
        chosen = d.mixer("attention", mixer) if kind == "full" else d.mixer("gated_delta", delta)
        d.layer(chosen, d.ffn(block["kind"], block))
    return d


def minimax_m1(c: Config) -> Draft:
    """MiniMax-M1 and Text-01: lightning attention (0) and softmax attention (1) by attn_type_list."""
    d = start(c)
    layers = layer_count(c)
    c.skip("postnorm", "sliding_window")
    kinds = c.counts_per_layer("attn_type_list", layers)
    named = c.kinds("layer_types", layers, {"linear_attention": "0", "full_attention": "1"})
    if kinds is None and named is not None:
        kinds = [int(kind) for kind in named]
    if kinds is None or set(kinds) - {0, 1}:
        c.fail("attn_type_list", "must hold 0 (lightning) or 1 (softmax) for each layer")
    mixer = softmax(c, d.hidden, LLAMA)
    lightning: Part = {"kind": "lightning", "heads": mixer["heads"], "head_dim": mixer["head_dim"]}
    shared = c.optional("shared_intermediate_size", minimum=0) or 0
    block = mixture(c, width=c.optional(*EXPERT_WIDTH) or c.count(*INTERMEDIATE), shared=shared)
    for kind in kinds:
        d.layer(d.mixer("attention", mixer) if kind else d.mixer("lightning", lightning), d.ffn("moe", block))
    return d


def jamba(c: Config) -> Draft:
    """Jamba: one attention layer per attn_layer_period, experts every expert_layer_period, Mamba-1 elsewhere."""
    d = start(c)
    layers = layer_count(c)
    c.skip("sliding_window")
    state_dtype(c, d)
    period, offset = c.count("attn_layer_period"), c.count("attn_layer_offset", minimum=0)
    expert_period, expert_offset = c.count("expert_layer_period"), c.count("expert_layer_offset", minimum=0)
    mixer = softmax(c, d.hidden, LLAMA)
    mamba: Part = {
        "kind": "mamba1",
        "inner": c.count("mamba_expand") * d.hidden,
        "state": c.count("mamba_d_state"),
        "conv_kernel": c.count("mamba_d_conv"),
        "dt_rank": c.optional("mamba_dt_rank") or -(-d.hidden // 16),
        "dt_bc_norm": True,
    }
    if not c.flag("mamba_conv_bias", default=True) or c.flag("mamba_proj_bias"):
        c.fail("mamba_proj_bias", "biases other than the convolution's are not understood")
    sparse = mixture(c, width=c.count(*INTERMEDIATE))
    block = dense(c, LLAMA)
    for i in range(layers):
        chosen = d.mixer("attention", mixer) if i % period == offset else d.mixer("mamba", mamba)
        ffn = sparse if i % expert_period == expert_offset else block
        d.layer(chosen, d.ffn(ffn["kind"], ffn))
    return d


def nemotron_h(c: Config) -> Draft:
    """Nemotron-H and Nemotron 3: one block per layer, M Mamba-2, * attention, - dense, E experts."""
    d = start(c)
    c.skip("expand", "use_conv_bias", "use_bias", "mamba_proj_bias", "sliding_window", "num_hidden_layers", "mlp_bias")
    c.skip("mtp_hybrid_override_pattern", "mtp_layers_block_type")
    if c.flag("use_bias") or c.flag("mamba_proj_bias") or not c.flag("use_conv_bias", default=True):
        c.fail("use_bias", "biases other than the convolution's are not understood")
    pattern = c.text("hybrid_override_pattern").replace("|", "")
    listed = c.raw("layers_block_type")[1]
    if listed is not None:
        letters = {"mamba": "M", "attention": "*", "mlp": "-", "moe": "E"}
        kinds = c.kinds("layers_block_type", len(listed) if isinstance(listed, list) else 0, letters) or []
        pattern = "".join(kinds)
    if not pattern or set(pattern) - set("M*-E"):
        c.fail("hybrid_override_pattern", "must name each layer by M, *, - or E")
    count = c.optional("num_hidden_layers")
    if count not in (None, len(pattern)):
        c.fail("num_hidden_layers", f"is {count}, but the pattern names {len(pattern)} layers")
    state_dtype(c, d)
    if c.text("mlp_hidden_act", default="relu2") != "relu2":
        c.fail("mlp_hidden_act", "is not understood", "relu2 (two matrices) is")
    plain = Traits(gated=False)
    makers: dict[str, Any] = {
        "M": lambda: d.mixer("mamba2", _mamba2(c)),
        "*": lambda: d.mixer("attention", softmax(c, d.hidden, plain)),
        "-": lambda: d.ffn("dense", dense(c, plain)),
        "E": lambda: d.ffn("moe", _nemotron_experts(c)),
    }
    names = {letter: makers[letter]() for letter in dict.fromkeys(pattern)}
    for letter in pattern:
        d.layer(ffn=names[letter]) if letter in "-E" else d.layer(names[letter])
    c.skip("intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim", "attention_head_dim")
    return d


def _mamba2(c: Config) -> Part:
    return {
        "kind": "mamba2",
        "heads": c.count("mamba_num_heads", "mamba_n_heads"),
        "head_dim": c.count("mamba_head_dim", "mamba_d_head"),
        "groups": c.count("n_groups", "mamba_n_groups"),
        "state": c.count("ssm_state_size", "mamba_d_state"),
        "conv_kernel": c.count("conv_kernel", "mamba_d_conv"),
    }


def _nemotron_experts(c: Config) -> Part:
    width = c.count("moe_shared_expert_intermediate_size", default=0, minimum=0)
    shared = shared_experts(c, width)
    latent = c.optional("moe_latent_size")
    return mixture(c, shared=shared, gated=False, router_bias=True, **({"latent": latent} if latent else {}))


def granite_hybrid(c: Config) -> Draft:
    """Granite 4: Mamba-2 and attention layers, each with experts and a shared one (or a dense block)."""
    d = start(c)
    layers = layer_count(c)
    c.skip("mamba_expand", "mamba_conv_bias", "mamba_proj_bias")
    if not c.flag("mamba_conv_bias", default=True) or c.flag("mamba_proj_bias"):
        c.fail("mamba_proj_bias", "biases other than the convolution's are not understood")
    state_dtype(c, d)
    allowed = {"mamba": "mamba", "attention": "attention", "full_attention": "attention"}
    kinds = c.kinds("layer_types", layers, allowed) or c.kinds("layers_block_type", layers, allowed)
    if kinds is None:
        c.fail("layer_types", "missing", "name each layer mamba or attention")
    shared = c.optional("shared_intermediate_size", minimum=0) or 0
    if c.optional("num_local_experts", minimum=0):
        block = mixture(c, width=c.count(*INTERMEDIATE), shared=shared)
    else:
        c.skip("num_experts_per_tok", *INTERMEDIATE)
        block = {"kind": "dense", "intermediate": shared or c.count(*INTERMEDIATE)}
    mixer = softmax(c, d.hidden, LLAMA)
    for kind in kinds:
        chosen = d.mixer("attention", mixer) if kind == "attention" else d.mixer("mamba2", _mamba2(c))
        d.layer(chosen, d.ffn(block["kind"], block))
    if "mamba" not in kinds:
        c.skip("mamba_n_heads", "mamba_d_head", "mamba_n_groups", "mamba_d_state", "mamba_d_conv")
    return d


def lfm2(c: Config) -> Draft:
    """LFM2: short convolutions and attention by layer_types; the dense width is adjusted as the file says."""
    d = start(c, tied=True)
    layers = layer_count(c)
    c.skip("conv_dim", "conv_bias", "conv_dim_out", "conv_use_xavier_init", "use_pos_enc", "block_use_swiglu")
    c.skip("full_attn_idxs", "num_heads", "block_dim", "block_mlp_init_scale", "block_out_init_scale")
    c.skip("block_use_xavier_init")
    if c.flag("conv_bias"):
        c.fail("conv_bias", "a bias of the convolution is not understood")
    allowed = {"conv": "conv", "full_attention": "attention"}
    kinds = c.kinds("layer_types", layers, allowed)
    if kinds is None:
        c.fail("layer_types", "missing", "name each layer conv or full_attention")
    mixer = softmax(c, d.hidden, Traits(qk_norm="head"))
    conv: Part = {"kind": "short_conv", "kernel": c.count("conv_L_cache")}
    if c.has("num_experts"):
        c.skip("use_expert_bias")
        bias = {"router_bias": True} if c.flag("use_expert_bias", default=True) else {}
        blocks = after_dense(c, d, layers, LLAMA, **bias)
    else:
        width = c.count("block_ff_dim", "intermediate_size")
        scale = c.raw("block_ffn_dim_multiplier")[1]
        multiple = c.optional("block_multiple_of") or 256
        if c.flag("block_auto_adjust_ff_dim", default=True):
            width = int(2 * width / 3)
            if isinstance(scale, int | float) and not isinstance(scale, bool) and 0 < scale < 100:
                width = int(scale * width)
            width = multiple * -(-width // multiple)
        blocks = [{"kind": "dense", "intermediate": width}] * layers
    for kind, block in zip(kinds, blocks, strict=True):
        d.layer(d.mixer("conv", conv) if kind == "conv" else d.mixer("attention", mixer), d.ffn(block["kind"], block))
    return d


def falcon_h1(c: Config) -> Draft:
    """Falcon-H1: attention and Mamba-2 in parallel in every layer."""
    d = start(c)
    layers = layer_count(c)
    c.skip("mamba_expand", "mamba_d_ssm", "mamba_conv_bias", "mamba_proj_bias", "projectors_bias", "sliding_window")
    state_dtype(c, d)
    mixers = (d.mixer("attention", softmax(c, d.hidden, LLAMA)), d.mixer("mamba2", _mamba2(c)))
    block = d.ffn("dense", dense(c, LLAMA))
    for _ in range(layers):
        d.layer(mixers, block)
    d.norm_elements_per_layer = 2 * d.hidden
    return d


def bamba(c: Config) -> Draft:
    """Bamba: attention in attn_layer_indices, Mamba-2 elsewhere, a dense block in every layer."""
    d = start(c)
    layers = layer_count(c)
    c.skip("mamba_expand", "mamba_conv_bias", "mamba_proj_bias")
    state_dtype(c, d)
    _, where = c.raw("attn_layer_indices")
    if not isinstance(where, list):
        c.fail("attn_layer_indices", "must be a list of layer numbers")
    mixer, mamba = softmax(c, d.hidden, LLAMA), _mamba2(c)
    block = dense(c, LLAMA)
    for i in range(layers):
        d.layer(d.mixer("attention", mixer) if i in where else d.mixer("mamba2", mamba), d.ffn("dense", block))
    return d


READERS: Final[dict[str, Any]] = {
    "qwen3_next": qwen_next,
    "qwen3_5_text": qwen_next,
    "qwen3_5_moe_text": qwen_next,
    "qwen3_5": qwen_next,
    "qwen3_5_moe": qwen_next,
    "minimax_m1": minimax_m1,
    "minimax": minimax_m1,
    "minimax_text_01": minimax_m1,
    "jamba": jamba,
    "nemotron_h": nemotron_h,
    "granitemoehybrid": granite_hybrid,
    "lfm2": lfm2,
    "lfm2_moe": lfm2,
    "falcon_h1": falcon_h1,
    "bamba": bamba,
}
