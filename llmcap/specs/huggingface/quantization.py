"""quantization_config into weight dtypes per class of weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from llmcap.errors import printable
from llmcap.specs.huggingface.config import Config
from llmcap.specs.huggingface.draft import Draft

_PLAIN: Final = {"float32": "fp32", "float": "fp32", "bfloat16": "bf16", "float16": "fp16", "half": "fp16"}
_ALGORITHMS: Final = {
    "FP8": "fp8", "FP8_PB_WO": "fp8", "FP8_PER_CHANNEL_PER_TOKEN": "fp8", "MXFP8": "fp8",
    "W8A8_SQ_PER_CHANNEL": "int8", "INT8": "int8",
    "NVFP4": "nvfp4", "NVFP4_AWQ": "nvfp4", "W4A16_NVFP4": "nvfp4", "MXFP4": "mxfp4",
    "W4A16": "int4", "W4A16_AWQ": "int4", "W4A8_AWQ": "int4", "INT4": "int4",
}  # fmt: skip
_FORMATS: Final = {
    "nvfp4-pack-quantized": "nvfp4", "mxfp4-pack-quantized": "mxfp4", "float-quantized": "fp8", "int-quantized": "int8",
}  # fmt: skip

# In order: the first pattern that matches a module's name tells its class.
_CLASSES: Final = (
    ("lm_head", re.compile(r"lm_head")),
    ("embedding", re.compile(r"embed|wte")),
    ("norm", re.compile(r"norm")),
    (
        "router",
        re.compile(r"router|(^|[.*])gate(\W*$|\.weight)|e_score|mlp\.gate(\W*$|\.weight)|block_sparse_moe\.gate"),
    ),
    ("shared_expert", re.compile(r"shared_expert|shared_mlp")),
    ("expert", re.compile(r"experts")),
    ("attention", re.compile(r"attn|attention|mixer|mamba|conv|indexer|[qkvo]_proj")),
    ("dense", re.compile(r"mlp|feed_forward|ffn|(gate|up|down)_proj")),
)


def module_class(name: str) -> str | None:
    """The class of weights that a module's name or pattern means.

    >>> module_class("re:.*self_attn.*"), module_class("model.layers.0.mlp.gate"), module_class("model.visual")
    ('attention', 'router', None)
    """
    if re.search(r"vision|visual|audio|multi_modal|projector", name):
        return None
    plain = name.removeprefix("re:").replace("\\", "").rstrip("$")
    return next((kind for kind, pattern in _CLASSES if pattern.search(plain)), None)


def spared(names: Iterable[Any], layers: int) -> set[str]:
    """Classes left alone by a list of module names: named for at least half of the layers, or for all by a pattern."""
    layers_named: dict[str, set[str]] = {}
    whole: set[str] = set()
    for name in names:
        if not isinstance(name, str) or (kind := module_class(name)) is None:
            continue
        if re.search(r"\.o_proj$", name):
            continue  # one matrix of many: the rest of attention is quantised
        number = re.search(r"layers\.(\d+)\.", name)
        if number:
            layers_named.setdefault(kind, set()).add(number[1])
        else:
            whole.add(kind)
    return whole | {kind for kind, found in layers_named.items() if 2 * len(found) >= layers}


def weight_dtypes(c: Config, d: Draft) -> tuple[str, dict[str, str], int]:
    """(default dtype, dtypes per class, int4 group) of the checkpoint.

    Embeddings, head, router and norms keep the dtype the file names; a quantised checkpoint also spares the classes
    on its list.
    """
    plain = c.inherited("torch_dtype", "dtype")
    base = "bf16" if plain is None else _PLAIN.get(str(plain).removeprefix("torch."))
    if base is None:
        c.fail("torch_dtype", f"'{printable(plain, 40)}' is not understood", f"one of {', '.join(_PLAIN)}")
    pinned = {"embedding": base, "norm": base}
    if not d.tied:
        pinned["lm_head"] = base
    moe = any(part["kind"] == "moe" for part in d.ffns.values())
    if moe:
        pinned["router"] = base
    quantization = c.inherited("quantization_config")
    if quantization is None or quantization == {}:
        return base, pinned | d.weight_dtypes, 32
    if not isinstance(quantization, Mapping):
        c.fail("quantization_config", "must be a mapping")
    dtype, group, mixed = _stored(c, quantization)
    names: list[Any] = []
    for key in (
        "modules_to_not_convert",
        "ignore",
        "ignored_layers",
        "exclude_modules",
        "exclude",
        "llm_int8_skip_modules",
    ):
        value = quantization.get(key)
        names += value if isinstance(value, list) else []
    left = spared(names, len(d.layers)) - set(pinned)
    present = {"attention"}
    for part in d.ffns.values():
        present |= {"expert"} if part["kind"] == "moe" else {"dense"}
        present |= {"shared_expert"} if part.get("shared_intermediate") else set()
    pinned |= dict.fromkeys(sorted(left & present), base)
    if dtype == "mxfp4" and quantization.get("quant_method") == "mxfp4":
        # This method quantises experts only.
        pinned |= {kind: base for kind in ("attention", "dense", "shared_expert") if kind in present}
    return dtype, pinned | {kind: mixed[kind] for kind in sorted(present & set(mixed))} | d.weight_dtypes, group


def _stored(c: Config, q: Mapping[str, Any]) -> tuple[str, int, dict[str, str]]:
    """(dtype, int4 group, dtypes of classes that differ) of the quantised weights."""
    method = str(q.get("quant_method") or "").lower().replace("_", "-")
    algorithm = q.get("quant_algo")
    if algorithm is None and isinstance(q.get("quantization"), Mapping):
        algorithm = q["quantization"].get("quant_algo")
    if isinstance(algorithm, str):
        if algorithm.upper() == "MIXED_PRECISION":
            return _mixed(c, q)
        if algorithm.upper() not in _ALGORITHMS:
            c.fail("quantization_config.quant_algo", f"'{printable(algorithm, 40)}' is not understood")
        return _ALGORITHMS[algorithm.upper()], _group(c, q), {}
    if method in ("fp8", "fbgemm-fp8", "finegrained-fp8"):
        return "fp8", 32, {}
    if method == "mxfp4":
        return "mxfp4", 32, {}
    if method in ("awq", "gptq", "auto-round", "gptq-marlin", "awq-marlin"):
        bits = q.get("bits", q.get("w_bit", 4))
        if bits not in (4, 8):
            c.fail("quantization_config.bits", f"'{printable(bits, 20)}' is not understood", "4 and 8 are")
        return ("int4" if bits == 4 else "int8"), _group(c, q), {}
    if method == "bitsandbytes":
        return ("int4" if q.get("load_in_4bit") or q.get("_load_in_4bit") else "int8"), 64, {}
    if isinstance(q.get("config_groups"), Mapping):
        return _compressed(c, q["config_groups"])
    form = q.get("format")
    if isinstance(form, str) and form in _FORMATS:
        return _FORMATS[form], 32, {}
    c.fail(
        "quantization_config.quant_method",
        f"'{printable(q.get('quant_method'), 40)}' is not understood",
        "known: fp8, mxfp4, awq, gptq, bitsandbytes, compressed-tensors, modelopt",
    )


def _compressed(c: Config, groups: Mapping[str, Any]) -> tuple[str, int, dict[str, str]]:
    """compressed-tensors: each group has its number format and the modules it holds for."""
    found: list[tuple[str, str]] = []
    size = 32
    for group in groups.values():
        weights = group.get("weights") if isinstance(group, Mapping) else None
        if not isinstance(weights, Mapping):
            continue
        bits, kind = weights.get("num_bits"), weights.get("type", "int")
        known: dict[tuple[Any, Any], str] = {(8, "float"): "fp8", (8, "int"): "int8", (4, "int"): "int4"}
        known[4, "float"] = "nvfp4" if weights.get("group_size") == 16 else "mxfp4"
        if (bits, kind) not in known:
            what = f"{printable(bits, 20)}-bit {printable(kind, 20)}"
            c.fail("quantization_config.config_groups", f"{what} is not understood")
        dtype = known[bits, kind]
        size = _group(c, weights) if dtype == "int4" else size
        targets = group.get("targets")
        found += [(str(name), dtype) for name in (targets if isinstance(targets, list) else ["Linear"])]
    if not found:
        c.fail("quantization_config.config_groups", "names no weights")
    default, by_class = _by_class(found)
    return default, size, by_class


def _mixed(c: Config, q: Mapping[str, Any]) -> tuple[str, int, dict[str, str]]:
    """ModelOpt's mixed precision: an algorithm per module."""
    layers = q.get("quantized_layers")
    if not isinstance(layers, Mapping) or not layers:
        hint = "give weight dtypes in YAML"
        c.fail("quantization_config.quant_algo", "MIXED_PRECISION needs quantized_layers", hint)
    algorithms = {str(n): str(v.get("quant_algo", "")).upper() for n, v in layers.items() if isinstance(v, Mapping)}
    found = [(name, _ALGORITHMS[a]) for name, a in algorithms.items() if a in _ALGORITHMS]
    if not found:
        c.fail("quantization_config.quantized_layers", "names no algorithm that is understood")
    default, by_class = _by_class(found)
    return default, 32, by_class


def _by_class(modules: list[tuple[str, str]]) -> tuple[str, dict[str, str]]:
    """(most common dtype, the most common dtype of each class where it differs) of (module, dtype) pairs."""
    default = Counter(dtype for _, dtype in modules).most_common(1)[0][0]
    counts: dict[str, Counter[str]] = {}
    for name, dtype in modules:
        if (kind := module_class(name)) is not None:
            counts.setdefault(kind, Counter())[dtype] += 1
    common = {kind: count.most_common(1)[0][0] for kind, count in counts.items()}
    return default, {kind: dtype for kind, dtype in common.items() if dtype != default}


def _group(c: Config, q: Mapping[str, Any]) -> int:
    size = q.get("group_size", q.get("q_group_size", 128))
    if size in (None, -1):
        return 1_024  # one scale per channel: as good as none
    if isinstance(size, bool) or not isinstance(size, int) or not 0 < size <= 1_000_000:
        c.fail("quantization_config.group_size", f"'{printable(size, 20)}' must be a whole number, or -1")
    return size
