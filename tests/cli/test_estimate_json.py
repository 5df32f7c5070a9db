"""The JSON of `llmcap estimate`: the keys, sums and rules that other programs rely on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

INPUTS = {
    "model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp", "users", "context_tokens", "cached_tokens",
    "output_tokens", "weight_dtype", "activation_dtype", "kv_dtype", "kv_policy", "assumptions",
}  # fmt: skip
TIMES = {
    "prefill_s", "ttft_s", "ttft_low_s", "ttft_high_s", "ttft_mean_s", "tpot_s", "e2el_s", "output_tok_per_s", "mfu",
    "mbu",
}  # fmt: skip
RESULTS = TIMES | {
    "kv_bytes_per_token", "kv_bytes_per_user", "kv_bytes_total", "kv_bytes_total_reserved", "weight_bytes",
    "weight_bytes_per_device", "hbm_free_bytes", "max_users_hbm", "fits", "limit",
}  # fmt: skip
TIER = {
    "tier", "capacity_bytes", "read_bytes_per_s", "effective_read_bytes_per_s", "users_held", "reload_s",
    "ttft_reload_s", "ttft_hybrid_s", "recompute_s", "speedup", "winner", "break_even_bytes_per_s", "break_even_tokens",
}  # fmt: skip

CASES: dict[str, tuple[str, ...]] = {
    "default": (),
    "many users": ("--users", "10", "--context", "250k"),
    "cached prefix": ("--context", "100k", "--cached-tokens", "90k"),
    "data parallel": (
        "--model", "llama-3.1-8b", "--hardware", "dgx-h200", "--tp", "2", "--users", "5", "--context", "8k",
    ),
    "ideal": ("--assumptions", "ideal",),
    "more tiers": ("--store", "object-store-100g", "--tier", "cxl:2 TB:100 GB/s", "--context", "32k"),
    "one output token": ("--output-tokens", "1", "--context", "10k"),
}  # fmt: skip


@pytest.fixture(params=CASES, ids=lambda name: name.replace(" ", "-"))
def answer(request: pytest.FixtureRequest, llmcap: Callable[..., Any]) -> Any:
    ran = llmcap("estimate", "--format", "json", *CASES[request.param])
    assert (ran.status, ran.err) == (0, "")
    return ran.json()


def test_has_the_keys_of_the_contract(answer: Any) -> None:
    assert answer["schema"] == "llmcap.estimate/1"
    assert set(answer["inputs"]) >= INPUTS
    assert set(answer["results"]) >= RESULTS
    assert [p["name"] for p in answer["phases"]] == ["embedding", "prefill", "decode", "post-processing"]
    assert [t["tier"] for t in answer["tiers"]][:3] == ["hbm", "dram", "nvme"]
    for tier in answer["tiers"]:
        assert set(tier) >= TIER
    for assumption in answer["assumptions"]:
        assert {"name", "text", "source", "bias"} <= set(assumption)
    assert answer["provenance"]["version"]
    specs = answer["provenance"]["specs"]
    assert all(len(s["sha256"]) == 64 for s in specs)
    # A calibration has its device's id: only the kind tells them apart.
    assert {s["kind"] for s in specs} >= {"model", "server", "device", "calibration", "engine", "assumptions"}
    assert len({(s["id"], s["kind"]) for s in specs}) == len(specs)


def test_times_add_up(answer: Any) -> None:
    r, i = answer["results"], answer["inputs"]
    phases = {p["name"]: p["time_s"] for p in answer["phases"]}
    tpot = r["tpot_s"] or 0.0
    assert r["prefill_s"] == r["ttft_s"]
    assert sum(phases.values()) == pytest.approx(r["e2el_s"])
    assert phases["embedding"] + phases["prefill"] == pytest.approx(r["ttft_s"])
    assert r["e2el_s"] == pytest.approx(r["ttft_s"] + (i["output_tokens"] - 1) * tpot)
    assert r["output_tok_per_s"] == pytest.approx(i["users"] * i["output_tokens"] / r["e2el_s"])
    assert r["ttft_mean_s"] <= r["ttft_s"] * (1 + 1e-12)
    if i["assumptions"] == "ideal":
        assert r["ttft_low_s"] is None
        assert r["ttft_high_s"] is None
    else:
        assert r["ttft_low_s"] < r["ttft_s"] < r["ttft_high_s"]
    assert (r["tpot_s"] is None) == (i["output_tokens"] == 1)


def test_memory_adds_up(answer: Any) -> None:
    r, i = answer["results"], answer["inputs"]
    assert r["kv_bytes_total"] == i["users"] * r["kv_bytes_per_user"]
    assert r["kv_bytes_total_reserved"] >= r["kv_bytes_total"]
    assert r["weight_bytes_per_device"] <= r["weight_bytes"]
    assert isinstance(r["max_users_hbm"], int)
    assert r["max_users_hbm"] >= i["users"]
    assert r["fits"] is True
    assert r["limit"] in ("compute", "memory", "network", "overhead")
    assert 0 < r["mfu"] <= 1
    if i["output_tokens"] > 1:
        assert 0 < r["mbu"] <= 1


def test_tiers_follow_their_definitions(answer: Any) -> None:
    r, i = answer["results"], answer["inputs"]
    for tier in answer["tiers"]:
        held = r["max_users_hbm"] if tier["tier"] == "hbm" else tier["capacity_bytes"] // r["kv_bytes_per_user"]
        assert tier["users_held"] == held
        assert tier["winner"] == ("reload" if tier["ttft_reload_s"] < tier["recompute_s"] else "recompute")
        assert tier["effective_read_bytes_per_s"] <= tier["read_bytes_per_s"]
        assert tier["ttft_hybrid_s"] <= min(tier["ttft_reload_s"], tier["recompute_s"]) * (1 + 1e-9)
        assert tier["reload_s"] - 1e-12 <= tier["ttft_reload_s"]
        if tier["tier"] == "hbm":
            assert tier["reload_s"] == 0
            assert tier["break_even_bytes_per_s"] is None
            assert tier["break_even_tokens"] is None
        else:
            assert tier["speedup"] == pytest.approx(tier["recompute_s"] / tier["ttft_reload_s"])
    if not i["cached_tokens"]:
        assert answer["tiers"][0]["speedup"] is None
        for tier in answer["tiers"]:
            assert tier["ttft_reload_s"] == tier["reload_s"]
            assert tier["recompute_s"] == pytest.approx(r["prefill_s"])


def test_the_default_question(llmcap: Callable[..., Any]) -> None:
    answer = llmcap("estimate", "--format", "json").json()
    assert answer["inputs"] | {
        "model": "llama-4-maverick", "hardware": "dgx-b200", "devices": 8, "tp": 8, "users": 1, "sessions": 1,
        "context_tokens": 1_000_000, "cached_tokens": 0, "output_tokens": 1000, "weight_dtype": "fp8",
        "activation_dtype": "fp8", "kv_dtype": "fp8", "kv_policy": "hybrid", "assumptions": "calibrated",
    } == answer["inputs"]  # fmt: skip
    # 12 global layers keep everything, 36 one chunk of 8,192; 8 heads of 128, K and V, one byte each.
    by_hand = 2 * 8 * 128 * (12 * 1_001_000 + 36 * 8192)
    assert answer["results"]["kv_bytes_total"] == by_hand == 25_204_555_776


def test_the_command_answers_as_the_python_call_does(llmcap: Callable[..., Any]) -> None:
    import llmcap as package

    asked = {"model": "llama-3.1-70b", "hardware": "dgx-h200", "context": "32Ki", "users": 4, "kv_dtype": "bf16"}
    arguments = [text for name, value in asked.items() for text in (f"--{name.replace('_', '-')}", value)]
    assert llmcap("estimate", "--format", "json", *arguments).json() == package.estimate(**asked).to_dict()


def test_what_does_not_fit_has_no_times(llmcap: Callable[..., Any]) -> None:
    ran = llmcap(
        "estimate", "--format", "json", "--model", "llama-3.1-405b", "--hardware", "dgx-h100", "--weight-dtype", "bf16",
        "--context", "128Ki", "--users", "64",
    )  # fmt: skip
    answer = ran.json()
    assert ran.status == 4
    assert "short by" in ran.err
    assert "fit" in ran.err
    assert answer["results"]["fits"] is False
    assert answer["results"]["limit"] == "capacity"
    assert answer["results"]["hbm_free_bytes"] < 0
    assert {answer["results"][name] for name in TIMES} == {None}
    assert {p["time_s"] for p in answer["phases"]} == {None}
    for tier in answer["tiers"]:
        assert {tier[n] for n in ("reload_s", "ttft_reload_s", "recompute_s", "speedup", "winner")} == {None}
        assert tier["capacity_bytes"] > 0


def test_past_the_context_limit_warns(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("estimate", "--context", "2M", "--format", "json")
    assert ran.status == 0
    assert any("1,048,576" in warning for warning in ran.json()["warnings"])


def test_sessions_beyond_a_tier_are_told(llmcap: Callable[..., Any]) -> None:
    answer = llmcap("estimate", "--sessions", "1000", "--format", "json").json()
    assert answer["inputs"]["sessions"] == 1000
    assert any("dram holds" in warning for warning in answer["warnings"])
    assert not any("nvme holds" in warning for warning in answer["warnings"])


def test_reserved_bytes_are_whole(llmcap: Callable[..., Any]) -> None:
    """As published: 15,360 B a token over 5 heads, of which 8 devices keep 8; 1,001,000 tokens fill 62,563 blocks."""
    results = llmcap("estimate", "--assumptions", "as-published", "--format", "json").json()["results"]
    reserved = results["kv_bytes_total_reserved"]
    assert isinstance(reserved, int)
    assert reserved == 15_360 * 8 // 5 * 62_563 * 16
