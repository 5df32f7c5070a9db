"""A user's own machine in two numbers: factors on prefill and decode times, from as little as one measured row."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.measured import errors, predict
from llmcap.analyses.accuracy.measured_rows import MeasuredRow, lengths_unsaid, read_rows
from llmcap.analyses.accuracy.robust_fit import soft_l1_fit
from llmcap.errors import DocumentError, Problem, printable
from llmcap.specs.assumptions import Assumptions, Scales, Statement
from llmcap.specs.registry import load_as

Array = NDArray[np.float64]

#: Spread of the logarithm of a scale before anything is measured: that of configurations around the shipped profiles.
PRIOR_SPREAD: Final = 0.5
LOSS_SCALE: Final = 0.1
_HIGHEST = 20.0
_LOWEST = 1.0 / _HIGHEST


def fit_scales(rows: Sequence[MeasuredRow], assumptions: str = "calibrated", engine: str | None = None) -> Scales:
    """Factors on prefill and decode times that bring predictions to the measured values.

    Parameters
    ----------
    rows : sequence of MeasuredRow
        With values; one is enough.
    assumptions, engine : str
        What the factors apply to.

    Returns
    -------
    Scales
        Where rows say nothing of a phase, its factor follows the other's: a TPOT alone cannot tell them apart.

    Notes
    -----
    Least squares of log(predicted / measured) with soft-L1 loss, and a prior of 1 with a spread of half an e-fold on
    each factor and a narrow one on their ratio, so that one row moves both and many rows move each.
    """
    measured = np.log([r.value for r in rows])

    def residual(x: Array) -> Array:
        scales = Scales(prefill=float(np.exp(x[0])), decode=float(np.exp(x[1])))
        found, _ = predict(rows, assumptions, engine, scales)
        error = np.log([p.predicted for p in found]) - measured
        return np.concatenate([error, 0.05 * x / PRIOR_SPREAD, [0.05 * (x[0] - x[1]) / PRIOR_SPREAD]])

    found = soft_l1_fit(residual, np.zeros(2), np.log(_HIGHEST), LOSS_SCALE)
    prefill, decode = (float(f"{v:.4g}") for v in np.exp(found))
    return Scales(prefill=prefill, decode=decode)


def own_assumptions(
    path: Path, assumptions: str = "calibrated", engine: str | None = None
) -> tuple[Assumptions, dict[str, Any]]:
    """An assumptions document with scales fitted to a file of measured rows, and what it was made from.

    Returns
    -------
    document : Assumptions
        Its id comes from the rows.
    report : dict
        rows, skipped, scales, and the errors before and after.

    Raises
    ------
    DocumentError
        No row can be predicted, or values are so far off that no machine explains it.
    """
    rows, skipped, cells = read_rows(path)
    usable = [r for r in rows if r.value > 0.0]
    before, unknown = predict(usable, assumptions, engine)
    if not before:
        reasons = "; ".join(f"{n} {reason}" for reason, n in (skipped | unknown).items()) or "the file is empty"
        raise DocumentError([Problem(str(path), None, "", "has no row that can be predicted", reasons)])
    usable = [p.row for p in before]
    scales = fit_scales(usable, assumptions, engine)
    if not _believable(scales):
        text = f"has values about {1.0 / np.median([p.ratio for p in before]):.3g} times the predicted ones"
        hint = f"times are in seconds; factors beyond {_LOWEST:g} and {_HIGHEST:g} describe another setting"
        raise DocumentError([Problem(str(path), None, "", text, hint)])
    after, _ = predict(usable, assumptions, engine, scales)
    base = load_as(Assumptions, "assumptions", assumptions).document
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    document = base.model_copy(
        update={
            "id": f"own-{digest[:8]}",
            "name": f"{base.name}, scaled to own measurements",
            "scales": scales,
            "statements": (*base.statements, _statement(usable, scales, digest)),
        }
    )
    report = {
        "rows": len(cells),
        "lengths_unsaid": lengths_unsaid(cells),
        "used": len(usable),
        "skipped": skipped | unknown,
        "scales": {"prefill": scales.prefill, "decode": scales.decode},
        "before": errors(before),
        "after": errors(after),
    }
    return document, report


def _believable(scales: Scales) -> bool:
    """Whether the factors came to rest within their bounds."""
    return all(1.01 * _LOWEST < factor < 0.99 * _HIGHEST for factor in (scales.prefill, scales.decode))


def _statement(rows: Sequence[MeasuredRow], scales: Scales, digest: str) -> Statement:
    machines = ", ".join(sorted({f"{r.model} on {r.hardware}" for r in rows})[:3])
    return Statement(
        name="own measurements",
        text=f"Prefill times are taken times {scales.prefill:g} and decode times {scales.decode:g}, fitted to "
        f"{len(rows)} measured rows ({printable(machines, 200)}).",
        source=f"a file of measured rows, sha256 {digest[:16]}",
        bias="neutral near what was measured, unknown elsewhere",
    )
