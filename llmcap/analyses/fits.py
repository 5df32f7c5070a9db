"""Which calibrated fit prices an operator, and where in the calibration document it stands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Generic, TypeVar

from llmcap.arch.dtypes import bytes_per_element
from llmcap.arch.operators import Attention, Exchange, Experts, Gemm
from llmcap.records import dataclass
from llmcap.specs.calibration import (
    Band,
    CalibrationDocument,
    CollectiveFit,
    DecodeAttentionFit,
    GemmFit,
    MoeFit,
    PrefillAttentionFit,
)

F = TypeVar("F", bound=Band)

#: Which fit stands in for a dtype without one of its own.
_STAND_IN: Final = {
    "fp16": ("bf16",),
    "fp32": ("bf16",),
    "int8": ("fp8", "bf16"),
    "nvfp4": ("fp8", "bf16"),
    "fp8": ("bf16",),
}


@dataclass(frozen=True, slots=True)
class Chosen(Generic[F]):
    """A fit and its place."""

    path: str
    """Of the document, such as `gemm.fp8`."""
    fit: F


def gemm_fit(op: Gemm, calibration: CalibrationDocument) -> Chosen[GemmFit]:
    """The fit of a matrix product."""
    if weight_only(op.weight_dtype, op.compute_dtype):
        return Chosen("weight_only", calibration.weight_only)
    return _pick("gemm", calibration.gemm, op.compute_dtype)


def expert_fit(op: Experts, calibration: CalibrationDocument) -> Chosen[MoeFit]:
    """The fit of routed experts."""
    return _pick("moe", calibration.moe, _expert_key(op, calibration))


def prefill_attention_fit(op: Attention, calibration: CalibrationDocument) -> Chosen[PrefillAttentionFit]:
    """The fit of prefill attention."""
    return _pick("prefill_attention", calibration.prefill_attention, op.dtype)


def decode_attention_fit(kv_dtype: str, calibration: CalibrationDocument) -> Chosen[DecodeAttentionFit]:
    """The fit of decode attention, by the width of the cache."""
    narrow = bytes_per_element(kv_dtype) <= 1.0
    return _pick("decode_attention", calibration.decode_attention, "fp8" if narrow else "bf16")


def collective_fit(op: Exchange, calibration: CalibrationDocument) -> Chosen[CollectiveFit]:
    """The fit of a collective; a hand-over to the next stage is priced as a gather of two ranks."""
    name = {"send": "all_gather"}.get(op.kind, op.kind)
    return Chosen(f"collectives.{name}", getattr(calibration.collectives, name))


def band(fit: Band) -> tuple[float, float]:
    """Band factors around the prediction itself: a fit biased to one side still brackets it."""
    return min(fit.low, 1.0), max(fit.high, 1.0)


def weight_only(stored: str, runs: str) -> bool:
    """Whether weights are widened before they are multiplied."""
    return bytes_per_element(stored) < bytes_per_element(runs)


def _pick(name: str, fits: Mapping[Any, F], dtype: str) -> Chosen[F]:
    for candidate in (dtype, *_STAND_IN.get(dtype, ())):
        if candidate in fits:
            return Chosen(f"{name}.{candidate}", fits[candidate])
    first = next(iter(fits))
    return Chosen(f"{name}.{first}", fits[first])


def _expert_key(op: Experts, calibration: CalibrationDocument) -> str:
    if not weight_only(op.weight_dtype, op.compute_dtype):
        return op.compute_dtype
    if op.weight_dtype == "mxfp4":
        return "mxfp4_fp8" if op.compute_dtype == "fp8" and "mxfp4_fp8" in calibration.moe else "mxfp4"
    return "int4" if "int4" in calibration.moe else op.compute_dtype
