"""Which rows and which scalars make each shipped engine profile, and the fit of all of it from `measurements/`.

A recipe has stages; each frees some scalars, starts from the stage before and looks at its own rows. Bands and the
errors that documents quote come from configurations that the fit did not see.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.engine_fit import PRIOR_WEIGHT, SCALARS, Composition, fit, fold, sections
from llmcap.analyses.accuracy.estimate_bands import (
    PHASES,
    OwnTimes,
    Phase,
    engine_without_bands,
    joined,
    overhead_band,
    own_times,
)
from llmcap.analyses.accuracy.measured_rows import MeasuredRow
from llmcap.analyses.accuracy.serving_terms import terms_of
from llmcap.records import dataclass

Array = NDArray[np.float64]

_RATES: Final = ("output_tok_per_s", "output_tok_per_s_per_device", "total_tok_per_s", "prefill_tok_per_s")
#: Collections of mixed old engines and machines, reported and not fitted.
_APART: Final = ("llm-inference-bench", "dstackai", "mlcommons")


@dataclass(frozen=True, slots=True)
class Stage:
    """Scalars freed on some rows."""

    rows: Callable[[MeasuredRow], bool]
    free: tuple[str, ...] | None
    """None: all."""
    prior_weight: float = PRIOR_WEIGHT


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a profile is made."""

    stages: tuple[Stage, ...]
    start: Mapping[str, float]
    """Scalars that start elsewhere than at their prior."""


def _under_load(row: MeasuredRow) -> bool:
    return row.protocol in ("spread", "fixed") and row.metric in ("tpot_s", "ttft_s") and "silicon" in _source(row)


def _at_saturation(row: MeasuredRow) -> bool:
    return row.protocol == "saturated" and not any(part in _source(row) for part in _APART)


def _of_the_engine(row: MeasuredRow) -> bool:
    return not any(part in _source(row) for part in _APART)


def _source(row: MeasuredRow) -> str:
    return row.cells.get("source", "").lower()


_SERVING: Final = tuple(s.name for s in SCALARS if not s.name.startswith("saturated"))
#: Kernels at the calibration's times: few scalars for few rows.
_PLAIN: Final = {
    **{s.name: 1.0 for s in SCALARS if s.name.endswith((".prefill", ".decode")) and "." in s.name},
    "decode_attention": 1.0, "decode_all_reduce": 1.0, "decode.step": 0.0, "prefill.step": 0.0,
}  # fmt: skip

RECIPES: Final[dict[str, Recipe]] = {
    "vllm": Recipe((Stage(_under_load, _SERVING),), {}),
    "sglang": Recipe((Stage(_under_load, _SERVING),), {}),
    "tensorrt-llm": Recipe(
        (
            Stage(_under_load, _SERVING),
            Stage(_at_saturation, ("saturated_experts", "saturated_rate"), 0.02),
        ),
        {},
    ),
    "tensorrt-llm-0": Recipe(
        (
            Stage(
                _of_the_engine,
                (
                    "decode.layer", "decode.sequence", "prefill.layer", "prefill_products", "launch_share",
                    "decode_attention", "hopper.experts.fp8.launch", "hopper.experts.fp8.decode",
                ),
                0.02,
            ),
        ),
        {**_PLAIN, "decode.sequence": 2.0, "decode.layer": 6.0, "prefill.layer": 50.0},
    ),
    "vllm-2023": Recipe(
        (Stage(_of_the_engine, ("decode.layer", "decode.sequence", "prefill.layer", "prefill_products"), 0.02),),
        {**_PLAIN, "decode.sequence": 100.0, "decode.layer": 200.0, "prefill.layer": 300.0, "launch_share": 1.0},
    ),
}  # fmt: skip


def fit_profile(engine: str, rows: Sequence[MeasuredRow]) -> Array:
    """Scalars of a profile from measured rows.

    Parameters
    ----------
    engine : str
        An id in RECIPES.
    rows : sequence of MeasuredRow
        Rows of any engine; those of others are passed over.
    """
    recipe = RECIPES[engine]
    p = np.array([recipe.start.get(s.name, s.prior) for s in SCALARS])
    for stage in recipe.stages:
        chosen = [r for r in rows if r.engine == engine and r.value > 0.0 and stage.rows(r)]
        if chosen:
            p = fit(terms_of(chosen), start=p, free=stage.free, prior_weight=stage.prior_weight)
    return p


def rows_of_stages(engine: str, rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """The rows that a profile is fitted to."""
    stages = RECIPES[engine].stages
    return [r for r in rows if r.engine == engine and r.value > 0.0 and any(s.rows(r) for s in stages)]


def fits_without(
    engine: str, rows: Sequence[MeasuredRow], key: Callable[[MeasuredRow], Any] = fold
) -> dict[str, Array]:
    """Scalars fitted without each of the groups that `key` makes of a profile's rows, by the key as text."""
    mine = rows_of_stages(engine, rows)
    keys = [str(key(r)) for r in mine]
    return {
        k: fit_profile(engine, [r for r, own in zip(mine, keys, strict=True) if own != k]) for k in sorted(set(keys))
    }


def held_out_errors(
    engine: str, rows: Sequence[MeasuredRow], key: Callable[[MeasuredRow], Any] = fold,
    fits: Mapping[str, Array] | None = None,
) -> tuple[tuple[MeasuredRow, ...], Array]:  # fmt: skip
    """Rows of a profile's stages and the log of predicted over measured, by scalars fitted without their fold.

    Parameters
    ----------
    key : callable
        What is held out together: the fold of a configuration, or for example the model.
    fits : mapping, optional
        What `fits_without` found, where it was asked before.
    """
    fits = fits_without(engine, rows, key) if fits is None else fits
    terms = terms_of(rows_of_stages(engine, rows))
    keys = np.array([str(key(r)) for r in terms.rows])
    error = np.full(len(terms.rows), np.nan)
    for k in np.unique(keys):
        inside = keys == k
        test = Composition(terms.take(inside))
        error[inside] = test.log_time(fits[str(k)]) - test.measured
    return terms.rows, error


def phase_times(
    engine: str, document: Mapping[str, Any], rows: Sequence[MeasuredRow], scalars: Array, fits: Mapping[str, Array]
) -> dict[Phase, OwnTimes]:
    """Rows that are mostly prefill or mostly decode, beside an estimate made without them.

    Parameters
    ----------
    scalars : ndarray
        Fitted to all rows of the stages; for rows that belong to none.
    fits : mapping
        As `fits_without` returns them.
    """
    mine = rows_of_stages(engine, rows)
    groups = {k: ([r for r in mine if str(fold(r)) == k], p) for k, p in fits.items()}
    name = engine.split("-")[0]
    known = {id(r) for r in mine}
    others = [r for r in rows if r.engine == engine and r.value > 0.0 and id(r) not in known and _of_the_engine(r)]
    groups["others"] = ([r for r in others if name in r.cells.get("engine", "").lower()], scalars)
    found: dict[Phase, OwnTimes] = {}
    for phase in PHASES:
        found[phase] = joined(
            own_times(engine_without_bands(document, p), these, phase, k) for k, (these, p) in groups.items()
        )
    return found


def band(error: Array) -> dict[str, float]:
    """10 and 90 % quantiles of measured over predicted, at least one side of 1 each."""
    if error.size < 10:
        return {"low": 0.6, "high": 1.6}
    low, high = np.exp(np.quantile(-error, [0.1, 0.9]))
    return {"low": min(float(f"{low:.3g}"), 1.0), "high": max(float(f"{high:.3g}"), 1.0)}


def in_bands(rows: Sequence[MeasuredRow], error: Array, key: Callable[[MeasuredRow], Any]) -> NDArray[np.bool_]:
    """Which rows lie in bands set by the other groups that `key` makes, array (n,).

    Parameters
    ----------
    rows, error
        Of one profile, as `held_out_errors` returns them.
    """
    kinds, keys = np.array([_band_of(r.metric) for r in rows]), np.array([str(key(r)) for r in rows])
    found = np.zeros(len(rows), dtype=bool)
    for kind, k in sorted(set(zip(kinds.tolist(), keys.tolist(), strict=True))):
        same = kinds == kind
        here, rest = same & (keys == k), same & (keys != k)
        ends = band(error[rest if rest.any() else same])
        ratio = np.exp(-error[here])
        found[here] = (ends["low"] <= ratio) & (ratio <= ends["high"])
    return found


def _band_of(metric: str) -> str:
    return "throughput" if metric in _RATES else metric.removesuffix("_s")


def document(
    engine: Mapping[str, Any], p: Array, rows: Sequence[MeasuredRow], error: Array, times: Mapping[Phase, OwnTimes]
) -> dict[str, Any]:
    """A profile's document with its fitted sections and bands in place.

    Parameters
    ----------
    engine : mapping
        The document as read.
    p : ndarray
        Scalars.
    rows, error
        As `held_out_errors` returns them.
    times
        As `phase_times` returns them.
    """
    found = dict(engine) | sections(p, engine)
    for phase, own in times.items():
        low, high, _ = overhead_band(own, (found[phase]["low"], found[phase]["high"]))
        found[phase] = found[phase] | {"low": low, "high": high}
    for name in ("tpot", "ttft", "throughput"):
        these = error[[_band_of(r.metric) == name for r in rows]]
        if these.size:
            found["serving"][name] = band(these)
    return found


def after_one_row(rows: Sequence[MeasuredRow], error: Array, metric: str = "tpot_s") -> Array:
    """Errors once each configuration was scaled by one of its rows; that row itself is left out.

    The row is the one whose hash is smallest: any row will do, and nobody chose it.
    """
    groups: dict[str, list[int]] = {}
    for i, row in enumerate(rows):
        if row.metric == metric:
            groups.setdefault(row.configuration, []).append(i)
    left: list[float] = []
    for members in groups.values():
        known = min(members, key=lambda i: hashlib.sha256(rows[i].cells.get("id", str(i)).encode()).hexdigest())
        left += [float(error[i] - error[known]) for i in members if i != known]
    return np.array(left)
