"""A server as the engine sees it: rates per dtype, fabrics, and the paths from each tier into device memory."""

from __future__ import annotations

import math

from llmcap.analyses.options import Options
from llmcap.analyses.paths import Tier as Tier
from llmcap.analyses.paths import TierBuilder, load_part, part_and_count
from llmcap.engine.collectives import Fabric
from llmcap.engine.kernels import DeviceRates, query_tiles
from llmcap.engine.transfer import Link
from llmcap.errors import OptionError
from llmcap.records import dataclass
from llmcap.specs.engine import Engine
from llmcap.specs.hardware import Device, Nic, Server
from llmcap.specs.registry import Used, load_as
from llmcap.specs.transfers import Transfers


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
    documents: tuple[Used, ...]
    """(id, sha256) of every document used."""

    @property
    def share_left(self) -> float:
        """Of a device's memory, what the system and other programs leave; 1 where they have memory of their own."""
        unified = self.server.unified_memory
        return 1.0 if unified is None else 1.0 - unified.kept / self.device.memory.capacity

    def rates(self, dtype: str) -> DeviceRates:
        """Rates of one device for operators of `dtype`."""
        units = self.device.compute_units
        return DeviceRates(self.peak(dtype), self.device.memory.bandwidth, units, query_tiles(self.peak("bf16"), units))

    def peak(self, dtype: str) -> float:
        """Peak for operators of `dtype`: its own, or that of the widest path that can stand in for it. [FLOP/s]

        fp16 runs as bf16 and the other way round; a device without either computes in fp32 what its caches and
        activations hold in 16 bits.
        """
        peaks: dict[str, float] = {str(name): peak for name, peak in self.device.peaks.items()}
        order = (dtype, "bf16", "fp16", "fp32", *peaks)
        return next(peaks[name] for name in order if name in peaks)

    def has_peak(self, dtype: str) -> bool:
        """Whether the device has a tensor path for `dtype`."""
        peaks: set[str] = set(self.device.peaks)
        return dtype in peaks or (dtype in ("fp16", "bf16") and bool(peaks & {"fp16", "bf16"}))

    def fabric(self, span: int) -> Fabric:
        """The link a group of `span` devices talks over: the scale-up fabric, or the network cards beyond it.

        Raises
        ------
        OptionError
            The group leaves a server that has no network cards.
        """
        if span <= self.server.devices:
            return Fabric(self.server.scale_up.bandwidth)
        if self.nic_bandwidth is None:
            raise OptionError(
                "--devices", f"{self.server.id} lists no network cards to join {self.servers} servers",
                f"use at most {self.server.devices} devices, or add cards with --nic and --nics",
            )  # fmt: skip
        return Fabric(self.nic_bandwidth)

    def levels(self, span: int, ranks: int) -> tuple[Fabric | None, int]:
        """The link inside a server and the servers of a group of `ranks` ranks that stretches over `span` devices.

        None where the group has one rank in each server, or stays in one.
        """
        servers = min(math.ceil(span / self.server.devices), ranks)
        return (Fabric(self.server.scale_up.bandwidth) if 1 < servers < ranks else None), servers


def compose(options: Options, engine: Engine, transfers: Transfers) -> Machine:
    """Load a server, change its parts as the options say, and lay out its paths.

    Raises
    ------
    OptionError
        A part the server has no place for, or more devices than can be joined.
    """
    loaded = load_as(Server, "server", options.hardware)
    server = loaded.document
    documents = [loaded.used]
    device = load_part(load_as(Device, "device", server.device), documents)
    devices = options.devices or server.devices
    servers = math.ceil(devices / server.devices)

    nic_name, nic_count = part_and_count(
        "nic", options.nic, options.nics, (server.nics.nic, server.nics.count) if server.nics else None
    )
    nic_bandwidth = None
    if nic_name is not None:
        nic = load_part(load_as(Nic, "nic", nic_name), documents)
        nic_bandwidth = nic.bandwidth * nic_count / server.devices

    link = transfers.device_link
    nominal = server.host_link or device.host_link
    device_link = Link("device links", nominal, link.per_transfer, link.efficiency)
    tiers = TierBuilder(options, server, engine, transfers, devices, servers, nic_bandwidth, documents).build()
    machine = Machine(server, device, devices, servers, nic_bandwidth, device_link, tiers, tuple(documents))
    if servers > 1:
        machine.fabric(devices)
    return machine
