"""Requests that arrive at random: waiting for a shared tier and for the devices, in steady state.

A request first waits for the tier and then for the devices (two queues in tandem). Approximations, all on the long
side or small: arrivals at the devices are taken as Poisson although the tier smooths them; the two waits are taken as
independent; prompts do not share steps; decode takes nothing from prefill.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.tiers import TierRates
from llmcap.engine import queueing
from llmcap.engine.cost import Value
from llmcap.engine.queueing import Discipline

Array = NDArray[np.float64]


def under_arrivals(
    evaluator: Evaluator,
    tier: TierRates,
    arrivals: float,
    discipline: Discipline,
    context: ArrayLike,
    prefix: ArrayLike,
) -> dict[str, Value]:
    """Time to first token of one request after another, reloading and recomputing.

    Parameters
    ----------
    evaluator : Evaluator
    tier : TierRates
    arrivals : float
        All requests, Poisson. [1/s]
    discipline : "fcfs" or "sharing"
        Of the tier; the devices serve first come, first served, each replica its share of the requests.
    context, prefix : array_like
        Of each request; the prefix is reloaded. [tokens]

    Returns
    -------
    dict of ndarray
        Mean and 95 % quantile [s], utilisations [1], and the most arrivals that can be sustained [1/s]. NaN where a
        queue has no steady state.
    """
    model, replicas = evaluator.tiers, float(evaluator.setting.parallelism.dp)
    c, p = np.asarray(context, dtype=np.float64), np.asarray(prefix, dtype=np.float64)
    new = c - p
    rest = np.where(new > 0.0, model.prefill(1.0, np.maximum(new, 1.0), p), 0.0)
    whole = np.asarray(model.recompute(1.0, c))
    state = np.asarray(evaluator.memory.moved_per_user(p))
    alone = state / min(tier.shared, tier.replica)
    busy = state / min(tier.shared, replicas * tier.replica)
    waits = queueing.delay(arrivals, busy, discipline) + queueing.delay(arrivals, rest, servers=replicas)
    queue = queueing.delay(arrivals, whole, servers=replicas)
    unhindered = tier.fixed + alone + rest
    longest = np.maximum(busy, rest / replicas)
    return {
        "tier_utilisation": queueing.utilisation(arrivals, busy),
        "device_utilisation_reload": queueing.utilisation(arrivals, rest, replicas),
        "device_utilisation_recompute": queueing.utilisation(arrivals, whole, replicas),
        "ttft_reload_mean_s": unhindered + waits.mean,
        "ttft_reload_p95_s": unhindered + queueing.quantile(waits),
        "ttft_recompute_mean_s": whole + queue.mean,
        "ttft_recompute_p95_s": whole + queueing.quantile(queue),
        "sustained_reload_per_s": 1.0 / np.where(longest > 0.0, longest, np.nan),
        "sustained_recompute_per_s": replicas / whole,
    }
