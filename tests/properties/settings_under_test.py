"""Settings and numbers that the properties are tried on."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from llmcap.analyses.evaluate import Columns, Evaluator
from llmcap.analyses.machine import Machine
from llmcap.analyses.options import options_from
from llmcap.analyses.setting import Setting, resolve
from llmcap.engine.transfer import Link

#: Structural choices that between them reach every operator: dense, experts, chunks; each degree of parallelism.
CHOICES: tuple[dict[str, Any], ...] = (
    {},
    {"model": "llama-4-scout", "hardware": "dgx-h200", "weight_dtype": "bf16"},
    {"model": "llama-4-maverick", "weight_dtype": "nvfp4"},
    {"model": "llama-4-maverick", "tp": 2, "dp": 4, "ep": 8},
    {"model": "llama-4-scout", "tp": 4, "pp": 2, "weight_dtype": "int4"},
    {"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 1},
    {"model": "llama-3.1-8b", "tp": 2, "cp": 4, "chunk_tokens": 2048},
    {"model": "llama-3.1-70b", "tp": 4, "dp": 2, "weight_dtype": "fp8"},
    {"model": "llama-3.1-70b", "hardware": "dgx-h100", "kv_policy": "all-full"},
    {"model": "llama-3.1-405b", "hardware": "dgx-h200", "devices": 16, "tp": 8, "pp": 2, "weight_dtype": "fp8"},
)
choices = st.sampled_from(CHOICES)
users = st.integers(1, 200)
tokens = st.one_of(st.integers(1, 20_000), st.integers(1, 1_000_000))
outputs = st.integers(1, 3000)


@dataclass(frozen=True)
class Numbers:
    users: int
    context: int
    cached: int
    output: int


@st.composite
def numbers(draw: st.DrawFn, *, longest: int = 1_000_000) -> Numbers:
    """A case: a prefix shorter than its context, half of the time none."""
    context = min(draw(tokens), longest)
    cached = draw(st.one_of(st.just(0), st.integers(0, context - 1)))
    return Numbers(draw(users), context, cached, draw(outputs))


def setting(choice: dict[str, Any], assumptions: str = "calibrated") -> Setting:
    return resolve(options_from({**choice, "assumptions": assumptions}))


def evaluate(s: Setting, n: Numbers, **more: bool) -> Columns:
    return Evaluator.of(s).evaluate(n.users, n.context, n.cached, n.output, **more)


def one(columns: Columns, name: str) -> float:
    """A result of a single case."""
    return float(np.asarray(columns.results[name]).reshape(-1)[0])


def tier(columns: Columns, name: str, column: str) -> float:
    return float(np.asarray(columns.tiers[name][column]).reshape(-1)[0])


def faster(s: Setting, factor: float, *what: str) -> Setting:
    """The setting with some of its rates multiplied (peak, memory, network, links, tiers); all if none is named."""
    what = what or ("peak", "memory", "network", "links", "tiers")
    machine = s.machine
    device, server = machine.device, machine.server
    if "peak" in what:
        device = device.model_copy(update={"peaks": {d: p * factor for d, p in device.peaks.items()}})
    if "memory" in what:
        memory = device.memory.model_copy(update={"bandwidth": device.memory.bandwidth * factor})
        device = device.model_copy(update={"memory": memory})
    changes: dict[str, Any] = {}
    if "network" in what:
        fabric = server.scale_up.model_copy(update={"bandwidth": server.scale_up.bandwidth * factor})
        server = server.model_copy(update={"scale_up": fabric})
        if machine.nic_bandwidth is not None:
            changes["nic_bandwidth"] = machine.nic_bandwidth * factor
    if "links" in what:
        changes["device_link"] = wider(machine.device_link, factor)
    if "tiers" in what:
        changes["tiers"] = tuple(
            replace(t, shared=tuple(wider(hop, factor) for hop in t.shared)) for t in machine.tiers
        )
    quicker: Machine = replace(machine, device=device, server=server, **changes)
    return replace(s, machine=quicker)


def wider(link: Link, factor: float) -> Link:
    return replace(link, bandwidth=link.bandwidth * factor)


def same(a: Any, b: Any, rel: float = 1e-12) -> bool:
    """Equal arrays up to rounding, NaN equal to NaN."""
    x, y = np.broadcast_arrays(np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64))
    return bool(np.allclose(x, y, rtol=rel, atol=0.0, equal_nan=True))


def rows(values: list[int]) -> NDArray[np.float64]:
    return np.asarray(values, dtype=np.float64)
