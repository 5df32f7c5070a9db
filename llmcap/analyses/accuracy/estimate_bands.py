"""How wide the times of `estimate` are, told by measured rows that are mostly one phase.

An estimate adds up kernels, whose bands are measured, and an engine's overheads. What the overheads' band has to be is
what rows need beyond the kernels' bands so that four of five lie between low and high: rows predicted by scalars that
were fitted without them, whose time is for the most part the phase itself and not waiting or other requests' work.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.engine_fit import sections
from llmcap.analyses.accuracy.measured import settings_of
from llmcap.analyses.accuracy.measured_rows import MeasuredRow
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.errors import DocumentError, OptionError
from llmcap.records import dataclass
from llmcap.specs.engine import Engine

Array = NDArray[np.float64]
Phase = Literal["prefill", "decode"]

PHASES: Final[dict[Phase, str]] = {"prefill": "ttft_s", "decode": "tpot_s"}
"""The metric whose rows tell of a phase."""
ONE_PHASE: Final = 0.7
"""Share of a row's predicted time that has to be the phase itself."""
FEWEST: Final = 10
FEWEST_PARTS: Final = 3
"""With fewer rows, or rows of fewer parts to hold out, the band stays at what the document says."""
LOWEST: Final = 0.1
MEANT: Final = 0.8
"""Share of rows that a band is meant to hold."""
TAILS: Final = (0.1, 0.08, 0.06, 0.04, 0.02, 0.01)
"""Shares of the rows at hand left beyond each end. Few configurations say little of the next one: the first that holds
rows which it was set without."""


@dataclass(frozen=True, slots=True)
class OwnTimes:
    """Times of a phase as rows measured them and as an estimate brackets them, arrays (n,). [s]"""

    measured: Array
    low: Array
    """Lower end of the kernels' band, overheads left out."""
    high: Array
    overhead: Array
    part: NDArray[np.str_]
    """What was held out together."""

    def take(self, chosen: NDArray[np.bool_]) -> OwnTimes:
        """The rows where `chosen`."""
        return OwnTimes(
            self.measured[chosen], self.low[chosen], self.high[chosen], self.overhead[chosen], self.part[chosen]
        )


def band(own: OwnTimes, tail: float = TAILS[0]) -> tuple[float, float]:
    """Factors on the overhead that leave the share `tail` of the rows below low and above high.

    Examples
    --------
    Eleven rows of 1 s of kernels, surely, and 1 s of overhead, measured 1.5, 1.6, ... 2.5 s: 1.6 and 2.4 s are the
    edges, which overheads of 0.6 and 1.4 s make.

    >>> one = np.ones(11)
    >>> band(OwnTimes(1.5 + 0.1 * np.arange(11), one, one, one, np.array(["a"] * 11)))
    (0.6, 1.4)
    """
    edge = np.maximum(own.overhead, 1e-300)
    low = float(np.quantile((own.measured - own.low) / edge, tail))
    high = float(np.quantile((own.measured - own.high) / edge, 1.0 - tail))
    return float(f"{min(max(low, LOWEST), 1.0):.3g}"), float(f"{max(high, 1.0):.3g}")


def inside(own: OwnTimes, low: float, high: float) -> NDArray[np.bool_]:
    """Rows between the ends of the band, overheads taken times `low` and `high`."""
    return np.asarray((own.low + low * own.overhead <= own.measured) & (own.measured <= own.high + high * own.overhead))


def coverage(own: OwnTimes, tail: float) -> float:
    """Share of rows inside bands that were set without the rows held out together with them."""
    hits = np.zeros(own.measured.size, dtype=bool)
    for part in np.unique(own.part):
        here = own.part == part
        rest = own if here.all() else own.take(~here)
        hits[here] = inside(own.take(here), *band(rest, tail))
    return float(np.mean(hits))


def widest_needed(own: OwnTimes) -> float:
    """The largest of TAILS whose bands hold the share MEANT of rows that they were set without; else the smallest."""
    return next((tail for tail in TAILS if coverage(own, tail) >= MEANT), TAILS[-1])


def overhead_band(own: OwnTimes, old: tuple[float, float]) -> tuple[float, float, float]:
    """Low and high of a phase's overheads, and the share of rows inside that they were set without.

    Parameters
    ----------
    own : OwnTimes
    old : tuple
        Low and high as they are, kept where there are too few rows to say.
    """
    if own.measured.size < FEWEST or np.unique(own.part).size < FEWEST_PARTS:
        share = float(np.mean(inside(own, *old))) if own.measured.size else np.nan
        return (*old, share)
    tail = widest_needed(own)
    return (*band(own, tail), coverage(own, tail))


def engine_without_bands(document: Mapping[str, Any], scalars: Array) -> Engine:
    """A profile with fitted scalars whose overheads have no band of their own."""
    found = dict(document) | sections(scalars, document)
    for phase in PHASES:
        found[phase] = dict(found[phase]) | {"low": 1.0, "high": 1.0}
    return Engine.model_validate(found)


def own_times(engine: Engine, rows: Sequence[MeasuredRow], phase: Phase, part: str = "") -> OwnTimes:
    """The rows that are mostly one phase.

    Parameters
    ----------
    engine : Engine
        As `engine_without_bands` makes it.
    rows : sequence of MeasuredRow
        Of that engine.
    phase : {'prefill', 'decode'}
    part : str
        Label of what these rows were held out with.

    Notes
    -----
    A measured value is taken times the phase's share of the predicted one: the rest is not the phase's to explain.
    """
    groups: dict[tuple[object, ...], list[MeasuredRow]] = {}
    for row in rows:
        if row.metric == PHASES[phase] and row.protocol != "saturated":
            groups.setdefault((*row.setting, row.protocol), []).append(row)
    found: list[tuple[float, float, float, float]] = []
    for members in groups.values():
        try:
            setting = replace(settings_of(members[0]), engine=engine)
        except (OptionError, DocumentError):
            continue
        found += _group(ServingModel.of(setting, took_place=True), members, phase)
    measured, low, high, overhead = np.array(found, dtype=np.float64).reshape(-1, 4).T
    return OwnTimes(measured, low, high, overhead, np.array([part] * len(found), dtype=np.str_))


def joined(parts: Iterable[OwnTimes]) -> OwnTimes:
    """Rows of several parts together."""
    every = list(parts)
    return OwnTimes(
        np.concatenate([own.measured for own in every]),
        np.concatenate([own.low for own in every]),
        np.concatenate([own.high for own in every]),
        np.concatenate([own.overhead for own in every]),
        np.concatenate([own.part for own in every]),
    )


def _group(model: ServingModel, rows: Sequence[MeasuredRow], phase: Phase) -> list[tuple[float, float, float, float]]:
    n, k, o, c = (np.array([getattr(r, name) for r in rows]) for name in ("isl", "cached", "osl", "concurrency"))
    k = np.minimum(k, n - 1.0)
    setting, steps = model.setting, model.steps
    p, protocol = setting.parallelism, rows[0].protocol
    if protocol == "batch":
        answer = model.batch(c, n, k, o)
    else:
        wait = np.array([r.wait_steps for r in rows])
        answer = model.closed_loop(c, n, k, o, protocol, wait)  # type: ignore[arg-type]
    each = np.maximum(answer["running"] / p.dp, 1.0)
    if phase == "prefill":
        prompts = each if protocol == "batch" else np.ones_like(n)
        cost = steps.prefill(prompts, n - k, k)
        host = steps.overhead("prefill").serial * np.ceil(prompts * (n - k) / setting.chunk_tokens)
    else:
        cost = steps.decode(each, n, o)
        host = steps.overhead("decode", each / p.pp).serial
    own, low, high, host = np.broadcast_arrays(cost.serial, cost.low, cost.high, host, n)[:4]
    share = own / answer[PHASES[phase]]
    value = np.array([r.value for r in rows]) * share
    return [(value[i], low[i] - host[i], high[i] - host[i], host[i]) for i in range(len(rows)) if share[i] >= ONE_PHASE]
