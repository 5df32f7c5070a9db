"""Predictions of measured rows, and how far off they are.

`predict` sees what a row was measured on, never its value or notes. Rows that share a setting are predicted together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.measured_rows import MeasuredRow, has_profile, read_rows
from llmcap.analyses.options import options_from
from llmcap.analyses.serving.bands import bands
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.analyses.setting import Setting, resolve
from llmcap.errors import DocumentError, OptionError
from llmcap.records import dataclass
from llmcap.specs.assumptions import Scales
from llmcap.units import format_bytes

Array = NDArray[np.float64]

#: By which columns errors are broken down.
GROUPINGS: Final = ("engine", "model", "hardware", "source", "protocol")


@dataclass(frozen=True, slots=True)
class Prediction:
    """A row with what the model says of it."""

    row: MeasuredRow
    predicted: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """Predicted over measured."""
        return self.predicted / self.row.value

    @property
    def ape(self) -> float:
        """Absolute percentage error, as a fraction."""
        return abs(self.ratio - 1.0)


def settings_of(row: MeasuredRow, assumptions: str = "calibrated", engine: str | None = None) -> Setting:
    """The setting a row was measured under.

    Engines run mxfp4 experts with 8-bit activations where the device has a 4-bit tensor path (gpt-oss on Blackwell in
    vLLM and TensorRT-LLM), and weight-only elsewhere.

    Raises
    ------
    OptionError, DocumentError
        The row names something that is not known, or a combination that cannot be.
    """
    options: dict[str, Any] = {
        "model": row.model, "hardware": row.hardware, "engine": engine or row.engine, "weight_dtype": row.weight_dtype,
        "kv_dtype": row.kv_dtype, "assumptions": assumptions, **dict(row.structure),
    }  # fmt: skip
    setting = resolve(options_from(options))
    narrow = dict(setting.weights.by_class).get("expert", setting.weights.default)
    if narrow == "mxfp4" and setting.machine.has_peak("nvfp4") and setting.activation_dtype != "fp8":
        setting = resolve(options_from(options | {"activation_dtype": "fp8"}))
    return setting


def predict(
    rows: Sequence[MeasuredRow],
    assumptions: str = "calibrated",
    engine: str | None = None,
    scales: Scales | None = None,
) -> tuple[list[Prediction], dict[str, int]]:
    """Predictions in the order of the rows, and the reasons and counts of rows that have none.

    Parameters
    ----------
    rows : sequence of MeasuredRow
    assumptions : str
        Id or path of an assumption set; one written by `llmcap calibrate --measured` carries a user's own scales.
    engine : str, optional
        Profile to use instead of the one that each row's engine stands for.
    scales : Scales, optional
        Factors on times in place of the assumption set's.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for i, row in enumerate(rows):
        groups.setdefault(row.setting, []).append(i)
    found: dict[int, Prediction] = {}
    skipped: dict[str, int] = {}
    for members in groups.values():
        try:
            setting = settings_of(rows[members[0]], assumptions, engine)
            if scales is not None:
                scaled = setting.assumptions.model_copy(update={"scales": scales})
                setting = replace(setting, assumptions=scaled)
            model = ServingModel.of(setting, took_place=True)
        except (OptionError, DocumentError) as error:
            reason = error.message.split("\n")[0][:120]
            skipped[reason] = skipped.get(reason, 0) + len(members)
            continue
        weights, memory = model.memory.weights_per_device, setting.machine.device.memory.capacity
        if weights > memory:
            reason = f"does not fit: {format_bytes(weights)} of weights on a device of {format_bytes(memory)}"
            skipped[reason] = skipped.get(reason, 0) + len(members)
            continue
        found |= _group(model, rows, members)
    return [found[i] for i in sorted(found)], skipped


def _group(model: ServingModel, rows: Sequence[MeasuredRow], members: list[int]) -> dict[int, Prediction]:
    found: dict[int, Prediction] = {}
    by_protocol: dict[str, list[int]] = {}
    for i in members:
        by_protocol.setdefault(rows[i].protocol, []).append(i)
    for protocol, here in by_protocol.items():
        take: Callable[[str], Array] = lambda name, here=here: np.array([getattr(rows[i], name) for i in here])  # type: ignore[misc] # noqa: E731
        context, output, cached, clients = take("isl"), take("osl"), take("cached"), take("concurrency")
        cached = np.minimum(cached, context - 1.0)
        if protocol == "saturated":
            answer = model.saturated(context, cached, output, take("requests"))
        elif protocol == "batch":
            answer = model.batch(clients, context, cached, output)
        else:
            answer = model.closed_loop(clients, context, cached, output, protocol, take("wait_steps"))  # type: ignore[arg-type]
        p = model.setting.parallelism
        band = bands(model, context, cached, output, np.maximum(answer["running"] / p.dp, 1.0))
        ends = {"tpot_s": band.tpot, "ttft_s": band.ttft}
        for j, i in enumerate(here):
            value = _metric(rows[i], {name: float(v[j]) for name, v in answer.items()}, p.devices)
            low, high = (float(np.broadcast_to(f, len(here))[j]) for f in ends.get(rows[i].metric, band.throughput))
            found[i] = Prediction(rows[i], value, value * low, value * high)
    return found


def _metric(row: MeasuredRow, answer: dict[str, float], devices: int) -> float:
    if row.metric in answer:
        return answer[row.metric]
    if row.metric == "output_tok_per_s_per_device":
        return answer["output_tok_per_s"] / devices
    if row.metric == "total_tok_per_s":
        return answer["output_tok_per_s"] * (row.isl + row.osl) / row.osl
    return row.concurrency * row.isl / answer["ttft_s"]


def summary(rows: int, predictions: Sequence[Prediction], skipped: dict[str, int]) -> dict[str, Any]:
    """Counts, skipped rows with reasons, engines taken for another, errors by metric and group as fractions."""
    measured = [p for p in predictions if p.row.value > 0.0]
    metrics = sorted({p.row.metric for p in measured})
    strange = Counter(name for p in predictions if not has_profile(name := p.row.cells.get("engine", "")))
    return {
        "rows": rows,
        "predicted": len(predictions),
        "skipped": [{"reason": r, "rows": n} for r, n in sorted(skipped.items(), key=lambda item: -item[1])],
        "without_profile": [{"engine": name, "rows": n} for name, n in sorted(strange.items())],
        "metrics": {m: errors([p for p in measured if p.row.metric == m]) for m in metrics},
        "groups": [g for m in metrics for g in groups([p for p in measured if p.row.metric == m], m)],
    }


def groups(predictions: Sequence[Prediction], metric: str) -> list[dict[str, Any]]:
    """Errors of one metric by engine, model, machine, source and protocol."""
    found: list[dict[str, Any]] = []
    for by in GROUPINGS:
        names: dict[str, list[Prediction]] = {}
        for p in predictions:
            names.setdefault(_group_name(p.row, by), []).append(p)
        if len(names) > 1 or by == "engine":
            found += [{"metric": metric, "by": by, "group": n, **errors(ps)} for n, ps in sorted(names.items())]
    return found


def _group_name(row: MeasuredRow, by: str) -> str:
    return row.cells.get("source", "")[:60] if by == "source" else str(getattr(row, by))


def errors(predictions: Iterable[Prediction]) -> dict[str, Any]:
    """Rows, median and 90 % quantile of the absolute percentage error, median bias, and the share inside the band."""
    these = list(predictions)
    ratio = np.array([p.ratio for p in these])
    inside = np.array([p.low <= p.row.value <= p.high for p in these])
    ape = np.abs(ratio - 1.0)
    return {
        "rows": len(these),
        "median_ape": float(np.median(ape)),
        "p90_ape": float(np.quantile(ape, 0.9)),
        "median_bias": float(np.median(ratio) - 1.0),
        "coverage": float(np.mean(inside)),
    }


def validate_file(
    path: Path, assumptions: str = "calibrated", engine: str | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary of a file of measured rows, and each row with its prediction.

    Returns
    -------
    summary : dict
        rows, predicted, skipped, metrics, groups.
    table : list of dict
        The file's columns with predicted, low, high and ape; empty where a row has no prediction.
    """
    return validate_files([path], assumptions, engine)


def validate_files(
    paths: Sequence[Path], assumptions: str = "calibrated", engine: str | None = None
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """`validate_file` over several files taken together."""
    rows: list[MeasuredRow] = []
    cells: list[dict[str, str]] = []
    skipped: dict[str, int] = {}
    for path in paths:
        usable, left_out, all_cells = read_rows(path)
        rows += usable
        cells += all_cells
        _count(skipped, left_out)
    predictions, unknown = predict(rows, assumptions, engine)
    _count(skipped, unknown)
    by_row = {id(p.row.cells): p for p in predictions}
    table = [dict(row) | predicted_cells(by_row.get(id(row))) for row in cells]
    return summary(len(cells), predictions, skipped), table


def shipped_files() -> list[Path]:
    """The shipped tables of measured values."""
    from llmcap.specs.registry import shipped_root

    folder = shipped_root() / "measurements" / "end_to_end"
    return sorted((*folder.glob("*.csv"), *folder.glob("*.csv.gz")))


def _count(total: dict[str, int], more: dict[str, int]) -> None:
    for reason, n in more.items():
        total[reason] = total.get(reason, 0) + n


def predicted_cells(p: Prediction | None) -> dict[str, Any]:
    """The columns that a prediction adds to its row."""
    if p is None:
        return dict.fromkeys(("predicted", "low", "high", "ape"))
    return {"predicted": p.predicted, "low": p.low, "high": p.high, "ape": p.ape if p.row.value > 0.0 else None}


def worst(predictions: Sequence[Prediction], n: int = 10) -> list[Prediction]:
    """Rows with the largest error on the log scale."""
    measured = [p for p in predictions if p.row.value > 0.0 and p.predicted > 0.0]
    return sorted(measured, key=lambda p: -abs(float(np.log(p.ratio))))[:n]
