"""explain: rows add up to the estimate, formulas evaluate to the rows, numbers have sources."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

import llmcap
from llmcap.analyses.explaining.explain import Explanation, explain
from llmcap.analyses.explaining.formulas import num, product
from llmcap.analyses.explaining.vouching import documents_of
from llmcap.errors import OptionError

MODELS = ("llama-4-maverick", "llama-4-scout", "llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b")
SERVERS = ("dgx-b200", "dgx-h200", "dgx-h100", "dgx-b200-gen6")
LAYOUTS: tuple[dict[str, int], ...] = (
    {}, {"tp": 8}, {"tp": 4, "dp": 2}, {"tp": 2, "dp": 2, "pp": 2}, {"tp": 4, "cp": 2}, {"tp": 1, "pp": 8},
    {"devices": 16, "tp": 8, "pp": 2}, {"devices": 16, "tp": 8, "dp": 2}, {"devices": 1}, {"devices": 2, "tp": 1},
)  # fmt: skip


def evaluated(formula: str) -> float:
    """The arithmetic that the page prints, as a calculator would do it."""
    return float(eval(formula, {"__builtins__": {}}, {"hypot": math.hypot, "min": min, "max": max}))


def close(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-300)


def random_question(rng: random.Random) -> dict[str, Any]:
    """A question over models, machines, layouts, dtypes, assumptions and lengths."""
    context = round(10 ** rng.uniform(0, 5.5))
    asked: dict[str, Any] = {
        "model": rng.choice(MODELS), "hardware": rng.choice(SERVERS), "users": rng.choice((1, 1, 2, 3, 7, 20)),
        "context": context, "cached_tokens": rng.choice((0, 0, rng.randrange(context))),
        "output_tokens": rng.choice((1, 2, 100, 1000)), **rng.choice(LAYOUTS),
    }  # fmt: skip
    asked["assumptions"] = rng.choice(("calibrated", "calibrated", "ideal", "as-published"))
    if asked["assumptions"] == "as-published":
        asked |= {"model": rng.choice(MODELS[:2]), "hardware": rng.choice(("dgx-b200", "dgx-b200-gen6"))}
    dtype = rng.choice((None, None, "bf16", "fp8", "int4", "mxfp4"))
    if dtype is not None:
        asked["weight_dtype"] = dtype
    if "llama-4" in asked["model"] and rng.random() < 0.5:
        asked["ep"] = asked.get("tp", 1)
    return asked


def questions(number: int, seed: int) -> list[dict[str, Any]]:
    """Random questions that fit and whose options go together."""
    rng, found = random.Random(seed), []
    while len(found) < number:
        asked = random_question(rng)
        try:
            fits = llmcap.estimate(**asked).fits
        except OptionError:
            continue
        if fits:
            found.append(asked)
    return found


def check(told: Explanation) -> None:
    rows = told.rows
    assert rows
    assert close(math.fsum(row["time_s"] for row in rows), told.total_s or 0.0) or told.total_s == 0.0
    for row in rows:
        assert close(evaluated(row["formula"]), row["time_s"]), row
        assert row["source"]
        assert row["bound"] in ("compute", "memory", "network", "overhead")


def test_the_rows_of_200_random_cases_add_up_to_the_estimate() -> None:
    kinds = set()
    for asked in questions(200, seed=1):
        told = explain(**asked)
        r = told.estimate.results
        assert told.total_s == r["e2el_s"]
        check(told)
        assert close(math.fsum(x["time_s"] for x in told.rows if x["phase"] == "prefill"), r["ttft_s"])
        kinds.add((asked["assumptions"], asked["model"]))
    assert {assumptions for assumptions, _ in kinds} == {"calibrated", "ideal", "as-published"}
    assert {model for _, model in kinds} == set(MODELS)


@pytest.mark.parametrize("term", ["prefill", "decode", "tier:dram", "tier:nvme", "tier:hbm"])
@pytest.mark.parametrize("assumptions", ["calibrated", "ideal", "as-published"])
def test_every_term_adds_up(term: str, assumptions: str) -> None:
    told = explain(term=term, users=3, context="100k", cached_tokens="60k", assumptions=assumptions)
    check(told)
    r = told.estimate.results
    if term.startswith("tier:"):
        tier = next(t for t in told.estimate.tiers if t["tier"] == term[5:])
        assert told.total_s == tier["ttft_reload_s"]
        for hop in told.hops:
            assert close(evaluated(hop["formula"]), hop["effective_bytes_per_s"])
    else:
        assert told.total_s == pytest.approx({"prefill": r["ttft_s"], "decode": 999 * r["tpot_s"]}[term])


def test_the_cache_of_maverick_by_hand() -> None:
    told = explain(term="kv", context="1M", output_tokens=1000)
    assert [(row["operator"], row["bytes"]) for row in told.rows] == [
        ("full.KV", 2 * 8 * 128 * 12 * 1_001_000),
        ("chunked.KV", 2 * 8 * 128 * 36 * 8_192),
    ]
    assert told.to_dict()["total_bytes"] == 25_204_555_776
    assert [evaluated(row["formula"]) for row in told.rows] == [row["bytes"] for row in told.rows]


def test_a_matrix_product_by_hand() -> None:
    """Llama-3.1-8B, one H100, ideal, 1,000 tokens: the up and gate product is 2 x 1,000 x 4,096 x 28,672 a layer."""
    told = explain(
        model="llama-3.1-8b", hardware="dgx-h100", devices=1, context=1000, output_tokens=1, assumptions="ideal"
    )
    row = next(r for r in told.rows if r["operator"].endswith(".up"))
    flop = 2 * 1000 * 4096 * 28672 * 32
    assert row["flop"] == pytest.approx(flop, rel=1e-12)
    assert row["time_s"] == pytest.approx(flop / 989.4e12, rel=1e-3)


def test_flop_and_bytes_of_all_devices_give_mfu_and_mbu() -> None:
    for asked in questions(40, seed=2):
        told = explain(**{**asked, "assumptions": "calibrated", "weight_dtype": "bf16"})
        setting, r = told.estimate.setting, told.estimate.results
        if not told.estimate.fits:
            continue
        # bf16 throughout but for fp8 caches, so that one peak stands under all FLOP.
        if setting.attention_dtype != "bf16":
            continue
        devices = setting.machine.devices
        flop = sum(row["flop"] for row in told.rows if row["phase"] == "prefill")
        assert flop / (setting.machine.peak("bf16") * devices) / r["ttft_s"] == pytest.approx(r["mfu"], rel=1e-9)
        if asked["output_tokens"] > 1:
            moved = sum(x["bytes"] for x in told.rows if x["phase"] == "decode" and x["bound"] != "network")
            after = (asked["output_tokens"] - 1) * r["tpot_s"]
            share = moved / (setting.machine.device.memory.bandwidth * devices) / after
            assert share == pytest.approx(r["mbu"], rel=1e-9)


def test_bands_add_up_to_the_band() -> None:
    told = explain(context="64k", users=4)
    prefill = [row for row in told.rows if row["phase"] == "prefill"]
    assert math.fsum(r["low_s"] for r in prefill) == pytest.approx(told.estimate.results["ttft_low_s"], rel=1e-9)
    assert math.fsum(r["high_s"] for r in prefill) == pytest.approx(told.estimate.results["ttft_high_s"], rel=1e-9)


def test_overlapped_rows_say_what_counts() -> None:
    told = explain(context="100k", assumptions="ideal")
    assert told.binding == {"prefill": "compute", "decode": "memory"}
    hidden = next(row for row in told.rows if row["operator"] == "all-reduce" and row["phase"] == "prefill")
    assert (hidden["time_s"], hidden["bound"], hidden["formula"]) == (0.0, "network", "0")
    assert any("overlap" in note for note in told.notes)


def test_numbers_have_sources() -> None:
    told = explain(context="1M", cached_tokens="900k", term="tier:nvme")
    named = {(s["what"], s["field"].split(".")[0]) for s in told.sources}
    assert {("model", "mixers"), ("device", "peaks"), ("drive", "read"), ("transfers", "drive")} <= named
    assert any(s["what"] == "calibration" and s["kind"] == "measured" for s in told.sources)
    known = documents_of(told.estimate.setting)
    for row in told.rows:
        for part in row["source"].split("; "):
            assert part.split()[0] in known, part


def test_what_does_not_fit_has_no_rows_but_a_cache() -> None:
    told = explain(users=10_000)
    assert (told.rows, told.total_s, told.estimate.fits) == ([], None, False)
    assert explain(users=10_000, term="kv").rows


def test_one_output_token_has_no_decode() -> None:
    told = explain(context="1k", output_tokens=1)
    assert {row["phase"] for row in told.rows} == {"prefill"}


def test_unknown_terms_are_refused() -> None:
    with pytest.raises(OptionError, match="tier:nvme"):
        explain(term="tier:nvm")


def test_numbers_for_a_calculator() -> None:
    assert [num(v) for v in (4.5e15, 8192.0, 1e6, 7.393e-06, 0.1, 123456789.0)] == [
        "4.5e15", "8192", "1e6", "7.393e-6", "0.1", "123456789",
    ]  # fmt: skip
    assert product(1, 1.0) == "1"
    assert product(2, "(a + b)", 3) == "2*(a + b)*3"


def test_one_token_of_output_leaves_nothing_to_decode() -> None:
    told = explain(context="1k", output_tokens=1, term="decode")
    assert told.rows == []
    assert told.notes == ["nothing is decoded: the one token of output comes with the prefill"]
