"""Device time, energy and money of a reload against a recompute. What has no price or no power figure is absent.

Devices count as held for the whole time to first token, also while a state is being loaded: an engine that computes
for others meanwhile does better, so savings are on the low side.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from llmcap.analyses.machine import Machine
from llmcap.analyses.offload.wear import DAY, YEAR
from llmcap.analyses.paths import Tier
from llmcap.records import dataclass
from llmcap.specs.prices import PriceList

Array = NDArray[np.float64]
Columns = dict[str, Array]

_HOUR = 3600.0
_JOULE_PER_KWH = 3.6e6
_GB = 1e9


@dataclass(frozen=True, slots=True)
class CostModel:
    """Prices and power of one machine."""

    machine: Machine
    prices: PriceList | None = None

    @property
    def device_power(self) -> float | None:
        """One device with its share of the server, and of the site where the price list says; None if unknown. [W]"""
        listed = self.prices.device_power.get(self.machine.device.id) if self.prices else None
        if listed is not None:
            return listed
        server = self.machine.server
        return None if server.power is None else server.power / server.devices

    @property
    def device_second(self) -> float | None:
        """Price of one device for one second, power included; None if unknown. [USD/s]"""
        prices = self.prices
        hour = prices.device_hour.get(self.machine.device.id) if prices else None
        if prices is None or hour is None:
            return None
        if prices.device_hour_includes_power:
            return hour / _HOUR
        if prices.electricity is None or self.device_power is None:
            return None
        return hour / _HOUR + prices.electricity * self.device_power / _JOULE_PER_KWH

    def tier_per_day(self, tier: Tier) -> float | None:
        """Purchase of a tier spread over its years; None without a price. [USD/d]

        Drives with a price of their own are counted with it.
        """
        terms = self.prices.tiers if self.prices else None
        if terms is None:
            return None
        per_gb = {"dram": terms.dram, "nvme": terms.nvme}.get(tier.name)
        if tier.drive is not None and tier.drive.price is not None:
            whole = tier.drive.price * tier.members
        elif per_gb is not None:
            whole = per_gb * tier.capacity / _GB
        else:
            return None
        return whole / (terms.years * YEAR)

    def per_request(
        self, tier: Tier, users: ArrayLike, recompute: ArrayLike, reload: ArrayLike, ttft: ArrayLike
    ) -> Columns:
        """What one request costs either way.

        Parameters
        ----------
        tier : Tier
        users : array_like
            Requests served together. [1]
        recompute, reload, ttft : array_like
            Time to first token computing everything; loading alone; loading and computing the rest. [s]

        Returns
        -------
        dict of ndarray
            recompute_device_s, reload_device_s [device s]; recompute_j, reload_j [J]; recompute_usd, reload_usd [USD].

        Examples
        --------
        8 devices for 20 s and 1.95 USD an hour each: 160 device-seconds, 0.0867 USD.
        """
        devices = self.machine.devices
        n = np.asarray(users, dtype=np.float64)
        either = {"recompute": devices * np.asarray(recompute) / n, "reload": devices * np.asarray(ttft) / n}
        found: Columns = {f"{way}_device_s": seconds for way, seconds in either.items()}
        power = self.device_power
        if power is not None:
            # A tier draws its power while it is read; what it draws idle is there either way.
            extra = (tier.power or 0.0) * np.asarray(reload) / n
            found["recompute_j"] = either["recompute"] * power
            found["reload_j"] = either["reload"] * power + extra
        price = self.device_second
        if price is not None:
            found |= {f"{way}_usd": seconds * price for way, seconds in either.items()}
        return found

    def per_day(self, tier: Tier, requests_per_s: ArrayLike, each: Columns) -> Columns:
        """What a stream of requests that all find their state in the tier saves in a day.

        Returns
        -------
        dict of ndarray
            freed_device_h_per_day, negative where reloading is slower; saved_j_per_day; saved_usd_per_day before and
            tier_usd_per_day of the tier itself.
        """
        per_day = np.asarray(requests_per_s, dtype=np.float64) * DAY
        found: Columns = {
            "freed_device_h_per_day": per_day * (each["recompute_device_s"] - each["reload_device_s"]) / _HOUR
        }
        for unit in ("j", "usd"):
            if f"recompute_{unit}" in each:
                found[f"saved_{unit}_per_day"] = per_day * (each[f"recompute_{unit}"] - each[f"reload_{unit}"])
        bought = self.tier_per_day(tier)
        if bought is not None:
            found["tier_usd_per_day"] = np.full(np.shape(found["freed_device_h_per_day"]), bought)
        return found
