"""Parts of a grid evaluated block by block, with nothing computed twice that settings or axes share.

Lengths and users are worked out once for a part and cut into blocks that a core's cache holds. Settings that differ in
their tiers alone (drives, host memory, stores) share everything up to the tiers, and equal tiers their columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.case_arrays import Cases, Lengths
from llmcap.analyses.evaluate import Columns, Evaluator
from llmcap.analyses.options import Options
from llmcap.analyses.setting import Setting
from llmcap.analyses.sweeps.grid import Part
from llmcap.analyses.tiers import SharedTiers
from llmcap.engine.cost import Value

if TYPE_CHECKING:
    from llmcap.analyses.serving.load import LoadModel

Array = NDArray[np.float64]
Block = tuple[slice, ...]
_Model = TypeVar("_Model")

#: Points of one evaluation: its working arrays stay in a core's cache, its number of numpy calls hardly counts.
BLOCK_POINTS: Final = 67_000
#: Points whose evaluation up to the tiers is kept for settings that come later.
KEPT_POINTS: Final = 200_000
_MOST_MODELS: Final = 24
#: A freed block of this size makes the C library's allocator keep memory for reuse instead of giving pages back and
#: faulting them in again for every temporary array (glibc raises its mmap threshold to the largest freed block).
_BALLAST_BYTES: Final = 24_000_000


@dataclass(slots=True)
class _Shared:
    """A block evaluated up to its tiers, and the tiers evaluated on it."""

    cases: Cases
    tiers: SharedTiers


class Blockwise:
    """Evaluates the parts of a sweep; `wanted` columns only."""

    def __init__(self, wanted: frozenset[str], *, by_tier: bool) -> None:
        self.wanted = wanted
        self.by_tier = by_tier
        self.under_load = any(name.startswith("serving_") for name in wanted)
        self._evaluators: dict[Options, Evaluator] = {}
        self._bases: dict[Options, Evaluator] = {}
        self._loads: dict[Options, LoadModel] = {}
        ballast = np.empty(_BALLAST_BYTES, dtype=np.uint8)
        del ballast
        self._kept: dict[tuple[object, ...], _Shared] = {}
        self._kept_points = 0

    def evaluator(self, setting: Setting) -> Evaluator:
        """The models of a setting; settings that differ in their tiers alone share tables."""
        found = self._evaluators.get(setting.options)
        if found is None:
            key = _up_to_tiers(setting)
            base = self._bases.get(key) or _remember(self._bases, key, Evaluator.of(setting))
            found = base if base.setting is setting else base.with_tiers_of(setting)
            _remember(self._evaluators, setting.options, found)
        return found

    def blocks(self, part: Part, tiers: Sequence[str], *, keep: bool) -> Iterator[tuple[Block, Columns]]:
        """Each block of a part with its columns.

        Parameters
        ----------
        part : Part
        tiers : sequence of str
            Tiers whose columns are needed.
        keep : bool
            Whether other settings with the same numbers may follow.
        """
        evaluator = self.evaluator(part.setting)
        shape = tuple(len(r) for r in part.rows)
        names = ("users", "context_tokens", "cached_tokens", "output_tokens")
        u, c, k, o = (part.numbers[name] for name in names)
        digest: tuple[object, ...] = ()
        if keep:
            digest = (_up_to_tiers(part.setting), shape, *((a.shape, hash(a.tobytes())) for a in (u, c, k, o)))
        lengths: Lengths | None = None
        for number, block in enumerate(blocks(shape, BLOCK_POINTS)):
            shared = self._kept.get((digest, number)) if keep else None
            if shared is None:
                lengths = lengths or evaluator.lengths(u, c, k, o, self.wanted)
                cases = evaluator.cases(lengths.cut(block), self.wanted, with_phases=False)
                shared = _Shared(cases, SharedTiers())
                if keep:
                    self._keep((digest, number), shared)
            cases = shared.cases
            given = {n: cut(a, block) for n, a in part.numbers.items()}
            found: dict[str, dict[str, Value]] = {}
            if self.by_tier:
                found = evaluator.tier_columns(cases, self.wanted, shared.tiers, only=tiers)
            served = self._served(part.setting, cases) if self.under_load else {}
            yield block, Columns({**cases.results, **given, **served}, {}, found)

    def _served(self, setting: Setting, cases: Cases) -> dict[str, Any]:
        """Columns of a steady state; nothing but whether it fits where all users arrive together."""
        from llmcap.analyses.serving.load import PREFIX, WORDS, LoadModel

        wanted = {name.removeprefix(PREFIX) for name in self.wanted if name.startswith(PREFIX)}
        found: dict[str, Any] = {PREFIX + name: -1 if name in WORDS else np.nan for name in wanted}
        if "fits" in wanted:
            found[PREFIX + "fits"] = cases.fits
        if setting.options.arrivals == "together":
            return found
        load = self._loads.get(setting.options)
        if load is None:
            load = _remember(self._loads, setting.options, LoadModel.of(setting))
        columns = load.columns(cases.users, cases.context, cases.cached, cases.output)
        return found | {PREFIX + name: value for name, value in columns.items() if name in wanted}

    def _keep(self, key: tuple[object, ...], shared: _Shared) -> None:
        self._kept_points += shared.cases.fits.size
        if self._kept_points > KEPT_POINTS:
            self._kept = {}
            self._kept_points = shared.cases.fits.size
        self._kept[key] = shared


def _remember(known: dict[Options, _Model], key: Options, model: _Model) -> _Model:
    """Add to the models at hand; the oldest go, since each holds tables of up to some ten megabytes."""
    known[key] = model
    for old in list(known)[:-_MOST_MODELS]:  # of a copy, since other threads add to it
        known.pop(old, None)
    return model


def blocks(shape: tuple[int, ...], points: int) -> Iterator[Block]:
    """Cut a grid into boxes of at most `points` cells, in order; the last axes stay whole as long as they fit."""
    axis, inner = len(shape) - 1, 1
    while axis > 0 and inner * shape[axis] <= points:
        inner *= shape[axis]
        axis -= 1
    # Of one size rather than some full ones and a small last one, which would cost nearly as much.
    most = max(points // inner, 1)
    width = math.ceil(shape[axis] / math.ceil(shape[axis] / most))
    for outer in np.ndindex(*shape[:axis]):
        for lo in range(0, shape[axis], width):
            head = tuple(slice(i, i + 1) for i in outer)
            yield (*head, slice(lo, min(lo + width, shape[axis])), *(slice(0, n) for n in shape[axis + 1 :]))


def cut(values: Array, block: Block) -> Array:
    """A block of an array that has one dimension per axis, those that it does not depend on of length 1."""
    return values[tuple(s if n > 1 else slice(None) for s, n in zip(block, values.shape, strict=True))]


def _up_to_tiers(setting: Setting) -> Options:
    """The options that decide everything but the tiers."""
    bare = replace(setting.options.together(), drive=None, drives=None, dram=None, store=None)
    # Cards carry collectives between servers; inside one they only feed a remote store.
    return replace(bare, nic=None, nics=None) if setting.machine.servers == 1 else bare
