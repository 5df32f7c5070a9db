"""Prefill and decode in closed form over a grid of cases: tables per chunk and per prompt, few terms per case.

A calibrated prefill of F prompts of N tokens in steps of C tokens costs

    floor(F N / C) a  +  T[F N mod C]  +  F A(N, P)  +  head(F, steps),

a the time of a full step, T[m] that of the last one, A the attention of one prompt, head the logits. T is tabulated
once per setting; A depends on lengths alone and head on users and steps; so on a grid of users and lengths a case
costs a few multiplications and one look-up. `StepModel.prefill` says the same at length; the tests hold them together.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.steps import StepModel
from llmcap.engine.cost import Cost, Value
from llmcap.engine.pipeline import pipeline_share
from llmcap.records import dataclass

Array = NDArray[np.float64]

TIMES: Final = frozenset({"compute", "memory", "network", "overhead"})
_BANDS: Final = frozenset({"low", "high"})
_WORK: Final = ("flop_s", "byte_s")
ALL_FIELDS: Final = frozenset(f.name for f in fields(Cost))
_FEWER: Final = "fewer "
"""Before the names of what launches shared by prompts save."""
_MOST_PROMPTS: Final = 512.0
"""Prompts up to which the logits of any number of steps are tabulated."""

Whole = NDArray[np.intp]
Terms = dict[str, Array]
"""Fields of a Cost by name; those that are zero everywhere are left out."""


@dataclass(frozen=True, slots=True)
class ChunkedPrefill:
    """The tables of a setting; `serial` is the sum of the four parts of a time."""

    steps: StepModel
    chunk: float
    full: dict[str, float]
    """One full step, attention launches included."""
    last: dict[str, Array]
    """A step of m tokens, by m; nothing at 0."""
    head_one: dict[str, float]
    """Logits of one prompt."""
    _heads: list[Terms]
    """Logits of F prompts in s steps at F (F + 1) / 2 + s, and by field less those of F steps; one table or none."""

    @classmethod
    def of(cls, steps: StepModel) -> ChunkedPrefill:
        """Tabulate the steps of a calibrated setting."""
        setting = steps.setting
        chunk = setting.chunk_tokens
        m = np.arange(chunk + 1, dtype=np.float64)
        cp = setting.parallelism.cp
        cost = steps.tokens(np.maximum(m, 1.0) / cp, 1.0, "prefill") + steps.embedding(m / cp, 1.0)
        scale = setting.assumptions.scales.prefill
        last: dict[str, Array] = {}
        for name in ALL_FIELDS:
            values = np.array(np.broadcast_to(getattr(cost, name), m.shape)) * scale
            values[0] = 0.0
            last[name] = values
        launches = _attention(steps, 0.0, 1.0, 0.0, 1.0)
        last["overhead"][1:] += float(launches.overhead) * scale
        last["serial"] = last["compute"] + last["memory"] + last["network"] + last["overhead"]
        head = steps.gemm(setting.operators.head, 1.0) * scale
        ones = {name: float(getattr(head, name)) for name in ALL_FIELDS}
        ones["serial"] = float(head.serial)
        return cls(steps, float(chunk), {n: float(v[-1]) for n, v in last.items()}, last, ones, [])

    @property
    def scale(self) -> float:
        """Factor that a user's own measurements put on prefill."""
        return self.steps.setting.assumptions.scales.prefill

    def attention(self, new: Value, cached: Value) -> Array:
        """One prompt's attention without its launches, all layers. [s]"""
        return np.asarray(_attention(self.steps, 1.0, new, cached, 0.0).serial) * self.scale

    def prompt(self, new: Array, cached: Array, wanted: frozenset[str]) -> tuple[Terms, Terms]:
        """Attention of one prompt without its launches, and what a launch adds; lengths only, whatever the users."""
        one = _attention(self.steps, 1.0, new, cached, 0.0) * self.scale
        launch = _attention(self.steps, 0.0, new, cached, 1.0) * self.scale
        # The time of a launch is in the table of steps; its band depends on the length.
        return _terms(one, wanted), _terms(launch, wanted & _BANDS)

    def seconds(self, fullest: Array, new: Array, attention: Array) -> Array:
        """Time of a prefill with one prompt's attention given; nothing new costs nothing. [s]"""
        count, full, rest = self._steps_of(fullest, new)
        total = full * self.full["serial"]
        total += self.last["serial"].take(rest)
        total = total + fullest * (attention + self.head_one["serial"])
        if np.min(new) < self.chunk:
            total += self._fewer_heads("serial", fullest, count, self._head_table(fullest, count))
        return self._piped(total, fullest * new)

    def cost(self, fullest: Array, new: Array, one: Terms, launch: Terms, wanted: frozenset[str]) -> Cost:
        """As `StepModel.prefill`, from the terms of `prompt`; fields that are not wanted stay zero."""
        count, full, rest = self._steps_of(fullest, new)
        pp = self.steps.setting.parallelism.pp
        long = bool(np.min(new) >= self.chunk)
        heads = None if long else self._head_table(fullest, count)
        found: dict[str, Value] = {}
        for name in wanted:
            value = full * self.full[name]
            value += self.last[name].take(rest)
            value = value + fullest * (one.get(name, 0.0) + self.head_one[name])
            if not long:
                value += self._fewer_heads(name, fullest, count, heads)
            if name in launch:
                value = value + count * launch[name]
            found[name] = value / pp if name in _WORK else self._piped(value, fullest * new)
        return Cost(**found)

    def _steps_of(self, fullest: Array, new: Array) -> tuple[Array, Array, NDArray[np.intp]]:
        """(steps, full steps, tokens of the last one)."""
        total = fullest * new
        full = np.floor(total / self.chunk)
        rest = total - full * self.chunk
        count = full + (rest > 0.0)
        return count, full, rest.astype(np.intp)

    def _piped(self, value: Array, tokens: Array) -> Array:
        """Steps of `tokens` tokens in all follow each other through pp stages."""
        pp = self.steps.setting.parallelism.pp
        return value if pp == 1 else np.asarray(value * pipeline_share(pp, tokens / self.chunk))

    # Logits: each step has those of the prompts that end in it, at least one a step when there are fewer steps than
    # prompts. So F prompts in s steps make min(F, s) launches with F / min(F, s) rows each. Prompts of a step or more
    # have a launch each; what prompts that share launches save is told apart and exactly zero for those, so that no
    # case is rounded otherwise because of shorter ones beside it.

    def head_seconds(self, fullest: Array, count: Array) -> Array:
        """Logits of prompts that end in `count` steps. [s]"""
        table = self._head_table(fullest, count)
        if table is None:
            return self._ask_head("serial", fullest, count)
        values, cell = table
        return values["serial"].take(cell)

    def _fewer_heads(self, name: str, fullest: Array, count: Array, table: tuple[Terms, Whole] | None) -> Array:
        """Logits of prompts that end in `count` steps, less those of as many launches as prompts."""
        if table is not None:
            values, cell = table
            return values[_FEWER + name].take(cell)
        saved = self._ask_head(name, fullest, count) - fullest * self.head_one[name]
        return np.where(count >= fullest, 0.0, saved)

    def _head_table(self, fullest: Array, count: Array) -> tuple[Terms, Whole] | None:
        """Tabulated logits and the cells of these ones; None when there are too many prompts for a table."""
        most = float(np.max(fullest))
        if most > _MOST_PROMPTS:
            return None
        # Threads share the list: each works with the table it found or made.
        values = self._heads[0] if self._heads else {}
        if values.get("serial", _NOTHING).size < _cells(most):
            most = min(float(2.0 ** np.ceil(np.log2(max(most, 64.0)))), _MOST_PROMPTS)
            prompts = np.repeat(np.arange(most + 1.0), np.arange(1, int(most) + 2))
            steps = np.arange(prompts.size) - prompts * (prompts + 1.0) / 2.0
            logits = {
                name: np.array(np.broadcast_to(self._ask_head(name, prompts, steps), prompts.shape))
                for name in (*ALL_FIELDS, "serial")
            }
            values = {
                _FEWER + name: np.where(steps == prompts, 0.0, value - prompts * self.head_one[name])
                for name, value in logits.items()
            }
            values["serial"] = logits["serial"]
            self._heads[:] = [values]
        cell = np.minimum(count, fullest)
        cell = cell + fullest * (fullest + 1.0) / 2.0
        return values, cell.astype(np.intp)

    def _ask_head(self, name: str, fullest: Array, count: Array) -> Array:
        logits = np.minimum(fullest, count)
        cost = self.steps.gemm(self.steps.setting.operators.head, fullest / np.maximum(logits, 1.0))
        return np.asarray((cost.serial if name == "serial" else getattr(cost, name)) * logits * self.scale)


@dataclass(frozen=True, slots=True)
class DecodeTerms:
    """The mean decode step: what the batch costs, and attention as launches and a time per sequence."""

    batch: Terms
    fixed: Terms
    each: Terms

    @classmethod
    def of(cls, steps: StepModel, users: Array, context: Array, output: Array, wanted: frozenset[str]) -> DecodeTerms:
        """Terms for `users` sequences; each depends on users or on lengths, not on both."""
        setting = steps.setting
        length = np.maximum(output - 1.0, 1.0)
        m = sequences(steps, users)
        batch = steps.decode_tokens(m) + steps.logits(m)
        none, one = Cost(), Cost()
        for op in setting.operators.attention:
            none = none + steps.decode_attention(op, 0.0, context, length)
            one = one + steps.decode_attention(op, 1.0, context, length)
        scale = setting.assumptions.scales.decode
        difference = Cost(*(a - b for a, b in zip(one.fields(), none.fields(), strict=True)))
        return cls(_terms(batch * scale, wanted), _terms(none * scale, wanted), _terms(difference * scale, wanted))

    def cost(self, m: Array) -> Cost:
        """As `StepModel.decode`, for m sequences per stage."""
        found: dict[str, Value] = {}
        for name in {*self.batch, *self.fixed, *self.each}:
            value: Value = self.batch.get(name, _NOTHING)
            if name in self.fixed:
                value = value + self.fixed[name]
            found[name] = value + m * self.each[name] if name in self.each else value
        return Cost(**found)


def sequences(steps: StepModel, users: Array) -> Array:
    """Sequences of a decode step: users split into groups that follow each other through the stages."""
    return np.maximum(users / steps.setting.parallelism.pp, 1.0)


_NOTHING: Final = np.zeros(())


def _cells(most: float) -> int:
    """Pairs of up to `most` prompts and no more steps than prompts."""
    return int((most + 1.0) * (most + 2.0) / 2.0)


def _terms(cost: Cost, wanted: frozenset[str]) -> Terms:
    values = {name: np.asarray(getattr(cost, name)) for name in wanted}
    return {name: value for name, value in values.items() if value.any()}


def _attention(steps: StepModel, users: Value, new: Value, cached: Value, launches: Value) -> Cost:
    """All attention works: linear in users and in launches, so one of each tells all."""
    total = Cost()
    for op in steps.setting.operators.attention:
        total = total + steps.prefill_attention(op, users, new, cached, launches)
    return total
