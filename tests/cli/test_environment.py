"""What the machine refuses (full disks, closed streams, names too long) ends in one clear line, never as a bug."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import llmcap as package

FULL = Path("/dev/full")
LONG = "x/" * 3000
needs_full = pytest.mark.skipif(not FULL.exists(), reason="no /dev/full here")


def shell(command: str) -> subprocess.CompletedProcess[str]:
    text = f"{sys.executable} -m llmcap {command}"
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=False)


@needs_full
@pytest.mark.parametrize("command", ["estimate --context 1k", "schema model", "models list", "--version"])
def test_a_full_disk_behind_stdout_is_told(command: str) -> None:
    ran = shell(f"{command} > /dev/full")
    assert ran.returncode == 2
    assert ran.stderr.startswith("Error: the answer cannot be written")
    assert "bug" not in ran.stderr
    assert ran.stderr.count("\n") == 1


@needs_full
def test_a_full_disk_behind_a_file_is_told(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("estimate", "--context", "1k", "--format", "csv", "-o", FULL)
    assert (ran.status, ran.out) == (2, "")
    assert "--output: '/dev/full' cannot be written" in ran.err


def test_a_closed_stdout_is_no_bug() -> None:
    assert (shell("estimate --context 1k >&-").returncode, shell("estimate --users x >&-").returncode) == (0, 2)


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["estimate", "--model", LONG], 3),
        (["estimate", "--model", LONG + "config.json"], 3),
        (["estimate", "--hardware", LONG], 3),
        (["estimate", "--cases", LONG], 3),
        (["models", "import", LONG], 3),
        (["models", "check", LONG], 3),
        (["models", "show", "~no-such-user-anywhere/x"], 3),
        (["models", "import", "~no-such-user-anywhere/x"], 3),
        (["validate", "--measured", LONG], 3),
        (["validate", "--measured", "~no-such-user-anywhere/x"], 3),
        (["replay", LONG], 2),
        (["estimate", "--context", "1k", "-o", "x" * 300], 2),
        (["estimate", "--context", "1k", "-o", LONG], 2),
        (["estimate", "--context", "1k", "--plot", "x" * 300 + ".png"], 2),
    ],
    ids=lambda value: "-".join(word[:12] for word in value) if isinstance(value, list) else None,
)
def test_names_that_no_file_can_have(llmcap: Callable[..., Any], arguments: list[str], status: int) -> None:
    ran = llmcap(*arguments)
    assert ran.status == status, ran.err
    assert ran.err.startswith("Error: ")
    assert "bug" not in ran.err
    assert len(ran.err) < 2500


def test_python_raises_llmcap_s_own_errors_for_such_names() -> None:
    with pytest.raises(package.DocumentError):
        package.estimate(model=LONG)
    with pytest.raises(package.DocumentError):
        package.load_model("~no-such-user-anywhere/config.json")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "model.yaml"
    file.write_text("schema: llmcap.model/1\n", encoding="utf-8")
    file.chmod(0)
    ran = llmcap("estimate", "--model", file)
    assert ran.status == 3
    assert "cannot be read" in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--users", "1e12"], ["--users", "too large", "1,000,000,000"]),
        (["--context", "1e11"], ["--context", "too large"]),
        (["--devices", "1e15"], ["--devices", "too large", "1,000,000"]),
        (["--drives", "1e15"], ["--drives", "too large", "1,000,000"]),
        (["--context", "1e9", "--users", "1e9"], ["--users", "tokens"]),
        (["--context", "1e9", "--chunk-tokens", "7"], ["--chunk-tokens", "prefill steps", "shorten --context"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_sizes_that_would_take_forever_are_refused(
    llmcap: Callable[..., Any], arguments: list[str], words: list[str]
) -> None:
    ran = llmcap("estimate", *arguments)
    assert (ran.status, ran.out) == (2, "")
    for word in words:
        assert word in ran.err


@pytest.mark.parametrize("command", [["tiers"], ["explain"], ["compare", "dgx-b200", "dgx-h200"]], ids=lambda c: c[0])
def test_every_command_refuses_endless_prefill(llmcap: Callable[..., Any], command: list[str]) -> None:
    ran = llmcap(*command, "--context", "1e9", "--chunk-tokens", "7")
    assert (ran.status, ran.out) == (2, "")
    assert "142,857,143 prefill steps" in ran.err


def test_a_case_s_broken_documents_are_told_line_by_line(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "engine.yaml").write_text("schema: llmcap.engine/1\nid: mine\nname: mine\nspeed: 1\n", encoding="utf-8")
    cases = tmp_path / "cases.csv"
    cases.write_text(f"engine,users\n{tmp_path}/engine.yaml,1\n,many\n,4\n", encoding="utf-8")
    ran = llmcap("estimate", "--cases", cases)
    assert ran.status == 3
    assert "\\n" not in ran.err
    assert "cases.csv:2: " in ran.err
    assert "cases.csv:3: --users" in ran.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("model;users\nllama-3.1-8b;1\n", ["cases.csv:1", "commas"]),
        ("users,sessions\n1,some\n", ["cases.csv:2", "--sessions"]),
        ("users,sessions\n8,4\n", ["cases.csv:2", "--sessions", "at least 8"]),
    ],
)
def test_tables_that_people_write(llmcap: Callable[..., Any], tmp_path: Path, text: str, words: list[str]) -> None:
    cases = tmp_path / "cases.csv"
    cases.write_text(text, encoding="utf-8")
    ran = llmcap("estimate", "--cases", cases)
    assert (ran.status, ran.out) == (3, "")
    for word in words:
        assert word in ran.err


def test_too_many_users_hear_of_sessions(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("estimate", "--users", "500", "--context", "128k")
    assert ran.status == 4
    assert "--sessions 500" in ran.err


def test_one_document_is_sound_and_several_are(llmcap: Callable[..., Any]) -> None:
    assert llmcap("models", "check", "llama-3.1-8b").out == "1 model document is sound\n"
    assert llmcap("hardware", "check", "b200", "dgx-b200").out == "2 hardware documents are sound\n"


def test_wide_weights_run_on_a_device_without_their_peak() -> None:
    """Gaudi 3 lists no fp32 peak: the fp32 weights of GPT-2 are stored wide and multiplied in bf16."""
    answer = package.estimate(model="gpt2", hardware="gaudi3-8x", context=1000)
    assert (answer.inputs["weight_dtype"], answer.inputs["activation_dtype"]) == ("fp32", "bf16")
    assert {g.compute_dtype for g in answer.setting.operators.gemms} == {"bf16"}
    assert all(g.weight_bytes == 4.0 * g.k * g.n for g in answer.setting.operators.gemms)
    assert answer.results["ttft_s"] > 0.0


def test_an_estimate_in_a_session_is_short() -> None:
    assert len(repr(package.estimate(context=1000))) < 9000


def test_a_link_stays_a_link(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old", encoding="utf-8")
    link.symlink_to(target)
    assert llmcap("estimate", "--context", "1k", "--format", "json", "-o", link).status == 0
    assert link.is_symlink()
    assert target.read_text(encoding="utf-8").startswith("{")


def test_a_replica_s_shortage_is_told_per_device(llmcap: Callable[..., Any]) -> None:
    """One user on one of eight replicas lacks what its own device lacks, not eight times that."""
    question = ("estimate", "--model", "llama-3.1-8b", "--dp", "8", "--context", "4M")
    ran = llmcap(*question, "--format", "json")
    answer = ran.json()
    state = 4_001_000 * 2 * 8 * 128 * 2 * 32  # 131,072 B a token: 524 GB
    assert answer["results"]["kv_bytes_total"] == state
    text = llmcap(*question).out
    told = re.search(r"Does not fit: short by ([\d.]+) GB per device of the fullest replica", text)
    assert told is not None
    pool = 0.9 * answer["tiers"][0]["capacity_bytes"] / 8 - answer["results"]["weight_bytes_per_device"]
    assert 0.0 < float(told[1]) * 1e9 - (state - pool) < 0.03 * state  # and the engine's own work space


def test_a_missing_package_is_named(llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:

    def broken(*arguments: object) -> None:
        raise ModuleNotFoundError("No module named 'jinja2'", name="jinja2")

    monkeypatch.setattr("llmcap.cli.app.command", broken)
    ran = llmcap("estimate")
    assert ran.status == 2
    assert "'jinja2' is not installed" in ran.err


def test_factors_from_own_rows_need_no_package_of_development(
    llmcap: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README offers it after `make demo`, which does not install scipy; fits of kernels name what they lack."""
    monkeypatch.setitem(sys.modules, "scipy", None)
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    (tmp_path / "mine.csv").write_text(
        "model,hardware,isl,osl,concurrency,metric,value\nllama-3.1-8b,dgx-h100,1000,200,8,tpot_s,0.01\n"
    )
    ran = llmcap("calibrate", "--measured", str(tmp_path / "mine.csv"), "-o", str(tmp_path / "mine.yaml"))
    assert (ran.status, ran.out) == (0, ""), ran.err
    assert "1 of 1 rows used" in ran.err
    kernels = llmcap(
        "calibrate",
        "--kernels",
        str(Path(__file__).parents[2] / "measurements" / "kernels"),
        "-o",
        str(tmp_path / "fits"),
    )
    assert kernels.status == 2
    assert "Install it: pip install scipy" in kernels.err


@pytest.mark.parametrize("tokens", ["2000001", "999999999", "1e15"])
def test_a_step_too_long_to_table_is_refused(llmcap: Callable[..., Any], tokens: str) -> None:
    """999,999,999 took 16 GB and did not end."""
    ran = llmcap("estimate", "--chunk-tokens", tokens)
    assert (ran.status, ran.out) == (2, "")
    assert "--chunk-tokens" in ran.err
