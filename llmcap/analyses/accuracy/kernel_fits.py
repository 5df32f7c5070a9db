"""Kernel forms and their robust fit to measured rows.

A fit pools the engines that ran an operator on a device: least squares of log(predicted / measured), whose
soft-L1 loss keeps an engine with a different kernel from dragging the set along. Seven tenths of the
configurations are used. Errors and band come from the rest, split by configuration, so that no engine's row
of a fitted configuration is held out.

The forms are those of `llmcap.engine.kernels` and `llmcap.engine.collectives`, over one array of rows with
mixed shapes; a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.kernel_rows import KernelRows

FloatArray = NDArray[np.float64]
Values = Mapping[str, FloatArray]

HELD_OUT: Final = 0.3
SEED: Final = 7
LOSS_SCALE: Final = 0.1
"""Errors of log time beyond about this count linearly, not squared."""


@dataclass(frozen=True)
class Form:
    """A kernel's time as a function of its parameters and of the rows' quantities."""

    names: tuple[str, ...]
    start: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    time: Callable[[FloatArray, Values], FloatArray]
    """Parameters (len(names),) and quantities (n,) each -> time (n,) [s]."""


def _gemm(p: FloatArray, v: Values) -> FloatArray:
    t0, e, x0, w, a = p
    compute = v["F"] / (e * v["P"]) * (1 + x0 / v["x"])
    return np.asarray(t0 + np.hypot(compute, v["weights"] / (w * v["W"])) + v["moved"] / (a * v["W"]))


def _prefill(p: FloatArray, v: Values) -> FloatArray:
    t0, e, tail, w = p
    return np.asarray(t0 + (v["F"] + tail * v["tail_work"]) / (e * v["P"]) + v["moved"] / (w * v["W"]))


def _decode(p: FloatArray, v: Values) -> FloatArray:
    t0, w = p
    return np.asarray(t0 + v["kv"] / (w * v["W"]))


def _moe(p: FloatArray, v: Values) -> FloatArray:
    t0, e, r0, w, a = p
    compute = v["F"] / (e * v["P"]) * (1 + r0 / v["r"])
    return np.asarray(t0 + np.hypot(compute, v["weights"] / (w * v["W"])) + v["moved"] / (a * v["W"]))


def _all_reduce(p: FloatArray, v: Values) -> FloatArray:
    alpha, alpha_log2, beta, two_shot, switch = p
    n, wire = v["n"], v["S"] / (beta * v["B"])
    latency = alpha + alpha_log2 * np.log2(n)
    engines_own = np.minimum(latency + (n - 1) * wire, two_shot * latency + 2 * (n - 1) / n * wire)
    # The switch adds up in flight: a rank sends its buffer once and passes on its share of the sum once more.
    in_switch = np.where(n > 2, switch * np.log2(n) + (1 + 1 / n) * wire, np.inf)
    return np.asarray(np.minimum(engines_own, in_switch))


def _gather(p: FloatArray, v: Values) -> FloatArray:
    alpha, alpha_log2, beta = p
    return np.asarray(alpha + alpha_log2 * np.log2(v["n"]) + (v["n"] - 1) / v["n"] * v["S"] / (beta * v["B"]))


_GATHER: Final = Form(
    ("alpha", "alpha_log2", "beta"), (5e-6, 2e-6, 0.6), (1e-7, 1e-8, 0.05), (1e-4, 1e-4, 1.05), _gather
)
FORMS: Final[dict[str, Form]] = {
    "gemm": Form(
        ("t0", "e", "x0", "w", "a"), (5e-6, 0.6, 0.1, 0.8, 0.6), (1e-7, 0.02, 1e-3, 0.05, 0.02),
        (2e-4, 1.05, 10, 1.05, 1.05), _gemm,
    ),
    "prefill_attention": Form(
        ("t0", "e", "tail", "w"), (1e-5, 0.5, 0.6, 0.4), (1e-7, 0.02, 1e-3, 0.02),
        (2e-4, 1.05, 10, 1.05), _prefill,
    ),
    "decode_attention": Form(("t0", "w"), (1e-5, 0.85), (1e-7, 0.05), (2e-4, 1.05), _decode),
    "moe": Form(
        ("t0", "e", "r0", "w", "a"), (4e-5, 0.4, 10, 0.8, 0.5), (1e-7, 0.02, 1e-2, 0.05, 0.02),
        (2e-4, 1.05, 2e3, 1.05, 1.05), _moe,
    ),
    "all_reduce": Form(
        ("alpha", "alpha_log2", "beta", "two_shot", "switch"), (4e-6, 5e-7, 0.6, 3, 2e-5),
        (1e-7, 1e-8, 0.05, 1, 1e-6), (1e-4, 1e-4, 1.05, 30, 5e-4), _all_reduce,
    ),
    "all_gather": _GATHER, "reduce_scatter": _GATHER, "all_to_all": _GATHER,
}  # fmt: skip


@dataclass(frozen=True)
class Fit:
    """Parameters with the evidence for them."""

    operator: str
    dtype: str
    parameters: dict[str, float]
    rows: int = 0
    rows_held_out: int = 0
    median_ape: float | None = None
    p90_ape: float | None = None
    low: float = 1.0
    high: float = 1.0
    range: str = ""
    backends: str = ""
    note: str = ""


def split_by_case(rows: KernelRows, share: float = HELD_OUT, seed: int = SEED) -> NDArray[np.bool_]:
    """True for rows to fit on. All rows of one configuration fall on the same side."""
    cases, index = np.unique(rows.labels["case"].to_numpy(dtype=str), return_inverse=True)
    order = np.random.default_rng(seed).permutation(cases.size)
    fitted = np.ones(cases.size, dtype=bool)
    fitted[order[: round(share * cases.size)]] = False
    return np.asarray(fitted[index])


def fit_form(form: Form, rows: KernelRows, fixed: Mapping[str, float] | None = None) -> dict[str, float]:
    """Parameters that minimise the soft-L1 loss of log(predicted / measured); `fixed` ones are kept.

    Fitted in the logarithm of the parameters from several starts: there are local minima where compute
    explains streaming.
    """
    from scipy.optimize import least_squares

    fixed = dict(fixed or {})
    free = [i for i, name in enumerate(form.names) if name not in fixed]
    low, high = np.log(form.low)[free], np.log(form.high)[free]
    whole = np.array([fixed.get(name, s) for name, s in zip(form.names, form.start, strict=True)])
    log_time = np.log(rows.time)

    def parameters(theta: FloatArray) -> FloatArray:
        filled = whole.copy()
        filled[free] = np.exp(theta)
        return filled

    def residual(theta: FloatArray) -> FloatArray:
        return np.asarray(np.log(form.time(parameters(theta), rows.values)) - log_time)

    rng = np.random.default_rng(SEED)
    best_cost, best = np.inf, whole
    for spread in (0.0, 0.7, 0.7, 0.7, 1.2, 1.2):
        start = np.log(whole)[free] + spread * rng.standard_normal(len(free))
        start = np.clip(start, low + 1e-3, high - 1e-3)
        found = least_squares(
            residual, start, bounds=(low, high), loss="soft_l1", f_scale=LOSS_SCALE, max_nfev=300, x_scale=1.0
        )
        if found.cost < best_cost:
            best_cost, best = found.cost, parameters(found.x)
    return {name: float(value) for name, value in zip(form.names, best, strict=True)}


def fit_operator(
    operator: str, dtype: str, rows: KernelRows, fixed: Mapping[str, float] | None = None, note: str = ""
) -> Fit:
    """Fit on seven tenths of the configurations, errors and band on the rest."""
    form = FORMS[operator]
    used = split_by_case(rows)
    parameters = {k: rounded(v) for k, v in fit_form(form, rows.take(used), fixed).items()}
    held_out = rows.take(~used)
    ratio = measured_over_predicted(operator, parameters, held_out)
    ape = np.abs(1 / ratio - 1)
    low, high = np.quantile(ratio, [0.1, 0.9])
    return Fit(
        operator, dtype, parameters, rows=int(used.sum()), rows_held_out=len(held_out),
        median_ape=rounded(np.median(ape), 3), p90_ape=rounded(np.quantile(ape, 0.9), 3),
        low=min(1.0, rounded(low, 3)), high=max(1.0, rounded(high, 3)),
        range=_range(rows), backends=_by_backend(held_out, ratio), note=note,
    )  # fmt: skip


def measured_over_predicted(operator: str, parameters: Mapping[str, float], rows: KernelRows) -> FloatArray:
    """Measured over predicted time of rows under given parameters, (n,)."""
    form = FORMS[operator]
    values = np.array([parameters[name] for name in form.names])
    return np.asarray(rows.time / form.time(values, rows.values))


def _range(rows: KernelRows) -> str:
    parts = []
    for name in rows.sizes:
        column = rows.labels[name].to_numpy(dtype=float)
        parts.append(f"{name} {column.min():,.0f} to {column.max():,.0f}")
    return "; ".join(parts)


def _by_backend(rows: KernelRows, ratio: FloatArray) -> str:
    parts = []
    backend = rows.labels["backend"].to_numpy(dtype=str)
    for name in np.unique(backend):
        here = ratio[backend == name]
        parts.append(f"{name} {here.size} rows, error {_median_ape(here):.1%}, bias {np.median(here):.2f}")
    return "; ".join(parts)


def _median_ape(ratio: FloatArray) -> float:
    return float(np.median(np.abs(1 / ratio - 1)))


def rounded(value: float | np.floating, digits: int = 4) -> float:
    """`value` to a number of significant digits."""
    return float(f"{value:.{digits}g}")
