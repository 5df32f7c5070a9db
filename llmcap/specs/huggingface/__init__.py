"""Model documents from Hugging Face config.json files, family by family; what is not understood is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from llmcap.errors import DocumentError, Problem, did_you_mean, printable
from llmcap.specs.bounded_files import read_bounded
from llmcap.specs.huggingface import custom_code, experts, gemma, hybrid, latent, older
from llmcap.specs.huggingface.config import Config
from llmcap.specs.huggingface.draft import Draft, fold
from llmcap.specs.huggingface.ordinary import DENSE, Rule, Traits, ordinary
from llmcap.specs.huggingface.prediction import count_apart
from llmcap.specs.huggingface.quantization import weight_dtypes
from llmcap.specs.model import Model
from llmcap.specs.registry import is_folder

__all__ = ["import_config", "load_config", "model_types"]

Reader = Callable[[Config], Draft]

_NESTED: Final = ("text_config", "llm_config", "language_config")
#: Multimodal wrappers whose text part may leave out its own model type.
_TEXT_OF: Final = {
    "mistral3": "mistral", "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "llama4": "llama4_text", "qwen3_vl_moe": "qwen3_vl_moe_text", "qwen3_vl": "qwen3_vl_text",
    "qwen3_5": "qwen3_5_text", "qwen3_5_moe": "qwen3_5_moe_text", "kimi_k25": "kimi_k2", "step3_vl": "step3_text",
    "llava": "llama", "cohere2_vision": "cohere2",
    "minimax_m3_vl": "minimax_m3_vl_text",
}  # fmt: skip
_GROK2: Final = "grok-2"


def _dense_reader(traits: Traits) -> Reader:
    return lambda c: ordinary(c, traits)


def _mixture_reader(traits: Traits, rule: Rule) -> Reader:
    return lambda c: ordinary(c, traits, rule)


_READERS: Final[dict[str, Reader]] = {
    **{kind: _dense_reader(traits) for kind, traits in DENSE.items()},
    **{kind: _mixture_reader(*pair) for kind, pair in experts.MIXTURES.items()},
    "llama4_text": experts.llama4,
    "mimo_v2_flash": experts.mimo_v2,
    "mimo_v2": experts.mimo_v2,
    "laguna": experts.laguna,
    "step3_text": experts.step3,
    "minimax_m3_vl_text": experts.minimax_m3,
    "minimax_m3_text": experts.minimax_m3,
    "minimax_m3": experts.minimax_m3,
    "dbrx": experts.dbrx,
    _GROK2: experts.grok2,
    **latent.READERS,
    **hybrid.READERS,
    **gemma.READERS,
    **older.READERS,
    **custom_code.READERS,
}
_MAX_BYTES: Final = 20_000_000


def model_types() -> list[str]:
    """Model types (`model_type` of config.json) that can be imported."""
    return sorted(_READERS)


def load_config(path: Path, *, name: str | None = None) -> Model:
    """Import a config.json, or the one in a folder.

    Raises
    ------
    DocumentError
        The file is missing, is no JSON object, or holds a model that is not understood.
    """
    file = path / "config.json" if is_folder(str(path)) else path
    content = read_bounded(file, _MAX_BYTES, "check the path")
    try:
        data = json.loads(content.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise _refused(str(file), f"is not JSON ({printable(error, 120)})", "give a config.json") from error
    if not isinstance(data, Mapping):
        raise _refused(str(file), "must hold a JSON object", "give a config.json")
    stem = file.parent.name if file.name == "config.json" else file.stem
    return import_config(data, name=name or stem, source=str(file))


def import_config(config: Mapping[str, Any], *, name: str | None = None, source: str = "config.json") -> Model:
    """A model document from the content of a config.json.

    Parameters
    ----------
    config : Mapping
        The whole file; a multimodal one nests the text model, which alone is read.
    name : str, optional
        Name of the model; its id is made from it.
    source : str
        Where the config came from, for messages and the document's sources.

    Returns
    -------
    Model
        Its `notes` tell class defaults that were taken and keys that were not used.

    Raises
    ------
    DocumentError
        Unknown model type, a key that may matter and is not understood, a value that cannot be.
    """
    try:
        return _import(config, name, source)
    except DocumentError:
        raise
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(step) for step in first["loc"])
        raise DocumentError([Problem(source, None, where, printable(first["msg"], 200))]) from error
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise _refused(source, f"holds a value that cannot be understood ({printable(error, 120)})", "") from error


def _import(config: Mapping[str, Any], name: str | None, source: str) -> Model:
    text, outer, path = _text_model(config)
    c = Config(text, source, outer, path)
    if c.inherited("is_encoder_decoder") is True or c.inherited("add_cross_attention") is True:
        c.fail("is_encoder_decoder", "is an encoder-decoder model", "only decoders are understood")
    kind = _model_type(c, text, outer)
    draft = _READERS[kind](c)
    count_apart(c, draft)
    default, by_class, group = weight_dtypes(c, draft)
    c.skip("_llmcap_source", "_provenance", *_NESTED)
    unused = c.leftovers()
    document = _document(draft, kind, name or kind, source)
    document |= {"weight_dtype": default, "weight_dtypes": by_class}
    if default == "int4":
        document["int4_group"] = group
        document["sources"][0]["covers"].append("int4_group")
    notes = [*dict.fromkeys(c.notes), *([f"keys not used: {', '.join(sorted(unused))}"] if unused else [])]
    document |= {"notes": printable("; ".join(notes), 4_000)} if notes else {}
    return Model.model_validate(document)


def _text_model(config: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, Any], str]:
    """(text config, outer config, path of the text config)."""
    for key in _NESTED:
        inner = config.get(key)
        if isinstance(inner, Mapping) and inner:
            return inner, config, f"{key}."
    thinker = config.get("thinker_config")
    if isinstance(thinker, Mapping):
        return _text_model(thinker)
    return config, {}, ""


def _model_type(c: Config, text: Mapping[str, Any], outer: Mapping[str, Any]) -> str:
    kind, wrapper = text.get("model_type"), outer.get("model_type")
    if kind is None and isinstance(wrapper, str):
        kind = _TEXT_OF.get(wrapper, wrapper)
    architectures = text.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    if named == "Grok1ForCausalLM" and "residual_moe" in text:
        return _GROK2
    if not isinstance(kind, str):
        hint = "give the config.json as published"
        what = f" (architecture {printable(named, 60)} alone does not tell the family)" if named else ""
        c.fail("model_type", f"missing{what}", hint)
    if kind in _READERS:
        return kind
    near = did_you_mean(kind, _READERS)
    hint = f"{near + ' ' if near else ''}describe the model in a YAML document (docs/add-a-model.md)"
    c.fail("model_type", f"'{printable(kind, 60)}' is not understood", hint)


def _document(d: Draft, kind: str, name: str, source: str) -> dict[str, Any]:
    plain = re.sub(r"[^a-z0-9._+-]+", "-", name.split("/")[-1].split("--")[-1].lower()).strip("-._+")[:80].strip("-._+")
    document: dict[str, Any] = {
        "schema": Model.schema_name,
        "id": plain or "model",
        "name": printable(name, 200),
        "family": kind,
        "max_context": d.context,
        "hidden_size": d.hidden,
        "vocab_size": d.vocab,
        "tie_embeddings": d.tied,
    }
    optional = {
        "position_embeddings": d.positions,
        "recurrent_dtype": d.recurrent_dtype,
        "parallel_blocks": d.parallel,
        "norm_elements_per_layer": d.norm_elements_per_layer,
        "other_parameters": d.other_parameters,
        "parameters_apart": d.apart,
    }
    document |= {key: value for key, value in optional.items() if value}
    document |= {"mixers": d.mixers, "ffns": d.ffns, "layers": fold(d.layers)}
    covers = [
        key for key in document if key not in ("schema", "id", "name", "family", "tie_embeddings", "parallel_blocks")
    ]
    covers = [key for key in covers if document[key] and key != "recurrent_dtype"]
    note = {"note": "norms and parameters outside the listed parts follow the modelling code of transformers 5.24"}
    document["sources"] = [{"covers": covers, "kind": "config", "ref": printable(source, 400), **note}]
    return document


def _refused(file: str, message: str, hint: str) -> DocumentError:
    return DocumentError([Problem(file, None, "", message, hint)])
