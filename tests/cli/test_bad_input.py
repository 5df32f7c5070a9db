"""Bad input ends in one clear message that names the field and the fix, and in the right exit status."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcap.analyses.options import options_from
from llmcap.cli import app
from llmcap.errors import LlmcapError, OptionError


def check(ran: Any, status: int, *words: str) -> None:
    assert ran.status == status, ran.err
    assert ran.out == ""
    assert ran.err.startswith("Error: ")
    assert "Traceback" not in ran.err
    assert len(ran.err) < 2500
    for word in words:
        assert word.lower() in ran.err.lower()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--model", "llama-4-mavrick"], ["--model", "did you mean 'llama-4-maverick'"]),
        (["--hardware", "dgx-b20"], ["--hardware", "did you mean 'dgx-b200'"]),
        (["--context", "-5"], ["--context", "negative"]),
        (["--context", "0"], ["--context", "at least 1"]),
        (["--context", "many"], ["--context", "whole number"]),
        (["--context", "1e400"], ["--context", "too large"]),
        (["--context", ""], ["--context", "empty"]),
        (["--users", "0"], ["--users", "at least 1"]),
        (["--users", "1.5"], ["--users", "whole"]),
        (["--output-tokens", "0"], ["--output-tokens"]),
        (["--cached-tokens", "-1"], ["--cached-tokens"]),
        (["--context", "1k", "--cached-tokens", "2k"], ["--cached-tokens", "shorter than the context"]),
        (["--context", "1k", "--cached-tokens", "1k"], ["--cached-tokens", "at least one token"]),
        (["--weight-dtype", "fp7"], ["--weight-dtype", "fp8"]),
        (["--kv-policy", "hybird"], ["--kv-policy", "did you mean 'hybrid'"]),
        (["--hardware", "dgx-h100", "--activation-dtype", "nvfp4"], ["--activation-dtype", "nvfp4", "bf16"]),
        (["--tp", "3"], ["--tp", "1, 2, 4, 8"]),
        (["--devices", "6", "--tp", "4"], ["--tp", "does not divide"]),
        (["--sessions", "0"], ["--sessions"]),
        (["--dram", "2"], ["--dram", "unit"]),
        (["--tier", "cxl"], ["--tier", "cxl:2 TB:100 GB/s"]),
        (["--assumptions", "as-published", "--model", "llama-3.1-8b"], ["--assumptions", "llama-4-maverick"]),
        (["--assumptions", "calibratd"], ["did you mean 'calibrated'"]),
        (["--format", "jsn"], ["--format", "did you mean 'json'"]),
        (["--no-such-option", "1"], ["--no-such-option", "--help"]),
        (["--contxt", "1"], ["did you mean --context"]),
        (["--tp"], ["--tp", "requires an argument"]),
        (["surplus"], ["surplus"]),
        (["--model", ""], ["--model", "empty"]),
        (["--output", "/no/such/folder/x.json"], ["--output", "no folder"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_an_option_is_refused(llmcap: Callable[..., Any], arguments: list[str], words: list[str]) -> None:
    check(llmcap("estimate", *arguments), 2, *words)


DOCUMENTS = {
    "malformed": ("id: x\n  layers: [1,\n", ["malformed.yaml:2"]),
    "duplicate": ("schema: llmcap.model/1\nid: x\nid: y\n", ["duplicate.yaml:3", "id"]),
    "empty": ("", ["empty.yaml"]),
    "unknown": ("schema: llmcap.model/1\nid: x\nnonsense_key: 1\n", ["unknown.yaml:3", "nonsense_key"]),
    "other": ("schema: llmcap.drive/1\nid: x\n", ["other.yaml:1", "llmcap.model/1"]),
    "list": ("- 1\n", ["list.yaml", "mapping"]),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_model_document_is_refused(llmcap: Callable[..., Any], tmp_path: Path, name: str) -> None:
    text, words = DOCUMENTS[name]
    file = tmp_path / f"{name}.yaml"
    file.write_text(text, encoding="utf-8")
    check(llmcap("estimate", "--model", file), 3, *words)


def test_a_number_without_a_unit_is_refused(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "drive.yaml"
    file.write_text("schema: llmcap.drive/1\nid: x\ncapacity: 80\n", encoding="utf-8")
    check(llmcap("estimate", "--drive", file), 3, "drive.yaml:3", "capacity", "80 GB")


@pytest.mark.parametrize("option", ["--model", "--hardware", "--assumptions", "--cases"])
def test_a_missing_file_is_named(llmcap: Callable[..., Any], tmp_path: Path, option: str) -> None:
    check(llmcap("estimate", option, tmp_path / "missing.yaml"), 3, "missing.yaml")


def test_all_problems_of_a_file_of_cases_are_told_at_once(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("users,context\n0,1k\n1,2k\n1,many\n", encoding="utf-8")
    check(llmcap("estimate", "--cases", file), 3, "cases.csv:2", "--users", "cases.csv:4", "--context")
    file.write_text("users,contxt\n1,1k\n", encoding="utf-8")
    check(llmcap("estimate", "--cases", file), 3, "contxt", "did you mean 'context'")


def test_control_codes_are_not_passed_on(llmcap: Callable[..., Any]) -> None:
    for arguments in (
        ["estimate", "--model", "\x1b[31mred"],
        ["\x1b[31mred"],
        ["estimate", "\x1b[31mred"],
        ["estimate", "--\x1b[31m"],
    ):
        ran = llmcap(*arguments)
        assert ran.status == 2
        assert "\x1b" not in ran.err


def test_an_unknown_command_is_compared_with_the_known(llmcap: Callable[..., Any]) -> None:
    check(llmcap("estimat"), 2, "did you mean 'estimate'")
    check(llmcap("models", "lst"), 2, "did you mean 'list'")
    check(llmcap("frobnicate"), 2, "estimate", "models")
    check(llmcap("schema", "dirve"), 2, "did you mean 'drive'")
    check(llmcap("models", "show"), 2, "missing argument")


def test_a_bug_is_called_one(llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> Any:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(app, "command", broken)
    ran = llmcap("estimate")
    assert ran.status == 1
    assert "this is a bug in llmcap: ZeroDivisionError" in ran.err
    assert ran.err.count("\n") == 1
    with pytest.raises(ZeroDivisionError):
        llmcap("--debug", "estimate")
    monkeypatch.setenv("LLMCAP_DEBUG", "1")
    with pytest.raises(ZeroDivisionError):
        llmcap("estimate")


def test_every_error_keeps_its_status(llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(LlmcapError):
        exit_code = 3

    def raising(error: BaseException) -> Callable[[str], Any]:
        def broken(name: str) -> Any:
            raise error

        return broken

    monkeypatch.setattr(app, "command", raising(Odd("odd", "do otherwise")))
    assert llmcap("estimate").err == "Error: odd. Do otherwise\n"
    assert llmcap("estimate").status == 3
    monkeypatch.setattr(app, "command", raising(KeyboardInterrupt()))
    assert llmcap("estimate").status == 130


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--format", "json"], ["--format", "csv, parquet"]),
        (["--format", "parquet"], ["Parquet needs a file"]),
        (["--workers", "2"], ["--workers", "-o FILE"]),
        (["--prices", "neocloud-2026-04"], ["--prices", "--plot cost"]),
        (["--scheduler", "tcp://127.0.0.1:1", "--format", "csv", "-o", "out"], ["--format", "Parquet"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_a_sweep_ignores_no_option(llmcap: Callable[..., Any], arguments: list[str], words: list[str]) -> None:
    check(llmcap("sweep", "kv-tiers", "--limit", "1", "--quiet", *arguments), 2, *words)


@pytest.mark.parametrize("value", [4, 4e12, "4", True])
def test_bytes_have_a_unit_in_python_too(value: object) -> None:
    with pytest.raises(OptionError, match=r"--dram.*(no unit|with a unit)"):
        options_from({"dram": value})


def test_a_time_without_a_unit_is_offered_in_seconds(llmcap: Callable[..., Any]) -> None:
    check(llmcap("plan", "--users-max", "--ttft", "5"), 2, "--ttft", "'5 s'")


def test_an_unknown_tier_is_told_by_the_option_that_named_it(llmcap: Callable[..., Any]) -> None:
    check(llmcap("plan", "--bandwidth-for", "foo", "--ttft", "1s"), 2, "Error: --bandwidth-for", "dram, nvme")


def test_the_unit_that_a_number_of_bytes_lacks_is_offered() -> None:
    with pytest.raises(OptionError) as error:
        options_from({"transfer_block": 2e6})
    assert "'2 MB'" in error.value.hint


@pytest.mark.parametrize(
    "arguments",
    [
        ["sweep", "kv-dtypes", "--limit", "1", "-o", "a.csv", "--format", "parquet"],
        ["sweep", "kv-dtypes", "--limit", "1", "-o", "a.parquet", "--format", "csv"],
        ["sweep", "kv-dtypes", "--limit", "1", "-o", "a.PQ", "--format", "csv"],
        ["report", "million-token-context", "-o", "a.html", "--format", "md"],
        ["report", "million-token-context", "-o", "a.md", "--format", "html"],
    ],
    ids=lambda words: " ".join(words[-3:]),
)
def test_a_name_and_a_form_that_disagree_are_refused(
    llmcap: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    check(llmcap(*arguments), 2, "--format", "does not go with the name", arguments[-3], "leave one of the two out")
    assert not list(tmp_path.iterdir())


def test_a_name_that_tells_no_form_takes_the_option_s(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    for name, form, start in (("a.dat", "csv", b'"model",'), ("b", "parquet", b"PAR1"), ("c.pq", "parquet", b"PAR1")):
        file = tmp_path / name
        ran = llmcap("sweep", "kv-dtypes", "--limit", "1", "-q", "-o", file, "--format", form)
        assert ran.status == 0, ran.err
        assert file.read_bytes().startswith(start)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["explain", "--term", "tier:x"], " Did you mean 'tier:hbm'? Choose one of all, "),
        (["explain", "--term", "x"], " Choose one of all, "),
        (["estimate", "--format", "jsn"], " Did you mean 'json'? Choose one of table, "),
        (["nothing"], " Choose one of estimate, "),
        (["schema", "modl"], " Did you mean 'model'?"),
    ],
    ids=" ".join,
)
def test_sentences_begin_with_a_capital(llmcap: Callable[..., Any], arguments: list[str], sentence: str) -> None:
    ran = llmcap(*arguments)
    assert sentence in ran.err
    assert not re.search(r"[.?!] [a-z]", ran.err), ran.err


@pytest.mark.parametrize(
    "address",
    ["", " ", "tcp://", "://", "host", "tcp://host", "host:0", "host:99999", "host:x", "inproc://x:1", "http://x:80",
     "tcp://[::1", "tcp://h:1/x", "\u202e:1", "a..b:1", "-5"],
)  # fmt: skip
def test_what_is_no_address_of_a_scheduler_is_refused(llmcap: Callable[..., Any], tmp_path: Path, address: str) -> None:
    ran = llmcap("sweep", "kv-dtypes", "--limit", "1", "-q", "-o", tmp_path / "a", f"--scheduler={address}")
    check(ran, 2, "--scheduler", "is no address", "tcp://host:8786")
    assert ran.err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_scheduler_that_is_not_there_is_told_at_once(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    with socket.socket() as taken:  # bound and not listening: whoever calls is refused
        taken.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{taken.getsockname()[1]}"
        ran = llmcap("sweep", "kv-dtypes", "--limit", "1", "-q", "-o", tmp_path / "a", "--scheduler", address)
    check(ran, 2, "--scheduler", "no Dask scheduler", "Connection refused")
    assert not list(tmp_path.iterdir())


def test_more_processes_than_a_machine_has_are_refused(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    ran = llmcap("sweep", "kv-dtypes", "--limit", "1", "-q", "-o", tmp_path / "a.csv", "--workers", "1e6")
    check(ran, 2, "--workers", "too large", "1,024")
