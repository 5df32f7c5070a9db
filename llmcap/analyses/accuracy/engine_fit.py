"""Fit of an engine profile's scalars to measured rows: ridge-like priors, robust loss, split by configuration.

A profile has a few dozen scalars, each with a physical meaning and a prior: kernels as calibrated (factor 1), overheads
of the usual size. The loss is soft-L1 in the logarithm of predicted over measured; each prior pulls as one more
residual, so that a scalar moves only as far as many rows agree. Groups of rows (model, machine, dtype) weigh by the
root of their inverse size. Held-out errors come from a five-fold split of the configurations by a fixed hash.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.measured_rows import MeasuredRow
from llmcap.analyses.accuracy.serving_terms import EXPERT_DTYPES, GEMM_DTYPES, Terms
from llmcap.engine import serving
from llmcap.records import dataclass

Array = NDArray[np.float64]

FOLDS: Final = 5
PRIOR_WEIGHT: Final = 1.0
LOSS_SCALE: Final = 0.1
WAITING: Final = 1.0
#: Floor of expert kernels on families without a profile of their own. [us]
ELSEWHERE_LAUNCH: Final = 45.0
FAMILIES: Final = ("hopper", "blackwell")
#: Weight of a row by its metric.
_METRIC_WEIGHT: Final = {"tpot_s": 1.0, "ttft_s": 1.0}
_THROUGHPUT_WEIGHT: Final = 0.7


@dataclass(frozen=True, slots=True)
class Scalar:
    """One scalar of a profile with its prior and bounds; times in microseconds."""

    name: str
    prior: float
    spread: float
    low: float
    high: float


def _scalars() -> tuple[Scalar, ...]:
    found = [
        Scalar("decode.step", 300.0, 1000.0, 0.0, 6000.0),
        Scalar("decode.layer", 6.0, 10.0, 0.0, 400.0),
        Scalar("decode.recurrent", 15.0, 20.0, 0.0, 150.0),
        Scalar("decode.sequence", 2.0, 4.0, 0.0, 2000.0),
        Scalar("prefill.step", 15e3, 40e3, 0.0, 300e3),
        Scalar("prefill.layer", 200.0, 400.0, 0.0, 4000.0),
        Scalar("prefill.recurrent", 200.0, 500.0, 0.0, 8000.0),
        Scalar("prefill.latent", 200.0, 300.0, 0.0, 8000.0),
        Scalar("prefill.experts", 200.0, 200.0, 0.0, 4000.0),
        Scalar("prefill_products", 1.0, 0.05, 0.3, 4.0),
        Scalar("launch_share", 0.6, 0.3, 0.0, 1.0),
        Scalar("decode_attention", 1.1, 0.3, 0.5, 2.0),
        Scalar("decode_all_reduce", 1.1, 0.3, 0.4, 2.5),
        Scalar("spread.interleave", 1.0, 0.3, 0.1, 2.5),
        Scalar("spread.burst", 0.05, 0.01, 0.0, 1.0),
        Scalar("fixed.interleave", 0.8, 0.3, 0.0, 2.5),
        Scalar("fixed.burst", 0.06, 0.1, 0.0, 1.0),
        Scalar("fixed.own", 1.5, 0.8, 0.6, 6.0),
        Scalar("fixed.slot", 0.3, 0.5, 0.0, 1.2),
        Scalar("saturated_experts", 1.0, 0.5, 0.3, 4.0),
        Scalar("saturated_rate", 1.0, 0.1, 0.3, 2.0),
        Scalar("running_steps", 1.5, 1.0, 0.0, 6.0),
        Scalar("dispatch", 1000.0, 3000.0, 0.0, 60e3),
    ]
    for family in FAMILIES:
        found.append(Scalar(f"{family}.prefill_all_reduce", 1.0, 0.3, 0.3, 3.0))
        for d in GEMM_DTYPES:
            found.append(Scalar(f"{family}.gemm.{d}.decode", 1.0, 0.15, 0.5, 2.0))
            found.append(Scalar(f"{family}.gemm.{d}.prefill", 1.05, 0.2, 0.5, 2.5))
        for d in EXPERT_DTYPES:
            found.append(Scalar(f"{family}.experts.{d}.launch", 45.0, 25.0, 0.0, 200.0))
            found.append(Scalar(f"{family}.experts.{d}.decode", 1.05, 0.2, 0.4, 2.5))
            found.append(Scalar(f"{family}.experts.{d}.prefill", 1.05, 0.25, 0.3, 3.0))
    return tuple(found)


SCALARS: Final = _scalars()
_INDEX: Final = {s.name: i for i, s in enumerate(SCALARS)}


class Composition:
    """Times of rows as a function of the scalars."""

    def __init__(self, terms: Terms) -> None:
        t, rows = terms, terms.rows
        self.terms = t
        self.metric = np.array([r.metric for r in rows])
        protocol = np.array([r.protocol for r in rows])
        self.spread, self.fixed = protocol == "spread", protocol == "fixed"
        self.loop = self.spread | self.fixed
        self.saturated, self.batch = protocol == "saturated", protocol == "batch"
        self.output = np.array([r.osl for r in rows])
        self.prompt = np.array([r.isl for r in rows])
        self.new = np.array([r.isl - r.cached for r in rows])
        self.wait_steps = np.array([r.wait_steps for r in rows])
        self.several = np.array([not r.concurrency <= float(dp) for r, dp in zip(rows, t.dp, strict=True)])
        self.per_device = np.where(self.metric == "output_tok_per_s_per_device", t.devices, 1.0)
        self.members = {f: t.family == f for f in FAMILIES}
        self.measured = np.log(np.array([r.value for r in rows]))

    def log_time(self, p: Array) -> Array:
        """Logarithm of each row's predicted value."""
        t = self.terms
        q: Callable[[str], float] = lambda name: float(p[_INDEX[name]])  # noqa: E731
        decode = self._phase(p, t.decode, "decode")
        decode = decode + q("launch_share") * t.decode["floors"]
        decode = decode + 1e-6 * (q("decode.step") + q("decode.layer") * t.counts["layers"])
        decode = decode + 1e-6 * (
            q("decode.recurrent") * t.counts["recurrent"]
            + q("decode.sequence") * t.sequences
            + self._by_family(p, "experts", "launch", EXPERT_DTYPES, t.decode, count=True) * t.counts["experts"]
        )
        host = q("prefill.step") + q("prefill.layer") * t.counts["layers"]
        for kind in ("recurrent", "latent", "experts"):
            host = host + q(f"prefill.{kind}") * t.counts[kind]
        alone = self._phase(p, t.alone, "prefill") + t.alone["floors"] + 1e-6 * host * t.counts["steps"]
        shared = self._phase(p, t.shared, "prefill") + t.shared["floors"]
        way: Callable[[str], Array] = lambda name: np.where(self.spread, q(f"spread.{name}"), q(f"fixed.{name}"))  # noqa: E731
        tpot = serving.time_per_output_token(decode, shared, t.each, self.output, way("interleave"))
        ttft = serving.time_to_first_token(
            alone, shared, tpot, t.each, self.output, ahead=t.ahead,
            own=np.where(self.fixed & self.several, q("fixed.own"), 1.0), burst=way("burst"),
            slot=np.where(self.fixed, q("fixed.slot"), 0.0),
            running_steps=q("running_steps") + self.wait_steps, dispatch=1e-6 * q("dispatch"),
        )  # fmt: skip
        stay = ttft + np.maximum(self.output - 1.0, 0.0) * tpot
        clients = t.each * (1.0 + t.excess)
        rate = serving.completed(clients, t.each, stay, decode, shared, self.output)
        ttft = ttft + np.where(t.excess > 0.0, WAITING * np.maximum(clients / rate - stay, 0.0), 0.0)
        loop = t.dp * self.output * rate
        tpot = np.where(self.batch, decode, tpot)
        ttft = np.where(self.batch, alone, ttft)
        running = t.each * t.dp
        scale = np.where(self.saturated, q("saturated_rate"), 1.0)
        rate = np.where(
            self.batch, serving.static_batch(running, alone, decode, self.output),
            np.where(
                self.saturated, scale * t.dp * serving.throughput(t.each, decode, shared, self.output), loop
            ),
        )  # fmt: skip
        found = np.where(self.metric == "tpot_s", tpot, np.where(self.metric == "ttft_s", ttft, rate))
        found = np.where(self.metric == "total_tok_per_s", rate * (self.prompt + self.output) / self.output, found)
        fed = np.where(
            self.saturated, scale * t.dp * self.new / shared, running * self.prompt / np.maximum(alone, 1e-12)
        )
        found = np.where(self.metric == "prefill_tok_per_s", fed, found)
        return np.asarray(np.log(found / self.per_device))

    def _phase(self, p: Array, parts: Mapping[str, Array], phase: str) -> Array:
        """Work of a phase under the engine's factors, floors left out."""
        total = parts["other"] + self._by_family(p, "gemm", phase, GEMM_DTYPES, parts)
        total = total + self._by_family(p, "experts", phase, EXPERT_DTYPES, parts)
        if phase == "prefill":
            reduce = np.ones_like(parts["all_reduce"])
            for family, here in self.members.items():
                reduce = np.where(here, p[_INDEX[f"{family}.prefill_all_reduce"]], reduce)
            return np.asarray(total + parts["attention"] + reduce * parts["all_reduce"])
        attention, all_reduce = p[_INDEX["decode_attention"]], p[_INDEX["decode_all_reduce"]]
        return np.asarray(total + attention * parts["attention"] + all_reduce * parts["all_reduce"])

    def _by_family(
        self, p: Array, kind: str, what: str, dtypes: Sequence[str], parts: Mapping[str, Array], *, count: bool = False
    ) -> Array:
        """A family's factor times the part, summed over dtypes; with `count`, the scalar itself where there is work."""
        total = np.zeros_like(parts["other"])
        for d in dtypes:
            part = parts[f"{kind} {d}"]
            if not part.any():
                continue
            factor = np.full_like(part, ELSEWHERE_LAUNCH if what == "launch" else 1.0)
            for family, here in self.members.items():
                factor = np.where(here, p[_INDEX[f"{family}.{kind}.{d}.{what}"]], factor)
            if kind == "experts" and not count:
                factor = np.where(self.saturated, factor * p[_INDEX["saturated_experts"]], factor)
            if what == "prefill":
                factor = factor * p[_INDEX["prefill_products"]]
            total = total + (factor * (part > 0.0) if count else factor * part)
        return total


def fold(row: MeasuredRow, folds: int = FOLDS, salt: str = "") -> int:
    """The fold of a row's configuration, by a hash that does not depend on the other rows; a salt makes another one."""
    return int(hashlib.sha256((salt + row.configuration).encode()).hexdigest()[:8], 16) % folds


def weights(rows: Sequence[MeasuredRow]) -> Array:
    """Weight of each row: groups of many rows count less per row, and rates less than latencies."""
    group = [(r.model, r.hardware, r.weight_dtype) for r in rows]
    size = Counter(group)
    middle = float(np.median(list(size.values()))) if size else 1.0
    by_group = np.clip([(middle / size[g]) ** 0.5 for g in group], 0.4, 1.5)
    return np.asarray(by_group * [_METRIC_WEIGHT.get(r.metric, _THROUGHPUT_WEIGHT) for r in rows])


def fit(
    terms: Terms, *, start: Array | None = None, free: Sequence[str] | None = None,
    prior_weight: float = PRIOR_WEIGHT,
) -> Array:  # fmt: skip
    """Scalars that fit the rows.

    Parameters
    ----------
    terms : Terms
    start : ndarray, optional
        Centre of the priors and starting point; SCALARS' own when left out.
    free : sequence of str, optional
        Scalars to fit, the others stay at `start`; all when left out.
    prior_weight : float
        Weight of a prior at one spread from its centre.
    """
    from scipy.optimize import least_squares

    composition = Composition(terms)
    weight = weights(terms.rows)
    centre = np.array([s.prior for s in SCALARS]) if start is None else start
    chosen = np.array([free is None or s.name in free for s in SCALARS]) & _matters(composition, centre)
    spread = np.array([s.spread for s in SCALARS])[chosen]
    low = np.array([s.low for s in SCALARS])[chosen]
    high = np.array([s.high for s in SCALARS])[chosen]

    def whole(x: Array) -> Array:
        p = centre.copy()
        p[chosen] = low + (high - low) * x
        return p

    def residual(x: Array) -> Array:
        p = whole(x)
        prior = prior_weight * (p[chosen] - centre[chosen]) / spread
        return np.concatenate([weight * (composition.log_time(p) - composition.measured), prior])

    x0 = np.clip((centre[chosen] - low) / (high - low), 1e-6, 1.0 - 1e-6)
    found = least_squares(residual, x0, bounds=(0.0, 1.0), loss="soft_l1", f_scale=LOSS_SCALE, max_nfev=200)
    return whole(found.x)


def _matters(composition: Composition, p: Array) -> NDArray[np.bool_]:
    """Which scalars move any row at all; the others would only cost time."""
    before = composition.log_time(p)
    found = np.zeros(len(SCALARS), dtype=bool)
    for i, s in enumerate(SCALARS):
        moved = p.copy()
        moved[i] += 0.1 * s.spread
        found[i] = bool(np.any(composition.log_time(moved) != before))
    return found


def sections(p: Array, engine: Mapping[str, Any]) -> dict[str, Any]:
    """The fitted sections of a profile, as its document writes them.

    Parameters
    ----------
    p : ndarray
        Scalars.
    engine : mapping
        The document as read; what was not fitted is kept.
    """
    q: Callable[[str], float] = lambda name: _rounded(float(p[_INDEX[name]]))  # noqa: E731
    us: Callable[[str], str] = lambda name: f"{q(name):g} us"  # noqa: E731

    def overhead(phase: str, kinds: Sequence[str]) -> dict[str, Any]:
        old = engine[phase]
        found = {kind: us(f"{phase}.{kind}") for kind in ("step", "layer", *kinds)}
        return found | {"low": old["low"], "high": old["high"]}

    families: dict[str, Any] = {}
    for family in FAMILIES:
        gemm, experts = {}, {}
        for d in GEMM_DTYPES:
            factors = {phase: q(f"{family}.gemm.{d}.{phase}") for phase in ("prefill", "decode")}
            if _moved(p, [f"{family}.gemm.{d}.{phase}" for phase in factors]):
                gemm[d] = factors
        for d in EXPERT_DTYPES:
            name = f"{family}.experts.{d}"
            experts[d] = {
                "launch": us(f"{name}.launch"),
                "prefill": q(f"{name}.prefill"),
                "decode": q(f"{name}.decode"),
            }
        families[family] = {"gemm": gemm, "experts": experts} if gemm else {"experts": experts}
        families[family]["prefill_all_reduce"] = q(f"{family}.prefill_all_reduce")
    old = engine["serving"]
    return {
        "prefill": overhead("prefill", ("recurrent", "latent", "experts")),
        "decode": overhead("decode", ("recurrent", "sequence")),
        "kernels": {
            **{n: q(n) for n in ("launch_share", "prefill_products", "decode_attention", "decode_all_reduce")},
            "expert_launch": f"{ELSEWHERE_LAUNCH:g} us",
            "families": families,
        },
        "serving": old | {
            "spread": {"interleave": q("spread.interleave"), "burst": q("spread.burst")},
            "fixed": {k: q(f"fixed.{k}") for k in ("interleave", "burst", "own", "slot")},
            "saturated_experts": q("saturated_experts"), "saturated_rate": q("saturated_rate"),
            "running_steps": q("running_steps"), "dispatch": us("dispatch"), "waiting": WAITING,
        },
    }  # fmt: skip


def scalars_of(engine: Any) -> Array:
    """The scalars of a loaded profile, priors where it says nothing: the inverse of `sections`."""
    found = {s.name: s.prior for s in SCALARS}
    for phase in ("prefill", "decode"):
        overhead = getattr(engine, phase)
        for kind in ("step", "layer", "recurrent", "latent", "experts", "sequence"):
            if f"{phase}.{kind}" in found:
                found[f"{phase}.{kind}"] = 1e6 * getattr(overhead, kind)
    for name in ("launch_share", "prefill_products", "decode_attention", "decode_all_reduce"):
        found[name] = getattr(engine.kernels, name)
    if engine.serving is not None:
        for way in ("spread", "fixed"):
            for name in ("interleave", "burst", "own", "slot"):
                if f"{way}.{name}" in found:
                    found[f"{way}.{name}"] = getattr(getattr(engine.serving, way), name)
        for name in ("running_steps", "saturated_experts", "saturated_rate"):
            found[name] = getattr(engine.serving, name)
        found["dispatch"] = 1e6 * engine.serving.dispatch
    for family in FAMILIES:
        own = engine.kernels.families.get(family)
        found[f"{family}.prefill_all_reduce"] = own.prefill_all_reduce if own else 1.0
        for d in GEMM_DTYPES:
            factors = own.gemm.get(d) if own else None
            for phase in ("prefill", "decode"):
                found[f"{family}.gemm.{d}.{phase}"] = getattr(factors, phase) if factors else 1.0
        for d in EXPERT_DTYPES:
            mine = own.experts.get(d) if own else None
            if mine is not None:
                found[f"{family}.experts.{d}.launch"] = 1e6 * (mine.launch or 0.0)
                found[f"{family}.experts.{d}.prefill"] = mine.prefill
                found[f"{family}.experts.{d}.decode"] = mine.decode
    return np.array([found[s.name] for s in SCALARS])


def _moved(p: Array, names: Sequence[str]) -> bool:
    return any(abs(p[_INDEX[n]] - SCALARS[_INDEX[n]].prior) > 0.005 for n in names)


def _rounded(x: float) -> float:
    """Three significant digits; what the bounds' edge leaves of zero is zero."""
    return float(f"{x:.3g}") if abs(x) > 1e-6 else 0.0
