"""A server as the engine sees it: rates per dtype, fabrics, and the paths from each tier into device memory."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

from llmcap.analyses.options import Options
from llmcap.engine.collectives import Fabric
from llmcap.engine.kernels import DeviceRates
from llmcap.engine.transfer import Link
from llmcap.errors import OptionError
from llmcap.specs.base import Document
from llmcap.specs.engine import Engine, ReloadPath
from llmcap.specs.hardware import Device, Drive, Nic, Server, Store
from llmcap.specs.registry import Loaded, load_as
from llmcap.specs.transfers import LinkBehaviour, Transfers

D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Tier:
    """A place for caches other than device memory: what it holds and the shared part of its path."""

    name: str
    capacity: float
    """All servers together. [B]"""
    shared: tuple[Link, ...]
    """Hops that all devices share, before the devices' own links."""
    reload: ReloadPath
    latency: float
    """[s]"""


@dataclass(frozen=True, slots=True)
class Machine:
    """The devices in use and what surrounds them."""

    server: Server
    device: Device
    devices: int
    servers: int
    nic_bandwidth: float | None
    """Per device, one direction. [B/s]"""
    device_link: Link
    """Link of one device to its host."""
    tiers: tuple[Tier, ...]
    documents: tuple[tuple[str, str], ...]
    """(id, sha256) of every document used."""

    def rates(self, dtype: str) -> DeviceRates:
        """Rates of one device for operators of `dtype`; fp16 runs at the bf16 peak where only that is listed."""
        return DeviceRates(self.peak(dtype), self.device.memory.bandwidth, self.device.compute_units)

    def peak(self, dtype: str) -> float:
        peaks = dict(self.device.peaks)
        if dtype not in peaks and dtype in ("fp16", "bf16"):
            dtype = "bf16" if dtype == "fp16" else "fp16"
        return peaks[dtype]  # type: ignore[index]

    def has_peak(self, dtype: str) -> bool:
        """Whether the device has a tensor path for `dtype`."""
        peaks: set[str] = set(self.device.peaks)
        return dtype in peaks or (dtype in ("fp16", "bf16") and bool(peaks & {"fp16", "bf16"}))

    def fabric(self, span: int) -> Fabric:
        """The link a group of `span` devices talks over: the scale-up fabric, or the network cards beyond it."""
        if span <= self.server.devices:
            return Fabric(self.server.scale_up.bandwidth)
        if self.nic_bandwidth is None:
            raise OptionError(
                "--devices", f"{self.server.id} lists no network cards to join {self.servers} servers",
                f"use at most {self.server.devices} devices, or add cards with --nic and --nics",
            )  # fmt: skip
        return Fabric(self.nic_bandwidth)


def compose(options: Options, engine: Engine, transfers: Transfers) -> Machine:
    """Load a server, change its parts as the options say, and lay out its paths.

    Raises
    ------
    OptionError
        A part the server has no place for, or more devices than can be joined.
    """
    loaded = load_as(Server, "server", options.hardware)
    server = loaded.document
    documents = [(server.id, loaded.sha256)]
    device = _part(load_as(Device, "device", server.device), documents)
    devices = options.devices or server.devices
    servers = math.ceil(devices / server.devices)

    nic_name, nic_count = _pair(
        "nic", options.nic, options.nics, (server.nics.nic, server.nics.count) if server.nics else None
    )
    nic_bandwidth = None
    if nic_name is not None:
        nic = _part(load_as(Nic, "nic", nic_name), documents)
        nic_bandwidth = nic.bandwidth * nic_count / server.devices

    link = transfers.device_link
    nominal = server.host_link or device.host_link
    device_link = Link("device links", nominal, link.per_transfer, link.efficiency)
    tiers = _tiers(options, server, engine, transfers, servers, nic_bandwidth, documents)
    machine = Machine(server, device, devices, servers, nic_bandwidth, device_link, tiers, tuple(documents))
    if servers > 1:
        machine.fabric(devices)
    return machine


def _part(loaded: Loaded[D], documents: list[tuple[str, str]]) -> D:
    documents.append((loaded.document.id, loaded.sha256))
    return loaded.document


def _pair(what: str, name: str | None, number: int | None, shipped: tuple[str, int] | None) -> tuple[str | None, int]:
    """A part and its count after the options: either may be changed alone when the server has the part."""
    if name is None and number is None:
        return shipped or (None, 0)
    if shipped is None and (name is None or number is None):
        missing = f"--{what}" if name is None else f"--{what}s"
        raise OptionError(missing, f"the server has no {what}s of its own", f"give both --{what} and --{what}s")
    part, count = shipped or (name, number)
    return name or part, number or count or 0


def _tiers(
    options: Options, server: Server, engine: Engine, transfers: Transfers, servers: int,
    nic_bandwidth: float | None, documents: list[tuple[str, str]],
) -> tuple[Tier, ...]:  # fmt: skip
    reloads = engine.reloads
    dram = server.host.dram
    dram_capacity = options.dram or dram.capacity

    def host(crossings: float) -> Link:
        b = transfers.host_memory
        return Link("host memory", dram.bandwidth * servers, b.per_transfer, b.efficiency, 1, None, crossings)

    # A copy in host memory is written and read there; a direct path passes it by.
    bounce = () if server.direct_storage else (host(2.0),)
    found = [Tier("dram", dram_capacity * servers, (host(1.0),), reloads.host, 0.0)]
    drive_name, drive_count = _pair(
        "drive", options.drive, options.drives, (server.nvme.drive, server.nvme.count) if server.nvme else None
    )
    if drive_name is not None:
        drive = _part(load_as(Drive, "drive", drive_name), documents)
        members = drive_count * servers
        operations = None if drive.random_read is None else drive.random_read * members
        path = (_link("drives", drive.read * members, transfers.drive, members, operations), *bounce)
        found.append(Tier("nvme", drive.capacity * members, path, reloads.storage, drive.latency or 0.0))
    for tier in server.tiers:
        path = (_link(tier.name, tier.read * servers, transfers.host_memory, 1, None),)
        if tier.through == "host":
            path = (*path, host(1.0))
        profile = {"host": reloads.host, "device": reloads.host, "network": reloads.network}[tier.through]
        found.append(Tier(tier.name, tier.capacity * servers, path, profile, tier.latency))
    store_name = options.store or server.store
    if store_name is not None:
        store = _part(load_as(Store, "store", store_name), documents)
        path = (_link("store", store.read * servers, transfers.network, 1, None),)
        cards = server.storage_nics
        if cards is not None:
            nic = _part(load_as(Nic, "nic", cards.nic), documents)
            members = cards.count * servers
            path = (*path, _link("network cards", nic.bandwidth * members, transfers.network, members, None))
        elif nic_bandwidth is not None:
            total = nic_bandwidth * server.devices * servers
            path = (*path, _link("network cards", total, transfers.network, server.devices * servers, None))
        found.append(Tier("remote", store.capacity, (*path, *bounce), reloads.network, store.latency))
    return tuple(found)


def _link(name: str, bandwidth: float, behaviour: LinkBehaviour, members: int, operations: float | None) -> Link:
    return Link(name, bandwidth, behaviour.per_transfer, behaviour.efficiency, members, operations)
