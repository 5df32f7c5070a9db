"""Formulas of operators with the numbers put in: arithmetic that a calculator evaluates to the operator's time.

Each function writes down one call of an operator as the kernels of `llmcap.engine` price it. The texts use + - * / **,
brackets, hypot, min and max, all in base units (s, B, FLOP), and the tests evaluate them against the model's times.
A calibrated setting has one formula; one of overlapped resources has a formula per resource.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any

from llmcap.analyses import fits
from llmcap.analyses.context_parallel import ring_fabric, ring_fit
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import Phase, StepModel, TokenOperator
from llmcap.arch.attention import longest_sight
from llmcap.arch.operators import Attention, Exchange, Experts, Gemm, Stream
from llmcap.engine.cost import Cost
from llmcap.engine.kernels import DECODE_TILE
from llmcap.engine.ring import RingMessages
from llmcap.records import dataclass
from llmcap.specs.engine import ExpertKernels, FamilyKernels, Overhead

#: Symbolic forms, as the docstrings of engine/kernels.py and specs/calibration.py define their symbols.
GEMM = "t0 + hypot(2 m k n/(e P) (1 + x0/x), weights/(w W)) + m row/(a W), x = m n/(SM 128^2)"
EXPERTS = "t0 + hypot(F/(e P) (1 + r0/r), touched weights/(w W)) + rows/(a W), touched = E (1 - (1 - k/E)^T)"
PREFILL_ATTENTION = "steps t0 + (F + tail (R/128) SM q tile)/(e P) + bytes/(w W), F = 2 (d_qk + d_v) heads pairs"
DECODE_ATTENTION = "t0 + hypot(KV bytes/(w W), F/(e P))"
STREAM = "t0 + hypot(bytes/(w W), F/(e P))"
_SHOTS = "l + (n-1) S/(beta B), two_shot l + 2 (n-1)/n S/(beta B)"
ALL_REDUCE = f"min({_SHOTS}), l = alpha + alpha_log2 log2(n)"
IN_SWITCH = f"min({_SHOTS}, switch log2(n) + (1 + 1/n) S/(beta B)), l = alpha + alpha_log2 log2(n)"
EXCHANGE = "l + (n-1)/n S/(beta B), l = alpha + alpha_log2 log2(n)"
LEVELS = "min(flat, two_shot l(g) + 2 (g-1)/g S/(beta B_inner) + all-reduce of S/g over the servers), g ranks a server"
SEND = "alpha + S/(beta B)"
RING = "(n-1) alpha + min((n-1) max(0, K/(beta B) - A/n), (n-1) max(0, Q/(beta B) - A/n) + (n-1)/n R/(beta B))"
OVERHEAD = "step + layer x layers + recurrent, latent, experts x layers of that kind + sequence x sequences"
_PLAIN = {"compute": "FLOP/P", "memory": "bytes/W", "network": "bytes/B"}


def num(value: Any) -> str:
    """A number as a calculator takes it, in twelve digits at most.

    >>> num(4.5e15), num(8192.0), num(7.393e-06), num(1e6), num(1.008e11)
    ('4.5e15', '8192', '7.393e-6', '1e6', '1.008e11')
    """
    plain = f"{float(value):.15g}" if float(value).is_integer() else f"{float(value):.12g}"
    mantissa, e, exponent = plain.partition("e")
    if e:
        return f"{mantissa}e{int(exponent)}"
    digits = plain.rstrip("0")
    if "." in plain or len(plain) - len(digits) < 5:
        return plain
    return f"{digits[0]}{'.' if digits[1:] else ''}{digits[1:]}e{len(plain) - 1}"


def product(*factors: Any) -> str:
    """Factors joined by *, ones left out.

    >>> product(48, 1.0, "(a + b)"), product(1)
    ('48*(a + b)', '1')
    """
    texts = [f if isinstance(f, str) else num(f) for f in factors]
    return "*".join(text for text in texts if text != "1") or "1"


def scaled(factor: Any, text: str) -> str:
    """A text that may be a sum, times a factor."""
    return text if float(factor) == 1.0 else f"{num(factor)}*({text})"


@dataclass(frozen=True, slots=True)
class Formula:
    """One call of an operator."""

    form: str
    """In symbols."""
    serial: str = ""
    """With numbers, calibrated. [s]"""
    resources: dict[str, str] = field(default_factory=dict)
    """With numbers, by resource, overlapped. [s]"""
    parameters: dict[str, float] = field(default_factory=dict)
    """What the symbols stand for, where it is the same in every call."""
    places: tuple[str, ...] = ()
    """`calibration:PATH` or `engine:PATH` of the documents that the parameters come from."""

    def text(self, resource: str | None) -> str:
        """The numbers of a resource, or of everything when none is named."""
        return self.serial if resource is None else self.resources.get(resource, "0")

    def symbols(self, resource: str | None) -> str:
        """The form of a resource, or of everything when none is named."""
        return self.form if resource is None else _PLAIN[resource]


@dataclass(frozen=True, slots=True)
class Formulas:
    """Writes the formulas of one setting."""

    setting: Setting
    steps: StepModel

    @property
    def _family(self) -> FamilyKernels:
        return self.setting.engine.kernels.families.get(self.setting.machine.device.family, FamilyKernels())

    def _launch(self, phase: Phase) -> float:
        return self.setting.engine.kernels.launch_share if phase == "decode" else 1.0

    def _products(self, phase: Phase, places: tuple[str, ...]) -> tuple[float, tuple[str, ...]]:
        """The engine's factor on all products of a phase, and the places with its own."""
        factor = self.setting.engine.kernels.prefill_products if phase == "prefill" else 1.0
        return factor, places if factor == 1.0 else (*places, "engine:kernels.prefill_products")

    def peak(self, dtype: str) -> float:
        """Peak that operators of `dtype` are held against. [FLOP/s]"""
        pinned = self.setting.assumptions.roofline.peak_dtype
        return self.setting.machine.peak(dtype if self.setting.calibrated or pinned is None else pinned)

    @property
    def bandwidth(self) -> float:
        """Of one device's memory. [B/s]"""
        return self.setting.machine.device.memory.bandwidth

    def token(self, op: TokenOperator, m: float, sequences: float, phase: Phase) -> Formula:
        """One call of an operator that sees a step through its tokens alone."""
        if isinstance(op, Gemm):
            return self.gemm(op, m, phase)
        if isinstance(op, Experts):
            return self.experts(op, m, phase)
        if isinstance(op, Stream):
            return self.stream(op, m, sequences, phase)
        return self.exchange(op, m, phase)

    def gemm(self, op: Gemm, m: float, phase: Phase | None) -> Formula:
        """A matrix product of m rows; without a phase, as the calibration alone has it."""
        peak, w_ = self.peak(op.compute_dtype), self.bandwidth
        flop = f"2*{num(m)}*{num(op.k)}*{num(op.n)}"
        if not self.setting.calibrated:
            return Formula(GEMM, resources={
                "compute": f"{flop}/{num(peak)}",
                "memory": f"({num(op.weight_bytes)} + {num(m)}*{num(op.bytes_per_row)})/{num(w_)}",
            }, parameters={"P": peak, "W": w_})  # fmt: skip
        chosen = fits.gemm_fit(op, self.setting.calibration)
        f, units = chosen.fit, self.setting.machine.device.compute_units
        work, launch = 1.0, 1.0
        places: tuple[str, ...] = (f"calibration:{chosen.path}",)
        if phase is not None:
            factors, launch = self._family.gemm.get(op.compute_dtype), self._launch(phase)
            work, places = self._products(phase, places)
            if factors is not None:
                work *= getattr(factors, phase)
                places = (*places, f"engine:kernels.families.{self.setting.machine.device.family}.gemm")
        waves = f"(1 + {num(f.x0)}*{units}*16384/({num(m)}*{num(op.n)}))"
        both = f"hypot({flop}/({num(f.e)}*{num(peak)})*{waves}, {num(op.weight_bytes)}/({num(f.w)}*{num(w_)}))"
        rows = f"{num(m)}*{num(op.bytes_per_row)}/({num(f.a)}*{num(w_)})"
        return Formula(
            GEMM, f"{product(f.t0, launch)} + {scaled(work, f'{both} + {rows}')}",
            parameters={"t0": f.t0, "e": f.e, "x0": f.x0, "w": f.w, "a": f.a, "P": peak, "W": w_, "SM": units,
                        "engine_factor": work, "launch_share": launch}, places=places,
        )  # fmt: skip

    def experts(self, op: Experts, m: float, phase: Phase) -> Formula:
        """Routed experts of one layer, m tokens on each rank."""
        work, tokens = op.work, m * op.pool
        peak, w_ = self.peak(op.compute_dtype), self.bandwidth
        each = 2.0 * work.active_per_token * work.parameters_per_expert
        share = work.active_per_token / work.experts
        met = num(work.experts)
        if share < 1.0:
            rest = f"1 - {num(work.active_per_token)}/{num(work.experts)}"
            met = f"{num(work.experts)}*(1 - ({rest})**{num(tokens)})"
        flop = product(tokens, each, op.share)
        weights = product(met, op.bytes_per_expert, op.share)
        rows = product(tokens, op.bytes_per_row)
        if not self.setting.calibrated:
            return Formula(EXPERTS, resources={
                "compute": f"{flop}/{num(peak)}", "memory": f"({weights} + {rows})/{num(w_)}",
            }, parameters={"P": peak, "W": w_})  # fmt: skip
        chosen = fits.expert_fit(op, self.setting.calibration)
        f = chosen.fit
        own = self._family.experts.get(op.weight_dtype, ExpertKernels())
        decode = phase == "decode"
        launch = own.launch if own.launch is not None else self.setting.engine.kernels.expert_launch
        t0 = launch if decode and launch is not None else f.t0
        per = f"({product(tokens, work.active_per_token)}/({met}))"
        padding = f"min({num(f.r0)}, {per} + {num(DECODE_TILE)})" if decode else num(f.r0)
        both = (
            f"hypot({flop}/({num(f.e)}*{num(peak)})*(1 + {padding}/{per}), {weights}/({num(f.w)}*{num(w_)}))"
            f" + {rows}/({num(f.a)}*{num(w_)})"
        )
        factor, places = self._products(phase, (f"calibration:{chosen.path}",))
        factor *= getattr(own, phase)
        if op.weight_dtype in self._family.experts:
            places = (*places, f"engine:kernels.families.{self.setting.machine.device.family}.experts")
        return Formula(
            EXPERTS, f"{num(t0)} + {scaled(factor, both)}",
            parameters={"t0": t0, "e": f.e, "r0": f.r0, "w": f.w, "a": f.a, "P": peak, "W": w_,
                        "engine_factor": factor}, places=places,
        )  # fmt: skip

    def stream(
        self, op: Stream, m: float, sequences: float, phase: Phase, *, launches: float = 1.0, flop: float | None = None
    ) -> Formula:
        """Element-wise work, a scan, or the gather of embeddings (bytes_per_token its row)."""
        peak, w_ = self.peak("bf16"), self.bandwidth
        moved = product(m, op.bytes_per_token)
        if op.bytes_per_sequence:
            own = product(sequences, op.bytes_per_sequence)
            moved = f"({moved} + {own})" if op.bytes_per_token else own
        work = product(m, op.flop_per_token) if flop is None else num(flop)
        if not self.setting.calibrated:
            return Formula(STREAM, resources={
                "compute": f"{work}/{num(peak)}" if op.flop_per_token else "0", "memory": f"{moved}/{num(w_)}",
            }, parameters={"P": peak, "W": w_})  # fmt: skip
        s = self.setting.engine.streams
        text = f"{moved}/({num(s.memory)}*{num(w_)})"
        if op.flop_per_token:
            text = f"hypot({text}, {work}/({num(s.compute)}*{num(peak)}))"
        launch = self._launch(phase)
        return Formula(
            STREAM, f"{product(launches, s.launch, launch)} + {text}",
            parameters={"t0": s.launch, "w": s.memory, "e": s.compute, "P": peak, "W": w_, "launch_share": launch},
            places=("engine:streams",),
        )  # fmt: skip

    def exchange(self, op: Exchange, m: float, phase: Phase) -> Formula:
        """One call of a collective."""
        rate, n = self.setting.machine.fabric(op.span).bandwidth, op.ranks
        size = product(m, op.bytes_per_token)
        ring = f"2*{n - 1}/{n}"
        inner, servers = self.setting.machine.levels(op.span, n)
        if not self.setting.calibrated:
            share = {"all_reduce": f"min({ring}, 1 + 1/{n})", "send": "1"}.get(op.kind, f"{n - 1}/{n}")
            if op.kind == "all_reduce" and inner is not None:
                g = n / servers
                inside = f"min(2 - 2/{num(g)}, 1 + 1/{num(g)})/{num(inner.bandwidth)}"
                between = f"min(2 - 2/{servers}, 1 + 1/{servers})/({num(g)}*{num(rate)})"
                return Formula(
                    LEVELS, resources={"network": f"{size}*max({inside}, {between})"},
                    parameters={"B": rate, "B_inner": inner.bandwidth},
                )  # fmt: skip
            text = product(size, share) if n > 1 or op.kind == "send" else "0"
            return Formula(EXCHANGE, resources={"network": f"{text}/{num(rate)}"}, parameters={"B": rate})
        chosen = fits.collective_fit(op, self.setting.calibration)
        f = chosen.fit
        places: tuple[str, ...] = (f"calibration:{chosen.path}",)
        parameters = {"alpha": f.alpha, "alpha_log2": f.alpha_log2, "beta": f.beta, "B": rate}
        if op.kind == "send":
            return Formula(SEND, f"{num(f.alpha)} + {size}/({num(f.beta)}*{num(rate)})", {}, parameters, places)
        if n <= 1:
            return Formula(EXCHANGE, "0", {}, parameters, places)
        latency, at = f"({num(f.alpha)} + {num(f.alpha_log2)}*{num(math.log2(n))})", f"({num(f.beta)}*{num(rate)})"
        if op.kind != "all_reduce":
            return Formula(EXCHANGE, f"{latency} + {n - 1}/{n}*{size}/{at}", {}, parameters, places)
        fit = self.setting.calibration.collectives.all_reduce
        in_switch = fit.in_switch and op.span <= self.setting.machine.server.devices and n > 2
        text = f"min({latency} + {n - 1}*{size}/{at}, {num(fit.two_shot)}*{latency} + {ring}*{size}/{at})"
        if in_switch:
            text = f"{text[:-1]}, {num(fit.switch)}*{num(math.log2(n))} + (1 + 1/{n})*{size}/{at})"
        form = IN_SWITCH if in_switch else ALL_REDUCE
        if inner is not None:
            g, form = n / servers, LEVELS
            one, k = f"{size}/{num(g)}", f"({num(f.alpha)} + {num(f.alpha_log2)}*{num(math.log2(servers))})"
            inside = (
                f"{num(fit.two_shot)}*({num(f.alpha)} + {num(f.alpha_log2)}*{num(math.log2(g))}) + "
                f"(2 - 2/{num(g)})*{size}/({num(f.beta)}*{num(inner.bandwidth)})"
            )
            between = f"min({k} + {servers - 1}*{one}/{at}, {num(fit.two_shot)}*{k} + (2 - 2/{servers})*{one}/{at})"
            text = f"min({text}, {inside} + {between})"
            parameters["B_inner"] = inner.bandwidth
        kernels, family = self.setting.engine.kernels, self.setting.machine.device.family
        if phase == "decode":
            factor, place = kernels.decode_all_reduce, "engine:kernels.decode_all_reduce"
        else:
            factor = kernels.families.get(family, FamilyKernels()).prefill_all_reduce
            place = f"engine:kernels.families.{family}.prefill_all_reduce"
        if factor != 1.0:
            places = (*places, place)
        parameters |= {"two_shot": fit.two_shot, "switch": fit.switch, "engine_factor": factor}
        return Formula(form, scaled(factor, text), {}, parameters, places)

    def overhead(self, phase: Phase, kinds: tuple[int, int, int], sequences: float) -> Formula:
        """Host and launch time of one step; `kinds` counts recurrent, latent and expert layers."""
        o: Overhead = self.setting.engine.prefill if phase == "prefill" else self.setting.engine.decode
        counts = (self.setting.structure.layers, *kinds, sequences)
        named = zip(("layer", "recurrent", "latent", "experts", "sequence"), counts, strict=True)
        parameters = {"step": o.step}
        text = num(o.step)
        for name, times in named:
            each = getattr(o, name)
            if each and times:
                text += f" + {num(each)}*{num(times)}"
                parameters[name] = each
        return Formula(OVERHEAD, text, {}, parameters, (f"engine:{phase}",))

    def prefill_attention(
        self, op: Attention, cost: Cost, users: float, new: float, cached: float, steps: float
    ) -> Formula:
        """All steps of one layer's attention; pairs and bytes are those of `cost`, all layers."""
        work, peak, w_ = op.work, self.peak(op.dtype), self.bandwidth
        cp = self.setting.parallelism.cp
        dims = work.qk_dim + work.v_dim
        each = 2.0 * dims * op.heads / cp
        flop = f"{num(each)}*{num(float(cost.flop_s) * peak / op.layers / each)}"
        moved = num(float(cost.byte_s) * w_ / op.layers)
        if not self.setting.calibrated:
            return Formula(PREFILL_ATTENTION, resources={
                "compute": f"{flop}/{num(peak)}", "memory": f"{moved}/{num(w_)}",
            }, parameters={"P": peak, "W": w_})  # fmt: skip
        chosen = fits.prefill_attention_fit(op, self.setting.calibration)
        f, units = chosen.fit, self.setting.machine.device.compute_units
        seen = float(users * self.steps.reach_of_steps(new, cached, longest_sight(work)) / (cp * work.stride))
        tiles = self.setting.machine.rates(op.dtype).query_tiles
        tail = f"{num(f.tail)}*{num(seen)}/128*{units}*{num(tiles)}*{num(2.0 * dims * 16384.0)}"
        return Formula(
            PREFILL_ATTENTION,
            f"{product(steps * cp, f.t0)} + ({flop} + {tail})/({num(f.e)}*{num(peak)})"
            f" + {moved}/({num(f.w)}*{num(w_)})",
            parameters={
                "t0": f.t0, "e": f.e, "tail": f.tail, "w": f.w, "P": peak, "W": w_, "SM": units, "q": tiles,
            },
            places=(f"calibration:{chosen.path}",),
        )  # fmt: skip

    def ring(self, messages: RingMessages, attention: float, launches: float) -> Formula:
        """One layer's messages between context-parallel ranks; `attention` is a rank's own time without launches."""
        n, rate = self.setting.parallelism.cp, ring_fabric(self.setting).bandwidth
        keys, queries, results = (num(v) for v in (messages.keys, messages.queries, messages.results))
        if not self.setting.calibrated:
            text = f"min({n - 1}*{keys}, {n - 1}*{queries} + {n - 1}/{n}*{results})/{num(rate)}"
            return Formula(RING, resources={"network": text}, parameters={"B": rate})
        f = ring_fit(self.setting)
        at, t = f"({num(f.beta)}*{num(rate)})", f"{num(attention)}/{n}"
        text = (
            f"{product(launches, n - 1, f.alpha)} + min({n - 1}*max(0, {keys}/{at} - {t}), "
            f"{n - 1}*max(0, {queries}/{at} - {t}) + {n - 1}/{n}*{results}/{at})"
        )
        parameters = {"alpha": f.alpha, "beta": f.beta, "B": rate}
        return Formula(RING, text, {}, parameters, ("calibration:collectives.all_gather",))

    def decode_attention(self, op: Attention, m: float, slots: float) -> Formula:
        """One layer of one step with m sequences that attend to `slots` slots each."""
        work, w_ = op.work, self.bandwidth
        peak = self.peak("bf16" if self.setting.calibrated else op.dtype)
        cp = self.setting.parallelism.cp
        qk = work.decode_qk_dim or work.qk_dim
        v = work.decode_v_dim if work.decode_v_dim is not None else work.v_dim
        flop = product(m, slots, 2.0 * (qk + v) * op.heads / cp)
        moved = product(m, slots, op.slot_bytes / cp)
        if not self.setting.calibrated:
            return Formula(DECODE_ATTENTION, resources={
                "compute": f"{flop}/{num(peak)}", "memory": f"{moved}/{num(w_)}",
            }, parameters={"P": peak, "W": w_})  # fmt: skip
        chosen = fits.decode_attention_fit(self.setting.kv_dtype, self.setting.calibration)
        f, factor, launch = chosen.fit, self.setting.engine.kernels.decode_attention, self._launch("decode")
        both = f"hypot({moved}/({num(f.w)}*{num(w_)}), {flop}/({num(f.e)}*{num(peak)}))"
        places: tuple[str, ...] = (f"calibration:{chosen.path}",)
        if factor != 1.0:
            places = (*places, "engine:kernels.decode_attention")
        return Formula(
            DECODE_ATTENTION, f"{product(f.t0, launch)} + {scaled(factor, both)}",
            parameters={"t0": f.t0, "w": f.w, "e": f.e, "P": peak, "W": w_, "engine_factor": factor,
                        "launch_share": launch}, places=places,
        )  # fmt: skip
