"""Serving under load: what a mean request sees when others come and go.

`Evaluator` answers for users who arrive together; here prefill and decode of different requests share the steps, and
the cache pool decides how many run. One replica is looked at; data-parallel ones share the load evenly.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.serving.speculation import Draft
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import StepModel
from llmcap.engine import queueing, serving
from llmcap.engine.cost import Cost, Value
from llmcap.engine.memory import cache_pool
from llmcap.engine.queueing import Moments
from llmcap.errors import OptionError
from llmcap.records import dataclass
from llmcap.specs.engine import ExpertKernels, FamilyKernels, Serving

Array = NDArray[np.float64]
LoadKind = Literal["spread", "fixed"]

SMALLEST_POOL: Final = 0.05
"""Share of device memory that a pool is never taken to fall below where a run took place."""


@dataclass(frozen=True, slots=True)
class ServingModel:
    """A setting under load; arrays of cases in, arrays out."""

    setting: Setting
    steps: StepModel
    memory: MemoryModel
    engine: Serving
    draft: Draft | None = None
    took_place: bool = False
    """Whether the cases are runs that took place, so that memory which seems short by a little was not."""

    @classmethod
    def of(cls, setting: Setting, *, took_place: bool = False) -> ServingModel:
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
        draft = None if setting.options.draft_tokens is None else Draft.of(setting)
        return cls(setting, StepModel(setting), MemoryModel.of(setting), setting.engine.serving, draft, took_place)

    # -- memory ----------------------------------------------------------------------------------------------------

    @property
    def pool(self) -> float:
        """Left for caches on one device, negative when weights alone do not fit. [B]"""
        engine = self.setting.engine
        capacity = self.setting.machine.device.memory.capacity
        share = max(engine.memory_share, self.engine.memory_share)
        weights = self.memory.weights_per_device + (0.0 if self.draft is None else self.draft.weights_per_device)
        pool = float(cache_pool(capacity, share, engine.memory_fixed, weights, self.memory.work_space))
        return max(pool, SMALLEST_POOL * capacity) if self.took_place else pool

    def reserved(self, tokens: Value) -> Array:
        """Cache of one sequence of `tokens` tokens on each device of its replica. [B]"""
        p = self.setting.parallelism
        one = self.memory.reserved_per_user(tokens)
        if self.draft is not None:
            one = one + self.draft.memory.reserved_per_user(tokens)
        return np.asarray(one / (p.tp * p.pp * p.cp))

    def held(self, context: Array, output: Array) -> Array:
        """Sequences that the cache pools of all replicas hold, by the length the engine admits them with."""
        tokens: Value = context + output * (0.5 if self.engine.admission == "mean" else 1.0)
        pool = max(self.pool, 0.0)
        one = self.reserved(tokens)
        held = np.minimum(pool / np.maximum(one, 1e-300), self.engine.most_sequences)
        return np.asarray(held * self.setting.parallelism.dp)

    def fits(self, context: Array, output: Array) -> NDArray[np.bool_]:
        """Whether each replica holds one sequence at its full length."""
        return np.asarray(self.reserved(context + output) <= self.pool)

    def slots(self, context: Array, cached: Array, output: Array) -> Array:
        """Sequences that each replica decodes at most, one at least.

        The pool decides, or the prompts: every step decodes a token of each sequence and prefills at most a chunk C, so
        that no more than o C / n of them are past their prompt in a lasting steady state; the others wait for theirs.
        """
        p = self.setting.parallelism
        fed = output * self.setting.chunk_tokens * p.pp / np.maximum(context - cached, 1.0)
        return np.maximum(np.minimum(self.held(context, output) / p.dp, fed), 1.0)

    def admitted(self, clients: Array, context: Array, cached: Array, output: Array) -> tuple[Array, Array]:
        """Clients that run, and how many more wait for each that runs."""
        dp = self.setting.parallelism.dp
        most = dp * self.slots(context, cached, output)
        if self.took_place:
            return serving.admitted(clients, most)
        running = np.minimum(clients, most)
        return running, clients / running - 1.0

    # -- work ------------------------------------------------------------------------------------------------------

    def ahead(self, running: Array, each: Array) -> Array:
        """Other clients whose prefill delays a request: replicas that share experts step together."""
        together = any(op.pool > 1 for op in self.setting.operators.experts)
        return np.maximum((running if together else each) - 1.0, 0.0)

    def decode_cost(self, each: Value, context: Value, output: Value) -> Cost:
        """Per token of a sequence while `each` of them run on a replica: a step over the tokens that it yields."""
        if self.draft is None:
            return self.steps.decode(each, context, output)
        return self.draft.decode(self.steps, each, context, output)

    def decode(self, each: Value, context: Value, output: Value) -> Array:
        """Time of `decode_cost`. [s]"""
        return np.asarray(self.decode_cost(each, context, output).serial)

    def prefill_alone(self, new: Array, cached: Array) -> Array:
        """Prefill of one prompt with nothing else to do, host overheads included. [s]"""
        return np.asarray(self.steps.prefill(np.ones_like(new), new, cached).serial)

    def prefill_shared_cost(self, new: Array, cached: Array) -> Cost:
        """Prefill work that one prompt adds to full steps, without host overheads.

        Pipeline stages work on different prompts: one prompt keeps each of them busy for its share.
        """
        setting, steps = self.setting, self.steps
        chunk = float(setting.chunk_tokens)
        step, host = steps.tokens(chunk / setting.parallelism.cp, 1.0, "prefill"), steps.overhead("prefill")
        share = new / chunk
        total = replace(step, overhead=step.overhead - host.overhead) * share
        for op in setting.operators.attention:
            total = total + steps.prefill_attention(op, np.ones_like(new), new, cached, share)
        return total * (setting.assumptions.scales.prefill / setting.parallelism.pp)

    def prefill_shared(self, new: Array, cached: Array) -> Array:
        """Time of `prefill_shared_cost`. [s]"""
        return np.asarray(self.prefill_shared_cost(new, cached).serial)

    # -- load ------------------------------------------------------------------------------------------------------

    def closed_loop(
        self, clients: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike, load: LoadKind = "spread",
        wait_steps: ArrayLike = 0.0,
    ) -> dict[str, Array]:  # fmt: skip
        """Mean TPOT and TTFT, and output tokens a second, of c clients that each send one request after another.

        Parameters
        ----------
        clients, context, cached, output : array_like
            Clients over all replicas; tokens of each request.
        load : {'spread', 'fixed'}
            Whether lengths vary from request to request.
        wait_steps : array_like
            Decode steps that a prompt waits by a launch option: half of SGLang's --scheduler-recv-interval,
            TensorRT-LLM's batch_wait_timeout_iters.

        Returns
        -------
        dict
            tpot_s, ttft_s, queue_s (the part of ttft_s before a slot is free) [s], output_tok_per_s, running
            (sequences that run at once), waiting.
        """
        c, n, k, o = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(clients, context, cached, output))
        dp = self.setting.parallelism.dp
        way = getattr(self.engine, load)
        running, excess = self.admitted(c, n, k, o)
        each = np.maximum(running / dp, 1.0)
        decode = self.decode(each, n, o)
        shared = self.prefill_shared(n - k, k)
        tpot = serving.time_per_output_token(decode, shared, each, o, way.interleave)
        ttft = serving.time_to_first_token(
            self.prefill_alone(n - k, k), shared, tpot, each, o,
            ahead=self.ahead(running, each), own=np.where(c > dp, way.own, 1.0), burst=way.burst, slot=way.slot,
            running_steps=self.engine.running_steps + np.asarray(wait_steps, dtype=np.float64),
            dispatch=self.engine.dispatch,
        )  # fmt: skip
        stay = ttft + np.maximum(o - 1.0, 0.0) * tpot
        busiest = np.minimum(running, dp)  # replicas with anything to do
        rate = busiest * serving.completed(c / busiest, running / busiest, stay, decode, shared, o)
        queue = np.where(excess > 0.0, self.engine.waiting * np.maximum(c / rate - stay, 0.0), 0.0)
        # Who is in the batch holds a place; part of the stay before the first token is spent outside of it.
        waiting = np.where(excess > 0.0, c - np.minimum(np.minimum(rate * stay, running), c), 0.0)
        return {
            "tpot_s": tpot, "ttft_s": ttft + queue, "queue_s": queue, "output_tok_per_s": rate * o,
            "running": c - waiting, "waiting": waiting,
        }  # fmt: skip

    def poisson(
        self, rate: ArrayLike, context: ArrayLike, cached: ArrayLike, output: ArrayLike
    ) -> dict[str, Array | Moments]:
        """What a mean request sees when requests arrive at random.

        Parameters
        ----------
        rate : array_like
            Over all replicas. [1/s]
        context, cached, output : array_like
            Tokens of each request.

        Returns
        -------
        dict
            tpot_s, ttft_s [s], queue (Moments of the waiting in it), running, waiting; NaN at and above saturation.

        Notes
        -----
        Of each replica with arrivals x, B sequences running: TPOT = D(B) + B P / o, where a request meets B others
        (arrivals see time averages) and steps do the work of both phases one after another; a request stays for its
        own prefill, the steps in progress and its decode, which gives B by Little's law. Before its prefill it waits
        for those in front (M/D/1; a prompt keeps the prefill busy for P and the decode parts of its n / C steps) and
        for a slot (M/D/m on the stay).
        """
        x, n, k, o = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(rate, context, cached, output))
        own = x / self.setting.parallelism.dp
        most = self.capacity(n, k, o) / self.setting.parallelism.dp
        alone, shared = self.prefill_alone(n - k, k), self.prefill_shared(n - k, k)
        slots = self.slots(n, k, o)
        steps = (n - k) / self.setting.chunk_tokens
        further = np.ceil(steps) - 1.0  # steps of a prompt whose decode part is not among the running steps

        def times(b: Array) -> tuple[Array, Array, Array]:
            decode = self.decode(np.maximum(b, 1.0), n, o)
            tpot = serving.time_per_output_token(decode, shared, b + 1.0, o, 1.0)
            host = self.engine.dispatch * np.sqrt(np.maximum(b, 1.0))
            first = alone + (self.engine.running_steps * tpot + further * decode) * np.minimum(b, 1.0) + host
            return tpot, first, first + np.maximum(o - 1.0, 0.0) * tpot

        running = serving.running_at(own, lambda b: times(b)[2], slots)
        tpot, first, stay = times(running)
        decode = self.decode(np.maximum(running, 1.0), n, o)
        # Below saturation the prefill is never wholly busy; rounding must not make it so.
        busy = np.minimum(
            shared + steps / self.setting.parallelism.pp * decode * np.minimum(running, 1.0),
            0.999999 / np.maximum(own, 1e-300),  # the least of rates would overflow
        )
        queue = queueing.delay(own, busy) + queueing.slot_delay(stay, slots, own / most)
        gap = np.where(own < most, 0.0, np.nan)
        within = np.minimum(x * stay, self.setting.parallelism.dp * slots)
        return {
            "tpot_s": tpot + gap, "ttft_s": first + queue.mean + gap,
            "queue": Moments(queue.mean + gap, queue.variance),
            "running": within + gap, "waiting": x * (stay + queue.mean) - within + gap,
        }  # fmt: skip

    def capacity(self, context: Array, cached: Array, output: Array) -> Array:
        """Requests a second of all replicas at saturation: as `saturated`, with no more slots than prompts can feed."""
        slots = self.slots(context, cached, output)
        busy = self._saturated()
        shared = busy.prefill_shared(context - cached, cached)
        fed = serving.throughput(slots, busy.decode(slots, context, output), shared, output) / output
        rate = self.setting.parallelism.dp * self.engine.saturated_rate * fed
        return np.asarray(np.minimum(rate, self.saturated(context, cached, output)["output_tok_per_s"] / output))

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

    def saturated(
        self, context: ArrayLike, cached: ArrayLike, output: ArrayLike, requests: ArrayLike = np.inf
    ) -> dict[str, Array]:
        """As many requests as the pool takes, always: output tokens a second of all replicas.

        Parameters
        ----------
        context, cached, output : array_like
            Tokens of each request.
        requests : array_like
            Requests of a run in all: no more than these run at once.

        Returns
        -------
        dict
            output_tok_per_s, tpot_s, prefill_tok_per_s (prompts alone), running.
        """
        n, k, o = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(context, cached, output))
        dp = self.setting.parallelism.dp
        running = np.maximum(np.minimum(self.held(n, o), np.asarray(requests, dtype=np.float64)), dp)
        each = running / dp
        busy = self._saturated()
        decode = busy.decode(each, n, o)
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
        return replace(self, setting=setting, steps=StepModel(setting))


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
