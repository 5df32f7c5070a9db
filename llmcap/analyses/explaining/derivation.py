"""The time of one case, operator by operator: rows that add up to the estimate.

Calibrated, operators follow one another and a row's time is all of it. Overlapped, compute, memory and network hide
behind the longest of the three in each phase; a row's time is then its share of that resource, and what it asks of the
other two costs nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from llmcap.analyses.context_parallel import ring_fabric
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.explaining.formulas import Formula, Formulas, num, product
from llmcap.analyses.steps import Phase, TokenOperator
from llmcap.arch.attention import attended_slots
from llmcap.arch.operators import Attention, Exchange, Stream, layer_kinds
from llmcap.engine.cost import Cost
from llmcap.engine.pipeline import pipeline_share
from llmcap.records import dataclass

Row = dict[str, Any]
RESOURCES: Final = ("compute", "memory", "network")
BOUNDS: Final = (*RESOURCES, "overhead")


@dataclass(frozen=True, slots=True)
class Entry:
    """One operator of a phase: its cost on one device, all calls, and how it is written down."""

    operator: str
    layers: int
    calls: float
    cost: Cost
    formula: str
    """Of all calls, with the numbers put in; for the resource that counts."""
    written: Formula
    peak: float
    """[FLOP/s]"""
    crossing: float = 0.0
    """Bytes that one device sends over its links. [B]"""
    link: float = math.inf
    """[B/s]"""


@dataclass(frozen=True, slots=True)
class PhaseRows:
    """Rows of a phase and the resource that its operators wait for; None where they follow one another."""

    rows: list[Row]
    binding: str | None


@dataclass(frozen=True, slots=True)
class Derivation:
    """Derives the times of one case."""

    evaluator: Evaluator
    users: int
    context: int
    cached: int
    output: int

    @property
    def _fullest(self) -> float:
        return float(self.evaluator.tiers.fullest(self.users))

    @property
    def _share(self) -> float:
        """Mean load of a replica over that of the fullest."""
        return self.users / (self.evaluator.setting.parallelism.dp * self._fullest)

    def prefill(self) -> PhaseRows:
        """Prefill of all users until the last one's first token; the sum is `ttft_s`."""
        steps, p, setting = self.evaluator.steps, self.evaluator.setting.parallelism, self.evaluator.setting
        total = self._fullest * (self.context - self.cached)
        groups = [(1.0, total)]
        if setting.calibrated:
            full, rest = divmod(total, float(setting.chunk_tokens))
            groups = [(n, m) for n, m in ((full, float(setting.chunk_tokens)), (1.0, rest)) if n * m > 0.0]
        count = sum(n for n, _ in groups)
        times = [(n, m / p.cp) for n, m in groups]
        sequences = 1.0 if setting.calibrated else self._fullest
        pipe = float(pipeline_share(p.pp, total / setting.chunk_tokens)) if setting.calibrated else 1.0 / p.pp
        binding = self._binding(steps.prefill(self._fullest, self.context - self.cached, self.cached))
        entries = [
            *self._of_tokens(times, sequences, "prefill", binding),
            self._embedding(total / p.cp, count, binding),
            *self._prefill_attention(count, binding),
            self._head_of_prefill(count, binding),
        ]
        # A stage holds 1/pp of the layers, but waits for the others while the pipeline fills.
        return self._rows("prefill", entries, binding, pipe * setting.assumptions.scales.prefill, 1.0 / p.pp)

    def decode(self) -> PhaseRows:
        """All output tokens after the first; the sum is (output - 1) `tpot_s`."""
        steps, p, setting = self.evaluator.steps, self.evaluator.setting.parallelism, self.evaluator.setting
        after = self.output - 1.0
        m = max(self._fullest / p.pp, 1.0)
        binding = self._binding(steps.decode(self._fullest, self.context, self.output))
        entries = [
            *self._of_tokens([(1.0, m)], m, "decode", binding),
            self._embedding(m, 1.0, binding),
            *self._decode_attention(m, max(after, 1.0), binding),
            self._entry_of_head(m, 1.0, binding),
        ]
        busy = min(self._fullest / p.pp, 1.0)  # fewer users than stages leave stages idle
        return self._rows("decode", entries, binding, after * setting.assumptions.scales.decode, after * busy, after)

    # -- operators -----------------------------------------------------------------------------------------------------

    @property
    def _formulas(self) -> Formulas:
        return Formulas(self.evaluator.setting, self.evaluator.steps)

    def _of_tokens(
        self, groups: list[tuple[float, float]], sequences: float, phase: Phase, binding: str | None
    ) -> Iterator[Entry]:
        """Overhead and everything that depends on a step's tokens alone; `groups` holds (steps, tokens of each)."""
        write, steps, setting = self._formulas, self.evaluator.steps, self.evaluator.setting
        count = sum(n for n, _ in groups)
        if setting.calibrated:
            written = write.overhead(phase, layer_kinds(setting.operators), sequences)
            cost = steps.overhead(phase, sequences) * count
            text = product(count, f"({written.serial})")
            yield Entry("engine overhead", setting.structure.layers, count, cost, text, written, 1.0)
        terms = [list(steps.token_terms(m, sequences, phase)) for _, m in groups]
        for alike in zip(*terms, strict=True):
            op, calls, _ = alike[0]
            each = [write.token(op, m, sequences, phase) for _, m in groups]
            cost = Cost()
            for (n, _), (_, _, one) in zip(groups, alike, strict=True):
                cost = cost + one * (n * calls)
            text = _weighted([(n, w.text(binding)) for (n, _), w in zip(groups, each, strict=True)])
            crossing = sum(n * calls * _crossing(op, m) for n, m in groups)
            yield Entry(
                op.name, int(calls), count * calls, cost, product(calls, text), each[0], write.peak(_dtype(op)),
                crossing, setting.machine.fabric(op.span).bandwidth if isinstance(op, Exchange) else math.inf,
            )  # fmt: skip

    def _embedding(self, tokens: float, count: float, binding: str | None) -> Entry:
        row = Stream("embedding", 1, self.evaluator.setting.operators.embedding_bytes_per_token)
        written = self._formulas.stream(row, tokens, 0.0, "prefill", launches=count)
        cost = self.evaluator.steps.embedding(tokens, count)
        return Entry("embedding", 1, count, cost, written.text(binding), written, self._formulas.peak("bf16"))

    def _prefill_attention(self, count: float, binding: str | None) -> Iterator[Entry]:
        new, steps = float(self.context - self.cached), self.evaluator.steps
        for op in self.evaluator.setting.operators.attention:
            cost = steps.attention_kernel(op, self._fullest, new, float(self.cached), count)
            written = self._formulas.prefill_attention(op, cost, self._fullest, new, float(self.cached), count)
            text = product(op.layers, f"({written.text(binding)})")
            peak = self._formulas.peak(op.dtype)
            yield Entry(f"{op.name}.attention", op.layers, count * op.layers, cost, text, written, peak)
            if self.evaluator.setting.parallelism.cp > 1:
                yield self._ring(op, cost, count, binding)

    def _ring(self, op: Attention, kernel: Cost, count: float, binding: str | None) -> Entry:
        """What context-parallel ranks send each other beside a layer's attention."""
        steps, setting = self.evaluator.steps, self.evaluator.setting
        asked = (self._fullest, float(self.context - self.cached), float(self.cached))
        messages, n = steps.messages(op, *asked), setting.parallelism.cp
        own = float(np.asarray(kernel.compute + kernel.memory)) / op.layers
        written = self._formulas.ring(messages, own, count)
        back = float(np.asarray(messages.results)) * (n - 1) / n
        keys, queries = ((n - 1) * float(np.asarray(v)) for v in (messages.keys, messages.queries))
        return Entry(
            f"{op.name}.ring", op.layers, count * op.layers, steps.ring(op, kernel, *asked, count),
            product(op.layers, f"({written.text(binding)})"), written, 1.0, min(keys, queries + back) * op.layers,
            ring_fabric(setting).bandwidth,
        )  # fmt: skip

    def _decode_attention(self, m: float, length: float, binding: str | None) -> Iterator[Entry]:
        for op in self.evaluator.setting.operators.attention:
            cost = self.evaluator.steps.decode_attention(op, m, float(self.context), length)
            slots = float(attended_slots(op.work, length, float(self.context))) / length
            written = self._formulas.decode_attention(op, m, slots)
            text = product(op.layers, f"({written.text(binding)})")
            peak = self._formulas.peak(op.dtype)
            yield Entry(f"{op.name}.attention", op.layers, op.layers, cost, text, written, peak)

    def _head_of_prefill(self, count: float, binding: str | None) -> Entry:
        logits = min(self._fullest, count)
        return self._entry_of_head(self._fullest / max(logits, 1.0), logits, binding)

    def _entry_of_head(self, m: float, calls: float, binding: str | None) -> Entry:
        head = self.evaluator.setting.operators.head
        written = self._formulas.gemm(head, m, None)
        cost = self.evaluator.steps.gemm(head, m) * calls
        text = product(calls, f"({written.text(binding)})")
        return Entry(head.name, 1, calls, cost, text, written, self._formulas.peak(head.compute_dtype))

    # -- rows ----------------------------------------------------------------------------------------------------------

    def _binding(self, total: Cost) -> str | None:
        """The longest resource of an overlapped phase."""
        if self.evaluator.setting.calibrated:
            return None
        return max(RESOURCES, key=lambda name: self._seconds(total, name))

    def _seconds(self, cost: Cost, resource: str | None) -> float:
        if resource is None:
            return float(np.asarray(cost.serial))
        reached = getattr(self.evaluator.setting.assumptions.roofline, resource)
        return float(np.asarray(getattr(cost, resource))) / float(reached)

    def _rows(
        self, phase: str, entries: list[Entry], binding: str | None, factor: float, work: float, calls: float = 1.0
    ) -> PhaseRows:
        """Rows of a phase: times are costs times `factor`, work of one device is that of the entries times `work`."""
        everywhere = work * self._share * self.evaluator.setting.machine.devices
        share = 1.0 if binding is None else getattr(self.evaluator.setting.assumptions.roofline, binding)
        rows: list[Row] = []
        whole = sum(self._seconds(e.cost, binding) for e in entries) * factor
        for e in entries:
            time = self._seconds(e.cost, binding) * factor
            text = e.formula
            if factor != 1.0:
                text = product(factor, f"({text})")
            if share != 1.0:
                text = f"({text})/{num(share)}"
            flop_s, byte_s = float(np.asarray(e.cost.flop_s)), float(np.asarray(e.cost.byte_s))
            least = max(flop_s, byte_s, e.crossing / e.link) * work
            reached = least / time if time > 0.0 and least > 0.0 else None
            own = {name: float(np.asarray(getattr(e.cost, name))) for name in BOUNDS}
            if binding is not None:
                own = {name: self._seconds(e.cost, name) for name in RESOURCES}
            rows.append(
                {
                    "phase": phase,
                    "operator": e.operator,
                    "layers": e.layers,
                    "calls": e.calls * calls,
                    "flop": flop_s * e.peak * everywhere,
                    "bytes": (byte_s * self._formulas.bandwidth + e.crossing) * everywhere,
                    "time_s": time,
                    "low_s": None if binding else float(np.asarray(e.cost.low)) * factor,
                    "high_s": None if binding else float(np.asarray(e.cost.high)) * factor,
                    "share": time / whole if whole else 0.0,
                    "bound": max(own, key=lambda name: own[name]),
                    "efficiency": reached if binding is None else share if time > 0.0 else None,
                    "form": e.written.symbols(binding),
                    "formula": text if time > 0.0 else "0",
                    "parameters": {n: v for n, v in e.written.parameters.items() if v != 1.0 or "engine" not in n},
                    "places": self._places(e.written, binding),
                }
            )
        return PhaseRows(rows, binding)

    def _places(self, written: Formula, binding: str | None) -> list[str]:
        """Fields of documents that a formula rests on: fits and engine figures, then the datasheet."""
        outside = self.evaluator.setting.machine.servers > 1
        sheet = {
            "P": "device:peaks",
            "W": "device:memory.bandwidth",
            "SM": "device:compute_units",
            "B": "server:nics" if outside else "server:scale_up.bandwidth",
        }
        if binding is not None:
            return [sheet[{"compute": "P", "memory": "W", "network": "B"}[binding]], "assumptions:roofline"]
        return [*written.places, *(place for name, place in sheet.items() if name in written.parameters)]


def _weighted(terms: list[tuple[float, str]]) -> str:
    """n1*(text1) + n2*(text2), in brackets when there are several."""
    texts = [product(n, f"({text})") for n, text in terms]
    return texts[0] if len(texts) == 1 else f"({' + '.join(texts)})"


def _dtype(op: TokenOperator) -> str:
    return op.compute_dtype if not isinstance(op, Stream | Exchange) else "bf16"


def _crossing(op: TokenOperator, m: float) -> float:
    """Bytes one device sends in the algorithm that moves the least."""
    if not isinstance(op, Exchange):
        return 0.0
    size, n = m * op.bytes_per_token, op.ranks
    if op.kind == "all_reduce":
        return size * min(2.0 * (n - 1) / n, 1.0 + 1.0 / n) if n > 1 else 0.0
    return size if op.kind == "send" else size * (n - 1) / n
