"""Model documents: what a network is made of, declared layer kind by layer kind.

A model is a hidden width, a vocabulary, two small tables of named parts (mixers, feed-forward blocks) and a
layer list that says which parts stand where. Every attention family is one more mixer kind; nothing below
this file knows a model's name.
"""

import math
from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from llmcap.specs.base import Count, Document, Part, Source, Tokens
from llmcap.specs.registry import register

Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8", "nvfp4", "mxfp4", "int4"]
WeightClass = Literal["embedding", "lm_head", "norm", "router", "attention", "dense", "shared_expert", "expert"]


MOST_LAYERS = 10_000


class BlockSparse(Part):
    """Block-sparse selection on top of whole K and V (MiniMax-M3 kind): compute falls, memory does not."""

    index_heads: Count
    """Query heads of the index scorer."""
    index_dim: Count
    """Width of the one index key kept per token."""
    block: Tokens
    """Tokens per selectable block."""
    top_blocks: Count
    """Blocks a query attends to."""
    local_blocks: int = Field(default=1, ge=0)
    """Most recent blocks always attended to, beside the selected ones."""


class Attention(Part):
    """Softmax attention with cached keys and values: MHA, GQA or MQA, over the whole context or a part of it."""

    kind: Literal["attention"]
    heads: Count
    """Query heads."""
    kv_heads: Count
    """Key/value heads; equal to `heads` for MHA, 1 for MQA."""
    head_dim: Count
    """Width of a query/key head."""
    v_head_dim: Count | None = None
    """Width of a value head when it differs from `head_dim`."""
    scope: Literal["full", "sliding", "chunked"] = "full"
    """Which earlier tokens a token sees: all, the last `window`, or those of its own aligned chunk."""
    window: Tokens | None = None
    """Window or chunk length [tokens]; required unless scope is full."""
    q_lora_rank: Count | None = None
    """Rank of a factorised query projection (MFA)."""
    output_gate: bool = False
    """A gate as wide as the heads' output, projected with the queries."""
    head_gate: bool = False
    """A gate of one scalar per head."""
    qkv_bias: bool = False
    out_bias: bool = False
    qk_norm: Literal["none", "head", "full"] = "none"
    """RMS norm of queries and keys: none, one weight of head_dim each, or one of the full projected width."""
    sinks: bool = False
    """One learned sink logit per query head."""
    owns_kv: bool = True
    """False: this layer reads the cache of an earlier layer and has no K and V of its own (Gemma 3n/4, CLA)."""
    shares_kv_projection: bool = False
    """V is projected by K's matrix (both are still cached)."""
    sparse: BlockSparse | None = None

    @model_validator(mode="after")
    def _scope_and_heads(self) -> Self:
        if self.scope != "full" and self.window is None:
            raise ValueError(f"scope '{self.scope}' needs a window (tokens)")
        if self.scope == "full" and self.window is not None:
            raise ValueError("a window needs scope sliding or chunked")
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads ({self.kv_heads})")
        return self


class Indexer(Part):
    """Lightning indexer of DeepSeek sparse attention: scores all tokens, attends to the best `top_k`."""

    heads: Count
    head_dim: Count
    top_k: Tokens
    owned: bool = True
    """False: the layer reuses the selection of an earlier layer and keeps no index keys."""
    pool: Count = 1
    """Tokens per index key (GLM-5.3-Flash pools keys)."""


class MultiHeadLatentAttention(Part):
    """MLA (DeepSeek-V2/V3, Kimi K2, GLM-5): one latent and one RoPE key per token for all heads."""

    kind: Literal["mla"]
    heads: Count
    q_lora_rank: Count | None = None
    kv_lora_rank: Count
    qk_nope_head_dim: Count
    qk_rope_head_dim: int = Field(ge=0)
    v_head_dim: Count
    indexer: Indexer | None = None


class CompressedAttention(Part):
    """Compressed attention beside a window ring (DeepSeek-V4): CSA (ratio 4, indexer), HCA (128), 0 = window only."""

    kind: Literal["compressed"]
    heads: Count
    head_dim: Count
    """Width of the one vector that serves as key and value."""
    rope_dim: Count
    q_lora_rank: Count
    ratio: int = Field(ge=0)
    """Tokens per stored record; 0 keeps the window ring only."""
    window: Tokens
    o_groups: Count
    o_lora_rank: Count
    indexer: Indexer | None = None


class GatedDelta(Part):
    """Gated delta rule (Qwen3-Next, Qwen3.5): one matrix state per value head, whatever the context."""

    kind: Literal["gated_delta"]
    key_heads: Count
    value_heads: Count
    key_dim: Count
    value_dim: Count
    conv_kernel: Count


class KimiDelta(Part):
    """Kimi delta attention (KDA): gated delta with one decay per channel."""

    kind: Literal["kda"]
    heads: Count
    head_dim: Count
    conv_kernel: Count
    gate_rank: Count | None = None
    """Rank of the decay and output-gate projections; head_dim when absent."""


class Lightning(Part):
    """Lightning attention (MiniMax-M1, Ling-2.5): one state of head_dim x head_dim per head, no convolution."""

    kind: Literal["lightning"]
    heads: Count
    head_dim: Count


class Mamba2(Part):
    """Mamba-2 state space layer (Nemotron-H, Granite 4, Falcon-H1, Bamba)."""

    kind: Literal["mamba2"]
    heads: Count
    head_dim: Count
    groups: Count
    state: Count
    conv_kernel: Count


class Mamba1(Part):
    """Mamba-1 state space layer (Jamba)."""

    kind: Literal["mamba1"]
    inner: Count
    state: Count
    conv_kernel: Count
    dt_rank: Count
    dt_bc_norm: bool = False
    """Jamba's RMS norms on dt, B and C."""


class ShortConv(Part):
    """Gated short convolution (LFM2): the last kernel - 1 inputs are all that is kept."""

    kind: Literal["short_conv"]
    kernel: Count


class LinearMixer(Part):
    """A plain linear map where attention was (blocks replaced by neural architecture search)."""

    kind: Literal["linear"]


Mixer = Annotated[
    Attention
    | MultiHeadLatentAttention
    | CompressedAttention
    | GatedDelta
    | KimiDelta
    | Lightning
    | Mamba2
    | Mamba1
    | ShortConv
    | LinearMixer,
    Field(discriminator="kind"),
]


class DenseFeedForward(Part):
    """Two-matrix (plain) or three-matrix (gated) feed-forward block."""

    kind: Literal["dense"]
    intermediate: Count
    gated: bool = True
    bias: bool = False


class MixtureOfExperts(Part):
    """Router, `top_k` of `experts` routed experts per token, optional shared expert of one total width."""

    kind: Literal["moe"]
    experts: Count
    top_k: Count
    intermediate: Count
    """Inner width of one routed expert."""
    gated: bool = True
    bias: bool = False
    shared_intermediate: int = Field(default=0, ge=0)
    """Inner width of all shared experts together; 0 = none."""
    shared_gate: bool = False
    """A learned scalar gate on the shared expert (Qwen MoE)."""
    latent: Count | None = None
    """Width in which the routed experts work when narrower than the hidden size (latent MoE)."""
    router_bias: bool = False
    """A correction bias of one number per expert."""
    idle_experts: int = Field(default=0, ge=0)
    """Experts that do nothing (LongCat's zero-computation experts): the router knows them, they hold no weights."""

    @model_validator(mode="after")
    def _top_k(self) -> Self:
        if self.top_k > self.experts + self.idle_experts:
            raise ValueError(f"top_k ({self.top_k}) exceeds the experts ({self.experts})")
        return self


class LinearFeedForward(Part):
    """A plain linear map where the feed-forward block was (NAS)."""

    kind: Literal["linear"]


FeedForward = Annotated[DenseFeedForward | MixtureOfExperts | LinearFeedForward, Field(discriminator="kind")]


class Layer(Part):
    """One layer: the names of its mixers and feed-forward blocks, in order; either may be empty."""

    mixer: tuple[str, ...] | str = ()
    ffn: tuple[str, ...] | str = ()

    @property
    def mixers(self) -> tuple[str, ...]:
        return (self.mixer,) if isinstance(self.mixer, str) else self.mixer

    @property
    def ffns(self) -> tuple[str, ...]:
        return (self.ffn,) if isinstance(self.ffn, str) else self.ffn


class Repeat(Part):
    """A block of layers and how often it comes in a row."""

    repeat: Count = 1
    block: tuple[Layer, ...] = Field(min_length=1)


class Published(Part):
    """The parameter counts that the publisher states, kept to check the spec against."""

    parameters_total: Count | None = None
    parameters_active: Count | None = None
    count: Literal["exact", "rounded"] = "rounded"
    """exact: checkpoint totals or four and more digits; rounded: a name such as 120B."""
    note: str = ""


class Model(Document):
    """A language model as the performance model sees it."""

    schema_name: ClassVar[str] = "llmcap.model/1"

    id: str
    name: str
    family: str = ""
    huggingface: tuple[str, ...] = ()
    """Hugging Face ids under which the model is also found."""
    max_context: Tokens
    hidden_size: Count
    vocab_size: Count
    tie_embeddings: bool = False
    position_embeddings: int = Field(default=0, ge=0)
    """Learned position vectors (OPT, GPT-2); 0 for rotary or ALiBi."""
    weight_dtype: Dtype = "bf16"
    """Dtype of the released weights, where `weight_dtypes` says nothing else."""
    weight_dtypes: dict[WeightClass, Dtype] = Field(default_factory=dict)
    """Classes of weights that keep their own dtype when `--weight-dtype` sets the rest."""
    int4_group: Count = 32
    """Elements per scale of int4 weights."""
    recurrent_dtype: Dtype = "fp32"
    """Dtype of recurrent states."""
    parallel_blocks: bool = False
    """Mixer and feed-forward side by side on one input (Falcon, Command-R, GPT-J): one all-reduce instead of two."""
    norm_elements_per_layer: int | None = Field(default=None, ge=0)
    """Norm weights and biases per layer when not one vector of hidden_size before each block."""
    mixers: dict[str, Mixer]
    ffns: dict[str, FeedForward] = Field(default_factory=dict)
    layers: tuple[Repeat, ...] = Field(min_length=1)
    other_parameters: int = Field(default=0, ge=0)
    """Text parameters outside the parts above, stored with the embedding class (explained in a source's note)."""
    parameters_apart: dict[str, int] = Field(default_factory=dict)
    """Parameters not counted in the text model: vision, audio, mtp."""
    published: Published | None = None
    notes: str = ""
    sources: tuple[Source, ...] = ()

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        used_mixers: set[str] = set()
        used_ffns: set[str] = set()
        for group in self.layers:
            for layer in group.block:
                used_mixers.update(layer.mixers)
                used_ffns.update(layer.ffns)
        for what, used, known in (
            ("mixer", used_mixers, set(self.mixers)),
            ("ffn", used_ffns, set(self.ffns)),
        ):
            if missing := sorted(used - known):
                has = ", ".join(sorted(known)) or "none"
                raise ValueError(f"layers use {what} '{missing[0]}', which {what}s does not define (has: {has})")
            if idle := sorted(known - used):
                raise ValueError(f"{what} '{idle[0]}' is defined, but no layer uses it")
        if self.layer_count > MOST_LAYERS:
            raise ValueError(f"{self.layer_count:,} layers are more than any model has (at most {MOST_LAYERS:,})")
        return self

    def layer_sequence(self) -> Iterator[Layer]:
        """The layers one by one, in order."""
        for group in self.layers:
            for _ in range(group.repeat):
                yield from group.block

    @property
    def layer_count(self) -> int:
        return sum(group.repeat * len(group.block) for group in self.layers)

    def mixer_counts(self) -> dict[str, int]:
        """How many layers hold each named mixer."""
        counts: dict[str, int] = dict.fromkeys(self.mixers, 0)
        for group in self.layers:
            for layer in group.block:
                for name in layer.mixers:
                    counts[name] += group.repeat
        return counts

    def ffn_counts(self) -> dict[str, int]:
        """How many layers hold each named feed-forward block."""
        counts: dict[str, int] = dict.fromkeys(self.ffns, 0)
        for group in self.layers:
            for layer in group.block:
                for name in layer.ffns:
                    counts[name] += group.repeat
        return counts

    @property
    def query_heads(self) -> int:
        """Query heads that tensor parallelism must divide: the greatest common divisor over the softmax mixers.

        Models without softmax attention divide by the heads of their recurrent layers; 1 when there are none.
        """
        softmax = (Attention, MultiHeadLatentAttention, CompressedAttention)
        heads = [mixer.heads for mixer in self.mixers.values() if isinstance(mixer, softmax)]
        if not heads:
            fields = ("heads", "value_heads")
            found = (getattr(mixer, field, None) for mixer in self.mixers.values() for field in fields)
            heads = [int(count) for count in found if count is not None]
        return math.gcd(*heads) if heads else 1


register("model")(Model)
