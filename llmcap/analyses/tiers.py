"""Reload against recompute, tier by tier, for a setting and arrays of cases."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.machine import Tier
from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import StepModel
from llmcap.engine import transfer
from llmcap.engine.cost import Value

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class TierRates:
    """A tier's path, reduced to two rates."""

    name: str
    capacity: float
    nominal: float
    """All devices in use, before block and software costs. [B/s]"""
    shared: float
    """Effective rate of the hops that all devices share, logical bytes. [B/s]"""
    replica: float
    """Effective rate of one replica's own links, logical bytes. [B/s]"""
    fixed: float
    """Software and latency per reload. [s]"""
    narrowest: str


def tier_rates(setting: Setting, memory: MemoryModel, tier: Tier) -> TierRates:
    """Reduce a tier's path for a setting: block sizes, copies, and the assumption set's own bandwidths applied."""
    p = setting.parallelism
    ideal = setting.assumptions.ideal_transfers
    asked = setting.assumptions.deviations.tier_read.get(tier.name)
    per_replica = p.tp * p.pp * p.cp
    if asked is not None:
        return TierRates(tier.name, tier.capacity, asked, asked, np.inf, 0.0, "as assumed")
    link = setting.machine.device_link
    nominal = min(*(hop.bandwidth / hop.copies for hop in tier.shared), link.bandwidth * setting.machine.devices)
    shared, narrow = transfer.path_rate(tier.shared, tier.reload.block, ideal=ideal)
    one = transfer.link_rate(link, tier.reload.block, ideal=ideal)
    if tier.reload.rate_per_device is not None and not ideal:
        one = min(one, tier.reload.rate_per_device)
    replica = one * per_replica / memory.copies()
    if replica * p.dp < shared:
        narrow = link.name
    fixed = 0.0 if ideal else tier.reload.fixed + tier.latency
    return TierRates(tier.name, tier.capacity, nominal, shared, replica, fixed, narrow)


@dataclass(frozen=True, slots=True)
class TierModel:
    """Reload times of a setting's tiers."""

    setting: Setting
    steps: StepModel
    memory: MemoryModel
    rates: tuple[TierRates, ...]

    @classmethod
    def of(cls, setting: Setting, steps: StepModel, memory: MemoryModel) -> TierModel:
        """All tiers of the setting's machine beyond device memory."""
        return cls(setting, steps, memory, tuple(tier_rates(setting, memory, t) for t in setting.machine.tiers))

    def recompute(self, users: Value, tokens: Value) -> Value:
        """Prefill of all users' `tokens` tokens with nothing cached. [s]"""
        return self.prefill(users, tokens, 0.0)

    def prefill(self, users: Value, new: Value, cached: Value) -> Value:
        """[s]"""
        return self.steps.seconds(self.steps.prefill(self.fullest(users), new, cached))

    def fullest(self, users: Value) -> Array:
        """Users of the fullest data-parallel replica."""
        return np.asarray(np.ceil(np.asarray(users, dtype=np.float64) / self.setting.parallelism.dp))

    def reload(self, tier: TierRates, users: Value, bytes_per_user: Value) -> Value:
        """All users' states moved at once. [s]"""
        rate = transfer.reload_bandwidth(users, self.fullest(users), tier.shared, tier.replica)
        return transfer.reload_time(users * bytes_per_user, rate, tier.fixed)

    def evaluate(
        self, tier: TierRates, users: Array, context: Array, prefix: Array, recompute: Value, rest: Value
    ) -> dict[str, Value]:
        """The columns of one tier.

        Parameters
        ----------
        users, context, prefix : ndarray
            Broadcastable; the prefix is the reusable part of the context.
        recompute, rest : float or ndarray
            Prefill of everything, and of what follows the prefix. [s]

        Returns
        -------
        dict of float or ndarray
            Named as in the contract; times in seconds, NaN where there is no answer.
        """
        moved = self.memory.moved_per_user(prefix)
        rate = transfer.reload_bandwidth(users, self.fullest(users), tier.shared, tier.replica)
        all_moved = users * moved
        reload = transfer.reload_time(all_moved, rate, tier.fixed)
        ttft_reload = reload + rest
        load = np.maximum(reload - tier.fixed, 0.0)
        overlap = tier.fixed + transfer.overlapped(load, rest, self.setting.structure.layers)
        hybrid = np.minimum(np.minimum(ttft_reload, recompute), self._split(tier, users, prefix, moved, rate) + rest)
        return {
            "read_bytes_per_s": tier.nominal,
            "effective_read_bytes_per_s": rate,
            "reload_s": reload,
            "ttft_reload_s": ttft_reload,
            "ttft_overlap_s": np.minimum(overlap, ttft_reload),
            "ttft_hybrid_s": hybrid,
            "speedup": recompute / np.where(ttft_reload > 0.0, ttft_reload, np.nan),
            "wins": ttft_reload < recompute,
            "break_even_bytes_per_s": transfer.break_even_rate(all_moved, recompute - rest),
        }

    def _split(self, tier: TierRates, users: Array, prefix: Array, moved: Array, rate: Array) -> Array:
        """Front computed while the rest is loaded; the last layers' windows and constant states always travel."""
        growing = self.memory.growing_per_token()
        users, prefix, moved, rate = np.broadcast_arrays(users, prefix, moved, rate)

        def load(x: Array) -> Value:
            return tier.fixed + users * np.maximum(moved - growing * x, 0.0) / rate

        return transfer.best_split(prefix, lambda x: self.recompute(users, x), load)

    def break_even_tokens(self, tier: TierRates, users: Array, new: Array, limit: float) -> Array:
        """Smallest prefix from which reloading wins on a tier, the new tokens held fixed; NaN when none up to `limit`.

        Reloading wins at P when recompute(P + S) > reload(P) + prefill(S after P). From the smallest prefix that wins,
        every longer one up to the limit does too.
        """
        users, new = np.broadcast_arrays(users, new)
        cases, back = np.unique(np.stack([users.ravel(), new.ravel()]), axis=1, return_inverse=True)
        u, s = cases[0][:, None], cases[1][:, None]

        def wins(p: Array) -> NDArray[np.bool_]:
            saved = self.recompute(u, p + s) - self.prefill(u, s, p)
            return np.asarray(self.reload(tier, u, self.memory.moved_per_user(p)) < saved)

        knots = np.unique(np.floor(np.geomspace(1.0, max(limit, 2.0), 48)))
        won = wins(np.broadcast_to(knots, (u.shape[0], knots.size)))
        lost_last = knots.size - 1 - np.argmax(~won[:, ::-1], axis=1)
        always, never = won.all(axis=1), ~won[:, -1]
        low = knots[lost_last]
        high = knots[np.minimum(lost_last + 1, knots.size - 1)]
        for _ in range(int(np.ceil(np.log2(max(float((high - low).max(initial=1.0)), 1.0)))) + 1):
            middle = np.floor((low + high) / 2.0)
            won_middle = wins(middle[:, None])[:, 0]
            low, high = np.where(won_middle, low, middle), np.where(won_middle, middle, high)
        answer = np.where(always, 1.0, np.where(never, np.nan, high))
        return np.asarray(answer[np.ravel(back)].reshape(users.shape))
