"""Mixtures of experts over ordinary attention: which layers hold experts, and how wide they and the shared ones are."""

from __future__ import annotations

import re
from typing import Any, Final

from llmcap.specs.huggingface.config import EXPERT_WIDTH, INTERMEDIATE, Config
from llmcap.specs.huggingface.draft import Draft, Part, start
from llmcap.specs.huggingface.ordinary import (
    Traits,
    dense,
    layer_count,
    mixture,
    named,
    ordinary,
    scoped,
    shared_experts,
    softmax,
    windows,
)


def _everywhere(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    """Mixtral's kind: experts of intermediate_size in every layer."""
    return [mixture(c, width=c.optional(*EXPERT_WIDTH) or c.count(*INTERMEDIATE))] * layers


def _qwen(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    """Every decoder_sparse_step-th layer unless in mlp_only_layers; a gated shared expert when it has a width."""
    step = c.count("decoder_sparse_step") if c.has("decoder_sparse_step") else 1
    plain = _indices(c, "mlp_only_layers")
    shared = c.optional("shared_expert_intermediate_size", minimum=0) or 0
    sparse = mixture(c, shared=shared, **({"shared_gate": True} if shared else {}))
    holds = [i not in plain and (i + 1) % step == 0 for i in range(layers)]
    if all(holds):
        c.skip(*INTERMEDIATE)
        return [sparse] * layers
    block = dense(c, traits)
    return [sparse if hold else block for hold in holds]


def _indices(c: Config, key: str) -> set[int]:
    _, value = c.raw(key)
    if value is None:
        return set()
    if not isinstance(value, list) or any(isinstance(i, bool) or not isinstance(i, int) for i in value):
        c.fail(key, "must be a list of layer numbers")
    return set(value)


def after_dense(c: Config, d: Draft, layers: int, traits: Traits, **changes: Any) -> list[Part]:
    """DeepSeek's kind: first_k_dense_replace dense layers, then experts with shared ones."""
    first = c.optional("first_k_dense_replace", "num_dense_layers", minimum=0) or 0
    frequency = c.data.get("moe_layer_freq")
    if isinstance(frequency, list):
        holds = [bool(x) for x in c.counts_per_layer("moe_layer_freq", layers) or []]
    else:
        step = c.count("moe_layer_freq") if frequency is not None else 1
        holds = [i >= first and i % step == 0 for i in range(layers)]
    kinds = c.kinds("mlp_layer_types", layers, {"dense": "dense", "sparse": "sparse", "moe": "sparse"})
    if kinds is not None:
        holds = [kind == "sparse" for kind in kinds]
    width = c.count(*EXPERT_WIDTH)
    shared = c.optional("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", minimum=0)
    if shared is None:
        shared = shared_experts(c, width)
    else:
        c.skip("n_shared_experts", "num_shared_experts")
    sparse = mixture(c, width=width, shared=shared, **changes)
    if all(holds):
        c.skip(*INTERMEDIATE)
        return [sparse] * layers
    block = dense(c, traits)
    return [sparse if hold else block for hold in holds]


def _with_bias(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    """`after_dense` with a correction bias per expert."""
    return after_dense(c, d, layers, traits, router_bias=True)


def _minimax_m2(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    kinds = c.counts_per_layer("attn_type_list", layers)
    if kinds and set(kinds) != {1}:
        c.fail("attn_type_list", "holds layers other than softmax attention (1)")
    c.skip("use_mtp", "mtp_transformer_layers", "num_mtp_modules", "qk_norm_type", "mlp_intermediate_size")
    shared = c.optional("shared_intermediate_size", minimum=0) or 0
    bias = {"router_bias": True} if c.flag("use_routing_bias", default=True) else {}
    return [mixture(c, width=c.count(*INTERMEDIATE), shared=shared, **bias)] * layers


def _gpt_oss(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    return [mixture(c, width=c.count(*INTERMEDIATE), bias=True)] * layers


def _ernie(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    """Layers from moe_layer_start_index to moe_layer_end_index (both included), every moe_layer_interval-th."""
    first = c.count("moe_layer_start_index", minimum=0)
    last = c.optional("moe_layer_end_index", minimum=-1)
    last = layers - 1 if last in (None, -1) else last
    step = c.count("moe_layer_interval") if c.has("moe_layer_interval") else 1
    width = c.count(*EXPERT_WIDTH)
    shared = shared_experts(c, width, "moe_num_shared_experts")
    c.skip("use_bias", "moe_use_aux_free", "moe_gate", "moe_capacity")
    sparse, block = mixture(c, width=width, shared=shared, router_bias=True), dense(c, traits)
    return [sparse if first <= i <= (last or 0) and (i + 1) % step == 0 else block for i in range(layers)]


def _hunyuan(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    """Per-layer lists of expert width, top-k and shared experts, or one number for all."""
    c.skip(
        "use_mixed_mlp_moe",
        "norm_topk_prob",
        "moe_drop_tokens",
        "moe_random_routing_dropped_token",
        "group_limited_greedy",
    )
    wide = c.counts_per_layer("moe_intermediate_size", layers) or [c.count(*INTERMEDIATE)] * layers
    c.skip(*INTERMEDIATE)
    top = c.counts_per_layer("moe_topk", layers, minimum=1) or [1] * layers
    shared = c.counts_per_layer("num_shared_expert", layers) or [0] * layers
    experts = c.count("num_experts", most=1_000_000)
    return [
        {"kind": "moe", "experts": experts, "top_k": k, "intermediate": w}
        | ({"shared_intermediate": n * w} if n else {})
        for w, k, n in zip(wide, top, shared, strict=True)
    ]


def llama4(c: Config) -> Draft:
    """Llama 4: three chunked layers and a global one; experts every interleave_moe_layer_step-th layer."""
    d = start(c)
    layers = layer_count(c)
    part = softmax(c, d.hidden, Traits())
    # The query and key norm of Llama 4 has no weights.
    c.skip("use_qk_norm", "layer_types", "for_llm_compressor")
    nope = c.counts_per_layer("no_rope_layers", layers) if c.data.get("no_rope_layers") else None
    interval = c.count("no_rope_layer_interval") if c.has("no_rope_layer_interval") else 4
    rotary = [bool(x) for x in nope] if nope else [(i + 1) % interval != 0 for i in range(layers)]
    chunk = c.count("attention_chunk_size", default=8_192)
    step = c.count("interleave_moe_layer_step", default=1)
    moe_layers = _indices(c, "moe_layers") or {i for i in range(layers) if (i + 1) % step == 0}
    width = c.count("intermediate_size")
    sparse = mixture(c, width=width, shared=width)
    wide: Part = {"kind": "dense", "intermediate": c.count("intermediate_size_mlp", default=16_384)}
    for i in range(layers):
        mixer = d.mixer("chunked", scoped(part, "chunked", chunk)) if rotary[i] else d.mixer("global", part)
        d.layer(mixer, d.ffn("moe", sparse) if i in moe_layers else d.ffn("dense", wide))
    return d


def mimo_v2(c: Config) -> Draft:
    """MiMo-V2-Flash: window layers with their own head counts and sinks beside full ones."""
    d = start(c)
    layers = layer_count(c)
    full = softmax(c, d.hidden, Traits())
    full["v_head_dim"] = c.optional("v_head_dim") or full["head_dim"]
    window = c.count("sliding_window", "sliding_window_size")
    c.skip("attention_chunk_size", "attention_projection_layout", "hybrid_block_size", "processor_config")
    slide: Part = {
        "kind": "attention",
        "heads": c.count("swa_num_attention_heads"),
        "kv_heads": c.count("swa_num_key_value_heads"),
        "head_dim": c.count("swa_head_dim"),
        "v_head_dim": c.count("swa_v_head_dim"),
        "scope": "sliding",
        "window": window,
    }
    slide |= {"sinks": True} if c.flag("add_swa_attention_sink_bias") else {}
    full |= {"sinks": True} if c.flag("add_full_attention_sink_bias") else {}
    pattern = c.counts_per_layer("hybrid_layer_pattern", layers)
    if pattern is None:
        c.fail("hybrid_layer_pattern", "missing", "add 0 (full) or 1 (sliding) for each layer")
    for kind, block in zip(pattern, after_dense(c, d, layers, Traits(), router_bias=True), strict=True):
        d.layer(d.mixer("sliding", slide) if kind else d.mixer("attention", full), d.ffn(block["kind"], block))
    return d


def laguna(c: Config) -> Draft:
    """Laguna: gates on the heads' output, head counts per layer."""
    d = start(c)
    layers = layer_count(c)
    traits = Traits(qk_norm="head")
    part = softmax(c, d.hidden, traits)
    gating = c.raw("gating")[1]
    if gating not in (True, False, None, "per-head", "per-element"):
        c.fail("gating", "must be true, 'per-head' or 'per-element'")
    part |= {"output_gate": True} if gating in (False, "per-element") else {"head_gate": True}
    heads = c.counts_per_layer("num_attention_heads_per_layer", layers, minimum=1) or [part["heads"]] * layers
    blocks = after_dense(c, d, layers, traits, router_bias=True)
    for i, (scope, window) in enumerate(windows(c, layers, d.context, traits)):
        mixer = scoped(part | {"heads": heads[i]}, scope, window)
        d.layer(d.mixer(named(scope), mixer), d.ffn(blocks[i]["kind"], blocks[i]))
    return d


def minimax_m3(c: Config) -> Draft:
    """MiniMax-M3: whole K and V everywhere; sparse layers score blocks of 128 tokens by an index key of their own."""
    d = start(c)
    layers = layer_count(c)
    traits = Traits(qk_norm="head")
    nested = c.mapping("sparse_attention_config") or {}
    inner = Config(nested, c.file, None, f"{c.path}sparse_attention_config.")
    allowed = {"full_attention": "full", "minimax_m3_sparse": "sparse", "sparse_attention": "sparse"}
    kinds = c.kinds("layer_types", layers, allowed)
    if kinds is None:
        flags = inner.counts_per_layer("sparse_attention_freq", layers)
        if flags is None:
            c.fail("layer_types", "missing", "name each layer full_attention or minimax_m3_sparse")
        kinds = ["sparse" if flag else "full" for flag in flags]
    inner.understood.update(str(key) for key in nested)

    def index(name: str, alias: str) -> int:
        return c.count(name) if c.has(name) else inner.count(alias)

    part = softmax(c, d.hidden, traits)
    sparse = part | {
        "sparse": {
            "index_heads": index("index_n_heads", "sparse_num_index_heads"),
            "index_dim": index("index_head_dim", "sparse_index_dim"),
            "block": index("index_block_size", "sparse_block_size"),
            "top_blocks": index("index_topk_blocks", "sparse_topk_blocks"),
            "local_blocks": index("index_local_blocks", "sparse_local_block"),
        }
    }
    holds = c.kinds("mlp_layer_types", layers, {"dense": "dense", "sparse": "sparse"})
    if holds is None:
        listed = c.counts_per_layer("moe_layer_freq", layers)
        holds = ["sparse" if flag else "dense" for flag in (listed or [1] * layers)]
    shared = c.optional("shared_intermediate_size", minimum=0) or 0
    block = mixture(c, width=c.count("intermediate_size"), shared=shared, router_bias=True)
    wide = c.count("dense_intermediate_size") if "dense" in holds else 0
    c.skip("dense_intermediate_size", "n_shared_experts", "num_mtp_modules", "use_routing_bias", "qk_norm_type")
    for kind, hold in zip(kinds, holds, strict=True):
        ffn: Part = block if hold == "sparse" else {"kind": "dense", "intermediate": wide}
        mixer = d.mixer("sparse", sparse) if kind == "sparse" else d.mixer("attention", part)
        d.layer(mixer, d.ffn(ffn["kind"], ffn))
    return d


def step3(c: Config) -> Draft:
    """Step-3: multi-matrix factorisation attention, one KV head, experts in the layers of moe_layers_enum."""
    d = start(c)
    layers = layer_count(c)
    heads = c.count("num_attention_heads")
    mixer: Part = {
        "kind": "attention",
        "heads": heads,
        "kv_heads": c.count("num_attention_groups", "num_key_value_heads"),
        "head_dim": c.count("head_dim"),
        "q_lora_rank": c.count("share_q_dim"),
    }
    key, value = c.raw("moe_layers_enum", "moe_layers")
    sparse_layers = set(range(1, layers)) if value is None else _enumerated(c, key, value)
    sparse = mixture(c, shared=c.count("share_expert_dim"))
    block = dense(c, Traits())
    for i in range(layers):
        ffn = sparse if i in sparse_layers else block
        d.layer(d.mixer("attention", mixer), d.ffn(ffn["kind"], ffn))
    return d


def _enumerated(c: Config, key: str, value: Any) -> set[int]:
    if isinstance(value, list):
        return _indices(c, key)
    if isinstance(value, str) and (span := re.match(r"(\d{1,4})\.\.(\d{1,4})", value)):
        return set(range(int(span[1]), int(span[2]) + 1))
    if isinstance(value, str) and re.fullmatch(r"[\d,\s]+", value):
        return {int(number) for number in value.replace(" ", "").split(",") if number}
    c.fail(key, "must list layer numbers, such as '4,5,6'")


def grok2(c: Config) -> Draft:
    """Grok 2: a dense block beside the experts of every layer (residual_moe), four norms."""
    d = start(c)
    layers = layer_count(c)
    mixer = softmax(c, d.hidden, Traits())
    sparse = mixture(c)
    ffn: tuple[str, ...] = (d.ffn("moe", sparse),)
    if c.flag("residual_moe"):
        ffn = (d.ffn("dense", dense(c, Traits())), *ffn)
    c.skip(*INTERMEDIATE)
    for _ in range(layers):
        d.layer(d.mixer("attention", mixer), ffn)
    d.norm_elements_per_layer = 4 * d.hidden
    return d


def dbrx(c: Config) -> Draft:
    """DBRX: the attention and expert shapes may stand in attn_config and ffn_config."""
    attention, ffn = c.mapping("attn_config") or {}, c.mapping("ffn_config") or {}
    nested = {
        "num_key_value_heads": attention.get("kv_n_heads"),
        "intermediate_size": ffn.get("ffn_hidden_size"),
        "num_experts": ffn.get("moe_num_experts"),
        "num_experts_per_tok": ffn.get("moe_top_k"),
    }
    flat = Config({**{k: v for k, v in nested.items() if v is not None}, **c.data}, c.file, c.outer, c.path)
    d = ordinary(flat, Traits(), _everywhere)
    c.understood |= flat.understood
    c.notes += flat.notes
    return d


def _cohere2_moe(c: Config, d: Draft, layers: int, traits: Traits) -> list[Part]:
    width = c.count("intermediate_size")
    shared = shared_experts(c, width)
    first = c.optional("first_k_dense_replace", minimum=0) or 0
    sparse = mixture(c, width=width, shared=shared)
    c.skip("prefix_dense_sliding_window_pattern")
    prefix = c.optional("prefix_dense_intermediate_size")
    kinds = c.kinds("mlp_layer_types", layers, {"dense": "dense", "sparse": "sparse"})
    holds = [kind == "sparse" for kind in kinds] if kinds else [i >= first for i in range(layers)]
    return [sparse if hold else {"kind": "dense", "intermediate": prefix or width} for hold in holds]


_QWEN2: Final = Traits(
    qkv_bias=True, bias_keys=("attention_bias", "qkv_bias"), bias_covers_out=False, gated_window=True
)
_QWEN3: Final = Traits(
    qk_norm="head", gated_window=True, bias_keys=("attention_bias", "qkv_bias"), bias_covers_out=False
)

#: (traits, feed-forward rule) of model types that need no reader of their own.
MIXTURES: Final = {
    "mixtral": (Traits(every=1), _everywhere),
    "phimoe": (Traits(norm_vectors=4, every=1, bias_keys=("attention_bias",)), _everywhere),
    "olmoe": (Traits(qk_norm="full"), _everywhere),
    "granitemoe": (Traits(), _everywhere),
    "grok-1": (Traits(norm_vectors=4), _everywhere),
    "minimax_m2": (Traits(qk_norm="full", qk_norm_on=False), _minimax_m2),
    "qwen2_moe": (_QWEN2, _qwen),
    "qwen3_moe": (_QWEN3, _qwen),
    "qwen3_vl_moe_text": (_QWEN3, _qwen),
    "gpt_oss": (Traits(qkv_bias=True, out_bias=True, every=2, sinks=True), _gpt_oss),
    "ernie4_5_moe": (Traits(tied=True, bias_keys=("use_bias",), mlp_bias_keys=("use_bias",)), _ernie),
    "dots1": (Traits(qk_norm="head", every=0), _with_bias),
    "glm4_moe": (Traits(qk_norm="head", qk_norm_on=False, bias_covers_out=False), _with_bias),
    "glm4v_moe_text": (Traits(qk_norm="head", qk_norm_on=False, bias_covers_out=False), _with_bias),
    "hy_v3": (Traits(qk_norm="head"), _with_bias),
    "solar_open": (Traits(), _with_bias),
    "hunyuan_v1_moe": (Traits(qk_norm="head", defaults={"context": 2_048}), _hunyuan),
    "cohere2_moe": (Traits(tied=True, parallel=True, every=4), _cohere2_moe),
}
