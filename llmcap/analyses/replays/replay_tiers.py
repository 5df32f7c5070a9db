"""A replayed trace on the tiers of a machine: what each holds, serves and takes in, and the times to first token.

The hierarchy is inclusive: what is computed is written through to every tier, and all tiers see every touch, so a tier
of C blocks holds the C blocks touched last and each block is served by the fastest tier that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.machine import Tier
from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.offload.wear import DAY, drive_wear
from llmcap.analyses.replays.traces import Trace
from llmcap.analyses.setting import Setting
from llmcap.engine.stack_distance import NEVER
from llmcap.errors import OptionError
from llmcap.specs.assumptions import Statement
from llmcap.units import format_bytes, format_rate, format_seconds

Array = NDArray[np.float64]
Distances = tuple[NDArray[np.int32], NDArray[np.int32], NDArray[np.bool_], NDArray[np.bool_]]
"""Needed capacity and that of the leading run, whether a block came before, and whether for the second time."""

#: Rates of a shorter trace say nothing of a day. [s]
SHORTEST_FOR_A_DAY: Final = 60.0

_CHUNK: Final = 2**17  # requests at a time: a few dozen arrays of them stay small

_STATEMENTS: Final = (
    Statement(
        name="inclusive tiers",
        text="Computed blocks are written through to every tier, and every tier sees every touch (one LRU order).",
        source="LMCache and vLLM offload copies; tiers that evict into each other hold more",
        bias="pessimistic on capacity",
    ),
    Statement(
        name="each request alone",
        text="Times to first token are those of one request on an idle replica: no queueing, no batching, no decode.",
        source="simplification",
        bias="optimistic under load; see busy_ratio",
    ),
    Statement(
        name="always reload",
        text="Whatever the tiers in use hold is reloaded, even where computing it would be quicker (slower_ratio says "
        "how often the deepest tier makes a request slower); at least one token is computed.",
        source="what engines do by default",
        bias="pessimistic",
    ),
    Statement(
        name="all replicas as one",
        text="The caches of all replicas count as one pool; requests go where their prefix is.",
        source="cache-aware routing",
        bias="optimistic with dp > 1",
    ),
)


def _windows(kept: float) -> Statement:
    return Statement(
        name="windows and constant states",
        text="Blocks are sized by the layers that grow with the prompt. Windows, chunks and recurrent states are "
        f"reloaded with a prefix, but keeping them at every point of return (up to {format_bytes(kept)} each) takes no "
        "capacity and no writes here; --kv-policy all-full counts windowed layers whole.",
        source="simplification",
        bias="optimistic on capacity and writes",
    )


def whole(value: float) -> float | int:
    """Bytes as an integer where they are whole."""
    return int(value) if float(value).is_integer() else float(value)


@dataclass(slots=True)
class TierReplay:
    """Rows per tier and times to first token of one replay."""

    bytes_per_block: float
    """One logical copy of a full block. [B]"""
    tiers: list[dict[str, Any]] = field(default_factory=list)
    ttft: dict[str, dict[str, Any]] = field(default_factory=dict)
    statements: list[Statement] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    fits: bool = True


def replay_tiers(trace: Trace, setting: Setting, window: float, distances: Distances | None) -> TierReplay:
    """Place the tiers of a setting on a trace's stack distances.

    Parameters
    ----------
    trace : Trace
    setting : Setting
    window : float
        Over which peak bandwidths are averaged. [s]
    distances : tuple of ndarray, optional
        None for a trace with lengths only.

    Raises
    ------
    OptionError
        The model keeps nothing that grows with the prompt, so there are no blocks to cache.
    """
    evaluator = Evaluator.of(setting)
    memory = evaluator.memory
    per_token = memory.growing_per_token()
    if per_token <= 0.0:
        raise OptionError(
            "--model", f"{setting.model.name} keeps no state that grows with the prompt, so it has no blocks to cache",
            "choose a model with attention",
        )  # fmt: skip
    found = TierReplay(per_token * trace.block_tokens, statements=list(_STATEMENTS))
    kept = float(memory.moved_per_user(2.0**40)) - per_token * 2.0**40
    if kept >= 1.0:
        found.statements.append(_windows(kept))
    longest = float((trace.input_tokens + trace.output_tokens).max())
    if memory.users_held(longest) < 1.0:
        found.fits = False
        found.warnings.append(
            f"does not fit: weights of {format_bytes(memory.weights_per_device)} per device leave no room for the "
            f"longest request ({longest:,.0f} tokens); tiers and times are left out"
        )
        return found
    pool = memory.pool * setting.machine.devices
    copies = [memory.copies(), *(_stored(memory, tier) for tier in setting.machine.tiers)]
    sizes = [pool / copies[0], *(t.capacity / n for t, n in zip(setting.machine.tiers, copies[1:], strict=True))]
    names = ["hbm", *(tier.name for tier in setting.machine.tiers)]
    blocks = np.minimum(np.floor(np.array(sizes) / found.bytes_per_block), NEVER - 1).astype(np.int64)
    load = _Load.of(trace, evaluator, blocks, distances, window)
    found.ttft = load.times(names if distances is not None else [])
    for k, name in enumerate(names):
        tier = setting.machine.tiers[k - 1] if k else None
        row: dict[str, Any] = {
            "tier": name,
            "capacity_bytes": whole(pool if tier is None else tier.capacity),
            "bytes_per_block": whole(found.bytes_per_block * copies[k]),
            "capacity_blocks": int(blocks[k]),
            "capacity_tokens": int(blocks[k]) * trace.block_tokens,
            "hit_ratio": None,
        }
        if distances is not None:
            row |= load.tier_row(k)
            if tier is not None:
                row |= load.writes(k, distances, found.bytes_per_block * copies[k], tier)
        found.tiers.append(row)
    found.warnings += _warnings(found, load, evaluator)
    return found


def _stored(memory: MemoryModel, tier: Tier) -> float:
    """Bytes that a tier stores of blocks, over their logical bytes."""
    return float(memory.copies_kept(np.float64(2.0**40), tier.reload.latent_kept))


@dataclass(slots=True)
class _Load:
    """What the requests ask of each level of the hierarchy; level k uses the tiers 0 .. k."""

    trace: Trace
    evaluator: Evaluator
    blocks: NDArray[np.int64]
    window: float
    ttft: Array
    """(levels + 1, requests), the first without any cache. [s]"""
    compute: Array
    """(levels + 1,) prefill of all requests. [s]"""
    hit_tokens: Array
    """(levels, tiers) tokens that each tier serves at each level. [tokens]"""
    read: Array
    """(levels, windows) read from the deepest tier of each level. [B]"""

    @classmethod
    def of(
        cls, trace: Trace, evaluator: Evaluator, blocks: NDArray[np.int64], distances: Distances | None, window: float
    ) -> _Load:
        """Go over the requests, some at a time."""
        levels = blocks.size
        load = cls(
            trace, evaluator, blocks, window, np.empty((levels + 1, trace.requests)), np.zeros(levels + 1),
            np.zeros((levels, levels)), np.zeros((levels, int(trace.duration / window) + 1)),
        )  # fmt: skip
        for first in range(0, trace.requests, _CHUNK):
            load._add(first, min(first + _CHUNK, trace.requests), distances)
        return load

    def _add(self, first: int, last: int, distances: Distances | None) -> None:
        levels = self.blocks.size
        inputs = self.trace.input_tokens[first:last].astype(np.float64)
        whole = np.asarray(self.evaluator.tiers.prefill(1.0, inputs, np.zeros_like(inputs)))
        self.ttft[0, first:last] = whole
        self.compute[0] += whole.sum()
        if distances is None:
            self.ttft[1:, first:last] = whole
            self.compute[1:] += whole.sum()
            return
        served = self._served(first, last, distances)
        windows = (self.trace.times[first:last] / self.window).astype(np.intp)
        for k in range(levels):
            tokens = served[:, :, k]
            self.hit_tokens[k] += tokens.sum(axis=0)
            hit = tokens.sum(axis=1)
            cached = np.minimum(hit, inputs - 1.0)
            compute = np.asarray(self.evaluator.tiers.prefill(1.0, inputs - cached, cached))
            per_hit = np.where(hit > 0.0, self.evaluator.memory.moved_per_user(hit) / np.maximum(hit, 1.0), 0.0)
            ttft = compute.copy()
            for rates, column in zip(self.evaluator.tiers.rates[:k], range(1, k + 1), strict=True):
                moved = per_hit * tokens[:, column]
                ttft += self.evaluator.tiers.reload(rates, 1.0, moved)
            self.read[k] += np.bincount(windows, weights=per_hit * tokens[:, k], minlength=self.read.shape[1])
            self.ttft[k + 1, first:last] = ttft
            self.compute[k + 1] += compute.sum()

    def _served(self, first: int, last: int, distances: Distances) -> Array:
        """Tokens of each request that each tier serves at each level: (requests, tiers, levels)."""
        levels = self.blocks.size
        starts = self.trace.starts[first : last + 1]
        needed, run = (d[starts[0] : starts[-1]] for d in distances[:2])
        # A tier that is smaller than a faster one adds nothing.
        reach = np.maximum.accumulate(self.blocks)
        hit = np.flatnonzero(run <= reach[-1])
        request = np.repeat(np.arange(last - first), np.diff(starts))[hit]
        home, level = np.searchsorted(reach, needed[hit]), np.searchsorted(reach, run[hit])
        tokens = self.trace.tokens_of_blocks(first, last)[hit]
        cell = (request * levels + home) * levels + level
        counted = np.bincount(cell, weights=tokens, minlength=(last - first) * levels**2)
        return np.cumsum(counted.reshape(-1, levels, levels), axis=2)

    def times(self, names: list[str]) -> dict[str, dict[str, Any]]:
        """Distribution of the times to first token without caches and with the tiers up to each."""
        p = self.evaluator.setting.parallelism
        found = {}
        for k, name in enumerate(["none", *names]):
            p50, p95, p99 = np.quantile(self.ttft[k], [0.5, 0.95, 0.99])
            found[name] = {
                "mean_s": float(self.ttft[k].mean()),
                "p50_s": float(p50),
                "p95_s": float(p95),
                "p99_s": float(p99),
                "prefill_gpu_s": float(self.compute[k]) * p.tp * p.pp * p.cp,
                "gpu_s_saved": float(self.compute[0] - self.compute[k]) * p.tp * p.pp * p.cp,
                "busy_ratio": self._per_s(float(self.compute[k]) / p.dp),
            }
        return found

    def tier_row(self, k: int) -> dict[str, Any]:
        """Hits and reads of level k."""
        asked = float(self.trace.input_tokens.sum())
        row: dict[str, Any] = {
            "hit_ratio": float(self.hit_tokens[k].sum()) / asked,
            "served_ratio": float(self.hit_tokens[k, k]) / asked,
        }
        if k:
            total = float(self.read[k].sum())
            row |= {
                "slower_ratio": float((self.ttft[k + 1] > self.ttft[k]).mean()),
                "read_bytes": total,
                "read_mean_bytes_per_s": self._per_s(total),
                "read_peak_bytes_per_s": self._peak(self.read[k]),
            }
        return row

    def writes(self, k: int, distances: Distances, bytes_per_block: float, tier: Tier) -> dict[str, Any]:
        """What tier k takes in: blocks it does not hold when they are asked for, and under a second-touch filter."""
        needed, _, again, second = distances
        missing = needed > self.blocks[k]
        windows = np.repeat((self.trace.times / self.window).astype(np.int32), np.diff(self.trace.starts))
        over_time = np.asarray(np.bincount(windows[missing], minlength=self.read.shape[1]) * bytes_per_block)
        del windows
        total = float(over_time.sum())
        filtered = float((second | (again & missing)).sum()) * bytes_per_block
        row: dict[str, Any] = {
            "write_bytes": whole(total),
            "write_mean_bytes_per_s": self._per_s(total),
            "write_peak_bytes_per_s": self._peak(over_time),
            "write_bytes_per_day": self._per_day(total),
            "write_bytes_per_day_second_touch": self._per_day(filtered),
        }
        if tier.drive is not None and self.trace.duration >= SHORTEST_FOR_A_DAY:
            row |= {"drive": tier.drive.id, "drives": tier.members}
            for policy, written in (("", total), ("_second_touch", filtered)):
                wear = drive_wear(written / self.trace.duration, tier.drive, tier.members)
                row["drive_writes_per_day" + policy] = float(wear.writes_per_day)
                years = None if wear.years is None else float(wear.years)
                row["drive_life_years" + policy] = years if years is None or np.isfinite(years) else None
        return row

    def _per_s(self, total: float) -> float | None:
        return total / self.trace.duration if self.trace.duration > 0.0 else None

    def _per_day(self, total: float) -> float | None:
        return total / self.trace.duration * DAY if self.trace.duration >= SHORTEST_FOR_A_DAY else None

    def _peak(self, over_time: Array) -> float | None:
        return float(over_time.max()) / min(self.window, self.trace.duration) if self.trace.duration > 0.0 else None


def _warnings(found: TierReplay, load: _Load, evaluator: Evaluator) -> list[str]:
    said: list[str] = []
    rows = found.tiers
    if len(rows) > 1 and "write_bytes" in rows[1] and load.trace.duration < SHORTEST_FOR_A_DAY:
        said.append(
            f"the trace spans {format_seconds(load.trace.duration)}, too short to tell what a day brings: drive writes "
            f"and life need {format_seconds(SHORTEST_FOR_A_DAY)} or more; other rates are a moment's"
        )
    for k, row in enumerate(rows[1:], start=1):
        name = row["tier"]
        if row["capacity_blocks"] <= max(r["capacity_blocks"] for r in rows[:k]):
            said.append(f"{name} holds no more than the tiers before it: in an inclusive hierarchy it adds nothing")
            continue
        shared = evaluator.tiers.rates[k - 1].shared
        if (peak := row.get("read_peak_bytes_per_s")) is not None and peak > shared:
            said.append(
                f"{name} is asked for {format_rate(peak, 'B/s')} in its busiest window and delivers "
                f"{format_rate(shared, 'B/s')}: reloads would queue"
            )
        written = evaluator.setting.machine.tiers[k - 1].write
        if (peak := row.get("write_peak_bytes_per_s")) is not None and written is not None and peak > written:
            said.append(
                f"{name} would take in {format_rate(peak, 'B/s')} in its busiest window, more than the "
                f"{format_rate(written, 'B/s')} it can write"
            )
    deepest = list(found.ttft)[-1]
    for name, values in {"no cache": found.ttft["none"], f"all tiers up to {deepest}": found.ttft[deepest]}.items():
        if deepest == "none" and name != "no cache":
            continue
        if values["busy_ratio"] is not None and values["busy_ratio"] > 1.0:
            said.append(
                f"with {name} the prefills alone keep the machine busy {values['busy_ratio']:.3g} times over: the load "
                "is more than it can serve, and queues grow without bound"
            )
    return said
