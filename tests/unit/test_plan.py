"""plan: answers against trying everything, what is said without an answer, bands, steps, and prices."""

from __future__ import annotations

import math
import random
from typing import Any

import numpy as np
import pytest

import llmcap
from llmcap.analyses.options import options_from
from llmcap.analyses.planning.plan import Plan, plan
from llmcap.analyses.planning.sensitivity import MACHINE_KNOBS, Knob, tornado, turned
from llmcap.analyses.planning.solve import last_true
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError
from llmcap.specs.hardware import Server
from llmcap.specs.registry import load_as

PRICES = "hyperscaler-2026-04"
LAYOUTS: tuple[dict[str, int], ...] = (
    {}, {"devices": 1}, {"devices": 2}, {"tp": 4, "dp": 2}, {"tp": 2, "dp": 4}, {"tp": 4, "pp": 2}, {"tp": 8},
)  # fmt: skip


def small(seed: int) -> dict[str, Any]:
    """A machine, a load and objectives somewhere between far too tight and far too loose."""
    rng = random.Random(seed)
    asked: dict[str, Any] = {
        "model": rng.choice(("llama-3.1-8b", "llama-3.1-70b", "llama-4-scout")),
        "hardware": rng.choice(("dgx-h100", "dgx-h200", "dgx-b200")),
        "context": round(10 ** rng.uniform(2, 5)), "output_tokens": rng.choice((1, 50, 500)), **rng.choice(LAYOUTS),
        "assumptions": rng.choice(("calibrated", "calibrated", "ideal")),
    }  # fmt: skip
    if rng.random() < 0.5:
        asked["cached_tokens"] = rng.randrange(asked["context"])
    return asked


def times(asked: dict[str, Any], users: int, tier: str | None = None) -> tuple[bool, float, float]:
    """Whether it fits, and the two times, as estimate says."""
    answer = llmcap.estimate(users=users, **asked)
    if not answer.fits:
        return False, math.inf, math.inf
    first = answer.results["ttft_s"]
    if tier is not None:
        first = next(t["ttft_reload_s"] for t in answer.tiers if t["tier"] == tier)
    return True, first, answer.results["tpot_s"] or 0.0


def keeps(asked: dict[str, Any], users: int, ttft: float | None, tpot: float | None, tier: str | None = None) -> bool:
    fits, first, step = times(asked, users, tier)
    return fits and (ttft is None or first <= ttft) and (tpot is None or step <= tpot)


@pytest.mark.parametrize("seed", range(60))
def test_most_users_is_what_trying_every_number_finds(seed: int) -> None:
    rng = random.Random(1000 + seed)
    asked = small(seed)
    fits, first, step = times(asked, rng.randint(1, 40))
    ttft = first * rng.uniform(0.3, 3.0) if fits and rng.random() < 0.8 else None
    tpot = step * rng.uniform(0.8, 1.5) if fits and step and rng.random() < 0.6 else None
    tier = rng.choice((None, None, "dram", "nvme"))
    found = plan("users-max", ttft=ttft, tpot=tpot, tier=tier, sensitivity=False, **asked)
    users = found.answer["users"]
    # Neighbours, and a spread of others: nothing above may keep the objectives, everything below must.
    for n in {*range(max(users - 3, 1), users + 4), *(rng.randint(1, 2 * users + 20) for _ in range(12))}:
        assert keeps(asked, n, ttft, tpot, tier) == (n <= users), (n, users)
    assert found.feasible == (users > 0)


@pytest.mark.parametrize("seed", range(12))
def test_with_pipeline_stages_every_number_up_to_the_answer_keeps_the_objectives(seed: int) -> None:
    """Two steps may be faster than one there, so the first number that fails is the end."""
    rng = random.Random(4000 + seed)
    asked = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "context": rng.randint(50, 3000), "tp": 4, "pp": 2,
             "output_tokens": 20, "chunk_tokens": rng.choice((2048, 8192))}  # fmt: skip
    _, ttft, _ = times(asked, rng.randint(1, 60))
    users = plan("users-max", ttft=ttft, sensitivity=False, **asked).answer["users"]
    assert users >= 1
    assert [n for n in range(1, min(users, 80) + 1) if not keeps(asked, n, ttft, None)] == []
    assert not keeps(asked, users + 1, ttft, None)


@pytest.mark.parametrize("seed", range(20))
def test_fewest_devices_is_what_trying_every_number_finds(seed: int) -> None:
    rng = random.Random(2000 + seed)
    asked = {n: v for n, v in small(seed).items() if n not in ("devices", "tp", "dp", "pp")}
    users = rng.randint(1, 30)
    _, first, step = times({**asked, "devices": 4}, users)
    ttft = first * rng.uniform(0.3, 3.0) if math.isfinite(first) else None
    tpot = step * rng.uniform(0.5, 2.0) if math.isfinite(step) and step else None
    found = plan("devices-min", users=users, ttft=ttft, tpot=tpot, sensitivity=False, **asked)
    tp = llmcap.estimate(**asked).inputs["tp"]

    def layouts(devices: int) -> list[dict[str, int]]:
        n, inside = devices // 8, 8 // tp
        own = {"devices": devices}
        over = [{**own, "tp": tp, "dp": n * inside}, {**own, "tp": tp, "pp": n, "dp": inside}] if n > 1 else []
        return [own, *over]

    good = (
        devices
        for devices in (1, 2, 4, 8, *(8 * n for n in range(2, 17)))
        if any(keeps({**asked, **layout}, users, ttft, tpot) for layout in layouts(devices))
    )
    assert found.answer["devices"] == next(good, None)


@pytest.mark.parametrize("seed", range(20))
def test_fewest_drives_is_what_trying_every_number_finds(seed: int) -> None:
    rng = random.Random(3000 + seed)
    asked = {"model": "llama-3.1-8b", "hardware": "dgx-b200", "context": rng.choice((20_000, 100_000)),
             "cached_tokens": rng.choice((0, 10_000)), "users": rng.randint(1, 8)}  # fmt: skip
    sessions = round(10 ** rng.uniform(1, 4.5))
    ttft = rng.choice((None, 10 ** rng.uniform(-1, 1)))

    def enough(drives: int) -> bool:
        answer = llmcap.estimate(**asked, drives=drives)
        nvme = next(t for t in answer.tiers if t["tier"] == "nvme")
        return nvme["users_held"] >= sessions and (ttft is None or nvme["ttft_reload_s"] <= ttft)

    found = plan("drives-min", sessions=sessions, ttft=ttft, sensitivity=False, **asked).answer["drives"]
    if found is None:
        assert not enough(1024)
    else:
        assert enough(found)
        assert found == 1 or not enough(found - 1)


@pytest.mark.parametrize("tier", ["nvme", "dram", "cxl"])
@pytest.mark.parametrize("ttft", [0.3, 1.0, 3.0])
@pytest.mark.parametrize("assumptions", ["calibrated", "ideal"])
def test_a_tier_of_the_bandwidth_found_meets_the_objective(tier: str, ttft: float, assumptions: str) -> None:
    asked: dict[str, Any] = {"context": "200k", "users": 8, "cached_tokens": "190k", "assumptions": assumptions,
                             "tiers": ("cxl:2 TB:50 GB/s",)}  # fmt: skip
    found = plan("bandwidth-for", tier=tier, ttft=ttft, sensitivity=False, **asked)
    if not found.feasible:
        assert found.answer["floor_s"] > ttft
        assert found.found.relax[0]["needed"] == found.answer["floor_s"]
        return
    if tier == "cxl":
        rate = found.answer["nominal_bytes_per_s"]
        answer = llmcap.estimate(**{**asked, "tiers": (f"cxl:2 TB:{rate!r} B/s",)})
        reached = next(t for t in answer.tiers if t["tier"] == "cxl")["ttft_reload_s"]
        assert reached == pytest.approx(ttft, rel=1e-3)
    assert found.answer["floor_s"] <= ttft


def test_dram_for_sessions_by_hand() -> None:
    """Llama-3.1-8B, bf16 cache: 131,072 B a token; 100 sessions of 10,000 + 1,000 tokens are 144 GB."""
    found = plan("dram-min", model="llama-3.1-8b", context=10_000, output_tokens=1000, sessions=100, sensitivity=False)
    assert found.answer["dram_bytes"] == 100 * 11_000 * 131_072
    estimate = llmcap.estimate(
        model="llama-3.1-8b", context=10_000, output_tokens=1000, dram=f"{found.answer['dram_bytes']} B"
    )
    assert next(t for t in estimate.tiers if t["tier"] == "dram")["users_held"] == 100


def test_without_an_answer_it_says_what_to_relax_and_by_how_much() -> None:
    found = plan("users-max", ttft="1 s", tpot="1 ms", context="1M", sensitivity=False)
    assert not found.feasible
    assert {row["what"] for row in found.found.relax} == {"ttft", "tpot"}
    one = llmcap.estimate(context="1M").results
    needed = {row["what"]: row["needed"] for row in found.found.relax}
    assert needed["ttft"] == pytest.approx(one["ttft_s"], rel=1e-12)
    assert needed["tpot"] == pytest.approx(one["tpot_s"], rel=1e-12)
    # Giving way by that much is enough.
    relaxed = plan("users-max", ttft=needed["ttft"], tpot=needed["tpot"], context="1M", sensitivity=False)
    assert relaxed.answer["users"] >= 1


def test_weights_that_do_not_fit_are_short_of_memory() -> None:
    found = plan("users-max", model="llama-3.1-405b", hardware="dgx-h100", devices=1, context="1k", sensitivity=False)
    row = found.found.relax[0]
    assert (found.feasible, found.found.binding, row["what"]) == (False, "capacity", "capacity")
    assert row["needed"] > llmcap.load_model("llama-3.1-405b").max_context
    assert row["factor"] > 5.0


def test_the_binding_constraint_forbids_one_user_more() -> None:
    found = plan("users-max", ttft="2 s", tpot="50 ms", context="32k", sensitivity=False)
    users = found.answer["users"]
    more = llmcap.estimate(users=users + 1, context="32k").results
    assert found.found.binding == "ttft"
    assert more["ttft_s"] > 2.0
    assert found.found.forbidden[0]["needed"] == pytest.approx(more["ttft_s"], rel=1e-12)
    by_memory = plan("users-max", context="1M", sensitivity=False)
    assert by_memory.found.binding == "capacity"
    assert by_memory.answer["users"] == llmcap.estimate(context="1M").results["max_users_hbm"]


def test_next_steps_keep_what_they_promise() -> None:
    found = plan("users-max", ttft="2 s", context="32k", sensitivity=False)
    assert found.found.next
    for step in found.found.next:
        words = step["change"].split()
        changed = {n.removeprefix("--").replace("-", "_"): v for n, v in zip(words[::2], words[1::2], strict=True)}
        again = plan("users-max", ttft="2 s", context="32k", sensitivity=False, **changed)
        assert again.answer["users"] == step["users"] > found.answer["users"]
        assert step["gain"] == pytest.approx(step["users"] / found.answer["users"] - 1)


def test_bands_bracket_the_answer() -> None:
    found = plan("users-max", ttft="5 s", tpot="50 ms", context="32k", sensitivity=False)
    assert found.found.low and found.found.high
    assert found.found.low["users"] <= found.answer["users"] <= found.found.high["users"]
    careful = found.found.low["users"]
    assert llmcap.estimate(users=careful, context="32k").results["ttft_high_s"] <= 5.0
    assert llmcap.estimate(users=careful + 1, context="32k").results["ttft_high_s"] > 5.0


def test_the_tornado_table_repeats_the_question_with_one_thing_changed() -> None:
    found = plan("users-max", ttft="4 s", context="32k")
    rows = {row["what"]: row for row in found.sensitivity}
    assert set(MACHINE_KNOBS) <= set(rows)
    longer = plan("users-max", ttft="4.8 s", context="32k", sensitivity=False).answer["users"]
    shorter = plan("users-max", ttft="4 s", context=25_600, sensitivity=False).answer["users"]
    assert rows["ttft"]["answer_more"] == longer
    assert rows["context"]["answer_less"] == shorter
    swings = [row["swing"] for row in found.sensitivity]
    assert swings == sorted(swings, reverse=True)


def test_faster_machines_serve_no_fewer_users() -> None:
    rows = plan("users-max", ttft="4 s", tpot="20 ms", context="32k").sensitivity
    for row in rows:
        if row["what"] in MACHINE_KNOBS and row["what"] != "engine overhead":
            assert row["answer_less"] <= row["answer_more"]


@pytest.mark.parametrize("name", MACHINE_KNOBS)
def test_every_knob_turns_something(name: str) -> None:
    setting = resolve(options_from({}))
    assert turned(setting, Knob(name, 1.2)) != setting
    assert turned(setting, Knob(name, 1.0)) is setting


def test_tornado_orders_by_swing_and_counts_a_lost_answer_as_all_of_it() -> None:
    answers = {("context", 0.8): 12.0, ("context", 1.2): 9.0, ("users", 0.8): 10.0, ("users", 1.2): None}
    rows = tornado(lambda knob: answers[knob.name, round(knob.factor, 1)], 10.0, ["context", "users"])
    assert [(row["what"], row["swing"]) for row in rows] == [("users", 1.0), ("context", pytest.approx(0.3))]


def test_the_cheapest_machine_is_the_cheapest_that_keeps_the_objectives() -> None:
    asked: dict[str, Any] = {"model": "llama-3.1-70b", "users": 4, "context": "16k", "weight_dtype": "fp8"}
    found = plan("cheapest", ttft="3 s", tpot="40 ms", prices=PRICES, sensitivity=False, **asked)
    prices = [row["usd_per_hour"] for row in found.found.candidates]
    assert prices == sorted(prices)
    listed = {row["hardware"] for row in found.found.candidates}
    assert listed | {row["hardware"] for row in found.found.excluded} == set(_servers())
    for row in found.found.candidates:
        machine = {**{n: v for n, v in asked.items() if n != "users"}, "hardware": row["hardware"]}
        assert keeps({**machine, "devices": row["devices"]}, 4, 3.0, 0.04)
        smaller = [
            d for d in range(1, row["devices"]) if load_as(Server, "server", row["hardware"]).document.devices % d == 0
        ]
        assert not any(keeps({**machine, "devices": d}, 4, 3.0, 0.04) for d in smaller)


def _servers() -> list[str]:
    from llmcap.specs.registry import list_ids

    return list_ids("server")


def test_prices_by_hand() -> None:
    """8 devices at 1.80 USD an hour are 14.40 USD an hour; over the tokens of an hour that is the price of a token."""
    found = plan("users-max", ttft="2 s", context="32k", price_gpu_hour=1.8, sensitivity=False)
    costs, r = found.found.costs, found.found.results
    assert costs["usd_per_hour"] == pytest.approx(14.4)
    assert costs["usd_per_million_output_tokens"] == pytest.approx(14.4 / 3600 / r["output_tok_per_s"] * 1e6)
    on_top = plan("users-max", ttft="2 s", context="32k", price_gpu_hour=1.8, price_kwh="0.1 USD", sensitivity=False)
    assert on_top.found.costs["usd_per_hour"] == pytest.approx(14.4 + 14.3 * 0.1)


def test_without_prices_there_is_no_cost() -> None:
    assert "costs" not in plan("users-max", ttft="2 s", context="32k", sensitivity=False).to_dict()


@pytest.mark.parametrize(
    ("question", "given", "words"),
    [
        ("users-min", {}, "users-max"),
        ("users-max", {"users": 3}, "--users"),
        ("users-max", {"ttft": "2"}, "no unit"),
        ("users-max", {"ttft": "0 s"}, "greater than zero"),
        ("users-max", {"ttft": -1}, "negative"),
        ("users-max", {"tier": "nvm"}, "nvme"),
        ("bandwidth-for", {"ttft": "2 s"}, "needs a tier"),
        ("bandwidth-for", {"tier": "nvme"}, "--ttft"),
        ("cheapest", {"ttft": "2 s"}, "--prices"),
        ("cheapest", {"price_gpu_hour": 2}, "one kind of device"),
        ("users-max", {"price_gpu_hour": "cheap"}, "USD"),
    ],
)
def test_questions_that_cannot_be_answered(question: str, given: dict[str, Any], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        plan(question, **given)


def test_answers_are_plain_data() -> None:
    import json

    for found in _one_of_each():
        told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert told["schema"] == "llmcap.plan/1"
        assert {"question", "inputs", "objectives", "feasible", "answer", "binding", "text"} <= set(told)
        assert len(found.to_frame()) >= 1


def _one_of_each() -> list[Plan]:
    load: dict[str, Any] = {"context": "32k", "users": 4, "sensitivity": False}
    return [
        plan("users-max", ttft="2 s", context="32k", sensitivity=False),
        plan("devices-min", ttft="9 s", **load),
        plan("dram-min", sessions=900, **load),
        plan("drives-min", sessions=90_000, **load),
        plan("bandwidth-for", tier="nvme", ttft="2 s", **load),
        plan("bandwidth-for", tier="nvme", ttft="1 ms", **load),
        plan("users-max", ttft="1 ms", context="32k", sensitivity=False),
        plan("devices-min", ttft="1 ms", **load),
    ]


@pytest.mark.parametrize("turning", [1, 2, 3, 31, 32, 33, 999, 1000])
def test_searches_find_the_turning_point(turning: int) -> None:
    asked: list[float] = []

    def below(x: np.ndarray) -> np.ndarray:
        asked.extend(x.tolist())
        return x <= turning

    assert last_true(below, 1, 1000) == turning
    assert len(asked) < 200
    assert last_true(lambda x: x < 1, 1, 1000) is None
    assert last_true(lambda x: x < 1, 1, 0) is None
