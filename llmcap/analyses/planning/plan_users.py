"""Most users that a machine serves within the objectives."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.planning.asked import Asked, device_counts, layouts_of, shortfalls
from llmcap.analyses.planning.solve import last_true
from llmcap.errors import OptionError

Row = dict[str, Any]
#: More users than this at once are no machine's business.
MOST_USERS = 1_000_000
_BLOCK = 16_384


def most_users(asked: Asked, evaluator: Evaluator | None = None) -> int:
    """Largest number of active users up to which every number keeps all objectives; 0 when not even one does.

    Times rise with the users, so that the turning point is searched for. With pipeline stages they do not always: a
    second step fills the stages that one step leaves idle. Then every number is tried.
    """
    try:
        evaluator = evaluator or asked.evaluator()
    except OptionError:
        return 0
    tokens = asked.load.context + asked.load.output
    room = int(min(float(evaluator.memory.users_held(tokens)), float(MOST_USERS)))
    if evaluator.setting.parallelism.pp > 1:
        return scan(asked, evaluator, room)
    return last_true(lambda users: asked.measure(evaluator, users).holds, 1, room) or 0


def scan(asked: Asked, evaluator: Evaluator, most: int) -> int:
    """Try every number of users up to `most`, in blocks, until one fails."""
    done = 0
    while done < most:
        block = np.arange(done + 1.0, min(done + _BLOCK, most) + 1.0)
        holds = asked.measure(evaluator, block).holds
        if not holds.all():
            return done + int(np.argmin(holds))
        done += block.size
    return most


def binding(asked: Asked, users: int) -> tuple[str, list[Row]]:
    """What forbids one user more, and how far it would have to give way for that one."""
    evaluator = asked.evaluator()
    found = shortfalls(asked.measure(evaluator, users + 1), asked.objectives, evaluator)
    return (found[0]["what"] if found else "capacity"), found


def next_steps(asked: Asked, users: int) -> list[Row]:
    """Changes of one option each that serve more users, most first."""
    rows: list[Row] = []
    for change in changes(asked):
        tried = asked.with_options(**change)
        got = most_users(tried)
        if got > users:
            rows.append({"change": typed(change), "users": got, "gain": (got - users) / users if users else None})
    return sorted(rows, key=lambda row: row["users"], reverse=True)


def typed(change: dict[str, Any]) -> str:
    """A change of options as one types it."""
    return " ".join(f"--{name.replace('_', '-')} {value}" for name, value in change.items() if value is not None)


def changes(asked: Asked) -> list[dict[str, Any]]:
    """Options of a machine, a layout, dtypes or steps that may serve more."""
    setting = asked.evaluator().setting
    p, machine, options = setting.parallelism, setting.machine, asked.options
    found: list[dict[str, Any]] = []
    more = [d for d in device_counts(options) if d > p.devices]
    if more:
        # A layout given by hand is kept, and copied.
        grown = more[0] if options.tp is None else next((d for d in more if d % p.devices == 0), 0)
        if grown and options.tp is None:
            found += [dict(layout) for layout in layouts_of(options, grown)]
        elif grown:
            found.append({"devices": grown, "tp": p.tp, "dp": p.dp * grown // p.devices})
    if p.tp > 1 and p.tp % 2 == 0:
        found.append({"tp": p.tp // 2, "dp": p.dp * 2})
    if p.dp % 2 == 0:
        found.append({"tp": p.tp * 2, "dp": p.dp // 2})
    if setting.kv_dtype in ("bf16", "fp16", "fp32"):
        found.append({"kv_dtype": "fp8"})
    elif setting.kv_dtype == "fp8" and machine.has_peak("nvfp4"):
        found.append({"kv_dtype": "nvfp4"})
    if setting.weights.default in ("bf16", "fp16", "fp32") and machine.has_peak("fp8"):
        found.append({"weight_dtype": "fp8"})
    elif setting.weights.default == "fp8" and machine.has_peak("nvfp4"):
        found.append({"weight_dtype": "nvfp4"})
    if options.kv_policy == "all-full":
        found.append({"kv_policy": "hybrid"})
    if setting.calibrated:
        found += [{"chunk_tokens": setting.chunk_tokens * 2}, {"chunk_tokens": max(setting.chunk_tokens // 2, 1)}]
    tiers = {tier.name: tier for tier in machine.tiers}
    if asked.objectives.tier == "nvme" and tiers["nvme"].drive is not None:
        found.append({"drives": tiers["nvme"].members // machine.servers + 2})
    return found
