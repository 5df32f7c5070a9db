"""Price lists: what a device-hour, a kilowatt-hour and a gigabyte of a tier cost, on a date, by a source."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from llmcap.specs.base import Document, Dollars, Part, Source, Watts
from llmcap.specs.registry import register


class TierPrices(Part):
    """Buying a tier."""

    dram: Dollars | None = None
    """One GB of server memory."""
    nvme: Dollars | None = None
    """One GB of data-centre flash drives."""
    years: float = Field(gt=0, le=20)
    """Over which the purchase is spread evenly."""


@register("prices")
class PriceList(Document):
    """Prices of one kind of buyer. What is absent is unknown, not free."""

    schema_name: ClassVar[str] = "llmcap.prices/1"

    id: str
    name: str
    as_of: str
    """Date of the prices."""
    device_hour: dict[str, Dollars] = {}
    """By device id: one hour of one device with its share of the server."""
    device_hour_includes_power: bool = True
    device_power: dict[str, Watts] = {}
    """By device id: power drawn from the utility for one device with its share of everything, cooling included."""
    electricity: Dollars | None = None
    """One kWh."""
    tiers: TierPrices | None = None
    sources: tuple[Source, ...]
    notes: str = ""
