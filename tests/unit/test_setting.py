"""Settings are shared while their files stay as they are, and read again when one changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import llmcap
from llmcap.analyses.options import Options
from llmcap.analyses.setting import resolve
from llmcap.specs.registry import shipped_root

CONFIG = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 1000,
    "max_position_embeddings": 4096, "torch_dtype": "bfloat16", "tie_word_embeddings": False,
}  # fmt: skip


def _server(text_of: str = "2 TB") -> str:
    shipped = shipped_root() / "hardware" / "servers" / "dgx-h100.yaml"
    return shipped.read_text(encoding="utf-8").replace("capacity: 2 TB", f"capacity: {text_of}")


def _dram(hardware: str) -> float:
    answer = llmcap.estimate(model="llama-3.1-8b", hardware=hardware, context=1000)
    return float(answer.tiers[1]["capacity_bytes"])


def test_the_same_options_share_one_setting() -> None:
    assert resolve(Options()) is resolve(Options())


def test_an_edited_server_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(_server(), encoding="utf-8")
    assert _dram(str(file)) == 2e12
    file.write_text(_server("1.5 TB"), encoding="utf-8")
    assert _dram(str(file)) == 1.5e12


def test_an_edited_document_on_the_search_path_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "hardware" / "servers"
    folder.mkdir(parents=True)
    (folder / "dgx-h100.yaml").write_text(_server("1.5 TB"), encoding="utf-8")
    assert _dram("dgx-h100") == 2e12
    monkeypatch.setenv("LLMCAP_PATH", str(tmp_path))
    assert _dram("dgx-h100") == 1.5e12
    (folder / "dgx-h100.yaml").write_text(_server("1 TB"), encoding="utf-8")
    assert _dram("dgx-h100") == 1e12


def test_a_relative_path_means_another_file_in_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("a", "1 TB"), ("b", "3 TB")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "mine.yaml").write_text(_server(size), encoding="utf-8")
    for name, size in (("a", 1e12), ("b", 3e12), ("a", 1e12)):
        monkeypatch.chdir(tmp_path / name)
        assert _dram("mine.yaml") == size


def test_an_edited_config_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    # Keys and values of 4 layers, 8 heads of 128 numbers, 2 bytes each: 16,384 bytes a token.
    for layers in (4, 6):
        file.write_text(json.dumps(CONFIG | {"num_hidden_layers": layers}), encoding="utf-8")
        answer = llmcap.estimate(model=str(file), hardware="dgx-h100", context=1000)
        assert answer.results["kv_bytes_per_token"] == layers * 2 * 8 * 128 * 2
