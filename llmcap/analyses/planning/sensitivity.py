"""What an answer hangs on: the same question with one rate, size or promise a fifth lower and a fifth higher."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from llmcap.analyses.planning.objectives import Load, Objectives
from llmcap.analyses.setting import Setting
from llmcap.engine.transfer import Link
from llmcap.records import dataclass
from llmcap.specs.engine import Overhead

STEP: Final = 0.2

#: Knobs of a machine and what they change, in words.
MACHINE_KNOBS: Final = {
    "tensor peak": "FLOP/s of all dtypes",
    "memory bandwidth": "of the devices' own memory",
    "memory capacity": "of the devices' own memory",
    "fabric bandwidth": "between devices and between servers",
    "link bandwidth": "of the devices' host links",
    "tier bandwidth": "of every tier",
    "engine overhead": "host and launch time of engine steps",
}
LOAD_KNOBS: Final = {"context": "tokens of each prompt", "output tokens": "of each user", "users": "active at once"}
OBJECTIVE_KNOBS: Final = {
    "ttft": "the objective for the first token",
    "ttft_p95": "the objective for the first token of 95 % of requests",
    "tpot": "the objective per output token",
}


@dataclass(frozen=True, slots=True)
class Knob:
    """One thing changed by a factor."""

    name: str
    factor: float = 1.0


def turned(setting: Setting, knob: Knob) -> Setting:
    """The setting with a knob of the machine turned; unchanged for the others."""
    f = knob.factor
    if knob.name not in MACHINE_KNOBS or f == 1.0:
        return setting
    machine = setting.machine
    device, server = machine.device, machine.server
    changes: dict[str, Any] = {}
    if knob.name == "tensor peak":
        device = device.model_copy(update={"peaks": {d: p * f for d, p in device.peaks.items()}})
    elif knob.name in ("memory bandwidth", "memory capacity"):
        what = knob.name.removeprefix("memory ")
        memory = device.memory.model_copy(update={what: getattr(device.memory, what) * f})
        device = device.model_copy(update={"memory": memory})
    elif knob.name == "fabric bandwidth":
        fabric = server.scale_up.model_copy(update={"bandwidth": server.scale_up.bandwidth * f})
        server = server.model_copy(update={"scale_up": fabric})
        if machine.nic_bandwidth is not None:
            changes["nic_bandwidth"] = machine.nic_bandwidth * f
    elif knob.name == "link bandwidth":
        changes["device_link"] = _wider(machine.device_link, f)
    elif knob.name == "tier bandwidth":
        changes["tiers"] = tuple(replace(t, shared=tuple(_wider(hop, f) for hop in t.shared)) for t in machine.tiers)
    else:
        engine = setting.engine.model_copy(
            update={"prefill": _longer(setting.engine.prefill, f), "decode": _longer(setting.engine.decode, f)}
        )
        return replace(setting, engine=engine)
    return replace(setting, machine=replace(machine, device=device, server=server, **changes))


def turned_load(load: Load, knob: Knob) -> Load:
    """The load with a knob of its own turned."""
    f = knob.factor
    if knob.name == "context":
        context = max(round(load.context * f), 1)
        return replace(load, context=context, cached=min(round(load.cached * f), context - 1))
    if knob.name == "output tokens":
        return replace(load, output=max(round(load.output * f), 1))
    if knob.name == "users":
        users = max(round(load.users * f), 1)
        return replace(load, users=users, sessions=max(round(load.sessions * f), users))
    return load


def turned_objectives(objectives: Objectives, knob: Knob) -> Objectives:
    """The objectives with one of them looser or tighter."""
    limit = getattr(objectives, knob.name) if knob.name in OBJECTIVE_KNOBS else None
    return objectives if limit is None else replace(objectives, **{knob.name: limit * knob.factor})


def tornado(solve: Callable[[Knob], float | None], base: float | None, names: list[str]) -> list[dict[str, Any]]:
    """Rows of a tornado table, largest swing first; knobs that move nothing come last.

    Parameters
    ----------
    solve : callable
        The answer under a knob; None where there is none.
    base : float or None
        The answer itself.
    names : list of str
    """
    words = {**MACHINE_KNOBS, **LOAD_KNOBS, **OBJECTIVE_KNOBS}
    rows = []
    for name in names:
        low, high = solve(Knob(name, 1.0 - STEP)), solve(Knob(name, 1.0 + STEP))
        ends = [v for v in (low, high) if v is not None]
        swing = None
        if base and ends:
            # An end without an answer counts as far as the other one went, at least all of it.
            swing = (max(*ends, base) - min(*ends, base)) / base if len(ends) == 2 else 1.0
            swing = swing if swing > 1e-9 else 0.0
        rows.append({"what": name, "of": words[name], "change": STEP, "answer_less": low, "answer_more": high,
                     "swing": swing})  # fmt: skip
    return sorted(rows, key=lambda row: -1.0 if row["swing"] is None else row["swing"], reverse=True)


def _wider(link: Link, factor: float) -> Link:
    return replace(link, bandwidth=link.bandwidth * factor)


def _longer(overhead: Overhead, factor: float) -> Overhead:
    """All its times; its band stays as wide in proportion."""
    times = {n: getattr(overhead, n) * factor for n in type(overhead).model_fields if n not in ("low", "high")}
    return overhead.model_copy(update=times)
