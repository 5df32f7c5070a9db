"""What a newcomer is told who asks the wrong command, writes a unit of one's own, or whose question has no answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llmcap.analyses.offload.tier_table import tier_table
from llmcap.analyses.replays.replay import load_trace, replay
from llmcap.report.replay_page import replay_page
from llmcap.report.tier_page import tier_page


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (("explain", "--acceptance", "0.7"), "No such option: --acceptance. It is an option of llmcap"),
        (("estimate", "--ttft", "2s"), "No such option: --ttft. It is an option of llmcap plan. See"),
        (("estimate", "--contxt", "2k"), "No such option: --contxt. Did you mean --context?"),
    ],
)
def test_an_option_of_another_command_is_named_as_such(
    llmcap: Callable[..., Any], asked: tuple[str, ...], told: str
) -> None:
    """`explain --acceptance` was answered with 'Did you mean --expander?'."""
    ran = llmcap(*asked)
    assert ran.status == 2
    assert told in ran.err


def test_a_refused_rate_is_quoted_as_it_was_written(llmcap: Callable[..., Any]) -> None:
    assert "--arrivals: '0' must be greater" in llmcap("tiers", "--arrivals", "0").err


@pytest.mark.parametrize("rate", ["2", "2/s", "120/min", "7200/h"])
def test_tiers_take_a_rate_in_any_unit(llmcap: Callable[..., Any], rate: str) -> None:
    ask = ("tiers", "--context", "128k", "--format", "json", "--arrivals")
    assert llmcap(*ask, rate).json()["rows"] == llmcap(*ask, "2.0").json()["rows"]


def test_hints_about_arrivals_are_never_refused_themselves(llmcap: Callable[..., Any]) -> None:
    assert "Write '2.5/s'" in llmcap("estimate", "--arrivals", "2.5").err
    assert "Write '2/s'" in llmcap("estimate", "--arrivals", "0").err
    assert "'120/min' or '500/h'" in llmcap("estimate", "--arrivals", "2/hour").err


def test_a_hint_in_a_table_of_cases_goes_on_in_small_letters(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    file = tmp_path / "cases.csv"
    file.write_text("arrivals\nnever\n")
    assert "unknown arrivals 'never'; one of together, closed" in llmcap("estimate", "--cases", file).err
    assert "'never'. One of together, closed" in llmcap("estimate", "--arrivals", "never").err


@pytest.mark.parametrize("form", ["table", "md"])
def test_a_table_without_times_explains_no_marks(llmcap: Callable[..., Any], form: str) -> None:
    out = llmcap("tiers", "--users", "500", "--context", "120k", "--format", form).out
    assert "the faster way" not in out
    assert "fewer --users with --sessions N" in " ".join(out.split())
    ask = ("tiers", "--users", "500", "--context", "120k", "--arrivals", "2", "--sessions", "600", "--format", form)
    out = llmcap(*ask).out
    assert "Where the sessions live" in out
    assert "Requests at random" not in out  # a title without a table


def test_the_legend_speaks_of_columns_that_are_there(llmcap: Callable[..., Any]) -> None:
    """A shared prefix has no break-even prefix and no break-even users."""
    out = llmcap("tiers", "--context", "32k", "--users", "8", "--shared-tokens", "24k").out
    assert "'even at' bandwidth" in out
    assert "'users from'" not in out
    assert "'tokens'" not in out


def test_scenarios_are_listed_within_the_terminal(llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = llmcap("sweep").out
    assert max(map(len, out.splitlines())) <= 80
    assert "million-token-context" in out


def test_an_unknown_option_of_a_scenario_is_answered_with_the_known(llmcap: Callable[..., Any]) -> None:
    err = llmcap("sweep", "million-token-context", "--set", "zzz=1").err
    assert "Choose one of model, hardware" in err
    assert err.count(" users,") == 1


def test_a_server_without_network_cards_has_none(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    """It had 'none per device and direction'."""
    file = tmp_path / "box.yaml"
    file.write_text(
        "schema: llmcap.server/1\nid: box\nname: Box\nvendor: ACME\ndevice: l40s\ndevices: 4\n"
        "scale_up: {kind: pcie, bandwidth: 32 GB/s, all_to_all: false}\n"
        "host: {cpu: x, sockets: 1, dram: {capacity: 512 GB, bandwidth: 460.8 GB/s}}\n"
        "sources:\n  - covers: [devices, host, scale_up]\n    kind: measured\n    ref: our inventory\n"
    )
    lines = llmcap("hardware", "show", file).out.splitlines()
    assert [line.split() for line in lines if line.startswith("Network")] == [["Network", "none"]]


def test_a_list_of_servers_says_how_many_devices_each_has(llmcap: Callable[..., Any]) -> None:
    assert "8 x NVIDIA H100" in llmcap("hardware", "list").out


def test_notes_of_a_replay_are_sentences(llmcap: Callable[..., Any], tmp_path: Path) -> None:
    trace = tmp_path / "one.jsonl"
    trace.write_text('{"timestamp": 0, "input_length": 100}\n')
    out = llmcap("replay", trace).out
    assert "one.jsonl: 1 request in" in out
    assert "\nThe trace has lengths only" in out


def test_measured_rows_that_cannot_be_predicted_leave_no_empty_table(
    llmcap: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "mine.csv"
    file.write_text("model,hardware,isl,osl,concurrency,metric,value\nllama-3.1-8b,dgx-h100,1000,200,8,ttft,0.01\n")
    out = llmcap("validate", "--measured", file).out
    assert "\n\n\n" not in out
    assert "unknown metric 'ttft': did you mean 'ttft_s'?" in out


@pytest.mark.parametrize("command", ["validate", "calibrate"])
def test_rows_that_do_not_say_how_lengths_vary_are_told_what_is_taken(
    llmcap: Callable[..., Any], tmp_path: Path, command: str
) -> None:
    """The same clients wait half or twice as long; a user cannot guess which of the two was predicted."""
    file = tmp_path / "mine.csv"
    head, row = "model,hardware,isl,osl,concurrency,metric,value", "llama-3.1-8b,dgx-h100,1000,200,{},ttft_s,0.1"
    for text, said in (
        (f"{head}\n{row.format(64)}\n", True),
        (f"{head}\n{row.format(1)}\n", False),
        (f"{head},lengths\n{row.format(64)},varied\n", False),
    ):
        file.write_text(text)
        ran = llmcap(command, "--measured", file)
        assert ran.status == 0
        assert ("Lengths are taken as equal" in " ".join((ran.out + ran.err).split())) is said


@pytest.mark.parametrize("form", ["table", "md"])
def test_a_comparison_says_what_all_sides_share(llmcap: Callable[..., Any], form: str) -> None:
    ask = ("--context", "32k", "--users", "8", "--format", form)
    servers = llmcap("compare", "dgx-b200", "dgx-h200", "--model", "llama-3.1-70b", *ask).out
    assert servers.startswith("Llama 3.1 70B; 8 users x 32k tokens in, 1,000 out\n\n")
    dtypes = llmcap("compare", "kv-dtype=fp8", "kv-dtype=bf16", "--model", "llama-3.1-8b", *ask).out
    assert dtypes.startswith("Llama 3.1 8B on NVIDIA DGX B200")
    mixed = llmcap("compare", "dgx-h100", "llama-3.1-8b", *ask).out
    assert mixed.startswith("dgx-h100: Llama 4 Maverick (17B active, 128 experts) on NVIDIA DGX H100\n")
    assert "llama-3.1-8b: Llama 3.1 8B on NVIDIA DGX B200" in mixed


def test_parts_are_listed_and_shown(llmcap: Callable[..., Any]) -> None:
    """The page on servers sends readers to `hardware show b200`, which was answered with 'Did you mean gh200?'."""
    shown = llmcap("hardware", "show", "B200").out
    assert shown.startswith("# device\nschema: llmcap.device/1\nid: b200\n")
    assert "\n# calibration\nschema: llmcap.calibration/1\nid: b200\n" in shown
    listed = llmcap("hardware", "list", "--parts", "--format", "json").json()
    assert {"kind": "drive", "id": "micron-9550", "name": "Micron 9550 PRO 30.72 TB"} in listed
    for part in ({row["kind"]: row["id"] for row in listed}).values():
        assert llmcap("hardware", "show", part).status == 0
    unknown = llmcap("hardware", "show", "no-such-thing")
    assert (unknown.status, unknown.out) == (2, "")


@pytest.mark.parametrize(
    "asked",
    [
        ("sweep",),
        ("hardware", "list", "--parts"),
        ("models", "show", "llama-3.1-70b"),
        ("explain", "--term", "kv"),
        ("compare", "dgx-b200", "dgx-h200", "dgx-h100"),
    ],
    ids=lambda asked: asked[0],
)
@pytest.mark.parametrize("width", [64, 80])
def test_pages_keep_to_the_terminal(
    llmcap: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, asked: tuple[str, ...], width: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    lines = llmcap(*asked).out.splitlines()
    # An address is not broken: it is to be copied.
    assert [line for line in lines if len(line) > width and "://" not in line and "github" not in line] == []


@pytest.mark.parametrize("width", [70, 80, 100])
def test_wide_tables_leave_columns_out_on_a_screen_alone(width: int) -> None:
    read = load_trace("mooncake-conversation")
    answer = replay(read, model="llama-3.1-70b", hardware="dgx-h100", capacities="20k")
    screen, file = replay_page(answer, width, fitted=True), replay_page(answer, width)
    assert max(map(len, screen.splitlines())) <= width
    assert "life 2nd" in file
    assert ("A wider terminal also shows:" in " ".join(screen.split())) == (width < max(map(len, file.splitlines())))
    rows = tier_table(context="120k", users="4", hit=0.9, arrivals=0.5, sessions=3000)
    assert max(map(len, tier_page(rows.rows, rows.notes, 100, fitted=True).splitlines())) <= 100


def test_tiers_from_which_reloading_never_wins_have_no_break_even(llmcap: Callable[..., Any]) -> None:
    """A search for the prefix over no case at all ended in the traceback of numpy."""
    ran = llmcap(
        "tiers", "--context", "4k", "--tier", "dram:1 TB:1 MB/s", "--tier", "nvme:1 TB:1 MB/s", "--format", "json"
    )
    assert ran.status == 0, ran.err
    slow = [row for row in ran.json()["rows"] if row["tier"] != "hbm"]
    assert [(row["winner"], row["break_even_tokens"]) for row in slow] == [("recompute", None)] * 2
