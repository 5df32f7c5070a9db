"""The published claims about one million tokens: each is reproduced by its own assumptions and judged by the model.

Bounds are those of the article's own text (May 2025); sizes are counted by hand below.
"""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest

import llmcap
from llmcap.analyses.claims.suite import Finding, judge_suite, validate_suite, verdict
from llmcap.errors import DocumentError, OptionError
from llmcap.specs.base import dangling, load_document, uncovered
from llmcap.specs.claims import Case, Check, Claims
from llmcap.specs.registry import load


@functools.cache
def _suite() -> dict[str, dict[str, Any]]:
    return {row["id"]: row for row in judge_suite()}


def test_there_are_twelve_claims_in_order_each_with_a_verdict_and_a_reason() -> None:
    rows = judge_suite("million-token-context")
    assert [row["id"] for row in rows] == [f"C{n}" for n in range(1, 13)]
    for row in rows:
        for key in ("statement", "published", "as_published", "calibrated", "verdict", "why"):
            assert row[key].strip(), (row["id"], key)
        assert "\n" not in row["why"]
    json.dumps(rows, allow_nan=False)


@pytest.mark.parametrize("claim", [f"C{n}" for n in range(1, 10)])
def test_the_published_assumptions_reproduce_every_figure(claim: str) -> None:
    checks = _suite()[claim]["checks"]
    assert checks
    assert all(check["as_published_holds"] for check in checks)


@pytest.mark.parametrize(
    ("claim", "low", "high"),
    [
        ("C2", 120.0, 180.0),  # "over 2 minutes"
        ("C3", 30.0, 180.0),  # "over 30 s"
        ("C4", 38.5e9, 39.5e9),  # "39 GB"
        ("C5", 14.5e9, 15.7e9),  # "about 15 GB"
        ("C6", 14.5e-3, 15.5e-3),  # "15 ms"
        ("C7", 135e-3, 145e-3),  # "140 ms"
        ("C9", 0.45, 0.55),  # 112 GB/s against 224 GB/s, nothing else
    ],
)
def test_the_published_figures_by_their_own_assumptions(claim: str, low: float, high: float) -> None:
    (check,) = _suite()[claim]["checks"]
    assert low <= check["as_published"] < high


def test_the_sizes_are_the_hand_counts() -> None:
    # Published: 12 layers x 2 x 5 heads x 128 x 1 byte = 15,360 B a token.
    # Truth: 12 global layers keep everything, 36 keep 8,192 tokens: 2 x 8 x 128 x (12 T + 36 x 8,192) bytes.
    for claim, users, tokens in (("C4", 10, 251_000), ("C5", 1, 1_001_000)):
        (check,) = _suite()[claim]["checks"]
        assert check["as_published"] == users * 15_360 * tokens
        assert check["calibrated"] == users * 2 * 8 * 128 * (12 * tokens + 36 * 8192)


@pytest.mark.parametrize(
    ("claim", "word"),
    [
        ("C1", "stands"),  # 15..170 ms at 1k and 10k in a feasibility study
        ("C2", "too pessimistic"),  # a run of Scout on 8x H200 scales to about 21 s on 8x B200
        ("C4", "too optimistic"),  # 67.7 GB by hand count
        ("C5", "too optimistic"),  # 25.2 GB by hand count
        ("C6", "too optimistic"),  # one direction of 8 Gen5 x16 links is 512 GB/s, not 1 TB/s
        ("C7", "too optimistic"),  # 25.2 GB at 112 GB/s is 225 ms already
        ("C8", "stands"),  # a specification
        ("C11", "stands"),
        ("C12", "stands"),
    ],
)
def test_verdicts_that_follow_from_the_architecture(claim: str, word: str) -> None:
    assert _suite()[claim]["verdict"] == word


def test_the_ten_user_claim_stands_though_its_own_set_says_much_more() -> None:
    row = _suite()["C3"]
    assert row["verdict"].startswith("stands")
    assert row["checks"][0]["as_published"] > 2 * row["checks"][0]["at_least"]


def test_the_drives_of_the_server_with_small_drives_are_those_of_the_claim() -> None:
    answer = llmcap.estimate(hardware="dgx-b200-3.84tb")
    (nvme,) = (t for t in answer.tiers if t["tier"] == "nvme")
    assert nvme["capacity_bytes"] == pytest.approx(8 * 3.84e12)
    assert _suite()["C8"]["checks"][0]["calibrated"] == nvme["capacity_bytes"]


@pytest.mark.parametrize("claim", ["C2", "C3", "C4", "C5", "C6", "C7"])
def test_reasons_lead_from_the_published_figure_to_the_calibrated_one(claim: str) -> None:
    from llmcap.units import format_bytes, format_seconds

    row = _suite()[claim]
    (check,) = row["checks"]
    said = format_seconds if check["unit"] == "s" else format_bytes
    first, last = row["why"].find(said(check["as_published"])), row["why"].rfind(said(check["calibrated"]))
    assert 0 <= first < last


def test_the_frame_is_the_list_without_the_figures() -> None:
    frame = validate_suite()
    assert list(frame["id"]) == [f"C{n}" for n in range(1, 13)]
    assert list(frame.columns[:1]) == ["id"]
    assert "checks" not in frame


# -- verdicts ----------------------------------------------------------------------------------------------------------


def _finding(holds: bool, band_holds: bool | None, value: float = 1.0) -> Finding:
    return Finding(value, None, None, holds, band_holds, "")


LONG = Check(quantity="prefill_s", at_least="120 s")
SMALL = Check(quantity="kv_bytes_total", at_least="14.5 GB", below="15.5 GB")
HOLD = Check(quantity="nvme.capacity_bytes", at_least="30 TB", below="31 TB")


@pytest.mark.parametrize(
    ("checks", "judged", "word"),
    [
        ((LONG,), [_finding(True, True)], "stands"),
        ((LONG,), [_finding(True, None)], "stands, band straddles it"),
        ((LONG,), [_finding(False, False, 24.0)], "too pessimistic"),
        ((LONG,), [_finding(False, None, 110.0)], "too pessimistic, but within the band"),
        ((SMALL,), [_finding(False, False, 25e9)], "too optimistic"),
        ((SMALL,), [_finding(False, False, 10e9)], "too pessimistic"),
        ((HOLD,), [_finding(False, False, 20e12)], "too optimistic"),
        ((LONG, SMALL), [_finding(True, True), _finding(False, False)], "stands in part"),
    ],
)
def test_verdicts(checks: tuple[Check, ...], judged: list[Finding], word: str) -> None:
    reproduced = [_finding(True, True) for _ in checks]
    assert verdict(checks, reproduced, judged) == word
    assert verdict(checks, [_finding(False, False) for _ in checks], judged) == "not reproducible"


# -- the document ------------------------------------------------------------------------------------------------------


def test_the_document_names_its_source_and_reads_strictly(tmp_path: Path) -> None:
    loaded = load("claims", "million-token-context")
    assert uncovered(loaded.document) == []
    assert dangling(loaded.document) == []
    text = loaded.path.read_text(encoding="utf-8")
    for old, new, problem in (
        ("at_least: 120 s", "at_least: 120", "120"),
        ("quantity: prefill_s, below: 1 s", "quantity: prefill_s", "cannot fail"),
        ("topic: limits", "topic: limit", "topic"),
        ("at_least: 38.5 GB", "at_least: 40 GB", "smaller"),
    ):
        assert old in text
        path = tmp_path / "suite.yaml"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")
        with pytest.raises(DocumentError, match=problem):
            load_document(path, Claims)


def test_an_unknown_suite_is_named_with_the_nearest_one() -> None:
    with pytest.raises(OptionError, match="million-token-context"):
        judge_suite("million-token-contxt")


def test_a_ratio_needs_a_number() -> None:
    with pytest.raises(ValueError, match="not a ratio"):
        Check(quantity="nvme.reload_s", over=Case(), below="half")


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_the_command_prints_all_claims_and_exits_0(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    from llmcap.cli.app import run

    assert run(["validate", "--suite", "million-token-context", "--format", form]) == 0
    out = capsys.readouterr().out
    for row in _suite().values():
        assert row["id"] in out
    assert "too pessimistic" in out
    assert "\x1b" not in out
    if form == "json":
        assert [row["id"] for row in json.loads(out)["rows"]] == list(_suite())


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_the_page_keeps_to_its_width(width: int) -> None:
    from llmcap.report.claims_page import claims_page

    page = claims_page(list(_suite().values()), width)
    assert max(map(len, page.splitlines())) <= width
    assert "of 12 claims stand" in page
    assert "\x1b[3" in claims_page(list(_suite().values()), width, color=True)
