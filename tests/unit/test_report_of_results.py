"""Reports of results that commands wrote to files."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from llmcap.cli.app import run
from llmcap.errors import DocumentError, OptionError
from llmcap.report.html import report_html
from llmcap.report.result_files import MOST_ROWS, read_result
from llmcap.report.result_report import result_report
from llmcap.specs.registry import load_as
from llmcap.specs.scenario import Scenario
from tests.unit.report_pages import Page


def _scenario(name: str) -> Scenario:
    return load_as(Scenario, "scenario", name).document


def _json_of(arguments: list[str], file: Path) -> Path:
    assert run([*arguments, "--format", "json", "-o", str(file)]) == 0
    return file


@pytest.mark.parametrize(
    ("arguments", "figures", "tables"),
    [
        (["estimate"], 2, 2),
        (["estimate", "--context", "100k", "--cached-tokens", "90k", "--users", "4"], 2, 2),
        (["replay", "--generate", "users=30,turns=5,seed=2"], 1, 3),
        (["validate"], 0, 1),
        (["tiers", "--context", "1k,10k,100k,1M", "--users", "1,8,16,64"], 3, 1),
        (["explain", "--context", "10k"], 0, 1),
        (["hardware", "list"], 0, 1),
    ],
)
def test_answers_of_commands_become_pages(arguments: list[str], figures: int, tables: int, tmp_path: Path) -> None:
    file = _json_of(arguments, tmp_path / "answer.json")
    made = result_report(read_result(file), "llmcap report answer.json")
    assert len(made.pictures) >= figures
    assert len(made.tables) >= tables
    text = report_html(made)
    assert Page(text).tables and "llmcap report answer.json" in text
    assert made.answer and all(made.answer)


def test_an_estimate_that_does_not_fit_becomes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "e.json"
    assert run(["estimate", "--users", "500", "--format", "json", "-o", str(file)]) == 4
    made = result_report(read_result(file), "x")
    assert made.answer[0] == "None of the 1 cases fits device memory."
    assert any("does not fit" in note for note in made.notes)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize(("name", "tables"), [("users-against-context", 1), ("million-token-context", 2)])
def test_rows_of_a_sweep_become_a_page_with_the_question_of_their_scenario(
    name: str, tables: int, suffix: str, tmp_path: Path
) -> None:
    file = tmp_path / f"rows.{suffix}"
    assert run(["sweep", name, "--set", "context=log 1k..100k 6 points", "-q", "-o", str(file)]) == 0
    made = result_report(read_result(file), "x")
    assert made.question == _scenario(name).question
    assert len(made.pictures) >= 2 and len(made.tables) == tables
    if tables == 1:
        assert (
            "all with 1 user" in made.pictures[0].caption
        )  # other numbers of users are in the rows, not in the figure
    assert made.documents
    first = {cell.text for row in made.tables[0].rows for cell in row[:1]}
    assert first == ({"dgx-h100", "dgx-h200", "dgx-b200"} if tables == 1 else {"gen5", "gen6"})


def test_a_large_file_is_shown_at_some_values_of_its_axes(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    users, contexts = np.meshgrid(np.arange(1, 101), np.arange(50, 50_001, 50), indexing="ij")
    frame = pd.DataFrame({"users": users.ravel(), "context_tokens": contexts.ravel()})
    frame["ttft_s"] = frame["users"] * frame["context_tokens"] / 1e6
    frame.to_parquet(file)
    found = read_result(file)
    assert found.total == 100_000 and found.frame is not None
    assert 1000 < len(found.frame) <= 4 * MOST_ROWS
    assert found.frame.groupby("users").size().nunique() == 1, "a grid stays a grid"
    assert (found.frame["ttft_s"] == found.frame["users"] * found.frame["context_tokens"] / 1e6).all()
    assert {found.frame["users"].min(), found.frame["users"].max()} == {1, 100}
    assert {found.frame["context_tokens"].min(), found.frame["context_tokens"].max()} == {50, 50_000}
    assert any("100,000 rows" in note for note in result_report(found, "x").notes)


def test_a_large_file_that_is_no_grid_is_sampled(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    rng = np.random.default_rng(1)
    pd.DataFrame({"users": rng.integers(1, 10**9, 30_000), "ttft_s": rng.random(30_000)}).to_csv(file, index=False)
    found = read_result(file)
    assert found.total == 30_000 and found.frame is not None
    assert MOST_ROWS / 4 < len(found.frame) <= MOST_ROWS


@pytest.mark.parametrize(
    ("name", "content", "error"),
    [
        ("x.json", "{", DocumentError), ("x.json", "[1, 2]", DocumentError), ("x.json", '{"a": 1}', DocumentError),
        ("x.json", "[" * 100_000, DocumentError), ("x.csv", "", DocumentError), ("x.csv", "a,b\n", DocumentError),
        ("x.csv", "a,b\n1\n", DocumentError), ("x.parquet", "no", DocumentError), ("x.txt", "a", OptionError),
        ("x.json", '{"schema": "llmcap.estimate/1"}', DocumentError),
        ("x.json", '{"schema": "llmcap.replay/1", "curve": 3}', DocumentError),
        ("x.json", '{"schema": "llmcap.validate/1", "rows": [{"id": 1, "verdict": "stands"}]}', DocumentError),
    ],
)  # fmt: skip
def test_broken_files_are_named_with_a_reason(name: str, content: str, error: type[Exception], tmp_path: Path) -> None:
    file = tmp_path / name
    file.write_text(content)
    with pytest.raises(error, match=re.escape(name)):
        result_report(read_result(file), "x")
