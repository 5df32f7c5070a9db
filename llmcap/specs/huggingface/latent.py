"""Multi-head latent attention and what grew from it: sparse indexers, compressed caches, shortcut experts."""

from __future__ import annotations

from typing import Any, Final

from llmcap.specs.huggingface.config import EXPERT_WIDTH, HEADS, KV_HEADS, Config
from llmcap.specs.huggingface.draft import Draft, Part, start
from llmcap.specs.huggingface.experts import after_dense
from llmcap.specs.huggingface.ordinary import Traits, layer_count, mixture


def mla(c: Config) -> Part:
    """The latent attention part without an indexer. head_dim and KV heads of the file play no part in its sizes."""
    c.skip("head_dim", "qk_head_dim", "rope_interleave", "attention_bias", *KV_HEADS)
    part: Part = {"kind": "mla", "heads": c.count(*HEADS, most=100_000)}
    if (rank := c.optional("q_lora_rank")) is not None:
        part["q_lora_rank"] = rank
    return part | {
        "kv_lora_rank": c.count("kv_lora_rank"),
        "qk_nope_head_dim": c.count("qk_nope_head_dim"),
        "qk_rope_head_dim": c.count("qk_rope_head_dim", minimum=0),
        "v_head_dim": c.count("v_head_dim"),
    }


def deepseek(c: Config) -> Draft:
    """DeepSeek-V2, V3, R1 and kin (Kimi K2, Mistral Large 3): MLA in every layer, experts after the dense layers."""
    d = start(c)
    layers = layer_count(c)
    mixer = mla(c)
    bias = {"router_bias": True} if c.text("topk_method") == "noaux_tc" else {}
    blocks = after_dense(c, d, layers, Traits(), **bias)
    for block in blocks:
        d.layer(d.mixer("mla", mixer), d.ffn(block["kind"], block))
    return d


def deepseek_sparse(c: Config) -> Draft:
    """DeepSeek-V3.2 and GLM-5: a lightning indexer in every layer, or in those of indexer_types 'full'."""
    d = start(c)
    layers = layer_count(c)
    c.skip("index_topk_pattern")
    if c.data.get("index_topk_pattern"):
        c.fail("index_topk_pattern", "is not understood", "give indexer_types: full or shared for each layer")
    kinds = c.kinds("indexer_types", layers, {"full": "full", "shared": "shared"})
    if kinds is None and (every := c.optional("index_topk_freq")) and every > 1:
        offset = c.optional("index_skip_topk_offset", minimum=0) or 0
        kinds = ["full" if i < offset or (i - offset) % every == 0 else "shared" for i in range(layers)]
    index: Part = {
        "heads": c.count("index_n_heads"), "head_dim": c.count("index_head_dim"), "top_k": c.count("index_topk"),
    }  # fmt: skip
    plain = mla(c)
    owner, reuser = plain | {"indexer": index}, plain | {"indexer": index | {"owned": False}}
    bias = {"router_bias": True} if c.text("topk_method", default="noaux_tc") == "noaux_tc" else {}
    blocks = after_dense(c, d, layers, Traits(), **bias)
    for i, block in enumerate(blocks):
        shared = kinds is not None and kinds[i] == "shared"
        mixer = d.mixer("mla-shared-index", reuser) if shared else d.mixer("mla", owner)
        d.layer(mixer, d.ffn(block["kind"], block))
    return d


def deepseek_v4(c: Config) -> Draft:
    """DeepSeek-V4: window, CSA (ratio 4, with indexer) and HCA (ratio 128) layers by compress_ratios."""
    d = start(c)
    layers = layer_count(c)
    # The list also names the layers of multi-token prediction, after the model's own.
    extra = c.optional("num_nextn_predict_layers", minimum=0, most=100) or 0
    key, listed = c.raw("compress_ratios")
    if not isinstance(listed, list) or len(listed) not in (layers, layers + extra):
        c.fail(key, f"must hold a ratio for each of {layers} layers")
    ratios = [c.number(key, value, 0, 1_000_000) for value in listed[:layers]]
    if other := set(ratios) - {0, 4, 128}:
        c.fail(key, f"ratio {min(other)} is not understood", "ratios 0, 4 and 128 are")
    c.skip("head_dim", "num_key_value_heads", "attention_bias", "num_hash_layers", "hc_mult", "qk_rope_head_dim")
    hidden, copies = d.hidden, c.optional("hc_mult", minimum=0, most=64) or 0
    part: Part = {
        "kind": "compressed",
        "heads": c.count("num_attention_heads"),
        "head_dim": c.count("head_dim"),
        "rope_dim": c.count("qk_rope_head_dim"),
        "q_lora_rank": c.count("q_lora_rank"),
        "window": c.count("sliding_window"),
        "o_groups": c.count("o_groups"),
        "o_lora_rank": c.count("o_lora_rank"),
    }
    index: Part = {
        "heads": c.count("index_n_heads"), "head_dim": c.count("index_head_dim"), "top_k": c.count("index_topk"),
    }  # fmt: skip
    width = c.count(*EXPERT_WIDTH)
    shared = (c.optional("n_shared_experts", minimum=0) or 0) * width
    block = mixture(c, width=width, shared=shared, router_bias=True)
    names = {0: "window", 4: "csa", 128: "hca"}
    for ratio in ratios:
        mixer = part | {"ratio": ratio} | ({"indexer": index} if ratio == 4 else {})
        d.layer(d.mixer(names[ratio], mixer), d.ffn("moe", block))
    # Hyper-connections mix `copies` residual streams before each of two blocks and once at the end.
    mix = (2 + copies) * copies
    d.other_parameters = layers * 2 * (mix * copies * hidden + mix + 3) + copies * copies * hidden if copies else 0
    hashed = c.optional("num_hash_layers", minimum=0) or 0
    if hashed:
        c.notes.append(
            f"the first {hashed} layers route by a table of token ids instead of a router (counted as routers)"
        )
    if c.text("expert_dtype") == "fp4":
        d.weight_dtypes["expert"] = "mxfp4"
    return d


def longcat(c: Config) -> Draft:
    """LongCat-Flash: two latent attentions and two dense blocks per layer, experts beside them, idle experts."""
    d = start(c)
    layers = layer_count(c)
    mixer = d.mixer("mla", mla(c))
    width = c.count("ffn_hidden_size", "intermediate_size")
    block = d.ffn("dense", {"kind": "dense", "intermediate": width})
    sparse = mixture(c, idle_experts=c.optional("zero_expert_num", minimum=0) or 0, router_bias=True)
    c.skip("router_bias", "attention_method", "mla_scale_q_lora", "mla_scale_kv_lora", "mlp_bias")
    name = d.ffn("moe", sparse)
    for _ in range(layers):
        d.layer((mixer, mixer), (block, block, name))
    d.norm_elements_per_layer = 4 * d.hidden
    return d


def kimi_linear(c: Config) -> Draft:
    """Kimi Linear: KDA layers and NoPE latent attention by linear_attn_config, which counts layers from 1."""
    d = start(c)
    layers = layer_count(c)
    linear = c.mapping("linear_attn_config")
    if linear is None:
        c.fail("linear_attn_config", "missing", "add heads, head_dim, kernel and the layer numbers")
    inner = Config(linear, c.file, None, f"{c.path}linear_attn_config.")
    full = set(_numbers(inner, "full_attn_layers", layers))
    delta = set(_numbers(inner, "kda_layers", layers))
    if full & delta or full | delta != set(range(1, layers + 1)):
        c.fail("linear_attn_config", "full_attn_layers and kda_layers must name each layer from 1 once")
    kda: Part = {
        "kind": "kda",
        "heads": inner.count("num_heads"),
        "head_dim": inner.count("head_dim"),
        "conv_kernel": inner.count("short_conv_kernel_size"),
    }
    inner.leftovers()
    mixer = mla(c)
    c.skip("mla_use_nope", "num_experts_per_token")
    blocks = after_dense(c, d, layers, Traits(), router_bias=True)
    for i, block in enumerate(blocks):
        d.layer(d.mixer("mla", mixer) if i + 1 in full else d.mixer("kda", kda), d.ffn(block["kind"], block))
    return d


def _numbers(c: Config, key: str, layers: int) -> list[int]:
    _, value = c.raw(key)
    if not isinstance(value, list):
        c.fail(key, "must be a list of layer numbers")
    return [c.number(key, number, 1, layers) for number in value]


def ling_linear(c: Config) -> Draft:
    """Ling 2.5: the last layer of each group of layer_group_size is MLA, the others lightning attention."""
    if not c.has("num_kv_heads_for_linear_attn"):
        c.fail("model_type", "is Ling 3 or later (delta attention), which is not understood", "describe it in YAML")
    d = start(c)
    layers = layer_count(c)
    group = c.count("layer_group_size")
    head_dim = c.count("head_dim")
    mixer = mla(c)
    c.skip(
        "max_window_layers",
        "moe_router_enable_expert_bias",
        "linear_silu",
        "group_norm_size",
        "use_qk_norm",
        "use_qkv_bias",
        "use_bias",
    )
    lightning: Part = {"kind": "lightning", "heads": c.count("num_kv_heads_for_linear_attn"), "head_dim": head_dim}
    blocks = after_dense(c, d, layers, Traits(), router_bias=True)
    for i, block in enumerate(blocks):
        chosen = d.mixer("mla", mixer) if (i + 1) % group == 0 else d.mixer("lightning", lightning)
        d.layer(chosen, d.ffn(block["kind"], block))
    return d


READERS: Final[dict[str, Any]] = {
    "deepseek_v2": deepseek,
    "deepseek_v3": deepseek,
    "kimi_k2": deepseek,
    "mistral_large3": deepseek,
    "mistral4": deepseek,
    "glm4_moe_lite": deepseek,
    "deepseek_v32": deepseek_sparse,
    "glm_moe_dsa": deepseek_sparse,
    "deepseek_v4": deepseek_v4,
    "longcat_flash": longcat,
    "kimi_linear": kimi_linear,
    "bailing_hybrid": ling_linear,
}
