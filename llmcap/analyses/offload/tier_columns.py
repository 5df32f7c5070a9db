"""Columns of one tier beside its times: batches, writes, queues, costs, the narrowest hop, and break-even users."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.costs import CostModel
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.offload.arrivals import under_arrivals
from llmcap.analyses.offload.placement import Returns, place
from llmcap.analyses.offload.tier_question import Extras, Grid
from llmcap.analyses.offload.wear import bytes_written, drive_wear
from llmcap.analyses.paths import Tier
from llmcap.analyses.tiers import TierRates
from llmcap.engine import queueing, transfer

Array = NDArray[np.float64]

_MOST_USERS = 100_000
_EACH_USER = 2048.0


def batch_columns(rate: TierRates, u: Array, reload: Any, extras: Extras) -> dict[str, Any]:
    """When the users' states are there, all asking at once: the mean and 95 % of them."""
    service = np.maximum(np.asarray(reload) - rate.fixed, 0.0) / u
    mean, high, _ = queueing.batch(u, service, extras.discipline)
    return {"reload_mean_s": rate.fixed + mean, "reload_p95_s": rate.fixed + high}


def traffic_columns(
    evaluator: Evaluator, tier: Tier, rate: TierRates, grid: Grid, table: dict[str, Any], extras: Extras
) -> dict[str, Any]:
    """Columns of a tier beyond its times: storing, and with arrivals or prices queues, wear and costs."""
    found: dict[str, Any] = {}
    memory, u, c = evaluator.memory, grid.users, grid.context
    if tier.write is not None:
        found["store_s"] = u * memory.moved_per_user(c) * memory.copies_kept(c, rate.kept) / tier.write
        found["store_share_of_prefill"] = found["store_s"] / table["recompute_s"]
    if extras.prices is None and extras.arrivals is None:
        return found
    model = CostModel(evaluator.setting.machine, extras.prices)
    each = model.per_request(tier, u, table["recompute_s"], table["reload_s"], table["ttft_reload_s"])
    found |= each
    if extras.arrivals is None:
        return found
    found |= under_arrivals(evaluator, rate, extras.arrivals, extras.discipline, c, grid.prefix)
    # What a tier cannot answer it does not save.
    sustained = (found["tier_utilisation"] < 1.0) & (found["device_utilisation_reload"] < 1.0)
    for name, saved in model.per_day(tier, extras.arrivals, each).items():
        found[name] = saved if name == "tier_usd_per_day" else np.where(sustained, saved, np.nan)
    kept = np.where(grid.reused > 0.0, memory.moved_per_user(np.maximum(grid.reused, 1.0)), 0.0)
    new = np.maximum(memory.moved_per_user(c + grid.output) - kept, 0.0)
    new = new * memory.copies_kept(c + grid.output, rate.kept)
    written = bytes_written(extras.arrivals * new, extras.write_policy, used_once=extras.used_once)
    found["written_bytes_per_s"] = written
    if tier.write is not None:
        found["write_utilisation"] = written / tier.write
    if tier.drive is not None:
        wear = drive_wear(written, tier.drive, tier.members)
        possible = wear.share_of_bandwidth <= 1.0
        found["drive_writes_per_day"] = np.where(possible, wear.writes_per_day, np.nan)
        if wear.years is not None:
            found["drive_life_years"] = np.where(possible, wear.years, np.nan)
    return found


def narrowest_hop(evaluator: Evaluator, tier: Tier, rate: TierRates, u: Array) -> NDArray[Any]:
    """The hop that bounds the rate: a shared one, the devices' links, or the engine's own worker."""
    setting = evaluator.setting
    ideal = setting.assumptions.ideal_transfers
    if np.isinf(rate.replica):
        return np.full(u.shape, rate.narrowest, dtype=object)
    link = setting.machine.device_link
    worker = tier.reload.rate_per_device
    one = transfer.link_rate(link, tier.reload.block, ideal=ideal)
    own = "engine worker" if worker is not None and not ideal and worker < one else link.name
    hop = transfer.path_rate(tier.shared, tier.reload.block, ideal=ideal)[1]
    return np.where(u / evaluator.tiers.fullest(u) * rate.replica < rate.shared, own, hop).astype(object)


def break_even_users(evaluator: Evaluator, rate: TierRates, context: Array, prefix: Array, limit: Array) -> Array:
    """Fewest users, all reloading together, from which computing is as fast; NaN when it never is up to `limit`.

    Reloading may lose with one user (fixed cost), win with a few, lose again, and win a last time where a prompt more
    begins a step: the answer lies beyond the last number that wins. 1 when it never wins. Every number up to 2,048 is
    tried, beyond that 40 up to the limit and a bisection.

    Parameters
    ----------
    evaluator : Evaluator
    rate : TierRates
    context, prefix, limit : ndarray
        Of equal shape; the limit is what device memory holds. [tokens], [tokens], [1]
    """
    model = evaluator.tiers
    most = np.clip(limit, 1.0, _MOST_USERS)
    cases, back = np.unique(np.stack([context, prefix, most]), axis=1, return_inverse=True)
    c, p, m = (row[:, None] for row in cases)
    new = c - p

    def wins(n: Array) -> NDArray[np.bool_]:
        rest = np.where(new > 0.0, model.prefill(n, np.maximum(new, 1.0), p), 0.0)
        reload = model.reload(rate, n, evaluator.memory.moved_per_user(p))
        return np.asarray((reload + rest < model.recompute(n, c)) & (n <= m))

    each = np.arange(1.0, min(float(m.max()), _EACH_USER) + 1.0)[None, :]
    won = wins(each)
    last = np.where(won.any(axis=1), each.size - np.argmax(won[:, ::-1], axis=1), 0.0)
    beyond = np.floor(
        _EACH_USER * (np.maximum(m, _EACH_USER) / _EACH_USER) ** np.linspace(0.0, 1.0, 40)[None, :] + 1e-6
    )
    if float(m.max()) > _EACH_USER:
        won = wins(beyond)
        at = np.maximum(beyond.shape[1] - 1 - np.argmax(won[:, ::-1], axis=1), 0)
        pick = np.arange(at.size)
        low, high = beyond[pick, at], beyond[pick, np.minimum(at + 1, beyond.shape[1] - 1)]
        while np.any(high - low > 1.0):
            middle = np.floor((low + high) / 2.0)
            won_middle = wins(middle[:, None])[:, 0]
            low, high = np.where(won_middle, middle, low), np.where(won_middle, high, middle)
        last = np.where(won.any(axis=1), np.maximum(last, np.where(won[:, -1], m[:, 0], low)), last)
    answer = np.where(last >= m[:, 0], np.nan, last + 1.0)
    return np.asarray(answer[np.ravel(back)].reshape(context.shape))


def placement_columns(tables: dict[str, dict[str, Any]], sessions: float, returns: Returns) -> dict[str, Any]:
    """Where `sessions` caches live; adds to the tables, and gives what concerns a case as a whole."""
    best = {}
    for name, table in tables.items():
        recompute, ttft = np.asarray(table["recompute_s"]), np.asarray(table["ttft_reload_s"])
        best[name] = ttft if name == "hbm" else np.minimum(ttft, recompute)
    found = place(sessions, [t["users_held"] for t in tables.values()], returns)
    for table, placed, share in zip(tables.values(), found.placed, found.returns, strict=True):
        table["sessions_placed"], table["returns_share"] = placed, share
    recompute = tables["hbm"]["recompute_s"]
    alone = place(sessions, [tables["hbm"]["users_held"]], returns)
    return {
        "sessions": sessions,
        "sessions_dropped": found.left_out,
        "ttft_expected_s": found.mean(list(best.values()), recompute),
        "ttft_expected_hbm_only_s": alone.mean([best["hbm"]], recompute),
    }
