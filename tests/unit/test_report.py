"""Reports: complete in themselves, escaped, right in their numbers, for every scenario."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import llmcap
from llmcap.analyses.claims.suite import judge_suite
from llmcap.analyses.economics import economics
from llmcap.analyses.sweeps.scenarios import adjusted
from llmcap.analyses.sweeps.survey import Survey
from llmcap.errors import DocumentError
from llmcap.report.document import Assumption, Report, quantity, table_of
from llmcap.report.html import report_html
from llmcap.report.report_markdown import report_markdown
from llmcap.report.result_files import read_result
from llmcap.report.result_report import result_report
from llmcap.report.scenario_report import scenario_report
from llmcap.specs.prices import PriceList
from llmcap.specs.registry import list_ids, load_as
from llmcap.specs.scenario import Scenario
from tests.unit.report_pages import Page


def _scenario(name: str) -> Scenario:
    return load_as(Scenario, "scenario", name).document


def _survey(name: str, **more: Any) -> Survey:
    return Survey(_scenario(name), most_cases=120, listed_cases=24, **more)


@pytest.fixture(scope="module")
def million() -> tuple[Report, str]:
    made = scenario_report(Survey(_scenario("million-token-context")), "llmcap report million-token-context -o r.html")
    return made, report_html(made)


# -- every shipped scenario --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_ids("scenario"))
def test_every_scenario_gives_a_page_that_is_complete_in_itself(name: str) -> None:
    made = scenario_report(_survey(name), f"llmcap report {name} -o report.html")
    text = report_html(made)
    page = Page(text)
    assert len(text.encode()) < 3_000_000
    assert text.count("<svg") >= 3 and len(page.tables) >= 2
    assert 2 <= len(made.answer) <= 3
    assert made.question in text.replace("&#39;", "'") and f"llmcap report {name}" in text
    for tag, attrs in page.tags:
        for key in ("src", "href", "xlink:href", "data", "action"):
            assert not (attrs.get(key) or "").strip().startswith(("http", "//")), (tag, attrs)
    assert "@import" not in text and "url(http" not in text
    ids = [attrs["id"] for _, attrs in page.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    named = {a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a}
    assert named <= set(ids)
    pictures = [a for a in page.all("div") if a.get("role") == "img"]
    assert len(pictures) == text.count("<svg") == len(made.pictures)
    assert all(len(a["aria-label"] or "") > 40 for a in pictures)
    assert all(a.get("scope") == "col" for a in page.all("th"))
    assert {a.name for a in made.assumptions} and made.sources and made.documents


# -- the million-token report ------------------------------------------------------------------------------------------


def test_the_million_token_report_has_its_claims(million: tuple[Report, str]) -> None:
    made, text = million
    claims = made.tables[0]
    assert claims.name == "claims"
    rows = judge_suite("million-token-context")
    assert [row[0].text for row in claims.rows] == [row["id"] for row in rows]
    for row in rows:
        assert row["verdict"] in [cell.text for cell in claims.rows[rows.index(row)]]
    assert "claims stand" in made.answer[-1]
    assert len(made.pictures) >= 3 and len(made.tables) >= 2
    assert "<script>" in text and text.count("<script") == 1


def test_the_page_shows_what_estimate_says(million: tuple[Report, str]) -> None:
    made, text = million
    shown = Page(text).tables[1]
    head = shown[0]
    case = {"assumptions": "calibrated", "override": "gen5", "users": "10", "context": "1M"}
    (row,) = [row for row in shown[1:] if all(row[head.index(k)] == v for k, v in case.items())]
    answer = llmcap.estimate(users=10, context="1M")
    assert row[head.index("time to first token")] == quantity("ttft_s", answer.results["ttft_s"])
    assert row[head.index("KV cache")] == quantity("kv_bytes_total", answer.results["kv_bytes_total"])
    table = next(t for t in made.tables if t.name == "cases")
    column = [h.label for h in table.heads].index("time to first token")
    assert any(line[column].value == answer.results["ttft_s"] for line in table.rows)


def test_sentences_of_several_assumption_sets_rest_on_the_calibrated_one(million: tuple[Report, str]) -> None:
    assert million[0].answer[0].startswith("Under the assumptions 'calibrated': ")


def test_the_same_report_twice_is_the_same_page(million: tuple[Report, str]) -> None:
    again = scenario_report(Survey(_scenario("million-token-context")), million[0].command)
    assert report_html(again) == million[1]


def test_no_script_but_the_pages_own_may_run(million: tuple[Report, str]) -> None:
    (policy,) = [a["content"] for a in Page(million[1]).all("meta") if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert "default-src 'none'" in policy and "script-src 'sha256-" in policy
    assert not re.search(r'\son\w+="', million[1])


def test_prices_add_the_cost_of_a_million_tokens() -> None:
    listed = load_as(PriceList, "prices", "neocloud-2026-04").document
    survey = Survey(_scenario("users-against-context"), listed, most_cases=60, listed_cases=12)
    made = scenario_report(survey, "x")
    assert "cost" in [p.name for p in made.pictures]
    row = survey.frame[survey.frame["fits"]].iloc[0]
    price = listed.device_hour[load_device(row["hardware"])] * row["devices"] / 3600.0
    assert row["usd_per_million_output_tokens"] == pytest.approx(price / row["output_tok_per_s"] * 1e6)
    case = {"users": int(row["users"]), "context": int(row["context_tokens"])}
    one = llmcap.estimate(model=row["model"], hardware=row["hardware"], kv_dtype=row["kv_dtype"],
                          output_tokens=int(row["output_tokens"]), **case)  # fmt: skip
    alone = economics(one.setting, one.inputs, one.results, listed)
    assert row["usd_per_million_output_tokens"] == pytest.approx(alone["usd_per_million_output_tokens"], rel=1e-9)
    without = scenario_report(_survey("users-against-context"), "x")
    assert "cost" not in [p.name for p in without.pictures]
    assert not any("USD" in cell.text for t in without.tables for row in t.rows for cell in row)


def load_device(server: str) -> str:
    return str(llmcap.load_hardware(server).device)


# -- hostile text ------------------------------------------------------------------------------------------------------

BAD = "<script>alert('x')</script> \"quoted\" & <img src=x onerror=alert(1)> ${7*7} {{ 7*7 }} ]]> --> \u202e`|*_[a](b)"


def _hostile() -> Report:
    rows = [{"model": BAD, "ttft_s": 1.0, "winner": BAD}, {"model": "b", "ttft_s": 2.0, "winner": "x"}]
    return Report(
        title=BAD, question=BAD, answer=[BAD], pictures=[], command=f"llmcap report '{BAD}'",
        tables=[table_of("t", BAD, rows, ("model", "ttft_s", "winner"), BAD, {"model": BAD})], notes=[BAD],
        assumptions=[Assumption(BAD, BAD, BAD, BAD, True)], sources=[{"document": BAD, "source": BAD}],
        documents=[(BAD, BAD, BAD)], version=BAD,
    )  # fmt: skip


def test_text_from_documents_is_text_on_the_page() -> None:
    text = report_html(_hostile())
    page = Page(text)
    assert len(page.all("script")) == 1 and not page.all("img")
    assert all(not key.startswith("on") for _, attrs in page.tags for key in attrs)
    assert "{{ 7*7 }}" in text and "49" not in page.tables[0][1][0]
    assert page.tables[0][1][0].startswith("<script>alert('x')</script>")
    assert "\u202e" not in page.tables[0][1][0]


def test_text_from_documents_is_text_in_markdown() -> None:
    text, _ = report_markdown(_hostile())
    outside = re.sub(r"```sh\n.*?\n```", "", text, flags=re.DOTALL)
    assert not re.search(r"(?<!\\)<(script|img)", outside.replace("\\<", ""))
    assert not re.search(r"(?<!\\)\[a(?<!\\)\]\(b\)", outside)


def test_hostile_rows_of_a_file_become_a_page(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    frame = pd.DataFrame({"model": [BAD, "$a$", "_b"] * 4, "context_tokens": np.repeat([1, 2, 3, 4], 3),
                          "ttft_s": np.linspace(1, 2, 12)})  # fmt: skip
    frame.to_csv(file, index=False)
    text = report_html(result_report(read_result(file), "llmcap report rows.csv"))
    assert len(Page(text).all("script")) == 1 and "<svg" in text


def test_a_scenario_of_which_nothing_fits_says_so() -> None:
    scenario = adjusted(_scenario("kv-dtypes"), ["users=1e9", "context=4k,256k"], None)
    text = report_html(scenario_report(Survey(scenario, None), "x"))
    assert "None of the" in text and "fits device memory" in text
    assert "context that fits" not in text


def test_marks_of_direction_are_spelled_out() -> None:
    scenario = _scenario("kv-dtypes").model_copy(update={"name": "<b>a\u202eb</b>\x1b[1m"})
    text = report_html(scenario_report(Survey(scenario, None, 20, 10), "x"))
    assert "<title>&lt;b&gt;a\\u202eb&lt;/b&gt;\\x1b[1m" in text
    assert "\u202e" not in text and "\x1b" not in text


def test_a_scenario_without_a_case_has_no_report() -> None:
    scenario = adjusted(_scenario("kv-dtypes"), [], None).model_copy(update={"where": ("users >= 1000000",)})
    with pytest.raises(DocumentError, match="leaves no case"):
        scenario_report(Survey(scenario, None), "x")
