"""Power, energy and money of an answer, by hand, and what is absent without a price or a figure."""

from __future__ import annotations

from typing import Any

import pytest

import llmcap
from llmcap.analyses.economics import dollars, economics, price_list
from llmcap.errors import OptionError

INPUTS = {"users": 10, "context_tokens": 900, "output_tokens": 100}
RESULTS = {"output_tok_per_s": 500.0, "e2el_s": 2.0}


def costs(prices: Any, **more: Any) -> dict[str, Any]:
    setting = llmcap.estimate(model="llama-3.1-8b", hardware="dgx-h100", context=1000, **more).setting
    return economics(setting, INPUTS, RESULTS, prices)


def test_eight_devices_by_hand() -> None:
    """8 x 1.80 USD/h = 14.40 USD/h = 0.004 USD/s: over 500 tokens a second 8 USD a million, over 10,000 tokens in 2 s
    0.80 USD a million."""
    found = costs(price_list(None, 1.8, device="h100"))
    assert found["usd_per_hour"] == pytest.approx(14.4)
    assert found["usd_per_million_output_tokens"] == pytest.approx(8.0)
    assert found["usd_per_million_tokens"] == pytest.approx(0.8)


def test_electricity_comes_on_top_when_it_has_a_price() -> None:
    """A DGX H100 draws 10.2 kW at most: 0.1 USD a kWh adds 1.02 USD an hour."""
    found = costs(price_list(None, 1.8, 0.1, device="h100"))
    assert found["usd_per_hour"] == pytest.approx(14.4 + 1.02)
    assert found["power_w"] == pytest.approx(10_200)
    assert found["energy_j_per_output_token"] == pytest.approx(10_200 / 500)


def test_a_price_list_names_itself_and_its_date() -> None:
    listed = price_list("hyperscaler-2026-04")
    found = costs(listed)
    assert (found["prices"], found["prices_as_of"]) == ("hyperscaler-2026-04", "2026-04-03")
    assert found["usd_per_hour"] == pytest.approx(8 * 1.3)
    changed = costs(price_list("hyperscaler-2026-04", 2, device="h100"))
    assert changed["usd_per_hour"] == pytest.approx(16.0)


def test_fewer_devices_cost_less() -> None:
    prices = price_list(None, 2, device="h100")
    assert costs(prices, devices=2)["usd_per_hour"] == pytest.approx(4.0)


def test_what_is_not_known_is_absent() -> None:
    assert costs(None) == {}
    only_power = costs(price_list(None, None, 0.1))
    assert "usd_per_hour" not in only_power
    assert only_power["power_w"] == pytest.approx(10_200)
    setting = llmcap.estimate(model="llama-3.1-8b", hardware="dgx-h100", context=1000).setting
    short = economics(setting, INPUTS, {"output_tok_per_s": None, "e2el_s": None}, price_list(None, 2, device="h100"))
    assert "usd_per_million_tokens" not in short
    assert short["usd_per_hour"] == pytest.approx(16.0)


@pytest.mark.parametrize("value", ["2", 2, 2.0, "2 USD", "0.002 kUSD"])
def test_amounts(value: object) -> None:
    assert dollars("price_kwh", value) == 2.0


@pytest.mark.parametrize("value", ["", "x", "-1", 0, True, "2 EUR", float("nan")])
def test_what_is_no_amount(value: object) -> None:
    with pytest.raises(OptionError, match="price-kwh"):
        dollars("price_kwh", value)
