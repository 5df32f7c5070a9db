"""A load asked for in tables, prices and columns, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import llmcap
from llmcap.analyses.cases import evaluate_cases
from llmcap.analyses.serving.load import COLUMNS, PREFIX, applicable
from llmcap.errors import DocumentError, OptionError
from llmcap.units import format_count

BASE: dict[str, Any] = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 2, "tp": 1}
QUESTION: dict[str, Any] = {**BASE, "context": 1000, "output_tokens": 200}


@pytest.mark.parametrize(
    "options",
    [
        {"users": 8, "arrivals": "closed"},
        {"users": 8, "arrivals": "closed", "lengths": "equal"},
        {"arrivals": "2/s"},
        {"arrivals": "120/min", "draft_tokens": 1, "acceptance": "80 %"},
        {"users": 8, "arrivals": "closed", "prefill_devices": 1},
        {"arrivals": "99999/s"},
    ],
)
def test_a_case_of_a_table_is_the_estimate(options: dict[str, Any]) -> None:
    answer = llmcap.estimate(**QUESTION, **options)
    (row, *_), expected = evaluate_cases([{**QUESTION, **options}]), answer.rows()[0]
    assert {n: v for n, v in row.items() if n.startswith(PREFIX)} == pytest.approx(
        {n: v for n, v in expected.items() if n.startswith(PREFIX)}
    )
    assert set(row) == set(expected)
    assert set(answer.serving) == set(applicable(answer.setting.options)) - (
        {"transfer_s"} if "prefill_devices" not in options else set()
    )
    assert answer.inputs["arrivals"] == ("closed" if options["arrivals"] == "closed" else "poisson")


def test_without_arrivals_nothing_changes() -> None:
    answer = llmcap.estimate(**QUESTION, users=4)
    assert answer.serving == {}
    assert "serving" not in answer.to_dict()
    assert "arrivals" not in answer.inputs
    assert not any(name.startswith(PREFIX) for row in answer.rows() for name in row)
    assert llmcap.estimate(**QUESTION, users=4, arrivals="together").to_dict() == answer.to_dict()


def test_cost_is_that_of_the_steady_state() -> None:
    answer = llmcap.estimate(**QUESTION, users=32, arrivals="closed", price_gpu_hour=3.6)
    # 2 devices at 3.60 USD an hour are 0.002 USD a second.
    per_token = 0.002 / answer.serving["output_tok_per_s"]
    assert answer.costs["usd_per_million_output_tokens"] == pytest.approx(1e6 * per_token)
    both = 0.002 / (answer.serving["requests_per_s"] * 1200)
    assert answer.costs["usd_per_million_tokens"] == pytest.approx(1e6 * both)


def test_every_column_is_named() -> None:
    assert len(set(COLUMNS)) == len(COLUMNS)


@pytest.mark.parametrize(
    ("options", "option", "word"),
    [
        ({"arrivals": 2}, "--arrivals", "no unit"),
        ({"arrivals": "2"}, "--arrivals", "2/s"),
        ({"arrivals": "2.5"}, "--arrivals", "no unit"),
        ({"arrivals": "-2/s"}, "--arrivals", "negative"),
        ({"arrivals": "0/s"}, "--arrivals", "greater than zero"),
        ({"arrivals": "nan/s"}, "--arrivals", ""),
        ({"arrivals": "cloosed"}, "--arrivals", "closed"),
        ({"arrivals": True}, "--arrivals", ""),
        ({"arrivals": "2/s", "users": 4}, "--users", "rate"),
        ({"arrivals": "2/s", "lengths": "equal"}, "--lengths", "rate"),
        ({"arrivals": "closed", "lengths": "odd"}, "--lengths", "varied"),
        ({"lengths": "equal"}, "--lengths", "--arrivals"),
        ({"arrivals": "closed", "lengths": "equal", "prefill_devices": 1}, "--lengths", "--prefill-devices"),
        ({"draft_tokens": 2, "acceptance": 0.8}, "--draft-tokens", "--arrivals"),
        ({"arrivals": "closed", "draft_tokens": 2}, "--acceptance", "--draft-tokens"),
        ({"arrivals": "closed", "acceptance": 0.8}, "--acceptance", "--draft-tokens"),
        ({"arrivals": "closed", "draft_tokens": 2, "acceptance": 1.5}, "--acceptance", "more than the whole"),
        ({"arrivals": "closed", "draft_tokens": 2, "acceptance": -0.5}, "--acceptance", "negative"),
        ({"arrivals": "closed", "draft_tokens": 0, "acceptance": 0.5}, "--draft-tokens", "at least 1"),
        ({"arrivals": "closed", "draft_tokens": 65, "acceptance": 0.5}, "--draft-tokens", "too large"),
        ({"arrivals": "closed", "prefill_devices": 2}, "--prefill-devices", "none to decode"),
        ({"arrivals": "closed", "prefill_devices": 0}, "--prefill-devices", "at least 1"),
        ({"arrivals": "closed", "prefill_devices": 1, "dp": 2}, "--dp", "pool"),
        ({"arrivals": "closed", "prefill_devices": 3, "devices": 8, "tp": 2}, "--prefill-tp", "3 prefill devices"),
        ({"arrivals": "closed", "assumptions": "ideal"}, "--arrivals", "calibrated"),
        ({"arrivals": "closed", "prefill_tp": 1}, "--prefill-tp", "--prefill-devices"),
        (
            {"arrivals": "closed", "prefill_devices": 4, "devices": 8, "prefill_tp": 3},
            "--prefill-tp",
            "4 prefill devices",
        ),
    ],
)
def test_bad_input_has_one_clear_error(options: dict[str, Any], option: str, word: str) -> None:
    with pytest.raises(OptionError) as caught:
        llmcap.estimate(**{**QUESTION, **options})
    assert caught.value.option == option
    assert word in str(caught.value)
    assert caught.value.hint


@pytest.mark.parametrize("ask", [llmcap.explain, llmcap.tiers])
def test_other_questions_refuse_a_load_that_they_would_ignore(ask: Any) -> None:
    with pytest.raises(OptionError) as caught:
        ask(**BASE, context="1k", draft_tokens=2)
    assert caught.value.option == "--draft-tokens"


def test_a_table_names_every_row_that_cannot_be() -> None:
    cases = [{**QUESTION, "arrivals": "2/s", "users": 3}, {**QUESTION, "arrivals": "closed", "prefill_devices": 2}]
    with pytest.raises(DocumentError) as caught:
        evaluate_cases(cases, file="mine.csv")
    assert [p.line for p in caught.value.problems] == [1, 2]


def test_counts_in_messages_read_well() -> None:
    assert format_count(5000) == "5,000"
