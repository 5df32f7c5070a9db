"""A scenario laid out: axes, settings, and the flat case axis cut into chunks of bounded size.

The flat order is the scenario's: its last axis varies fastest. A chunk is a box of that grid (some axes fixed, one
sliced, the rest whole), so that within it whatever depends on one axis alone is computed once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.estimate import check_steps
from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.options import AXES, Options, canonical, count, known_options, options_from
from llmcap.analyses.setting import Setting, model_and_digest, resolve
from llmcap.analyses.sweeps.conditions import FACTS, NUMBERS, Condition, parse_condition
from llmcap.analyses.sweeps.facts import facts_of, model_facts
from llmcap.arch.structure import Structure, structure_of
from llmcap.errors import DocumentError, LlmcapError, OptionError, Problem, did_you_mean, printable
from llmcap.specs.scenario import OVERRIDE, Scenario, parse_range

Array = NDArray[np.float64]
Choice = Mapping[str, Any]

NEW: Final = "new_tokens"
"""Axis of tokens beside the cached ones: context = cached_tokens + new_tokens."""
SESSIONS: Final = "sessions"
"""Axis of caches kept in all: as many of their users as fit device memory are active, one at least."""
NUMERIC: Final = (*AXES, NEW, SESSIONS)
SETTING_INPUTS: Final = (
    "model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp", "weight_dtype", "activation_dtype", "kv_dtype",
    "attention_dtype", "kv_policy", "engine", "chunk_tokens", "assumptions",
)  # fmt: skip
CHUNK_CASES: Final = 131_072

_FIELDS: Final = {"users": "users", "context": "context_tokens", "cached_tokens": "cached_tokens",
                  "output_tokens": "output_tokens", SESSIONS: SESSIONS}  # fmt: skip


@dataclass(frozen=True)
class Axis:
    """One dimension of the grid; zipped axes are one dimension with several names."""

    names: tuple[str, ...]
    choices: tuple[Choice, ...]
    """Structural options of each entry."""
    numbers: dict[str, Array]
    """Numeric options, one value per entry."""

    def __len__(self) -> int:
        return len(self.choices)

    @cached_property
    def _firsts(self) -> NDArray[np.intp]:
        """For each entry the first one with the same structure."""
        if not any(self.choices[i] for i in (0, -1)):
            return np.zeros(len(self.choices), dtype=np.intp)  # an axis of numbers
        seen: dict[tuple[Any, ...], int] = {}
        keys = (tuple(sorted(choice.items())) for choice in self.choices)
        return np.array([seen.setdefault(key, i) for i, key in enumerate(keys)], dtype=np.intp)

    def groups(self, lo: int = 0, hi: int | None = None) -> list[tuple[Choice, NDArray[np.intp]]]:
        """Entries lo to hi by their structure: (options, positions counted from lo)."""
        firsts = self._firsts[lo:hi]
        return [(self.choices[i], np.flatnonzero(firsts == i)) for i in dict.fromkeys(firsts.tolist())]


@dataclass(frozen=True, slots=True)
class Box:
    """A chunk of the flat case axis: entries `lo[i]` to `hi[i]` of each axis."""

    index: int
    lo: tuple[int, ...]
    hi: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(h - low for low, h in zip(self.lo, self.hi, strict=True))


@dataclass(frozen=True, slots=True)
class Part:
    """The cases of a box that share a setting."""

    setting: Setting
    choice: Choice
    rows: tuple[NDArray[np.intp], ...]
    """Positions in the box along each axis."""
    numbers: dict[str, Array]
    """users, context_tokens, cached_tokens, output_tokens; one dimension per axis, broadcastable."""
    keep: NDArray[np.bool_] | None
    """Cases that meet the conditions; None: all."""


class Grid:
    """A scenario with its defaults laid under it, ready to be walked through."""

    def __init__(self, scenario: Scenario, *, file: str = "", chunk_cases: int = CHUNK_CASES) -> None:
        self.scenario = scenario
        self.file = file or scenario.id
        self.chunk_cases = chunk_cases
        self._settings: dict[Options, Setting] = {}
        self._facts: dict[str, Structure] = {}
        base = self._canonical(dict(scenario.base), "base")
        self.base_numbers = {n: self._number(n, base.pop(n)) for n in NUMERIC if n in base}
        self.base = base
        self.axes = self._axes()
        self._check_names()
        known = (*SETTING_INPUTS, *FACTS, *NUMBERS)
        self.conditions = tuple(parse_condition(text, self.file, known) for text in scenario.where)
        self.shape = tuple(len(axis) for axis in self.axes)

    # -- size --------------------------------------------------------------------------------------------------------

    @property
    def points(self) -> int:
        """Cases before the conditions are applied."""
        return math.prod(self.shape)

    @property
    def has_sessions(self) -> bool:
        """Whether sessions are given, and users follow from them."""
        return SESSIONS in self.base_numbers or any(SESSIONS in axis.numbers for axis in self.axes)

    @cached_property
    def cuts(self) -> tuple[int, int]:
        """(axis that is sliced, entries per slice)."""
        axis = len(self.shape) - 1
        inner = 1
        while axis > 0 and inner * self.shape[axis] <= self.chunk_cases:
            inner *= self.shape[axis]
            axis -= 1
        width = max(self.chunk_cases // inner, 1)
        slices = math.ceil(self.shape[axis] / width)
        return axis, math.ceil(self.shape[axis] / slices)

    @property
    def chunks(self) -> int:
        axis, width = self.cuts
        return math.prod(self.shape[:axis]) * math.ceil(self.shape[axis] / width)

    def box(self, index: int) -> Box:
        """Chunk number `index` in the order of the rows."""
        axis, width = self.cuts
        outer, piece = divmod(index, math.ceil(self.shape[axis] / width))
        lo = [int(i) for i in np.unravel_index(outer, self.shape[:axis])] if axis else []
        hi = [i + 1 for i in lo]
        lo += [piece * width, *(0 for _ in self.shape[axis + 1 :])]
        hi += [min((piece + 1) * width, self.shape[axis]), *self.shape[axis + 1 :]]
        return Box(index, tuple(lo), tuple(hi))

    def offset(self, index: int) -> int:
        """Points before chunk `index`."""
        axis, width = self.cuts
        outer, piece = divmod(index, math.ceil(self.shape[axis] / width))
        return (outer * self.shape[axis] + min(piece * width, self.shape[axis])) * math.prod(self.shape[axis + 1 :])

    def trimmed(self, box: Box, limit: int) -> Box:
        """The chunk without those entries of the sliced axis that lie wholly behind the first `limit` points."""
        axis, _ = self.cuts
        room = max(limit - self.offset(box.index), 0)
        entries = max(math.ceil(room / math.prod(self.shape[axis + 1 :])), 1)
        hi = min(box.hi[axis], box.lo[axis] + entries)
        return Box(box.index, box.lo, (*box.hi[:axis], hi, *box.hi[axis + 1 :]))

    # -- content -----------------------------------------------------------------------------------------------------

    def parts(self, box: Box) -> Iterator[Part]:
        """The settings of a chunk with their cases."""
        groups = [axis.groups(lo, hi) for axis, lo, hi in zip(self.axes, box.lo, box.hi, strict=True)]
        for combination in itertools.product(*groups):
            choice: dict[str, Any] = {}
            for options, _ in combination:
                choice.update(options)
            setting = self.setting(choice)
            if setting is None:
                continue
            rows = tuple(positions for _, positions in combination)
            numbers = self._with_active(setting, self._numbers_of(box, rows))
            keep = self._keep(setting, numbers)
            if keep is not None and not keep.any():
                continue
            check_steps(setting, int(numbers["context_tokens"].max()))
            yield Part(setting, choice, rows, self._checked(numbers, keep), keep)

    def choices(self) -> Iterator[dict[str, Any]]:
        """Every structural choice of the grid, in order, those that the conditions exclude too."""
        for combination in itertools.product(*(axis.groups() for axis in self.axes)):
            choice: dict[str, Any] = {}
            for options, _ in combination:
                choice.update(options)
            yield choice

    @cached_property
    def settings(self) -> tuple[tuple[Setting, Choice], ...]:
        """The settings of all cases, in order, with the choice that leads to each; DocumentError where none is left."""
        found = ((self.setting(choice), choice) for choice in self.choices())
        kept = tuple((setting, choice) for setting, choice in found if setting is not None)
        if not kept:
            raise self._problem("where", "no combination is left", "loosen the conditions")
        return kept

    def setting(self, choice: Choice) -> Setting | None:
        """The resolved setting of a choice; None when the conditions exclude it.

        Raises
        ------
        LlmcapError
            A combination that cannot be and that no condition excludes.
        """
        given = {k: v for k, v in {**self.base, **choice}.items() if k != OVERRIDE}
        options = options_from(given, under_load=True)
        if options in self._settings:
            return self._settings[options]
        structural = [c for c in self.conditions if not c.of_numbers()]
        try:
            setting = resolve(options.together())
            if options.arrivals != "together":
                from llmcap.analyses.serving.load import under_load

                setting = under_load(setting, options)
        except LlmcapError as error:
            if any(_fails(c, self._early(options)) for c in structural):
                return None
            shown = ", ".join(f"{k} {v}" for k, v in choice.items())
            elsewhere = "" if "unknown" in error.message else "; or leave such cases out with a condition under 'where'"
            hint = f"{error.hint}{elsewhere}".lstrip("; ")
            error_type = OptionError("", f"{error.message} (case: {shown})", hint)
            raise error_type if isinstance(error, OptionError) else error from None
        if not all(bool(c.holds(facts_of(setting))) for c in structural):
            return None
        self._settings[options] = setting
        return setting

    def count_cases(self) -> tuple[int, int]:
        """(cases, cases times the tiers of each) after the conditions."""
        cases = rows = 0
        if not any(c.of_numbers() for c in self.conditions):
            for combination in itertools.product(*(axis.groups() for axis in self.axes)):
                choice = {k: v for options, _ in combination for k, v in options.items()}
                setting = self.setting(choice)
                if setting is not None:
                    number = math.prod(len(positions) for _, positions in combination)
                    cases += number
                    rows += number * len(self.tiers_of(setting))
            return cases, rows
        for index in range(self.chunks):
            for part in self.parts(self.box(index)):
                number = math.prod(len(r) for r in part.rows) if part.keep is None else int(part.keep.sum())
                cases += number
                rows += number * len(self.tiers_of(part.setting))
        return cases, rows

    def tiers_of(self, setting: Setting) -> tuple[str, ...]:
        """Tiers of a setting's machine that get a row."""
        names = ("hbm", *(tier.name for tier in setting.machine.tiers))
        return tuple(n for n in names if not self.scenario.tiers or n in self.scenario.tiers)

    # -- reading -----------------------------------------------------------------------------------------------------

    def _canonical(self, given: dict[str, Any], where: str) -> dict[str, Any]:
        clean: dict[str, Any] = {}
        for name, value in given.items():
            plain = canonical(name)
            if plain not in (*known_options(), NEW):
                hint = did_you_mean(name, (*known_options(), NEW)) or f"known: {', '.join((*known_options(), NEW))}"
                raise self._problem(f"{where}.{name}", "no such option", hint)
            if plain in clean:
                raise self._problem(f"{where}.{name}", f"stands for {plain}, which is given already", "keep one")
            clean[plain] = value
        return clean

    def _number(self, name: str, value: Any) -> float:
        return float(count(name, value, minimum=0 if name == "cached_tokens" else 1))

    def _axes(self) -> tuple[Axis, ...]:
        scenario = self.scenario
        single: list[Axis] = []
        seen: set[str] = set()
        for name, values in scenario.axes.items():
            plain = OVERRIDE if name == OVERRIDE else next(iter(self._canonical({name: None}, "axes")))
            if plain in seen:
                raise self._problem(f"axes.{name}", f"{plain} is an axis already", "keep one")
            seen.add(plain)
            listed = parse_range(values) if isinstance(values, str) else values
            single.append(self._axis(plain, listed))
        if scenario.combine == "grid":
            return tuple(single)
        lengths = {len(axis) for axis in single}
        if len(lengths) > 1:
            lengths_said = ", ".join(f"{axis.names[0]} {len(axis)}" for axis in single)
            raise self._problem("axes", f"zip needs axes of one length, not {lengths_said}", "or write combine: grid")
        choices = tuple(
            {k: v for c in entry for k, v in c.items()} for entry in zip(*(a.choices for a in single), strict=True)
        )
        numbers = {k: v for axis in single for k, v in axis.numbers.items()}
        return (Axis(tuple(axis.names[0] for axis in single), choices, numbers),)

    def _axis(self, name: str, values: tuple[Any, ...]) -> Axis:
        if name in NUMERIC:
            numbers = np.array([self._number(name, v) for v in values], dtype=np.float64)
            return Axis((name,), ({},) * len(values), {name: numbers})
        if name != OVERRIDE:
            return Axis((name,), tuple({name: v} for v in values), {})
        sets = [self._canonical(dict(self.scenario.overrides[v]), f"overrides.{v}") for v in values]
        numeric = [n for n in NUMERIC if any(n in s for s in sets)]
        columns = {
            n: np.array([self._number(n, s.pop(n, self.base_numbers.get(n, AXES.get(n, 1)))) for s in sets])
            for n in numeric
        }
        structure = tuple({OVERRIDE: v, **s} for v, s in zip(values, sets, strict=True))
        return Axis((name, *numeric), structure, columns)

    def _check_names(self) -> None:
        used = [name for axis in self.axes for name in (*axis.numbers, *axis.choices[0])]
        for name in used:
            if used.count(name) > 1:
                raise self._problem("axes", f"{name} is varied by two axes", "keep one")
        numbers = {*self.base_numbers, *(n for axis in self.axes for n in axis.numbers)}
        if SESSIONS in numbers and "users" in numbers:
            raise self._problem("axes", "both users and sessions", "sessions decide how many are active; keep one")
        if NEW in numbers and "context" in numbers:
            raise self._problem(
                "axes", "both context and new_tokens", "context is cached_tokens + new_tokens; keep one"
            )

    def _numbers_of(self, box: Box, rows: tuple[NDArray[np.intp], ...]) -> dict[str, Array]:
        dimensions = len(self.axes)
        found: dict[str, Array] = {
            n: np.full((1,) * dimensions, self.base_numbers.get(n, float(count(n, default)))) if n != "cached_tokens"
            else np.full((1,) * dimensions, self.base_numbers.get(n, 0.0))
            for n, default in AXES.items()
        }  # fmt: skip
        for name in (NEW, SESSIONS):
            if name in self.base_numbers:
                found[name] = np.full((1,) * dimensions, self.base_numbers[name])
        for i, (axis, positions) in enumerate(zip(self.axes, rows, strict=True)):
            for name, values in axis.numbers.items():
                shape = [1] * dimensions
                shape[i] = len(positions)
                found[name] = values[box.lo[i] + positions].reshape(shape)
        if NEW in found:
            found["context"] = found["cached_tokens"] + found.pop(NEW)
        return {_FIELDS[name]: values for name, values in found.items()}

    def _with_active(self, setting: Setting, numbers: dict[str, Array]) -> dict[str, Array]:
        """With sessions, the users are those of them that device memory holds together."""
        if SESSIONS not in numbers:
            return numbers
        held = MemoryModel.of(setting).users_held(numbers["context_tokens"] + numbers["output_tokens"])
        return {**numbers, "users": np.minimum(numbers[SESSIONS], np.maximum(held, 1.0))}

    def _keep(self, setting: Setting, numbers: Mapping[str, Array]) -> NDArray[np.bool_] | None:
        conditions = [c for c in self.conditions if c.of_numbers()]
        if not conditions:
            return None
        values = {**facts_of(setting), **numbers}
        shape = np.broadcast_shapes(*(a.shape for a in numbers.values()))
        keep = np.ones(shape, dtype=np.bool_)
        for condition in conditions:
            keep &= condition.holds(values)
        return keep

    def _checked(self, numbers: dict[str, Array], keep: NDArray[np.bool_] | None) -> dict[str, Array]:
        cached, context = numbers["cached_tokens"], numbers["context_tokens"]
        wrong = cached >= context
        if not wrong.any():
            return numbers
        if keep is None or (wrong & keep).any():
            hint = "leave such cases out with 'where: [cached_tokens < context_tokens]', or use the axis new_tokens"
            raise self._problem("axes", "the cached prefix must be shorter than the context", hint)
        # Cases that are left out still stand in the grid; they must not divide by zero there.
        return {**numbers, "cached_tokens": np.where(wrong, 0.0, cached)}

    def _early(self, options: Options) -> dict[str, Any]:
        """What conditions can know of a choice that does not resolve: the options given, and the model's facts."""
        values = {name: getattr(options, name) for name in Options.__slots__ if getattr(options, name) is not None}
        if options.model not in self._facts:
            self._facts[options.model] = structure_of(model_and_digest(options.model)[0])
        return {**values, **model_facts(self._facts[options.model])}

    def _problem(self, path: str, message: str, hint: str) -> DocumentError:
        return DocumentError([Problem(self.file, None, printable(path, 80), message, hint)])


def _fails(condition: Condition, values: Mapping[str, Any]) -> bool:
    try:
        return not bool(condition.holds(values))
    except (KeyError, TypeError):
        return False
