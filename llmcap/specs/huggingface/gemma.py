"""Gemma 3n and Gemma 4: layers that reuse earlier caches, per-layer input embeddings, two attention shapes."""

from __future__ import annotations

from typing import Any, Final

from llmcap.specs.huggingface.config import INTERMEDIATE, Config
from llmcap.specs.huggingface.draft import Draft, Part, start
from llmcap.specs.huggingface.ordinary import SCOPES, Traits, layer_count, mixture, scoped, softmax


def _kinds(c: Config, layers: int, period: int) -> list[str]:
    kinds = c.kinds("layer_types", layers, SCOPES)
    return kinds or ["full" if (i + 1) % period == 0 else "sliding" for i in range(layers)]


def _per_layer_inputs(c: Config, d: Draft, layers: int) -> tuple[str, ...]:
    """Per-layer embeddings: the table and its projection apart, the gate in each layer as a small two-matrix block."""
    width = c.count("hidden_size_per_layer_input", default=256, minimum=0)
    rows = c.count("vocab_size_per_layer_input", default=262_144)
    if not width:
        return ()
    # The table, the projection of the embedding to all layers, and the norm of its slices.
    d.other_parameters += rows * layers * width + d.hidden * layers * width + width
    return (d.ffn("per-layer-input", {"kind": "dense", "intermediate": width, "gated": False}),)


def gemma3n(c: Config) -> Draft:
    """Gemma 3n: LAuReL, AltUp, per-layer inputs; the last num_kv_shared_layers layers own no cache."""
    d = start(c, tied=True, vocab=262_400, context=32_768)
    layers = layer_count(c)
    shared = c.count("num_kv_shared_layers", default=15, minimum=0)
    kinds = _kinds(c, layers, 5)
    window = c.count("sliding_window", default=512)
    traits = Traits(qk_norm="head", defaults={"heads": 8, "kv_heads": 2, "head_dim": 256})
    part = softmax(c, d.hidden, traits)
    widths = c.counts_per_layer("intermediate_size", layers, minimum=1) or [16_384] * layers
    extra = _per_layer_inputs(c, d, layers)
    rank = c.count("laurel_rank", default=64)
    laurel = d.ffn("laurel", {"kind": "dense", "intermediate": rank, "gated": False})
    streams = c.count("altup_num_inputs", default=4, most=64)
    c.skip("altup_correct_scale")
    for i, kind in enumerate(kinds):
        reused = i >= layers - shared
        mixer = scoped(part, kind, window if kind == "sliding" else None) | ({"owns_kv": False} if reused else {})
        name = kind + ("-reused" if reused else "")
        block = d.ffn("dense", {"kind": "dense", "intermediate": widths[i]})
        d.layer(d.mixer(name, mixer), (block, laurel, *extra))
    # Four norms, those of LAuReL and of the per-layer input, and AltUp's router, coefficients and scale.
    altup = d.hidden * streams + streams**2 + streams**3 + 2 * d.hidden
    d.norm_elements_per_layer = 6 * d.hidden + altup
    d.other_parameters += 2 * (streams - 1) * d.hidden**2
    return d


def gemma4(c: Config) -> Draft:
    """Gemma 4: full layers with their own head width and KV heads, optional experts beside the dense block."""
    d = start(c, tied=True, vocab=262_144, context=131_072)
    layers = layer_count(c)
    shared = c.count("num_kv_shared_layers", default=0, minimum=0)
    kinds = _kinds(c, layers, 6)
    if kinds[-1] != "full":
        c.notes.append("the last layer is taken as full attention, as the configuration class does")
        kinds[-1] = "full"
    window = c.count("sliding_window", default=512)
    traits = Traits(qk_norm="head", defaults={"heads": 8, "kv_heads": 4, "head_dim": 256})
    slide = scoped(softmax(c, d.hidden, traits), "sliding", window)
    full: Part = {key: value for key, value in slide.items() if key not in ("scope", "window")}
    full["head_dim"] = c.count("global_head_dim", default=512)
    full["kv_heads"] = c.optional("num_global_key_value_heads") or slide["kv_heads"]
    if c.flag("attention_k_eq_v"):
        full["shares_kv_projection"] = True
    width = c.count(*INTERMEDIATE, default=9_216)
    double = c.flag("use_double_wide_mlp")
    extra = _per_layer_inputs(c, d, layers)
    c.skip("enable_moe_block", "moe_intermediate_size", "expert_intermediate_size", "num_experts", "top_k_experts")
    sparse = mixture(c) if c.flag("enable_moe_block") else None
    for i, kind in enumerate(kinds):
        reused = i >= layers - shared
        mixer = (slide if kind == "sliding" else full) | ({"owns_kv": False} if reused else {})
        block = {"kind": "dense", "intermediate": width * (2 if double and reused else 1)}
        ffns = (d.ffn("dense", block), *((d.ffn("moe", sparse),) if sparse else ()), *extra)
        d.layer(d.mixer(kind + ("-reused" if reused else ""), mixer), ffns)
    vectors = 4 + (4 if sparse else 0) + (1 if extra else 0)
    d.norm_elements_per_layer = vectors * d.hidden + 1 + (sparse["experts"] if sparse else 0)
    return d


READERS: Final[dict[str, Any]] = {
    "gemma3n_text": gemma3n,
    "gemma3n": gemma3n,
    "gemma4_text": gemma4,
    "gemma4_unified_text": gemma4,
    "gemma4": gemma4,
}
