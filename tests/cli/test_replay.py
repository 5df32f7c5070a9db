"""`llmcap replay`: a trace against prefix caches, for people and for programs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llmcap.analyses.replays.traces import read_trace
from llmcap.cli.app import run


def test_the_command_answers_in_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    request = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}
    file = tmp_path / "trace.jsonl"
    file.write_text("\n".join([json.dumps(request), json.dumps(request | {"timestamp": 1000}), "{", ""]))
    arguments = ["replay", str(file), "--capacities", "1,2", "--format", "json", "--max-bad-lines", "50%"]
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["schema"] == "llmcap.replay/1"
    assert (answer["requests"], answer["unique_blocks"], answer["input_tokens"]) == (2, 2, 1200)
    assert [point["hit_ratio"] for point in answer["curve"]] == [0.0, 0.5]
    assert answer["malformed_lines"]["count"] == 1
    assert ":3: " in err


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_command_draws_hits_against_capacity(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"hits.{suffix}"
    assert run(["replay", "--generate", "users=5,turns=4", "--plot", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == f"figure in {file}\n" and "Hit ratio of an LRU cache" in out
    assert file.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


def test_a_trace_of_lengths_has_no_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "azure.csv"
    file.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n1.5,10,1\n")
    assert run(["replay", str(file), "--plot", str(tmp_path / "a.png")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Error: --plot: the trace has lengths only")
    assert [p.name for p in tmp_path.iterdir()] == ["azure.csv"]


def test_control_codes_in_a_file_name_stay_in_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    names = [tmp_path / "a\x1b[31m.png", tmp_path / "b\x0e.jsonl"]
    arguments = ["--plot", str(names[0]), "--write-trace", str(names[1])]
    assert run(["replay", "--generate", "users=3,turns=2", *arguments]) == 0
    assert capsys.readouterr().err.replace("\n", "").isprintable()
    assert all(name.exists() for name in names)


@pytest.mark.parametrize("form", ["table", "csv", "md"])
def test_the_command_answers_people(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    copy = tmp_path / "made-up.jsonl"
    arguments = ["replay", "--generate", "users=5,turns=2", "--format", form, "--write-trace", str(copy)]
    assert run(arguments) == 0
    out, _ = capsys.readouterr()
    assert "hit" in out
    assert read_trace(copy).requests == 10


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["nowhere"], 2), ([], 2), (["--generate", "users=1,turns=1", "--model", "llama-3.1-405b", "--devices", "1"], 4)],
)
def test_the_command_fails_clearly(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int) -> None:
    assert run(["replay", *arguments]) == status
    assert capsys.readouterr().err.startswith("Error: ")
