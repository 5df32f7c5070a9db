"""Layers of a model document, one by one, for the slow twin: matrices, parameters, state, and tokens seen."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

Doc = dict[str, Any]

BYTES = {"fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "nvfp4": 0.5625, "mxfp4": 0.53125}
NARROW = ("fp8", "int8", "nvfp4", "mxfp4", "int4")
WIDE = ("fp32", "bf16", "fp16")

_KNOWN = {
    "attention": {"heads", "kv_heads", "head_dim", "v_head_dim", "scope", "window"},
    "mla": {"heads", "q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"},
    "dense": {"intermediate"},
    "moe": {"experts", "top_k", "intermediate", "shared_intermediate", "router_bias"},
}


def layers_of(model: Doc) -> list[tuple[Doc, Doc]]:
    """(mixer, feed-forward) of every layer in order; anything the twin does not know is refused."""
    found = []
    for group in model["layers"]:
        for _ in range(group.get("repeat", 1)):
            for layer in group["block"]:
                blocks = []
                for table, name in (("mixers", layer["mixer"]), ("ffns", layer["ffn"])):
                    block = dict(model[table][name])
                    assert set(block) <= _KNOWN[block["kind"]] | {"kind"}, block
                    blocks.append(block | {"hidden": model["hidden_size"]})
                found.append((blocks[0], blocks[1]))
    return found


@dataclass(frozen=True)
class LocalMatrix:
    """Inputs and outputs of a matrix on the fullest device of a tensor-parallel group."""

    k: float
    n: float
    weight_class: str


def local_matrices(block: Doc, hidden: int, tp: int) -> list[LocalMatrix]:
    """Matrices that every token meets; routed experts are not among them."""
    kind = block["kind"]
    if kind == "attention":
        d, heads, kv = block["head_dim"], block["heads"] // tp, math.ceil(block["kv_heads"] / tp)
        dv = block.get("v_head_dim", d)
        return [
            LocalMatrix(hidden, heads * d + kv * (d + dv), "attention"),
            LocalMatrix(heads * dv, hidden, "attention"),
        ]
    if kind == "mla":
        heads, nope, v = block["heads"] // tp, block["qk_nope_head_dim"], block["v_head_dim"]
        qk, latent = nope + block["qk_rope_head_dim"], block["kv_lora_rank"] + block["qk_rope_head_dim"]
        rank = block.get("q_lora_rank")
        return [
            LocalMatrix(hidden, latent + (rank or 0), "attention"),
            LocalMatrix(rank or hidden, heads * qk, "attention"),
            LocalMatrix(block["kv_lora_rank"], heads * (nope + v), "attention"),
            LocalMatrix(heads * v, hidden, "attention"),
        ]
    if kind == "dense":
        inner = block["intermediate"] / tp
        return [LocalMatrix(hidden, 2 * inner, "dense"), LocalMatrix(inner, hidden, "dense")]
    found = [LocalMatrix(hidden, block["experts"], "router")]
    if shared := block.get("shared_intermediate", 0):
        found += [
            LocalMatrix(hidden, 2 * shared / tp, "shared_expert"),
            LocalMatrix(shared / tp, hidden, "shared_expert"),
        ]
    return found


def layer_parameters(block: Doc, hidden: int) -> dict[str, int]:
    """Parameters of one block by weight class; vectors count as norms."""
    count: dict[str, int] = {}
    for matrix in local_matrices(block, hidden, 1):
        count[matrix.weight_class] = count.get(matrix.weight_class, 0) + int(matrix.k * matrix.n)
    if block["kind"] == "mla":
        count["norm"] = block["kv_lora_rank"] + (block.get("q_lora_rank") or 0)
    if block["kind"] == "moe":
        count["expert"] = block["experts"] * 3 * hidden * block["intermediate"]
        count["norm"] = block["experts"] if block.get("router_bias") else 0
    return count


def state_terms(mixer: Doc) -> list[tuple[int, int, float]]:
    """(elements per token, pieces, most tokens kept) of what a mixer caches."""
    if mixer["kind"] == "mla":
        return [(mixer["kv_lora_rank"] + mixer["qk_rope_head_dim"], 1, math.inf)]
    d = mixer["head_dim"]
    width = d + mixer.get("v_head_dim", d)
    return [(mixer["kv_heads"] * width, mixer["kv_heads"], mixer.get("window", math.inf))]


def seen(scope: str, window: float, first: int, n: int) -> float:
    """Keys that the tokens first .. first + n - 1 see, each itself included, summed run by run."""
    if scope == "full":
        return (first + 1 + first + n) * n / 2.0
    w = int(window)
    total, t, end = 0.0, first, first + n
    while t < end:
        if scope == "sliding" and t >= w:
            return total + (end - t) * w
        stop = min(end, w if scope == "sliding" else (t // w + 1) * w)
        low, high = (t + 1, stop) if scope == "sliding" else (t % w + 1, (stop - 1) % w + 1)
        total += (low + high) * (stop - t) / 2.0
        t = stop
    return total


def attention_widths(block: Doc, absorbed: bool = False) -> tuple[int, int, int, int]:
    """(score width, value width, cached elements per token, pieces they divide into)."""
    if block["kind"] == "mla":
        latent = block["kv_lora_rank"] + block["qk_rope_head_dim"]
        if absorbed:
            return latent, block["kv_lora_rank"], latent, 1
        return block["qk_nope_head_dim"] + block["qk_rope_head_dim"], block["v_head_dim"], latent, 1
    d = int(block["head_dim"])
    dv = int(block.get("v_head_dim", d))
    return d, dv, block["kv_heads"] * (d + dv), block["kv_heads"]


def elementwise(block: Doc) -> int:
    """Elements that pass through memory between the matrices, per token."""
    if block["kind"] == "attention":
        d = block["head_dim"]
        return int(2 * block["heads"] * (d + block.get("v_head_dim", d)))
    if block["kind"] == "mla":
        return int(2 * block["heads"] * (block["qk_nope_head_dim"] + block["qk_rope_head_dim"] + block["v_head_dim"]))
    if block["kind"] == "dense":
        return int(3 * block["intermediate"])
    shared = int(block.get("shared_intermediate", 0))
    return int(block["top_k"] * (2 * block["hidden"] + 3 * block["intermediate"]) + 3 * shared)
