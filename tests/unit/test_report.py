"""Reports: complete in themselves, escaped, right in their numbers, for every scenario and every kind of result."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import llmcap
from llmcap.analyses.claims.suite import judge_suite
from llmcap.analyses.economics import economics
from llmcap.analyses.sweeps.scenarios import adjusted
from llmcap.analyses.sweeps.survey import Survey, break_even_grid
from llmcap.analyses.sweeps.thinning import spread_positions, thinned
from llmcap.cli.app import run
from llmcap.errors import DocumentError, OptionError
from llmcap.report.document import Assumption, Report, cell_of, quantity, table_of
from llmcap.report.findings import findings
from llmcap.report.html import report_html
from llmcap.report.report_markdown import report_markdown
from llmcap.report.result_files import MOST_ROWS, read_result
from llmcap.report.result_report import result_report, row_pictures
from llmcap.report.scenario_report import scenario_report
from llmcap.report.words import layout
from llmcap.specs.prices import PriceList
from llmcap.specs.registry import list_ids, load_as
from llmcap.specs.scenario import Scenario


class Page(HTMLParser):
    """A page taken apart: tags with their attributes, and the text of table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.tables: list[list[list[str]]] = []
        self._cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = True

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self._cell = False

    def handle_data(self, data: str) -> None:
        if self._cell:
            self.tables[-1][-1][-1] += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.tags if name == tag]


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


# -- results -----------------------------------------------------------------------------------------------------------


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


# -- sentences ---------------------------------------------------------------------------------------------------------


def _frame() -> pd.DataFrame:
    return pd.DataFrame(
        [
            {"users": u, "context_tokens": c, "tier": t, "ttft_s": s, "kv_bytes_total": b, "limit": "compute",
             "fits": s == s, "winner": w, "speedup": x}
            for u, c, s, b in ((1, 1000, 0.5, 1e9), (8, 1000, 4.0, 8e9), (8, 64_000, np.nan, 5e11))
            for t, w, x in (("hbm", "reload", 9.0), ("dram", "reload", 250.0 * u), ("nvme", "recompute", 0.5))
            for w, x in [(w if s == s else None, x if s == s else np.nan)]
        ]
    )  # fmt: skip


def test_three_sentences_say_what_the_rows_say() -> None:
    assert findings(_frame()) == [
        # The context makes no difference among the two cases that fit: both have 1k.
        "The last user's first token comes after 500 ms at best, for 1 user, and after 4 s at worst, for 8 users; "
        "1 of the 3 cases do not fit device memory.",
        "Reloading a cache is faster than computing it again from DRAM in all (at best 2,000 times as fast, "
        "at 1,000 tokens) and from NVMe in none of the cases that fit.",
        "The caches of all users take up to 500 GB (8 users, 64k tokens in); the longest part of a request is bound by "
        "compute in all of the cases that fit.",
    ]  # fmt: skip


def _served_frame(times: list[float | None], rates: list[float], machines: list[str]) -> pd.DataFrame:
    """Rows of a sweep over rates: TPOT and TTFT fall from the times, 1,000 tokens a request on eight devices."""
    answered = [None if time is None else 1000.0 * rate / 8.0 for time, rate in zip(times, rates, strict=True)]
    return pd.DataFrame(
        {
            "hardware": machines, "arrivals_per_s": rates, "ttft_s": [0.5] * len(rates), "tier": "dram",
            "ttft_reload_s": 0.1, "output_tok_per_s": 100.0, "kv_bytes_total": 1e9, "serving_tpot_s": times,
            "serving_ttft_s": times, "serving_output_tok_per_s_per_device": answered,
            "serving_output_tok_per_s_per_user": [None if time is None else 1.0 / time for time in times],
        }
    )  # fmt: skip


def test_sentences_of_a_steady_state_name_rates_with_their_unit_and_no_case_twice() -> None:
    served = _served_frame([0.01, 0.02, None], [1.0, 64.0, 128.0], ["a"] * 3)
    assert findings(served) == [
        "In steady state tokens come fastest for 1 request/s: a first one after 10 ms, then 10 ms each, 125 tokens/s "
        "a device. A device gives most for 64 requests/s: a first one after 20 ms, then 20 ms each, 8,000 tokens/s a "
        "device. 1 of the 3 cases are past saturation or do not fit.",
    ]
    alone = findings(_served_frame([0.01, None], [1.0, 64.0], ["a"] * 2))[0]
    assert alone.count("a first one") == 1
    assert "tokens come fastest, and a device gives most of them, for 1 request/s: a first one after 10 ms" in alone
    single = findings(_served_frame([0.01], [1.0], ["a"]))
    assert single == ["In steady state the first token comes after 10 ms, then 10 ms each, 125 tokens/s a device."]


def test_figures_that_arrivals_do_not_change_have_no_axis_of_arrivals() -> None:
    """Six rates on two machines: the load has curves, time to first token of one request alone and caches do not."""
    times: list[float | None] = [0.01 * i for i in range(1, 7)] * 2
    frame = _served_frame(times, [float(i) for i in range(1, 7)] * 2, ["a"] * 6 + ["b"] * 6)
    drawn = [p for p in row_pictures(frame, "rows.csv") if p is not None]
    assert [p.name for p in drawn] == ["interactivity", "load"]
    assert all("arrivals" in p.caption for p in drawn)


def test_nothing_fits_is_a_sentence_too() -> None:
    frame = _frame().assign(ttft_s=np.nan, winner=None, limit="capacity")
    assert findings(frame)[0] == "None of the 3 cases fits device memory."


@pytest.mark.parametrize(
    ("devices", "text"),
    [(1, "1 x NVIDIA H100 SXM5 80 GB, bf16 throughout"), (8, "8 x NVIDIA H100 SXM5 80 GB tp8, bf16 throughout")],
)
def test_one_device_has_no_degrees_to_name(devices: int, text: str) -> None:
    assert layout(llmcap.estimate(model="llama-3.1-8b", hardware="dgx-h100", devices=devices)) == text


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("ttft_s", 0.0123, "12.3 ms"), ("kv_bytes_total", 25.2e9, "25.2 GB"), ("mfu", 0.4567, "45.7 %"),
        ("speedup", 305.2, "305x"), ("speedup", 1.26, "1.3x"), ("users", 1000.0, "1,000"),
        ("context_tokens", 1_000_000.0, "1M"), ("read_bytes_per_s", 1.12e11, "112 GB/s"), ("strange", 0.5, "0.5"),
        ("usd_per_million_output_tokens", 1.5, "1.5 USD"), ("written_bytes_per_s", 2e9, "2 GB/s"),
        ("wait_s", 2.0, "2 s"), ("serving_utilisation", 0.8219, "82.2 %"), ("arrivals_per_s", 1.0, "1 request/s"),
        ("serving_saturation_requests_per_s", 4.22, "4.22 requests/s"),
    ],
)  # fmt: skip
def test_numbers_carry_their_unit(name: str, value: float, text: str) -> None:
    assert quantity(name, value) == text
    assert cell_of(name, value).value == value


@pytest.mark.parametrize("value", [None, float("nan"), np.nan, pd.NA, float("inf")])
def test_what_has_no_value_is_a_dash(value: Any) -> None:
    assert (cell_of("ttft_s", value).text, cell_of("ttft_s", value).value) == ("-", None)


# -- thinning ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_ids("scenario"))
def test_a_thinned_scenario_asks_some_of_the_same_cases(name: str) -> None:
    whole = _scenario(name)
    some = thinned(whole, 200)
    grids = [Survey(s).grid for s in (whole, some)]
    assert grids[1].points <= max(200, 4 ** len(whole.axes))
    for axis, fewer in zip(grids[0].axes, grids[1].axes, strict=True):
        for key, values in axis.numbers.items():
            assert set(fewer.numbers[key]) <= set(values)
            if whole.combine == "grid":
                assert (fewer.numbers[key][0], fewer.numbers[key][-1]) == (values[0], values[-1])
        assert all(choice in axis.choices for choice in fewer.choices)


def test_positions_are_spread_by_ratio_over_a_wide_span() -> None:
    numbers = np.arange(1.0, 10_001.0)
    assert [numbers[i] for i in spread_positions(numbers, 5)] == [1.0, 10.0, 100.0, 1000.0, 10_000.0]
    assert spread_positions(np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3) == [0, 2, 4]


def test_the_map_of_an_estimate_agrees_with_estimates() -> None:
    answer = llmcap.estimate(context="100k")
    frame = break_even_grid(answer, contexts=5, users=4)
    for _, row in frame.sample(8, random_state=1).iterrows():
        one = llmcap.estimate(context=int(row["context_tokens"]), users=int(row["users"]))
        wanted = next(t["winner"] for t in one.tiers if t["tier"] == row["tier"])
        assert pd.isna(row["winner"]) if wanted is None else row["winner"] == wanted


# -- the command -------------------------------------------------------------------------------------------------------


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
