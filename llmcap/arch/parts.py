"""The vocabulary in which every layer kind describes itself: matrices, state and attention work.

A mixer or feed-forward kind is translated once into these small records; parameters, memory, FLOP and bytes all
follow from them, so a new family needs one translation and nothing else.
"""

from __future__ import annotations

import math
from typing import Literal

from llmcap.records import dataclass

Scope = Literal["full", "sliding", "chunked"]


def ways(units: int, tp: int) -> float:
    """Share of `units` equal pieces that the fullest of `tp` devices holds.

    Pieces do not split: 8 KV heads on 16 devices leave one head, an eighth, on each (copies); a latent (1 piece)
    stays whole everywhere.

    >>> ways(8, 4), ways(8, 16), ways(1, 8)
    (0.25, 0.125, 1.0)
    """
    return math.ceil(units / tp) / units


@dataclass(frozen=True, slots=True)
class Matrix:
    """A weight matrix of one layer, multiplied with every token that meets it.

    Tensor parallelism divides the columns (outputs) or the rows (inputs) in whole units, usually heads.
    """

    name: str
    k: int
    """Inputs."""
    columns: tuple[tuple[int, int], ...]
    """(outputs, units they divide into); several when fused, as q|k|v are. Units 0: any number of devices divides."""
    weight_class: str
    shard: Literal["column", "row", "none"] = "column"
    row_units: int = 0
    """Units the inputs divide into when shard is row; 0: any number of devices."""

    @property
    def n(self) -> int:
        """Outputs."""
        return sum(n for n, _ in self.columns)

    @property
    def parameters(self) -> int:
        return self.k * self.n

    def local(self, tp: int) -> tuple[float, float]:
        """(k, n) on the fullest device of a tensor-parallel group."""
        if tp == 1 or self.shard == "none":
            return float(self.k), float(self.n)
        if self.shard == "row":
            return self.k * (ways(self.row_units, tp) if self.row_units else 1.0 / tp), float(self.n)
        return float(self.k), sum(n * (ways(u, tp) if u else 1.0 / tp) for n, u in self.columns)


@dataclass(frozen=True, slots=True)
class StateTerm:
    """A piece of what is kept per sequence and layer.

    Kept slots for T tokens: floor(min(T, cap) / stride), or one when constant.
    """

    kind: str
    """Layer kind it is reported under."""
    elements: int
    """Elements per slot."""
    dtype: Literal["kv", "index", "recurrent", "conv", "fp32"]
    """Which dtype stores it: the KV dtype, the KV dtype with index scales, the model's recurrent dtype, bf16, fp32."""
    units: int
    """Pieces tensor parallelism can divide it into before it copies."""
    cap: int | None = None
    """Most tokens that are kept; None: all."""
    stride: int = 1
    """Tokens per slot."""
    constant: bool = False
    """Kept once per sequence, whatever its length."""
    ring: bool = False
    """A ring of `cap` tokens by construction: no engine keeps the whole sequence here."""
    record_bytes: float | None = None
    """Bytes an engine's padded fp8 record takes instead, per slot (reserved, not logical)."""
    latent: bool = False
    """No heads to divide by construction (a latent, an index key): a connector may know that all ranks hold the same
    and store it once. A single KV head is copied too, but stored by each rank that holds it."""


@dataclass(frozen=True, slots=True)
class AttentionWork:
    """One attention-like scan of queries over earlier tokens, per layer."""

    kind: str
    heads: int
    """Query heads; divided by tensor parallelism."""
    qk_dim: int
    v_dim: int
    """Width of the value product; 0 for a scorer (index)."""
    kv_elements: int
    """Elements read per attended slot and layer, all KV heads."""
    units: int
    """Pieces the KV divides into."""
    scope: Scope = "full"
    window: int | None = None
    stride: int = 1
    """Tokens per attended slot."""
    extra_slots: int = 0
    """Slots attended beside the scope (a window ring next to compressed records)."""
    decode_qk_dim: int | None = None
    """Width of the score product in decode when it differs (absorbed MLA)."""
    decode_v_dim: int | None = None
    role: Literal["attention", "index"] = "attention"
    selects: int | None = None
    """At most this many slots are attended (learned selection); unlike a window, every slot stays in memory."""


@dataclass(frozen=True, slots=True)
class ScanWork:
    """Recurrent update of a constant state: FLOP per token and the state read and written once per step."""

    kind: str
    flop_per_token: float
    """[FLOP] per token and layer."""
    state_elements: int
    units: int


@dataclass(frozen=True, slots=True)
class ExpertWork:
    """Routed experts of one layer."""

    experts: int
    top_k: int
    idle_experts: int
    hidden: int
    """Width the experts read and write (the latent width in latent MoE)."""
    intermediate: int
    gated: bool

    @property
    def matrices(self) -> int:
        return 3 if self.gated else 2

    @property
    def parameters_per_expert(self) -> int:
        return self.matrices * self.hidden * self.intermediate

    @property
    def active_per_token(self) -> float:
        """Real experts a token meets on average (idle experts do nothing)."""
        return self.top_k * self.experts / (self.experts + self.idle_experts)


@dataclass(frozen=True, slots=True)
class LayerPart:
    """Everything one mixer or feed-forward block of one layer is made of."""

    name: str
    kind: str
    matrices: tuple[Matrix, ...] = ()
    vectors: int = 0
    """Parameters outside matrices (biases, norms, gates), kept in the norm class."""
    states: tuple[StateTerm, ...] = ()
    attention: tuple[AttentionWork, ...] = ()
    scans: tuple[ScanWork, ...] = ()
    experts: ExpertWork | None = None
    expert_vectors: int = 0
    """Parameters outside matrices that belong to routed experts (biases)."""
    elementwise: int = 0
    """Elements read or written per token between the matrices (norms, activations, rotary), for memory traffic."""
