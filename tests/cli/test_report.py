"""`llmcap report`, and the figures of `llmcap sweep`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmcap.cli.app import run


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "small.yaml"
    file.write_text(
        "schema: llmcap.scenario/1\nid: small\nname: Small\nquestion: How long?\n"
        "axes:\n  context: [1k, 10k, 100k]\n  users: [1, 2]\n"
    )
    yield file


def test_the_command_writes_html_and_markdown_with_figures(small: Path, tmp_path: Path) -> None:
    page, text = tmp_path / "r.html", tmp_path / "r.md"
    assert run(["report", str(small), "-o", str(page)]) == 0
    assert run(["report", str(small), "-o", str(text)]) == 0
    assert "How long?" in page.read_text(encoding="utf-8")
    shown = text.read_text(encoding="utf-8")
    files = re.findall(r"\(<([^>]+)>\)", shown)
    assert len(files) >= 3
    assert all((tmp_path / name).read_bytes().startswith(b"\x89PNG") for name in files)
    assert "| users |" in shown and "llmcap report" in shown


def test_set_changes_the_question_and_stands_in_the_command(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", str(small), "--set", "users=3", "--format", "md"]) == 0
    out = capsys.readouterr().out
    assert "3 users" in out or "| 3 |" in out
    assert f"llmcap report {small} --set users=3 --format md -o report.html" in out


@pytest.mark.parametrize(
    ("arguments", "status"),
    [
        (["no-such-scenario"], 2), (["million-token-context", "-o", "x.pdf"], 2), (["nowhere.csv"], 2),
        (["million-token-context", "--format", "docx"], 2), (["million-token-context", "--prices", "none"], 2),
        (["million-token-context", "-o", "/nowhere/at/all.html", "--set", "context=1k"], 2),
        (["million-token-context", "--set", "nonsense=3"], 2),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused(arguments: list[str], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["report", *arguments]) == status
    assert "Error:" in capsys.readouterr().err


def test_set_does_not_go_with_a_file_of_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "r.json"
    file.write_text(json.dumps([{"users": 1, "ttft_s": 1.0}]))
    assert run(["report", str(file), "--set", "users=2"]) == 2
    assert "scenario" in capsys.readouterr().err
    assert run(["report", str(file), "--format", "md"]) == 0


def test_sweep_draws_the_figures_asked_for(small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, figure = tmp_path / "rows.csv", tmp_path / "map.svg"
    assert run(["sweep", str(small), "-o", str(rows), "--plot", "prefill", "--plot", f"break-even={figure}"]) == 0
    assert (tmp_path / "small-prefill.png").read_bytes().startswith(b"\x89PNG")
    assert figure.read_text(encoding="utf-8").startswith("<?xml")
    assert len(rows.read_text().splitlines()) == 1 + 6 * 3
    assert run(["sweep", str(small), "--plot", "cost"]) == 2
    assert "--prices" in capsys.readouterr().err
