"""What a setting keeps in device memory: weights, work space, and the caches of its users."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.copies import state_structure
from llmcap.analyses.setting import Setting
from llmcap.arch.parameters import weight_bytes, weight_bytes_per_device
from llmcap.arch.state import bytes_per_token, copies_kept, reserved_bytes, state_bytes
from llmcap.arch.structure import Parallelism, Structure
from llmcap.engine.cost import Value
from llmcap.engine.memory import cache_pool, sequences_held
from llmcap.records import dataclass
from llmcap.specs.engine import Copies

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Bytes of a setting; arrays of cases where lengths come in."""

    setting: Setting
    structure: Structure
    """Structure the state is sized with: the model's own, or an assumption set's."""

    @classmethod
    def of(cls, setting: Setting) -> MemoryModel:
        """The memory of a setting, with the deviations of its assumption set applied to the state."""
        return cls(setting, state_structure(setting.structure, setting.assumptions.deviations))

    @property
    def weights(self) -> float:
        """One copy of all weights. [B]"""
        return weight_bytes(self.setting.structure, self.setting.weights)

    @property
    def weights_per_device(self) -> float:
        """On the fullest device. [B]"""
        return weight_bytes_per_device(self.setting.structure, self.setting.weights, self.setting.parallelism)

    @property
    def work_space(self) -> float:
        """Activations of the largest step, per device. [B]"""
        return self.setting.operators.work_space_per_token * self.setting.chunk_tokens / self.setting.parallelism.cp

    @property
    def pool(self) -> float:
        """Left for caches, per device; negative when weights alone do not fit. [B]"""
        engine = self.setting.engine
        return float(
            cache_pool(
                self.setting.machine.device.memory.capacity, engine.memory_share, engine.memory_fixed,
                self.weights_per_device, self.work_space,
            )
        )  # fmt: skip

    def per_user(self, tokens: Value) -> Array:
        """Logical state of one user of `tokens` tokens. [B]"""
        return state_bytes(self.structure, tokens, self.setting.kv_dtype)

    def per_token(self, tokens: Value) -> Array:
        """Marginal logical state of one more token. [B]"""
        return bytes_per_token(self.structure, tokens, self.setting.kv_dtype)

    def reserved_per_user(self, tokens: Value) -> Array:
        """Set aside by all devices of a replica, copies and rounding included. [B]"""
        return self._reserved(tokens, self.setting.parallelism)

    def moved_per_user(self, tokens: Value) -> Array:
        """What a reload of `tokens` tokens moves: the logical state, or under all-full one copy of the blocks. [B]"""
        if self.setting.options.kv_policy == "all-full":
            return self._reserved(tokens, Parallelism())
        return self.per_user(tokens)

    def growing_per_token(self) -> float:
        """Bytes that each further token adds to a long context, whatever its length. [B]"""
        whole = self.setting.options.kv_policy == "all-full"
        one = self.moved_per_user(2.0**40)
        two = self.moved_per_user(2.0**41)
        return float(two - one) / 2.0**40 if whole or float(two) > float(one) else 0.0

    def copies(self) -> float:
        """Times a logical byte is held (and moved) within a tensor-parallel group."""
        tokens = 2.0**20
        one = float(self._reserved(tokens, Parallelism()))
        return float(self._reserved(tokens, Parallelism(tp=self.setting.parallelism.tp))) / one if one else 1.0

    def copies_kept(self, tokens: Value, latent: Copies) -> Value:
        """Bytes that a tier stores of `tokens` tokens, with latents once or per rank, over the logical bytes. [1]"""
        tp = self.setting.parallelism.tp
        if tp == 1 or self.setting.assumptions.ideal_transfers:
            return 1.0
        found = copies_kept(self.structure, tokens, self.setting.kv_dtype, tp, latent_once=latent == "once")
        return 1.0 if np.all(found == 1.0) else found

    def users_held(self, tokens: Value) -> Array:
        """Users of `tokens` tokens whose caches device memory holds, all replicas."""
        p = self.setting.parallelism
        held = sequences_held(self.pool, self.reserved_per_user(tokens) / (p.tp * p.pp * p.cp))
        return np.minimum(held, 1e15) * p.dp

    def _reserved(self, tokens: Value, p: Parallelism) -> Array:
        return reserved_bytes(
            self.structure, tokens, self.setting.kv_dtype, p,
            policy=self.setting.options.kv_policy, block=self.setting.engine.kv_block,
        )  # fmt: skip
