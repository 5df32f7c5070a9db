"""Where answers go and in which form: csv, md, json, files, pipes and terminals of any width."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcap.cli.output import write_file
from llmcap.errors import OptionError

NOTHING_FITS = ("--model", "llama-3.1-405b", "--hardware", "dgx-h100", "--weight-dtype", "bf16", "--users", "64")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_csv_has_one_row_per_tier_and_the_json_s_values(llmcap: Callable[..., Any]) -> None:
    answer = llmcap("estimate", "--format", "json").json()
    rows = rows_of(llmcap("estimate", "--format", "csv").out)
    assert [row["tier"] for row in rows] == [tier["tier"] for tier in answer["tiers"]]
    for row, tier in zip(rows, answer["tiers"], strict=True):
        for name, value in {**answer["inputs"], **answer["results"], **tier}.items():
            if value is None:
                assert row[name] == ""
            elif isinstance(value, bool):
                assert row[name] == str(value).lower()
            elif isinstance(value, str):
                assert row[name] == value
            else:
                assert float(row[name]) == value


def test_csv_of_what_does_not_fit_has_empty_cells(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("estimate", "--format", "csv", *NOTHING_FITS)
    assert ran.status == 4
    for row in rows_of(ran.out):
        assert row["fits"] == "false"
        assert row["ttft_s"] == row["winner"] == row["speedup"] == ""
        assert row["capacity_bytes"] != ""


def test_cases_come_back_in_order(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text(
        "model,users,context,tp\nllama-3.1-8b,1,8k,\nllama-3.1-70b,4,32Ki,8\nllama-3.1-8b,2,1k,\n", encoding="utf-8"
    )
    ran = llmcap("estimate", "--cases", file, "--hardware", "dgx-h200")
    rows = rows_of(ran.out)
    assert ran.status == 0
    asked = [("llama-3.1-8b", "1", "8000"), ("llama-3.1-70b", "4", "32768"), ("llama-3.1-8b", "2", "1000")]
    assert [(r["model"], r["users"], r["context_tokens"], r["tier"]) for r in rows] == [
        (*case, tier) for case in asked for tier in ("hbm", "dram", "nvme")
    ]
    assert {r["hardware"] for r in rows} == {"dgx-h200"}
    one = llmcap(
        "estimate", "--hardware", "dgx-h200", "--model", "llama-3.1-70b", "--users", "4", "--context", "32Ki",
        "--tp", "8", "--format", "json",
    ).json()  # fmt: skip
    assert float(rows[3]["ttft_s"]) == one["results"]["ttft_s"]
    assert len(json.loads(llmcap("estimate", "--cases", file, "--format", "json").out)) == 9


def test_cases_that_do_not_fit_stay(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("users,context\n1,1k\n100000,1M\n", encoding="utf-8")
    ran = llmcap("estimate", "--cases", file)
    assert ran.status == 0
    assert [r["fits"] for r in rows_of(ran.out)] == ["true"] * 3 + ["false"] * 3


def test_cases_make_a_table_that_a_person_reads(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("hardware,users,context\ndgx-b200,1,1k\ndgx-h100,100000,1M\n", encoding="utf-8")
    ran = llmcap("estimate", "--model", "llama-3.1-8b", "--cases", file, "--format", "table")
    lines = ran.out.splitlines()
    assert ran.status == 0
    assert "hardware" in lines[0]
    assert len(lines) == 1 + 2 * 3 + 1
    assert max(map(len, lines)) < 170
    # 2,000 tokens (1,000 of them generated) of 131,072 B: 262 MB.
    assert all("262 MB" in line for line in lines[1:4])
    assert all("does not fit" in line for line in lines[4:7])
    assert not any("kv dtype" in line for line in lines)


def test_markdown_is_a_document(llmcap: Callable[..., Any]) -> None:
    text = llmcap("estimate", "--format", "md").out
    assert text.startswith("## Llama 4 Maverick")
    assert "| tier | capacity |" in text
    assert "25.2 GB" in text
    tables = [line for line in text.split("\n") if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)


def test_a_file_appears_whole_or_not_at_all(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    ran = llmcap("estimate", "--format", "json", "-o", file)
    assert (ran.status, ran.out) == (0, "")
    assert json.loads(file.read_text(encoding="utf-8"))["schema"] == "llmcap.estimate/1"
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]

    def broken(path: Path) -> None:
        path.write_text("half", encoding="utf-8")
        raise RuntimeError("stopped")

    with pytest.raises(RuntimeError):
        write_file(file, broken)
    assert json.loads(file.read_text(encoding="utf-8"))["schema"] == "llmcap.estimate/1"
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]
    with pytest.raises(OptionError, match="folder"):
        write_file(tmp_path, broken)


def test_a_figure_is_written_beside_the_answer(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "figure.svg"
    ran = llmcap("estimate", "--model", "llama-3.1-8b", "--context", "4k", "--format", "json", "--plot", file)
    assert ran.status == 0
    assert ran.json()["schema"] == "llmcap.estimate/1"
    assert "<svg" in file.read_text(encoding="utf-8")
    for name, word in (("figure.xyz", ".png"), ("nowhere/figure.png", "no folder")):
        ran = llmcap("estimate", "--plot", tmp_path / name)
        assert (ran.status, ran.out) == (2, "")
        assert "--plot" in ran.err
        assert word in ran.err
    assert llmcap("estimate", "--cases", file, "--plot", file).status == 2


def test_a_table_in_a_file_is_plain_text(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "page.txt"
    llmcap("estimate", "-o", file)
    assert "First token after" in file.read_text(encoding="utf-8")
    assert "\x1b" not in file.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
@pytest.mark.parametrize(
    "case", [(), ("--cached-tokens", "900k"), ("--users", "100000"), ("--store", "object-store-100g")]
)
def test_the_page_fits_the_terminal(
    llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, width: int, case: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    text = llmcap("estimate", *case).out
    assert max(len(line) for line in text.split("\n")) <= min(width, 120)
    assert "\x1b" not in text
    assert "…" not in text
    for word in ("Llama 4 Maverick", "dram", "nvme", "KV cache", "engine reserve", "Sources"):
        assert word in text


def test_the_page_says_what_matters(llmcap: Callable[..., Any]) -> None:
    text = llmcap("estimate").out
    head = text.split("\n\n")[1]
    assert re.search(r"First token after [\d.]+ s \([\d.]+ s to [\d.]+ s\)\. KV cache 25\.2 GB\.", head)
    assert "Reload beats recompute" in head
    assert "fits HBM" in text
    assert "Break-even" in text


def test_the_page_of_what_does_not_fit_gives_no_times(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("estimate", *NOTHING_FITS)
    assert ran.status == 4
    assert "Does not fit: short by" in ran.out
    assert "what would fit" in ran.out
    assert "Time" not in ran.out
    assert "winner" not in ran.out


def test_a_terminal_without_block_letters_gets_ascii(llmcap: Callable[..., Any]) -> None:
    from llmcap import estimate
    from llmcap.report.page import estimate_page, terminal

    class Ascii(io.StringIO):
        encoding = "ascii"

    text = estimate_page(estimate(), terminal(Ascii()))
    assert text.isascii()
    assert "#" in text


@pytest.mark.parametrize(
    ("variables", "colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)], ids=str
)
def test_colour_is_for_terminals_that_want_it(
    monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], colour: bool
) -> None:
    from llmcap import estimate
    from llmcap.report.page import estimate_page, terminal

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert ("\x1b[" in estimate_page(estimate(), terminal(Terminal()))) is colour


def test_memory_parts_fill_the_device(llmcap: Callable[..., Any]) -> None:
    from llmcap import estimate
    from llmcap.analyses.device_memory import device_memory

    for users in (1, 30, 1000):
        answer = estimate(users=users)
        rows = {row["part"]: row["bytes"] for row in device_memory(answer)}
        assert sum(rows.values()) == pytest.approx(answer.tiers[0]["capacity_bytes"] / 8)
        assert (rows["free"] >= 0) is answer.fits
        assert rows["weights"] == answer.results["weight_bytes_per_device"]
        assert rows["free"] * 8 == pytest.approx(answer.results["hbm_free_bytes"])


def test_a_reader_that_leaves_is_no_error() -> None:
    command = [sys.executable, "-m", "llmcap", "estimate", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait() == 0


def test_cases_keep_their_sessions(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("users,sessions,context\n2,50,10k\n3,,10k\n", encoding="utf-8")
    rows = rows_of(llmcap("estimate", "--cases", file).out)
    assert {(row["users"], row["sessions"]) for row in rows} == {("2", "50"), ("3", "3")}
    one = rows_of(llmcap("estimate", "--users", "2", "--sessions", "50", "--context", "10k", "--format", "csv").out)
    assert rows[: len(one)] == [{name: row[name] for name in rows[0]} for row in one]


@pytest.mark.parametrize("form", ["table", "md"])
def test_what_is_short_is_said_once_on_each_stream(llmcap: Callable[..., Any], form: str) -> None:
    ran = llmcap("estimate", *NOTHING_FITS, "--format", form)
    assert ran.status == 4
    for text in (ran.out, ran.err):
        assert text.lower().count("does not fit") == 1
        assert text.count("what would fit: ") == 1


def test_the_sources_tell_a_device_from_its_calibration(llmcap: Callable[..., Any]) -> None:
    line = " ".join(llmcap("estimate", "--context", "1k").out.partition("Sources")[2].split())
    assert re.search(r", b200 [0-9a-f]{7}, ", line)
    assert re.search(r", b200 calibration [0-9a-f]{7}$", line)
