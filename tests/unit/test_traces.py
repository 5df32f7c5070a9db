"""Reading request traces, and making them up."""

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

from llmcap.analyses.replays.replay import replay
from llmcap.analyses.replays.trace_generator import Population, make_up, population, write_trace
from llmcap.analyses.replays.traces import read_trace
from llmcap.errors import DocumentError, OptionError

GOOD = {"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}


def request(**changes: Any) -> str:
    return json.dumps({**GOOD, **changes})


def written(folder: Path, *lines: str, name: str = "trace.jsonl") -> Path:
    file = folder / name
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


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
