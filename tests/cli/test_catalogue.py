"""`models`, `hardware` and `schema`: lists, sheets, checks and imports."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcap.specs.registry import KINDS, list_ids, shipped_root

LLAMA_8B = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 131072,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-05, "hidden_act": "silu",
}  # fmt: skip


def test_lists_hold_every_shipped_document(llmcap: Callable[..., Any]) -> None:
    models = llmcap("models", "list", "--format", "json").json()
    assert [row["id"] for row in models] == list_ids("model")
    assert all(row["name"] and row["parameters_total"] >= row["parameters_active"] > 0 for row in models)
    servers = llmcap("hardware", "list", "--format", "json").json()
    assert [row["id"] for row in servers] == list_ids("server")
    assert all(row["hbm_bytes"] > 0 and row["devices"] > 0 for row in servers)


@pytest.mark.parametrize("noun", ["models", "hardware"])
@pytest.mark.parametrize("width", ["80", "120"])
def test_lists_fit_the_terminal(
    llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, noun: str, width: str
) -> None:
    monkeypatch.setenv("COLUMNS", width)
    lines = llmcap(noun, "list").out.split("\n")
    assert sum(len(line) > int(width) for line in lines) == 0


def test_list_as_csv(llmcap: Callable[..., Any]) -> None:
    assert llmcap("models", "list", "--format", "csv").out.startswith("id,name,parameters_total,parameters_active,")
    assert llmcap("hardware", "list", "--format", "md").out.startswith("| id | name |")


@pytest.mark.parametrize(("dtype", "width"), [("fp8", 1), ("bf16", 2)])
@pytest.mark.parametrize("tokens", [128, 8192, 131072, 1048576])
def test_the_state_of_maverick_is_that_of_a_hand_count(
    llmcap: Callable[..., Any], tokens: int, dtype: str, width: int
) -> None:
    sheet = llmcap(
        "models", "show", "llama-4-maverick", "--context", tokens, "--kv-dtype", dtype, "--format", "json"
    ).json()
    full, chunked = 2 * 8 * 128 * width * 12 * tokens, 2 * 8 * 128 * width * 36 * min(tokens, 8192)
    assert {k["kind"]: (k["layers"], k["bytes"]) for k in sheet["kv"]["per_kind"]} == {
        "full": (12, full),
        "chunked": (36, chunked),
    }
    assert sheet["kv"]["bytes_total"] == full + chunked
    assert isinstance(sheet["kv"]["bytes_total"], int)
    assert sheet["kv"]["bytes_constant"] == 0
    assert sheet["parameters_total"] == 400_711_848_960


def test_all_full_and_tp_count_in_what_is_reserved(llmcap: Callable[..., Any]) -> None:
    def reserved(*more: str) -> int:
        sheet = llmcap(
            "models", "show", "llama-4-maverick", "--context", "1Mi", "--kv-dtype", "fp8", "--format", "json", *more
        )
        return int(sheet.json()["kv"]["bytes_reserved"])

    assert reserved("--kv-policy", "all-full") == 2 * 8 * 128 * 48 * 2**20
    # 8 KV heads on 40 query heads' divisors: 10 devices hold one head each, two of the eight twice.
    assert reserved("--kv-policy", "all-full", "--tp", "10") == 2 * 10 * 128 * 48 * 2**20
    assert reserved() < reserved("--kv-policy", "all-full")


def test_a_model_is_explained(llmcap: Callable[..., Any]) -> None:
    text = llmcap("models", "show", "meta-llama/Llama-4-Maverick-17B-128E-Instruct", "--context", "1M").out
    assert "12 layers x T x 2,048 B" in text
    assert "36 layers x min(T, 8,192) x 2,048 B" in text
    assert "Sources" in text
    assert "huggingface.co/meta-llama/Llama-4-Maverick" in text
    assert "bloom" not in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["llama-3.1-8"], "did you mean"),
        (["llama-3.1-8b", "--context", "0"], "--context"),
        (["llama-3.1-8b", "--kv-dtype", "fp9"], "--kv-dtype"),
        (["llama-3.1-8b", "--tp", "5"], "--tp"),
        (["llama-3.1-8b", "--kv-policy", "none"], "--kv-policy"),
        (["llama-3.1-8b", "--format", "csv"], "--format"),
    ],
)
def test_show_refuses_what_it_does_not_know(llmcap: Callable[..., Any], arguments: list[str], word: str) -> None:
    ran = llmcap("models", "show", *arguments)
    assert ran.status == 2
    assert word in ran.err.lower()


def test_a_server_is_explained(llmcap: Callable[..., Any]) -> None:
    sheet = llmcap("hardware", "show", "dgx-b200", "--format", "json").json()
    assert sheet["peaks_flop_per_s"]["fp8"] == 4.5e15
    assert {t["tier"]: t["capacity_bytes"] for t in sheet["tiers"]} == {"dram": 4e12, "nvme": 8 * 30.72e12}
    text = llmcap("hardware", "show", "dgx-b200").out
    assert "drives 112 GB/s" in text
    assert "docs.nvidia.com" in text
    assert "Not a product" in llmcap("hardware", "show", "dgx-b200-gen6").out


def test_an_import_can_be_used_at_once(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    folder = tmp_path / "My-Llama"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_8B), encoding="utf-8")
    document = tmp_path / "my-llama.yaml"
    assert llmcap("models", "import", folder, "-o", document).status == 0
    assert llmcap("models", "check", document).status == 0
    for name in (document, folder, folder / "config.json"):
        answer = llmcap(
            "estimate", "--model", name, "--context", "8k", "--hardware", "dgx-h100", "--format", "json"
        ).json()
        # 32 layers, K and V, 8 heads of 128, two bytes.
        assert answer["results"]["kv_bytes_per_token"] == 32 * 2 * 8 * 128 * 2
    sheet = llmcap("models", "show", document, "--format", "json").json()
    assert sheet["parameters_total"] == 8_030_261_248
    assert sheet["id"] == "my-llama"


def test_what_is_not_understood_is_not_imported(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({**LLAMA_8B, "model_type": "lama"}), encoding="utf-8")
    ran = llmcap("models", "import", file)
    assert ran.status == 3
    assert "did you mean 'llama'" in ran.err
    assert llmcap("models", "import", tmp_path / "nothing").status == 3


@pytest.mark.parametrize("noun", ["models", "hardware"])
def test_every_shipped_document_is_sound(llmcap: Callable[..., Any], noun: str) -> None:
    ran = llmcap(noun, "check")
    assert ran.status == 0, ran.err
    assert "sound" in ran.out


def test_a_check_tells_all_problems(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    shipped = (shipped_root() / "models" / "llama-3.1-8b.yaml").read_text(encoding="utf-8")
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(shipped.replace("vocab_size: 128256", "vocab_size: 528256"), encoding="utf-8")
    unsourced = tmp_path / "unsourced.yaml"
    unsourced.write_text(
        shipped.replace("vocab_size, ", "", 1) if "vocab_size, " in shipped else shipped, encoding="utf-8"
    )
    ran = llmcap("models", "check", wrong, unsourced, "llama-3.1-70b")
    assert ran.status == 3
    assert "wrong.yaml: published.parameters_total" in ran.err
    assert "unsourced.yaml: vocab_size: has no source" in ran.err


def test_a_check_follows_the_names_of_parts(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    shipped = (shipped_root() / "hardware" / "servers" / "dgx-b200.yaml").read_text(encoding="utf-8")
    server = tmp_path / "server.yaml"
    server.write_text(shipped.replace("drive: micron-9550", "drive: micron-9551"), encoding="utf-8")
    ran = llmcap("hardware", "check", server, "micron-9550")
    assert ran.status == 3
    assert "server.yaml: nvme.drive" in ran.err
    assert llmcap("hardware", "check", "dgx-b200", "b200", "connectx-7").status == 0
    assert llmcap("hardware", "check", "dgx-b20").status == 2


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "scenario"])
def test_schemas(llmcap: Callable[..., Any], kind: str) -> None:
    schema = llmcap("schema", kind).json()
    assert schema["type"] == "object"
    assert "schema" in schema["required"]
