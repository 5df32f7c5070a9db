"""Softmax attention families translated into matrices, state and work; and the exact count of attended pairs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.arch.parts import AttentionWork, LayerPart, Matrix, Scope, StateTerm
from llmcap.specs.model import Attention, CompressedAttention, MultiHeadLatentAttention

Array = NDArray[np.float64]


def attended_pairs(new: ArrayLike, cached: ArrayLike, scope: Scope = "full", window: int | None = None) -> Array:
    """Query-key pairs that `new` tokens attend to after `cached` ones, causal, each token seeing itself.

    Parameters
    ----------
    new, cached : array_like
        Tokens computed and tokens already in the cache, any broadcastable shapes. [tokens]
    scope : {"full", "sliding", "chunked"}
        All earlier tokens, the last `window`, or those since the last multiple of `window`.
    window : int, optional
        Window or chunk length. [tokens]

    Returns
    -------
    ndarray of float64, broadcast shape
        Exact below 2**53. [pairs]

    Notes
    -----
    With E(x) the pairs of the first x tokens, the answer is E(P+S) - E(P):
    full E(x) = x(x+1)/2; sliding w: min(x,w)(min(x,w)+1)/2 + w max(x-w, 0);
    chunked c, x = q c + r: q c(c+1)/2 + r(r+1)/2.
    Llama 4's chunks are aligned: token t (from 0) sees from floor(t/c) c
    (transformers `create_chunked_causal_mask`; vLLM issue 16118 thread).

    Examples
    --------
    >>> [float(attended_pairs(3, 2, scope, 4)) for scope in ("full", "sliding", "chunked")]
    [12.0, 11.0, 8.0]
    """
    p = np.asarray(cached, dtype=np.float64)
    end = p + np.asarray(new, dtype=np.float64)
    if scope == "full":
        return np.asarray(0.5 * (end - p) * (end + p + 1.0))
    assert window is not None
    return np.asarray(_pairs_of_first(end, scope, float(window)) - _pairs_of_first(p, scope, float(window)))


def _pairs_of_first(x: Array, scope: Scope, w: float) -> Array:
    if scope == "sliding":
        inside = np.minimum(x, w)
        return np.asarray(0.5 * inside * (inside + 1.0) + w * (x - inside))
    q = np.floor(x / w)
    r = x - q * w
    return np.asarray(0.5 * (q * (w * (w + 1.0)) + r * (r + 1.0)))


def attended_slots(work: AttentionWork, new: ArrayLike, cached: ArrayLike) -> Array:
    """Slots that `new` queries read in all, summed over the queries, for any attention work.

    Compressed records (stride r) count a token's share 1/r of each pair; a selection caps each query at `selects`
    slots, which acts on the sum as a sliding window of selects x stride tokens does; ring slots are added per query.

    Parameters
    ----------
    work : AttentionWork
    new, cached : array_like
        As in `attended_pairs`. [tokens]

    Returns
    -------
    ndarray of float64
        [slots]; one FLOP-pair each: 2 (qk_dim + v_dim) FLOP per head.
    """
    if work.selects is not None:
        pairs = attended_pairs(new, cached, "sliding", work.selects * work.stride) / work.stride
    else:
        pairs = attended_pairs(new, cached, work.scope, work.window)
        if work.stride > 1:
            pairs = pairs / work.stride
    if work.extra_slots:
        pairs = pairs + attended_pairs(new, cached, "sliding", work.extra_slots)
    return pairs


def attention_part(name: str, a: Attention, hidden: int) -> LayerPart:
    """MHA, GQA and MQA over a full, sliding or chunked scope, with or without block-sparse selection.

    Sources: N. Shazeer, arXiv:1911.02150 (MQA); J. Ainslie et al., arXiv:2305.13245 (GQA).

    Examples
    --------
    8 KV heads of 128 keep 2 x 8 x 128 = 2,048 elements a token and layer, whatever the query heads.
    """
    d, dv = a.head_dim, a.v_head_dim or a.head_dim
    q_width, o_width = a.heads * d, a.heads * dv
    gate = (a.heads * dv if a.output_gate else 0) + (a.heads if a.head_gate else 0)
    columns: list[tuple[int, int]] = [(q_width + gate, a.heads)] if a.q_lora_rank is None else []
    if a.owns_kv:
        columns.append((a.kv_heads * (d + (0 if a.shares_kv_projection else dv)), a.kv_heads))
    matrices: list[Matrix] = []
    vectors = 0
    sparse = a.sparse
    if sparse is not None:
        columns.append((sparse.index_heads * sparse.index_dim, sparse.index_heads))
        columns.append((sparse.index_dim, 1))
    if a.q_lora_rank is not None:
        matrices.append(Matrix("q_down", hidden, ((a.q_lora_rank, 1),), "attention", "none"))
        matrices.append(Matrix("q_up", a.q_lora_rank, ((q_width + gate, a.heads),), "attention"))
        vectors += a.q_lora_rank
    if columns:
        matrices.append(Matrix("qkv_proj", hidden, tuple(columns), "attention"))
    matrices.append(Matrix("o_proj", o_width, ((hidden, 0),), "attention", "row", a.heads))
    if a.qkv_bias:
        vectors += q_width + gate + (a.kv_heads * (d + dv) if a.owns_kv else 0)
    if a.out_bias:
        vectors += hidden
    if a.qk_norm == "head":
        vectors += d * (2 if a.owns_kv else 1)
    elif a.qk_norm == "full":
        vectors += q_width + (a.kv_heads * d if a.owns_kv else 0)
    if a.sinks:
        vectors += a.heads

    kind = a.scope
    states: list[StateTerm] = []
    if a.owns_kv:
        states.append(StateTerm(kind, a.kv_heads * (d + dv), "kv", a.kv_heads, cap=a.window))
    work = [
        AttentionWork(
            kind, a.heads, d, dv, a.kv_heads * (d + dv), a.kv_heads, a.scope, a.window,
            selects=None if sparse is None else sparse.block * sparse.top_blocks,
            extra_slots=0 if sparse is None else sparse.block * sparse.local_blocks,
        )
    ]  # fmt: skip
    if sparse is not None:
        vectors += 2 * sparse.index_dim
        states.append(StateTerm("index keys", sparse.index_dim, "index", 1, latent=True))
        work.append(AttentionWork("index", sparse.index_heads, sparse.index_dim, 0, sparse.index_dim, 1, role="index"))
    return LayerPart(
        name, kind, tuple(matrices), vectors, tuple(states), tuple(work), elementwise=2 * (q_width + o_width)
    )


def mla_part(name: str, a: MultiHeadLatentAttention, hidden: int) -> LayerPart:
    """Multi-head latent attention, expanded in prefill and absorbed in decode, with or without a sparse indexer.

    Notes
    -----
    Prefill multiplies kv_b to get keys of qk_nope + qk_rope and values of v_head_dim per head. Decode absorbs kv_b
    into the query and the output: each head scores against the latent (kv_lora + rope) and sums latents (kv_lora),
    DeepSeek-V2 report, section 2.1. The cache is one latent for all heads: tensor parallelism copies it.
    """
    qk = a.qk_nope_head_dim + a.qk_rope_head_dim
    latent = a.kv_lora_rank + a.qk_rope_head_dim
    q_in = hidden if a.q_lora_rank is None else a.q_lora_rank
    down = [(latent, 1)] if a.q_lora_rank is None else [(a.q_lora_rank, 1), (latent, 1)]
    q_proj = Matrix("q_proj", q_in, ((a.heads * qk, a.heads),), "attention")
    kv_up = Matrix("kv_up", a.kv_lora_rank, ((a.heads * (a.qk_nope_head_dim + a.v_head_dim), a.heads),), "attention")
    o_proj = Matrix("o_proj", a.heads * a.v_head_dim, ((hidden, 0),), "attention", "row", a.heads)
    matrices = [Matrix("latent_down", hidden, tuple(down), "attention", "none"), q_proj, kv_up, o_proj]
    vectors = a.kv_lora_rank + (a.q_lora_rank or 0)
    padded = 656.0 if a.indexer and latent == 576 else None
    states = [StateTerm("mla", latent, "kv", 1, record_bytes=padded, latent=True)]
    index = a.indexer
    work = [
        AttentionWork(
            "mla", a.heads, qk, a.v_head_dim, latent, 1,
            decode_qk_dim=latent, decode_v_dim=a.kv_lora_rank, selects=index.top_k if index else None,
        )
    ]  # fmt: skip
    if index is not None and index.owned:
        matrices += [
            Matrix("index_q", q_in, ((index.heads * index.head_dim, 1),), "attention", "none"),
            Matrix("index_kw", hidden, ((index.head_dim + index.heads, 1),), "attention", "none"),
        ]
        vectors += 2 * index.head_dim  # layer norm of the index key, weight and bias
        states.append(StateTerm("index keys", index.head_dim, "index", 1, stride=index.pool, latent=True))
        work.append(
            AttentionWork(
                "index", index.heads, index.head_dim, 0, index.head_dim, 1, stride=index.pool, role="index"
            )
        )  # fmt: skip
    return LayerPart(
        name, "mla", tuple(matrices), vectors, tuple(states), tuple(work),
        elementwise=2 * a.heads * (qk + a.v_head_dim),
    )  # fmt: skip


def compressed_part(name: str, a: CompressedAttention, hidden: int) -> LayerPart:
    """DeepSeek-V4's compressed attention: shared K = V records every `ratio` tokens beside a window ring.

    Notes
    -----
    Sizes follow the public engine code (vLLM `models/deepseek_v4/attention.py` and `compressor.py`): an overlapping
    compressor (ratio 4) keeps 8 tokens of 2 x 2 x head_dim fp32, a plain one `ratio` tokens of 2 x head_dim.
    """
    d = a.head_dim
    kind = "window" if a.ratio == 0 else f"compressed/{a.ratio}"
    overlap = 2 if a.ratio == 4 else 1
    matrices = [
        Matrix("latent_down", hidden, ((a.q_lora_rank, 1), (d, 1)), "attention", "none"),
        Matrix("q_proj", a.q_lora_rank, ((a.heads * d, a.heads),), "attention"),
        Matrix("o_down", a.heads * d // a.o_groups, ((a.o_groups * a.o_lora_rank, a.o_groups),), "attention"),
        Matrix("o_proj", a.o_groups * a.o_lora_rank, ((hidden, 0),), "attention", "row", a.o_groups),
    ]
    vectors = a.q_lora_rank + d + a.heads
    padded = 584.0 if d == 512 else None
    states = [StateTerm("window ring", d, "kv", 1, cap=a.window, ring=True, record_bytes=padded, latent=True)]
    work: list[AttentionWork] = []
    index = a.indexer
    if a.ratio:
        matrices.append(Matrix("compressor", hidden, ((2 * overlap * d, 1),), "attention", "none"))
        vectors += a.ratio * overlap * d + d
        states.append(StateTerm(kind, d, "kv", 1, stride=a.ratio, record_bytes=padded, latent=True))
        held = (2 * a.ratio if overlap == 2 else a.ratio) * 2 * overlap * d
        states.append(StateTerm("compressor", held, "fp32", 1, constant=True, latent=True))
    work.append(
        AttentionWork(
            kind, a.heads, d, d, d, 1,
            scope="full" if a.ratio else "sliding", window=None if a.ratio else a.window, stride=max(a.ratio, 1),
            extra_slots=a.window if a.ratio else 0, selects=index.top_k if index else None,
        )
    )  # fmt: skip
    if index is not None:
        matrices += [
            Matrix("index_q", a.q_lora_rank, ((index.heads * index.head_dim, 1),), "attention", "none"),
            Matrix("index_w", hidden, ((index.heads, 1),), "attention", "none"),
            Matrix("index_compressor", hidden, ((2 * overlap * index.head_dim, 1),), "attention", "none"),
        ]
        vectors += a.ratio * overlap * index.head_dim + index.head_dim
        states.append(StateTerm("index keys", index.head_dim, "index", 1, stride=a.ratio, latent=True))
        held = 2 * a.ratio * 2 * overlap * index.head_dim
        states.append(StateTerm("compressor", held, "fp32", 1, constant=True, latent=True))
        work.append(
            AttentionWork("index", index.heads, index.head_dim, 0, index.head_dim, 1, stride=a.ratio, role="index")
        )
    return LayerPart(name, kind, tuple(matrices), vectors, tuple(states), tuple(work), elementwise=4 * a.heads * d)


def longest_sight(work: AttentionWork) -> float:
    """Most tokens that one query of a work can attend to; infinite without a bound. [tokens]"""
    if work.selects is not None:
        return float(work.selects * work.stride)
    return np.inf if work.window is None else float(work.window)
