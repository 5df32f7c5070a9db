"""A large scenario made small: the same question asked at fewer points of its axes, both ends among them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from llmcap.analyses.options import canonical
from llmcap.analyses.sweeps.grid import NUMERIC
from llmcap.specs.scenario import Scenario, parse_range
from llmcap.units import QuantityError, parse_count

#: Values that an axis keeps as long as another one has more.
_FEW = 4


def thinned(scenario: Scenario, most: int, per_axis: int = 60) -> Scenario:
    """The scenario with at most `most` points, if its axes allow it.

    Parameters
    ----------
    scenario : Scenario
    most : int
        Points of the grid.
    per_axis : int
        Values of one axis of numbers.

    Returns
    -------
    Scenario
        Its axes hold values of the original ones. Axes of numbers become coarser first, evenly on a logarithmic scale
        where they span more than a factor of fifty; then those of models, machines and the like.
    """
    axes = {name: list(parse_range(v) if isinstance(v, str) else v) for name, v in scenario.axes.items()}
    numeric = {name: numbers for name, values in axes.items() if (numbers := _numbers(name, values)) is not None}
    if scenario.combine == "zip":
        count = len(next(iter(axes.values())))
        kept = spread_positions(np.arange(count, dtype=np.float64), most)
        return _with_axes(scenario, {name: [values[i] for i in kept] for name, values in axes.items()})
    sizes = {name: len(values) for name, values in axes.items()}
    for name in numeric:
        sizes[name] = min(sizes[name], per_axis)
    while math.prod(sizes.values()) > most:
        group = [n for n in numeric if sizes[n] > _FEW] or [n for n in sizes if sizes[n] > 1]
        longest = max(group, key=lambda n: sizes[n])
        if sizes[longest] <= 1:
            break
        sizes[longest] = max(int(sizes[longest] * 0.8), 1) if sizes[longest] > 2 else 1
    found = {}
    for name, values in axes.items():
        places = numeric.get(name)
        kept = spread_positions(np.arange(len(values), dtype=np.float64) if places is None else places, sizes[name])
        found[name] = [values[i] for i in kept]
    return _with_axes(scenario, found)


def spread_positions(numbers: np.ndarray[Any, np.dtype[np.float64]], count: int) -> list[int]:
    """At most `count` positions of numbers, evenly spread between the first and the last of them.

    >>> spread_positions(np.array([1.0, 2.0, 3.0, 100.0, 1000.0]), 3)
    [0, 3, 4]
    """
    if numbers.size <= count:
        return list(range(numbers.size))
    if count <= 1:
        return [0]
    rising = bool((np.diff(numbers) > 0).all())
    if not rising:
        return sorted({round(float(i)) for i in np.linspace(0, numbers.size - 1, count)})
    wide = numbers[0] > 0 and numbers[-1] / numbers[0] > 50
    scale = np.log(numbers) if wide else numbers
    wanted = np.linspace(scale[0], scale[-1], count)
    return sorted({int(np.abs(scale - at).argmin()) for at in wanted})


def _numbers(name: str, values: list[Any]) -> np.ndarray[Any, np.dtype[np.float64]] | None:
    if canonical(name) not in (*NUMERIC, "drives", "nics", "devices", "chunk_tokens", "transfers_in_flight"):
        return None
    try:
        return np.array([float(parse_count(v if isinstance(v, int) else str(v))) for v in values])
    except QuantityError:
        return None


def _with_axes(scenario: Scenario, axes: dict[str, list[Any]]) -> Scenario:
    changed = scenario.model_dump(mode="python", by_alias=True) | {"axes": {n: tuple(v) for n, v in axes.items()}}
    return Scenario.model_validate(changed)
