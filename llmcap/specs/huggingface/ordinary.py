"""Families of attention layers and feed-forward blocks: dense ones, and mixtures of experts over the same attention."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from llmcap.records import dataclass
from llmcap.specs.huggingface.config import (
    EXPERT_WIDTH,
    EXPERTS,
    HEADS,
    INTERMEDIATE,
    KV_HEADS,
    LAYERS,
    MOST_LAYERS,
    TOP_K,
    Config,
)
from llmcap.specs.huggingface.draft import Draft, Part, start

SCOPES: Final = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "global_attention": "full",
    "sliding_attention": "sliding",
    "local": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
}


@dataclass(frozen=True, slots=True)
class Traits:
    """How one model type differs from plain pre-norm GQA with a gated feed-forward block and no biases.

    The values follow the configuration and modelling classes of transformers 5.24.
    """

    qkv_bias: bool = False
    """Bias of q, k and v when no key says otherwise."""
    out_bias: bool = False
    bias_keys: tuple[str, ...] = ("attention_bias",)
    bias_covers_out: bool = True
    """Whether the key's bias is also one of the output projection."""
    mlp_bias: bool = False
    mlp_bias_keys: tuple[str, ...] = ("mlp_bias",)
    gated: bool = True
    qk_norm: str = "none"
    qk_norm_on: bool = True
    """Whether the norm is there when no key (use_qk_norm, qk_norm) says so."""
    tied: bool = False
    norm_vectors: int = 0
    """Norm vectors of the hidden width per layer, when not one before each block."""
    final_norm_bias: bool = False
    parallel: bool = False
    every: int = 0
    """Every n-th layer is full, the others slide; 0: none slides; 1: all slide when a window is given."""
    gated_window: bool = False
    """Sliding layers only with use_sliding_window, from max_window_layers on (Qwen)."""
    sinks: bool = False
    defaults: Mapping[str, int] | None = None
    """Class defaults for keys that published files leave out."""

    def default(self, key: str) -> int | None:
        return (self.defaults or {}).get(key)


#: Gives each layer's feed-forward block.
Rule = Callable[[Config, Draft, int, Traits], list[Part]]


def layer_count(c: Config) -> int:
    """Number of layers."""
    return c.count(*LAYERS, most=MOST_LAYERS)


def head_width(c: Config, hidden: int, heads: int, default: int | None = None) -> int:
    """head_dim as given; hidden / heads only when the file does not say."""
    given = c.optional("head_dim", "attention_head_dim", most=100_000)
    if given is not None:
        return given
    if default is not None:
        return default
    if hidden % heads:
        c.fail("head_dim", f"missing, and hidden_size {hidden} does not divide by {heads} heads", "add 'head_dim'")
    return hidden // heads


def windows(c: Config, layers: int, context: int, traits: Traits) -> list[tuple[str, int | None]]:
    """(scope, window) of each layer, from layer_types or else from the pattern of the model type."""
    window = c.optional("sliding_window", "sliding_window_size", minimum=0, most=10**12)
    scopes = c.kinds("layer_types", layers, SCOPES)
    pattern: int | str | None = traits.every or None
    for key in ("sliding_window_pattern", "_sliding_window_pattern"):
        value = c.raw(key)[1]
        if isinstance(value, str):
            pattern = value
        elif value is not None:
            pattern = c.count(key, most=MOST_LAYERS)
    if traits.gated_window:
        first = c.optional("max_window_layers", minimum=0) or 0
        if not c.flag("use_sliding_window"):
            return [("full", None)] * layers
        if scopes is None:
            scopes = ["full" if i < first else "sliding" for i in range(layers)]
    elif "use_sliding_window" in c.data and not c.flag("use_sliding_window"):
        return [("full", None)] * layers
    if scopes is None:
        if window and window < context and pattern is None:
            c.fail("sliding_window", "this model type has no sliding layers of its own", "name them by 'layer_types'")
        scopes = _by_pattern(c, layers, pattern if window else None)
    chunk = c.optional("attention_chunk_size", most=10**12) if "chunked" in scopes else None
    found: list[tuple[str, int | None]] = []
    for scope in scopes:
        width = chunk if scope == "chunked" else window
        if scope != "full" and not width:
            c.fail("sliding_window", f"missing, but layers are {scope}", "add the window in tokens")
        # A window that no context can fill is no window.
        found.append(("full", None) if scope == "full" or (width or 0) >= context else (scope, width))
    return found


def _by_pattern(c: Config, layers: int, pattern: int | str | None) -> list[str]:
    if pattern is None:
        return ["full"] * layers
    if isinstance(pattern, str):
        if not pattern or set(pattern) - {"L", "G"}:
            c.fail("sliding_window_pattern", "must be a number, or letters L (local) and G (global)")
        return ["full" if pattern[i % len(pattern)] == "G" else "sliding" for i in range(layers)]
    if pattern == 1:
        return ["sliding"] * layers
    return ["full" if (i + 1) % pattern == 0 else "sliding" for i in range(layers)]


def softmax(c: Config, hidden: int, traits: Traits, **changes: Any) -> Part:
    """The attention part without scope: heads, widths, biases, norms of queries and keys."""
    heads = c.count(*HEADS, default=traits.default("heads"), most=100_000)
    kv = c.optional(*KV_HEADS, most=100_000) or traits.default("kv_heads") or heads
    part: Part = {"kind": "attention", "heads": heads, "kv_heads": kv}
    part["head_dim"] = head_width(c, hidden, heads, traits.default("head_dim"))
    qkv, out = traits.qkv_bias, traits.out_bias
    for key in traits.bias_keys:
        if c.has(key):
            qkv = c.flag(key)
            out = qkv and traits.bias_covers_out
        c.skip(key)
    if c.has("attention_out_bias"):
        out = c.flag("attention_out_bias")
    norm = traits.qk_norm
    if norm != "none" and not c.flag("use_qk_norm", "qk_norm", default=traits.qk_norm_on):
        norm = "none"
    part |= {"qkv_bias": True} if qkv else {}
    part |= {"out_bias": True} if out else {}
    part |= {"qk_norm": norm} if norm != "none" else {}
    part |= {"sinks": True} if traits.sinks else {}
    if part["heads"] % part["kv_heads"]:
        c.fail(KV_HEADS[0], f"{part['kv_heads']} does not divide the {part['heads']} heads")
    return part | changes


def scoped(part: Part, scope: str, window: int | None) -> Part:
    """`part` with its scope."""
    return part if scope == "full" else part | {"scope": scope, "window": window}


def named(scope: str) -> str:
    """Name of an attention mixer: what it sees."""
    return "attention" if scope == "full" else scope


def dense(c: Config, traits: Traits, intermediate: int | None = None) -> Part:
    """A dense feed-forward block."""
    width = intermediate or c.count(*INTERMEDIATE, default=traits.default("intermediate"))
    bias = traits.mlp_bias
    for key in traits.mlp_bias_keys:
        bias = c.flag(key, default=bias)
    part: Part = {"kind": "dense", "intermediate": width}
    part |= {} if traits.gated else {"gated": False}
    return part | ({"bias": True} if bias else {})


def mixture(c: Config, *, width: int | None = None, shared: int = 0, gated: bool = True, **changes: Any) -> Part:
    """A mixture of experts; `shared` is the inner width of all shared experts together."""
    part: Part = {
        "kind": "moe",
        "experts": c.count(*EXPERTS, most=1_000_000),
        "top_k": c.count(*TOP_K, most=1_000_000),
        "intermediate": width or c.count(*EXPERT_WIDTH),
    }
    part |= {} if gated else {"gated": False}
    part |= {"shared_intermediate": shared} if shared else {}
    return part | changes


def shared_experts(c: Config, width: int, *names: str, default: int = 0) -> int:
    """Inner width of the shared experts: their number times one expert's width."""
    number = c.optional(*(names or ("n_shared_experts", "num_shared_experts")), minimum=0, most=1_000)
    return (default if number is None else number) * width


def ordinary(
    c: Config,
    traits: Traits,
    ffn: Rule | None = None,
) -> Draft:
    """Attention and one feed-forward block per layer; `ffn` gives each layer's block when it is not the dense one."""
    d = start(c, tied=traits.tied, vocab=traits.default("vocab"), context=traits.default("context"))
    d.parallel = traits.parallel
    layers = layer_count(c)
    part = softmax(c, d.hidden, traits)
    scopes = windows(c, layers, d.context, traits)
    blocks = ffn(c, d, layers, traits) if ffn else [dense(c, traits)] * layers
    for (scope, window), block in zip(scopes, blocks, strict=True):
        d.layer(d.mixer(named(scope), scoped(part, scope, window)), d.ffn(block["kind"], block))
    if traits.norm_vectors:
        d.norm_elements_per_layer = traits.norm_vectors * d.hidden
    if traits.final_norm_bias:
        d.other_parameters += d.hidden
    return d


LLAMA: Final = Traits()
_QWEN2: Final = Traits(
    qkv_bias=True, bias_keys=("attention_bias", "qkv_bias"), bias_covers_out=False, gated_window=True
)
_QWEN3: Final = Traits(qk_norm="head", gated_window=True, bias_keys=("attention_bias", "qkv_bias"))
_NORM4: Final = Traits(tied=True, norm_vectors=4)

#: Model types that need no more than their traits.
DENSE: Final[dict[str, Traits]] = {
    "llama": LLAMA,
    "arcee": Traits(gated=False),
    "mistral": Traits(every=1),
    "ministral": Traits(every=1),
    "ministral3": Traits(every=1),
    "qwen2": _QWEN2,
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "mimo": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_vl_text": _QWEN3,
    "seed_oss": Traits(qkv_bias=True),
    "exaone": LLAMA,
    "internlm2": Traits(bias_keys=("bias",)),
    "glm": Traits(qkv_bias=True, bias_covers_out=False),
    "glm4": Traits(bias_covers_out=False, norm_vectors=4),
    "glm4v_text": Traits(bias_covers_out=False, norm_vectors=4),
    "phi4_multimodal": Traits(tied=True, every=1),
    "smollm3": Traits(tied=True),
    "exaone4": Traits(qk_norm="head", every=4),
    "olmo": Traits(norm_vectors=0),
    "olmo2": Traits(qk_norm="full"),
    "olmo3": Traits(qk_norm="full", every=4),
    "phi3": Traits(every=1),
    "internlm3": Traits(bias_keys=("qkv_bias", "bias", "attention_bias")),
    "granite": LLAMA,
    "ernie4_5": Traits(tied=True, bias_keys=("use_bias",), mlp_bias_keys=("use_bias",)),
    "hunyuan_v1_dense": Traits(qk_norm="head"),
    "apertus": Traits(qk_norm="head", gated=False),
    "apertus1p5_text": Traits(qk_norm="head", gated=False),
    "cohere": Traits(tied=True, parallel=True, qk_norm="full", qk_norm_on=False),
    "cohere2": Traits(tied=True, parallel=True, every=4),
    "gemma": Traits(tied=True),
    "gemma2": Traits(
        tied=True, norm_vectors=4, every=2,
        defaults={"vocab": 256_000, "context": 8_192, "heads": 8, "kv_heads": 4, "head_dim": 256},
    ),
    "gemma3_text": Traits(
        tied=True, norm_vectors=4, every=6, qk_norm="head",
        defaults={"vocab": 262_208, "context": 131_072, "heads": 8, "kv_heads": 4, "head_dim": 256},
    ),
    "starcoder2": Traits(
        tied=True, qkv_bias=True, out_bias=True, bias_keys=("use_bias",), mlp_bias=True, mlp_bias_keys=("use_bias",),
        gated=False, norm_vectors=4, final_norm_bias=True, every=1,
    ),
    "nemotron": Traits(gated=False, norm_vectors=4, final_norm_bias=True),
    "stablelm": Traits(bias_keys=("use_qkv_bias",), bias_covers_out=False, norm_vectors=4, final_norm_bias=True),
}  # fmt: skip
