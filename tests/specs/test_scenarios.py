"""Every shipped scenario is sound, answers its question and can be laid out; the words of a scenario are strict."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcap.analyses.sweeps.grid import Grid
from llmcap.analyses.sweeps.sweep import Sweep
from llmcap.errors import DocumentError, LlmcapError
from llmcap.specs.base import load_document
from llmcap.specs.registry import list_ids, load_as
from llmcap.specs.scenario import Scenario, is_range, parse_range
from llmcap.units import QuantityError

BENCHMARKS = {"benchmark-1m": 10**6, "benchmark-10m": 10**7, "benchmark-mixed-1m": 1_056_000}


def _grid(name: str) -> Grid:
    loaded = load_as(Scenario, "scenario", name)
    return Grid(loaded.document, file=str(loaded.path))


def test_more_than_ten_ship() -> None:
    assert len(set(list_ids("scenario")) - set(BENCHMARKS)) >= 10
    assert "million-token-context" in list_ids("scenario")


@pytest.mark.parametrize("name", list_ids("scenario"))
def test_a_shipped_scenario_runs(name: str) -> None:
    grid = _grid(name)
    assert grid.scenario.question.rstrip().endswith("?")
    sweep = Sweep(grid)
    rows = sweep.rows_of(grid.box(0), limit=300)
    assert 0 < rows.cases <= 300
    if "ttft_s" in rows.arrays:
        assert (rows.arrays["ttft_s"] > 0).any()
    assert {len(values) for values in rows.arrays.values()} == {rows.size}


@pytest.mark.parametrize(("name", "rows"), BENCHMARKS.items())
def test_benchmarks_have_the_rows_they_promise(name: str, rows: int) -> None:
    grid = _grid(name)
    sweep = Sweep(grid)
    assert grid.count_cases()[1] == rows
    assert len(sweep.columns) >= 20
    assert {"model", "hardware", "users", "context_tokens", "tier"} <= {c.name for c in sweep.columns}


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("log 1k..1M 4 points", (1000, 10_000, 100_000, 1_000_000)),
        ("log 1..8 4 points", (1, 2, 4, 8)),
        ("log 1..4 40 points", (1, 2, 3, 4)),
        ("linear 0..10 3 points", (0, 5, 10)),
        ("1..5", (1, 2, 3, 4, 5)),
        ("5..5", (5,)),
        ("0..1Ki step 512", (0, 512, 1024)),
        ("1..10 step 4", (1, 5, 9)),
    ],
)
def test_ranges(text: str, values: tuple[int, ...]) -> None:
    assert is_range(text) and parse_range(text) == values


@pytest.mark.parametrize(
    "text",
    [
        "1k..",
        "log 0..10 3 points",
        "log 1..10",
        "10..1",
        "1..10 step 0",
        "1..10 1 points",
        "a..b",
        "1..1T",
        "-1..3",
        "1...5",
    ],
)
def test_what_is_no_range_says_so(text: str) -> None:
    with pytest.raises(QuantityError):
        parse_range(text)


def _scenario(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(f"schema: llmcap.scenario/1\nid: mine\nname: Mine\nquestion: Why?\n{body}", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("axes: {users: [1, 1]}", "twice"),
        ("axes: {users: []}", "no values"),
        ("axes: {}", "no axes"),
        ("axes: {users: [true]}", "users"),
        ("axes: {users: 1..3}\ncolums: [model]", "did you mean 'columns'"),
        ("axes: {override: [b]}\noverrides: {a: {tp: 2}}", "overrides are: a"),
        ("axes: {users: ten..twenty}", "not a range"),
        ("axes: {users: 1..3}\ncombine: product", "combine"),
    ],
)
def test_a_wrong_document_is_refused(tmp_path: Path, body: str, said: str) -> None:
    with pytest.raises(DocumentError, match=said):
        load_document(_scenario(tmp_path, body), Scenario)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("axes: {user: [1]}", "did you mean 'users'"),
        ("base: {users: 3}\naxes: {override: [a], users: [1]}\noverrides: {a: {users: 2}}", "two axes"),
        ("axes: {users: [1, 2], context: [1k]}\ncombine: zip", "zip needs axes of one length"),
        ("axes: {users: [1]}\ncolumns: [ttft]", "did you mean 'ttft_s'"),
        ("axes: {users: [1]}\ncolumns: [ttft_s, ttft_s]", "named twice"),
        ("axes: {users: [1]}\ntiers: [dramm]", "did you mean 'dram'"),
        ("axes: {users: [1]}\nwhere: [tp divides kv_head]", "did you mean 'kv_heads'"),
        ("axes: {users: [1]}\nwhere: [users is 3]", "not a condition"),
        ("axes: {context: [1k], new_tokens: [1]}", "context is cached_tokens . new_tokens"),
        ("axes: {context: [1k], cached_tokens: [0, 2k]}", "cached_tokens < context_tokens"),
        ("axes: {tp: [3]}", "tp 3"),
        ("axes: {tp: [3, 8]}\nwhere: [tp < 2]", "no combination is left"),
        ("axes: {model: [llama-3.1-70]}", "did you mean 'llama-3.1-70b'"),
        ("axes: {context: [1k], isl: [2k]}", "axis already"),
        ("axes: {users: [0]}", "at least 1"),
    ],
)
def test_a_wrong_question_is_refused(tmp_path: Path, body: str, said: str) -> None:
    document = load_document(_scenario(tmp_path, body), Scenario)
    with pytest.raises(LlmcapError, match=f"(?i){said}"):
        grid = Grid(document)
        Sweep(grid).rows_of(grid.box(0))
