"""compare: figures are those of estimate, ratios are to the first, reasons name what differs."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest

import llmcap
from llmcap.analyses.explaining.compare import METRICS, Comparison, compare
from llmcap.analyses.explaining.reasons import kind_of
from llmcap.analyses.explaining.variants import setting_of
from llmcap.errors import DocumentError, OptionError
from llmcap.report.compare_page import compare_page

SHIPPED = Path(__file__).resolve().parents[2]


def row(sides: Comparison, metric: str) -> dict[str, object]:
    return next(r for r in sides.rows if r["metric"] == metric)


def test_figures_are_those_of_the_estimates() -> None:
    sides = compare("dgx-b200", "dgx-h200", "dgx-h100", context="128k", users=4)
    for metric in METRICS:
        own = [llmcap.estimate(hardware=h, context="128k", users=4).results[metric] for h in sides.names]
        assert row(sides, metric)["values"] == own
    first = row(sides, "ttft_s")
    assert first["ratios"] == [v / first["values"][0] for v in first["values"]]  # type: ignore[index,union-attr]
    assert first["best"] == 0


def test_models_and_settings_stand_side_by_side() -> None:
    models = compare("llama-4-maverick", "meta-llama/Llama-3.1-70B", context="32k")
    assert [v.estimate.inputs["model"] for v in models.variants] == ["llama-4-maverick", "llama-3.1-70b"]
    settings = compare("tp=8", "tp=4, dp=2", "kv-dtype=bf16", context="32k", users=2)
    assert [v.estimate.inputs["tp"] for v in settings.variants] == [8, 4, 8]
    assert row(settings, "kv_bytes_per_user")["ratios"] == [1.0, 1.0, 2.0]
    loads = compare("context=32k", "context=64k")
    assert [v.case["context"] for v in loads.variants] == [32_000, 64_000]


def test_a_faster_memory_alone_is_named_as_the_reason() -> None:
    """H100 and H200 differ in memory alone: decode differs by what memory bounds."""
    sides = compare("dgx-h100", "dgx-h200", model="llama-3.1-70b", context="8k", users=16, assumptions="ideal")
    reason = next(r for r in sides.reasons if r["metric"] == "tpot_s")
    ratio = 3.35e12 / 4.8e12
    assert reason["ratio"] == pytest.approx(ratio, rel=5e-3)
    assert (reason["bound_first"], reason["bound"]) == ("memory", "memory")
    assert "memory bandwidth is 1.43 times as high" in reason["text"]


def test_contributions_add_up_to_the_difference() -> None:
    sides = compare("dgx-b200", "dgx-h100", "dgx-h200", context="100k", users=2)
    assert {r["metric"] for r in sides.reasons} >= {"ttft_s", "tpot_s"}
    for reason in sides.reasons:
        if "changes" not in reason:
            continue
        assert math.fsum(reason["changes"].values()) == pytest.approx(reason["difference_s"], rel=1e-9)
        values = row(sides, reason["metric"])["values"]
        at = sides.names.index(reason["variant"])
        assert values[at] - values[0] == pytest.approx(reason["difference_s"], rel=1e-6)  # type: ignore[index]
        assert reason["contribution_s"] == pytest.approx(
            max(reason["changes"].values(), key=lambda v: v * math.copysign(1.0, reason["difference_s"]))
        )


def test_drives_alone_are_named_as_the_reason() -> None:
    sides = compare("dgx-b200", "dgx-b200-gen6")
    assert [r["metric"] for r in sides.reasons] == ["reload_s"]
    assert "drives" in sides.reasons[0]["text"]
    assert sides.reasons[0]["ratio"] < 1.0


def test_no_change_is_told_that_the_digits_do_not_show() -> None:
    sides = compare("llama-3.1-70b", "llama-3.1-8b", "mistral-7b-v0.1", context="16k")
    sides_of_machines = compare("dgx-b200", "dgx-h100", context="16k")
    texts = [row["text"] for row in (*sides.reasons, *sides_of_machines.reasons)]
    told = [
        words
        for text in texts
        for words in re.findall(r"([\d.]+ \w+(?:/s)?(?: \([^)]*\))?) instead of (.+?)(?:, |$)", text)
    ]
    assert told
    assert [pair for pair in told if pair[0] == pair[1]] == []


def test_the_narrowest_hop_is_that_of_the_tiers_command() -> None:
    sides = compare("tp=8", "tp=4,dp=2", model="llama-3.1-70b", context="32k")
    text = next(r["text"] for r in sides.reasons if r.get("tier") == "dram")
    rows = llmcap.tiers(model="llama-3.1-70b", context="32k", tp=4, dp=2).set_index("tier")
    hop = rows.loc["dram", "narrowest_hop"]
    assert hop == "engine worker" and text.count(f"({hop})") == 2


@pytest.mark.parametrize("width", [40, 50, 80, 120])
@pytest.mark.parametrize("items", [("dgx-b200", "dgx-h100"), ("kv-dtype=fp8", "kv-dtype=bf16"), ("dgx-h100", "l4-4x")])
def test_sentences_wrap_at_the_width_of_the_page(width: int, items: tuple[str, str]) -> None:
    page = compare_page(compare(*items, context="100k"), width)
    sentences = page[page.index("In brackets") :].splitlines()
    assert len(sentences) > 1
    assert max(map(len, sentences)) <= width


def test_the_best_is_marked_where_it_shows() -> None:
    page = compare_page(compare("users=1", "users=2"), 100)
    assert re.search(r"MFU +(\d+\.\d%) +\1 \(1\.00\)\n", page)
    assert re.search(r"MBU .*\+\n", page)


def test_another_longest_resource_is_said_instead_of_shares() -> None:
    sides = compare("tp=8", "tp=4,dp=2", users=8, context="64k", assumptions="ideal")
    reason = next(r for r in sides.reasons if r["metric"] == "ttft_s")
    assert (reason["bound_first"], reason["bound"]) == ("network", "compute")
    assert "network takes longest on tp=8" in reason["text"]


def test_a_side_that_does_not_fit_has_no_times() -> None:
    sides = compare("dgx-b200", "dgx-h100", context="1M", users=30)
    assert row(sides, "ttft_s")["values"][1] is None  # type: ignore[index]
    assert row(sides, "ttft_s")["ratios"][1] is None  # type: ignore[index]
    assert row(sides, "limit")["values"][1] == "capacity"  # type: ignore[index]


def test_costs_stand_there_with_prices_alone() -> None:
    priced = compare("dgx-b200", "gaudi3-8x", model="llama-3.1-8b", context="8k", prices="hyperscaler-2026-04")
    values = row(priced, "usd_per_hour")["values"]
    assert values == [pytest.approx(8 * 1.95), None]
    assert "costs" not in priced.to_dict()["variants"][0] or priced.costs[0]["usd_per_hour"]
    bare = compare("dgx-b200", "dgx-h200", context="8k")
    assert not [r for r in bare.rows if "usd" in r["metric"]]
    assert "costs" not in bare.to_dict()["variants"][0]


def test_what_an_item_is() -> None:
    assert setting_of("dgx-h200") == {"hardware": "dgx-h200"}
    assert setting_of("llama-3.1-8b") == {"model": "llama-3.1-8b"}
    assert setting_of("kv-dtype=bf16,context=1M") == {"kv_dtype": "bf16", "context": "1M"}
    server, model = SHIPPED / "hardware/servers/dgx-h100.yaml", SHIPPED / "models/llama-3.1-8b.yaml"
    assert setting_of(str(server)) == {"hardware": str(server)}
    assert setting_of(str(model)) == {"model": str(model)}


@pytest.mark.parametrize(
    ("items", "words"),
    [
        (["dgx-b200"], "Give 2 to 6"),
        (["dgx-b200"] * 2, "twice"),
        ([f"users={n}" for n in range(1, 8)], "7 to compare"),
        (["dgx-b200", "dgx-b2000"], "dgx-b200"),
        (["tp=8", "kv-dtyp=bf16"], "kv_dtype"),
        (["tp=8", "tp="], "option=value"),
        (["tp=8", "tp=4,tp=2"], "twice"),
        (["tp=8", "tp=7"], "for 'tp=7'"),
        (["tp=8", ""], "empty"),
    ],
)
def test_what_cannot_be_compared(items: list[str], words: str) -> None:
    with pytest.raises(OptionError, match=words):
        compare(*items)


def test_files_that_are_neither(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        setting_of(str(tmp_path / "none.yaml"))
    other = tmp_path / "other.yaml"
    other.write_text("schema: llmcap.nic/1\nid: other\n", encoding="utf-8")
    with pytest.raises(DocumentError):
        setting_of(str(other))


def test_answers_are_plain_data() -> None:
    told = json.loads(json.dumps(compare("dgx-b200", "dgx-h100", context="8k").to_dict(), allow_nan=False))
    assert told["schema"] == "llmcap.compare/1"
    assert {"names", "rows", "reasons", "variants"} <= set(told)
    assert len(compare("dgx-b200", "dgx-h100", context="8k").to_frame()) == len(told["rows"])


@pytest.mark.parametrize(
    ("operator", "kind"),
    [
        ("global.qkv_proj", "matrix products"), ("moe.experts", "experts"), ("moe.router", "matrix products"),
        ("moe.dispatch", "communication"), ("linear.scan", "recurrent scans"), ("lm_head", "logits"),
        ("mla.index.attention", "attention"), ("engine overhead", "engine overhead"),
    ],
)  # fmt: skip
def test_kinds_of_operators(operator: str, kind: str) -> None:
    assert kind_of(operator) == kind
