"""The operator table: what one device does in one engine step, as a handful of records.

Everything but attention depends on a step only through its token count m, so a record holds the figures per token or
per call and the engine is asked once per distinct m. Attention depends on positions and is summed in closed form.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Literal

from llmcap.arch.dtypes import WIDE, bytes_per_element
from llmcap.arch.parameters import WeightDtypes
from llmcap.arch.parts import AttentionWork, ExpertWork, ScanWork, ways
from llmcap.arch.structure import Parallelism, Structure
from llmcap.records import dataclass

#: Activations between operators travel in bf16.
RESIDUAL_BYTES = 2.0
#: A partial attention output comes with the log of its sum of exponentials for each query and head, in fp32.
WEIGHT_BYTES = 4.0


@dataclass(frozen=True, slots=True)
class Gemm:
    """A weight matrix met by every token of the step, on this device."""

    name: str
    layers: int
    k: float
    n: float
    weight_dtype: str
    compute_dtype: str
    weight_bytes: float
    """Per layer. [B]"""
    bytes_per_row: float
    """Activation bytes in and out per token and layer. [B]"""


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts of one MoE kind, on this device."""

    name: str
    layers: int
    work: ExpertWork
    weight_dtype: str
    compute_dtype: str
    pool: int
    """Data-parallel ranks whose tokens meet here."""
    share: float
    """Part of the experts' work on this device."""
    bytes_per_expert: float
    bytes_per_row: float
    """Activation bytes per token of the pool, this device. [B]"""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A collective, called `count` times a step."""

    name: str
    kind: Literal["all_reduce", "all_to_all", "send"]
    count: float
    ranks: int
    bytes_per_token: float
    """[B] per token of the step."""
    span: int
    """Devices the group stretches over, to tell which link it crosses."""
    decode_only: bool = False
    """Not in prefill, where ring attention sends its own messages."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Element-wise passes over activations, or the scan of a recurrent state."""

    name: str
    layers: int
    bytes_per_token: float
    flop_per_token: float = 0.0
    bytes_per_sequence: float = 0.0
    """State read and written per sequence and step. [B]"""


@dataclass(frozen=True, slots=True)
class Attention:
    """One attention work of one layer kind, on this device."""

    name: str
    layers: int
    work: AttentionWork
    dtype: str
    heads: float
    """Query heads on this device."""
    slot_bytes: float
    """Bytes read per attended slot on this device. [B]"""


@dataclass(frozen=True, slots=True)
class OperatorTable:
    """All operators of a step, per phase where phases differ."""

    gemms: tuple[Gemm, ...]
    head: Gemm
    """Logits; only for tokens that need them."""
    experts: tuple[Experts, ...]
    exchanges: tuple[Exchange, ...]
    streams: tuple[Stream, ...]
    attention: tuple[Attention, ...]
    embedding_bytes_per_token: float
    work_space_per_token: float
    """Bytes of the largest activations alive per token of a step. [B]"""


def compute_dtype(weight_dtype: str, activation_dtype: str, own: Container[str] = WIDE) -> str:
    """Dtype in which a matrix product runs: wide weights in their own, narrow ones in the activations'.

    `own` are the wide dtypes that the device can multiply; the others run in the activations' dtype too.

    >>> compute_dtype("bf16", "fp8"), compute_dtype("fp8", "fp8"), compute_dtype("int4", "bf16")
    ('bf16', 'fp8', 'bf16')
    >>> compute_dtype("fp32", "bf16", own=("bf16", "fp16"))
    'bf16'
    """
    return weight_dtype if weight_dtype in WIDE and weight_dtype in own else activation_dtype


def operator_table(
    structure: Structure,
    weights: WeightDtypes,
    activation_dtype: str,
    kv_dtype: str,
    attention_dtype: str,
    p: Parallelism,
    own: Container[str] = WIDE,
) -> OperatorTable:
    """Lay out the operators of one device of a replica.

    Parameters
    ----------
    structure : Structure
    weights : WeightDtypes
    activation_dtype, kv_dtype, attention_dtype : str
    p : Parallelism
    own : container of str
        Wide dtypes (fp32, bf16, fp16) that the device can multiply; weights of another run in `activation_dtype`.

    Returns
    -------
    OperatorTable
        Whole pipeline: layers are not divided by pp here.
    """

    def gemm(name: str, layers: int, k: float, n: float, weight_class: str) -> Gemm:
        stored = weights.of(weight_class)
        runs = compute_dtype(stored, activation_dtype, own)
        row = k * bytes_per_element(runs) + n * RESIDUAL_BYTES
        return Gemm(name, layers, k, n, stored, runs, k * n * weights.bytes_of(weight_class), row)

    gemms: list[Gemm] = []
    experts: list[Experts] = []
    streams: list[Stream] = []
    attention: list[Attention] = []
    hidden = structure.hidden
    widest = 0.0
    for part, layers in structure.parts:
        for matrix in part.matrices:
            k, n = matrix.local(p.tp)
            gemms.append(gemm(f"{part.name}.{matrix.name}", layers, k, n, matrix.weight_class))
            widest = max(widest, n)
        if part.experts is not None:
            experts.append(_experts(part.name, layers, part.experts, weights, activation_dtype, p, own))
            widest = max(widest, 3.0 * part.experts.top_k * part.experts.intermediate / p.expert_slices)
        move = part.elementwise * RESIDUAL_BYTES / p.tp + 4.0 * hidden * RESIDUAL_BYTES
        streams.append(Stream(f"{part.name}.elementwise", layers, move))
        streams.extend(_scan(part.name, layers, scan, structure, p) for scan in part.scans)
        for work in part.attention:
            name = part.name if work.role == "attention" else f"{part.name}.index"
            slot = work.kv_elements * ways(work.units, p.tp) * bytes_per_element(kv_dtype, structure.int4_group)
            attention.append(Attention(name, layers, work, attention_dtype, work.heads * ways(work.heads, p.tp), slot))
    head = gemm("lm_head", 1, float(hidden), structure.vocab / p.tp, "embedding" if structure.tied else "lm_head")
    return OperatorTable(
        gemms=tuple(gemms),
        head=head,
        experts=tuple(experts),
        exchanges=(*_exchanges(structure, activation_dtype, p), *_merges(attention, p)),
        streams=tuple(streams),
        attention=tuple(attention),
        embedding_bytes_per_token=hidden * (weights.bytes_of("embedding") / p.tp + RESIDUAL_BYTES),
        work_space_per_token=RESIDUAL_BYTES * (4.0 * hidden + 2.0 * widest),
    )


def _experts(
    name: str,
    layers: int,
    work: ExpertWork,
    weights: WeightDtypes,
    activation_dtype: str,
    p: Parallelism,
    own: Container[str],
) -> Experts:
    stored = weights.of("expert")
    runs = compute_dtype(stored, activation_dtype, own)
    b = bytes_per_element(runs)
    groups = p.expert_group // p.expert_slices
    moved = 4.0 * work.hidden + work.active_per_token / groups * (
        work.hidden * (2.0 * b + 4.0) + work.intermediate / p.expert_slices * (4.0 + 2.0 * b)
    )
    return Experts(
        f"{name}.experts", layers, work, stored, runs, p.expert_pool, 1.0 / p.expert_group,
        work.parameters_per_expert * weights.bytes_of("expert"), moved,
    )  # fmt: skip


def _scan(name: str, layers: int, scan: ScanWork, structure: Structure, p: Parallelism) -> Stream:
    share = ways(scan.units, p.tp)
    state = scan.state_elements * bytes_per_element(structure.recurrent_dtype) * share
    return Stream(f"{name}.scan", layers, 0.0, scan.flop_per_token * share, 2.0 * state)


def _exchanges(structure: Structure, activation_dtype: str, p: Parallelism) -> list[Exchange]:
    """Messages of a step: one all-reduce after each block that tensor parallelism splits, all-to-all around experts
    that span data-parallel ranks, one hand-over per pipeline boundary."""
    found: list[Exchange] = []
    row = structure.hidden * RESIDUAL_BYTES
    mixers = sum(n for _, n in structure.mixers)
    dense = sum(n for part, n in structure.ffns if part.experts is None)
    moe = sum(n for part, n in structure.ffns if part.experts is not None)
    if p.tp > 1:
        blocks = mixers + dense + (moe if p.expert_pool == 1 else 0)
        if structure.parallel_blocks:
            blocks = max(mixers, dense + moe)
        found.append(Exchange("all-reduce", "all_reduce", float(blocks + 1), p.tp, row, p.tp))
    if p.expert_pool > 1:
        b = bytes_per_element(activation_dtype)
        for part, layers in structure.ffns:
            if part.experts is None:
                continue
            sent = part.experts.active_per_token * part.experts.hidden / p.tp
            group = p.expert_group
            found.append(Exchange(f"{part.name}.dispatch", "all_to_all", float(layers), group, sent * b, group))
            found.append(
                Exchange(f"{part.name}.combine", "all_to_all", float(layers), group, sent * RESIDUAL_BYTES, group)
            )
    if p.pp > 1:
        found.append(Exchange("stage hand-over", "send", float(p.pp - 1), 2, row / p.tp, p.tp * p.dp * p.cp * 2))
    return found


def _merges(attention: list[Attention], p: Parallelism) -> list[Exchange]:
    """Decode with the keys spread over context-parallel ranks: partial outputs and their weights summed over them."""
    if p.cp == 1:
        return []
    found = []
    for op in attention:
        work = op.work
        if work.role == "attention":
            width = work.v_dim if work.decode_v_dim is None else work.decode_v_dim
            row = op.heads * (width * RESIDUAL_BYTES + WEIGHT_BYTES)
            found.append(Exchange(f"{op.name}.merge", "all_reduce", float(op.layers), p.cp, row, p.tp * p.cp, True))
    return found


def layer_kinds(table: OperatorTable) -> tuple[int, int, int]:
    """Layers with a recurrent scan, with latent attention, and with routed experts.

    Latent attention is told by its decode form, in which queries meet the compressed cache itself.
    """
    recurrent = sum(op.layers for op in table.streams if op.flop_per_token > 0.0)
    latent = sum(op.layers for op in table.attention if op.work.decode_qk_dim is not None)
    return recurrent, latent, sum(op.layers for op in table.experts)
