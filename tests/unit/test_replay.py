"""Reading traces, making them up, and placing tiers on them."""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import llmcap
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import options_from
from llmcap.analyses.replays.replay import Reuse, replay
from llmcap.analyses.replays.trace_generator import Population, make_up, population, write_trace
from llmcap.analyses.replays.traces import Trace, read_trace
from llmcap.analyses.setting import resolve
from llmcap.cli.app import run
from llmcap.errors import DocumentError, OptionError
from llmcap.glossary import GLOSSARY
from llmcap.report.figures.replay import hits_figure
from llmcap.report.figures.style import styled

GOOD = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}


def request(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


def written(folder: Path, *lines: str, name: str = "trace.jsonl") -> Path:
    file = folder / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def small(requests: list[list[int]], *, tokens: int = 512, gap: float = 10.0) -> Trace:
    """A trace of full blocks, one request every `gap` seconds."""
    counts = np.array([len(r) for r in requests], dtype=np.int64)
    return Trace(
        "small", gap * np.arange(len(requests), dtype=np.float64), counts * tokens, np.ones_like(counts), tokens,
        np.array([b for r in requests for b in r], dtype=np.int64), np.concatenate([[0], np.cumsum(counts)]),
    )  # fmt: skip


# -- reading ---------------------------------------------------------------------------------------------------------


def test_a_json_trace(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, request(), "", request(timestamp=2500, input_length=1024)))
    assert trace.times.tolist() == [0.0, 2.5]
    assert trace.starts.tolist() == [0, 2, 4]
    assert trace.tokens_of_blocks().tolist() == [512, 88, 512, 512]
    assert trace.tokens_of_blocks(1, 2).tolist() == [512, 512]


def test_a_packed_trace_reads_the_same(tmp_path: Path) -> None:
    plain = written(tmp_path, request(), request(timestamp=1))
    packed = tmp_path / "trace.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_trace(packed).blocks is not None
    assert read_trace(packed).times.tolist() == read_trace(plain).times.tolist()


def test_lengths_only(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        "TIMESTAMP,ContextTokens,GeneratedTokens",
        "2023-11-16 18:15:46.6805900,374,44",
        "2023-11-16 18:16:46.6805900,396,109",
        name="azure.csv",
    )
    trace = read_trace(file)
    assert trace.blocks is None
    assert trace.times.tolist() == pytest.approx([0.0, 60.0])
    answer = replay(file)
    assert answer.summary["ideal_hit_ratio"] is None
    assert answer.curve == []
    assert list(answer.ttft) == ["none"]
    assert any("lengths only" in note for note in answer.warnings)


def test_arrivals_out_of_order_are_put_in_order(tmp_path: Path) -> None:
    file = written(
        tmp_path, request(timestamp=5000, hash_ids=[7, 8]), request(timestamp=1000, input_length=100, hash_ids=[3])
    )
    trace = read_trace(file)
    assert trace.blocks is not None
    assert trace.times.tolist() == [0.0, 4.0]
    assert trace.blocks.tolist() == [3, 7, 8]
    assert trace.starts.tolist() == [0, 1, 3]
    assert any("order" in note for note in replay(file).warnings)


def test_a_trace_may_hash_full_blocks_only(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, request(hash_ids=[1]), request(input_length=100, hash_ids=[])))
    assert trace.tokens_of_blocks().tolist() == [512]


def test_unsigned_hashes_keep_their_identity(tmp_path: Path) -> None:
    trace = read_trace(written(tmp_path, request(hash_ids=[2**64 - 1, 5]), request(hash_ids=[2**64 - 1, 2**63])))
    assert trace.blocks is not None
    assert len(set(trace.blocks.tolist())) == 3


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("{", "no JSON"),
        ("[1]", "no JSON object"),
        ("[" * 100_000, "no JSON"),
        ('{"timestamp": 0, "input_length": 1' + "0" * 5000 + ', "hash_ids": []}', "no JSON"),
        ("\x00", "no JSON"),
        (request(timestamp=-1), "timestamp"),
        (request(timestamp=None), "timestamp"),
        (request(timestamp=float("nan")), "timestamp"),
        (request(timestamp=True), "timestamp"),
        (request(timestamp=10**400), "timestamp"),
        (request(input_length=0), "input_length"),
        (request(input_length=10**9), "input_length"),
        (request(input_length="600"), "input_length"),
        (request(input_length=600.0), "input_length"),
        (request(output_length=-1), "output_length"),
        (request(hash_ids=[1, 2, 3]), "--block-tokens"),
        (request(hash_ids=[]), "--block-tokens"),
        (request(hash_ids=[1, "x"]), "hash_ids"),
        (request(hash_ids=[1, 2.5]), "hash_ids"),
        (request(hash_ids=[1, True]), "hash_ids"),
        (request(hash_ids=[1, 2**64]), "64 bits"),
        (request(hash_ids=[-1, 2**63]), "64 bits"),
        (request(hash_ids={"a": 1}), "hash_ids"),
        (request(hash_ids=None), "hash_ids"),
    ],
)
def test_a_malformed_line_is_told_with_its_number(tmp_path: Path, line: str, word: str) -> None:
    file = written(tmp_path, request(), line, request())
    with pytest.raises(DocumentError) as caught:
        read_trace(file)
    assert "1 of 3 lines" in str(caught.value)
    assert ":2: " in str(caught.value)
    assert word in str(caught.value)
    trace = read_trace(file, max_bad_lines="1")
    assert (trace.requests, trace.bad_lines) == (2, 1)


@pytest.mark.parametrize(
    "line", ["2023-11-16 18:15:46,374", "never,374,44", "5,37.5,44", "5,374,", "5,-3,4", "nan,3,4", '5,"3']
)
def test_a_malformed_row_is_told_with_its_number(tmp_path: Path, line: str) -> None:
    file = written(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens", "5,374,44", line, name="a.csv")
    with pytest.raises(DocumentError, match=r"a\.csv:3: "):
        read_trace(file)


def test_an_endless_line_is_skipped_and_the_next_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmcap.analyses.replays.traces.MAX_LINE_BYTES", 200)
    monkeypatch.setattr("llmcap.analyses.replays.trace_lines.MAX_LINE_BYTES", 200)
    trace = read_trace(written(tmp_path, request(), "x" * 1000, request(timestamp=1)), max_bad_lines=1)
    assert (trace.requests, trace.bad_lines) == (2, 1)
    assert trace.problems[0].line == 2


def test_a_hopeless_file_is_refused_before_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llmcap.analyses.replays.traces._EARLY", 10)
    with pytest.raises(DocumentError, match="10 of 11 lines"):
        read_trace(written(tmp_path, request(), *["{"] * 100))


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"", "no requests"), (b"\n\n", "no requests"), (b"a,b\n1,2\n", "neither"), (b"\xff\xfe", "neither"),
     (b"\x1f\x8b\x08 nothing", "gzip"), (gzip.compress(b"{}" * 1000, mtime=0)[:30], "gzip")],
)  # fmt: skip
def test_a_file_that_is_no_trace(tmp_path: Path, content: bytes, word: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    with pytest.raises(DocumentError, match=word):
        read_trace(file)


@pytest.mark.parametrize("limit", ["half", "-1", "150%", "1.5", "nan", ""])
def test_limits_that_are_none(limit: str) -> None:
    with pytest.raises(OptionError, match="--max-bad-lines"):
        read_trace("mooncake-conversation", max_bad_lines=limit)


@pytest.mark.parametrize("name", ["no-such-file", "\x00", "x" * 5000, "~nobody-here/x", "."])
def test_a_file_that_is_not_there(name: str) -> None:
    with pytest.raises(OptionError, match="mooncake-conversation"):
        read_trace(name)


@given(st.binary(max_size=200) | st.text(max_size=100).map(lambda t: f'{{"timestamp": 0, {t}'.encode()))
def test_any_bytes_are_a_trace_or_a_clear_error(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    file = tmp_path_factory.mktemp("fuzz") / "trace"
    file.write_bytes(content)
    with pytest.raises(DocumentError):
        read_trace(file)


# -- made-up traces --------------------------------------------------------------------------------------------------


def test_a_made_up_trace_shares_what_conversations_share() -> None:
    trace = make_up(Population(users=40, turns=5, system=1100, message=300, answer=200, seed=3))
    assert trace.blocks is not None
    assert trace.requests == 200
    assert (np.diff(trace.times) >= 0).all()
    assert int(trace.tokens_of_blocks().sum()) == int(trace.input_tokens.sum())
    seen: dict[int, list[list[int]]] = {}
    for i in range(trace.requests):
        blocks = trace.blocks[trace.starts[i] : trace.starts[i + 1]].tolist()
        assert blocks[:2] == [0, 1]  # 1,100 tokens of system prompt fill two blocks
        assert len(set(blocks)) == len(blocks)
        full = blocks[: int(trace.input_tokens[i]) // 512]
        if len(full) > 2:
            seen.setdefault(full[2], []).append(full)
    for turns in seen.values():  # of one user: each prompt continues the one before
        for before, after in pairwise(turns):
            assert after[: len(before)] == before


def test_the_seed_decides() -> None:
    one, same, other = (make_up(Population(users=20, seed=s)) for s in (1, 1, 2))
    assert np.array_equal(one.input_tokens, same.input_tokens)
    assert not np.array_equal(one.input_tokens, other.input_tokens)


def test_mean_lengths_are_those_asked_for() -> None:
    trace = make_up(Population(users=20_000, turns=2, system=100, message=300, answer=200))
    # First prompts 100 + 300, second 100 + 300 + 200 + 300: 650 on average.
    assert trace.input_tokens.mean() == pytest.approx(650, rel=0.02)


def test_a_trace_survives_writing_and_reading(tmp_path: Path) -> None:
    trace = make_up(Population(users=5, turns=3))
    for name in ("t.jsonl", "t.jsonl.gz"):
        write_trace(trace, tmp_path / name)
        back = read_trace(tmp_path / name)
        assert back.blocks is not None
        assert trace.blocks is not None
        assert back.blocks.tolist() == trace.blocks.tolist()
        assert back.times == pytest.approx(trace.times, abs=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        "users",
        "users=0",
        "users=1,users=2",
        "user=3",
        "think=5 apples",
        "span=-1s",
        "message=1e12",
        "users=1M,turns=1k",
    ],
)
def test_a_population_that_cannot_be(text: str) -> None:
    with pytest.raises(OptionError, match="generate"):
        make_up(population(text))


def test_a_population_in_words() -> None:
    who = population("users=2k, turns=3, think=2 min, seed=0")
    assert (who.users, who.turns, who.think, who.seed) == (2000, 3, 120.0, 0)


# -- on tiers --------------------------------------------------------------------------------------------------------


def test_a_request_waits_for_its_tier_and_its_rest() -> None:
    """Three prompts of 20 blocks, the last one as the first. Device memory holds all 40 blocks, so nothing is reloaded
    and the repeated prompt computes one token only.
    """
    trace = small([list(range(20)), list(range(20, 40)), list(range(20))], gap=100.0)
    answer = replay(trace, model="llama-3.1-8b", hardware="dgx-h100")
    assert answer.summary["ideal_hit_ratio"] == pytest.approx(1 / 3)
    setting = resolve(options_from({"model": "llama-3.1-8b", "hardware": "dgx-h100"}))
    tiers = Evaluator.of(setting).tiers
    whole = float(tiers.prefill(1.0, 10240.0, 0.0))
    one = float(tiers.prefill(1.0, 1.0, 10239.0))
    assert answer.ttft["none"]["mean_s"] == pytest.approx(whole)
    assert answer.ttft["hbm"]["mean_s"] == pytest.approx((2 * whole + one) / 3)
    assert answer.ttft["hbm"]["gpu_s_saved"] == pytest.approx((whole - one) * 8)
    assert answer.tiers[1]["served_ratio"] == 0
    # The first two prompts are new: 2 x 10,240 tokens of 2 x 8 heads x 128 x 2 B x 32 layers = 131,072 B.
    assert answer.tiers[1]["write_bytes"] == 2 * 10240 * 131072
    assert answer.tiers[1]["write_bytes_per_day_second_touch"] == pytest.approx(10240 * 131072 * 86400 / 200)


def test_each_block_comes_from_the_fastest_tier_that_holds_it() -> None:
    """Ten blocks come back, with one new block behind them, after 1,600 others have passed: too many for what a 70B
    model leaves of four H100s, few for their DRAM.
    """
    prompt = list(range(10))
    others = [list(range(1000 * i, 1000 * i + 200)) for i in range(1, 9)]
    trace = small([prompt, *others, [*prompt, 77]])
    options = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "devices": 4}
    answer = replay(trace, **options)
    hbm, dram = answer.tiers[0], answer.tiers[1]
    assert hbm["capacity_blocks"] < 1610 < dram["capacity_blocks"]
    assert (hbm["hit_ratio"], dram["served_ratio"]) == (0.0, pytest.approx(10 / 1621))
    tiers = Evaluator.of(resolve(options_from(options))).tiers
    moved = 5120 * 327_680  # 2 x 8 heads x 128 x 2 B x 80 layers a token
    expected = float(tiers.prefill(1.0, 512.0, 5120.0)) + float(tiers.reload(tiers.rates[0], 1.0, moved))
    computed = float(tiers.prefill(1.0, 5632.0, 0.0))  # all eleven blocks, where the ten are not found
    quicker = (answer.ttft["hbm"]["mean_s"] - answer.ttft["dram"]["mean_s"]) * trace.requests
    assert quicker == pytest.approx(computed - expected)
    assert dram["read_bytes"] == pytest.approx(moved)
    assert dram["read_peak_bytes_per_s"] == pytest.approx(moved / 60)


def test_the_latent_is_kept_on_every_device_but_once_on_tiers() -> None:
    answer = replay(small([[1, 2], [1, 2]]), model="deepseek-v3", hardware="dgx-h200")
    hbm, dram = answer.tiers[:2]
    assert hbm["bytes_per_block"] == pytest.approx(8 * dram["bytes_per_block"])


def test_a_tier_smaller_than_device_memory_adds_nothing() -> None:
    trace = make_up(Population(users=50, turns=3))
    answer = replay(trace, dram="1 GB", drives=1)
    assert answer.tiers[1]["hit_ratio"] == answer.tiers[0]["hit_ratio"]
    assert any(note.startswith("dram holds no more") for note in answer.warnings)


def test_splitting_the_requests_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = make_up(Population(users=60, turns=4, seed=7))
    whole = replay(trace, kv_policy="all-full").to_dict()
    monkeypatch.setattr("llmcap.analyses.replays.replay_tiers._CHUNK", 17)
    parts = replay(trace, kv_policy="all-full").to_dict()
    for name, values in whole["ttft"].items():
        assert parts["ttft"][name] == pytest.approx(values)
    for one, other in zip(whole["tiers"], parts["tiers"], strict=True):
        assert other == pytest.approx(one)


def test_a_model_that_does_not_fit_keeps_the_curve() -> None:
    answer = replay(small([[1], [1]]), model="llama-3.1-405b", hardware="dgx-h100", weight_dtype="bf16")
    assert not answer.fits
    assert (answer.tiers, answer.ttft) == ([], {})
    assert answer.curve


def test_a_trace_without_time_has_no_rates() -> None:
    answer = replay(small([[1], [1]], gap=0.0))
    assert answer.tiers[1]["write_mean_bytes_per_s"] is None
    json.dumps(answer.to_dict(), allow_nan=False)


@pytest.mark.parametrize("span", [0.001, 59.0, 60.0])
def test_a_day_is_told_from_a_minute_on(span: float) -> None:
    """A millisecond of requests is no rate of a day: 2 x 512 tokens of 131,072 B would be 11.6 PB a day."""
    answer = replay(small([[1], [2]], gap=span), model="llama-3.1-8b", hardware="dgx-h100")
    nvme = next(row for row in answer.tiers if row["tier"] == "nvme")
    told = [nvme.get(n) for n in ("write_bytes_per_day", "drive_writes_per_day", "drive_life_years")]
    warned = [note for note in answer.warnings if "too short to tell what a day brings" in note]
    if span < 60.0:
        assert told == [None, None, None] and len(warned) == 1
        assert nvme["write_bytes"] == 2 * 512 * 131_072
    else:
        assert told[0] == pytest.approx(2 * 512 * 131_072 * 1440) and told[1] > 0.0 and not warned


def test_requests_without_any_block() -> None:
    trace = Trace(
        "none", np.zeros(2), np.array([10, 20]), np.zeros(2, dtype=np.int64), 512, np.zeros(0, dtype=np.int64),
        np.zeros(3, dtype=np.int64),
    )  # fmt: skip
    answer = replay(trace)
    assert answer.summary["ideal_hit_ratio"] == 0
    assert [row["hit_ratio"] for row in answer.curve] == [0.0] * len(answer.curve)


@given(st.lists(st.lists(st.integers(0, 8), min_size=1, max_size=6, unique=True), min_size=1, max_size=12))
def test_the_curve_never_falls_and_ends_at_the_ideal(requests: list[list[int]]) -> None:
    reuse = Reuse.of(small(requests))
    assert (np.diff(reuse.curve[1]) > 0).all()
    seen: set[int] = set()
    ideal = 0
    for blocks in requests:
        run = next((i for i, b in enumerate(blocks) if b not in seen), len(blocks))
        ideal += 512 * run
        seen.update(blocks)
    assert reuse.ideal_tokens == ideal


@pytest.mark.parametrize(
    "options",
    [{"capacities": "0"}, {"capacities": "a"}, {"capacities": ""}, {"window": "5 apples"}, {"window": 0},
     {"block_tokens": 0}, {"time_unit": "us"}, {"context": "1M"}],
)  # fmt: skip
def test_options_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(OptionError):
        replay("mooncake-conversation", **options)


def test_a_trace_or_a_population_but_not_both() -> None:
    for values in ({}, {"trace": "x", "generate": "users=1"}):
        with pytest.raises(OptionError, match="either"):
            llmcap.replay(**values)


def test_every_column_is_explained() -> None:
    answer = replay(make_up(Population(users=20, turns=3)))
    rows = [answer.summary, *answer.curve, *answer.tiers, *answer.ttft.values()]
    page = (Path(__file__).resolve().parents[2] / "docs" / "replay.md").read_text(encoding="utf-8")
    for name in {name for row in rows for name in row}:
        assert name in GLOSSARY or name in ("drive", "drives")
        assert f"`{name}`" in page


# -- the command -----------------------------------------------------------------------------------------------------


def test_the_command_answers_in_json(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = written(tmp_path, request(), request(timestamp=1000), "{")
    arguments = ["replay", str(file), "--capacities", "1,2", "--format", "json", "--max-bad-lines", "50%"]
    assert run(arguments) == 0
    out, err = capsys.readouterr()
    answer = json.loads(out)
    assert answer["schema"] == "llmcap.replay/1"
    assert (answer["requests"], answer["unique_blocks"], answer["input_tokens"]) == (2, 2, 1200)
    assert [point["hit_ratio"] for point in answer["curve"]] == [0.0, 0.5]
    assert answer["malformed_lines"]["count"] == 1
    assert ":3: " in err


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf"])
def test_the_command_draws_hits_against_capacity(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str
) -> None:
    file = tmp_path / f"hits.{suffix}"
    assert run(["replay", "--generate", "users=5,turns=4", "--plot", str(file)]) == 0
    out, err = capsys.readouterr()
    assert err == f"figure in {file}\n" and "Hit ratio of an LRU cache" in out
    assert file.read_bytes().startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix])


def test_the_figure_shows_the_curve_and_every_tier() -> None:
    answer = replay(make_up(Population(users=20, turns=4)), model="llama-3.1-8b", hardware="dgx-h100")
    with styled():
        figure = hits_figure(answer.inputs, answer.curve, answer.tiers, answer.summary["ideal_hit_ratio"])
    (axes,) = figure.axes
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    for name, row in zip(("HBM", "DRAM", "NVMe"), answer.tiers, strict=True):
        assert f"{name}, {row['hit_ratio']:.1%} with all before it" in labels
    curve = axes.lines[0]
    assert curve.get_ydata().tolist() == [point["hit_ratio"] for point in answer.curve]
    assert curve.get_xdata().tolist() == [point["capacity_bytes"] for point in answer.curve]


def test_a_trace_of_lengths_has_no_figure(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = written(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens", "1.5,10,1", name="azure.csv")
    assert run(["replay", str(file), "--plot", str(tmp_path / "a.png")]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("Error: --plot: the trace has lengths only")
    assert [p.name for p in tmp_path.iterdir()] == ["azure.csv"]


def test_control_codes_in_a_file_name_stay_in_it(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    names = [tmp_path / "a\x1b[31m.png", tmp_path / "b\x0e.jsonl"]
    arguments = ["--plot", str(names[0]), "--write-trace", str(names[1])]
    assert run(["replay", "--generate", "users=3,turns=2", *arguments]) == 0
    assert capsys.readouterr().err.replace("\n", "").isprintable()
    assert all(name.exists() for name in names)


@pytest.mark.parametrize("form", ["table", "csv", "md"])
def test_the_command_answers_people(capsys: pytest.CaptureFixture[str], tmp_path: Path, form: str) -> None:
    copy = tmp_path / "made-up.jsonl"
    arguments = ["replay", "--generate", "users=5,turns=2", "--format", form, "--write-trace", str(copy)]
    assert run(arguments) == 0
    out, _ = capsys.readouterr()
    assert "hit" in out
    assert read_trace(copy).requests == 10


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["nowhere"], 2), ([], 2), (["--generate", "users=1,turns=1", "--model", "llama-3.1-405b", "--devices", "1"], 4)],
)
def test_the_command_fails_clearly(capsys: pytest.CaptureFixture[str], arguments: list[str], status: int) -> None:
    assert run(["replay", *arguments]) == status
    assert capsys.readouterr().err.startswith("Error: ")
