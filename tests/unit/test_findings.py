"""Sentences of a report say what its rows say, with units."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

import llmcap
from llmcap.report.document import cell_of, quantity
from llmcap.report.figures.style import shown_value
from llmcap.report.findings import findings
from llmcap.report.result_report import row_pictures
from llmcap.report.words import layout


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


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("draft_tokens", 2, "2 drafted"), ("acceptance", 0.875, "88% accepted"), ("arrivals_per_s", 1.0, "1 request/s"),
        ("arrivals_per_s", 2.5, "2.5 requests/s"), ("users", 1, "1 user"), ("tp", 8, "TP 8"),
    ],
)  # fmt: skip
def test_labels_of_lines_read_as_words(name: str, value: float, text: str) -> None:
    assert shown_value(name, value) == text
