"""Calibration documents from a folder of measured kernel rows.

One document per measured device, one per family, and `generic` for everything else. Where a device has no
rows of an operator, its set is carried over from its family. A set that speaks for devices that were not
measured gets the band of the leave-one-device-out prediction: what carrying over has cost on the devices
where it can be checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from llmcap.analyses.accuracy.kernel_fits import (
    FORMS,
    Fit,
    FloatArray,
    fit_form,
    fit_operator,
    measured_over_predicted,
    rounded,
)
from llmcap.analyses.accuracy.kernel_rows import MEASURED_DEVICES, DeviceRates, KernelRows, read_kernel_rows
from llmcap.errors import DocumentError, Problem
from llmcap.specs.base import dump_document
from llmcap.specs.calibration import CalibrationDocument

GENERIC: Final = "generic"
COLLECTIVES: Final = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
FULL_WIDTH: Final = {"int4": "bf16", "mxfp4": "bf16", "mxfp4_fp8": "fp8"}
"""Weight-only experts have few rows: they share t0, w and a with the dtype they multiply in."""

MLA_DECODE_EFFICIENCY: Final = 0.67
"""660 of 989 TFLOP/s: dense MLA decode bound by compute on H800, FlashMLA's README; no row gets there."""
WEIGHT_ONLY_BAND: Final = (0.8, 1.5)
"""Assumed widening of the bf16 band for 4-bit weights in dense products, of which there are no rows."""

FEWEST_ROWS: Final = 10
"""Fewer rows of a device than this count as none."""

DATA: Final = "AIConfigurator-core 0.12.0 package data (Apache-2.0), github.com/ai-dynamo/aiconfigurator"
DATA_DATE: Final = "2026-09"

Sets = dict[str, dict[tuple[str, str], Fit]]


def fit_kernels(
    directory: Path, devices: Mapping[str, DeviceRates] = MEASURED_DEVICES
) -> dict[str, CalibrationDocument]:
    """Fit every operator, device and dtype in a folder of kernel rows.

    Parameters
    ----------
    directory : Path
        Folder with the CSV files that `llmcap.analyses.accuracy.kernel_rows` names.
    devices : Mapping
        Datasheet rates by the `system` column; rows of other systems are ignored.

    Returns
    -------
    dict
        Documents by id: each device, each family, `generic`.

    Raises
    ------
    DocumentError
        When an operator that every document needs has no rows at all.
    """
    rows = read_kernel_rows(directory, devices)
    missing = [operator for operator in FORMS if operator not in rows]
    if missing:
        text = f"has no usable rows of {', '.join(missing)}"
        hint = f"rows of the systems {', '.join(devices)} are needed; the docs of calibrate name the files"
        raise DocumentError([Problem(str(directory), None, "", text, hint)])
    sets = fit_sets(rows, devices)
    return {name: _document(name, fits, sets[GENERIC], devices) for name, fits in sets.items()}


def write_documents(documents: Mapping[str, CalibrationDocument], folder: Path) -> list[Path]:
    """Write each document as `<id>.yaml` and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, document in documents.items():
        path = folder / f"{name}.yaml"
        path.write_text(dump_document(document), encoding="utf-8")
        paths.append(path)
    return paths


def transfer_ratios(operator: str, rows: KernelRows, fixed: Mapping[str, float] | None = None) -> dict[str, FloatArray]:
    """Leave one device out: measured over predicted time on each with parameters fitted on the others."""
    ratios = {}
    for device in sorted(set(rows.labels["device"])):
        here = np.asarray(rows.labels["device"] == device, dtype=bool)
        if not here.all():
            parameters = fit_form(FORMS[operator], rows.take(~here), fixed)
            ratios[device] = measured_over_predicted(operator, parameters, rows.take(here))
    return ratios


def fit_sets(rows: Mapping[str, KernelRows], devices: Mapping[str, DeviceRates]) -> Sets:
    """Fits by document id, then by (operator, dtype); families before the devices that lean on them."""
    members: dict[str, list[str]] = {GENERIC: [rates.device for rates in devices.values()]}
    for rates in devices.values():
        members.setdefault(rates.family, []).append(rates.device)
    for rates in devices.values():
        members[rates.device] = [rates.device]
    family_of = {rates.device: rates.family for rates in devices.values()}
    sets: Sets = {name: {} for name in members}
    for operator, all_rows in rows.items():
        present = set(all_rows.labels["dtype"])
        for dtype in sorted(present, key=lambda d: (d in FULL_WIDTH, d)):
            pool = all_rows.where(dtype=dtype)
            for name, devices_here in members.items():
                own = pool.take(np.isin(pool.labels["device"].to_numpy(dtype=str), devices_here))
                fit = _fit_for(operator, dtype, own, name, sets, family_of)
                if fit is not None:
                    sets[name][operator, dtype] = fit
    return sets


def _fit_for(
    operator: str, dtype: str, own: KernelRows, name: str, sets: Sets, family_of: Mapping[str, str]
) -> Fit | None:
    """One set of one document from its own rows, or from its family's set; None where neither exists."""
    family = family_of.get(name)
    kin = sets[family].get((operator, dtype)) if family else None
    if len(own) < FEWEST_ROWS:
        return _carried(kin, name, family or "", sets[GENERIC][operator, dtype]) if kin else None
    fixed, note = _shared(operator, dtype, sets[name])
    if operator == "gemm" and kin is not None and own.values["x"].max() < 1:
        # Thin products say nothing about the tensor peak; the same chip with another memory does.
        fixed = {key: kin.parameters[key] for key in ("e", "x0", "a")}
        note = f"no rows above m = 16: e, x0 and a from the family {family}; error and band are of thin products"
    fit = fit_operator(operator, dtype, own, fixed, note)
    measured = len(set(own.labels["device"]))
    if name == GENERIC:
        return _transferable(fit, own, fixed, sets[GENERIC])
    if family is None and measured == 1:
        generic = sets[GENERIC][operator, dtype]
        return _widened(fit, generic.low, generic.high, "one measured device: band as wide as that of generic")
    return fit


def _shared(operator: str, dtype: str, fits: Mapping[tuple[str, str], Fit]) -> tuple[dict[str, float], str]:
    base = fits.get((operator, FULL_WIDTH.get(dtype, "")))
    if base is None:
        return {}, ""
    return {key: base.parameters[key] for key in ("t0", "w", "a")}, f"t0, w and a are those of {base.dtype}: few rows"


def _transferable(
    fit: Fit, rows: KernelRows, fixed: Mapping[str, float], generic: Mapping[tuple[str, str], Fit]
) -> Fit:
    ratios = transfer_ratios(fit.operator, rows, fixed)
    if ratios:
        low, high = np.quantile(np.concatenate(list(ratios.values())), [0.1, 0.9])
        errors = ", ".join(f"{d} {np.median(np.abs(1 / r - 1)):.1%}" for d, r in ratios.items())
        return _widened(fit, rounded(low, 3), rounded(high, 3), f"leaving a device out, median error: {errors}")
    others = [g for (op, dtype), g in generic.items() if op == fit.operator and dtype not in FULL_WIDTH]
    if not others:
        return fit
    low, high = min(g.low for g in others), max(g.high for g in others)
    return _widened(fit, low, high, "one measured device: the widest band of the operator")


def _widened(fit: Fit, low: float, high: float, note: str) -> Fit:
    return replace(fit, low=min(fit.low, low), high=max(fit.high, high), note="; ".join(filter(None, (fit.note, note))))


def _carried(kin: Fit, name: str, family: str, generic: Fit) -> Fit:
    note = f"too few rows of {name}: the set of the family {family}, band as wide as that of generic"
    bare = replace(kin, rows=0, rows_held_out=0, median_ape=None, p90_ape=None, backends="", note="")
    return _widened(bare, generic.low, generic.high, note)


def _document(
    name: str,
    fits: Mapping[tuple[str, str], Fit],
    generic: Mapping[tuple[str, str], Fit],
    devices: Mapping[str, DeviceRates],
) -> CalibrationDocument:
    tables: dict[str, dict[str, Any]] = {
        "gemm": {},
        "prefill_attention": {},
        "decode_attention": {},
        "moe": {},
    }
    for (operator, dtype), fit in fits.items():
        if operator in tables:
            tables[operator][dtype] = _part(fit)
    for part in tables["decode_attention"].values():
        part["e"] = MLA_DECODE_EFFICIENCY
    collectives = {op: _part(fits.get((op, "any"), generic[op, "any"])) for op in COLLECTIVES}
    collectives["all_reduce"]["in_switch"] = name != GENERIC
    if name == GENERIC:
        del collectives["all_reduce"]["switch"]
    rates = next((r for r in devices.values() if r.device == name), None)
    families = {r.family for r in devices.values()}
    weight_only = dict(tables["gemm"]["bf16"])
    weight_only["low"] = rounded(weight_only["low"] * WEIGHT_ONLY_BAND[0], 3)
    weight_only["high"] = rounded(weight_only["high"] * WEIGHT_ONLY_BAND[1], 3)
    content: dict[str, Any] = {
        "schema": CalibrationDocument.schema_name,
        "id": name,
        "name": _title(name, rates),
        "device": rates.device if rates else "",
        "family": name if name in families else "",
        **tables,
        "weight_only": weight_only,
        "collectives": collectives,
        "fits": [_report(fit) for fit in fits.values()],
        "sources": _sources(name, fits, rates),
    }
    if rates is not None:
        content["reference"] = _reference(rates)
    return CalibrationDocument.model_validate(content)


_TIMES: Final = ("t0", "alpha", "alpha_log2", "switch")


def _part(fit: Fit) -> dict[str, Any]:
    part: dict[str, Any] = {}
    for name, value in fit.parameters.items():
        part[name] = f"{value * 1e6:.4g} us" if name in _TIMES else value
    return {**part, "low": fit.low, "high": fit.high}


def _report(fit: Fit) -> dict[str, Any]:
    report = {
        "operator": fit.operator, "dtype": fit.dtype, "rows": fit.rows, "rows_held_out": fit.rows_held_out,
        "median_ape": fit.median_ape, "p90_ape": fit.p90_ape,
        "range": fit.range, "backends": fit.backends, "note": fit.note,
    }  # fmt: skip
    return {key: value for key, value in report.items() if value not in (None, "")}


def _reference(rates: DeviceRates) -> dict[str, Any]:
    return {
        "peaks": {dtype: f"{peak / 1e12:g} TFLOP/s" for dtype, peak in rates.peaks.items()},
        "memory_bandwidth": f"{rates.memory_bandwidth / 1e12:g} TB/s",
        "link_bandwidth": f"{rates.link_bandwidth / 1e9:g} GB/s",
        "compute_units": rates.compute_units,
    }


def _path(operator: str, dtype: str) -> str:
    return f"collectives.{operator}" if operator in COLLECTIVES else f"{operator}.{dtype}"


def _title(name: str, rates: DeviceRates | None) -> str:
    if rates is not None:
        return f"Kernels of {name.upper()}"
    return "Kernels of a device without measurements" if name == GENERIC else f"Kernels of the {name} family"


def _sources(name: str, fits: Mapping[tuple[str, str], Fit], rates: DeviceRates | None) -> list[dict[str, Any]]:
    measured = ["gemm", "prefill_attention", "decode_attention", "moe", "collectives", "fits"]
    how = (
        "Robust fit of log time, pooled over vLLM, SGLang and TensorRT-LLM (all-gather and the like: NCCL), "
        "on 70 % of the configurations; errors and band (10 % and 90 % quantile of measured over predicted) "
        "from the other 30 %. Experts: balanced routing, 1,024 tokens and more; decode batches extrapolate. "
        "Prefill attention: up to 16,384 tokens, head size 128, no cached prefix."
    )
    if name == GENERIC:
        ref = f"Hopper and Blackwell kernels pooled, assumed to hold elsewhere as shares of the peaks: {DATA}"
        sources = [{"covers": measured, "kind": "assumed", "ref": ref, "date": DATA_DATE, "note": how}]
    else:
        sources = [{"covers": measured, "kind": "measured", "ref": DATA, "date": DATA_DATE, "note": how}]
    carried = [fit for fit in fits.values() if not fit.rows]
    if carried:
        covers = sorted(_path(fit.operator, fit.dtype) for fit in carried)
        sources.append({"covers": covers, "kind": "derived", "ref": carried[0].note})
    sources.append(
        {
            "covers": [f"decode_attention.{dtype}.e" for operator, dtype in fits if operator == "decode_attention"],
            "kind": "documentation",
            "ref": "FlashMLA README, github.com/deepseek-ai/FlashMLA",
            "date": "2025-04-22",
            "note": (
                "660 TFLOP/s in compute-bound dense MLA decode on H800 SXM5 (989 TFLOP/s bf16); assumed for "
                "other devices and an fp8 cache."
            ),
        }
    )
    sources.append(
        {
            "covers": ["weight_only"],
            "kind": "assumed",
            "ref": "The bf16 set, its band times 0.8 and 1.5: no dense product of 4-bit weights was measured",
        }
    )
    if rates is not None:
        note = "Dense peaks and bandwidths, links per direction; compute units as CUDA reports them."
        sources.append(
            {
                "covers": ["reference"],
                "kind": "datasheet",
                "ref": f"NVIDIA {name.upper()} SXM datasheet",
                "note": note,
            }
        )
    return sources
