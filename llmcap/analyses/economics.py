"""Power, energy and money of an answer. What has no price or no power figure is absent, not zero."""

from __future__ import annotations

from typing import Any

from llmcap.analyses.costs import CostModel
from llmcap.analyses.setting import Setting
from llmcap.errors import OptionError
from llmcap.specs.prices import PriceList
from llmcap.specs.registry import load_as
from llmcap.units import QuantityError, parse_quantity

Row = dict[str, Any]
_MILLION = 1e6
_HOUR = 3600.0


def price_list(
    prices: str | None, gpu_hour: object = None, kwh: object = None, *, device: str | None = None
) -> PriceList | None:
    """The price list asked for, with prices given by hand laid over it.

    Parameters
    ----------
    prices : str, optional
        Id or path of a price list.
    gpu_hour : float or str, optional
        One hour of one device with its share of the server; power is on top when `kwh` is given, else included. [USD]
    kwh : float or str, optional
        [USD]
    device : str, optional
        Id of the device that `gpu_hour` is for.

    Raises
    ------
    OptionError
        No amount, or a price of electricity with nothing to add it to.
    """
    listed = None if prices is None else load_as(PriceList, "prices", prices).document
    if gpu_hour is None and kwh is None:
        return listed
    changes: dict[str, Any] = {}
    if gpu_hour is not None:
        if device is None:
            raise OptionError(
                "--price-gpu-hour", "is the price of one kind of device", "give --prices for several kinds"
            )
        held = {} if listed is None else dict(listed.device_hour)
        changes["device_hour"] = held | {device: dollars("price_gpu_hour", gpu_hour)}
        changes["device_hour_includes_power"] = kwh is None
    if kwh is not None:
        changes["electricity"] = dollars("price_kwh", kwh)
    if listed is None:
        own = PriceList.model_construct(id="given", name="Given by hand", as_of="", sources=())
        return own.model_copy(update=changes)
    return listed.model_copy(update={**changes, "name": f"{listed.name}, changed by hand"})


def dollars(name: str, value: object) -> float:
    """An amount of money: a number, or text with USD.

    Raises
    ------
    OptionError
    """
    text = str(value).strip()
    try:
        return parse_quantity(text if text[-1:].isalpha() else f"{text} USD", "usd", allow_zero=False)
    except QuantityError as error:
        raise OptionError("--" + name.replace("_", "-"), error.message, "write for example '2.50 USD'") from None


def economics(setting: Setting, inputs: Row, results: Row, prices: PriceList | None) -> Row:
    """Power, energy and cost of one case's tokens, devices held from the first prompt to the last token.

    Returns
    -------
    dict
        prices, prices_as_of; device_power_w, power_w [W]; energy_j_per_output_token [J]; usd_per_hour;
        usd_per_million_output_tokens (all cost on the output) and usd_per_million_tokens (input and output alike).
        Empty without a price list; without an answer (the users do not fit) rates per token are absent.

    Examples
    --------
    8 devices at 1.80 USD an hour that give 1,000 tokens a second: 14.40 USD / 3.6 million tokens, 4 USD a million.
    """
    if prices is None:
        return {}
    model = CostModel(setting.machine, prices)
    devices = setting.machine.devices
    found: Row = {"prices": prices.id, "prices_as_of": prices.as_of}
    power, price = model.device_power, model.device_second
    rate, whole = results.get("output_tok_per_s"), results.get("e2el_s")
    tokens = inputs["users"] * (inputs["context_tokens"] + inputs["output_tokens"])
    if power is not None:
        found |= {"device_power_w": power, "power_w": power * devices}
        if rate:
            found["energy_j_per_output_token"] = power * devices / rate
    if price is not None:
        found["usd_per_hour"] = price * devices * _HOUR
        if rate and whole:
            found["usd_per_million_output_tokens"] = price * devices / rate * _MILLION
            found["usd_per_million_tokens"] = price * devices * whole / tokens * _MILLION
    return {name: value for name, value in found.items() if value != ""}
