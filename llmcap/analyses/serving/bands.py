"""How wide the times of a steady state are, on devices whose runs an engine profile knows and on others.

A profile's bands are what measured runs were off by, their kernels' errors included. On a family of devices that had no
part in them the kernels' own bands, measured or assumed, come on top.
"""

from __future__ import annotations

import numpy as np

from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.engine.cost import Cost, Value
from llmcap.records import dataclass
from llmcap.specs.engine import Range

Ends = tuple[Value, Value]


@dataclass(frozen=True, slots=True)
class Bands:
    """Low and high as factors on what is predicted."""

    tpot: Ends
    ttft: Ends
    throughput: Ends


def bands(
    model: ServingModel, context: Value, cached: Value, output: Value, each: Value, prefill: ServingModel | None = None
) -> Bands:
    """The bands of a setting under load.

    Parameters
    ----------
    model : ServingModel
    context, cached, output : float or ndarray
        Tokens of each request.
    each : float or ndarray
        Sequences that a replica decodes.
    prefill : ServingModel, optional
        Of the devices that prefill, where those are others.

    Notes
    -----
    Errors of the engine and of the kernels are taken as independent: the logarithms add up as squares.
    """
    engine = model.engine
    if model.setting.machine.device.family in engine.families:
        return Bands(*((band.low, band.high) for band in (engine.tpot, engine.ttft, engine.throughput)))
    decode = model.decode_cost(each, context, output)
    prompt = (prefill or model).prefill_shared_cost(np.asarray(context - cached), np.asarray(cached))
    low, high = _ends(decode * (output / each) + prompt)
    return Bands(
        joined(engine.tpot, _ends(decode)), joined(engine.ttft, _ends(prompt)),
        joined(engine.throughput, (1.0 / high, 1.0 / low)),
    )  # fmt: skip


def joined(band: Range, other: Ends) -> Ends:
    """A band beside another, independent one.

    Examples
    --------
    Ends at a factor e^0.3 and e^0.4 from the middle make one at e^0.5:

    >>> low, high = joined(Range(low=np.exp(-0.3), high=np.exp(0.4)), (np.exp(-0.4), np.exp(0.3)))
    >>> round(float(np.log(low)), 12), round(float(np.log(high)), 12)
    (-0.5, 0.5)
    """
    low, high = other
    return np.exp(-np.hypot(np.log(band.low), np.log(low))), np.exp(np.hypot(np.log(band.high), np.log(high)))


def _ends(cost: Cost) -> Ends:
    return cost.low / cost.serial, cost.high / cost.serial
