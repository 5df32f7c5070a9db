"""The one code path: a setting and arrays of cases in, columns out. An estimate is a sweep of one case.

Arrays may broadcast against each other: on a grid, users stand in one dimension and lengths in another, and whatever
depends on one of them alone is computed once.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.case_arrays import TIER_ANSWERS, Cases, Lengths, decode_fields, largest, prefill_fields
from llmcap.analyses.closed_forms import DecodeTerms, sequences
from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import StepModel
from llmcap.analyses.tiers import SharedTiers, TierModel
from llmcap.engine.cost import Cost, Value
from llmcap.engine.memory import sequences_held
from llmcap.records import dataclass
from llmcap.specs.engine import Copies

Array = NDArray[np.float64]

#: Values of the `limit` column, by index.
LIMITS = ("compute", "memory", "network", "overhead", "capacity")


@dataclass(frozen=True, slots=True)
class Columns:
    """Results of a setting's cases: `results` by column name, `tiers` by tier and column name, broadcastable arrays.

    Times are NaN where the users do not fit device memory; `limit` holds indices into LIMITS.
    """

    results: dict[str, Any]
    phases: dict[str, Value]
    tiers: dict[str, dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """A setting's models, built once and asked with many arrays of cases."""

    setting: Setting
    steps: StepModel
    memory: MemoryModel
    tiers: TierModel
    weights: float
    """One copy of all weights. [B]"""
    weights_per_device: float
    pool: float
    """Left for caches, per device. [B]"""

    @classmethod
    def of(cls, setting: Setting) -> Evaluator:
        steps = StepModel(setting)
        memory = MemoryModel.of(setting)
        tiers = TierModel.of(setting, steps, memory)
        return cls(setting, steps, memory, tiers, memory.weights, memory.weights_per_device, memory.pool)

    def with_tiers_of(self, setting: Setting) -> Evaluator:
        """The same for a setting that differs in its tiers alone; tables are shared."""
        return replace(self, setting=setting, tiers=self.tiers.with_tiers_of(setting))

    def evaluate(
        self,
        users: ArrayLike,
        context: ArrayLike,
        cached: ArrayLike,
        output: ArrayLike,
        *,
        with_tiers: bool = True,
        with_break_even_tokens: bool = True,
    ) -> Columns:
        """Everything about the cases.

        Parameters
        ----------
        users, context, cached, output : array_like
            Active users; prompt, cached prefix and output tokens of each. Broadcastable. [1], [tokens]
        with_tiers, with_break_even_tokens : bool
            Leave out what is not wanted; the rest does not change.

        Returns
        -------
        Columns
        """
        wanted = None if with_break_even_tokens else frozenset(TIER_ANSWERS) - {"break_even_tokens"}
        cases = self.cases(self.lengths(users, context, cached, output))
        return Columns(cases.results, cases.phases, self.tier_columns(cases, wanted) if with_tiers else {})

    def lengths(
        self, users: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike,
        wanted: Collection[str] | None = None,
    ) -> Lengths:  # fmt: skip
        """The part of the work that a grid of users and lengths does not multiply.

        Parameters
        ----------
        users, context, cached, output : array_like
            As for `evaluate`.
        wanted : collection of str, optional
            Columns that are needed when not all are.
        """
        u, c, k, o = (np.asarray(v, dtype=np.float64) for v in (users, context, cached, output))
        tokens = c + o
        any_cached = bool(k.any())
        prefix, new = (np.where(k > 0.0, k, c), np.where(k > 0.0, c - k, 0.0)) if any_cached else (c, np.zeros(()))
        values = {
            "per token": self.memory.per_token(tokens),
            "per user": self.memory.per_user(tokens),
            "reserved": self.memory.reserved_per_user(tokens),
            "prefix": prefix,
            "new": new,
            "moved": self.memory.moved_per_user(prefix),
        }
        for kept in get_args(Copies):
            copies = self.memory.copies_kept(tokens, kept)
            if isinstance(copies, np.ndarray):
                values[f"copies {kept}"] = copies
        chunked = self.tiers.chunked
        if chunked is not None:
            one, launch = chunked.prompt(c - k, k, prefill_fields(wanted))
            decode = DecodeTerms.of(self.steps, self.tiers.fullest(u), c, o, decode_fields(wanted))
            groups = {
                "prompt": one,
                "launch": launch,
                "batch": decode.batch,
                "fixed": decode.fixed,
                "each": decode.each,
            }
            values |= {f"{group} {n}": a for group, terms in groups.items() for n, a in terms.items()}
            if any_cached:
                values["attention whole"] = chunked.attention(c, 0.0)
                values["attention rest"] = chunked.attention(new, prefix)
        return Lengths(u, c, k, o, any_cached, values)

    def cases(self, lengths: Lengths, wanted: Collection[str] | None = None, *, with_phases: bool = True) -> Cases:
        """Memory and times of the cases, tiers left out.

        Parameters
        ----------
        lengths : Lengths
        wanted : collection of str, optional
            Columns that are needed when not all are; those that cost nothing come along.
        with_phases : bool
            Whether the phases are needed.
        """
        u, c, k, o, values = lengths.users, lengths.context, lengths.cached, lengths.output, lengths.values
        results, fits = self._memory_columns(lengths, wanted)
        gap = None if fits.all() else np.where(fits, 0.0, np.nan)
        prefix, new = values["prefix"], values["new"]
        fullest = self.tiers.fullest(u)
        cost, decode = self._costs(lengths, fullest, wanted)
        prefill, tpot = self.steps.seconds(cost), self.steps.seconds(decode)
        recompute: Value = prefill
        rest: Value = 0.0
        if lengths.any_cached:
            recompute, rest = self._reuse(lengths, fullest)
        copies = lengths.terms("copies")
        cases = Cases(u, c, k, o, results, {}, fits, gap, prefix, new, recompute, rest, values["moved"], copies)
        results.update(self._time_columns(cases, cost, decode, prefill, tpot, wanted))
        if with_phases:
            cases.phases.update(self._phases(cases, prefill, tpot))
        return cases

    def tier_columns(
        self, cases: Cases, wanted: Collection[str] | None = None,
        shared: SharedTiers | None = None, *, only: Collection[str] | None = None,
    ) -> dict[str, dict[str, Value]]:  # fmt: skip
        """The columns of each tier.

        Parameters
        ----------
        cases : Cases
        wanted : collection of str, optional
            Columns that are needed when not all are.
        shared : SharedTiers, optional
            From the same cases under another setting that differs in its tiers alone; added to.
        only : collection of str, optional
            Tiers that are needed when not all are.
        """
        model, machine = self.tiers, self.setting.machine
        per_user = cases.results["kv_bytes_per_user"]
        stored = {k: per_user * cases.copies[k] if k in cases.copies else per_user for k in get_args(Copies)}
        shared = shared or SharedTiers()
        if shared.moving is None:
            memory = machine.device.memory
            shared.hbm = self._hbm_columns(cases, memory.capacity * machine.devices, memory.bandwidth * machine.devices)
            moving = model.moving(cases.users, cases.moved, cases.recompute, cases.rest)
            # Last, since it tells other threads that the rest is there.
            shared.moving = replace(moving, break_even=cases.nan_unless_fits(moving.break_even))
        found = {"hbm": shared.hbm}
        for tier in model.rates:
            if only is not None and tier.name not in only:
                continue
            columns = shared.columns.get(tier.path)
            if columns is None:
                columns = model.evaluate(
                    tier, cases.users, cases.prefix, cases.recompute, cases.rest, wanted, shared.moving
                )
                if wanted is None or "break_even_tokens" in wanted:
                    columns["break_even_tokens"] = model.break_even_tokens(tier, cases.users, cases.new)
                columns = cases.with_answers_that_fit(columns)
                shared.keep(tier.path, columns)
            found[tier.name] = columns | {
                "capacity_bytes": tier.capacity,
                "users_held": np.floor(tier.capacity / np.maximum(stored[tier.kept], 1e-300)),
                "recompute_s": shared.hbm["recompute_s"],
            }
        return found

    # -- parts ---------------------------------------------------------------------------------------------------------

    def _memory_columns(
        self, lengths: Lengths, wanted: Collection[str] | None
    ) -> tuple[dict[str, Any], NDArray[np.bool_]]:
        p, u = self.setting.parallelism, lengths.users
        per_user, reserved = lengths.values["per user"], lengths.values["reserved"]
        left = self.pool - self.tiers.fullest(u) * (reserved / (p.tp * p.pp * p.cp))
        fits = np.asarray(left >= 0.0)
        results: dict[str, Any] = {
            "kv_bytes_per_token": lengths.values["per token"],
            "kv_bytes_per_user": per_user,
            "weight_bytes": self.weights,
            "weight_bytes_per_device": self.weights_per_device,
            "max_users_hbm": np.minimum(sequences_held(self.pool, reserved / (p.tp * p.pp * p.cp)), 1e15) * p.dp,
            "fits": fits,
        }
        if wanted is None or "kv_bytes_total" in wanted:
            results["kv_bytes_total"] = u * per_user
        if wanted is None or {"kv_bytes_total_reserved", "hbm_free_bytes"} & set(wanted):
            all_reserved = u * reserved
            results["kv_bytes_total_reserved"] = all_reserved
            free = p.devices * self.pool - all_reserved
            if not fits.all():
                free = np.where(fits, free, np.minimum(free, left * p.devices))
            results["hbm_free_bytes"] = free
        return results, fits

    def _costs(self, lengths: Lengths, fullest: Array, wanted: Collection[str] | None) -> tuple[Cost, Cost]:
        """Prefill, and the mean decode step."""
        new, chunked = lengths.context - lengths.cached, self.tiers.chunked
        if chunked is None:
            prefill = self.steps.prefill(fullest, new, lengths.cached)
            return prefill, self.steps.decode(fullest, lengths.context, lengths.output)
        terms = lengths.terms("prompt"), lengths.terms("launch")
        decode = DecodeTerms(lengths.terms("batch"), lengths.terms("fixed"), lengths.terms("each"))
        return (
            chunked.cost(fullest, new, *terms, prefill_fields(wanted)),
            decode.cost(sequences(self.steps, fullest)),
        )

    def _reuse(self, lengths: Lengths, fullest: Array) -> tuple[Value, Value]:
        """Prefill of everything with nothing cached, and of what follows the prefix."""
        values, chunked = lengths.values, self.tiers.chunked
        if chunked is None:
            users = lengths.users
            return (
                self.tiers.recompute(users, lengths.context),
                self.tiers.prefill(users, values["new"], values["prefix"]),
            )
        return (
            chunked.seconds(fullest, lengths.context, values["attention whole"]),
            chunked.seconds(fullest, values["new"], values["attention rest"]),
        )

    def _time_columns(
        self, cases: Cases, cost: Cost, decode: Cost, prefill: Value, tpot: Value, wanted: Collection[str] | None
    ) -> dict[str, Any]:
        p = self.setting.parallelism
        u, o, fits = cases.users, cases.output, cases.fits
        fullest = self.tiers.fullest(u)
        after = o - 1.0
        e2el = prefill + after * tpot
        share = u / (p.dp * fullest)
        fit = cases.nan_unless_fits
        first = fit(prefill)
        # Without a second token there is no time between tokens.
        repeated = np.where(after > 0.0, 0.0, np.nan) if np.min(after) <= 0.0 else None
        step = fit(tpot) if repeated is None else fit(tpot) + repeated
        results: dict[str, Any] = {"prefill_s": first, "ttft_s": first, "tpot_s": step, "e2el_s": fit(e2el)}

        def asked(name: str) -> bool:
            return wanted is None or name in wanted

        if asked("ttft_mean_s"):
            results["ttft_mean_s"] = first * self._mean_share(u, cases.context - cases.cached)
        if asked("output_tok_per_s"):
            results["output_tok_per_s"] = u * o / results["e2el_s"]
        if asked("mfu"):
            results["mfu"] = cost.flop_s * share / first
        if asked("mbu"):
            busy = share * np.minimum(fullest / p.pp, 1.0)  # fewer users than stages leave stages idle
            results["mbu"] = decode.byte_s * busy / step
        if asked("limit"):
            limit = self._limit(cost, prefill, decode, after * tpot, after)
            results["limit"] = limit if cases.gap is None else np.where(fits, limit, np.int8(len(LIMITS) - 1))
        results |= dict.fromkeys(("ttft_low_s", "ttft_high_s", "tpot_low_s", "tpot_high_s"), np.nan)
        if self.setting.calibrated:
            again = 0.0 if repeated is None else repeated
            results["ttft_low_s"], results["ttft_high_s"] = fit(cost.low), fit(cost.high)
            results["tpot_low_s"], results["tpot_high_s"] = fit(decode.low) + again, fit(decode.high) + again
        return results

    def _phases(self, cases: Cases, prefill: Value, tpot: Value) -> dict[str, Value]:
        p, fit = self.setting.parallelism, cases.nan_unless_fits
        fullest, after = self.tiers.fullest(cases.users), cases.output - 1.0
        embedding = np.minimum(self._embedding(fullest, cases.context - cases.cached), prefill)
        logits = self.steps.seconds(self.steps.logits(np.maximum(fullest / p.pp, 1.0)))
        head = np.minimum(logits, tpot) * after
        return {
            "embedding": fit(embedding),
            "prefill": fit(prefill - embedding),
            "decode": fit(after * tpot - head),
            "post-processing": fit(head),
        }

    def _embedding(self, fullest: Array, new: Array) -> Value:
        total = fullest * new
        count = np.ceil(total / self.setting.chunk_tokens) if self.setting.calibrated else 1.0
        return self.steps.seconds(self.steps.embedding(total / self.setting.parallelism.cp, count))

    def _mean_share(self, u: Array, new: Array) -> Value:
        """Mean over the last TTFT, when all arrive together and prompts fill the steps in order.

        n prompts one after another finish evenly spaced: (n + 1) / (2 n). Prompts that share a step finish together.
        Replicas with one user fewer are done earlier.
        """
        dp, pp = self.setting.parallelism.dp, self.setting.parallelism.pp

        def spaced(users: Array) -> Array:
            steps = np.ceil(users * new / self.setting.chunk_tokens) if self.setting.calibrated else users
            n = np.maximum(np.minimum(users, steps), 1.0)
            share = (n + 1.0) / (2.0 * n)
            if pp == 1 or not self.setting.calibrated:
                return np.asarray(share)
            # Every prompt waits for the pipeline to fill.
            fill = (pp - 1.0) / np.maximum(users * new / self.setting.chunk_tokens, 1.0)
            return np.asarray((share + fill) / (1.0 + fill))

        fullest = self.tiers.fullest(u)
        if dp == 1:
            return spaced(fullest)
        fewer = fullest - 1.0
        full_replicas = u - dp * fewer
        others = dp - full_replicas
        last = fullest * full_replicas * spaced(fullest) + fewer * others * spaced(fewer) * fewer / fullest
        return np.asarray(last / u)

    def _limit(self, prefill: Cost, prefill_s: Value, decode: Cost, decode_s: Value, after: Array) -> NDArray[np.int8]:
        """Index of the largest share of the end-to-end time."""
        if self.setting.calibrated:
            return largest(
                prefill.compute + after * decode.compute, prefill.memory + after * decode.memory,
                prefill.network + after * decode.network, prefill.overhead + after * decode.overhead,
            )  # fmt: skip
        r = self.setting.assumptions.roofline
        whole: list[Value] = [0.0, 0.0, 0.0]
        for cost, seconds in ((prefill, prefill_s), (decode, decode_s)):
            longest = largest(cost.compute / r.compute, cost.memory / r.memory, cost.network / r.network)
            whole = [w + np.where(longest == i, seconds, 0.0) for i, w in enumerate(whole)]
        return largest(*whole)

    def _hbm_columns(self, cases: Cases, capacity: float, rate: float) -> dict[str, Value]:
        fit = cases.nan_unless_fits
        recompute, rest = cases.recompute, cases.rest
        shape = np.broadcast_shapes(np.shape(recompute), np.shape(rest))
        waiting = fit(np.broadcast_to(rest, shape))
        positive = np.min(rest) > 0.0
        return {
            "read_bytes_per_s": rate,
            "effective_read_bytes_per_s": rate,
            "reload_s": fit(np.broadcast_to(0.0, shape)),
            "ttft_reload_s": waiting,
            "ttft_overlap_s": waiting,
            "ttft_hybrid_s": waiting,
            "speedup": fit(recompute / (rest if positive else np.where(np.asarray(rest) > 0.0, rest, np.nan))),
            "wins": np.asarray(rest < recompute),
            "break_even_bytes_per_s": np.nan,
            "break_even_tokens": np.nan,
            "capacity_bytes": capacity,
            "users_held": cases.results["max_users_hbm"],
            "recompute_s": fit(recompute),
        }
