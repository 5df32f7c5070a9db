"""plan --rate-max and --clients-max: answers against estimate --arrivals, bands, and what is said without one."""

from __future__ import annotations

import random
from typing import Any

import pytest

import llmcap
from llmcap.analyses.options import options_from
from llmcap.analyses.planning.asked import Asked
from llmcap.analyses.planning.objectives import Load, Objectives
from llmcap.analyses.planning.plan import plan
from llmcap.analyses.planning.plan_load import clients_of, highest_rate, model_of, rate_of, rounded_down
from llmcap.analyses.planning.solve import last_rate
from llmcap.errors import OptionError

CASE: dict[str, Any] = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "context": 4000, "output_tokens": 500}
TIMES = ("ttft", "ttft_p95", "tpot")


def drawn(rng: random.Random) -> dict[str, Any]:
    """A machine and a length of requests."""
    case: dict[str, Any] = {
        "model": rng.choice(("llama-3.1-8b", "llama-3.1-70b", "gpt-oss-120b", "llama-4-scout")),
        "hardware": rng.choice(("dgx-h100", "dgx-h200", "dgx-b200")), "weight_dtype": "fp8",
        "engine": rng.choice(("vllm", "sglang", "tensorrt-llm")), "context": round(10 ** rng.uniform(1.5, 4.7)),
        "output_tokens": round(10 ** rng.uniform(0.0, 3.3)),
        **rng.choice(({}, {"tp": 4, "pp": 2}, {"tp": 2, "dp": 4}, {"prefill_devices": 4},
                      {"draft_tokens": 1, "acceptance": 0.8})),
    }  # fmt: skip
    if rng.random() < 0.4:
        case["cached_tokens"] = rng.randrange(case["context"])
    return case


def question(case: dict[str, Any], arrivals: str, limits: dict[str, float]) -> Asked:
    structure = {n: v for n, v in case.items() if n not in ("context", "output_tokens", "cached_tokens")}
    options = options_from(structure | {"arrivals": arrivals}, under_load=True)
    load = Load(1, case["context"], case.get("cached_tokens", 0), case["output_tokens"], 1)
    return Asked(options, load, Objectives(**limits))


def steady(case: dict[str, Any], rate: float | None = None, clients: int = 1) -> dict[str, Any]:
    """As estimate says."""
    arrivals = "closed" if rate is None else f"{rate!r}/s"
    return llmcap.estimate(users=clients, arrivals=arrivals, **case).serving


def keeps(found: dict[str, Any], limits: dict[str, float]) -> bool:
    """Whether all objectives are kept; a single token has no time per token."""
    return found["ttft_s"] is not None and all(
        found[f"{name}_s"] is None or found[f"{name}_s"] <= limit * (1.0 + 1e-12) for name, limit in limits.items()
    )


@pytest.mark.parametrize("seed", range(30))
def test_the_rate_keeps_the_objectives_and_one_per_cent_more_does_not(seed: int) -> None:
    rng = random.Random(5000 + seed)
    case = drawn(rng)
    alone = steady(case, 1e-6)
    if not alone["fits"]:
        assert rate_of(question(case, "1/s", {"ttft": 1e6})) is None
        return
    most = alone["saturation_requests_per_s"]
    there = steady(case, most * rng.uniform(0.05, 0.99))
    limits = {n: there[f"{n}_s"] * rng.uniform(0.9, 1.5) for n in TIMES if rng.random() < 0.5 and there[f"{n}_s"]}
    limits = limits or {"ttft": there["ttft_s"]}
    rate = rate_of(question(case, "1/s", limits))
    if rate is None:
        assert not keeps(steady(case, most * 1e-5), limits)
        return
    assert keeps(steady(case, rate), limits)
    assert not keeps(steady(case, 1.01 * rate), limits)
    for _ in range(4):
        assert keeps(steady(case, rate * rng.random()), limits)
        assert not keeps(steady(case, rate * rng.uniform(1.01, 3.0)), limits)


@pytest.mark.parametrize("seed", range(20))
def test_the_clients_keep_the_objectives_and_one_more_does_not(seed: int) -> None:
    rng = random.Random(6000 + seed)
    case = drawn(rng)
    alone = steady(case)
    if not alone["fits"]:
        assert clients_of(question(case, "closed", {"ttft": 1e6})) is None
        return
    there = steady(case, clients=round(10 ** rng.uniform(0.0, 3.0)))
    limits = {"ttft": there["ttft_s"] * rng.uniform(0.9, 1.5)}
    if rng.random() < 0.5 and there["tpot_s"]:
        limits["tpot"] = there["tpot_s"] * rng.uniform(0.9, 1.5)
    found = clients_of(question(case, "closed", limits))
    if found is None:
        assert not keeps(alone, limits)
        return
    clients = int(found)
    assert keeps(steady(case, clients=clients), limits)
    assert not keeps(steady(case, clients=clients + 1), limits)
    assert keeps(steady(case, clients=rng.randint(1, clients)), limits)
    assert not keeps(steady(case, clients=clients + rng.randint(1, 3 * clients)), limits)


def test_the_ends_of_the_band_are_where_the_ends_of_the_times_meet_the_objective() -> None:
    """With a mean time, whose ends estimate tells; as long as saturation's own band does not end before."""
    asked = question(CASE, "1/s", {"ttft": 0.3})
    model = model_of(asked)
    low, high = (highest_rate(asked.with_band(band), model) for band in ("high", "low"))
    assert low is not None and high is not None
    assert low[0] < high[0]
    assert steady(CASE, low[0])["ttft_high_s"] == pytest.approx(0.3, rel=1e-3)
    assert steady(CASE, high[0])["ttft_low_s"] == pytest.approx(0.3, rel=1e-3)


def test_the_ends_of_the_band_stay_within_those_of_saturation() -> None:
    found = plan("rate-max", ttft="1 h", sensitivity=False, **CASE).found
    s = steady(CASE, 1.0)
    assert found.low is not None and found.high is not None
    low, high = (s[f"saturation_{end}_tok_per_s"] / 500 for end in ("low", "high"))
    assert found.low["requests_per_s"] == pytest.approx(low, rel=1e-3)
    assert found.high["requests_per_s"] <= high


def test_the_answer_carries_the_steady_state_that_estimate_tells() -> None:
    told = plan("rate-max", ttft_p95="2 s", **CASE).to_dict()
    rate = told["answer"]["requests_per_s"]
    there = steady(CASE, rate)
    assert told["results"] == there
    assert told["answer"]["serving_ttft_p95_s"] == there["ttft_p95_s"] <= 2.0
    assert told["binding"] == "ttft_p95"
    assert told["forbidden"][0]["needed"] > 2.0
    assert told["slack"]["ttft_p95"]["left"] == pytest.approx(1.0 - there["ttft_p95_s"] / 2.0)
    assert told["slack"]["saturation"]["left"] == pytest.approx(1.0 - there["utilisation"])
    assert (told["inputs"]["arrivals"], "arrivals_per_s" in told["inputs"]) == ("poisson", False)
    assert "Poisson arrivals" in [row["name"] for row in told["assumptions"]]
    assert f"{rate:g} requests/s" in told["text"]
    swings = {row["what"]: row for row in told["sensitivity"]}
    assert swings["ttft_p95"]["answer_less"] <= rate <= swings["ttft_p95"]["answer_more"]
    assert swings["context"]["answer_more"] < rate < swings["context"]["answer_less"]


def test_each_next_step_is_the_answer_to_the_question_with_it() -> None:
    found = plan("rate-max", ttft="1 s", sensitivity=False, **CASE).found
    step = next(row for row in found.next if row["change"] == "--weight-dtype fp8")
    again = plan("rate-max", ttft="1 s", sensitivity=False, weight_dtype="fp8", **CASE)
    assert step["requests_per_s"] == again.answer["requests_per_s"]
    assert step["gain"] == pytest.approx(again.answer["requests_per_s"] / found.answer["requests_per_s"] - 1.0)


@pytest.mark.parametrize(("asked", "limits"), [("rate-max", {"ttft_p95": 0.01, "tpot": 0.001}),
                                               ("clients-max", {"ttft": 0.01, "tpot": 0.001})])  # fmt: skip
def test_objectives_that_one_request_alone_misses(asked: str, limits: dict[str, float]) -> None:
    found = plan(asked, sensitivity=False, **limits, **CASE)
    assert not found.feasible
    alone = steady(CASE, 1e-5) if asked == "rate-max" else steady(CASE)
    needed = {row["what"]: row["needed"] for row in found.found.relax}
    assert needed == pytest.approx({name: alone[f"{name}_s"] for name in limits}, rel=1e-4)
    assert "one request alone takes" in found.found.text
    loose = {name: 1.01 * value for name, value in needed.items()}
    assert plan(asked, sensitivity=False, **loose, **CASE).feasible


def test_what_does_not_fit_has_no_rate() -> None:
    found = plan("rate-max", ttft="1 h", sensitivity=False, model="llama-3.1-405b", hardware="dgx-h100", devices=1)
    assert (found.feasible, found.found.binding) == (False, "capacity")
    assert found.answer["requests_per_s"] == 0.0
    assert "weights" in found.found.text


def test_a_rate_asks_for_an_objective() -> None:
    with pytest.raises(OptionError, match="saturation"):
        plan("rate-max", **CASE)


def test_rates_are_rounded_down_to_four_digits() -> None:
    rng = random.Random(7)
    for _ in range(200):
        x = 10 ** rng.uniform(-6, 6)
        down = rounded_down(x)
        assert 0.999 * x < down <= x
        assert float(f"{down:.4g}") == down
    assert rounded_down(0.0) == 0.0


def test_a_rate_is_found_wherever_it_is() -> None:
    for end in (1e-5, 0.03, 0.05, 0.4, 0.999, 1.0):
        found = last_rate(lambda x, end=end: x <= end, 1e-6, 1.0)  # type: ignore[misc]
        assert found is not None
        assert found[0] <= end <= found[1]
        assert found[1] - found[0] <= 2e-5 * found[1]
    assert last_rate(lambda x: x < 0.0, 1e-6, 1.0) is None
