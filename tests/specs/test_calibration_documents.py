"""Every shipped calibration loads, has a source for each number and stays within physical limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcap.analyses.accuracy.calibrate import fit_kernels
from llmcap.specs.base import dangling, load_document, uncovered
from llmcap.specs.calibration import Band, CalibrationDocument
from llmcap.specs.registry import list_ids, shipped_root

FOLDER = shipped_root() / "hardware" / "calibration"
PATHS = sorted(FOLDER.glob("*.yaml"))
#: Families of which single published benchmarks are known and no kernel rows; tests/published holds them to those.
FROM_BENCHMARKS = {"ada", "ampere", "blackwell-rtx", "cdna3", "cdna4"}


@pytest.fixture(params=PATHS, ids=[path.stem for path in PATHS])
def document(request: pytest.FixtureRequest) -> CalibrationDocument:
    path: Path = request.param
    return load_document(path, CalibrationDocument)


def _sets(document: CalibrationDocument) -> dict[str, Band]:
    sets: dict[str, Band] = {"weight_only": document.weight_only}
    for operator in ("gemm", "prefill_attention", "decode_attention", "moe"):
        sets |= {f"{operator}.{dtype}": part for dtype, part in getattr(document, operator).items()}
    for operator in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all"):
        sets[operator] = getattr(document.collectives, operator)
    return sets


def test_the_measured_devices_their_families_and_a_fallback_ship() -> None:
    assert {path.stem for path in PATHS} >= {"b200", "h200", "h100", "hopper", "blackwell", "generic"}
    assert set(list_ids("calibration")) >= {path.stem for path in PATHS}


def test_every_number_has_a_source(document: CalibrationDocument) -> None:
    assert uncovered(document) == []
    assert dangling(document) == []


def test_efficiencies_are_shares_and_bands_hold_the_estimate(document: CalibrationDocument) -> None:
    for name, part in _sets(document).items():
        values = part.model_dump(by_alias=False)
        for key in ("e", "w", "a", "beta"):
            if (share := getattr(part, key, None)) is not None:
                assert 0 < share <= 1.05, (document.id, name, key)
        assert 0.2 < part.low <= 1 <= part.high < 3, (document.id, name, values)
        for key in ("t0", "alpha", "alpha_log2"):
            if (seconds := getattr(part, key, None)) is not None:
                assert 1e-8 <= seconds <= 1e-4, (document.id, name, key)


def test_bf16_and_fp8_are_always_there(document: CalibrationDocument) -> None:
    """Other dtypes fall back to these two."""
    for operator in ("gemm", "prefill_attention", "decode_attention", "moe"):
        assert {"bf16", "fp8"} <= set(getattr(document, operator)), operator


def test_every_set_reports_how_it_was_fitted(document: CalibrationDocument) -> None:
    reported = {(fit.operator, fit.dtype) for fit in document.fits}
    for operator in ("gemm", "prefill_attention", "decode_attention", "moe"):
        for dtype in getattr(document, operator):
            assert (operator, dtype) in reported
    for fit in document.fits:
        assert fit.rows or fit.note, "a set without rows says where it comes from"
        assert (fit.median_ape is None) == (fit.rows == 0)


@pytest.mark.parametrize(
    ("device", "bf16", "fp8"),
    [
        ("b200", (1153, 1314), (1338, 1518)),
        ("h200", (537, 652), (592, 782)),
        ("h100", (516, 655), (601, 779)),
    ],
)
def test_attention_reaches_measured_rates_at_sixteen_thousand_tokens(
    device: str, bf16: tuple[float, float], fp8: tuple[float, float]
) -> None:
    """Between the slowest and the fastest engine at 40 query heads, 8 KV heads, 16,384 tokens, causal.

    Measured rows of AIConfigurator-core 0.12.0 [TFLOP/s], an fp8 cache counting as fp8.
    """
    document = load_document(FOLDER / f"{device}.yaml", CalibrationDocument)
    assert document.reference is not None
    s, heads, kv_heads = 16384.0, 40, 8
    flop = 4 * heads * 128 * s * (s + 1) / 2
    for dtype, width, (slowest, fastest) in (("bf16", 2, bf16), ("fp8", 1, fp8)):
        fit = document.prefill_attention[dtype]  # type: ignore[index]
        at_once = {"b200": 15.2 / 7.49}.get(device, 1.0)  # tiles of queries per unit, by 16-bit TFLOP/s per unit
        tail = fit.tail * s / 128 * document.reference.compute_units * at_once * 4 * 128 * 128**2
        moved = s * 128 * (heads * (width + 2) + 2 * kv_heads * width)
        seconds = fit.t0 + (flop + tail) / (fit.e * document.reference.peaks[dtype])
        seconds += moved / (fit.w * document.reference.memory_bandwidth)
        assert slowest < flop / seconds / 1e12 < fastest, dtype


@pytest.mark.parametrize(("device", "milliseconds"), [("b200", 2.6), ("h200", 4.0)])
def test_all_reduce_of_a_gigabyte_over_eight_devices(device: str, milliseconds: float) -> None:
    """Measured 2.6 ms on 8 x B200 and 4.0 ms on 8 x H200 (AIConfigurator-core 0.12.0); within a tenth."""
    document = load_document(FOLDER / f"{device}.yaml", CalibrationDocument)
    assert document.reference is not None
    fit = document.collectives.all_reduce
    seconds = 3 * fit.switch + (1 + 1 / 8) * 2**30 / (fit.beta * document.reference.link_bandwidth)
    assert seconds * 1e3 == pytest.approx(milliseconds, rel=0.1)


def test_the_shipped_documents_follow_from_the_shipped_rows() -> None:
    """Refitted from the rows beside them; optimisers of other releases may end a little elsewhere."""
    fitted = fit_kernels(shipped_root() / "measurements" / "kernels")
    assert {path.stem for path in PATHS} - set(fitted) == FROM_BENCHMARKS
    for path in PATHS:
        if path.stem in FROM_BENCHMARKS:
            continue
        shipped = load_document(path, CalibrationDocument)
        assert [(f.operator, f.dtype, f.rows) for f in shipped.fits] == [
            (f.operator, f.dtype, f.rows) for f in fitted[path.stem].fits
        ]
        for ours, theirs in zip(shipped.fits, fitted[path.stem].fits, strict=True):
            if ours.median_ape is None:  # carried over from another set
                assert theirs.median_ape is None
            else:
                assert theirs.median_ape == pytest.approx(ours.median_ape, rel=0.05, abs=0.005)
