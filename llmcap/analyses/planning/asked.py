"""An inverse question as it is asked: the options, the load, the promises, and the prices to answer with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from llmcap.analyses.economics import economics
from llmcap.analyses.estimate import answer
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import Options
from llmcap.analyses.planning.objectives import Band, Load, Measured, Objectives, measure
from llmcap.analyses.planning.sensitivity import Knob, turned, turned_load, turned_objectives
from llmcap.analyses.result import Estimate
from llmcap.analyses.setting import resolve
from llmcap.errors import OptionError
from llmcap.records import dataclass
from llmcap.specs.prices import PriceList
from llmcap.units import format_bytes, format_seconds

Row = dict[str, Any]
#: Nothing turned.
NO_KNOB = Knob("")
#: Servers that are joined at most when devices are counted.
MOST_SERVERS = 16


@dataclass(frozen=True, slots=True)
class Asked:
    """A question's premises; knobs turn them for the tornado table."""

    options: Options
    load: Load
    objectives: Objectives
    prices: PriceList | None = None
    band: Band = "best"
    knob: Knob = NO_KNOB

    def with_knob(self, knob: Knob) -> Asked:
        """The same question with one thing turned."""
        return replace(
            self, knob=knob, load=turned_load(self.load, knob), objectives=turned_objectives(self.objectives, knob)
        )

    def with_band(self, band: Band) -> Asked:
        """The same question with times at one end of their bands."""
        return replace(self, band=band)

    def with_options(self, **changes: Any) -> Asked:
        """The same question of another machine or layout."""
        return replace(self, options=replace(self.options, **changes))

    def evaluator(self) -> Evaluator:
        """Models of the machine, with the knob turned.

        Raises
        ------
        OptionError
            Options that do not go together.
        """
        return Evaluator.of(turned(resolve(self.options), self.knob))

    def measure(self, evaluator: Evaluator, users: Any = None) -> Measured:
        """How the load, or other numbers of users, measures up."""
        return measure(evaluator, self.load, self.objectives, users, band=self.band)

    def estimate(self, users: int | None = None) -> Estimate:
        """The estimate at the answer, costs included when there are prices."""
        n = self.load.users if users is None else users
        case = {"users": n, "context": self.load.context, "cached_tokens": self.load.cached,
                "output_tokens": self.load.output}  # fmt: skip
        setting = resolve(self.options)
        return answer(setting, case, max(self.load.sessions, n), Evaluator.of(setting).evaluate(*case.values()))

    def costs(self, estimate: Estimate) -> Row:
        """Power and money of an estimate; empty without prices."""
        return economics(estimate.setting, estimate.inputs, estimate.results, self.prices)


def device_counts(options: Options) -> Iterator[int]:
    """Numbers of devices one can have: divisors of a server, then whole servers."""
    whole = resolve(replace(options, devices=None, tp=None, pp=None, dp=None, ep=None, cp=None)).machine.server
    yield from (d for d in range(1, whole.devices + 1) if whole.devices % d == 0)
    if whole.nics is not None:
        yield from (whole.devices * n for n in range(2, MOST_SERVERS + 1))


def layouts_of(options: Options, devices: int) -> list[dict[str, int]]:
    """Options that spread a model over so many devices, as far as no degree is given by hand.

    Within a server the default layout. Over several, tensor parallelism stays within one, where the fabric is fast;
    the servers are replicas or, for a model that one does not hold, pipeline stages; last the default.
    """
    alone = replace(options, devices=None, tp=None, pp=None, dp=None, ep=None, cp=None)
    setting = resolve(alone)
    whole, tp = setting.machine.server.devices, setting.parallelism.tp
    degrees = (options.tp, options.pp, options.dp, options.cp)
    if devices <= whole or any(degree is not None for degree in degrees):
        return [{"devices": devices}]
    servers, inside = devices // whole, whole // tp
    return [
        {"devices": devices, "tp": tp, "dp": servers * inside},
        {"devices": devices, "tp": tp, "pp": servers, "dp": inside},
        {"devices": devices},
    ]


def layouts(asked: Asked) -> Iterator[tuple[int, Asked, Evaluator]]:
    """Each number of devices that the options allow, fewest first, in each layout."""
    for devices in device_counts(asked.options):
        for layout in layouts_of(asked.options, devices):
            tried = asked.with_options(**layout)
            try:
                yield devices, tried, tried.evaluator()
            except OptionError:
                continue


def shortfalls(measured: Measured, objectives: Objectives, evaluator: Evaluator) -> list[Row]:
    """What a single case violates and by how much it would have to be relaxed, worst first.

    Returns
    -------
    list of dict
        what, asked, needed [s or B], factor, text.
    """
    found: list[Row] = []
    for what, ratio in measured.ratios.items():
        factor = float(ratio[0])
        if factor <= 1.0 + 1e-12:
            continue
        if what == "capacity":
            usable = max(evaluator.pool + evaluator.weights_per_device, 0.0)
            needed = factor * usable if usable else float("nan")
            short = (needed - usable) * evaluator.setting.machine.devices
            text = (
                f"device memory: {format_bytes(needed)} a device for weights and caches, usable are "
                f"{format_bytes(usable)}; {format_bytes(short)} more in all, a shorter context, or narrower dtypes"
            )
            found.append({"what": what, "asked": usable, "needed": needed, "factor": factor, "text": text})
        elif bool(measured.fits[0]):
            asked = float(getattr(objectives, what))
            needed = asked * factor
            text = f"--{what} {format_seconds(needed)} instead of {format_seconds(asked)}, {more(factor)}"
            found.append({"what": what, "asked": asked, "needed": needed, "factor": factor, "text": text})
    return sorted(found, key=lambda row: float(np.nan_to_num(row["factor"], nan=np.inf)), reverse=True)


def more(factor: float) -> str:
    """By how much a limit gives way.

    >>> more(1.15), more(25.3)
    ('15% more', '25.3 times as much')
    """
    if factor >= 2.0:
        return f"{float(f'{factor:.3g}'):,g} times as much"
    return f"{factor - 1.0:.0%} more" if factor >= 1.005 else f"{factor - 1.0:.2%} more"


def slack(measured: Measured, objectives: Objectives) -> Row:
    """How far each promise is kept: value, limit, and the share that is left."""
    values = {"ttft": (measured.ttft, objectives.ttft), "tpot": (measured.tpot, objectives.tpot)}
    found: Row = {}
    for name, ratio in measured.ratios.items():
        left = 1.0 - float(ratio[0])
        if name == "capacity":
            found[name] = {"left": left}
        else:
            value, limit = values[name]
            found[name] = {"value": float(value[0]), "limit": limit, "left": left}
    return found
