"""explain, compare and plan as commands: answers, formats, exit statuses, and prices."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcap.units import format_seconds

FORMATS = ("table", "json", "csv", "md")


def test_explain_adds_up(llmcap: Callable[..., Any]) -> None:
    told = llmcap("explain", "--format", "json").json()
    assert told["schema"] == "llmcap.explain/1"
    assert len(told["rows"]) > 8
    assert abs(sum(row["time_s"] for row in told["rows"]) / told["total_s"] - 1) < 1e-9
    assert {"operator", "flop", "bytes", "time_s", "bound", "formula", "efficiency", "source"} <= set(told["rows"][0])
    estimate = llmcap("estimate", "--format", "json").json()
    assert told["total_s"] == estimate["results"]["e2el_s"]


@pytest.mark.parametrize("term", ["all", "prefill", "decode", "kv", "tier:nvme", "tier:hbm"])
@pytest.mark.parametrize("form", FORMATS)
def test_explain_every_term_in_every_format(llmcap: Callable[..., Any], term: str, form: str) -> None:
    ran = llmcap("explain", "--term", term, "--context", "64k", "--cached-tokens", "60k", "--format", form)
    assert (ran.status, ran.err) == (0, "")
    if form == "json":
        assert ran.json()["term"] == term
    assert ran.out.strip()


def test_the_page_of_explain_shows_formulas_and_sources(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("explain", "--context", "64k", "--term", "prefill")
    for words in ("Time to first token", "global.attention", "sum ", "hypot(", "from calibration b200", "Sources"):
        assert words in ran.out
    assert max(map(len, ran.out.splitlines())) <= 160


def test_what_does_not_fit_is_status_4(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("explain", "--users", "9999", "--format", "json")
    assert ran.status == 4
    assert ran.json()["rows"] == []
    assert ran.json()["total_s"] is None
    assert "does not fit" in ran.err
    assert llmcap("explain", "--users", "9999", "--term", "kv").status == 0


def test_compare_two_machines(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("compare", "dgx-b200", "dgx-b200-gen6", "--format", "json")
    assert ran.status == 0
    told = ran.json()
    assert told["schema"] == "llmcap.compare/1"
    assert told["names"] == ["dgx-b200", "dgx-b200-gen6"]
    assert all(len(row["values"]) == len(row["ratios"]) == 2 for row in told["rows"])


@pytest.mark.parametrize("form", FORMATS)
def test_compare_in_every_format(llmcap: Callable[..., Any], form: str) -> None:
    ran = llmcap("compare", "dgx-b200", "dgx-h200", "tp=4,dp=2", "--context", "32k", "--format", form)
    assert (ran.status, ran.err) == (0, "")
    assert "dgx-h200" in ran.out


def test_six_sides_stand_in_tables_that_fit_the_width(llmcap: Callable[..., Any]) -> None:
    sides = ["dgx-b200", "dgx-h200", "dgx-h100", "mi300x-8x", "mi325x-8x", "l40s-8x"]
    ran = llmcap("compare", *sides, "--model", "llama-3.1-8b", "--context", "8k")
    assert ran.status == 0
    assert ran.out.count("time to first token ") >= 2
    assert max(map(len, ran.out.splitlines())) <= 120


def test_compare_says_which_side_is_wrong(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("compare", "tp=8", "tp=7")
    assert ran.status == 2
    assert "tp=7" in ran.err
    assert llmcap("compare", "dgx-b200").status == 2
    assert llmcap("compare", "dgx-b200", "nothing-like-it").status == 2
    assert llmcap("compare", "dgx-b200", "./missing.yaml").status == 3


def test_plan_users(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("plan", "--users-max", "--ttft", "2s", "--tpot", "50ms", "--context", "32k", "--format", "json")
    assert ran.status == 0
    told = ran.json()
    assert told["schema"] == "llmcap.plan/1"
    assert told["feasible"] is True
    assert told["objectives"] == {"ttft_s": 2.0, "tpot_s": 0.05}
    users = told["answer"]["users"]
    kept = llmcap("estimate", "--users", users, "--context", "32k", "--format", "json").json()["results"]
    missed = llmcap("estimate", "--users", users + 1, "--context", "32k", "--format", "json").json()["results"]
    assert kept["ttft_s"] <= 2.0 < missed["ttft_s"]
    assert told["binding"] == "ttft"
    assert told["sensitivity"]
    assert told["next"]
    assert "costs" not in told


QUESTIONS: dict[str, list[str]] = {
    "users-max": ["--users-max", "--ttft", "3s"],
    "rate-max": ["--rate-max", "--ttft-p95", "9s", "--no-sensitivity"],
    "clients-max": ["--clients-max", "--ttft", "9s", "--lengths", "equal", "--no-sensitivity"],
    "devices-min": ["--devices-min", "--users", "4", "--ttft", "9s"],
    "dram-min": ["--dram-min", "--sessions", "500"],
    "drives-min": ["--drives-min", "--sessions", "9000", "--ttft", "2s"],
    "bandwidth-for": ["--bandwidth-for", "nvme", "--users", "4", "--ttft", "500ms"],
    "cheapest": ["--cheapest", "--users", "2", "--ttft", "9s", "--prices", "hyperscaler-2026-04", "--no-sensitivity"],
}


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("form", FORMATS)
def test_every_question_in_every_format(llmcap: Callable[..., Any], question: str, form: str) -> None:
    ran = llmcap("plan", *QUESTIONS[question], "--context", "32k", "--format", form)
    assert (ran.status, ran.err) == (0, "")
    if form == "json":
        told = ran.json()
        assert told["question"] == question
        assert told["feasible"] is True
        assert told["text"]
    assert max(map(len, ran.out.splitlines())) <= 120 or form != "table"


def test_infeasible_objectives_say_what_to_relax(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("plan", "--users-max", "--ttft", "1ms", "--format", "json")
    assert ran.status == 0
    told = ran.json()
    assert told["feasible"] is False
    assert told["relax"][0]["what"] == "ttft"
    assert told["relax"][0]["needed"] == pytest.approx(
        llmcap("estimate", "--format", "json").json()["results"]["ttft_s"]
    )
    table = llmcap("plan", "--users-max", "--ttft", "1ms")
    assert f"--ttft {format_seconds(told['relax'][0]['needed'])}" in table.out
    assert "times as much" in table.out


def test_short_memory_is_status_4(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("plan", "--users-max", "--model", "llama-3.1-405b", "--devices", "1", "--format", "json")
    assert ran.status == 4
    assert ran.json()["binding"] == "capacity"
    assert "more in all" in ran.err


@pytest.mark.parametrize(
    "given",
    [
        [], ["--users-max", "--cheapest"], ["--users-max", "--users", "3"], ["--users-max", "--ttft", "2"],
        ["--bandwidth-for", "nvme"], ["--bandwidth-for", "tape", "--ttft", "2s"], ["--cheapest"],
        ["--bandwidth-for", "nvme", "--from-tier", "dram", "--ttft", "1s"], ["--users-max", "--tpot", "fast"],
        ["--dram-min", "--sessions", "0"], ["--users-max", "--price-kwh", "x"], ["--rate-max"],
        ["--rate-max", "--ttft", "2s", "--users", "3"], ["--rate-max", "--ttft", "2s", "--sessions", "3"],
        ["--rate-max", "--ttft", "2s", "--from-tier", "nvme"], ["--rate-max", "--ttft", "2s", "--lengths", "equal"],
        ["--rate-max", "--ttft", "2s", "--assumptions", "ideal"], ["--clients-max", "--tpot", "1s"],
        ["--rate-max", "--tpot", "9s", "--output-tokens", "1"], ["--clients-max", "--ttft", "1s", "--ttft-p95", "1s"],
        ["--users-max", "--ttft-p95", "1s"], ["--users-max", "--draft-tokens", "1", "--acceptance", "0.5"],
        ["--rate-max", "--ttft", "2s", "--acceptance", "0.5"], ["--rate-max", "--ttft", "2s", "--arrivals", "1/s"],
    ],
)  # fmt: skip
def test_bad_questions_are_status_2(llmcap: Callable[..., Any], given: list[str]) -> None:
    ran = llmcap("plan", *given)
    assert (ran.status, ran.out) == (2, "")
    assert ran.err.startswith("Error: ")
    assert "bug" not in ran.err


def test_power_and_cost_stand_there_when_prices_are_given(llmcap: Callable[..., Any]) -> None:
    bare = llmcap("estimate", "--context", "32k", "--format", "json").json()
    assert "costs" not in bare
    priced = llmcap("estimate", "--context", "32k", "--prices", "hyperscaler-2026-04", "--format", "json").json()
    costs, r = priced["costs"], priced["results"]
    assert priced["results"] == bare["results"]
    assert costs["usd_per_hour"] == pytest.approx(8 * 1.95)
    assert costs["power_w"] == 8 * 2170
    assert costs["usd_per_million_output_tokens"] == pytest.approx(8 * 1.95 / 3600 / r["output_tok_per_s"] * 1e6)
    assert costs["energy_j_per_output_token"] == pytest.approx(8 * 2170 / r["output_tok_per_s"])
    page = llmcap("estimate", "--context", "32k", "--price-gpu-hour", "2.5 USD").out
    assert "20.00 USD an hour" in page
    unknown = llmcap("estimate", "--hardware", "gaudi3-8x", "--model", "llama-3.1-8b", "--context", "8k", "--prices",
                     "hyperscaler-2026-04", "--format", "json").json()  # fmt: skip
    assert "usd_per_hour" not in unknown["costs"]
    assert llmcap("estimate", "--cases", "x.csv", "--price-kwh", "1 USD").status == 2


def test_answers_go_to_a_file(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    for name, given in (("explain", ["--term", "kv"]), ("compare", ["tp=8", "tp=4,dp=2"]),
                        ("plan", ["--users-max", "--no-sensitivity"])):  # fmt: skip
        file = tmp_path / f"{name}.json"
        ran = llmcap(name, *given, "--context", "8k", "--format", "json", "-o", str(file))
        assert (ran.status, ran.out) == (0, "")
        assert json.loads(file.read_text(encoding="utf-8"))["schema"] == f"llmcap.{name}/1"


@pytest.mark.parametrize(
    "question", [("--drives-min",), ("--dram-min",), ("--bandwidth-for", "nvme", "--ttft", "300s")], ids=lambda q: q[0]
)
def test_no_tier_helps_users_who_do_not_fit_device_memory(
    llmcap: Callable[..., Any], question: tuple[str, ...]
) -> None:
    """500 users of 3.58 GB are more than the 1.2 TB that eight devices leave; a drive was said to answer in 161 s."""
    ask = (*question, "--context", "120k", "--cached-tokens", "118k", "--sessions", "500", "--users")
    if question[0] == "--bandwidth-for":
        ask = (*question, "--context", "120k", "--cached-tokens", "118k", "--users")
    short = llmcap("plan", *ask, "500", "--format", "json")
    assert short.status == 4
    told = short.json()
    assert (told["feasible"], told["binding"], told["answer"]) == (False, "capacity", {})
    assert "fewer --users with --sessions 500" in told["text"]
    assert llmcap("estimate", "--context", "120k", "--cached-tokens", "118k", "--users", "500").status == 4
    room = llmcap("plan", *ask, "230", "--format", "json")
    assert (room.status, room.json()["feasible"]) == (0, True)
    more = [row["answer_more"] for row in room.json()["sensitivity"] if row["what"] == "users"]
    assert more in ([], [None])  # 276 users are more than the 266 that fit


def test_the_answer_is_among_the_devices_that_are_shown(llmcap: Callable[..., Any]) -> None:
    """112 devices were the answer above a table from 1 to 72."""
    page = llmcap("plan", "--devices-min", "--users", "5000", "--context", "120k", "--no-sensitivity").out
    devices = page.split(" devices; with")[0].split()[-1]
    lines = [line.split() for line in page.splitlines()]
    assert [line for line in lines if line[:1] == [devices] and "yes" in line]
    assert len([line for line in lines if len(line) > 3 and ("yes" in line or "no" in line)]) == 12
