"""What one sequence keeps, re-derived from the published formulas of each family.

An outside witness: it reads a model document as plain YAML, walks its layers one by one, and counts in exact
fractions. It shares no code with llmcap.

Sources: GQA, 2 n_kv d b per token and layer (Ainslie et al. 2023); MLA, (d_c + d_R) b per token and layer
(DeepSeek-V2, section 2.1.4); DSA, one key of 128 per token beside it (DeepSeek-V3.2-Exp report); CSA and HCA
(DeepSeek-V4 as in vLLM `models/deepseek_v4`); recurrent states (vLLM `layers/mamba/mamba_utils.py`: conv state of
K - 1 inputs, temporal state of heads x head x state); Jamba's Mamba-1 (arXiv:2312.00752); LFM2's short convolution.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml

ELEMENT = {"fp32": Fraction(4), "bf16": Fraction(2), "fp16": Fraction(2), "fp8": Fraction(1), "nvfp4": Fraction(9, 16)}
BF16 = 2


def read(path: Path) -> dict[str, Any]:
    """The document as plain data."""
    with path.open(encoding="utf-8") as file:
        document: dict[str, Any] = yaml.safe_load(file)
    return document


def layer_mixers(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every mixer of every layer, in order, as often as it stands there."""
    for group in document["layers"]:
        for _ in range(group.get("repeat", 1)):
            for layer in group["block"]:
                names = layer.get("mixer", [])
                for name in [names] if isinstance(names, str) else names:
                    yield document["mixers"][name]


def index_key(width: int, dtype: str) -> Fraction:
    """Bytes of an index key; in fp8 it carries a 4-byte scale per 128 elements."""
    return width * ELEMENT[dtype] + (Fraction(4 * width, 128) if dtype == "fp8" else 0)


def growing(mixer: dict[str, Any], tokens: int, dtype: str) -> Fraction:
    """Bytes of one layer that depend on the number of tokens."""
    b = ELEMENT[dtype]
    kind = mixer["kind"]
    if kind == "attention":
        if mixer.get("owns_kv") is False:
            return Fraction(0)
        width = mixer["head_dim"] + mixer.get("v_head_dim", mixer["head_dim"])
        kept = tokens if mixer.get("scope", "full") == "full" else min(tokens, mixer["window"])
        total = kept * mixer["kv_heads"] * width * b
        if "sparse" in mixer:
            total += tokens * index_key(mixer["sparse"]["index_dim"], dtype)
        return total
    if kind == "mla":
        total = tokens * (mixer["kv_lora_rank"] + mixer["qk_rope_head_dim"]) * b
        indexer = mixer.get("indexer")
        if indexer and indexer.get("owned", True):
            total += (tokens // indexer.get("pool", 1)) * index_key(indexer["head_dim"], dtype)
        return total
    if kind == "compressed":
        total = min(tokens, mixer["window"]) * mixer["head_dim"] * b
        if mixer["ratio"]:
            total += (tokens // mixer["ratio"]) * mixer["head_dim"] * b
        if "indexer" in mixer:
            total += (tokens // mixer["ratio"]) * index_key(mixer["indexer"]["head_dim"], dtype)
        return total
    return Fraction(0)


def constant(mixer: dict[str, Any], state_dtype: str) -> Fraction:
    """Bytes of one layer that do not depend on the number of tokens."""
    s = ELEMENT[state_dtype]
    kind = mixer["kind"]
    if kind == "gated_delta":
        keys = mixer["key_heads"] * mixer["key_dim"]
        values = mixer["value_heads"] * mixer["value_dim"]
        conv = (2 * keys + values) * (mixer["conv_kernel"] - 1) * BF16
        return mixer["value_heads"] * mixer["value_dim"] * mixer["key_dim"] * s + conv
    if kind == "kda":
        conv = 3 * mixer["heads"] * mixer["head_dim"] * (mixer["conv_kernel"] - 1) * BF16
        return mixer["heads"] * mixer["head_dim"] ** 2 * s + conv
    if kind == "lightning":
        return mixer["heads"] * mixer["head_dim"] ** 2 * s
    if kind == "mamba2":
        inner = mixer["heads"] * mixer["head_dim"]
        conv = (inner + 2 * mixer["groups"] * mixer["state"]) * (mixer["conv_kernel"] - 1) * BF16
        return inner * mixer["state"] * s + conv
    if kind == "mamba1":
        return mixer["inner"] * mixer["state"] * s + mixer["inner"] * (mixer["conv_kernel"] - 1) * BF16
    if kind == "compressed" and mixer["ratio"] == 4:
        # An overlapping compressor: 8 tokens of two streams, values and gates, in fp32; likewise for index keys.
        widths = mixer["head_dim"] + (mixer["indexer"]["head_dim"] if "indexer" in mixer else 0)
        return Fraction(8 * 2 * 2 * widths * 4)
    if kind == "compressed" and mixer["ratio"]:
        return Fraction(mixer["ratio"] * 2 * mixer["head_dim"] * 4)
    return Fraction(0)


def kept_bytes(document: dict[str, Any], tokens: int, dtype: str) -> Fraction:
    """Everything kept for one sequence of `tokens` tokens."""
    state_dtype = document.get("recurrent_dtype", "fp32")
    total = Fraction(0)
    for mixer in layer_mixers(document):
        total += growing(mixer, tokens, dtype) + constant(mixer, state_dtype)
        if mixer["kind"] == "short_conv":
            total += document["hidden_size"] * (mixer["kernel"] - 1) * BF16
    return total
