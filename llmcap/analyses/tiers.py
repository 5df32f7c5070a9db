"""Reload against recompute, tier by tier, for a setting and arrays of cases."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import field, replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.break_even import MOST_CASES, BreakEven
from llmcap.analyses.closed_forms import ChunkedPrefill
from llmcap.analyses.machine import Tier
from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.prompt_times import ByToken, PromptTimes
from llmcap.analyses.setting import Setting
from llmcap.analyses.split import SplitSolver
from llmcap.analyses.steps import StepModel
from llmcap.engine import transfer
from llmcap.engine.cost import Value
from llmcap.records import dataclass
from llmcap.specs.engine import Copies

Array = NDArray[np.float64]
Path = tuple[str | float, ...]

#: Tiers whose columns are kept for settings that come later: some ten arrays of a block each.
MOST_TIERS: Final = 16


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
    kept: Copies = "once"
    """How the tier stores latents, which decides how much it holds."""

    @property
    def path(self) -> Path:
        """All that decides times; its size does not."""
        return (self.name, self.nominal, self.shared, self.replica, self.fixed, self.narrowest, self.kept)


def tier_rates(setting: Setting, memory: MemoryModel, tier: Tier) -> TierRates:
    """Reduce a tier's path for a setting: block sizes, copies, and the assumption set's own bandwidths applied."""
    p = setting.parallelism
    ideal = setting.assumptions.ideal_transfers
    asked = setting.assumptions.deviations.tier_read.get(tier.name)
    per_replica, kept = p.tp * p.pp * p.cp, tier.reload.latent_kept
    if asked is not None:
        return TierRates(tier.name, tier.capacity, asked, asked, np.inf, 0.0, "as assumed", kept)
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
    return TierRates(tier.name, tier.capacity, nominal, shared, replica, fixed, narrow, kept)


@dataclass(frozen=True, slots=True)
class Moving:
    """What the tiers of some cases share: the bytes to move and what moving them saves."""

    per_user: Array
    """[B]"""
    total: Array
    """All users. [B]"""
    some: bool
    """Whether every case moves something."""
    nothing_left: bool
    """Whether no case has tokens after its prefix."""
    break_even: Value
    """Rate from which on reloading wins. [B/s]"""


class SharedTiers:
    """Of one block of cases, what settings share that differ in their tiers alone; filled as they are evaluated."""

    def __init__(self) -> None:
        self.moving: Moving | None = None
        self.hbm: dict[str, Any] = {}
        self.columns: dict[Path, dict[str, Any]] = {}

    def keep(self, tier: Path, columns: dict[str, Any]) -> None:
        """Add a tier; past the first ones it takes the place of the last one, whose memory is used again."""
        if len(self.columns) >= MOST_TIERS:
            self.columns.popitem()
        self.columns[tier] = columns


@dataclass(frozen=True, slots=True)
class TierModel:
    """Reload times of a setting's tiers."""

    setting: Setting
    steps: StepModel
    memory: MemoryModel
    rates: tuple[TierRates, ...]
    growing: float
    """Bytes that each token adds to a long context, whatever its length. [B]"""
    _chunked: list[ChunkedPrefill] = field(default_factory=list, repr=False)
    _solver: list[SplitSolver] = field(default_factory=list, repr=False)
    _moved: list[ByToken] = field(default_factory=list, repr=False)
    _searched: dict[tuple[object, ...], tuple[list[BreakEven], NDArray[np.intp]]] = field(
        default_factory=dict, repr=False
    )
    _break_even: dict[tuple[object, ...], Array] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, setting: Setting, steps: StepModel, memory: MemoryModel) -> TierModel:
        """All tiers of the setting's machine beyond device memory."""
        rates = tuple(tier_rates(setting, memory, t) for t in setting.machine.tiers)
        return cls(setting, steps, memory, rates, memory.growing_per_token())

    def with_tiers_of(self, setting: Setting) -> TierModel:
        """The same with the tiers of another setting that differs in nothing else; what was tabulated is shared."""
        rates = tuple(tier_rates(setting, self.memory, t) for t in setting.machine.tiers)
        return replace(self, setting=setting, rates=rates)

    @property
    def chunked(self) -> ChunkedPrefill | None:
        """Tables of a calibrated setting's prefill, made when first needed; None where prompts run in one step."""
        if not self.setting.calibrated:
            return None
        if not self._chunked:
            self._chunked.append(ChunkedPrefill.of(self.steps))
        return self._chunked[0]

    @property
    def solver(self) -> SplitSolver | None:
        """Closed solution of the best split; None where it has to be searched for."""
        chunked = self.chunked
        if chunked is None or self.setting.parallelism.pp > 1:
            return None
        if not self._solver:
            self._solver.append(SplitSolver(chunked, PromptTimes(chunked)))
        return self._solver[0]

    @property
    def moved(self) -> ByToken:
        """Bytes that a reload moves for each user, by tokens. [B]"""
        if not self._moved:
            self._moved.append(ByToken(self.memory.moved_per_user))
        return self._moved[0]

    def recompute(self, users: Value, tokens: Value) -> Value:
        """Prefill of all users' `tokens` tokens with nothing cached. [s]"""
        return self.prefill(users, tokens, 0.0)

    def prefill(self, users: Value, new: Value, cached: Value) -> Value:
        """[s]"""
        fullest = self.fullest(users)
        if self.chunked is not None:
            new, cached = np.asarray(new, dtype=np.float64), np.asarray(cached, dtype=np.float64)
            return self.chunked.seconds(fullest, new, self.chunked.attention(new, cached))
        return self.steps.seconds(self.steps.prefill(fullest, new, cached))

    def fullest(self, users: Value) -> Array:
        """Users of the fullest data-parallel replica."""
        return np.asarray(np.ceil(np.asarray(users, dtype=np.float64) / self.setting.parallelism.dp))

    def reload(self, tier: TierRates, users: Value, bytes_per_user: Value) -> Value:
        """All users' states moved at once. [s]"""
        rate = transfer.reload_bandwidth(users, self.fullest(users), tier.shared, tier.replica)
        return transfer.reload_time(users * bytes_per_user, rate, tier.fixed)

    def moving(self, users: Array, moved: Array, recompute: Value, rest: Value) -> Moving:
        """What all tiers of some cases share."""
        nothing_left = not np.any(rest)
        all_moved = np.asarray(users * moved)
        saved = recompute if nothing_left else recompute - rest
        some = bool(np.min(moved) > 0.0)
        if some and np.min(saved) > 0.0:
            break_even: Value = all_moved / saved
        else:
            break_even = transfer.break_even_rate(all_moved, saved)
        return Moving(moved, all_moved, some, nothing_left, break_even)

    def evaluate(
        self, tier: TierRates, users: Array, prefix: Array, recompute: Value, rest: Value,
        wanted: Collection[str] | None = None, moving: Moving | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """The columns of one tier.

        Parameters
        ----------
        users, prefix : ndarray
            Active users, and the reusable part of each context. Broadcastable. [1], [tokens]
        recompute, rest : float or ndarray
            Prefill of everything, and of what follows the prefix. [s]
        wanted : collection of str, optional
            Columns to compute when not all are; those that cost nothing come along.
        moving : Moving, optional
            What the tiers share, if it is at hand.

        Returns
        -------
        dict of float or ndarray
            By column name; times in seconds, NaN where there is no answer.
        """
        if moving is None:
            moving = self.moving(users, self.memory.moved_per_user(prefix), recompute, rest)
        moved, nothing_left = moving.per_user, moving.nothing_left
        rate = transfer.reload_bandwidth(users, self.fullest(users), tier.shared, tier.replica)
        if moving.some:
            reload: Value = moving.total / rate
            reload += tier.fixed
        else:
            reload = transfer.reload_time(moving.total, rate, tier.fixed)
        ttft_reload = reload if nothing_left else reload + rest
        found: dict[str, Any] = {
            "read_bytes_per_s": tier.nominal,
            "effective_read_bytes_per_s": rate,
            "reload_s": reload,
            "ttft_reload_s": ttft_reload,
            "wins": ttft_reload < recompute,
        }
        if wanted is None or "ttft_overlap_s" in wanted:
            if nothing_left:
                found["ttft_overlap_s"] = reload
            else:
                load = np.maximum(reload - tier.fixed, 0.0)
                overlap = tier.fixed + transfer.overlapped(load, rest, self.setting.structure.layers)
                found["ttft_overlap_s"] = np.minimum(overlap, ttft_reload)
        if wanted is None or "ttft_hybrid_s" in wanted:
            split = self._split(tier, users, prefix, moved, rate, reload)
            if not nothing_left:
                split = split + rest
            found["ttft_hybrid_s"] = np.minimum(np.minimum(split, ttft_reload), recompute)
        if wanted is None or "speedup" in wanted:
            if np.min(ttft_reload) > 0.0:
                found["speedup"] = recompute / ttft_reload
            else:
                found["speedup"] = recompute / np.where(ttft_reload > 0.0, ttft_reload, np.nan)
        found["break_even_bytes_per_s"] = moving.break_even
        return found

    def _split(self, tier: TierRates, users: Array, prefix: Array, moved: Array, rate: Array, reload: Value) -> Array:
        """Front computed while the rest is loaded; the last layers' windows and constant states always travel."""
        growing = self.growing
        solver = self.solver
        if solver is not None:
            shape = np.broadcast_shapes(np.shape(users), np.shape(prefix), np.shape(reload))
            whole = np.ascontiguousarray(np.broadcast_to(reload, shape)).reshape(shape or (1,))
            fullest, prefix = np.atleast_1d(self.fullest(users)), np.atleast_1d(prefix)
            relief = np.atleast_1d(users * growing / rate)
            return solver.best(fullest, prefix, whole, relief, tier.fixed).reshape(shape)
        users, prefix, moved, rate = np.broadcast_arrays(users, prefix, moved, rate)

        def load(x: Array) -> Value:
            return tier.fixed + users * np.maximum(moved - growing * x, 0.0) / rate

        staged = self.setting.calibrated and self.setting.parallelism.pp > 1
        step = self.setting.chunk_tokens / self.fullest(users) if staged else None
        return transfer.best_split(prefix, lambda x: self.recompute(users, x), load, step)

    def break_even_tokens(self, tier: TierRates, users: Array, new: Array) -> Array:
        """Smallest prefix from which reloading wins on a tier, the new tokens held fixed; NaN when there is none."""
        new = np.asarray(new)
        cases = (users.shape, users.tobytes(), new.shape, new.tobytes())
        key = (tier.path, *cases)
        known = self._break_even.get(key)
        if known is None:
            if len(self._break_even) > 64:
                self._break_even.clear()
            searches, back = self._searches(users, new, cases)
            answer = [search.tokens(lambda u, moved: self.reload(tier, u, moved)) for search in searches]
            shape = np.broadcast_shapes(users.shape, new.shape)
            known = self._break_even[key] = np.concatenate(answer)[back].reshape(shape)
        return known

    def _searches(self, users: Array, new: Array, key: tuple[object, ...]) -> tuple[list[BreakEven], NDArray[np.intp]]:
        """Searches of the distinct cases, which tiers share, and the place of each case among those."""
        found = self._searched.get(key)
        if found is not None:
            return found
        distinct_users, of_users = np.unique(users, return_inverse=True)
        distinct_new, of_new = np.unique(new, return_inverse=True)
        pairs = of_users.reshape(users.shape) * distinct_new.size + of_new.reshape(new.shape)
        cases, back = np.unique(pairs, return_inverse=True)
        u, s = distinct_users[cases // distinct_new.size], distinct_new[cases % distinct_new.size]
        step = self.setting.chunk_tokens / self.fullest(u) if self.setting.calibrated else None
        searches = [
            BreakEven(
                u[i : i + MOST_CASES], s[i : i + MOST_CASES], self._saved, self.moved,
                limit=float(self.setting.model.max_context),
                block=self.setting.engine.kv_block if self.setting.options.kv_policy == "all-full" else 0,
                step=None if step is None else step[i : i + MOST_CASES],
            )
            for i in range(0, cases.size, MOST_CASES)
        ]  # fmt: skip
        found = searches, np.ravel(back)
        if len(searches) == 1:
            if len(self._searched) > 4:
                self._searched.clear()
            self._searched[key] = found
        return found

    def _saved(self, users: Array, new: Array, prefix: Array) -> Value:
        """Compute time that reloading a prefix saves. [s]"""
        fresh, solver = bool(new.any()), self.solver
        whole = prefix + new if fresh else prefix
        saved = self.recompute(users, whole) if solver is None else solver.times.seconds(self.fullest(users), whole)
        return saved - self.prefill(users, new, prefix) if fresh else saved
