"""Replay a request trace: the hit ratio of a prefix cache at every capacity, and what each tier makes of it.

A request looks up the blocks of its prompt when it starts; the leading run of resident ones is hit, and then all its
blocks are touched in order. Least recently used blocks go first. One pass of stack distances answers for all
capacities at once (`llmcap.engine.stack_distance`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from llmcap import __version__
from llmcap.analyses.options import count, options_from
from llmcap.analyses.replays.replay_tiers import TierReplay, replay_tiers, whole
from llmcap.analyses.replays.trace_generator import Population, make_up, population
from llmcap.analyses.replays.traces import Progress, Trace, read_trace
from llmcap.analyses.result import setting_inputs
from llmcap.analyses.setting import Setting, resolve
from llmcap.display import Displayed
from llmcap.engine.stack_distance import hits_at, hits_by_capacity, needed_capacities, previous_access, running_maximum
from llmcap.errors import OptionError, printable
from llmcap.records import dataclass
from llmcap.units import QuantityError, parse_quantity

if TYPE_CHECKING:
    import pandas as pd

    from llmcap.specs.assumptions import Statement

#: Share of the ideal hits whose capacity is told.
_GOAL: Final = 0.9
_MAX_CAPACITIES: Final = 100_000
_UNKNOWN_REUSE: Final = (
    "the trace has lengths only: which prompts share a prefix is unknown, so there are no hits to tell and every "
    "prompt is computed whole"
)


@dataclass(frozen=True, slots=True)
class Reuse:
    """How the blocks of a trace come back, whatever the model and the machine."""

    previous: NDArray[np.int32]
    """Position of each block's last access, -1 for none."""
    needed: NDArray[np.int32]
    """Capacity at which a block is resident when its request starts. [blocks]"""
    run: NDArray[np.int32]
    """Capacity at which it and all before it in its request are. [blocks]"""
    unique: int
    curve: tuple[NDArray[np.int64], NDArray[np.int64]]
    """Capacities [blocks] where the hit tokens rise, and the hit tokens from there on [tokens]."""

    @classmethod
    def of(cls, trace: Trace) -> Reuse:
        """Stack distances of a trace with blocks."""
        assert trace.blocks is not None
        previous, unique = previous_access(trace.blocks)
        needed = needed_capacities(previous, trace.starts)
        run = running_maximum(needed, trace.starts)
        return cls(previous, needed, run, unique, hits_by_capacity(run, trace.tokens_of_blocks()))

    @property
    def ideal_tokens(self) -> int:
        """Hit when nothing is ever evicted. [tokens]"""
        return int(self.curve[1][-1]) if self.curve[1].size else 0

    def second_touch(self) -> NDArray[np.bool_]:
        """Which accesses are the second of their block."""
        return (self.previous >= 0) & (self.previous[self.previous] < 0)

    def capacity_for(self, share: float) -> int | None:
        """Smallest capacity that reaches a share of the ideal hits; None when nothing is ever hit. [blocks]"""
        capacities, hits = self.curve
        if not hits.size:
            return None
        return int(capacities[np.searchsorted(hits, share * hits[-1])])


@dataclass(frozen=True, slots=True)
class Replay(Displayed):
    """The answer to `replay`: `to_dict()` is the JSON of the command, `to_frame()` one of its tables."""

    inputs: dict[str, Any]
    summary: dict[str, Any]
    curve: list[dict[str, Any]]
    tiers: list[dict[str, Any]]
    ttft: dict[str, dict[str, Any]]
    malformed: dict[str, Any]
    assumptions: list[dict[str, Any]]
    warnings: list[str]
    provenance: dict[str, Any]
    fits: bool
    """Whether the longest prompt fits device memory; if not, no tier and no time is given."""

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, schema llmcap.replay/1."""
        return {
            "schema": "llmcap.replay/1",
            "inputs": self.inputs,
            **self.summary,
            "curve": self.curve,
            "tiers": self.tiers,
            "ttft": self.ttft,
            "malformed_lines": self.malformed,
            "assumptions": self.assumptions,
            "warnings": self.warnings,
            "provenance": self.provenance,
        }

    def to_frame(self, table: Literal["curve", "tiers", "ttft"] = "curve") -> pd.DataFrame:
        """The hit curve, the tiers, or the times to first token, one row each."""
        import pandas as pd

        if table == "ttft":
            return pd.DataFrame(self.ttft_rows())
        return pd.DataFrame(self.tiers if table == "tiers" else self.curve)

    def ttft_rows(self) -> list[dict[str, Any]]:
        """Times to first token as rows: without caches, then with the tiers up to each."""
        return [{"up_to": name, **values} for name, values in self.ttft.items()]


def replay(
    trace: str | Path | Trace | None = None, *, generate: str | Mapping[str, Any] | Population | None = None,
    capacities: str | Sequence[int] | None = None, block_tokens: int | str = 512, window: float | str = "60s",
    max_bad_lines: str | float = "1%", time_unit: str = "ms", progress: Progress | None = None, **options: Any,
) -> Replay:  # fmt: skip
    """Replay a trace against a model and a server.

    Parameters
    ----------
    trace : str, Path or Trace, optional
        A file as `llmcap.analyses.replays.traces.read_trace` takes it, or a trace in memory.
    generate : str or mapping, optional
        A made-up trace instead: "users=1000,turns=8,..." (`llmcap.analyses.replays.trace_generator.Population`).
    capacities : str or sequence of int, optional
        Where the hit curve is told; 1-2-5 steps by default. [blocks]
    block_tokens : int or str
        Tokens of a block of the trace. [tokens]
    window : float or str
        Over which peak bandwidths are averaged. [s]
    max_bad_lines, time_unit, progress
        As in `read_trace`.
    **options
        Any field of `llmcap.analyses.options.Options`: model, hardware, tp, kv_dtype, drive ...

    Returns
    -------
    Replay

    Raises
    ------
    OptionError
        A value or combination that cannot be; exit status 2 of the command.
    DocumentError
        A trace or document that cannot be used; exit status 3.

    Examples
    --------
    >>> import llmcap
    >>> answer = llmcap.replay(generate="users=1,turns=2,system=1024,message=1,answer=1", capacities=[2])
    >>> answer.curve[0]["capacity_tokens"], answer.summary["requests"]
    (1024, 2)
    """
    block = count("block_tokens", block_tokens)
    seconds = _window(window)
    setting = resolve(options_from(options))
    wanted = None if capacities is None else _capacities(capacities)
    found = load_trace(
        trace, generate=generate, block_tokens=block, max_bad_lines=max_bad_lines, time_unit=time_unit,
        progress=progress,
    )  # fmt: skip
    reuse = None if found.blocks is None else Reuse.of(found)
    placed = replay_tiers(
        found, setting, seconds,
        None if reuse is None else (reuse.needed, reuse.run, reuse.previous >= 0, reuse.second_touch()),
    )  # fmt: skip
    return _answer(found, reuse, setting, placed, wanted, seconds)


def load_trace(
    trace: str | Path | Trace | None = None, *, generate: str | Mapping[str, Any] | Population | None = None,
    block_tokens: int | str = 512, max_bad_lines: str | float = "1%", time_unit: str = "ms",
    progress: Progress | None = None,
) -> Trace:  # fmt: skip
    """The trace that `replay` would use: read from a file, made up, or as it is.

    Raises
    ------
    OptionError
    DocumentError
    """
    block = count("block_tokens", block_tokens)
    if (trace is None) == (generate is None):
        hint = "for example llmcap replay --generate users=1000,turns=8"
        raise OptionError("TRACE", "give either a trace file or --generate", hint)
    if generate is not None:
        who = generate if isinstance(generate, Population) else population(generate)
        return make_up(who, block_tokens=block)
    if isinstance(trace, Trace):
        return trace
    assert trace is not None
    return read_trace(trace, block_tokens=block, max_bad_lines=max_bad_lines, time_unit=time_unit, progress=progress)


def _window(given: float | str) -> float:
    if isinstance(given, str):
        try:
            given = parse_quantity(given, "seconds", allow_zero=False)
        except QuantityError as error:
            raise OptionError("--window", error.message, "write for example 60s") from None
    if isinstance(given, bool) or not 1e-3 <= given <= 1e9:
        raise OptionError("--window", f"'{printable(given, 40)}' is no span of time to average over", "write 60s")
    return float(given)


def _capacities(given: str | Sequence[int]) -> NDArray[np.int64]:
    parts = given.split(",") if isinstance(given, str) else list(given)
    if not parts or len(parts) > _MAX_CAPACITIES:
        raise OptionError("--capacities", f"{len(parts):,} capacities", f"give 1 to {_MAX_CAPACITIES:,}")
    return np.array([count("capacities", p.strip() if isinstance(p, str) else p) for p in parts], dtype=np.int64)


def _default_capacities(reuse: Reuse) -> NDArray[np.int64]:
    """1-2-5 steps, from 1 % of the largest capacity that still makes a difference up to the first beyond it."""
    last = int(reuse.curve[0][-1]) if reuse.curve[0].size else 1
    steps = [m * 10**e for e in range(12) for m in (1, 2, 5)]
    end = next(i for i, step in enumerate(steps) if step >= last)
    begin = max((i for i, step in enumerate(steps) if step <= max(last // 100, 1)), default=0)
    return np.array(steps[begin : end + 1], dtype=np.int64)


def _answer(
    trace: Trace, reuse: Reuse | None, setting: Setting, placed: TierReplay, wanted: NDArray[np.int64] | None,
    window: float,
) -> Replay:  # fmt: skip
    asked = int(trace.input_tokens.sum())
    curve: list[dict[str, Any]] = []
    summary: dict[str, Any] = {
        "requests": trace.requests,
        "unique_blocks": None,
        "block_accesses": None,
        "input_tokens": asked,
        "output_tokens": int(trace.output_tokens.sum()),
        "duration_s": trace.duration,
        "ideal_hit_ratio": None,
        "capacity_for_90pct_of_ideal_tokens": None,
        "capacity_for_90pct_of_ideal_bytes": None,
        "blocks_used_once_ratio": None,
    }
    if reuse is not None:
        goal = reuse.capacity_for(_GOAL)
        summary |= {
            "unique_blocks": reuse.unique,
            "block_accesses": int(reuse.previous.size),
            "ideal_hit_ratio": reuse.ideal_tokens / asked,
            "capacity_for_90pct_of_ideal_tokens": None if goal is None else goal * trace.block_tokens,
            "capacity_for_90pct_of_ideal_bytes": None if goal is None else whole(goal * placed.bytes_per_block),
            "blocks_used_once_ratio": 1.0 - int(reuse.second_touch().sum()) / max(reuse.unique, 1),
        }
        at = _default_capacities(reuse) if wanted is None else wanted
        hits = hits_at(reuse.curve, at)
        curve = [
            {
                "capacity_blocks": int(c),
                "capacity_tokens": int(c) * trace.block_tokens,
                "capacity_bytes": whole(int(c) * placed.bytes_per_block),
                "hit_ratio": int(h) / asked,
            }
            for c, h in zip(at, hits, strict=True)
        ]
        for row in placed.tiers:
            row["share_of_ideal"] = row["hit_ratio"] * asked / reuse.ideal_tokens if reuse.ideal_tokens else None
    inputs = {"trace": trace.name, "block_tokens": trace.block_tokens, "window_s": window, "hierarchy": "inclusive"}
    return Replay(
        inputs=inputs | setting_inputs(setting),
        summary=summary,
        curve=curve,
        tiers=placed.tiers,
        ttft=placed.ttft,
        malformed={"count": trace.bad_lines, "first": [str(problem) for problem in trace.problems]},
        assumptions=[_said(s) for s in (*placed.statements, *setting.statements)],
        warnings=[*_warnings(trace, reuse, setting), *placed.warnings],
        provenance={
            "version": __version__,
            "specs": [document.row() for document in setting.documents],
        },
        fits=placed.fits,
    )


def _said(statement: Statement) -> dict[str, Any]:
    return {"name": statement.name, "text": statement.text, "source": statement.source, "bias": statement.bias}


def _warnings(trace: Trace, reuse: Reuse | None, setting: Setting) -> list[str]:
    said: list[str] = []
    if trace.bad_lines:
        said.append(f"{trace.bad_lines:,} of {trace.lines:,} lines are malformed and were skipped")
    if not trace.sorted_by_time:
        said.append("the trace was not in order of time; requests were put in order of arrival")
    if reuse is None:
        said.append(_UNKNOWN_REUSE)
    longest = int(trace.input_tokens.max())
    if longest > setting.model.max_context:
        said.append(
            f"the longest prompt has {longest:,} tokens, past the {setting.model.max_context:,} that "
            f"{setting.model.name} is made for; the figures extrapolate"
        )
    if reuse is not None and reuse.curve[0].size:
        bytes_needed = int(reuse.curve[0][-1]) * trace.block_tokens
        said.append(f"beyond {bytes_needed:,} tokens more capacity adds no hits in this trace")
    return said
