"""Where caches can be kept besides device memory, and the path from each place into the devices."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from llmcap.analyses.options import Options
from llmcap.analyses.tier_text import parse_tier
from llmcap.engine.transfer import Link
from llmcap.errors import OptionError
from llmcap.records import dataclass
from llmcap.specs.base import Document
from llmcap.specs.engine import Engine, ReloadPath, Reloads
from llmcap.specs.hardware import CustomTier, Drive, Expander, Nic, Server, Store
from llmcap.specs.registry import Loaded, Used, load_as
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
    write: float | None = None
    """Nominal write bandwidth of the narrowest shared hop; None where it is not known. [B/s]"""
    drive: Drive | None = None
    """What the tier is built of, when it is drives."""
    members: int = 1
    """Number of drives."""
    power: float | None = None
    """Of the tier's own parts, where its documents say. [W]"""


@dataclass(frozen=True, slots=True)
class TierBuilder:
    """Lays out the tiers of one machine."""

    options: Options
    server: Server
    engine: Engine
    transfers: Transfers
    devices: int
    servers: int
    nic_bandwidth: float | None
    """Compute network per device, one direction. [B/s]"""
    documents: list[Used]
    """Receives (id, sha256) of the parts that are loaded."""

    def build(self) -> tuple[Tier, ...]:
        """All tiers: dram, nvme, cxl, the server's own, remote; then those of --tier, which may replace one by name."""
        found = [
            *self._dram(),
            *self._nvme(),
            *self._cxl(),
            *(self._custom(tier) for tier in self.server.tiers),
            *self._remote(),
        ]
        for text in self.options.tiers:
            tier, measured = parse_tier(text)
            own = self._custom(tier, total=True)
            self.documents.extend(measured)
            names = [tier.name for tier in found]
            if own.name == "dram" and self.server.unified_memory:
                raise self._no_dram("--tier")
            if own.name in names:
                found[names.index(own.name)] = own
            else:
                found.append(own)
        return tuple(found)

    @property
    def reloads(self) -> Reloads:
        """The engine's reload profiles, with the options' block and transfers in flight laid over them."""
        block, in_flight = self.options.transfer_block, self.options.transfers_in_flight
        if block is None and in_flight is None:
            return self.engine.reloads
        changes = {k: v for k, v in (("block", block), ("in_flight", in_flight)) if v is not None}
        paths = {name: getattr(self.engine.reloads, name) for name in Reloads.model_fields}
        return self.engine.reloads.model_copy(
            update={name: path.model_copy(update=changes) for name, path in paths.items()}
        )

    @property
    def direct(self) -> bool:
        """Whether drives and network cards reach device memory without a copy in host memory."""
        asked = self.options.storage_path
        return self.server.direct_storage if asked is None else asked == "direct"

    def _host(self, crossings: float) -> Link:
        b = self.transfers.host_memory
        total = self.server.host.dram.bandwidth * self.servers
        return Link("host memory", total, b.per_transfer, b.efficiency, 1, None, crossings)

    def _bounce(self) -> tuple[Link, ...]:
        # A copy in host memory is written and read there; a direct path passes it by.
        return () if self.direct else (self._host(2.0),)

    def _in_flight(self, path: ReloadPath) -> float | None:
        return None if path.in_flight is None else float(path.in_flight * self.devices)

    def _dram(self) -> list[Tier]:
        dram = self.server.host.dram
        asked = self.options.dram
        if dram.capacity is None:  # one memory, the device's: what weights leave of it holds caches already
            if asked is not None:
                raise self._no_dram("--dram")
            return []
        capacity = (asked or dram.capacity) * self.servers
        power = None if dram.power is None else dram.power * self.servers
        rate = dram.bandwidth * self.servers
        return [Tier("dram", capacity, (self._host(1.0),), self.reloads.host, 0.0, rate, power=power)]

    def _no_dram(self, option: str) -> OptionError:
        return OptionError(
            option, f"{self.server.id} has one memory for processor and device, and no DRAM beside it",
            "leave it out: what the weights leave of the device's memory holds caches already",
        )  # fmt: skip

    def _nvme(self) -> list[Tier]:
        shipped = self.server.nvme
        name, count = part_and_count(
            "drive", self.options.drive, self.options.drives, (shipped.drive, shipped.count) if shipped else None
        )
        if name is None:
            return []
        drive = load_part(load_as(Drive, "drive", name), self.documents)
        members = count * self.servers
        profile = self.reloads.storage if self.direct else self.reloads.file
        drives = replace(
            _link("drives", drive.read * members, self.transfers.drive, members),
            operations=None if drive.random_read is None else drive.random_read * members,
            in_flight=self._in_flight(profile),
            latency=drive.latency or 0.0,
        )
        power = None if drive.power is None else drive.power * members
        return [
            Tier(
                "nvme", drive.capacity * members, (drives, *self._bounce()), profile, drive.latency or 0.0,
                drive.write * members, drive, members, power,
            )
        ]  # fmt: skip

    def _cxl(self) -> list[Tier]:
        shipped = self.server.cxl
        name, count = part_and_count(
            "expander", self.options.expander, self.options.expanders,
            (shipped.expander, shipped.count) if shipped else None,
        )  # fmt: skip
        if name is None:
            return []
        module = load_part(load_as(Expander, "expander", name), self.documents)
        members = count * self.servers
        # The devices read the modules over the host's root ports, past its own memory channels.
        link = _link("CXL modules", module.read * members, self.transfers.host_memory, members)
        power = None if module.power is None else module.power * members
        return [
            Tier(
                "cxl", module.capacity * members, (link,), self.reloads.host, module.latency, module.write * members,
                power=power,
            )
        ]  # fmt: skip

    def _custom(self, tier: CustomTier, *, total: bool = False) -> Tier:
        servers = 1 if total else self.servers
        profile = {
            "host": self.reloads.host, "device": self.reloads.host,
            "network": self.reloads.network, "peer": self.reloads.peer,
        }[tier.through]  # fmt: skip
        networked = tier.through in ("network", "peer")
        behaviour = self.transfers.network if networked else self.transfers.host_memory
        link = _link(tier.name, tier.read * servers, behaviour, 1)
        if profile.link_share is not None:
            link = replace(link, efficiency=profile.link_share, per_transfer=0.0)
        if networked:
            link = replace(link, in_flight=self._in_flight(profile), latency=tier.latency)
        path = (link, self._host(1.0)) if tier.through == "host" else (link,)
        write = None if tier.write is None else tier.write * servers
        power = None if tier.power is None else tier.power * servers
        return Tier(tier.name, tier.capacity * servers, path, profile, tier.latency, write, power=power)

    def _remote(self) -> list[Tier]:
        name = self.options.store or self.server.store
        if name is None:
            return []
        store = load_part(load_as(Store, "store", name), self.documents)
        profile = self.reloads.network
        link = replace(
            _link("store", store.read * self.servers, self.transfers.network, 1),
            in_flight=self._in_flight(profile),
            latency=store.latency,
        )
        path: tuple[Link, ...] = (link,)
        write = None if store.write is None else store.write * self.servers
        cards = self.server.storage_nics
        total, members = 0.0, 0
        if cards is not None:
            nic = load_part(load_as(Nic, "nic", cards.nic), self.documents)
            members = cards.count * self.servers
            total = nic.bandwidth * members
        elif self.nic_bandwidth is not None:
            members = self.server.devices * self.servers
            total = self.nic_bandwidth * members
        if members:
            path = (*path, _link("network cards", total, self.transfers.network, members))
            write = None if write is None else min(write, total)
        return [Tier("remote", store.capacity, (*path, *self._bounce()), profile, store.latency, write)]


def load_part(loaded: Loaded[D], documents: list[Used]) -> D:
    """A document, noted among those used."""
    documents.append(loaded.used)
    return loaded.document


def part_and_count(
    what: str, name: str | None, number: int | None, shipped: tuple[str, int] | None
) -> tuple[str | None, int]:
    """A part and its count after the options: either may be changed alone when the server has the part.

    Raises
    ------
    OptionError
        The server has no such part and only one of the two is given.
    """
    if name is None and number is None:
        return shipped or (None, 0)
    if shipped is None and (name is None or number is None):
        missing = f"--{what}" if name is None else f"--{what}s"
        raise OptionError(missing, f"the server has no {what}s of its own", f"give both --{what} and --{what}s")
    part, count = shipped or (name, number)
    return name or part, number or count or 0


def _link(name: str, bandwidth: float, behaviour: LinkBehaviour, members: int) -> Link:
    return Link(name, bandwidth, behaviour.per_transfer, behaviour.efficiency, members)
