"""Serving in steady state on the command line: pages, exit status, tables, sweeps and shipped scenarios."""

from __future__ import annotations

import csv
import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcap.specs.registry import load_as
from llmcap.specs.scenario import Scenario

ASKED = ("estimate", "--model", "llama-3.1-8b", "--hardware", "dgx-h100", "--devices", "2", "--tp", "1", "--context",
         "1k", "--output-tokens", "200")  # fmt: skip
SCENARIOS = ("throughput-against-interactivity", "prefill-apart", "arrivals-until-saturation")


def test_a_closed_loop_on_a_page(llmcap: Callable[..., Any]) -> None:
    ran = llmcap(*ASKED, "--users", "32", "--arrivals", "closed")
    assert ran.status == 0
    assert "32 clients, each sending its next request when the last is answered" in ran.out
    assert "Serving in steady state" in ran.out
    assert "Time if all 32 arrived at once" in ran.out
    for word in ("time to first token", "time per output token", "throughput", "saturation", "utilisation"):
        assert word in ran.out
    assert "closed loop" in ran.out.partition("Assumes")[2]


def test_a_rate_on_a_page_has_quantiles(llmcap: Callable[..., Any]) -> None:
    ran = llmcap(
        *ASKED, "--arrivals", "600/min", "--prefill-devices", "1", "--draft-tokens", "1", "--acceptance", "0.8"
    )
    assert ran.status == 0
    assert "10 requests/s at random" in ran.out
    assert "p95" in ran.out
    assert "1 prefill device (1 x tp1)" in ran.out
    assert "1.8 tokens a step" in ran.out
    assert "moving the cache" in " ".join(ran.out.split())


@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_too_high_a_rate_ends_with_status_4_and_no_time(llmcap: Callable[..., Any], form: str) -> None:
    ran = llmcap(*ASKED, "--arrivals", "9k/s", "--format", form)
    assert ran.status == 4
    assert ran.err.startswith("Error: saturated: 9,000 requests/s are more than the ")
    assert "at most" in ran.err
    if form == "json":
        serving = ran.json()["serving"]
        assert serving["limit"] == "saturated"
        assert serving["ttft_s"] is serving["tpot_s"] is serving["output_tok_per_s"] is None
    if form == "csv":
        row = next(csv.DictReader(io.StringIO(ran.out)))
        assert row["serving_ttft_s"] == row["serving_tpot_s"] == ""
        assert row["serving_limit"] == "saturated"
    if form in ("table", "md"):
        assert "Saturated" in ran.out


def test_users_beyond_memory_are_no_failure_when_they_may_wait(llmcap: Callable[..., Any]) -> None:
    ran = llmcap(*ASKED, "--users", "100k", "--arrivals", "closed", "--format", "json")
    assert ran.status == 0
    answer = ran.json()
    assert answer["results"]["fits"] is False
    assert answer["results"]["ttft_s"] is None
    assert answer["serving"]["waiting"] > 90_000
    assert llmcap(*ASKED, "--users", "100k").status == 4


def test_a_table_of_cases_mixes_loads(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("users,arrivals\n4,\n4,closed\n,3/s\n,99k/s\n", encoding="utf-8")
    ran = llmcap(*ASKED, "--cases", file, "--format", "csv")
    assert ran.status == 0
    rows = [row for row in csv.DictReader(io.StringIO(ran.out)) if row["tier"] == "hbm"]
    assert [bool(row["serving_tpot_s"]) for row in rows] == [False, True, True, False]
    assert [row["arrivals"] for row in rows] == ["", "closed", "poisson", "poisson"]
    shown = llmcap(*ASKED, "--cases", file, "--format", "table")
    assert "saturates at" in shown.out


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_shipped_scenario_of_serving_runs(llmcap: Callable[..., Any], tmp_path: Path, name: str) -> None:
    file = tmp_path / "rows.csv"
    ran = llmcap("sweep", name, "-o", file)
    assert ran.status == 0, ran.err
    rows = list(csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"))))
    assert {row["serving_fits"] for row in rows} == {"true"}
    told = [float(row["serving_tpot_s"]) for row in rows if row["serving_tpot_s"]]
    assert len(told) > len(rows) / 2
    past = {row["serving_limit"] for row in rows if not row["serving_tpot_s"]}
    assert past <= {"saturated"}


def test_a_sweep_gives_what_the_estimate_gives(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    assert llmcap("sweep", "prefill-apart", "-o", file).status == 0
    row = next(
        r
        for r in csv.DictReader(io.StringIO(file.read_text(encoding="utf-8")))
        if r["override"] == "prefill-4" and r["users"] == "16"
    )
    base = load_as(Scenario, "scenario", "prefill-apart").document.base
    options = [word for name, value in base.items() for word in (f"--{name.replace('_', '-')}", value)]
    serving = llmcap("estimate", *options, "--users", 16, "--prefill-devices", 4, "--format", "json").json()["serving"]
    for name in ("ttft_s", "tpot_s", "requests_per_s", "queue_s", "prefill_utilisation", "saturation_requests_per_s"):
        column = f"serving_{name}"
        if column in row:
            assert float(row[column]) == pytest.approx(serving[name], rel=1e-6), name


def test_default_sweeps_have_no_column_of_serving(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    scenario = tmp_path / "plain.yaml"
    scenario.write_text(
        "schema: llmcap.scenario/1\nid: plain\nname: Plain\nquestion: none\n"
        "axes: {users: [1, 2]}\nbase: {context: 1k}\n",
        encoding="utf-8",
    )
    file = tmp_path / "rows.csv"
    assert llmcap("sweep", scenario, "-o", file).status == 0
    header = file.read_text(encoding="utf-8").splitlines()[0]
    assert "serving_" not in header
    assert "arrivals" not in header
    scenario.write_text(scenario.read_text(encoding="utf-8") + "columns: [users, serving_tpot_s]\n", encoding="utf-8")
    ran = llmcap("sweep", scenario, "-o", tmp_path / "more.csv")
    assert ran.status == 3
    assert "serving_tpot_s" in ran.err


@pytest.mark.parametrize(
    "load",
    [("--arrivals", "2/s"), ("--arrivals", "closed", "--users", "64"), ("--arrivals", "closed", "--users", "400")],
)
def test_two_numbers_of_room_on_a_page_are_told_apart(llmcap: Callable[..., Any], load: tuple[str, ...]) -> None:
    """'Room for 300' under memory and 'room for 328' in steady state stood on one page without a word."""
    ask = ("--model", "llama-3.1-70b", "--hardware", "dgx-h100", "--context", "4k", "--output-tokens", "500", *load)
    answer = llmcap("estimate", *ask, "--format", "json").json()
    page = " ".join(llmcap("estimate", *ask).out.split())
    whole, half = answer["results"]["max_users_hbm"], round(answer["serving"]["held"])
    assert whole < half
    # 4,250 tokens on the average instead of 4,500, and 0.02 x 85.5 GB more of a pool of 55.5 GB
    assert half / whole == pytest.approx(4500 / 4250 * 1.031, rel=0.01)
    assert f"; room for {half}" in page
    told = f"Room for {whole} users of this length on 8 devices, each with its whole output; in steady state for {half}"
    assert f"{told}: halfway through their output, with 92% of memory in use instead of 90%." in page


def test_memory_beside_a_steady_state_says_whose_caches_it_shows(llmcap: Callable[..., Any]) -> None:
    ask = ("--model", "llama-3.1-70b", "--hardware", "dgx-h100", "--context", "4k", "--output-tokens", "500")
    assert "Memory of one device with one request (" in llmcap("estimate", *ask, "--arrivals", "2/s").out
    closed = llmcap("estimate", *ask, "--arrivals", "closed", "--users", "64").out
    assert "Memory of one device with 64 requests (" in closed
    assert "Memory of one device (" in llmcap("estimate", *ask, "--users", "64").out
    apart = llmcap("estimate", *ask, "--arrivals", "2/s", "--prefill-devices", "4").out
    assert "Room for 300 users of this length on 8 devices, undivided." in apart
    short = llmcap(
        "estimate", "--model", "llama-3.1-8b", "--hardware", "dgx-h100", "--context", "100", "--arrivals", "1/s"
    )
    assert "in steady state the engine runs at most 1,024." in " ".join(short.out.split())


def test_devices_in_two_pools_have_no_degree_in_common(llmcap: Callable[..., Any]) -> None:
    """16 devices, 8 of them for prefill, stood as 'tp16' above two pools of tp8."""
    ask = ("--model", "llama-3.1-70b", "--hardware", "dgx-h100", "--context", "4k", "--arrivals", "1/s")
    page = " ".join(llmcap("estimate", *ask, "--devices", "16", "--prefill-devices", "8").out.split())
    assert "16 x NVIDIA H100 SXM5 80 GB, 8 of them for prefill, bf16 throughout" in page
    assert "tp16" not in page
    assert "8 prefill devices (1 x tp8)" in page
    short = llmcap("estimate", *ask, "--prefill-devices", "5")
    assert short.status == 4
    assert (
        "beside 141 GB of weights at tp1; what would fit: larger replicas (--prefill-devices, --devices)" in short.err
    )


@pytest.mark.parametrize("rate", ["5e-324/s", "1e-300/s", "0.001/s"])
def test_the_least_of_rates_is_an_idle_machine(llmcap: Callable[..., Any], rate: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = llmcap("estimate", "--context", "4k", "--arrivals", rate).out
    assert re.search(r"at a time +(0|under 0\.001|0\.\d+) run, (0|under 0\.001) wait", page)


@pytest.mark.parametrize("degree", ["tp", "ep"])
def test_a_degree_of_the_prefill_devices_is_refused_by_its_own_name(llmcap: Callable[..., Any], degree: str) -> None:
    ask = ("estimate", "--arrivals", "1/s", "--context", "4k", "--prefill-devices", "4", f"--prefill-{degree}", "3")
    err = llmcap(*ask).err
    assert err.startswith(f"Error: --prefill-{degree}: {degree} 3 does not divide")


def test_tiers_in_sentences_hang_below_their_name(llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    lines = llmcap("estimate", "--context", "4k").out.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("Reload the KV cache"))
    tiers = lines[start + 1 : next(i for i, line in enumerate(lines) if "Break-even" in line)]
    named = [line.split()[0] for line in tiers if not line.startswith("     ")]
    assert [name for name in named if name not in ("again?", "compute")] == ["hbm", "dram", "nvme"]
