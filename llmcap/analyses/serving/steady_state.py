"""Serving under load: what a mean request sees when c clients keep an engine busy.

`Evaluator` answers for users who arrive together; here they come and go, prefill and decode share the steps, and the
cache pool decides how many run.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import StepModel
from llmcap.engine import serving
from llmcap.engine.cost import Value
from llmcap.engine.memory import cache_pool
from llmcap.errors import OptionError
from llmcap.specs.engine import ExpertKernels, FamilyKernels, Serving

Array = NDArray[np.float64]
LoadKind = Literal["spread", "fixed"]

SMALLEST_POOL: Final = 0.05
"""Share of device memory that a pool is never taken to fall below: such runs took place."""


@dataclass(frozen=True, slots=True)
class ServingModel:
    """A setting under load; arrays of cases in, arrays out."""

    setting: Setting
    steps: StepModel
    memory: MemoryModel
    engine: Serving

    @classmethod
    def of(cls, setting: Setting) -> ServingModel:
        """The load model of a setting's engine.

        Raises
        ------
        OptionError
            The engine profile says nothing about load.
        """
        if setting.engine.serving is None:
            raise OptionError(
                "--engine",
                f"the profile '{setting.engine.id}' has no 'serving' section",
                "use one that has, for example vllm",
            )
        return cls(setting, StepModel(setting), MemoryModel.of(setting), setting.engine.serving)

    def held(self, context: Array, output: Array) -> Array:
        """Sequences that the cache pools of all replicas hold, by the length the engine admits them with."""
        tokens: Value = context + output * (0.5 if self.engine.admission == "mean" else 1.0)
        engine, p = self.setting.engine, self.setting.parallelism
        capacity = self.setting.machine.device.memory.capacity
        share = max(engine.memory_share, self.engine.memory_share)
        pool = cache_pool(capacity, share, engine.memory_fixed, self.memory.weights_per_device, self.memory.work_space)
        pool = np.maximum(pool, SMALLEST_POOL * capacity)
        one = self.memory.reserved_per_user(tokens) / (p.tp * p.pp * p.cp)
        return np.asarray(np.minimum(pool / np.maximum(one, 1e-300), self.engine.most_sequences) * p.dp)

    def ahead(self, running: Array, each: Array) -> Array:
        """Other clients whose prefill delays a request: replicas that share experts step together."""
        together = any(op.pool > 1 for op in self.setting.operators.experts)
        return np.maximum((running if together else each) - 1.0, 0.0)

    def prefill_alone(self, new: Array, cached: Array) -> Array:
        """Prefill of one prompt with nothing else to do, host overheads included. [s]"""
        return np.asarray(self.steps.prefill(np.ones_like(new), new, cached).serial)

    def prefill_shared(self, new: Array, cached: Array) -> Array:
        """Prefill work that one prompt adds to full steps, without host overheads. [s]"""
        setting, steps = self.setting, self.steps
        chunk = float(setting.chunk_tokens)
        full = steps.tokens(chunk / setting.parallelism.cp, 1.0, "prefill").serial - steps.overhead("prefill").serial
        share = new / chunk
        total = full * share
        for op in setting.operators.attention:
            total = total + steps.prefill_attention(op, np.ones_like(new), new, cached, share).serial
        return np.asarray(total * setting.assumptions.scales.prefill)

    def closed_loop(
        self, clients: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike, load: LoadKind = "spread"
    ) -> dict[str, Array]:
        """Mean TPOT and TTFT, and output tokens a second, of c clients that each send one request after another.

        Parameters
        ----------
        clients, context, cached, output : array_like
            Clients over all replicas; tokens of each request.
        load : {'spread', 'fixed'}
            Whether lengths vary from request to request.

        Returns
        -------
        dict
            tpot_s, ttft_s [s], output_tok_per_s, running (sequences that run at once).
        """
        c, n, k, o = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(clients, context, cached, output))
        dp = self.setting.parallelism.dp
        way = getattr(self.engine, load)
        running, excess = serving.admitted(c, self.held(n, o))
        each = np.maximum(running / dp, 1.0)
        decode = np.asarray(self.steps.decode(each, n, o).serial)
        shared = self.prefill_shared(n - k, k)
        tpot = serving.time_per_output_token(decode, shared, each, o, way.interleave)
        ttft = serving.time_to_first_token(
            self.prefill_alone(n - k, k), shared, tpot, each, excess, o,
            ahead=self.ahead(running, each), own=np.where(c > dp, way.own, 1.0), burst=way.burst, slot=way.slot,
            running_steps=self.engine.running_steps, dispatch=self.engine.dispatch, waiting=self.engine.waiting,
        )  # fmt: skip
        rate = dp * serving.throughput(each, decode, shared, o)
        return {"tpot_s": tpot, "ttft_s": ttft, "output_tok_per_s": rate, "running": running}

    def batch(self, size: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike) -> dict[str, Array]:
        """One static batch: prefill of all prompts, then decode of all; in rounds when the pool holds fewer.

        Returns
        -------
        dict
            tpot_s, ttft_s (all prompts prefilled) [s], output_tok_per_s, running.
        """
        b, n, k, o = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(size, context, cached, output))
        dp = self.setting.parallelism.dp
        running = np.minimum(b, np.maximum(self.held(n, o), 1.0))
        each = np.maximum(running / dp, 1.0)
        prefill = np.asarray(self.steps.prefill(each, n - k, k).serial)
        decode = np.asarray(self.steps.decode(each, n, o).serial)
        return {
            "tpot_s": decode,
            "ttft_s": prefill,
            "output_tok_per_s": serving.static_batch(running, prefill, decode, o),
            "running": running,
        }

    def saturated(self, context: ArrayLike, cached: ArrayLike, output: ArrayLike) -> dict[str, Array]:
        """As many requests as the pool takes, always: output tokens a second of all replicas.

        Returns
        -------
        dict
            output_tok_per_s, tpot_s, prefill_tok_per_s (prompts alone), running.
        """
        n, k, o = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(context, cached, output))
        dp = self.setting.parallelism.dp
        running = np.maximum(self.held(n, o), dp)
        each = running / dp
        busy = self._saturated()
        decode = np.asarray(busy.steps.decode(each, n, o).serial)
        shared = busy.prefill_shared(n - k, k)
        rate = dp * self.engine.saturated_rate
        return {
            "output_tok_per_s": rate * serving.throughput(each, decode, shared, o),
            "tpot_s": serving.time_per_output_token(decode, shared, each, o, self.engine.fixed.interleave),
            "prefill_tok_per_s": rate * (n - k) / shared,
            "running": running,
        }

    def _saturated(self) -> ServingModel:
        """The same model with the experts' work as it is at saturation, where the fullest device sets the pace."""
        factor = self.engine.saturated_experts
        if factor == 1.0:
            return self
        setting = with_experts(self.setting, factor)
        return ServingModel(setting, StepModel(setting), self.memory, self.engine)


def with_experts(setting: Setting, factor: float) -> Setting:
    """The setting with the work of experts taken times a factor in both phases."""
    kernels, family = setting.engine.kernels, setting.machine.device.family
    own = kernels.families.get(family, FamilyKernels())
    dtypes = {op.weight_dtype for op in setting.operators.experts}
    experts = dict(own.experts)
    for dtype in dtypes:
        old = experts.get(dtype, ExpertKernels())
        more = {"prefill": old.prefill * factor, "decode": old.decode * factor}
        experts[dtype] = old.model_copy(update=more)
    families = kernels.families | {family: own.model_copy(update={"experts": experts})}
    engine = setting.engine.model_copy(update={"kernels": kernels.model_copy(update={"families": families})})
    return replace(setting, engine=engine)
