"""The state of every shipped model, byte by byte, against the oracle; and random documents against slow twins."""

from __future__ import annotations

import importlib.util
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcap.arch.parameters import parameters_by_class, parameters_total
from llmcap.arch.state import bytes_by_kind, constant_bytes, reserved_bytes, state_bytes
from llmcap.arch.structure import Parallelism, structure_of
from llmcap.specs import registry
from llmcap.specs.model import Model

# Beside this file, whatever the import path is.
_spec = importlib.util.spec_from_file_location("kv_oracle", Path(__file__).with_name("kv_oracle.py"))
assert _spec is not None and _spec.loader is not None
kv_oracle = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(kv_oracle)

MODELS = registry.list_ids("model")
TOKENS = (1, 8_191, 8_192, 131_072, 1_048_576)
DTYPES = ("bf16", "fp8", "nvfp4")


@pytest.mark.parametrize("name", MODELS)
def test_every_shipped_model_keeps_what_the_published_formulas_say(name: str) -> None:
    loaded = registry.load("model", name)
    document = kv_oracle.read(loaded.path)
    structure = structure_of(loaded.document)
    for dtype in DTYPES:
        got = state_bytes(structure, TOKENS, dtype)
        for tokens, value in zip(TOKENS, got, strict=True):
            assert Fraction(float(value)) == kv_oracle.kept_bytes(document, tokens, dtype), (tokens, dtype)


@pytest.mark.parametrize("name", MODELS)
def test_constant_part_and_rows_by_kind_add_up(name: str) -> None:
    loaded = registry.load("model", name)
    structure = structure_of(loaded.document)
    mixers = list(kv_oracle.layer_mixers(kv_oracle.read(loaded.path)))
    state_dtype = loaded.document.recurrent_dtype
    constant = sum((kv_oracle.constant(m, state_dtype) for m in mixers), Fraction(0))
    convolutions = sum(m["kind"] == "short_conv" for m in mixers)
    if convolutions:
        kernel = next(m["kernel"] for m in mixers if m["kind"] == "short_conv")
        constant += convolutions * loaded.document.hidden_size * (kernel - 1) * 2
    assert Fraction(constant_bytes(structure, "fp8")) == constant
    rows = bytes_by_kind(structure, 8_192, "fp8", Parallelism(), policy="hybrid", block=16)
    total = float(state_bytes(structure, 8_192, "fp8"))
    assert sum(row.bytes for row in rows) == total
    assert sum(row.bytes for row in rows if row.constant) == float(constant)


@pytest.mark.parametrize("name", MODELS)
def test_reserved_is_never_less_than_logical(name: str) -> None:
    structure = structure_of(registry.load("model", name).document)
    for dtype in ("bf16", "fp8"):
        for tokens in (1, 8_191, 131_072):
            logical = float(state_bytes(structure, tokens, dtype))
            for policy in ("hybrid", "all-full"):
                for tp in (1, 8):
                    held = float(reserved_bytes(structure, tokens, dtype, Parallelism(tp=tp), policy=policy))
                    assert held >= logical * (1 - 1e-12), (dtype, tokens, policy, tp)


# Random documents, one strategy per family -------------------------------------------------------------------------

SMALL = st.integers(1, 8)


def _times(step: int, most: int = 8) -> st.SearchStrategy[int]:
    return st.integers(1, most).map(lambda n: n * step)


@st.composite
def attention(draw: st.DrawFn) -> dict[str, Any]:
    kv = draw(SMALL)
    part: dict[str, Any] = {
        "kind": "attention",
        "kv_heads": kv,
        "heads": kv * draw(SMALL),
        "head_dim": draw(_times(16)),
    }
    part["scope"] = draw(st.sampled_from(["full", "sliding", "chunked"]))
    if part["scope"] != "full":
        part["window"] = draw(st.integers(1, 5_000))
    for key in ("qkv_bias", "out_bias", "sinks"):
        part[key] = draw(st.booleans())
    part["owns_kv"] = draw(st.booleans())
    if draw(st.booleans()):
        part["v_head_dim"] = draw(_times(16))
    return part


@st.composite
def mla(draw: st.DrawFn) -> dict[str, Any]:
    part: dict[str, Any] = {
        "kind": "mla", "heads": draw(SMALL), "kv_lora_rank": draw(_times(64)), "qk_nope_head_dim": draw(_times(32)),
        "qk_rope_head_dim": draw(st.sampled_from([0, 32, 64])), "v_head_dim": draw(_times(32)),
    }  # fmt: skip
    if draw(st.booleans()):
        part["q_lora_rank"] = draw(_times(64))
    if draw(st.booleans()):
        part["indexer"] = {
            "heads": draw(SMALL), "head_dim": 128, "top_k": draw(st.integers(1, 4_096)), "owned": draw(st.booleans()),
            "pool": draw(st.sampled_from([1, 2, 8])),
        }  # fmt: skip
    return part


@st.composite
def recurrent(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["gated_delta", "kda", "lightning", "mamba2", "mamba1", "short_conv"]))
    keys = {
        "gated_delta": ("key_heads", "value_heads", "key_dim", "value_dim"),
        "kda": ("heads", "head_dim"),
        "lightning": ("heads", "head_dim"),
        "mamba2": ("heads", "head_dim", "groups", "state"),
        "mamba1": ("inner", "state", "dt_rank"),
        "short_conv": (),
    }[kind]
    part: dict[str, Any] = {"kind": kind} | {key: draw(SMALL) * (16 if key.endswith("dim") else 1) for key in keys}
    if kind == "short_conv":
        part["kernel"] = draw(st.integers(1, 5))
    elif kind != "lightning":
        part["conv_kernel"] = draw(st.integers(1, 5))
    return part


FEED_FORWARD = st.one_of(
    st.builds(
        lambda width, gated, bias: {"kind": "dense", "intermediate": width, "gated": gated, "bias": bias},
        _times(32), st.booleans(), st.booleans(),
    ),
    st.builds(
        lambda experts, top, width, shared, gated: {
            "kind": "moe", "experts": experts, "top_k": min(top, experts), "intermediate": width,
            "shared_intermediate": shared * width, "gated": gated,
        },
        SMALL, SMALL, _times(32), st.integers(0, 2), st.booleans(),
    ),
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    mixers = draw(st.lists(st.one_of(attention(), mla(), recurrent()), min_size=1, max_size=3))
    ffns = draw(st.lists(FEED_FORWARD, min_size=1, max_size=2))
    block = [{"mixer": f"m{i}", "ffn": f"f{i % len(ffns)}"} for i in range(len(mixers))]
    block += [{"ffn": f"f{i}"} for i in range(len(ffns))]
    return {
        "schema": "llmcap.model/1", "id": "random", "name": "random", "max_context": 1_000_000,
        "hidden_size": draw(_times(64)),
        "vocab_size": draw(st.integers(1, 1_000)), "tie_embeddings": draw(st.booleans()),
        "recurrent_dtype": draw(st.sampled_from(["fp32", "bf16"])),
        "mixers": {f"m{i}": mixer for i, mixer in enumerate(mixers)},
        "ffns": {f"f{i}": ffn for i, ffn in enumerate(ffns)},
        "layers": [{"repeat": draw(SMALL), "block": block}, {"repeat": draw(SMALL), "block": block[:1]}],
    }  # fmt: skip


@given(documents(), st.integers(1, 2_000_000), st.sampled_from(DTYPES))
def test_state_of_random_documents(document: dict[str, Any], tokens: int, dtype: str) -> None:
    structure = structure_of(Model.model_validate(document))
    expected = kv_oracle.kept_bytes(document, tokens, dtype)
    assert float(state_bytes(structure, tokens, dtype)) == pytest.approx(float(expected), rel=1e-15)


@given(documents())
def test_parameters_of_random_documents(document: dict[str, Any]) -> None:
    structure = structure_of(Model.model_validate(document))
    assert parameters_total(structure) == slow_parameters(document)
    assert sum(parameters_by_class(structure).values()) == parameters_total(structure)


def slow_parameters(document: dict[str, Any]) -> int:
    """Parameters, layer by layer, from the modelling classes' tensors."""
    d = document["hidden_size"]
    total = document["vocab_size"] * d * (1 if document["tie_embeddings"] else 2) + d
    for group in document["layers"]:
        for _ in range(group["repeat"]):
            for layer in group["block"]:
                if "mixer" in layer:
                    total += d + slow_mixer(document["mixers"][layer["mixer"]], d)
                if "ffn" in layer:
                    total += d + slow_ffn(document["ffns"][layer["ffn"]], d)
    return total


def slow_ffn(f: dict[str, Any], d: int) -> int:
    up = 2 if f["gated"] else 1
    width = f["intermediate"]
    if f["kind"] == "dense":
        return (up + 1) * d * width + ((up * width + d) if f["bias"] else 0)
    each = (up + 1) * d * width
    return f["experts"] * each + d * f["experts"] + (up + 1) * d * f["shared_intermediate"]


def slow_mixer(m: dict[str, Any], d: int) -> int:
    kind = m["kind"]
    if kind == "attention":
        v = m.get("v_head_dim", m["head_dim"])
        q, k, o = m["heads"] * m["head_dim"], m["kv_heads"] * m["head_dim"], m["heads"] * v
        kv = k + m["kv_heads"] * v if m["owns_kv"] else 0
        total = d * (q + kv) + o * d
        total += q + kv if m["qkv_bias"] else 0
        return total + (d if m["out_bias"] else 0) + (m["heads"] if m["sinks"] else 0)
    if kind == "mla":
        q = m["heads"] * (m["qk_nope_head_dim"] + m["qk_rope_head_dim"])
        rank = m.get("q_lora_rank")
        total = d * q if rank is None else d * rank + rank + rank * q
        total += d * (m["kv_lora_rank"] + m["qk_rope_head_dim"]) + m["kv_lora_rank"]
        total += m["kv_lora_rank"] * m["heads"] * (m["qk_nope_head_dim"] + m["v_head_dim"])
        total += m["heads"] * m["v_head_dim"] * d
        i = m.get("indexer")
        if i and i["owned"]:
            total += (rank or d) * i["heads"] * i["head_dim"] + d * i["head_dim"] + d * i["heads"]
            total += 2 * i["head_dim"]
        return total
    if kind == "gated_delta":
        k, v = m["key_heads"] * m["key_dim"], m["value_heads"] * m["value_dim"]
        # qkvz and ba projections, convolution, A_log and dt_bias, gated norm, output.
        return (
            d * (2 * k + 2 * v + 2 * m["value_heads"])
            + (2 * k + v) * m["conv_kernel"]
            + 2 * m["value_heads"]
            + (m["value_dim"] + v * d)
        )
    if kind == "kda":
        w, r = m["heads"] * m["head_dim"], m["head_dim"]
        total = 3 * d * w + d * m["heads"] + 2 * (d * r + r * w) + w * d
        return total + 3 * w * m["conv_kernel"] + m["heads"] + w + m["head_dim"]
    if kind == "lightning":
        w = m["heads"] * m["head_dim"]
        return 3 * d * w + d * w + w * d + w
    if kind == "mamba2":
        inner, bc = m["heads"] * m["head_dim"], 2 * m["groups"] * m["state"]
        conv = (inner + bc) * (m["conv_kernel"] + 1)
        return d * (2 * inner + bc + m["heads"]) + conv + 3 * m["heads"] + inner + inner * d
    if kind == "mamba1":
        i, n, r = m["inner"], m["state"], m["dt_rank"]
        return d * 2 * i + i * (m["conv_kernel"] + 1) + i * (r + 2 * n) + r * i + i + i * n + i + i * d
    return 3 * d * d + d * m["kernel"] + d * d


def test_shipped_documents_are_found() -> None:
    assert len(MODELS) >= 80
    assert all(Path(registry.find("model", name)).is_file() for name in MODELS)
