"""Time of engine steps: the operators of a setting priced by its machine.

The path of one estimate runs down this file once: operator table -> kernels of the machine -> cost of a step with m
tokens -> prefill of users and decode of users as sums of steps, in closed form over tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses import fits
from llmcap.analyses.context_parallel import merged_bytes, ring_cost, ring_messages
from llmcap.analyses.setting import Setting
from llmcap.arch.attention import attended_pairs, attended_slots, longest_sight
from llmcap.arch.dtypes import bytes_per_element
from llmcap.arch.operators import Attention, Exchange, Experts, Gemm, Stream, layer_kinds
from llmcap.arch.parts import AttentionWork
from llmcap.engine import collectives, kernels
from llmcap.engine.cost import Cost, Value
from llmcap.engine.pipeline import pipeline_share
from llmcap.engine.ring import RingMessages
from llmcap.records import dataclass
from llmcap.specs.engine import ExpertKernels, FamilyKernels

Array = NDArray[np.float64]
Phase = Literal["prefill", "decode"]
TokenOperator = Gemm | Experts | Stream | Exchange

#: Kernels as the calibration has them.
_POOLED = FamilyKernels()
_ANY_EXPERTS = ExpertKernels()


@dataclass(frozen=True, slots=True)
class StepModel:
    """Costs of a setting's steps; numbers or arrays of cases, whichever is asked with."""

    setting: Setting
    _table: dict[str, Cost] = field(default_factory=dict, repr=False)

    # -- operators -------------------------------------------------------------------------------------------------

    def _rates(self, dtype: str) -> kernels.DeviceRates:
        roofline = self.setting.assumptions.roofline
        if not self.setting.calibrated and roofline.peak_dtype is not None:
            dtype = roofline.peak_dtype
        return self.setting.machine.rates(dtype)

    def gemm(self, op: Gemm, m: Value, phase: Phase | None = None) -> Cost:
        """One layer's product with m tokens; with a phase named, under the engine's own kernels."""
        params = None
        if self.setting.calibrated:
            fit = fits.gemm_fit(op, self.setting.calibration).fit
            params = kernels.GemmParams(fit.t0, fit.e, fit.x0, fit.w, fit.a, *fits.band(fit))
        cost = kernels.gemm(
            m, k=op.k, n=op.n, weight_bytes=op.weight_bytes, bytes_per_row=op.bytes_per_row,
            rates=self._rates(op.compute_dtype), params=params,
        )  # fmt: skip
        if params is None or phase is None:
            return cost
        factors = self._family.gemm.get(op.compute_dtype)
        work = 1.0 if factors is None else getattr(factors, phase)
        return cost.scaled(work * self._products(phase), self._launch_share(phase))

    def _products(self, phase: Phase) -> float:
        """The engine's factor on all products of a phase."""
        return self.setting.engine.kernels.prefill_products if phase == "prefill" else 1.0

    @property
    def _family(self) -> FamilyKernels:
        """The engine's kernels on this family of devices."""
        return self.setting.engine.kernels.families.get(self.setting.machine.device.family, _POOLED)

    def _all_reduce_factor(self, phase: Phase) -> float:
        """The engine's factor on all-reduces: by family for the large ones of prefill."""
        own = self.setting.engine.kernels.decode_all_reduce
        return self._family.prefill_all_reduce if phase == "prefill" else own

    def _launch_share(self, phase: Phase) -> float:
        """A captured decode step hides part of the launch floors; prefill runs kernel by kernel."""
        return self.setting.engine.kernels.launch_share if phase == "decode" else 1.0

    def experts(self, op: Experts, m: Value, phase: Phase = "prefill") -> Cost:
        """One layer's routed experts with m tokens on each rank of the pool.

        The fits know steps of a thousand tokens and more. A decode step has small tiles, and its floor is the engine's
        launch instead of the fitted t0 where the engine gives one.
        """
        params = None
        own = self._family.experts.get(op.weight_dtype, _ANY_EXPERTS)
        if self.setting.calibrated:
            fit = fits.expert_fit(op, self.setting.calibration).fit
            decode = phase == "decode"
            launch = own.launch if own.launch is not None else self.setting.engine.kernels.expert_launch
            floor = launch if decode and launch is not None else fit.t0
            tile = kernels.DECODE_TILE if decode else None
            params = kernels.ExpertParams(floor, fit.e, fit.r0, fit.w, fit.a, *fits.band(fit), tile)
        work = op.work
        cost = kernels.experts(
            m * op.pool, count=work.experts, active=work.active_per_token,
            flop_per_token=2.0 * work.active_per_token * work.parameters_per_expert,
            bytes_per_expert=op.bytes_per_expert, share=op.share, bytes_per_row=op.bytes_per_row,
            rates=self._rates(op.compute_dtype), params=params,
        )  # fmt: skip
        return cost if params is None else cost.scaled(getattr(own, phase) * self._products(phase), 1.0)

    @property
    def _streams(self) -> kernels.StreamParams | None:
        s = self.setting.engine.streams
        return kernels.StreamParams(s.launch, s.memory, s.compute, s.low, s.high) if self.setting.calibrated else None

    def stream(self, op: Stream, m: Value, sequences: Value, phase: Phase = "prefill") -> Cost:
        """One layer's element-wise work of m tokens, or its recurrent update for `sequences` sequences."""
        params = self._streams
        moved = m * op.bytes_per_token + sequences * op.bytes_per_sequence
        cost = kernels.stream(moved, m * op.flop_per_token, 1.0, rates=self._rates("bf16"), params=params)
        return cost if params is None else cost.scaled(1.0, self._launch_share(phase))

    def exchange(self, op: Exchange, m: Value, phase: Phase = "prefill") -> Cost:
        """One call of a collective with m tokens."""
        fabric = self.setting.machine.fabric(op.span)
        params = None
        if self.setting.calibrated:
            c = self.setting.calibration.collectives
            fit = fits.collective_fit(op, self.setting.calibration).fit
            params = collectives.CollectiveParams(
                fit.alpha, fit.alpha_log2, fit.beta, *fits.band(fit),
                two_shot=c.all_reduce.two_shot,
                in_switch=c.all_reduce.in_switch and op.span <= self.setting.machine.server.devices,
                switch=c.all_reduce.switch,
            )  # fmt: skip
        size = m * op.bytes_per_token
        if op.kind == "all_reduce":
            inner, servers = self.setting.machine.levels(op.span, op.ranks)
            cost = collectives.all_reduce(
                size, op.ranks, 1.0, fabric=fabric, params=params, inner=inner, servers=servers
            )
            return cost if params is None else cost.scaled(self._all_reduce_factor(phase), 1.0)
        if op.kind == "send":
            return collectives.send(size, 1.0, fabric=fabric, params=params)
        return collectives.exchange(size, op.ranks, 1.0, fabric=fabric, params=params)

    def overhead(self, phase: Phase, sequences: Value = 0.0) -> Cost:
        """Host and launch time of one step that runs `sequences` sequences."""
        if not self.setting.calibrated:
            return Cost()
        o = self.setting.engine.prefill if phase == "prefill" else self.setting.engine.decode
        t: Value = o.step + o.layer * self.setting.structure.layers
        recurrent, latent, experts = layer_kinds(self.setting.operators)
        t = t + o.recurrent * recurrent + o.latent * latent + o.experts * experts
        if o.sequence:
            t = t + o.sequence * sequences
        return Cost(overhead=t, low=t * o.low, high=t * o.high)

    def embedding(self, tokens: Value, steps: Value) -> Cost:
        """Gather of `tokens` rows in `steps` steps."""
        moved = tokens * self.setting.operators.embedding_bytes_per_token
        return kernels.stream(moved, 0.0 * tokens, steps, rates=self._rates("bf16"), params=self._streams)

    # -- steps -----------------------------------------------------------------------------------------------------

    def tokens(self, m: Value, sequences: Value, phase: Phase) -> Cost:
        """Everything in a step of m tokens that depends on nothing else: no attention, no logits, no embedding."""
        total = self.overhead(phase, sequences)
        for _, calls, cost in self.token_terms(m, sequences, phase):
            total = total + cost * calls
        return total

    def token_terms(self, m: Value, sequences: Value, phase: Phase) -> Iterator[tuple[TokenOperator, float, Cost]]:
        """What `tokens` adds up beside the overhead: an operator, its calls in a step, the cost of one call."""
        table = self.setting.operators
        for gemm in table.gemms:
            yield gemm, gemm.layers, self.gemm(gemm, m, phase)
        for group in table.experts:
            yield group, group.layers, self.experts(group, m, phase)
        for stream in table.streams:
            yield stream, stream.layers, self.stream(stream, m, sequences, phase)
        for exchange in table.exchanges:
            if phase == "decode" or not exchange.decode_only:
                yield exchange, exchange.count, self.exchange(exchange, m, phase)

    def _prefill_tokens(self, m: Array) -> Cost:
        """`tokens` for whole token counts up to a chunk, tabulated once when many cases ask."""
        cp = self.setting.parallelism.cp
        if m.size < self.setting.chunk_tokens // 4:
            return self.tokens(np.maximum(m, 1.0) / cp, 1.0, "prefill")
        if "prefill" not in self._table:
            every = np.maximum(np.arange(self.setting.chunk_tokens + 1, dtype=np.float64), 1.0)
            self._table["prefill"] = self.tokens(every / cp, 1.0, "prefill")
        return self._table["prefill"].at(m.astype(np.intp))

    def prefill(self, users: Value, new: Value, cached: Value) -> Cost:
        """Prefill of `users` prompts of `new` tokens each on top of `cached`, one replica, until the last one is done.

        Parameters
        ----------
        users : float or ndarray
            Prompts of the fullest data-parallel replica.
        new, cached : float or ndarray
            Tokens per prompt; new 0 costs nothing.

        Returns
        -------
        Cost
            [s], embedding included.

        Notes
        -----
        Prompts fill steps of `chunk_tokens` in order: floor(users new / C) full steps and a rest, each priced by its
        token count; attention is linear in work and sums in closed form. With pp stages, steps follow each other
        through the pipeline: (1/pp + (pp-1)/pp/steps) of the serial time; 1/pp without step costs.
        """
        users, new, cached = (np.asarray(v, dtype=np.float64) for v in (users, new, cached))
        total = users * new
        chunked = self.setting.calibrated
        chunk = float(self.setting.chunk_tokens)
        if chunked:
            full: Array = np.asarray(np.floor(total / chunk))
            rest = total - full * chunk
            partly: Array = np.asarray((rest > 0.0) * 1.0)
            steps = full + partly
            cost = self.tokens(chunk / self.setting.parallelism.cp, 1.0, "prefill") * full
            cost = cost + self._prefill_tokens(rest) * partly
        else:
            steps = np.asarray((total > 0.0) * 1.0)
            cost = self.tokens(total / self.setting.parallelism.cp, users, "prefill") * steps
        cost = cost + self.embedding(total / self.setting.parallelism.cp, steps)
        for op in self.setting.operators.attention:
            cost = cost + self.prefill_attention(op, users, new, cached, steps)
        logits = np.minimum(users, steps)
        cost = cost + self.gemm(self.setting.operators.head, users / np.maximum(logits, 1.0)) * logits
        pp = self.setting.parallelism.pp
        if pp > 1:
            # Without step costs a prompt may be cut as finely as one likes: the pipeline is full from the start.
            stages = cost * (pipeline_share(pp, total / chunk) if chunked else 1.0 / pp)
            cost = replace(stages, flop_s=cost.flop_s / pp, byte_s=cost.byte_s / pp)
        scale = self.setting.assumptions.scales.prefill
        return cost if scale == 1.0 else cost * scale

    def _charged_slots(self, work: AttentionWork, new: Value, cached: Value) -> Value:
        """Slots that prefill is charged for: the attended ones, or what the assumption set counts instead."""
        deviations = self.setting.assumptions.deviations
        whole = deviations.every_layer_full and work.role == "attention"
        slots: Value = attended_pairs(new, cached) if whole else attended_slots(work, new, cached)
        if deviations.causal:
            return slots
        rectangle = new * (cached + new)
        return rectangle if whole else rectangle * (slots / attended_pairs(new, cached))

    def prefill_attention(self, op: Attention, users: Value, new: Value, cached: Value, steps: Value) -> Cost:
        """All layers of one attention work, all users, all steps, with what context-parallel ranks send each other."""
        one = self.attention_kernel(op, users, new, cached, steps)
        return one if self.setting.parallelism.cp == 1 else one + self.ring(op, one, users, new, cached, steps)

    def ring(self, op: Attention, kernel: Cost, users: Value, new: Value, cached: Value, steps: Value) -> Cost:
        """Messages of ring attention that the kernel does not hide, all layers."""
        attention = (kernel.compute + kernel.memory) * (1.0 / op.layers)
        return ring_cost(self.setting, self.messages(op, users, new, cached), attention, steps) * op.layers

    def messages(self, op: Attention, users: Value, new: Value, cached: Value) -> RingMessages:
        """What one context-parallel rank sends in one layer, all steps."""
        cp = self.setting.parallelism.cp
        return ring_messages(op, users * new / cp, users * self._slots_read(op.work, new, cached), cp)

    def _slots_read(self, work: AttentionWork, new: Value, cached: Value) -> Array:
        """Slots that the steps of one prompt read, each once per step."""
        chunk = float(self.setting.chunk_tokens) if self.setting.calibrated else np.inf
        keys = np.inf if work.window is None else work.window + np.minimum(new, chunk)
        return self.reach_of_steps(new, cached, keys) / work.stride

    def attention_kernel(self, op: Attention, users: Value, new: Value, cached: Value, steps: Value) -> Cost:
        """All layers of one attention work on one rank, all users, all steps; a ring runs a kernel for each rank."""
        work = op.work
        slots = self._charged_slots(work, new, cached)
        cp = self.setting.parallelism.cp
        dims = work.qk_dim + work.v_dim
        flop = users * slots * (2.0 * dims * op.heads / cp)
        queries = users * new / cp
        sight = longest_sight(work)
        read = self._slots_read(work, new, cached)
        moved = queries * (op.heads * (work.qk_dim * bytes_per_element(op.dtype) + work.v_dim * 2.0))
        moved = moved + users * read * (op.slot_bytes / cp)
        params = None
        if self.setting.calibrated:
            fit = fits.prefill_attention_fit(op, self.setting.calibration).fit
            params = kernels.AttentionParams(fit.t0, fit.e, fit.tail, fit.w, *fits.band(fit))
            if cp > 1:
                moved = moved + merged_bytes(op, queries, cp)
        rows = users * self.reach_of_steps(new, cached, sight) / (cp * work.stride)
        one = kernels.prefill_attention(
            flop, rows, moved, steps * cp, dims=float(dims), rates=self._rates(op.dtype), params=params
        )
        return self._extrapolated(one, cached + new) * op.layers

    def _extrapolated(self, cost: Cost, context: Value) -> Cost:
        """Attention with a band that widens with the logarithm of the context, beyond what kernels were measured at."""
        beyond = self.setting.assumptions.extrapolation
        if beyond is None or not self.setting.calibrated:
            return cost
        past = np.log(np.maximum(context, 1.0) / beyond.measured_tokens)
        ramp = np.clip(past / np.log(beyond.full_at_tokens / beyond.measured_tokens), 0.0, 1.0)
        low, high = 1.0 - (1.0 - beyond.low) * ramp, 1.0 + (beyond.high - 1.0) * ramp
        return replace(cost, low=cost.low * low, high=cost.high * high)

    def reach_of_steps(self, new: Value, cached: Value, reach: Value) -> Array:
        """Tokens within reach at the end of each step, summed over the steps of one prompt.

        A step that ends at position e has min(e, reach) tokens in sight: for a whole chunk C after P cached tokens the
        sum over n steps is n P + C n (n - 1) / 2 + S, closed; a finite reach caps it at n times the reach.
        """
        new, cached = np.asarray(new, dtype=np.float64), np.asarray(cached, dtype=np.float64)
        end = cached + new
        if not self.setting.calibrated:
            return np.asarray(np.minimum(end, reach) * (new > 0.0))
        chunk = float(self.setting.chunk_tokens)
        steps = np.ceil(new / chunk)
        whole = np.maximum(steps - 1.0, 0.0)
        total = whole * cached + chunk * whole * (whole + 1.0) / 2.0 + end * (steps > 0.0)
        return np.asarray(total if np.all(np.isinf(reach)) else np.minimum(total, steps * np.minimum(end, reach)))

    def decode(self, users: Value, context: Value, output: Value) -> Cost:
        """Mean step of a decode with all users of a replica: one token each, from `context` to `context + output`.

        Parameters
        ----------
        users : float or ndarray
            Sequences of the fullest replica.
        context, output : float or ndarray
            Prompt and output tokens per sequence. [tokens]

        Returns
        -------
        Cost
            [s] per token; the attended tokens are averaged exactly over the output.

        Notes
        -----
        With pp stages, users split into pp groups that follow each other, and a token passes all stages:
        the whole network's time at users / pp.
        """
        users, context = np.asarray(users, dtype=np.float64), np.asarray(context, dtype=np.float64)
        steps = np.maximum(np.asarray(output, dtype=np.float64) - 1.0, 1.0)
        p = self.setting.parallelism
        m = np.maximum(users / p.pp, 1.0)
        cost = self.decode_tokens(m) + self.logits(m)
        for op in self.setting.operators.attention:
            cost = cost + self.decode_attention(op, m, context, steps)
        scale = self.setting.assumptions.scales.decode
        return cost if scale == 1.0 else cost * scale

    def decode_tokens(self, m: Value) -> Cost:
        """The part of a decode step that depends on the batch alone."""
        return self.tokens(m, m, "decode") + self.embedding(m, 1.0)

    def logits(self, m: Value) -> Cost:
        """lm_head for m tokens: the last thing before sampling."""
        return self.gemm(self.setting.operators.head, m)

    def decode_attention(self, op: Attention, m: Value, context: Value, steps: Value, queries: float = 1.0) -> Cost:
        """All layers of one attention work for m sequences, averaged over `steps` steps after `context` tokens.

        `queries` new tokens of a sequence share one reading of its cache (a step that verifies drafted tokens).
        """
        work = op.work
        slots = attended_slots(work, steps, context) / steps
        cp = self.setting.parallelism.cp
        dims = (work.decode_qk_dim or work.qk_dim) + (
            work.decode_v_dim if work.decode_v_dim is not None else work.v_dim
        )
        flop = m * slots * (queries * 2.0 * dims * op.heads / cp)
        moved = m * slots * (op.slot_bytes / cp)
        params = None
        if self.setting.calibrated:
            fit = fits.decode_attention_fit(self.setting.kv_dtype, self.setting.calibration).fit
            params = kernels.DecodeAttentionParams(fit.t0, fit.w, fit.e, *fits.band(fit))
        # The fit's e is a share of the bf16 peak: kernels widen a narrow cache on the fly.
        rates = self._rates(op.dtype if params is None else "bf16")
        one = kernels.decode_attention(flop, moved, rates=rates, params=params)
        if params is not None:
            one = one.scaled(self.setting.engine.kernels.decode_attention, self._launch_share("decode"))
        return one * op.layers

    # -- totals ----------------------------------------------------------------------------------------------------

    def seconds(self, cost: Cost) -> Value:
        """Time of a cost under the setting's assumptions: serial when calibrated, else the longest resource."""
        if self.setting.calibrated:
            return cost.serial
        r = self.setting.assumptions.roofline
        return np.maximum(np.maximum(cost.compute / r.compute, cost.memory / r.memory), cost.network / r.network)
