"""How much DRAM, how many drives, how fast a tier: what a number of kept sessions and a time to first token ask for."""

from __future__ import annotations

from typing import Any

import numpy as np

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.paths import Tier
from llmcap.analyses.planning.asked import Asked
from llmcap.engine.transfer import link_rate
from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.records import dataclass

Row = dict[str, Any]
#: Drives of one server up to which an answer is looked for.
MOST_DRIVES = 1024


@dataclass(frozen=True, slots=True)
class Reload:
    """A reload from a tier, taken apart."""

    fixed: float
    """Software and latency. [s]"""
    rest: float
    """Prefill of what follows the prefix. [s]"""
    moved: float
    """Bytes of all users. [B]"""
    rate: float
    """Effective. [B/s]"""
    links: float
    """What the replicas' own links would carry. [B/s]"""

    @property
    def ttft(self) -> float:
        return self.fixed + self.moved / self.rate + self.rest


def session_bytes(asked: Asked, evaluator: Evaluator, name: str) -> float:
    """What a tier stores of all sessions at the end of their output, copies of its connector included. [B]"""
    tokens = np.float64(asked.load.context + asked.load.output)
    copies = evaluator.memory.copies_kept(tokens, tier_of(evaluator, name).reload.latent_kept)
    return asked.load.sessions * float(evaluator.memory.per_user(tokens) * copies)


def tier_of(evaluator: Evaluator, name: str) -> Tier:
    """A tier of the machine beyond device memory.

    Raises
    ------
    OptionError
    """
    tiers = {tier.name: tier for tier in evaluator.setting.machine.tiers}
    if name not in tiers:
        raise OptionError(
            "--tier-name", f"{evaluator.setting.machine.server.id} has no tier '{printable(name, 40)}'",
            f"{did_you_mean(name, list(tiers))} choose one of {', '.join(tiers)}, or add one with --tier".strip(),
        )  # fmt: skip
    return tiers[name]


def reload(asked: Asked, evaluator: Evaluator, name: str) -> Reload:
    """The reload of all active users' prefixes from a tier."""
    load, model = asked.load, evaluator.tiers
    rates = next(r for r in model.rates if r.name == name)
    prefix = load.cached or load.context
    rest = float(model.prefill(load.users, load.context - load.cached, load.cached)) if load.cached else 0.0
    moved = load.users * float(evaluator.memory.moved_per_user(prefix))
    links = load.users / float(model.fullest(load.users)) * rates.replica
    return Reload(rates.fixed, rest, moved, min(rates.shared, links), links)


def bandwidth_for(asked: Asked, name: str) -> Row:
    """Read bandwidth with which a tier meets the TTFT objective, the rest of its path left as it is.

    Returns
    -------
    dict
        feasible; needed_bytes_per_s, what must arrive; nominal_bytes_per_s, what the tier itself must be rated at, its
        efficiency with blocks as now (None when the rest of the path, or the objective, forbids it); floor_s, the
        time to first token with an endlessly fast tier; binding, what holds it there or the tier itself.

    Notes
    -----
    TTFT = fixed + moved / rate + rest, so that the rate follows at once. A faster tier is taken as more of the same
    parts: its share of the nominal rate stays.
    """
    assert asked.objectives.ttft is not None
    evaluator = asked.evaluator()
    setting = evaluator.setting
    tier = tier_of(evaluator, name)
    now = reload(asked, evaluator, name)
    ideal, block = setting.assumptions.ideal_transfers, tier.reload.block
    pinned = setting.assumptions.deviations.tier_read.get(name)
    own, *others = tier.shared
    hops = {hop.name: link_rate(hop, block, ideal=ideal) for hop in (others if pinned is None else [])}
    limits = hops | {setting.machine.device_link.name: now.links}
    ceiling_of = min(limits, key=lambda hop: limits[hop])
    floor = now.fixed + now.rest + now.moved / limits[ceiling_of]
    left = asked.objectives.ttft - now.fixed - now.rest
    needed = now.moved / left if left > 0.0 else None
    row: Row = {
        "tier": name, "needed_bytes_per_s": needed, "nominal_bytes_per_s": None,
        "has_bytes_per_s": now.rate, "has_nominal_bytes_per_s": pinned or own.bandwidth / own.copies,
        "ttft_now_s": now.ttft, "floor_s": floor, "fixed_s": now.fixed, "rest_s": now.rest, "moved_bytes": now.moved,
    }  # fmt: skip
    if needed is None:
        return row | {"feasible": False, "binding": "prefill" if now.rest >= now.fixed else "software"}
    if needed > limits[ceiling_of] * (1.0 + 1e-12):
        return row | {"feasible": False, "binding": ceiling_of}
    share = 1.0 if pinned is not None else link_rate(own, block, ideal=ideal) / (own.bandwidth / own.copies)
    return row | {"feasible": True, "nominal_bytes_per_s": needed / share, "binding": own.name}


def with_drives(asked: Asked, drives: int) -> Asked:
    """The question with so many drives in each server."""
    return asked.with_options(drives=drives)


def drives_violate(asked: Asked, drives: int) -> dict[str, float]:
    """What so many drives fail at: needed over had, by `capacity` and `ttft`; empty when all is kept."""
    tried = with_drives(asked, drives)
    evaluator = tried.evaluator()
    tier = tier_of(evaluator, "nvme")
    ratios = {"capacity": session_bytes(tried, evaluator, "nvme") / tier.capacity}
    if asked.objectives.ttft is not None:
        ratios["ttft"] = reload(tried, evaluator, "nvme").ttft / asked.objectives.ttft
    return {name: ratio for name, ratio in ratios.items() if ratio > 1.0 + 1e-12}


def fewest_drives(asked: Asked) -> int | None:
    """Smallest number of drives in each server that keeps all sessions and the TTFT objective; None when none does."""
    low, high = 1, 1
    while high < MOST_DRIVES and drives_violate(asked, high):
        low, high = high + 1, min(high * 2, MOST_DRIVES)
    if drives_violate(asked, high):
        return None
    while low < high:
        middle = (low + high) // 2
        if drives_violate(asked, middle):
            low = middle + 1
        else:
            high = middle
    return high
