"""Sweeps: a scenario's grid evaluated chunk by chunk into columns of rows, one per case and tier.

Structure is looped over, cases never: within a chunk each setting is evaluated on the broadcast grid of its numbers,
in blocks that fit a core's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.evaluate import LIMITS, Columns
from llmcap.analyses.options import LOAD_OPTIONS
from llmcap.analyses.result import RESULT_COLUMNS, TIER_COLUMNS, setting_inputs
from llmcap.analyses.setting import Setting
from llmcap.analyses.sweeps.blockwise import Block, Blockwise
from llmcap.analyses.sweeps.grid import SESSIONS, Box, Choice, Grid, Part
from llmcap.errors import DocumentError, Problem, did_you_mean, printable
from llmcap.records import dataclass

Kind = Literal["number", "count", "truth", "word"]
Index = tuple[slice | NDArray[np.intp], ...]

NUMBERS: Final = ("users", "context_tokens", "cached_tokens", "output_tokens")
WINNERS: Final = ("recompute", "reload")
_COUNTS: Final = ("devices", "tp", "pp", "dp", "ep", "cp", "chunk_tokens", "drives", "nics", *NUMBERS, SESSIONS)
#: Options that leave everything but the tiers, or the steady state, as it is.
_TIER_OPTIONS: Final = ("drive", "drives", "dram", "store", "nic", "nics", *LOAD_OPTIONS)
#: Inputs that are amounts, and may be absent.
_AMOUNTS: Final = (
    "dram",
    "arrivals_per_s",
    "draft_tokens",
    "acceptance",
    "prefill_devices",
    "prefill_tp",
    "prefill_ep",
)
_DTYPES: Final[dict[Kind, type]] = {"number": np.float64, "count": np.int64, "truth": np.bool_, "word": np.int16}


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the rows."""

    name: str
    kind: Kind
    words: tuple[str, ...] = ()
    """What the codes of a word column stand for; -1 is none."""
    by_tier: bool = False


@dataclass(frozen=True, slots=True)
class Rows:
    """A chunk: one array per column; NaN or code -1 where there is no answer."""

    index: int
    cases: int
    arrays: dict[str, NDArray[Any]]

    @property
    def size(self) -> int:
        return int(next(iter(self.arrays.values())).size)


class Sweep:
    """A grid with the columns to keep; evaluates any of its chunks alone, so that chunks can go anywhere."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self._inputs = {id(s): setting_inputs(s) | _varied(grid, choice) for s, choice in grid.settings}
        asked = dict.fromkeys(name for found in self._inputs.values() for name in found)
        self._inputs = {key: dict.fromkeys(asked) | found for key, found in self._inputs.items()}
        self.tier_names = self._tiers()
        self.columns = self._columns()
        self.by_tier = any(c.by_tier for c in self.columns)
        self._blockwise = Blockwise(frozenset(c.name for c in self.columns), by_tier=self.by_tier)

    @cached_property
    def _settings_share(self) -> bool:
        """Whether there are settings that differ in their tiers alone."""
        return any(name in axis.choices[0] for axis in self.grid.axes for name in (*_TIER_OPTIONS, "override"))

    def rows_of(self, box: Box, limit: int | None = None) -> Rows:
        """Evaluate one chunk; with a limit only those of its points that are among the first `limit` of the grid."""
        if limit is not None:
            box = self.grid.trimmed(box, limit)
        width = len(self.tier_names) if self.by_tier else 1
        out: dict[str, NDArray[Any]] = {
            c.name: np.empty((*box.shape, width) if c.by_tier else box.shape, _DTYPES[c.kind]) for c in self.columns
        }
        present = np.zeros((*box.shape, width), np.bool_)
        for part in self.grid.parts(box):
            where = tuple(_compact(rows) for rows in part.rows)
            self._fill_setting(out, part, where)
            positions = self._tier_positions(part.setting) if self.by_tier else [0]
            keep = True if part.keep is None else part.keep
            for position in positions:
                _at(present, where, position)[...] = keep
            tiers = self.grid.tiers_of(part.setting)
            for block, columns in self._blockwise.blocks(part, tiers, keep=self._settings_share):
                self._fill(out, columns, _inner(where, block), part.setting)
        if limit is not None:
            present.reshape(-1, width)[max(limit - self.grid.offset(box.index), 0) :] = False
        mask = None if present.all() else present.reshape(-1)
        return Rows(
            box.index,
            int(present.any(axis=-1).sum()),
            {name: _flat(values, width, mask, len(box.shape)) for name, values in out.items()},
        )

    def all_rows(self, first: int = 0) -> Iterator[Rows]:
        """Every chunk from `first` on, in order."""
        for index in range(first, self.grid.chunks):
            yield self.rows_of(self.grid.box(index))

    # -- filling in -------------------------------------------------------------------------------------------------

    def _fill(self, out: Mapping[str, NDArray[Any]], columns: Columns, where: Index, setting: Setting) -> None:
        results = columns.results
        fits = np.asarray(results["fits"])
        everywhere = bool(fits.all())
        for column in self.columns:
            if column.name in results:
                _put(out[column.name], where, results[column.name])
            elif column.by_tier and column.name != "tier":
                for tier, position in zip(self.grid.tiers_of(setting), self._tier_positions(setting), strict=True):
                    values = columns.tiers[tier]
                    if column.name == "winner":
                        value = np.asarray(values["wins"]).astype(np.int16)
                        value = value if everywhere else np.where(fits, value, np.int16(-1))
                    else:
                        value = np.asarray(values[column.name])
                    _at(out[column.name], where, position)[...] = value

    def _fill_setting(self, out: Mapping[str, NDArray[Any]], part: Part, where: Index) -> None:
        inputs = self._inputs[id(part.setting)]
        varied = _varied(self.grid, part.choice)
        if "dram" in varied:  # a choice is as it was written, with its unit
            varied["dram"] = part.setting.options.dram
        for column in self.columns:
            if column.name == "tier":
                for position in range(len(self.tier_names)):
                    _at(out["tier"], where, position)[...] = position
            elif column.name in inputs:
                _put(out[column.name], where, self._code(column, varied, inputs))

    def _code(self, column: Column, varied: Choice, inputs: Mapping[str, Any]) -> float | int:
        value = {**inputs, **varied}[column.name]
        if column.kind == "word":
            return -1 if value is None else column.words.index(str(value))
        if column.kind == "number":
            return np.nan if value is None else float(value)
        return int(value)

    def _tier_positions(self, setting: Setting) -> list[int]:
        return [self.tier_names.index(name) for name in self.grid.tiers_of(setting)]

    # -- columns -----------------------------------------------------------------------------------------------------

    def _tiers(self) -> tuple[str, ...]:
        settings = [setting for setting, _ in self.grid.settings]
        names = dict.fromkeys(n for s in settings for n in ("hbm", *(t.name for t in s.machine.tiers)))
        for name in self.grid.scenario.tiers:
            if name not in names:
                hint = did_you_mean(name, names) or f"the machines have {', '.join(names)}"
                raise self._problem("tiers", f"no machine of the sweep has a tier '{printable(name, 40)}'", hint)
        order = ("hbm", "dram", "nvme")
        kept = [n for n in names if not self.grid.scenario.tiers or n in self.grid.scenario.tiers]
        return tuple(sorted(kept, key=lambda n: (order.index(n) if n in order else len(order), kept.index(n))))

    def _columns(self) -> tuple[Column, ...]:
        inputs: dict[str, list[Any]] = {}
        for setting, choice in self.grid.settings:
            for name, value in {**self._inputs[id(setting)], **_varied(self.grid, choice)}.items():
                inputs.setdefault(name, []).append(value)
        known = _ordered(inputs, self._served(), with_sessions=self.grid.has_sessions)
        names = self.grid.scenario.columns or known
        found: list[Column] = []
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
                raise self._problem("columns", f"unknown column '{printable(name, 40)}'", hint)
            if name in (c.name for c in found):
                raise self._problem("columns", f"'{name}' is named twice", "keep one")
            found.append(self._column(name, inputs.get(name)))
        return tuple(found)

    def _served(self) -> tuple[str, ...]:
        """Columns of a steady state, where any case has one."""
        loads = [s.options for s, _ in self.grid.settings if s.options.arrivals != "together"]
        if not loads:
            return ()
        from llmcap.analyses.serving.load import COLUMNS, PREFIX, applicable

        found = {name for options in loads for name in applicable(options)}
        return tuple(PREFIX + name for name in COLUMNS if name in found)

    def _column(self, name: str, values: list[Any] | None) -> Column:
        by_tier = name in TIER_COLUMNS
        if name == "tier":
            return Column(name, "word", self.tier_names, True)
        if name == "winner":
            return Column(name, "word", WINNERS, True)
        if name == "limit":
            return Column(name, "word", LIMITS)
        if name in ("fits", "serving_fits"):
            return Column(name, "truth")
        if name in ("serving_limit", "serving_saturation_limit"):
            from llmcap.analyses.serving.load import PREFIX, WORDS

            return Column(name, "word", WORDS[name.removeprefix(PREFIX)])
        if name in _COUNTS and None not in (values or ()):
            return Column(name, "count")
        if values is None:
            return Column(name, "number", (), by_tier)
        if name in _AMOUNTS:
            return Column(name, "number")
        return Column(name, "word", tuple(dict.fromkeys(str(v) for v in values if v is not None)))

    def _problem(self, path: str, message: str, hint: str) -> DocumentError:
        return DocumentError([Problem(self.grid.file, None, path, message, hint)])


def _ordered(inputs: Mapping[str, Any], served: tuple[str, ...], *, with_sessions: bool) -> tuple[str, ...]:
    first = [n for n in inputs if n in ("override", "model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp")]
    rest = [n for n in inputs if n not in first]
    sessions = (SESSIONS,) if with_sessions else ()
    return (*first, *sessions, *NUMBERS, *rest, *RESULT_COLUMNS, *served, *TIER_COLUMNS)


def _varied(grid: Grid, choice: Choice) -> dict[str, Any]:
    """Options of a sweep that the resolved inputs do not repeat: parts of servers, and the name of the override."""
    shown = ("override", "drive", "drives", "dram", "nic", "nics", "store")
    names = dict.fromkeys(n for axis in grid.axes for c in axis.choices[:1] for n in c)
    everything = (
        [n for axis in grid.axes for c in axis.choices if c is not axis.choices[0] for n in c]
        if any("override" in axis.names for axis in grid.axes)
        else []
    )
    given = {**grid.base, **choice}
    return {n: given.get(n) for n in shown if n in names or n in everything or n in grid.base}


def _compact(rows: NDArray[np.intp]) -> slice | NDArray[np.intp]:
    """Positions as a slice where they are consecutive."""
    first, last = int(rows[0]), int(rows[-1])
    return slice(first, last + 1) if last - first + 1 == rows.size else rows


def _inner(where: Index, block: Block) -> Index:
    return tuple(
        slice(w.start + b.start, w.start + b.stop) if isinstance(w, slice) else w[b]
        for w, b in zip(where, block, strict=True)
    )


class _Target:
    """Assignment into a box at slices or at lists of positions, whichever the axes have."""

    __slots__ = ("array", "key")

    def __init__(self, array: NDArray[Any], where: Index) -> None:
        self.array = array
        if all(isinstance(w, slice) for w in where):
            self.key: tuple[Any, ...] = where
        else:
            lists = [np.arange(w.start, w.stop) if isinstance(w, slice) else w for w in where]
            self.key = np.ix_(*lists)

    def __setitem__(self, _: Any, value: Any) -> None:
        self.array[self.key] = value


def _at(array: NDArray[Any], where: Index, position: int) -> _Target:
    return _Target(array[..., position], where)


def _put(array: NDArray[Any], where: Index, value: Any) -> None:
    _Target(array, where)[...] = value


def _flat(values: NDArray[Any], width: int, mask: NDArray[np.bool_] | None, axes: int) -> NDArray[Any]:
    if values.ndim == axes:
        values = np.repeat(values.reshape(-1), width) if width > 1 else values.reshape(-1)
    else:
        values = values.reshape(-1)
    return values if mask is None else values[mask]
