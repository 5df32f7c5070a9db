"""Every shipped model document: complete, sourced, found by its names, and refused when it is wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from llmcap.errors import DocumentError, OptionError
from llmcap.specs import registry
from llmcap.specs.base import dangling, dump_document, load_document, uncovered
from llmcap.specs.model import Model

MODELS = registry.list_ids("model")


def model(name: str) -> Model:
    found: Model = registry.load("model", name).document
    return found


def test_at_least_eighty_models_ship() -> None:
    assert len(MODELS) >= 80


@pytest.mark.parametrize("name", MODELS)
def test_document_is_sound(name: str) -> None:
    m = model(name)
    assert m.id == name
    assert m.sources
    assert uncovered(m) == [] and dangling(m) == []
    assert m.huggingface, "every model is found by a Hugging Face id"
    if m.published is not None:
        assert any("published" in source.covers for source in m.sources)


@pytest.mark.parametrize("name", MODELS)
def test_huggingface_ids_stand_on_one_line(name: str) -> None:
    text = registry.find("model", name).read_text(encoding="utf-8")
    lines = re.findall(r"^huggingface:.*$", text, re.MULTILINE)
    assert len(lines) == 1 and re.fullmatch(r"huggingface: \[[^\[\]]+\]", lines[0])


@pytest.mark.parametrize("name", MODELS)
def test_written_and_read_again_it_is_the_same(name: str, tmp_path: Path) -> None:
    m = model(name)
    path = tmp_path / f"{name}.yaml"
    path.write_text(dump_document(m), encoding="utf-8")
    assert load_document(path, Model) == m


def test_no_huggingface_id_is_claimed_twice() -> None:
    owners: dict[str, str] = {}
    for name in MODELS:
        for identity in model(name).huggingface:
            assert owners.setdefault(identity.lower(), name) == name, identity


# Ids that other documents, scenarios and published measurements use.
REQUIRED = [
    "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "llama-3.3-70b", "llama-2-7b", "llama-2-13b",
    "llama-2-70b", "qwen3-32b", "qwen3-235b-a22b", "mixtral-8x7b", "llama-4-maverick", "llama-4-scout",
    "deepseek-v3", "deepseek-r1", "deepseek-v3.2", "deepseek-v4-pro", "kimi-k2", "kimi-k2.5", "kimi-linear-48b",
    "gemma-3-27b", "gpt-oss-120b", "gpt-oss-20b", "glm-5", "bloom", "falcon-180b", "qwen3.5-397b-a17b",
    "mixtral-8x22b", "mistral-7b", "minimax-m2.5", "qwen3-30b-a3b", "qwen3-8b", "qwen3-14b",
]  # fmt: skip


@pytest.mark.parametrize("name", REQUIRED)
def test_required_ids_ship(name: str) -> None:
    assert name in MODELS


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("meta-llama/Llama-3.1-70B", "llama-3.1-70b"),
        ("meta-llama/llama-3.1-70b-instruct", "llama-3.1-70b"),
        ("META-LLAMA/LLAMA-3.1-8B", "llama-3.1-8b"),
        ("meta-llama/Llama-4-Maverick-17B-128E", "llama-4-maverick"),
        ("meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8", "llama-4-maverick"),
        ("meta-llama/Llama-4-Scout-17B-16E", "llama-4-scout"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-r1"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
        ("moonshotai/Kimi-K2-Instruct", "kimi-k2"),
        ("moonshotai/Kimi-K2.5", "kimi-k2.5"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("openai/gpt-oss-20b", "gpt-oss-20b"),
        ("Qwen/Qwen3.5-397B-A17B", "qwen3.5-397b-a17b"),
        ("Qwen/Qwen3-235B-A22B", "qwen3-235b-a22b"),
        ("MiniMaxAI/MiniMax-M2.5", "minimax-m2.5"),
        ("mistralai/Mixtral-8x22B-v0.1", "mixtral-8x22b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"),
        ("meta-llama/Llama-2-70b-hf", "llama-2-70b"),
        ("bigscience/bloom", "bloom"),
        ("Qwen3-8B", "qwen3-8b"),
    ],
)
def test_found_by_huggingface_id_in_any_case(asked: str, found: str) -> None:
    assert registry.find("model", asked).stem == found


@pytest.mark.parametrize(
    ("name", "heads"),
    [
        ("llama-4-maverick", 40),
        ("deepseek-v3", 128),
        ("qwen3.5-397b-a17b", 32),  # not the 64 value heads of its recurrent layers
        ("laguna-xs.2", 16),  # 48 in full layers, 64 in sliding ones
        ("jamba-v0.1", 32),
        ("falcon-7b", 71),
    ],
)
def test_query_heads_that_tensor_parallelism_must_divide(name: str, heads: int) -> None:
    assert model(name).query_heads == heads


def test_unknown_model_is_an_option_error() -> None:
    with pytest.raises(OptionError, match=r"[Dd]id you mean"):
        registry.find("model", "llama-4-mavrick")


SOUND = """
schema: llmcap.model/1
id: mine
name: Mine
max_context: 1000
hidden_size: 64
vocab_size: 100
mixers:
  attention: {kind: attention, heads: 4, kv_heads: 2, head_dim: 16}
ffns:
  dense: {kind: dense, intermediate: 128}
layers:
  - repeat: 2
    block: [{mixer: attention, ffn: dense}]
"""


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("kv_heads: 2", "kv_heads: 3", "multiple of kv_heads"),
        ("head_dim: 16", "head_dim: 16, scope: sliding", "needs a window"),
        ("head_dim: 16", "head_dim: 16, window: 8", "needs scope"),
        ("mixer: attention", "mixer: attenton", "attenton"),
        ("ffn: dense", "", "no layer uses it"),
        ("kind: dense", "kind: densee", "densee"),
        ("hidden_size: 64", "hidden_size: -64", "hidden_size"),
        ("hidden_size: 64", "hidden_sise: 64", "hidden_sise"),
        ("intermediate: 128", "intermediate: 128.5", "intermediate"),
        (
            "{kind: dense, intermediate: 128}",
            "{kind: moe, experts: 2, top_k: 4, intermediate: 8}",
            "exceeds the experts",
        ),
        ("repeat: 2", "repeat: 1000000000", "more than any model has"),
        ("layers:\n  - repeat: 2\n    block: [{mixer: attention, ffn: dense}]", "layers: []", "layers"),
    ],
)
def test_wrong_documents_are_refused_with_the_reason(old: str, new: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(SOUND, encoding="utf-8")
    assert load_document(path, Model).layer_count == 2
    assert old in SOUND
    path.write_text(SOUND.replace(old, new), encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        load_document(path, Model)
    assert message in str(caught.value)
    assert "mine.yaml" in str(caught.value)
