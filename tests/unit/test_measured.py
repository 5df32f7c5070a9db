"""Measured rows: reading, rules of sources, predictions that never see values, errors, and one's own scales."""

from __future__ import annotations

import csv
import gzip
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import llmcap
from llmcap.analyses.accuracy.measured import Prediction, errors, predict, summary, validate_file, worst
from llmcap.analyses.accuracy.measured_rows import COLUMNS, engine_profile, measured_row, read_rows, unusable
from llmcap.analyses.accuracy.own_scales import fit_scales, own_assumptions
from llmcap.errors import DocumentError
from llmcap.report.measured_page import measured_page
from llmcap.specs.assumptions import Scales
from llmcap.specs.base import dump_document

ROW = {
    "id": "a", "source": "mine", "date": "", "model": "meta-llama/Llama-3.1-8B", "hardware": "dgx-h100",
    "devices": "1", "tp": "1", "pp": "1", "dp": "1", "ep": "1", "cp": "1", "engine": "vllm", "engine_version": "0.15",
    "weight_dtype": "bf16", "kv_dtype": "", "isl": "1000", "osl": "200", "cached_tokens": "0", "concurrency": "8",
    "metric": "tpot_s", "value": "0.01", "notes": "",
}  # fmt: skip


def write(path: Path, *rows: dict[str, str]) -> Path:
    with path.open("w", newline="") as handle:
        table = csv.DictWriter(handle, [*COLUMNS, "quality"])
        table.writeheader()
        table.writerows({**ROW, **row} for row in rows)
    return path


@pytest.mark.parametrize(
    ("name", "version", "profile"),
    [
        ("vllm", "0.15.1", "vllm"), ("vLLM 0.12", "", "vllm"), ("vLLM DecodeBenchConnector", "", "vllm"),
        ("vLLM PD-disagg", "", "vllm"), ("vLLM (2023, Splitwise paper)", "", "vllm-2023"),
        ("SGLang PD-disagg + DeepEP", "", "sglang"), ("trtllm", "", "tensorrt-llm"),
        ("trtllm", "1.2.0rc6.post2", "tensorrt-llm"), ("TensorRT-LLM (PyTorch backend)", "1.0", "tensorrt-llm"),
        ("TensorRT-LLM", "0.17", "tensorrt-llm-0"), ("TensorRT-LLM", "v0.20", "tensorrt-llm-0"),
        ("trtllm", "v1.0", "tensorrt-llm"), ("TensorRT-LLM", "", "tensorrt-llm-0"),
        ("TensorRT-LLM/Triton", "0.14", "tensorrt-llm-0"),
        ("gpt-fast", "", "tensorrt-llm-0"), ("Meta", "", "vllm"), ("", "", "vllm"),
    ],
)  # fmt: skip
def test_engine_names_stand_for_profiles(name: str, version: str, profile: str) -> None:
    assert engine_profile(name, version) == profile


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"quality": "C"}, "quality C"), ({"metric": "joules"}, "unknown metric"), ({"isl": ""}, "input length"),
        ({"osl": ""}, "output length"), ({"concurrency": "a few"}, "is not a number of clients"),
        ({"concurrency": ""}, "number of clients"), ({"concurrency": "max"}, "saturation"),
        ({"concurrency": "-3"}, "is not a number of clients"),
    ],
)  # fmt: skip
def test_rows_that_cannot_be_used_say_why(change: dict[str, str], reason: str) -> None:
    assert reason in (unusable(ROW | change) or "")


def test_usable_rows() -> None:
    assert unusable(ROW) is None
    assert unusable(ROW | {"metric": "output_tok_per_s", "concurrency": "max"}) is None
    assert unusable(ROW | {"metric": "prefill_tok_per_s", "concurrency": "", "osl": ""}) is None


def test_lengths_of_the_nightly_benchmark_are_nine_tenths_of_the_nominal_ones() -> None:
    source = "AIConfigurator-core 0.12.0 silicon_sample.csv (Apache-2.0)"
    spread = measured_row(ROW | {"source": source, "date": "2026-01-01", "isl": "1024", "osl": "8192"})
    assert (spread.protocol, spread.isl, spread.osl) == ("spread", 1024 * 0.9, 8192 * 0.9)
    fixed = measured_row(ROW | {"source": source, "date": "", "isl": "1024", "osl": "8192"})
    assert (fixed.protocol, fixed.isl) == ("fixed", 1024.0)
    assert measured_row(ROW).protocol == "fixed"


@pytest.mark.parametrize(
    ("change", "steps"),
    [
        # --scheduler-recv-interval 30 from 16 clients on: (30 - 1) / 2 steps on average; 10 below.
        ({"engine": "sglang", "model": "deepseek-ai/DeepSeek-R1", "hardware": "dgx-b200", "concurrency": "16"}, 14.5),
        ({"engine": "sglang", "model": "Qwen/Qwen3.5-397B-A17B", "hardware": "dgx-b300", "concurrency": "8"}, 4.5),
        ({"engine": "sglang", "model": "Qwen/Qwen3.5-397B-A17B", "hardware": "dgx-b300", "concurrency": "64",
          "weight_dtype": "fp8", "engine_version": "0.5.10.post1"}, 4.5),
        ({"engine": "sglang", "model": "deepseek-ai/DeepSeek-R1", "hardware": "dgx-h200", "concurrency": "64"}, 0.0),
        # batch_wait_timeout_iters 20 at 1,024 in and out below 8 devices.
        ({"engine": "trtllm", "model": "meta-llama/Llama-3.1-70B", "isl": "1024", "osl": "1024", "tp": "4"}, 20.0),
        ({"engine": "trtllm", "model": "meta-llama/Llama-3.1-70B", "isl": "1024", "osl": "1024", "tp": "8"}, 0.0),
        ({"engine": "trtllm", "model": "meta-llama/Llama-3.1-70B", "isl": "8192", "osl": "1024", "tp": "4"}, 0.0),
        ({"engine": "vllm", "model": "meta-llama/Llama-3.1-70B", "isl": "1024", "osl": "1024", "tp": "4"}, 0.0),
    ],
)  # fmt: skip
def test_published_launch_scripts_let_prompts_wait(change: dict[str, str], steps: float) -> None:
    row = ROW | {"source": "AIConfigurator-core 0.12.0 silicon_sample.csv (Apache-2.0)", "date": "2026-04-18"} | change
    assert measured_row(row).wait_steps == steps
    assert measured_row(row | {"date": ""}).wait_steps == 0.0, "undated rows are not of that benchmark"
    assert measured_row(row | {"source": "mine"}).wait_steps == 0.0


OVERVIEW = "NVIDIA/TensorRT-LLM docs/source/performance/perf-overview.md @00f37686aa854010d68bcbd0f4ab000221541ca6"


def test_the_performance_overview_says_how_it_was_made() -> None:
    row = ROW | {
        "source": OVERVIEW, "engine": "TensorRT-LLM (PyTorch backend)", "engine_version": "1.0", "concurrency": "max",
        "metric": "output_tok_per_s", "isl": "128", "osl": "4096", "devices": "8", "tp": "8",
    }  # fmt: skip
    experts = measured_row(row | {"model": "Qwen/Qwen3-235B-A22B"})
    assert dict(experts.structure) | {"tp": "1", "dp": "8", "ep": "8"} == dict(experts.structure)
    assert dict(measured_row(row | {"model": "meta-llama/Llama-3.1-405B"}).structure)["tp"] == "8", "a dense model"
    later = row | {"source": OVERVIEW.replace("00f37686", "03e27c7d"), "model": "Qwen/Qwen3-235B-A22B"}
    assert dict(measured_row(later).structure)["tp"] == "8", "later editions label the layout"
    # 1,500 requests of 128 tokens in and 4,096 out are fed, 30,000 of 128 and 128; other sources do not say.
    assert experts.requests == 1500.0
    assert measured_row(row | {"osl": "128"}).requests == 30_000.0
    assert measured_row(row | {"source": "mine"}).requests == np.inf


def test_a_run_of_few_requests_never_fills_the_pool() -> None:
    row = ROW | {
        "source": OVERVIEW, "engine": "TensorRT-LLM", "engine_version": "1.0", "concurrency": "max", "devices": "8",
        "tp": "8", "weight_dtype": "fp8", "hardware": "dgx-h200", "metric": "output_tok_per_s", "isl": "128",
        "osl": "2048",
    }  # fmt: skip
    many = replace(measured_row(row), requests=np.inf)
    rate = {n: predict([replace(many, requests=n)])[0][0].predicted for n in (1.0, 100.0, 1e6, np.inf)}
    assert rate[1.0] < rate[100.0] < rate[np.inf] == rate[1e6]


def test_a_prompt_that_waits_for_steps_has_its_first_token_that_much_later() -> None:
    row = ROW | {
        "source": "silicon_sample.csv", "date": "2025-10-29", "engine": "trtllm", "model": "meta-llama/Llama-3.1-70B",
        "hardware": "dgx-h200", "weight_dtype": "fp8", "devices": "4", "tp": "4", "isl": "1024", "osl": "1024",
    }  # fmt: skip
    waiting = [measured_row(row | {"metric": m}) for m in ("ttft_s", "tpot_s")]
    at_once = [replace(r, wait_steps=0.0) for r in waiting]
    (late, tpot), (early, same) = ([p.predicted for p in predict(rows)[0]] for rows in (waiting, at_once))
    assert tpot == same
    assert late - early == pytest.approx(20.0 * tpot, rel=1e-9)


def test_an_engine_that_no_profile_knows_is_named(tmp_path: Path) -> None:
    found, _ = validate_file(write(tmp_path / "a.csv", {}, {"engine": ""}, {"engine": "lmdeploy"}, {"engine": "TGI"}))
    assert found["without_profile"] == [{"engine": "TGI", "rows": 1}, {"engine": "lmdeploy", "rows": 1}]
    assert "1  lmdeploy" in measured_page(found, [])


def test_batches_and_saturation_are_told_by_source_and_load() -> None:
    assert measured_row(ROW | {"source": "my gpt-fast at home"}).protocol == "fixed"
    assert measured_row(ROW | {"source": "Mutinifni/splitwise-sim data"}).protocol == "batch"
    assert measured_row(ROW | {"metric": "ttft_s", "osl": "1"}).protocol == "batch"
    assert measured_row(ROW | {"metric": "output_tok_per_s", "concurrency": "max"}).protocol == "saturated"


def test_predictions_never_see_values_or_notes(tmp_path: Path) -> None:
    changes = [{"id": m, "metric": m} for m in ("tpot_s", "ttft_s", "output_tok_per_s", "total_tok_per_s")]
    _, table = validate_file(write(tmp_path / "a.csv", *changes))
    blind = [c | {"value": "1", "notes": "whatever", "quality": "B"} for c in changes]
    _, blind_table = validate_file(write(tmp_path / "b.csv", *blind))
    for one, other in zip(table, blind_table, strict=True):
        assert (one["predicted"], one["low"], one["high"]) == (other["predicted"], other["low"], other["high"])
        assert one["low"] < one["predicted"] < one["high"]


def test_predicting_rows_together_or_alone_is_the_same() -> None:
    rows = [measured_row(ROW | {"concurrency": str(c), "isl": str(n)}) for c in (1, 8, 40) for n in (200, 3000)]
    together = [p.predicted for p in predict(rows)[0]]
    alone = [predict([r])[0][0].predicted for r in rows]
    assert together == pytest.approx(alone, rel=1e-9)


def test_metrics_of_one_saturated_row_agree() -> None:
    at = {"concurrency": "max", "devices": "2", "tp": "2"}
    names = ("output_tok_per_s", "output_tok_per_s_per_device", "total_tok_per_s")
    output, device, total = (predict([measured_row(ROW | at | {"metric": metric})])[0][0].predicted for metric in names)
    assert output / device == pytest.approx(2.0)
    assert total / output == pytest.approx(1200 / 200)


def test_unknown_models_are_counted_with_their_reason(tmp_path: Path) -> None:
    file = write(tmp_path / "a.csv", {}, {"model": "nobody/Nothing-9000B"}, {"quality": "C"})
    found, table = validate_file(file)
    assert (found["rows"], found["predicted"]) == (3, 1)
    assert {s["rows"] for s in found["skipped"]} == {1}
    assert any("Nothing-9000B" in s["reason"] for s in found["skipped"])
    assert table[1]["predicted"] is None


def test_what_cannot_have_run_has_no_prediction(tmp_path: Path) -> None:
    # 405e9 parameters of two bytes on one device of 80 GB.
    found, table = validate_file(write(tmp_path / "a.csv", {}, {"model": "meta-llama/Llama-3.1-405B"}))
    assert found["predicted"] == 1
    assert [s["reason"] for s in found["skipped"]] == ["does not fit: 812 GB of weights on a device of 85.5 GB"]
    assert table[1]["predicted"] is None


def test_errors_are_the_plain_ones() -> None:
    made = [(1.2, 1.0), (0.5, 1.0), (2.2, 2.0), (3.0, 3.0)]
    rows = [Prediction(measured_row(ROW | {"value": str(v)}), p, 0.9 * p, 1.1 * p) for p, v in made]
    found = errors(rows)
    apes = [abs(p / v - 1) for p, v in made]
    assert found["median_ape"] == pytest.approx(statistics.median(apes))
    assert found["median_bias"] == pytest.approx(statistics.median(p / v - 1 for p, v in made))
    assert found["coverage"] == 0.5
    assert worst(rows, 1)[0].predicted == 0.5
    assert summary(4, rows, {})["metrics"]["tpot_s"]["rows"] == 4


def test_missing_columns_and_bad_numbers_are_told_with_their_place(tmp_path: Path) -> None:
    empty = tmp_path / "empty.csv"
    empty.write_text("id,model\n")
    with pytest.raises(DocumentError, match="has no column 'hardware'"):
        read_rows(empty)
    with pytest.raises(DocumentError, match=r":3: osl: 'many' is not a number"):
        read_rows(write(tmp_path / "bad.csv", {}, {"osl": "many"}))
    for slip in ("1e-300", "1e14"):
        with pytest.raises(DocumentError, match=r"bad.csv:2: value: .* no time in seconds and no rate"):
            read_rows(write(tmp_path / "bad.csv", {"value": slip}))
    with pytest.raises(DocumentError, match="holds no rows"):
        read_rows(write(tmp_path / "header.csv"))
    with pytest.raises(DocumentError):
        read_rows(tmp_path / "nowhere.csv")


def test_compressed_files_read_the_same(tmp_path: Path) -> None:
    plain = write(tmp_path / "a.csv", {}, {"concurrency": "32"})
    packed = tmp_path / "a.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert [r.cells for r in read_rows(plain)[0]] == [r.cells for r in read_rows(packed)[0]]


@pytest.mark.parametrize(("prefill", "decode"), [(1.4, 0.8), (0.7, 1.5)])
def test_own_scales_find_the_factors_that_made_the_rows(prefill: float, decode: float) -> None:
    truth = Scales(prefill=prefill, decode=decode)
    rows = [
        measured_row(ROW | {"metric": m, "concurrency": str(c)}) for m in ("tpot_s", "ttft_s") for c in (1, 4, 16, 64)
    ]
    made = predict(rows, scales=truth)[0]
    rows = [measured_row(p.row.cells | {"value": repr(p.predicted)}) for p in made]
    found = fit_scales(rows)
    assert (found.prefill, found.decode) == (pytest.approx(prefill, rel=0.02), pytest.approx(decode, rel=0.02))


def test_one_row_makes_an_assumptions_document_that_says_so(tmp_path: Path) -> None:
    before = predict([measured_row(ROW)])[0][0].predicted
    file = write(tmp_path / "mine.csv", {"value": repr(1.25 * before)})
    document, report = own_assumptions(file)
    assert report["used"] == 1
    assert report["after"]["median_ape"] < 0.02
    target = tmp_path / "mine.yaml"
    target.write_text(dump_document(document))
    again = predict([measured_row(ROW)], str(target))[0][0].predicted
    assert again == pytest.approx(1.25 * before, rel=0.02)
    ask = {"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 1, "context": "1k"}
    plain, scaled = llmcap.estimate(**ask), llmcap.estimate(**ask, assumptions=str(target))
    assert scaled.results["tpot_s"] / plain.results["tpot_s"] == pytest.approx(document.scales.decode)
    assert any(s["name"] == "own measurements" for s in scaled.assumptions)


def test_own_rows_may_say_that_lengths_vary(tmp_path: Path) -> None:
    """A benchmark with drawn lengths was predicted as one whose clients keep in step; estimate asks, and so do rows."""
    ask = {"model": ROW["model"], "hardware": ROW["hardware"], "context": ROW["isl"], "output_tokens": ROW["osl"],
           "users": 64, "arrivals": "closed", "engine": "vllm"}  # fmt: skip
    ask |= {name: ROW[name] for name in ("devices", "tp", "weight_dtype", "kv_dtype") if ROW.get(name)}
    for metric in ("ttft_s", "tpot_s"):
        said = [{"concurrency": "64", "metric": metric, "lengths": lengths} for lengths in ("varied", "equal", "")]
        varied, equal, unsaid = (predict([measured_row(ROW | row)])[0][0].predicted for row in said)
        assert varied == pytest.approx(llmcap.estimate(**ask, lengths="varied").serving[metric], rel=1e-9)
        assert equal == unsaid == pytest.approx(llmcap.estimate(**ask, lengths="equal").serving[metric], rel=1e-9)
    assert unusable(ROW | {"lengths": "odd"}) == "lengths 'odd' are neither varied nor equal"


def test_a_file_without_a_usable_row_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="has no row"):
        own_assumptions(write(tmp_path / "mine.csv", {"quality": "C"}))


def test_values_that_no_machine_explains_are_refused(tmp_path: Path) -> None:
    before = predict([measured_row(ROW)])[0][0].predicted
    file = write(tmp_path / "mine.csv", {"value": repr(1000.0 * before)})
    with pytest.raises(DocumentError, match=r"about 1e\+03 times the predicted ones.*in seconds"):
        own_assumptions(file)


def test_empty_values_are_predicted_and_not_judged(tmp_path: Path) -> None:
    found, table = validate_file(write(tmp_path / "a.csv", {"value": ""}))
    assert found["predicted"] == 1
    assert found["metrics"] == {}
    assert np.isfinite(table[0]["predicted"])
    assert table[0]["ape"] is None
