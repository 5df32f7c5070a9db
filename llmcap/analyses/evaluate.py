"""The one code path: a setting and arrays of cases in, columns out. An estimate is a sweep of one case.

Arrays may broadcast against each other: on a grid, users stand in one dimension and lengths in another, and whatever
depends on one of them alone is computed once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import StepModel
from llmcap.analyses.tiers import TierModel
from llmcap.engine.cost import Cost, Value

Array = NDArray[np.float64]

#: Values of the `limit` column, by index.
LIMITS = ("compute", "memory", "network", "overhead", "capacity")


@dataclass(frozen=True, slots=True)
class Columns:
    """Results of a setting's cases: `results` by column name, `tiers` by tier and column name, broadcastable arrays.

    Times are NaN where the users do not fit device memory; `limit` holds indices into LIMITS.
    """

    results: dict[str, Value]
    phases: dict[str, Value]
    tiers: dict[str, dict[str, Value]]


@dataclass(frozen=True, slots=True)
class Evaluator:
    """A setting's models, built once and asked with many arrays of cases."""

    setting: Setting
    steps: StepModel
    memory: MemoryModel
    tiers: TierModel

    @classmethod
    def of(cls, setting: Setting) -> Evaluator:
        steps = StepModel(setting)
        memory = MemoryModel.of(setting)
        return cls(setting, steps, memory, TierModel.of(setting, steps, memory))

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
        u, c, k, o = (np.asarray(v, dtype=np.float64) for v in (users, context, cached, output))
        results, fits = self._memory_columns(u, c, o)
        results, phases, recompute = self._time_columns(u, c, k, o, results, fits)
        tiers = self._tier_columns(u, c, k, results, recompute, fits, with_break_even_tokens) if with_tiers else {}
        return Columns(results, phases, tiers)

    def _memory_columns(self, u: Array, c: Array, o: Array) -> tuple[dict[str, Value], NDArray[np.bool_]]:
        memory, p = self.memory, self.setting.parallelism
        tokens = c + o
        per_user = memory.per_user(tokens)
        reserved = memory.reserved_per_user(tokens)
        fullest = self.tiers.fullest(u)
        on_device = reserved / (p.tp * p.pp * p.cp)
        pool = memory.pool
        left = pool - fullest * on_device
        fits = np.asarray(left >= 0.0)
        devices = p.devices
        free = devices * pool - u * reserved
        results: dict[str, Value] = {
            "kv_bytes_per_token": memory.per_token(tokens),
            "kv_bytes_per_user": per_user,
            "kv_bytes_total": u * per_user,
            "kv_bytes_total_reserved": u * reserved,
            "weight_bytes": memory.weights,
            "weight_bytes_per_device": memory.weights_per_device,
            "hbm_free_bytes": np.where(fits, free, np.minimum(free, left * devices)),
            "max_users_hbm": memory.users_held(tokens),
            "fits": fits,
        }
        return results, fits

    def _time_columns(
        self, u: Array, c: Array, k: Array, o: Array, results: dict[str, Value], fits: NDArray[np.bool_]
    ) -> tuple[dict[str, Value], dict[str, Value], Value]:
        steps, p = self.steps, self.setting.parallelism
        fullest = self.tiers.fullest(u)
        new = c - k
        cost = steps.prefill(fullest, new, k)
        prefill = steps.seconds(cost)
        recompute = prefill if not k.any() else self.tiers.recompute(u, c)
        decode = steps.decode(fullest, c, o)
        tpot = steps.seconds(decode)
        after = o - 1.0
        decode_total = after * tpot
        e2el = prefill + decode_total
        share = u / (p.dp * fullest)
        busy = share * np.minimum(fullest / p.pp, 1.0)  # fewer users than stages leave stages idle
        nan_unless = lambda value: np.where(fits, value, np.nan)  # noqa: E731
        results = results | {
            "prefill_s": nan_unless(prefill),
            "ttft_s": nan_unless(prefill),
            "ttft_mean_s": nan_unless(prefill * self._mean_share(u, new)),
            "tpot_s": np.where(fits & (after > 0.0), tpot, np.nan),
            "e2el_s": nan_unless(e2el),
            "output_tok_per_s": nan_unless(u * o / e2el),
            "mfu": nan_unless(cost.flop_s * share / prefill),
            "mbu": np.where(fits & (after > 0.0), decode.byte_s * busy / tpot, np.nan),
            "limit": np.where(fits, self._limit(cost, prefill, decode, decode_total, after), len(LIMITS) - 1),
        }
        if self.setting.calibrated:
            results["ttft_low_s"] = nan_unless(cost.low)
            results["ttft_high_s"] = nan_unless(cost.high)
        else:
            results["ttft_low_s"] = results["ttft_high_s"] = np.nan
        embedding = np.minimum(self._embedding(fullest, new), prefill)
        head = np.minimum(steps.seconds(steps.logits(np.maximum(fullest / p.pp, 1.0))), tpot) * after
        phases = {
            "embedding": nan_unless(embedding),
            "prefill": nan_unless(prefill - embedding),
            "decode": nan_unless(decode_total - head),
            "post-processing": nan_unless(head),
        }
        return results, phases, recompute

    def _embedding(self, fullest: Array, new: Array) -> Value:
        total = fullest * new
        count = np.ceil(total / self.setting.chunk_tokens) if self.setting.calibrated else 1.0
        return self.steps.seconds(self.steps.embedding(total / self.setting.parallelism.cp, count))

    def _mean_share(self, u: Array, new: Array) -> Value:
        """Mean over the last TTFT, when all arrive together and prompts fill the steps in order.

        n prompts one after another finish evenly spaced: (n + 1) / (2 n). Prompts that share a step finish together.
        Replicas with one user fewer are done earlier.
        """
        dp = self.setting.parallelism.dp

        def spaced(users: Array) -> Array:
            steps = np.ceil(users * new / self.setting.chunk_tokens) if self.setting.calibrated else users
            n = np.maximum(np.minimum(users, steps), 1.0)
            return np.asarray((n + 1.0) / (2.0 * n))

        fullest = self.tiers.fullest(u)
        if dp == 1:
            return spaced(fullest)
        fewer = fullest - 1.0
        full_replicas = u - dp * fewer
        others = dp - full_replicas
        last = fullest * full_replicas * spaced(fullest) + fewer * others * spaced(fewer) * fewer / fullest
        return np.asarray(last / u)

    def _limit(self, prefill: Cost, prefill_s: Value, decode: Cost, decode_s: Value, after: Array) -> NDArray[np.intp]:
        """Index of the largest share of the end-to-end time."""
        if self.setting.calibrated:
            shares = [
                prefill.compute + after * decode.compute, prefill.memory + after * decode.memory,
                prefill.network + after * decode.network, prefill.overhead + after * decode.overhead,
            ]  # fmt: skip
            return np.asarray(np.argmax(np.stack(np.broadcast_arrays(*shares)), axis=0))
        r = self.setting.assumptions.roofline
        whole: list[Value] = [0.0, 0.0, 0.0]
        for cost, seconds in ((prefill, prefill_s), (decode, decode_s)):
            bounds = (cost.compute / r.compute, cost.memory / r.memory, cost.network / r.network)
            longest = np.argmax(np.stack(np.broadcast_arrays(*bounds)), axis=0)
            whole = [w + np.where(longest == i, seconds, 0.0) for i, w in enumerate(whole)]
        return np.asarray(np.argmax(np.stack(np.broadcast_arrays(*whole)), axis=0))

    def _tier_columns(
        self, u: Array, c: Array, k: Array, results: dict[str, Value], recompute: Value,
        fits: NDArray[np.bool_], with_break_even_tokens: bool,
    ) -> dict[str, dict[str, Value]]:  # fmt: skip
        model, machine = self.tiers, self.setting.machine
        cached = k > 0.0
        prefix = np.where(cached, k, c) if k.ndim or k.any() else c
        new = c - k if k.any() else np.float64(0.0)
        new = np.where(cached, new, 0.0) if k.ndim else np.asarray(new)
        rest = model.prefill(u, new, prefix) if new.any() else np.float64(0.0)
        per_user = results["kv_bytes_per_user"]
        hbm_capacity = machine.device.memory.capacity * machine.devices
        hbm_rate = machine.device.memory.bandwidth * machine.devices
        shape = np.broadcast_shapes(np.shape(recompute), np.shape(rest))
        found: dict[str, dict[str, Value]] = {
            "hbm": {
                "read_bytes_per_s": hbm_rate,
                "effective_read_bytes_per_s": hbm_rate,
                "reload_s": np.zeros(shape),
                "ttft_reload_s": rest + np.zeros(shape),
                "ttft_overlap_s": rest + np.zeros(shape),
                "ttft_hybrid_s": rest + np.zeros(shape),
                "speedup": recompute / np.where(np.asarray(rest) > 0.0, rest, np.nan),
                "wins": np.asarray(rest < recompute),
                "break_even_bytes_per_s": np.nan,
                "break_even_tokens": np.nan,
                "capacity_bytes": hbm_capacity,
                "users_held": results["max_users_hbm"],
            }
        }
        for tier in model.rates:
            columns = model.evaluate(tier, u, c, prefix, recompute, rest)
            columns["capacity_bytes"] = tier.capacity
            columns["users_held"] = np.floor(tier.capacity / np.maximum(per_user, 1e-300))
            if with_break_even_tokens:
                limit = max(float(self.setting.model.max_context), float(c.max()))
                columns["break_even_tokens"] = model.break_even_tokens(tier, u, new, limit)
            found[tier.name] = columns
        for columns in found.values():
            columns["recompute_s"] = recompute
            for name in _ANSWERS:
                if name in columns:
                    columns[name] = np.where(fits, columns[name], np.nan)
        return found


#: Tier columns without an answer when the users do not fit.
_ANSWERS = (
    "reload_s", "ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s", "recompute_s", "speedup", "break_even_bytes_per_s",
    "break_even_tokens",
)  # fmt: skip
