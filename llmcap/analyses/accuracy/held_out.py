"""How wrong the model is on rows that no fit has seen, by engine, metric and kind of hold-out.

Refitting every profile fold by fold takes minutes, so its outcome is kept in `measurements/held_out.json` beside the
digest of the rows it came from; `llmcap calibrate --engines` writes it anew.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.engine_fit import fold
from llmcap.analyses.accuracy.engine_recipes import (
    RECIPES,
    after_one_row,
    document,
    fit_profile,
    fits_without,
    held_out_errors,
    in_bands,
    phase_times,
)
from llmcap.analyses.accuracy.estimate_bands import OwnTimes, overhead_band
from llmcap.analyses.accuracy.measured_rows import MeasuredRow, read_rows
from llmcap.specs.base import dump_document
from llmcap.specs.engine import Engine
from llmcap.specs.registry import find, shipped_root

Array = NDArray[np.float64]
Hits = NDArray[np.bool_]
Part = tuple[str, tuple[MeasuredRow, ...], Array, Hits]
"""A profile, the rows held out, log of predicted over measured, and whether they lie in bands set without them."""

#: What is held out together. Leaving out a model or a machine tells how a fit carries over, other splits of the
#: configurations what a figure owes to the split.
HOLD_OUTS: Final[dict[str, Callable[[MeasuredRow], Any]]] = {
    "configuration": fold,
    "configuration, second split": lambda row: fold(row, salt="second"),
    "configuration, third split": lambda row: fold(row, salt="third"),
    "model": lambda row: row.model,
    "machine": lambda row: row.hardware,
}
#: Profiles with enough models and machines to leave one out.
_UNDER_LOAD: Final = ("vllm", "sglang", "tensorrt-llm")


def held_out_file() -> Path:
    """Where the shipped held-out errors are."""
    return shipped_root() / "measurements" / "held_out.json"


def load_held_out() -> dict[str, Any]:
    """The shipped held-out errors."""
    found: dict[str, Any] = json.loads(held_out_file().read_text(encoding="utf-8"))
    return found


def digest(files: Sequence[Path]) -> str:
    """Digest of the rows, whatever the files are called."""
    total = hashlib.sha256()
    for file in sorted(files, key=lambda f: f.name):
        total.update(file.read_bytes())
    return total.hexdigest()[:16]


def rows_of(files: Sequence[Path]) -> list[MeasuredRow]:
    """Usable rows with a value of several files."""
    return [row for file in files for row in read_rows(file)[0] if row.value > 0.0]


def refit(files: Sequence[Path], report: Callable[[str], None]) -> tuple[dict[str, str], dict[str, Any]]:
    """Fit every profile to measured rows.

    Parameters
    ----------
    files : sequence of Path
        Tables of measured rows.
    report : callable
        Told what is being done.

    Returns
    -------
    documents : dict
        YAML text of each profile by id.
    held_out : dict
        Errors on rows not used, by hold-out, engine and metric, and how many of them lie in the bands of an estimate.
    """
    rows = rows_of(files)
    documents: dict[str, str] = {}
    parts: dict[str, list[Part]] = {name: [] for name in HOLD_OUTS}
    table: list[dict[str, Any]] = []
    bands: list[dict[str, Any]] = []
    for engine in RECIPES:
        report(f"fitting {engine}")
        scalars = fit_profile(engine, rows)
        for name, key in HOLD_OUTS.items():
            if name != "configuration" and engine not in _UNDER_LOAD:
                continue
            report(f"fitting {engine} with each {name} left out in turn")
            fits = fits_without(engine, rows, key)
            used, error = held_out_errors(engine, rows, key, fits)
            inside = in_bands(used, error, key)
            table += _lines(name, engine, used, error, inside)
            parts[name].append((engine, used, error, inside))
            if name == "configuration":
                plain = _plain(find("engine", engine))
                times = phase_times(engine, plain, rows, scalars, fits)
                bands += [_band_line(engine, phase, own, plain[phase]) for phase, own in times.items()]
                new = document(plain, scalars, used, error, times)
                documents[engine] = dump_document(Engine.model_validate(new))
    for name, these in parts.items():
        table += _lines(name, "all under load", *_joined(these))
    table += _further(parts["configuration"])
    found = {"schema": "llmcap.held-out/1", "rows_sha256": digest(files), "errors": table, "estimate_bands": bands}
    return documents, found


def _plain(path: Path) -> dict[str, Any]:
    from llmcap.specs.loader import read_yaml

    data, _, _ = read_yaml(path)
    found: dict[str, Any] = data
    return found


def _band_line(engine: str, phase: str, own: OwnTimes, old: Mapping[str, Any]) -> dict[str, Any]:
    low, high, share = overhead_band(own, (old["low"], old["high"]))
    return {
        "engine": engine, "phase": phase, "rows": int(own.measured.size), "low": low, "high": high,
        "inside": float(f"{share:.3g}"),
    }  # fmt: skip


def _joined(parts: Sequence[Part]) -> tuple[tuple[MeasuredRow, ...], Array, Hits]:
    """TTFT and TPOT rows of the engines under load."""
    load = [part[1:] for part in parts if part[0] in _UNDER_LOAD]
    rows = tuple(r for used, _, _ in load for r in used)
    error = np.concatenate([e for _, e, _ in load]) if load else np.zeros(0)
    inside = np.concatenate([h for _, _, h in load]) if load else np.zeros(0, dtype=bool)
    return _where(rows, error, inside, lambda r: r.metric in ("tpot_s", "ttft_s"))


def _where(
    rows: Sequence[MeasuredRow], error: Array, inside: Hits, wanted: Callable[[MeasuredRow], bool]
) -> tuple[tuple[MeasuredRow, ...], Array, Hits]:
    chosen = np.array([wanted(r) for r in rows], dtype=bool)
    return tuple(r for r, c in zip(rows, chosen, strict=True) if c), error[chosen], inside[chosen]


def _further(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """Lines for light load, and with one known row per configuration."""
    rows, error, inside = _joined(parts)
    found = [
        _line("configuration, one row known", "all under load", metric, after_one_row(rows, error, metric))
        for metric in ("tpot_s", "ttft_s")
        if rows
    ]
    for engine in (*_UNDER_LOAD, "all under load"):
        light = _where(
            rows, error, inside,
            lambda r, engine=engine: engine in (r.engine, "all under load") and r.concurrency <= 64.0,  # type: ignore[misc]
        )  # fmt: skip
        found += _lines("configuration, c <= 64", engine, *light)
    return found


def _lines(name: str, engine: str, rows: Sequence[MeasuredRow], error: Array, inside: Hits) -> list[dict[str, Any]]:
    metrics = np.array([r.metric for r in rows])
    return [_line(name, engine, str(m), error[metrics == m], inside[metrics == m]) for m in np.unique(metrics)]


def _line(name: str, engine: str, metric: str, error: Array, inside: Hits | None = None) -> dict[str, Any]:
    ratio = np.exp(error)
    ape = np.abs(ratio - 1.0)
    figures: dict[str, float] = {
        "median_ape": float(np.median(ape)), "p90_ape": float(np.quantile(ape, 0.9)),
        "median_bias": float(np.median(ratio) - 1.0),
    }  # fmt: skip
    if inside is not None:
        figures["coverage"] = float(np.mean(inside))
    return {"held_out": name, "engine": engine, "metric": metric, "rows": int(error.size)} | {
        k: float(f"{v:.3g}") for k, v in figures.items()
    }
