"""Errors say what, where and what instead, in bounded and harmless text."""

from __future__ import annotations

import pickle

import pytest

from llmcap.errors import (
    CapacityError,
    DocumentError,
    LlmcapError,
    OptionError,
    Problem,
    did_you_mean,
    printable,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LlmcapError("x"), 1),
        (OptionError("--tp", "x"), 2),
        (DocumentError([Problem("f.yaml", 1, "", "x")]), 3),
        (CapacityError("x"), 4),
    ],
)
def test_every_error_has_the_exit_code_of_the_contract(error: LlmcapError, code: int) -> None:
    assert error.exit_code == code
    assert isinstance(error, LlmcapError)


def test_the_hint_follows_the_message_as_a_sentence() -> None:
    error = OptionError("--model", "unknown model 'x'", "did you mean 'y'?")
    assert str(error) == "--model: unknown model 'x'. Did you mean 'y'?"
    assert (error.option, error.hint) == ("--model", "did you mean 'y'?")


def test_a_problem_reads_like_a_compiler_message() -> None:
    problem = Problem("a.yaml", 7, "layers[2].mixer", "unknown key 'hed'", "did you mean 'heads'?")
    assert str(problem) == "a.yaml:7: layers[2].mixer: unknown key 'hed'; did you mean 'heads'?"
    assert str(Problem("a.yaml", None, "", "no such file")) == "a.yaml: no such file"


def test_all_problems_are_listed() -> None:
    text = str(DocumentError([Problem("a.yaml", n, f"k{n}", "wrong") for n in range(1, 6)]))
    assert [f"k{n}" in text for n in range(1, 6)] == [True] * 5


@pytest.mark.parametrize(("count", "length"), [(1, 10_000), (21, 10), (500, 5_000), (20, 290)])
def test_the_text_of_many_or_long_problems_stays_short_and_counts_the_rest(count: int, length: int) -> None:
    problems = [Problem("f" * length, n, "p" * length, "m" * length, "h" * length) for n in range(count)]
    error = DocumentError(problems)
    text = str(error)
    lines = text.split("\n")
    assert len(text) < 2400
    assert len(error.problems) == count
    shown = [line for line in lines if not line.startswith("... and ")]
    assert all(len(line) <= 300 for line in shown)
    assert len(shown) <= 20
    if count > len(shown):
        assert lines[-1] == f"... and {count - len(shown)} more"


def test_a_long_file_name_keeps_its_end() -> None:
    assert "the-end.yaml:3: " in str(Problem("/x" * 200 + "/the-end.yaml", 3, "", "wrong"))


@pytest.mark.parametrize("text", ["\x1b[31mred\x1b[0m", "a\rb", "tab\t", "\u202egnp.exe", "\x00", "\ud800", "a\nb"])
def test_control_characters_never_reach_the_terminal(text: str) -> None:
    for shown in (
        printable(text),
        str(OptionError("--model", f"unknown '{text}'")).replace("\n", ""),
        str(Problem(text, 1, text, text, text)),
    ):
        assert shown.isprintable()
        shown.encode("utf-8")


def test_printable_is_capped_and_leaves_ordinary_text_alone() -> None:
    assert printable("größe 模型") == "größe 模型"
    assert len(printable("x" * 10**6)) == 80
    assert len(printable("\x1b" * 10**6)) == 80


def test_did_you_mean_finds_the_near_and_not_the_far() -> None:
    assert did_you_mean("llama-4-mavrick", ["llama-4-scout", "llama-4-maverick"]) == "did you mean 'llama-4-maverick'?"
    assert did_you_mean("DGX-B20", ["dgx-b200"]) == "did you mean 'dgx-b200'?"
    assert did_you_mean("zzz", ["dgx-b200"]) == ""
    assert did_you_mean("x", []) == ""


@pytest.mark.parametrize(
    "error",
    [OptionError("--tp", "m", "h"), DocumentError([Problem("f", 1, "p", "m")]), CapacityError("m", "h")],
)
def test_errors_survive_the_way_back_from_a_worker_process(error: LlmcapError) -> None:
    back = pickle.loads(pickle.dumps(error))
    assert type(back) is type(error)
    assert str(back) == str(error)
