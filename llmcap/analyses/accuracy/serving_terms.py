"""The parts that a served request's times are made of, one array over rows for each part.

`engine_fit` looks for the engine scalars with which the parts add up to what was measured; `ServingModel` adds them up
with the scalars of a profile. A test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.accuracy.measured import settings_of
from llmcap.analyses.accuracy.measured_rows import MeasuredRow
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.analyses.setting import Setting
from llmcap.analyses.steps import Phase, StepModel
from llmcap.arch.operators import layer_kinds
from llmcap.engine import serving
from llmcap.engine.cost import Cost, Value
from llmcap.errors import DocumentError, OptionError
from llmcap.records import dataclass
from llmcap.specs.engine import ExpertKernels, FamilyKernels, Kernels, Overhead

Array = NDArray[np.float64]
GEMM_DTYPES: Final = ("bf16", "fp16", "fp8", "nvfp4", "int8")
EXPERT_DTYPES: Final = ("bf16", "fp16", "fp8", "nvfp4", "int4", "mxfp4")

#: Parts of a step's time: products and experts by dtype, then the rest. `floors` are launch floors.
PARTS: Final = (
    *(f"gemm {d}" for d in GEMM_DTYPES), *(f"experts {d}" for d in EXPERT_DTYPES),
    "attention", "all_reduce", "other", "floors",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Terms:
    """Parts of n rows: `decode`, `alone` and `shared` map a part to seconds (n,), the rest is what the forms need."""

    rows: tuple[MeasuredRow, ...]
    decode: dict[str, Array]
    alone: dict[str, Array]
    """One prompt by itself; for a batch all its prompts."""
    shared: dict[str, Array]
    """One prompt inside full steps."""
    counts: dict[str, Array]
    family: NDArray[np.str_]
    each: Array
    """Running sequences of a replica."""
    excess: Array
    ahead: Array
    """Other clients whose prefill delays a request."""
    sequences: Array
    """Of a decode step."""
    dp: Array
    devices: Array

    def take(self, chosen: NDArray[np.bool_]) -> Terms:
        """The rows where `chosen`."""

        def pick(parts: dict[str, Array]) -> dict[str, Array]:
            return {k: v[chosen] for k, v in parts.items()}

        rows = tuple(r for r, c in zip(self.rows, chosen, strict=True) if c)
        return Terms(
            rows, pick(self.decode), pick(self.alone), pick(self.shared), pick(self.counts), self.family[chosen],
            self.each[chosen], self.excess[chosen], self.ahead[chosen], self.sequences[chosen], self.dp[chosen],
            self.devices[chosen],
        )  # fmt: skip


def terms_of(rows: Sequence[MeasuredRow], engine: str | None = None) -> Terms:
    """Decompose rows; those without a setting are left out."""
    groups: dict[tuple[object, ...], list[MeasuredRow]] = {}
    for row in rows:
        groups.setdefault((*row.setting, row.protocol), []).append(row)
    parts: list[Terms] = []
    for members in groups.values():
        try:
            setting = settings_of(members[0], engine=engine)
        except (OptionError, DocumentError):
            continue
        parts.append(_group(setting, members))
    return _joined(parts)


def neutral(setting: Setting) -> Setting:
    """The setting under an engine without overheads, whose kernels are the calibration's and experts have no floor."""
    none = Overhead.model_validate({"step": "0 us", "layer": "0 us", "low": 1.0, "high": 1.0})
    unlaunched = ExpertKernels.model_validate({"launch": "0 us"})
    bare = FamilyKernels(experts=dict.fromkeys(EXPERT_DTYPES, unlaunched))
    engine = setting.engine.model_copy(
        update={
            "prefill": none,
            "decode": none,
            "kernels": Kernels(families={setting.machine.device.family: bare}),
        }
    )
    return replace(setting, engine=engine)


def _group(setting: Setting, rows: list[MeasuredRow]) -> Terms:
    model = ServingModel.of(neutral(setting), took_place=True)
    steps, p = model.steps, setting.parallelism
    n, k, o, c = (np.array([getattr(r, name) for r in rows]) for name in ("isl", "cached", "osl", "concurrency"))
    k = np.minimum(k, n - 1.0)
    held = model.held(n, o)
    protocol = rows[0].protocol
    if protocol == "saturated":
        requests = np.array([r.requests for r in rows])
        running, excess = np.maximum(np.minimum(held, requests), p.dp), np.zeros_like(n)
    elif protocol == "batch":
        running, excess = np.minimum(c, np.maximum(held, 1.0)), np.zeros_like(n)
    else:
        running, excess = serving.admitted(c, held)
    each = np.maximum(running / p.dp, 1.0)
    users = each if protocol == "batch" else np.ones_like(n)
    chunk = float(setting.chunk_tokens)
    total = users * (n - k)
    full = np.floor(total / chunk)
    rest = total - full * chunk
    count = np.ceil(total / chunk)
    alone = _parts(steps, rest, (rest > 0.0) * 1.0, np.ones_like(n), "prefill")
    whole = _parts(steps, np.full_like(n, chunk), full, np.ones_like(n), "prefill")
    for name in PARTS:
        alone[name] = alone[name] + whole[name]
    _add_attention(steps, alone, users, n - k, k, count)
    logits = np.minimum(users, count)
    alone["other"] = alone["other"] + steps.logits(users / np.maximum(logits, 1.0)).serial * logits
    alone["other"] = alone["other"] + steps.embedding(total / p.cp, count).serial
    share = (n - k) / chunk
    shared = _parts(steps, np.full_like(n, chunk), share, np.ones_like(n), "prefill")
    _add_attention(steps, shared, np.ones_like(n), n - k, k, share)
    decode = _parts(steps, each / p.pp, np.ones_like(n), each / p.pp, "decode")
    m = np.maximum(each / p.pp, 1.0)
    after = np.maximum(o - 1.0, 1.0)
    for op in setting.operators.attention:
        cost = steps.decode_attention(op, m, n, after)
        decode["attention"] = decode["attention"] + cost.serial - cost.overhead
        decode["floors"] = decode["floors"] + cost.overhead
    decode["other"] = decode["other"] + steps.logits(m).serial + steps.embedding(m, 1.0).serial
    recurrent, latent, experts = layer_kinds(setting.operators)
    ones = np.ones_like(n)
    counts = {
        "steps": count, "layers": ones * setting.structure.layers, "recurrent": ones * recurrent,
        "latent": ones * latent, "experts": ones * experts,
    }  # fmt: skip
    return Terms(
        tuple(rows), decode, alone, shared, counts, np.array([setting.machine.device.family] * len(rows)), each, excess,
        model.ahead(running, each), np.maximum(each / p.pp, 1.0), ones * p.dp, ones * p.devices,
    )  # fmt: skip


def _parts(steps: StepModel, m: Array, times: Array, sequences: Array, phase: Phase) -> dict[str, Array]:
    """Parts of `times` steps of m tokens, without attention, logits and embedding."""
    table, cp = steps.setting.operators, steps.setting.parallelism.cp
    m = np.maximum(m, 1.0) / (cp if phase == "prefill" else 1)
    sequences = np.maximum(sequences, 1.0)
    found: dict[str, Array] = {name: np.zeros_like(times) for name in PARTS}

    def add(name: str, cost: Cost, number: float) -> None:
        work: Value = cost.serial - cost.overhead
        name = name if name in found else "other"
        found[name] = found[name] + work * number * times
        found["floors"] = found["floors"] + cost.overhead * number * times

    for gemm in table.gemms:
        add(f"gemm {gemm.compute_dtype}", steps.gemm(gemm, m), gemm.layers)
    for group in table.experts:
        add(f"experts {group.weight_dtype}", steps.experts(group, m, phase), group.layers)
    for stream in table.streams:
        add("other", steps.stream(stream, m, sequences, phase), stream.layers)
    for exchange in table.exchanges:
        if exchange.decode_only and phase == "prefill":
            continue
        name = "all_reduce" if exchange.kind == "all_reduce" else "other"
        add(name, steps.exchange(exchange, m), exchange.count)
    return found


def _add_attention(
    steps: StepModel, parts: dict[str, Array], users: Array, new: Array, cached: Array, launches: Array
) -> None:
    for op in steps.setting.operators.attention:
        parts["attention"] = parts["attention"] + steps.prefill_attention(op, users, new, cached, launches).serial


def _joined(groups: list[Terms]) -> Terms:
    def chain(which: str) -> dict[str, Array]:
        names = getattr(groups[0], which)
        return {name: np.concatenate([np.atleast_1d(getattr(g, which)[name]) for g in groups]) for name in names}

    def row(which: str) -> Array:
        return np.concatenate([getattr(g, which) for g in groups])

    return Terms(
        rows=tuple(r for g in groups for r in g.rows),
        decode=chain("decode"),
        alone=chain("alone"),
        shared=chain("shared"),
        counts=chain("counts"),
        family=np.concatenate([g.family for g in groups]),
        each=row("each"),
        excess=row("excess"),
        ahead=row("ahead"),
        sequences=row("sequences"),
        dp=row("dp"),
        devices=row("devices"),
    )
