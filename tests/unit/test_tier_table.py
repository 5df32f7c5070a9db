"""The `tiers` question: its grid, agreement with `estimate`, extras against hand work and slow twins, words, errors."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import llmcap
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.offload.tier_table import TierTable, tier_table
from llmcap.analyses.options import Options
from llmcap.analyses.setting import resolve
from llmcap.cli.app import run
from llmcap.errors import LlmcapError, OptionError
from llmcap.glossary import GLOSSARY
from llmcap.report.tier_page import tier_page

DENSE: dict[str, Any] = {"model": "llama-3.1-70b", "hardware": "dgx-h100", "weight_dtype": "bf16"}
SAME_AS_ESTIMATE = (
    "recompute_s", "reload_s", "ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s", "winner", "break_even_bytes_per_s",
    "break_even_tokens", "users_held", "effective_read_bytes_per_s", "capacity_bytes",
)  # fmt: skip


def rows_of(table: TierTable, tier: str) -> list[dict[str, Any]]:
    return [row for row in table.rows if row["tier"] == tier]


# -- the grid ----------------------------------------------------------------------------------------------------------


def test_every_combination_once_in_order() -> None:
    table = tier_table(context="1k,2k", users=[1, 4], hit="0.5,1", store="nfs-rdma-4x400g")
    seen = [(r["context_tokens"], r["cached_tokens"], r["users"], r["tier"]) for r in table.rows]
    tiers = ["hbm", "dram", "nvme", "remote"]
    assert seen == [(c, k, u, t) for c in (1000, 2000) for k in (c // 2, 0) for u in (1, 4) for t in tiers]


@pytest.mark.parametrize("options", [{}, DENSE, {"assumptions": "ideal"}, {"kv_policy": "all-full", "dp": 2, "tp": 4}])
def test_each_row_is_the_estimate_of_its_case(options: dict[str, Any]) -> None:
    table = tier_table(context="1k,100k", users="1,9", cached_tokens="0,999", **options)
    for row in table.rows:
        answer = llmcap.estimate(
            context=row["context_tokens"], users=row["users"], cached_tokens=row["cached_tokens"], **options
        )
        alone = next(tier for tier in answer.tiers if tier["tier"] == row["tier"])
        for column in SAME_AS_ESTIMATE:
            wanted = alone[column]
            assert row[column] == (pytest.approx(wanted, rel=1e-9) if isinstance(wanted, float) else wanted), column


def test_users_that_do_not_fit_have_no_times() -> None:
    row = tier_table(context="1M", users=100).rows[-1]
    assert [row[c] for c in ("recompute_s", "reload_s", "winner", "break_even_users", "store_s")] == [None] * 5
    assert row["users_held"] > 0


def test_hit_is_a_share_of_each_context() -> None:
    table = tier_table(context="100,1000", hit="29%")
    assert [row["cached_tokens"] for row in rows_of(table, "dram")] == [29, 290]


def test_the_frame_and_the_document_hold_the_same() -> None:
    frame = llmcap.tiers(context="1k,32k", users="1,8")
    assert frame.shape[0] == 12
    document = tier_table(context="1k,32k", users="1,8").to_dict()
    assert document["schema"] == "llmcap.tiers/1"
    json.dumps(document, allow_nan=False)


# -- break-even users and the narrowest hop ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "context"),
    [
        ({"tiers": ("slow:100 TB:12 GB/s",)}, 1000),  # loses at once: the fixed cost
        ({"tiers": ("slow:100 TB:3 GB/s",)}, 32_000),
        ({**DENSE, "tiers": ("slow:100 TB:45 GB/s",)}, 2000),
        ({**DENSE, "tiers": ("slow:100 TB:70 GB/s",)}, 4000),
    ],
)
def test_break_even_users_by_brute_force(options: dict[str, Any], context: int) -> None:
    """The last number of users that wins, plus one, trying each up to what fits."""
    table = tier_table(context=context, **options)
    row = rows_of(table, "slow")[0]
    evaluator = Evaluator.of(resolve(Options(**options)))
    most = int(rows_of(table, "hbm")[0]["users_held"])
    u = [float(n) for n in range(1, most + 1)]
    wins = evaluator.evaluate(u, context, 0, 1000, with_break_even_tokens=False).tiers["slow"]["wins"]
    last = max((n for n, won in zip(u, wins, strict=True) if won), default=0.0)
    assert row["break_even_users"] == (None if last == most else int(last) + 1)


def test_narrowest_hops() -> None:
    def hop(tier: str, **options: Any) -> str:
        return str(rows_of(tier_table(context="32k", **options), tier)[0]["narrowest_hop"])

    assert hop("nvme") == "drives"
    assert hop("dram") == "engine worker"
    assert hop("dram", assumptions="ideal") == "device links"
    assert hop("remote", store="nfs-rdma-4x400g") == "network cards"
    assert hop("remote", store="nfs-rdma-400g") == "store"
    # Two Gen6 drive sets outrun host memory crossed twice: 716.8 GB/s x 0.85 / 2 = 305 GB/s.
    assert hop("nvme", hardware="dgx-b200-gen6", drives=24, storage_path="bounce") in ("host memory", "engine worker")


# -- paths -------------------------------------------------------------------------------------------------------------


def effective(tier: str = "nvme", **options: Any) -> float:
    return float(rows_of(tier_table(context="128k", **options), tier)[0]["effective_read_bytes_per_s"])


def test_small_blocks_and_few_transfers_are_slower() -> None:
    """8 drives, 60 us, one 64 kB read in flight per device: 8 x 64 kB / (60 us + 64 kB / 12.6 GB/s) = 7.87 GB/s."""
    found = effective(transfer_block="64 kB", transfers_in_flight=1)
    assert found == pytest.approx(8 * 64e3 / (60e-6 + 64e3 / 12.6e9), rel=1e-9)
    rates = [effective(transfer_block=block, transfers_in_flight=4) for block in ("4 kB", "64 kB", "1 MB", "8 MB")]
    assert rates == sorted(rates)


def test_operations_bound_the_smallest_blocks() -> None:
    """8 drives of 3.3 million reads a second, 512 B each: 13.5 GB/s; the devices' links are slower still, 1.3 GB/s."""
    table = tier_table(context="128k", transfer_block="512 B", transfers_in_flight=10_000, assumptions="calibrated")
    assert rows_of(table, "nvme")[0]["effective_read_bytes_per_s"] <= 8 * 3.3e6 * 512
    assert rows_of(table, "nvme")[0]["narrowest_hop"] == "device links"


def test_a_bounce_buffer_is_never_faster() -> None:
    for options in ({}, {"hardware": "dgx-b200-gen6"}, {"model": "llama-3.1-8b", "devices": 1}):
        assert effective(storage_path="bounce", **options) <= effective(storage_path="direct", **options)


def test_tiers_of_ones_own() -> None:
    """2 TB over 40 GB/s, through host memory at 85 %: 34 GB/s; the order of tiers stays."""
    table = tier_table(context="1M", tiers="cxl:2 TB:40 GB/s:latency=1us,nvme:30 TB:50 GB/s:write=20 GB/s")
    assert [row["tier"] for row in table.rows] == ["hbm", "dram", "nvme", "cxl"]
    cxl, nvme = rows_of(table, "cxl")[0], rows_of(table, "nvme")[0]
    assert cxl["effective_read_bytes_per_s"] == pytest.approx(34e9)
    assert cxl["users_held"] == 2e12 // 25_204_555_776
    assert (nvme["capacity_bytes"], nvme["read_bytes_per_s"]) == (30e12, 50e9)
    assert "store_s" in nvme
    assert "store_s" not in cxl  # its write bandwidth is not known


@pytest.mark.parametrize(
    "text",
    ["cxl", "cxl:2TB", ":2TB:1GB/s", "hbm:2TB:1GB/s", "a b:2TB:1GB/s", "cxl:2:1GB/s", "cxl:2TB:-1GB/s", "cxl:0 B:1GB/s",
     "cxl:2TB:1Gb/s", "cxl:2TB:1GB/s:foo=1", "cxl:2TB:1GB/s:latency", "cxl:2TB:1GB/s:through=air",
     "cxl:2TB:1GB/s:latency=-1s", "cxl:nan TB:1GB/s", "\x1b[31m:1TB:1GB/s", "x" * 5000],
)  # fmt: skip
def test_bad_tiers_are_one_clear_error(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        tier_table(tiers=(text,))
    assert str(caught.value).startswith("--tier")
    assert "\x1b" not in str(caught.value)


# -- sharing, placement, arrivals, wear, money -------------------------------------------------------------------------


def test_a_shared_prefix_is_loaded_once() -> None:
    """Llama-3.1-70B in bf16, 327,680 B a token: 8 users of 32k sharing 16k move 8 x 16k + 16k = 144k tokens."""
    table = tier_table(context="32k", users=8, shared_tokens="16k", **DENSE)
    nvme = rows_of(table, "nvme")[0]
    rate, fixed = nvme["effective_read_bytes_per_s"], 0.030 + 80e-6
    assert nvme["reload_s"] == pytest.approx(fixed + 144_000 * 327_680 / rate, rel=1e-9)
    assert nvme["shared_tokens"] == 16_000
    # 30.72 TB less 16k shared, over 17k tokens of each user's own (16k and 1,000 of output).
    assert nvme["users_held"] == (30.72e12 - 16_000 * 327_680) // (17_000 * 327_680)


def test_one_user_shares_with_nobody() -> None:
    """A dense model's bytes add up; 16,384 tokens end on a chunk, so that prefill does too."""
    plain, shared = (rows_of(tier_table(context="32k", shared_tokens=n, **DENSE), "dram")[0] for n in (0, 16_384))
    for column in ("recompute_s", "reload_s", "ttft_reload_s", "break_even_bytes_per_s"):
        assert shared[column] == pytest.approx(plain[column], rel=0.005), column


def test_sharing_helps_and_the_hybrid_stays_best() -> None:
    alone = tier_table(context="128k", users="1,8,32", hit="0.5")
    shared = tier_table(context="128k", users="1,8,32", hit="0.5", shared_tokens="64k")
    for one, other in zip(alone.rows, shared.rows, strict=True):
        assert other["users_held"] >= one["users_held"]
        if one["users"] > 1:
            assert other["recompute_s"] < one["recompute_s"]
            assert other["reload_s"] <= one["reload_s"]
        assert other["ttft_hybrid_s"] <= min(other["recompute_s"], other["ttft_reload_s"]) * (1 + 1e-9)
        assert other["ttft_overlap_s"] <= other["ttft_reload_s"] * (1 + 1e-9)


def test_sessions_fill_the_tiers_in_order() -> None:
    """1M tokens: 37 caches in HBM, 158 in DRAM, the rest of 1,000 on drives; nobody is dropped."""
    rows = tier_table(context="1M", sessions=1000).rows
    held = [row["users_held"] for row in rows]
    assert [row["sessions_placed"] for row in rows] == [held[0], held[1], 1000 - held[0] - held[1]]
    assert rows[0]["sessions_dropped"] == 0
    waits = [0.0, rows[1]["ttft_reload_s"], rows[2]["ttft_reload_s"]]
    expected = sum(row["sessions_placed"] / 1000 * wait for row, wait in zip(rows, waits, strict=True))
    assert rows[0]["ttft_expected_s"] == pytest.approx(expected)
    assert rows[0]["ttft_expected_hbm_only_s"] == pytest.approx((1 - held[0] / 1000) * rows[0]["recompute_s"])


def test_skewed_returns_wait_less() -> None:
    uniform, skewed = (
        tier_table(context="1M", sessions=1000, returns=kind).rows[0]["ttft_expected_s"] for kind in ("uniform", "zipf")
    )
    assert skewed < uniform


def test_arrivals_by_hand() -> None:
    """Ten requests of 128k a second from nvme: rho from bytes over rate, M/D/1; nothing is left to compute."""
    row = rows_of(tier_table(context="128k", arrivals=10, discipline="fcfs"), "nvme")[0]
    busy = row["reload_s"] - 0.030 - 60e-6
    rho = 10 * busy
    assert row["tier_utilisation"] == pytest.approx(rho)
    assert row["ttft_reload_mean_s"] == pytest.approx(row["reload_s"] + rho * busy / (2 * (1 - rho)))
    assert row["ttft_recompute_mean_s"] is None  # ten times 1.4 s of prefill a second cannot be sustained
    assert row["sustained_reload_per_s"] == pytest.approx(1 / busy)


def test_what_cannot_be_sustained_saves_nothing() -> None:
    # 24,576 B/token x 128,000 + 36 layers x 8,192 x 2,048 B = 3.7497 GB over 100.8 GB/s: 26.9 reloads a second.
    table = tier_table(context="128k", arrivals=1000)
    row = rows_of(table, "nvme")[0]
    assert row["sustained_reload_per_s"] == pytest.approx(100.8e9 / (24_576 * 128_000 + 36 * 8192 * 2048), rel=1e-9)
    assert row["written_bytes_per_s"] > 0.0
    for name in ("freed_device_h_per_day", "drive_writes_per_day", "drive_life_years"):
        assert row[name] is None
    notes = " ".join(table.notes)
    assert "nvme: 1,000 requests a second are more than reloads sustain, 26.9 a second" in notes
    assert "as fast as the tier can be written" in notes
    calm = tier_table(context="128k", arrivals=2)
    assert rows_of(calm, "nvme")[0]["freed_device_h_per_day"] > 0.0
    assert "sustain" not in " ".join(calm.notes)


@pytest.mark.parametrize("width", [60, 80, 100, 120])
def test_a_narrow_terminal_gets_fewer_columns(width: int) -> None:
    table = tier_table(context="128k,1M", users="1,8")
    page = tier_page(table.rows, table.notes, width, fitted=True)
    assert max(map(len, page.splitlines())) <= width
    assert ("A wider terminal also shows" in page) == (width < 120)
    assert ("'even at'" in page) == ("  even at" in page)


def test_more_arrivals_wait_longer() -> None:
    means = [
        rows_of(tier_table(context="128k", hit="0.9", arrivals=rate), "nvme")[0]["ttft_reload_p95_s"]
        for rate in (0.1, 1, 2, 4)
    ]
    assert means == sorted(means)


def test_storing_a_context_once() -> None:
    """1M tokens of Maverick, 25.18 GB, at 8 x 10 GB/s: 0.31 s, 1.3 % of the prefill."""
    row = rows_of(tier_table(context="1M"), "nvme")[0]
    moved = 2 * 8 * 128 * (12 * 1_000_000 + 36 * 8192)
    assert row["store_s"] == pytest.approx(moved / 80e9)
    assert row["store_share_of_prefill"] == pytest.approx(row["store_s"] / row["recompute_s"])


def test_money_appears_only_with_prices() -> None:
    bare = rows_of(tier_table(context="128k", arrivals=0.1), "nvme")[0]
    priced = rows_of(tier_table(context="128k", arrivals=0.1, prices="hyperscaler-2026-04"), "nvme")[0]
    assert not [column for column in bare if "usd" in column]
    assert priced["recompute_usd"] > priced["reload_usd"] > 0
    assert priced["tier_usd_per_day"] == pytest.approx(60.0)


# -- words -------------------------------------------------------------------------------------------------------------


def test_why_offload_gains_nothing() -> None:
    fits = rows_of(tier_table(context="32k"), "nvme")[0]
    assert fits["no_gain_because"] == "fits HBM"
    slow = rows_of(tier_table(context="1k", tiers="slow:9 TB:1 GB/s"), "slow")[0]
    assert slow["no_gain_because"] == "slower than recompute; fits HBM"
    small = rows_of(tier_table(context="32k", dram="0.5 TB", sessions=5000), "dram")[0]
    assert small["no_gain_because"] == "smaller than the HBM pool"
    assert rows_of(tier_table(context="32k", sessions=5000), "nvme")[0]["no_gain_because"] is None


def test_notes_say_it_in_sentences() -> None:
    notes = " ".join(tier_table(context="1k,128k", users="1,8", dram="0.5 TB", tiers="slow:9 TB:4.5 GB/s").notes)
    for words in ("Savings are those of caches that have left", "gains nothing where device memory keeps all caches",
                  "computing again is faster", "2 of 4 cases", "less than device memory keeps"):  # fmt: skip
        assert words in notes
    assert "do not fit device memory together" in " ".join(tier_table(context="1M", users="1,100").notes)
    assert "fit no tier" in " ".join(tier_table(context="1M", sessions=1_000_000).notes)
    assert "nobody sells" in " ".join(tier_table(hardware="dgx-b200-gen6", context="1k").notes)


# -- bad input ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("question", "option"),
    [
        ({"context": "1k,,2k"}, "--context"),
        ({"context": ""}, "--context"),
        ({"users": []}, "--users"),
        ({"users": "0"}, "--users"),
        ({"users": "1,x"}, "--users"),
        ({"context": "1k", "cached_tokens": "1k"}, "--cached-tokens"),
        ({"hit": "0"}, "--hit"),
        ({"hit": "1.1"}, "--hit"),
        ({"hit": "0.5", "cached_tokens": "5"}, "--hit"),
        ({"sessions": 1, "users": 2}, "--sessions"),
        ({"context": "1k", "shared_tokens": "2k"}, "--shared-tokens"),
        ({"arrivals": "-1"}, "--arrivals"),
        ({"arrivals": "often"}, "--arrivals"),
        ({"discipline": "lifo"}, "--discipline"),
        ({"write_policy": "never"}, "--write-policy"),
        ({"used_once": "2"}, "--used-once"),
        ({"returns": "pareto"}, "--returns"),
        ({"prices": "nowhere"}, "--prices"),
        ({"storage_path": "sideways"}, "--storage-path"),
        ({"transfer_block": "0 B"}, "--transfer-block"),
        ({"transfers_in_flight": 0}, "--transfers-in-flight"),
        ({"context": list(range(1, 2000)), "users": list(range(1, 101))}, "--context"),
    ],
)
def test_one_clear_error(question: dict[str, Any], option: str) -> None:
    with pytest.raises(LlmcapError) as caught:
        tier_table(**question)
    assert option in str(caught.value)
    assert caught.value.exit_code == 2


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["table", "json", "csv", "md"])
def test_the_command_in_every_format(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    status = run(["tiers", "--context", "1k,32k", "--users", "1,8", "--hit", "0.9", "--sessions", "900",
                  "--arrivals", "0.5", "--prices", "neocloud-2026-04", "--format", form])  # fmt: skip
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert "nan" not in out.lower()
    if form == "json":
        rows = json.loads(out)["rows"]
        assert len(rows) == 12
        assert all(math.isfinite(v) for row in rows for v in row.values() if isinstance(v, float))
    else:
        assert "nvme" in out


def test_a_repeated_tier_option(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tiers", "--context", "1k", "--tier", "a:1TB:9GB/s", "--tier", "b:1TB:8GB/s", "--format", "json"]) == 0
    assert [row["tier"] for row in json.loads(capsys.readouterr().out)["rows"]][-2:] == ["a", "b"]


def test_a_bad_list_exits_with_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tiers", "--users", "1,many"]) == 2
    assert "--users" in capsys.readouterr().err


def test_what_does_not_fit_exits_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["tiers", "--context", "1M", "--users", "1000", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"][0]["winner"] is None


def test_the_glossary_knows_every_column() -> None:
    table = tier_table(context="1k", sessions=5, arrivals=1, prices="neocloud-2026-04", shared_tokens=10)
    columns = {column for row in (*table.rows, *tier_table(context="1k").rows) for column in row}
    assert columns - set(GLOSSARY) == set()
