"""What a service promises (time to first token, time per output token), and how a load measures up to it."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.evaluate import Evaluator
from llmcap.records import dataclass

Array = NDArray[np.float64]
Band = Literal["best", "low", "high"]
_ROUNDING = 1.0 + 1e-12


@dataclass(frozen=True, slots=True)
class Load:
    """What is asked of a machine."""

    users: int
    context: int
    cached: int
    output: int
    sessions: int
    """Caches kept in all."""


@dataclass(frozen=True, slots=True)
class Objectives:
    """Limits that must be kept; None is no limit."""

    ttft: float | None = None
    """Of the last user, all arriving together; in steady state the mean. [s]"""
    tpot: float | None = None
    """With all users decoding; in steady state the mean. [s]"""
    ttft_p95: float | None = None
    """In steady state, 95 % of requests. [s]"""
    tier: str | None = None
    """Tier from which the reusable prefix is reloaded; None: it is computed, or cached in device memory."""


@dataclass(frozen=True, slots=True)
class Measured:
    """How cases measure up: arrays over the cases."""

    fits: NDArray[np.bool_]
    ttft: Array
    tpot: Array
    ratios: dict[str, Array]
    """Value over limit of each objective: `ttft`, `tpot`; `capacity` is needed over usable memory."""

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Whether all objectives are kept."""
        good = np.ones(self.ttft.shape, dtype=np.bool_)
        for ratio in self.ratios.values():
            good &= ratio <= _ROUNDING
        return good & self.fits


def measure(
    evaluator: Evaluator, load: Load, objectives: Objectives, users: ArrayLike | None = None, *, band: Band = "best"
) -> Measured:
    """Times and memory of a load, or of the same load with other numbers of users.

    Parameters
    ----------
    evaluator : Evaluator
    load : Load
    objectives : Objectives
    users : array_like, optional
        Instead of the load's.
    band : {"best", "low", "high"}
        Times as predicted, or at the lower or upper end of their bands; the same for sets without bands.
    """
    u = np.atleast_1d(np.asarray(load.users if users is None else users, dtype=np.float64))
    tier = objectives.tier
    columns = evaluator.evaluate(
        u, load.context, load.cached, load.output, with_tiers=tier is not None, with_break_even_tokens=False
    )
    r = columns.results
    fits = np.broadcast_to(np.asarray(r["fits"]), u.shape)
    first = r["ttft_s"] if tier is None else columns.tiers[tier]["ttft_reload_s"]
    ttft = np.broadcast_to(np.asarray(first, dtype=np.float64), u.shape).copy()
    tpot = np.broadcast_to(np.asarray(r["tpot_s"], dtype=np.float64), u.shape)
    if band != "best" and evaluator.setting.calibrated:
        # A reload has no band of its own; what is computed after it has that of the prefill.
        if tier is None or load.cached:
            ttft += np.asarray(r[f"ttft_{band}_s"]) - np.asarray(r["ttft_s"])
        step = evaluator.steps.decode(evaluator.tiers.fullest(u), load.context, load.output)
        tpot = np.where(np.isnan(tpot), tpot, getattr(step, band))
    ratios: dict[str, Array] = {"capacity": _memory_ratio(evaluator, load, u)}
    if objectives.ttft is not None:
        ratios["ttft"] = np.where(fits, ttft / objectives.ttft, np.inf)
    if objectives.tpot is not None and load.output > 1:
        ratios["tpot"] = np.where(fits, tpot / objectives.tpot, np.inf)
    return Measured(fits, ttft, tpot, ratios)


def _memory_ratio(evaluator: Evaluator, load: Load, users: Array) -> Array:
    """Device memory needed over what may be used, fullest device."""
    p = evaluator.setting.parallelism
    caches = evaluator.tiers.fullest(users) * (
        evaluator.memory.reserved_per_user(load.context + load.output) / (p.tp * p.pp * p.cp)
    )
    usable = evaluator.pool + evaluator.weights_per_device
    return np.asarray((caches + evaluator.weights_per_device) / usable if usable > 0 else np.full(users.shape, np.inf))
