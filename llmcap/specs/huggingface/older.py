"""Models before rotary GQA became the rule (Bloom, OPT, GPT-2, GPT-J, GPT-NeoX, MPT, Falcon, Phi), and pruned ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from llmcap.specs.huggingface.config import HEADS, INTERMEDIATE, KV_HEADS, Config
from llmcap.specs.huggingface.draft import Draft, Part, start
from llmcap.specs.huggingface.ordinary import LLAMA, Traits, layer_count, softmax

_BIASED: Final = Traits(qkv_bias=True, out_bias=True)


def _plain(c: Config, d: Draft, mixer: Part, *, bias: bool, width: int | None = None) -> None:
    """Equal layers of `mixer` and a two-matrix block of four times the hidden width unless the file says otherwise."""
    width = width or c.optional(*INTERMEDIATE) or 4 * d.hidden
    block: Part = {"kind": "dense", "intermediate": width, "gated": False}
    block |= {"bias": True} if bias else {}
    for _ in range(layer_count(c)):
        d.layer(d.mixer("attention", mixer), d.ffn("dense", block))


def bloom(c: Config) -> Draft:
    """Bloom: ALiBi, biases everywhere, a norm after the embedding."""
    d = start(c, tied=True, context=2_048)
    c.skip("apply_residual_connection_post_layernorm", "slow_but_exact", "masked_softmax_fusion", "bias_dropout_fusion")
    c.skip("offset_alibi", "skip_bias_add", "skip_bias_add_qkv", "unk_token_id")
    _plain(c, d, softmax(c, d.hidden, _BIASED), bias=True)
    d.norm_elements_per_layer = 4 * d.hidden
    d.other_parameters = 3 * d.hidden
    return d


def opt(c: Config) -> Draft:
    """OPT: learned positions with an offset of 2, biases everywhere."""
    d = start(c, tied=True)
    width = c.optional("word_embed_proj_dim")
    if width not in (None, d.hidden):
        c.fail("word_embed_proj_dim", "an embedding narrower than the hidden size is not understood")
    c.skip(
        "do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine", "layerdrop", "_remove_final_layer_norm"
    )
    _plain(c, d, softmax(c, d.hidden, _BIASED), bias=True)
    d.positions = d.context + 2
    d.norm_elements_per_layer = 4 * d.hidden
    d.other_parameters = d.hidden
    return d


def gpt2(c: Config) -> Draft:
    """GPT-2 and GPT-BigCode (StarCoder): learned positions, biases everywhere, multi-query when the file says so."""
    d = start(c, tied=True)
    c.skip("n_ctx")
    mixer = softmax(c, d.hidden, _BIASED)
    if c.flag("multi_query"):
        mixer["kv_heads"] = 1
    _plain(c, d, mixer, bias=True)
    d.positions = d.context
    d.norm_elements_per_layer = 4 * d.hidden
    d.other_parameters = d.hidden
    return d


def gptj(c: Config) -> Draft:
    """GPT-J: attention and feed-forward in parallel on one norm; the head has a bias."""
    d = start(c)
    d.parallel = True
    _plain(c, d, softmax(c, d.hidden, LLAMA), bias=True)
    d.norm_elements_per_layer = 2 * d.hidden
    d.other_parameters = d.hidden + d.vocab
    return d


def gpt_neox(c: Config) -> Draft:
    """GPT-NeoX and Pythia: parallel residual with two norms, biases everywhere."""
    d = start(c)
    d.parallel = c.flag("use_parallel_residual", default=True)
    bias = c.flag("attention_bias", default=True)
    mixer = softmax(c, d.hidden, _BIASED if bias else LLAMA)
    _plain(c, d, mixer, bias=True)
    d.norm_elements_per_layer = 4 * d.hidden
    d.other_parameters = d.hidden
    return d


def mpt(c: Config) -> Draft:
    """MPT: ALiBi, no biases, expansion_ratio times the hidden width."""
    d = start(c, tied=True, context=2_048)
    nested = c.mapping("attn_config") or {}
    inner = Config(nested, c.file, None, f"{c.path}attn_config.")
    kv = inner.optional("kv_n_heads")
    if inner.text("attn_type", default="multihead_attention") == "multiquery_attention":
        kv = 1
    inner.skip("alibi", "alibi_bias_max", "attn_impl", "attn_pdrop", "attn_uses_sequence_id", "clip_qkv", "prefix_lm")
    inner.skip("qk_ln", "softmax_scale")
    inner.leftovers()
    if inner.flag("qk_ln"):
        c.fail("attn_config.qk_ln", "a norm of queries and keys is not understood")
    c.skip("ffn_config", "no_bias", "learned_pos_emb", "embedding_fraction", "resid_pdrop", "verbose", "fc_type")
    if not c.flag("no_bias", default=True):
        c.fail("no_bias", "MPT with biases is not understood")
    mixer = softmax(c, d.hidden, LLAMA) | ({"kv_heads": kv} if kv else {})
    ratio = c.count("expansion_ratio", default=4, most=1_000)
    _plain(c, d, mixer, bias=False, width=c.optional(*INTERMEDIATE) or ratio * d.hidden)
    d.norm_elements_per_layer = 2 * d.hidden
    return d


def falcon(c: Config) -> Draft:
    """Falcon: parallel blocks; one KV head with multi_query unless the new decoder architecture is on."""
    d = start(c, tied=True)
    new = c.flag("new_decoder_architecture")
    heads = c.count(*HEADS)
    multi_query = c.flag("multi_query", default=True)
    given = c.optional("num_kv_heads", "num_key_value_heads", "n_head_kv")
    kv = (given or heads) if new else (1 if multi_query else heads)
    bias = c.flag("bias")
    c.skip("alibi", "apply_residual_connection_post_layernorm")
    d.parallel = c.flag("parallel_attn", default=True) or new
    if d.hidden % heads:
        c.fail(HEADS[0], f"{heads} does not divide hidden_size {d.hidden}")
    mixer: Part = {"kind": "attention", "heads": heads, "kv_heads": kv, "head_dim": d.hidden // heads}
    mixer |= {"qkv_bias": True, "out_bias": True} if bias else {}
    norms = c.optional("num_ln_in_parallel_attn", most=2) or (2 if new or not d.parallel else 1)
    c.skip(*KV_HEADS)
    _plain(c, d, mixer, bias=bias)
    d.norm_elements_per_layer = 2 * norms * d.hidden
    d.other_parameters = d.hidden
    return d


def phi(c: Config) -> Draft:
    """Phi-1 and Phi-2: parallel blocks on one norm, biases everywhere, also at the head."""
    d = start(c)
    d.parallel = True
    c.skip("qk_layernorm")
    if c.flag("qk_layernorm"):
        c.fail("qk_layernorm", "a norm of queries and keys is not understood")
    _plain(c, d, softmax(c, d.hidden, _BIASED), bias=True)
    d.norm_elements_per_layer = 2 * d.hidden
    d.other_parameters = d.hidden + d.vocab
    return d


def deci(c: Config) -> Draft:
    """Models pruned by architecture search (Nemotron NAS): block_configs says what each layer still holds."""
    d = start(c)
    layers = layer_count(c)
    heads = c.count(*HEADS)
    if d.hidden % heads:
        c.fail(HEADS[0], f"{heads} does not divide hidden_size {d.hidden}")
    c.skip("num_key_value_heads", "num_key_value_heads_per_layer", "intermediate_size", "mlp_bias", "attention_bias")
    for key in ("attention_bias", "mlp_bias"):
        if c.flag(key):
            c.fail(key, "biases are not understood here")
    blocks = c.per_layer("block_configs", layers)
    if blocks is None:
        c.fail("block_configs", "missing", "add one entry for each layer")
    for i, block in enumerate(blocks):
        attention, ffn = (block.get(key) if isinstance(block, Mapping) else None for key in ("attention", "ffn"))
        if not isinstance(attention, Mapping) or not isinstance(ffn, Mapping):
            c.fail(f"block_configs[{i}]", "must hold attention and ffn")
        d.layer(_deci_mixer(c, d, heads, i, attention), _deci_ffn(c, d, i, ffn))
    return d


def _deci_mixer(c: Config, d: Draft, heads: int, i: int, block: Mapping[str, Any]) -> str | tuple[str, ...]:
    a = Config(block, c.file, None, f"block_configs[{i}].attention.")
    a.skip("unshifted_sink", "use_prefill_window_in_sink_attention")
    for key in ("window_length", "sparsify", "num_sink_tokens"):
        if a.has(key):
            a.fail(key, "is not understood", "describe the model in a YAML document")
    if a.flag("no_op"):
        return ()
    if a.flag("replace_with_linear"):
        return d.mixer("linear", {"kind": "linear"})
    group = a.count("n_heads_in_group")
    if heads % group:
        a.fail("n_heads_in_group", f"{group} does not divide {heads} heads")
    return d.mixer(
        "attention", {"kind": "attention", "heads": heads, "kv_heads": heads // group, "head_dim": d.hidden // heads}
    )


def _deci_ffn(c: Config, d: Draft, i: int, block: Mapping[str, Any]) -> str | tuple[str, ...]:
    f = Config(block, c.file, None, f"block_configs[{i}].ffn.")
    f.skip("sparsify")
    if f.flag("no_op"):
        return ()
    if f.flag("replace_with_linear"):
        return d.ffn("linear", {"kind": "linear"})
    multiple = f.raw("ffn_mult")[1]
    if isinstance(multiple, bool) or not isinstance(multiple, int | float) or not 0 < multiple < 1_000:
        f.fail("ffn_mult", "must be a positive number")
    # Two thirds for the gate, rounded up to 256, as the DeciLM configuration class does.
    width = 256 * -(-int(2 * multiple * d.hidden / 3) // 256)
    return d.ffn("dense", {"kind": "dense", "intermediate": width})


READERS: Final[dict[str, Any]] = {
    "bloom": bloom,
    "opt": opt,
    "gpt2": gpt2,
    "gpt_bigcode": gpt2,
    "gptj": gptj,
    "gpt_neox": gpt_neox,
    "mpt": mpt,
    "falcon": falcon,
    "RefinedWeb": falcon,
    "RefinedWebModel": falcon,
    "phi": phi,
    "nemotron-nas": deci,
}
