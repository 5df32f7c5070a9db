"""A prefix that all users share (a system prompt, a code base): held once, loaded once, computed once per replica."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.tiers import TierRates
from llmcap.engine import transfer
from llmcap.engine.cost import Value
from llmcap.records import dataclass

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SharedPrefix:
    """The questions of a setting, when the first `tokens` tokens of every context are the same.

    State splits into what the users share, and what each keeps alone: its further tokens, and the windows and constant
    states at its own position. Bytes of layers that keep everything add; nothing else is shared after the first token
    on which users differ.
    """

    evaluator: Evaluator
    tokens: float

    def shared_bytes(self) -> float:
        """State of the shared prefix as it is kept and moved, one copy. [B]"""
        return float(self.evaluator.memory.moved_per_user(self.tokens))

    def own_bytes(self, tokens: Value) -> Array:
        """What a user of `tokens` tokens keeps beside the shared prefix. [B]"""
        memory = self.evaluator.memory
        return np.asarray(memory.moved_per_user(tokens) - memory.growing_per_token() * self.tokens)

    def users_in_memory(self, tokens: Value) -> Array:
        """Users of `tokens` tokens that device memory holds, each replica with its own copy of the prefix."""
        memory, p = self.evaluator.memory, self.evaluator.setting.parallelism
        group = memory.pool * p.tp * p.pp * p.cp
        far = 2.0**40
        growing = float(memory.reserved_per_user(2.0 * far) - memory.reserved_per_user(far)) / far
        own = memory.reserved_per_user(tokens) - growing * self.tokens
        room = np.maximum(group - memory.reserved_per_user(self.tokens), 0.0)
        return np.floor(room / np.maximum(own, 1e-300)) * p.dp

    def users_held(self, tier: TierRates, tokens: Value) -> Array:
        """Users whose own state fits a tier beside the prefix, kept once but for what ranks copy. [1]"""
        memory = self.evaluator.memory
        shared = self.shared_bytes() * memory.copies_kept(np.float64(self.tokens), tier.kept)
        own = self.own_bytes(tokens) * memory.copies_kept(tokens, tier.kept)
        room = np.maximum(tier.capacity - shared, 0.0)
        return np.asarray(np.floor(room / np.maximum(own, 1e-300)))

    def compute(self, users: Value, upto: Value) -> Array:
        """Prefill of the first `upto` tokens of all users, the shared part once per replica. [s]"""
        model, dp = self.evaluator.tiers, float(self.evaluator.setting.parallelism.dp)
        first = model.prefill(dp, np.minimum(upto, self.tokens), 0.0)
        own = np.maximum(np.asarray(upto, dtype=np.float64) - self.tokens, 0.0)
        return np.asarray(first + np.where(own > 0.0, model.prefill(users, np.maximum(own, 1.0), self.tokens), 0.0))

    def columns(self, tier: TierRates | None, users: Array, context: Array, prefix: Array) -> dict[str, Any]:
        """Tier columns as `TierModel.evaluate` names them; None is device memory, where the prefix already is.

        Parameters
        ----------
        tier : TierRates or None
        users, context, prefix : ndarray
            Broadcastable; the prefix that is found again, no shorter than the shared one.

        Returns
        -------
        dict of ndarray
        """
        model = self.evaluator.tiers
        users, context, prefix = np.broadcast_arrays(users, context, prefix)
        recompute = self.compute(users, context)
        left = context - prefix
        rest = np.where(left > 0.0, model.prefill(users, np.maximum(left, 1.0), prefix), 0.0)
        if tier is None:
            found: dict[str, Any] = dict.fromkeys(("ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s"), rest)
            return found | {
                "reload_s": np.zeros_like(rest), "recompute_s": recompute, "wins": rest < recompute,
                "speedup": recompute / np.where(rest > 0.0, rest, np.nan), "break_even_bytes_per_s": np.nan,
            }  # fmt: skip
        copies = float(self.evaluator.setting.parallelism.dp)
        growing = self.evaluator.memory.growing_per_token()
        own, shared = self.own_bytes(prefix), self.shared_bytes()
        rate = transfer.reload_bandwidth(users, model.fullest(users), tier.shared, tier.replica)
        moved = users * own + copies * shared
        reload = transfer.reload_time(moved, rate, tier.fixed)
        ttft = reload + rest
        load = np.maximum(reload - tier.fixed, 0.0)
        overlap = tier.fixed + transfer.overlapped(load, rest, self.evaluator.setting.structure.layers)

        def still_to_load(x: Array) -> Value:
            common = np.maximum(shared - growing * np.minimum(x, self.tokens), 0.0)
            alone = np.maximum(own - growing * np.maximum(x - self.tokens, 0.0), 0.0)
            return tier.fixed + (users * alone + copies * common) / rate

        split = transfer.best_split(prefix, lambda x: self.compute(users, x), still_to_load) + rest
        return {
            "read_bytes_per_s": tier.nominal,
            "effective_read_bytes_per_s": rate,
            "reload_s": reload,
            "recompute_s": recompute,
            "ttft_reload_s": ttft,
            "ttft_overlap_s": np.minimum(overlap, ttft),
            "ttft_hybrid_s": np.minimum(np.minimum(ttft, recompute), split),
            "speedup": recompute / ttft,
            "wins": ttft < recompute,
            "break_even_bytes_per_s": transfer.break_even_rate(moved, recompute - rest),
        }
