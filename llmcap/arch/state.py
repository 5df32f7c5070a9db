"""What is kept per sequence: KV caches and recurrent states, logical and as an engine reserves them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.arch.dtypes import bytes_per_element
from llmcap.arch.parts import StateTerm, ways
from llmcap.arch.structure import Parallelism, Structure
from llmcap.records import dataclass

Array = NDArray[np.float64]


def state_terms(structure: Structure) -> Iterator[tuple[StateTerm, int]]:
    """Each state term with the number of layers that keep it."""
    for part, layers in structure.mixers:
        for term in part.states:
            yield term, layers


def slot_bytes(term: StateTerm, kv_dtype: str, structure: Structure) -> float:
    """Logical bytes of one slot of one layer.

    Index keys in fp8 carry a 4-byte scale per 128 elements (DeepSeek-V3.2 and V4 as in vLLM's indexer cache:
    128 + 4 = 132 bytes); other dtypes carry the scales of their format.

    Returns
    -------
    float
        [bytes]
    """
    if term.dtype == "fp32":
        return term.elements * 4.0
    if term.dtype == "conv":
        return term.elements * 2.0
    if term.dtype == "recurrent":
        return term.elements * bytes_per_element(structure.recurrent_dtype)
    scales = 4.0 * term.elements / 128.0 if term.dtype == "index" and kv_dtype == "fp8" else 0.0
    return term.elements * bytes_per_element(kv_dtype, structure.int4_group) + scales


def kept_slots(term: StateTerm, tokens: ArrayLike) -> Array:
    """Slots kept for sequences of `tokens` tokens: floor(min(T, cap) / stride), one when constant.

    A chunked layer keeps at most one chunk; it is counted as min(T, chunk), the most that is ever alive, since a
    cache must hold the chunk before it is dropped.
    """
    t = np.asarray(tokens, dtype=np.float64)
    if term.constant:
        return np.ones_like(t)
    if term.cap is not None:
        t = np.minimum(t, float(term.cap))
    return np.floor(t / term.stride) if term.stride > 1 else t


def state_bytes(structure: Structure, tokens: ArrayLike, kv_dtype: str) -> Array:
    """Bytes kept for one sequence of `tokens` tokens: one copy, no padding.

    Parameters
    ----------
    structure : Structure
    tokens : array_like
        Context and output so far. [tokens]
    kv_dtype : str

    Returns
    -------
    ndarray of float64, shape of tokens
        [bytes]; whole numbers for byte-wide formats below 2**53.

    Notes
    -----
    Sum over layer kinds of layers x slots x bytes per slot; for GQA the slot is 2 n_kv d b.

    Examples
    --------
    Llama 4 Maverick in fp8 at 1,001,000 tokens: 2 x 8 x 128 x (12 x 1,001,000 + 36 x 8,192) = 25,204,555,776 bytes.
    """
    t = np.asarray(tokens, dtype=np.float64)
    total = np.zeros_like(t)
    for term, layers in state_terms(structure):
        total = total + layers * slot_bytes(term, kv_dtype, structure) * kept_slots(term, t)
    return total


def constant_bytes(structure: Structure, kv_dtype: str) -> float:
    """Bytes of the states that do not grow with the sequence. [bytes]"""
    return float(sum(n * slot_bytes(t, kv_dtype, structure) for t, n in state_terms(structure) if t.constant))


def bytes_per_token(structure: Structure, tokens: ArrayLike, kv_dtype: str) -> Array:
    """Marginal bytes of one more token of one sequence that has `tokens` already. [bytes]

    Records that stand for several tokens count their share: elements / stride.
    """
    t = np.asarray(tokens, dtype=np.float64)
    total = np.zeros_like(t)
    for term, layers in state_terms(structure):
        if term.constant:
            continue
        share = layers * slot_bytes(term, kv_dtype, structure) / term.stride
        total = total + (share if term.cap is None else np.where(t < term.cap, share, 0.0))
    return total


def reserved_bytes(
    structure: Structure,
    tokens: ArrayLike,
    kv_dtype: str,
    parallelism: Parallelism,
    *,
    policy: str = "hybrid",
    block: int = 16,
) -> Array:
    """Bytes that all devices of one replica together set aside for one sequence.

    Parameters
    ----------
    structure : Structure
    tokens : array_like
        [tokens]
    kv_dtype : str
    parallelism : Parallelism
        Tensor parallelism divides heads until one is left, then copies; a latent or an index key is copied everywhere.
    policy : {"hybrid", "all-full"}
        hybrid: windows and chunks keep only their tokens; all-full: every layer keeps the whole sequence, as engines
        without a hybrid cache manager do.
    block : int
        Tokens per cache block; the last block is reserved whole. [tokens]

    Returns
    -------
    ndarray of float64, shape of tokens
        [bytes]
    """
    t = np.asarray(tokens, dtype=np.float64)
    total = np.zeros_like(t)
    tp = parallelism.tp
    for term, layers in state_terms(structure):
        per_slot = slot_bytes(term, kv_dtype, structure)
        if term.record_bytes is not None and kv_dtype == "fp8":
            per_slot = term.record_bytes
        stored = tp * math.ceil(term.units / tp)  # of units pieces; divided last, so that whole bytes stay whole
        if term.constant:
            slots: Array | float = 1.0
        else:
            whole = term.cap is None or (policy == "all-full" and not term.ring)
            kept = t if whole else np.minimum(t, float(term.cap or 0))
            rounded = np.ceil(kept / block) * block
            slots = np.ceil(rounded / term.stride) if term.stride > 1 else rounded
        total = total + layers * stored * per_slot * slots / term.units
    return total


def copies_kept(
    structure: Structure, tokens: ArrayLike, kv_dtype: str, tp: int, *, latent_once: bool
) -> Array:  # fmt: skip
    """Bytes that the ranks of a tensor-parallel group store of one sequence, over its logical bytes.

    Every rank stores what it holds, so heads that are fewer than the ranks are stored several times; a latent, which
    all ranks hold alike, once or tp times.

    Parameters
    ----------
    structure : Structure
    tokens : array_like
        [tokens]
    kv_dtype : str
    tp : int
        Ranks of the group.
    latent_once : bool
        Whether the connector stores a latent for the group instead of for each rank.

    Returns
    -------
    ndarray of float64, shape of tokens
        1 where nothing is copied. [1]

    Examples
    --------
    8 KV heads on 8 ranks 1; on 16 ranks 2; an MLA latent on 8 ranks 8, or 1 when stored once.
    """
    t = np.asarray(tokens, dtype=np.float64)
    logical, stored = np.zeros_like(t), np.zeros_like(t)
    for term, layers in state_terms(structure):
        size = layers * slot_bytes(term, kv_dtype, structure) * kept_slots(term, t)
        logical = logical + size
        stored = stored + size * (1.0 if term.latent and latent_once else tp * ways(term.units, tp))
    return np.where(logical > 0.0, stored / np.where(logical > 0.0, logical, 1.0), 1.0)


@dataclass(frozen=True, slots=True)
class KindBytes:
    """One sequence's state of one layer kind."""

    kind: str
    layers: int
    bytes: float
    """Logical. [B]"""
    bytes_reserved: float
    """[B]"""
    constant: bool
    """Kept once per sequence, whatever its length."""


def bytes_by_kind(
    structure: Structure, tokens: int, kv_dtype: str, parallelism: Parallelism, *, policy: str, block: int
) -> list[KindBytes]:
    """One sequence's state per layer kind, growing and constant parts apart; the bytes add up to `state_bytes`.

    Parameters are those of `state_bytes` and `reserved_bytes`.
    """
    kinds = dict.fromkeys((t.kind, t.constant) for part, _ in structure.mixers for t in part.states)
    found = []
    for kind, constant in kinds:
        chosen = tuple(
            (replace(part, states=tuple(t for t in part.states if (t.kind, t.constant) == (kind, constant))), layers)
            for part, layers in structure.mixers
        )
        alone = replace(structure, mixers=tuple((part, layers) for part, layers in chosen if part.states))
        found.append(
            KindBytes(
                kind,
                sum(layers for _, layers in alone.mixers),
                float(state_bytes(alone, tokens, kv_dtype)),
                float(reserved_bytes(alone, tokens, kv_dtype, parallelism, policy=policy, block=block)),
                constant,
            )
        )
    return found
