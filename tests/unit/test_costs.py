"""Device time, energy and money: hand-worked values, what is unknown stays absent, and the price lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from llmcap.analyses.costs import CostModel
from llmcap.analyses.machine import Machine
from llmcap.analyses.options import Options
from llmcap.analyses.setting import resolve
from llmcap.specs.base import dangling, dump_document, load_document, uncovered
from llmcap.specs.prices import PriceList
from llmcap.specs.registry import list_ids, load_as


def machine(name: str = "dgx-b200") -> Machine:
    return resolve(Options(hardware=name)).machine


def prices(name: str = "hyperscaler-2026-04") -> PriceList:
    return load_as(PriceList, "prices", name).document


@pytest.mark.parametrize("name", list_ids("prices"))
def test_a_price_list_is_sound_and_sourced(name: str, tmp_path: Path) -> None:
    document = prices(name)
    assert uncovered(document) == []
    assert dangling(document) == []
    path = tmp_path / f"{name}.yaml"
    path.write_text(dump_document(document), encoding="utf-8")
    assert load_document(path, PriceList) == document
    known = set(list_ids("device"))
    assert set(document.device_hour) <= known
    assert set(document.device_power) <= known


def test_a_request_by_hand() -> None:
    """20 s against 0.5 s on 8 B200 at 1.95 USD an hour and 2,170 W each.

    160 device-seconds are 160 / 3600 x 1.95 = 0.08667 USD and 347.2 kJ; 4 are 0.002167 USD and 8.68 kJ, and 8 drives
    of 18 W draw 144 W for the half second of loading.
    """
    nvme = next(tier for tier in machine().tiers if tier.name == "nvme")
    found = CostModel(machine(), prices()).per_request(nvme, 1.0, 20.0, 0.5, 0.5)
    assert float(found["recompute_device_s"]) == 160.0
    assert float(found["recompute_usd"]) == pytest.approx(0.086667, rel=1e-4)
    assert float(found["reload_usd"]) == pytest.approx(0.0021667, rel=1e-4)
    assert float(found["recompute_j"]) == pytest.approx(347.2e3)
    assert float(found["reload_j"]) == pytest.approx(8.68e3 + 72.0)


def test_a_day_by_hand() -> None:
    """1,000 such requests a day free 156,000 device-seconds: 43.33 device-hours, 84.50 USD; 8 drives of 10,950 USD over
    four years cost 60 USD a day."""
    nvme = next(tier for tier in machine().tiers if tier.name == "nvme")
    model = CostModel(machine(), prices())
    found = model.per_day(nvme, 1000 / 86_400, model.per_request(nvme, 1.0, 20.0, 0.5, 0.5))
    assert float(found["freed_device_h_per_day"]) == pytest.approx(43.333, rel=1e-4)
    assert float(found["saved_usd_per_day"]) == pytest.approx(84.5, rel=1e-4)
    assert float(found["tier_usd_per_day"]) == pytest.approx(60.0)


def test_memory_is_priced_by_the_gigabyte() -> None:
    """4,000 GB x 18.8 USD over 4 x 365 days."""
    dram = machine().tiers[0]
    assert CostModel(machine(), prices()).tier_per_day(dram) == pytest.approx(4000 * 18.8 / 1460)


def test_what_has_no_price_is_absent() -> None:
    dram = machine().tiers[0]
    bare = CostModel(machine()).per_request(dram, 1.0, 20.0, 0.5, 0.5)
    assert set(bare) == {"recompute_device_s", "reload_device_s", "recompute_j", "reload_j"}
    a100 = machine("dgx-a100-80gb")  # not in the price list
    found = CostModel(a100, prices()).per_request(a100.tiers[0], 1.0, 20.0, 0.5, 0.5)
    assert "recompute_usd" not in found
    store = resolve(Options(store="nfs-rdma-4x400g")).machine.tiers[-1]
    assert "tier_usd_per_day" not in CostModel(machine(), prices()).per_day(store, 1.0, bare)


def test_without_a_price_list_power_is_the_servers() -> None:
    """14.3 kW over 8 devices."""
    assert CostModel(machine()).device_power == pytest.approx(14_300 / 8)


def test_electricity_is_added_where_the_hour_does_not_hold_it() -> None:
    """2,170 W x 0.0929 USD/kWh = 0.2016 USD an hour on top of 1.95."""
    bare = prices().model_copy(update={"device_hour_includes_power": False})
    found = CostModel(machine(), bare).device_second
    assert found is not None
    assert found * 3600 == pytest.approx(1.95 + 2.17 * 0.0929)


def test_users_share_and_slow_reloads_cost() -> None:
    nvme = machine().tiers[1]
    model = CostModel(machine(), prices())
    users = np.array([1.0, 4.0])
    found = model.per_request(nvme, users, np.array([1.0, 4.0]), 2.0, np.array([2.0, 8.0]))
    assert found["recompute_device_s"].tolist() == [8.0, 8.0]
    assert np.all(model.per_day(nvme, 1.0, found)["freed_device_h_per_day"] < 0)
