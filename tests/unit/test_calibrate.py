"""The fitter recovers known parameters, cleans by its rules and means by them what the engine means."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from llmcap.analyses.accuracy.calibrate import fit_kernels, fit_sets, transfer_ratios, write_documents
from llmcap.analyses.accuracy.kernel_errors import by_engine
from llmcap.analyses.accuracy.kernel_fits import FORMS, fit_form, fit_operator, split_by_case
from llmcap.analyses.accuracy.kernel_rows import (
    HOST_BOUND_S,
    MEASURED_DEVICES,
    MOE_SHAPES,
    DeviceRates,
    KernelRows,
    read_kernel_rows,
)
from llmcap.engine import collectives, kernels
from llmcap.errors import DocumentError
from llmcap.specs.base import dangling, load_document, uncovered
from llmcap.specs.calibration import CalibrationDocument

RATES = MEASURED_DEVICES["h200_sxm"]
TRUTH = {
    "gemm": {"t0": 5e-6, "e": 0.7, "x0": 0.2, "w": 0.8, "a": 0.6},
    "prefill_attention": {"t0": 12e-6, "e": 0.6, "tail": 0.9, "w": 0.4},
    "decode_attention": {"t0": 11e-6, "w": 0.88},
    "moe": {"t0": 40e-6, "e": 0.6, "r0": 30.0, "w": 0.85, "a": 0.5},
    "all_reduce": {"alpha": 3e-6, "alpha_log2": 6e-7, "beta": 0.6, "two_shot": 3.0, "switch": 15e-6},
    "all_gather": {"alpha": 4e-6, "alpha_log2": 2e-6, "beta": 0.55},
    "reduce_scatter": {"alpha": 5e-6, "alpha_log2": 1e-6, "beta": 0.5},
    "all_to_all": {"alpha": 9e-6, "alpha_log2": 4e-7, "beta": 0.45},
}


def _values(operator: str) -> dict[str, np.ndarray]:
    """Quantities of made-up cases, from shapes that cover each regime of a form."""
    rates = {"P": RATES.peaks["bf16"], "W": RATES.memory_bandwidth, "B": RATES.link_bandwidth}
    rng = np.random.default_rng(3)
    n = 300
    if operator == "gemm":
        m, k, width = (2 ** rng.integers(lo, hi, n).astype(float) for lo, hi in ((0, 15), (10, 15), (10, 15)))
        values = {
            "F": 2 * m * k * width,
            "x": m * width / (RATES.compute_units * 128**2),
            "weights": 2 * k * width,
            "moved": 2 * m * (k + width),
        }
    elif operator == "prefill_attention":
        s, heads = 2 ** rng.integers(8, 15, n).astype(float), rng.integers(1, 65, n).astype(float)
        values = {
            "F": 4 * heads * 128 * s * (s + 1) / 2,
            "tail_work": s / 128 * RATES.compute_units * 4 * 128 * 128**2,
            "moved": s * 128 * (heads * 4 + 4),
        }
    elif operator == "decode_attention":
        values = {"kv": 10 ** rng.uniform(5, 9.5, n)}
    elif operator == "moe":
        tokens, shards = 2 ** rng.integers(10, 15, n).astype(float), 2 ** rng.integers(0, 4, n).astype(float)
        experts = 2 ** rng.integers(3, 9, n).astype(float)
        touched = experts * (1 - (1 - 1 / experts) ** tokens)
        values = {
            "F": tokens * 6 * 5120 * 8192 / shards,
            "r": tokens / touched,
            "weights": touched * 3 * 5120 * 8192 * 2 / shards,
            "moved": tokens * 5120 * (4 + 8 / shards),
        }
    else:
        values = {
            "n": 2 ** rng.integers(1, 4, n).astype(float),
            "S": 2 ** rng.integers(8, 31, n).astype(float),
        }
    return {**values, **{name: np.full(n, rate) for name, rate in rates.items()}}


def _rows(operator: str, noise: float = 0.0, device: str = "h200") -> KernelRows:
    form, values = FORMS[operator], _values(operator)
    time = form.time(np.array([TRUTH[operator][name] for name in form.names]), values)
    time = time * np.exp(noise * np.random.default_rng(5).standard_normal(time.size))
    labels = pd.DataFrame({"device": device, "backend": "vllm", "case": np.arange(time.size).astype(str), "size": 1.0})
    return KernelRows(labels.assign(family="hopper", dtype="bf16"), time, values, ("size",))


@pytest.mark.parametrize("operator", sorted(TRUTH))
def test_recovers_the_parameters_behind_exact_rows(operator: str) -> None:
    found = fit_form(FORMS[operator], _rows(operator))
    assert found == pytest.approx(TRUTH[operator], rel=0.01)


@pytest.mark.parametrize("operator", ["gemm", "prefill_attention", "moe"])
def test_one_engine_with_a_slow_kernel_does_not_drag_the_fit_along(operator: str) -> None:
    rows = _rows(operator, noise=0.03)
    slow = np.arange(len(rows)) % 8 == 0
    mixed = KernelRows(rows.labels, np.where(slow, 3 * rows.time, rows.time), rows.values, ())
    found = fit_form(FORMS[operator], mixed)
    assert found["e"] == pytest.approx(TRUTH[operator]["e"], rel=0.15)


def test_fixed_parameters_stay() -> None:
    found = fit_form(FORMS["gemm"], _rows("gemm"), {"e": 0.5, "a": 0.4})
    assert (found["e"], found["a"]) == (0.5, 0.4)


def test_errors_and_band_come_from_cases_that_the_fit_did_not_see() -> None:
    rows = _rows("gemm", noise=0.1)
    used = split_by_case(rows)
    assert used.sum() == 210
    fit = fit_operator("gemm", "bf16", rows)
    assert (fit.rows, fit.rows_held_out) == (210, 90)
    # Log-normal noise of 10 %: the median of |z| is 0.067, its 10 % and 90 % quantiles are exp(-+0.128).
    assert fit.median_ape == pytest.approx(0.067, abs=0.02)
    assert (fit.low, fit.high) == pytest.approx((0.88, 1.137), abs=0.04)


def test_rows_of_one_case_stay_on_one_side_of_the_split() -> None:
    rows = _rows("gemm")
    twice = pd.concat([rows.labels, rows.labels.assign(backend="sglang")], ignore_index=True)
    both = KernelRows(twice, np.tile(rows.time, 2), {k: np.tile(v, 2) for k, v in rows.values.items()}, ())
    used = split_by_case(both)
    assert (used[:300] == used[300:]).all()


def test_leaving_a_device_out_measures_what_transfer_costs() -> None:
    fast, slow = _rows("decode_attention", device="a"), _rows("decode_attention", device="b")
    labels = pd.concat([fast.labels, slow.labels], ignore_index=True)
    values = {k: np.tile(v, 2) for k, v in fast.values.items()}
    rows = KernelRows(labels, np.concatenate([fast.time, 1.5 * slow.time]), values, ())
    ratios = transfer_ratios("decode_attention", rows)
    assert np.median(ratios["b"]) == pytest.approx(1.5, rel=0.01)
    assert np.median(ratios["a"]) == pytest.approx(1 / 1.5, rel=0.01)


def test_forms_agree_with_the_engine() -> None:
    """The fitted parameters mean the same to the engine: its functions are an outside witness."""
    p = {**TRUTH["gemm"], "low": 0.9, "high": 1.1}
    rates = kernels.DeviceRates(peak=989e12, bandwidth=4.8e12, compute_units=132)
    m, k, n = 512.0, 4096.0, 8192.0
    engine = kernels.gemm(
        m,
        k=k,
        n=n,
        weight_bytes=2 * k * n,
        bytes_per_row=2 * (k + n),
        rates=rates,
        params=kernels.GemmParams(**p),
    )
    values = {
        "F": 2 * m * k * n, "x": m * n / (132 * 128**2), "weights": 2 * k * n, "moved": 2 * m * (k + n),
        "P": 989e12, "W": 4.8e12,
    }  # fmt: skip
    assert _form_time("gemm", values) == pytest.approx(float(engine.serial), rel=1e-12)

    q = {**TRUTH["moe"], "low": 0.9, "high": 1.1}
    tokens, count, active, matrix = 2048.0, 128, 8, 5120 * 8192
    engine = kernels.experts(
        tokens, count=count, active=active, flop_per_token=6 * matrix * active, bytes_per_expert=3 * matrix,
        share=0.25, bytes_per_row=70e3, rates=rates, params=kernels.ExpertParams(**q),
    )  # fmt: skip
    touched = 128 * (1 - (1 - 8 / 128) ** tokens)
    values = {
        "F": tokens * 6 * matrix * active / 4, "r": tokens * active / touched,
        "weights": touched * 3 * matrix / 4, "moved": tokens * 70e3, "P": 989e12, "W": 4.8e12,
    }  # fmt: skip
    assert _form_time("moe", values) == pytest.approx(float(engine.serial), rel=1e-9)

    fabric, reduce = collectives.Fabric(450e9), TRUTH["all_reduce"]
    params = collectives.CollectiveParams(**reduce, low=0.9, high=1.1, in_switch=True)
    for ranks in (2, 8):
        for size in (1e4, 1e6, 1e9):
            witness = collectives.all_reduce(size, ranks, 1.0, fabric=fabric, params=params)
            values = {"n": float(ranks), "S": size, "B": 450e9}
            assert _form_time("all_reduce", values) == pytest.approx(float(witness.serial), rel=1e-12)
    gather = collectives.CollectiveParams(**TRUTH["all_gather"], low=0.9, high=1.1)
    witness = collectives.exchange(1e7, 4, 1.0, fabric=fabric, params=gather)
    assert _form_time("all_gather", {"n": 4.0, "S": 1e7, "B": 450e9}) == pytest.approx(float(witness.serial))


def _form_time(operator: str, values: dict[str, float]) -> float:
    form = FORMS[operator]
    arrays = {name: np.array([value]) for name, value in values.items()}
    return float(form.time(np.array([TRUTH[operator][name] for name in form.names]), arrays)[0])


def _write_folder(folder: Path, systems: tuple[str, ...] = ("h200_sxm",)) -> None:
    """A folder of kernel rows made from TRUTH, in the columns of the package data."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for system in systems:
        rates = MEASURED_DEVICES[system]
        for name, frame in _tables(rates).items():
            tables.setdefault(name, []).append(frame.assign(system=system))
    for name, frames in tables.items():
        pd.concat(frames).to_csv(folder / name, index=False)


def _milliseconds(operator: str, values: dict[str, np.ndarray]) -> np.ndarray:
    form = FORMS[operator]
    return 1e3 * form.time(np.array([TRUTH[operator][name] for name in form.names]), values)


def _grid(**axes: list[float]) -> pd.DataFrame:
    index = pd.MultiIndex.from_product(axes.values(), names=axes.keys())
    return index.to_frame(index=False)


def _tables(rates: DeviceRates) -> dict[str, pd.DataFrame]:
    peak, bandwidth, link = rates.peaks["bf16"], rates.memory_bandwidth, rates.link_bandwidth
    g = _grid(m=[1, 16, 256, 4096, 16384], n=[1024, 4096, 16384], k=[1024, 8192, 32768])
    m, n, k = (g[c].to_numpy(float) for c in "mnk")
    values = {"F": 2 * m * n * k, "x": m * n / (rates.compute_units * 128**2), "weights": 2 * n * k}
    values |= {"moved": 2 * m * (k + n), "P": np.full(m.size, peak), "W": np.full(m.size, bandwidth)}
    g = g.assign(backend="vllm", ver="0.24.0", kernel_source="linear", gemm_dtype="bfloat16")
    gemm = g.assign(latency_ms=_milliseconds("gemm", values))

    p = _grid(isl=[256, 1024, 4096, 16384], num_heads=[1, 5, 8, 40, 64], num_key_value_heads=[1, 8])
    s, h, kv = (p[c].to_numpy(float) for c in ("isl", "num_heads", "num_key_value_heads"))
    values = {
        "F": 4 * h * 128 * s * (s + 1) / 2,
        "tail_work": s / 128 * rates.compute_units * 4 * 128 * 128**2 * max(peak / rates.compute_units / 7.492e12, 1.0),
    }
    values |= {
        "moved": s * 128 * (4 * h + 4 * kv),
        "P": np.full(s.size, peak),
        "W": np.full(s.size, bandwidth),
    }
    p = p.assign(backend="vllm", ver="0.24.0", kernel_source="fa3", attn_dtype="bfloat16", kv_cache_dtype="bfloat16")
    p = p.assign(batch_size=1, head_dim=128, window_size=0, latency_ms=_milliseconds("prefill_attention", values))

    d = _grid(batch_size=[1, 8, 64], kvlen=[1024, 8192, 65536], num_key_value_heads=[1, 8])
    size = 2.0 * d.batch_size * d.kvlen * d.num_key_value_heads * 128 * 2
    values = {"kv": size.to_numpy(), "W": np.full(len(d), bandwidth)}
    d = d.assign(backend="vllm", ver="0.24.0", kernel_source="fa3", attn_dtype="bfloat16", kv_cache_dtype="bfloat16")
    d = d.assign(num_heads=8, kv_mb=size / 1e6, latency_ms=_milliseconds("decode_attention", values))

    e = _grid(model=["Llama4-Scout", "Qwen3-235B"], num_tokens=[1024, 4096, 16384], moe_tp_size=[1, 8])  # type: ignore[list-item]
    hidden, inter, active, experts = np.array([MOE_SHAPES[x] for x in e.model], dtype=float).T
    tokens, tp = e.num_tokens.to_numpy(float), e.moe_tp_size.to_numpy(float)
    touched = experts * (1 - (1 - active / experts) ** tokens)
    values = {"F": 6 * tokens * active * hidden * inter / tp, "r": tokens * active / touched}
    values |= {"weights": touched * 3 * hidden * inter / tp * 2, "P": np.full(len(e), peak)}
    values |= {
        "moved": 4 * tokens * hidden + tokens * active * 8 * (hidden + inter / tp),
        "W": np.full(len(e), bandwidth),
    }
    e = e.assign(backend="vllm", ver="0.24.0", moe_dtype="bfloat16", moe_ep_size=1, distribution="balanced")
    e = e.assign(latency_ms=_milliseconds("moe", values))
    e = e.assign(tflops=values["F"] / e.latency_ms / 1e9)

    c = _grid(num_gpus=[2, 4, 8], bytes=[2.0**i for i in range(8, 30, 2)])
    frames = []
    names = {"all_reduce": "all_reduce", "alltoall": "all_to_all", "all_gather": "all_gather"}
    for op_name, operator in {**names, "reduce_scatter": "reduce_scatter"}.items():
        values = {"n": c.num_gpus.to_numpy(float), "S": c.bytes.to_numpy(float), "B": np.full(len(c), link)}
        src, source = ("vllm", "custom_graph") if op_name == "all_reduce" else ("nccl", "NCCL")
        f = c.assign(src=src, ver="0.24.0", kernel_source=source, op_name=op_name, dt="half")
        frames.append(f.assign(latency_ms=_milliseconds(operator, values)))
    return {
        "gemm_large_m.csv": gemm, "prefill_attention.csv": p, "decode_attention.csv": d,
        "moe_all_models.csv": e, "collectives.csv": pd.concat(frames),
    }  # fmt: skip


def test_a_folder_of_rows_becomes_documents_that_hold_its_parameters(tmp_path: Path) -> None:
    _write_folder(tmp_path, ("h200_sxm", "b200_sxm"))
    documents = fit_kernels(tmp_path)
    assert set(documents) == {"h200", "h100", "b200", "hopper", "blackwell", "generic"}
    h200 = documents["h200"]
    assert h200.gemm["bf16"].e == pytest.approx(TRUTH["gemm"]["e"], rel=0.01)
    assert h200.prefill_attention["bf16"].tail == pytest.approx(TRUTH["prefill_attention"]["tail"], rel=0.01)
    assert h200.decode_attention["bf16"].t0 == pytest.approx(11e-6, rel=0.01)
    assert h200.moe["bf16"].e == pytest.approx(TRUTH["moe"]["e"], rel=0.02)
    assert h200.collectives.all_to_all.alpha == pytest.approx(9e-6, rel=0.01)
    assert h200.gemm["bf16"].low == pytest.approx(1, abs=0.01)
    # H100 has no rows: it takes the Hopper set and says so.
    assert documents["h100"].gemm["bf16"].e == documents["hopper"].gemm["bf16"].e
    report = next(fit for fit in documents["h100"].fits if fit.operator == "gemm")
    assert report.rows == 0 and report.median_ape is None and "hopper" in report.note
    for path in write_documents(documents, tmp_path / "out"):
        document = load_document(path, CalibrationDocument)
        assert document == documents[path.stem]
        assert uncovered(document) == [] and dangling(document) == []


def test_thin_products_take_the_tensor_share_from_the_family(tmp_path: Path) -> None:
    _write_folder(tmp_path, ("h200_sxm",))
    frame = pd.read_csv(tmp_path / "gemm_large_m.csv")
    thin = frame[frame.m <= 16].assign(system="h100_sxm")
    pd.concat([frame, thin]).to_csv(tmp_path / "gemm_large_m.csv", index=False)
    sets = fit_sets(read_kernel_rows(tmp_path), MEASURED_DEVICES)
    h100, hopper = sets["h100"]["gemm", "bf16"], sets["hopper"]["gemm", "bf16"]
    assert h100.rows > 0
    assert h100.parameters["e"] == hopper.parameters["e"]
    # The same times on 3.35 instead of 4.8 TB/s are a larger share of the memory bandwidth.
    assert h100.parameters["w"] > 1.2 * TRUTH["gemm"]["w"]


class TestCleaning:
    def _read(self, folder: Path, name: str, change: dict[str, object], operator: str) -> tuple[int, int]:
        """Rows of an operator before and after the same rows come again, slower and changed."""
        _write_folder(folder)
        before = len(read_kernel_rows(folder)[operator])
        frame = pd.read_csv(folder / name)
        pd.concat([frame, frame.assign(**change)]).to_csv(folder / name, index=False)
        return before, len(read_kernel_rows(folder)[operator])

    def test_host_bound_kernels_are_left_out(self, tmp_path: Path) -> None:
        eager = {"backend": "sglang", "kernel_source": "eager", "latency_ms": 1.5e3 * HOST_BOUND_S}
        before, after = self._read(tmp_path, "gemm_large_m.csv", eager, "gemm")
        assert before == after

    def test_the_fastest_kernel_of_a_case_is_kept(self, tmp_path: Path) -> None:
        _write_folder(tmp_path)
        frame = pd.read_csv(tmp_path / "decode_attention.csv")
        slower = frame.assign(kernel_source="other", latency_ms=2 * frame.latency_ms)
        pd.concat([slower, frame]).to_csv(tmp_path / "decode_attention.csv", index=False)
        rows = read_kernel_rows(tmp_path)["decode_attention"]
        assert rows.time == pytest.approx(frame.latency_ms * 1e-3)

    @pytest.mark.parametrize(
        ("name", "operator", "change"),
        [
            ("collectives.csv", "all_reduce", {"kernel_source": "custom_eager", "dt": "other"}),
            ("prefill_attention.csv", "prefill_attention", {"window_size": 8192, "isl": 512}),
            ("moe_all_models.csv", "moe", {"distribution": "power_law_1.2", "num_tokens": 2048}),
            ("moe_all_models.csv", "moe", {"tflops": 1.0, "num_tokens": 2048}),
            ("moe_all_models.csv", "moe", {"moe_dtype": "fp8", "num_tokens": 2048}),
            ("gemm_large_m.csv", "gemm", {"system": "unknown_gpu"}),
        ],
    )
    def test_rows_measured_another_way_are_left_out(
        self, tmp_path: Path, name: str, operator: str, change: dict[str, object]
    ) -> None:
        before, after = self._read(tmp_path, name, change, operator)
        assert before == after

    def test_the_newest_version_with_enough_rows_counts(self, tmp_path: Path) -> None:
        _write_folder(tmp_path)
        frame = pd.read_csv(tmp_path / "collectives.csv")
        newer = frame.assign(ver="0.100.0", latency_ms=3 * frame.latency_ms)
        pd.concat([frame, newer]).to_csv(tmp_path / "collectives.csv", index=False)
        assert read_kernel_rows(tmp_path)["all_gather"].time.max() == pytest.approx(
            newer[newer.op_name == "all_gather"].latency_ms.max() * 1e-3
        )

    def test_a_sixteen_bit_query_over_an_fp8_cache_is_fp8_attention(self, tmp_path: Path) -> None:
        _write_folder(tmp_path)
        frame = pd.read_csv(tmp_path / "prefill_attention.csv")
        frame.assign(kv_cache_dtype="fp8").to_csv(tmp_path / "prefill_attention.csv", index=False)
        rows = read_kernel_rows(tmp_path)["prefill_attention"]
        assert set(rows.labels["dtype"]) == {"fp8"}
        assert (rows.values["P"] == RATES.peaks["fp8"]).all()


def test_errors_name_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="not a folder"):
        fit_kernels(tmp_path / "nowhere")
    with pytest.raises(DocumentError, match="no usable rows of gemm"):
        fit_kernels(tmp_path)
    (tmp_path / "gemm_large_m.csv").write_text("system,m\nh200_sxm,1\n")
    with pytest.raises(
        DocumentError, match="lacks the columns backend, ver, kernel_source, gemm_dtype, n, k, latency_ms"
    ):
        fit_kernels(tmp_path)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"\xff\xfe\x00", "is no CSV table"),
        (b"", "is no CSV table"),
        (b"system,backend\n", "lacks the columns ver, kernel_source"),
        (b"%s\nb200_sxm,vllm,1,x,bf16,bf16,1,1,1,1,abc,1\n", ":2: latency_ms: 'abc' is no measured number"),
        (b"%s\nb200_sxm,vllm,1,x,bf16,bf16,1,1,1,1,0,1\n", ":2: latency_ms: '0' is no measured number"),
        (b"%s\nb200_sxm,vllm,1,x,bf16,bf16,-1,1,1,1,1,1\n", ":2: batch_size: '-1' is no measured number"),
        (b"%s\nb200_sxm,vllm,1,x,bf16,bf16,1,1,1,1,inf,1\n", ":2: latency_ms: 'inf' is no measured number"),
    ],
)
def test_a_broken_kernel_file_is_named_with_its_line(tmp_path: Path, content: bytes, words: str) -> None:
    head = b"system,backend,ver,kernel_source,attn_dtype,kv_cache_dtype,batch_size,kvlen,num_heads,num_key_value_heads"
    file = tmp_path / "decode_attention.csv"
    file.write_bytes(content.replace(b"%s", head + b",latency_ms,kv_mb"))
    with pytest.raises(DocumentError, match=re.escape(words)) as caught:
        fit_kernels(tmp_path)
    assert "decode_attention.csv" in str(caught.value)


def test_each_engine_has_a_fit_of_its_own() -> None:
    """Two engines whose kernels differ by a factor are both predicted exactly, which one pooled fit cannot do."""
    fast = _rows("gemm")
    slow = KernelRows(fast.labels.assign(backend="slow"), 2.0 * fast.time, fast.values, fast.sizes)
    labels = pd.concat([fast.labels, slow.labels], ignore_index=True)
    values = {name: np.concatenate([column, column]) for name, column in fast.values.items()}
    both = KernelRows(labels, np.concatenate([fast.time, slow.time]), values, fast.sizes)
    found = by_engine({"gemm": both})
    assert {e["engine"] for e in found} == {"slow", *fast.labels["backend"]}
    assert all(e["median_ape"] < 0.02 and e["rows_held_out"] > 0 for e in found)
    pooled = fit_operator("gemm", "bf16", both).median_ape
    assert pooled is not None and pooled > 0.2
