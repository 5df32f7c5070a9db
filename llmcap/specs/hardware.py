"""Hardware documents: devices, drives, network cards, stores, and the servers composed of them.

Only datasheet and driver facts live here; how much of a peak a kernel reaches is a calibration document's business.
"""

from typing import ClassVar, Literal, Self

from pydantic import Field, model_validator

from llmcap.specs.base import (
    Bytes,
    BytesPerSecond,
    Count,
    Document,
    Dollars,
    FlopPerSecond,
    Part,
    PerSecond,
    Seconds,
    Source,
    Watts,
)
from llmcap.specs.model import Dtype
from llmcap.specs.registry import register


class DeviceMemory(Part):
    """High-bandwidth (or graphics) memory of one device."""

    capacity: Bytes
    """What the driver reports as total."""
    marketing: Bytes
    """The figure on the datasheet's front."""
    bandwidth: BytesPerSecond


@register("device")
class Device(Document):
    """One accelerator. Peaks are dense, links are per direction."""

    schema_name: ClassVar[str] = "llmcap.device/1"

    id: str
    name: str
    vendor: str
    family: str
    """Architecture family (hopper, blackwell, cdna3 ...), used to borrow a calibration."""
    peaks: dict[Dtype, FlopPerSecond]
    """Dense tensor peak per dtype; a dtype that is absent has no tensor path."""
    compute_units: Count
    """SMs (NVIDIA), CUs (AMD), or the nearest equivalent."""
    memory: DeviceMemory
    host_link: BytesPerSecond
    """Device to host, one direction (PCIe or NVLink-C2C)."""
    power: Watts | None = None
    calibration: str
    """Id of the calibration document that describes its kernels, or of the pooled one of its family."""
    sources: tuple[Source, ...]
    notes: str = ""

    @model_validator(mode="after")
    def _has_peak(self) -> Self:
        if not self.peaks:
            raise ValueError("a device needs at least one tensor peak")
        return self


class Module(Document):
    """A part behind PCIe lanes that keeps bytes: what drives and memory modules have in common."""

    name: str
    vendor: str
    interface: str
    """For example 'PCIe Gen5 x4' or 'CXL 2.0 over PCIe Gen5 x8'."""
    capacity: Bytes
    read: BytesPerSecond
    """Of long sequential reads, by datasheet; for memory that of the link, one direction."""
    write: BytesPerSecond
    power: Watts | None = None
    price: Dollars | None = None
    sources: tuple[Source, ...]
    notes: str = ""


@register("drive")
class Drive(Module):
    """One NVMe drive."""

    schema_name: ClassVar[str] = "llmcap.drive/1"

    random_read: PerSecond | None = None
    """4 KiB random reads a second."""
    random_write: PerSecond | None = None
    latency: Seconds | None = None
    """Typical read latency."""
    dwpd: float | None = Field(default=None, gt=0)
    """Rated drive writes per day over `warranty_years`."""
    warranty_years: float = Field(default=5, gt=0)


@register("nic")
class Nic(Document):
    """One network card or DPU port."""

    schema_name: ClassVar[str] = "llmcap.nic/1"

    id: str
    name: str
    vendor: str
    bandwidth: BytesPerSecond
    """Line rate, one direction."""
    latency: Seconds | None = None
    power: Watts | None = None
    sources: tuple[Source, ...]
    notes: str = ""


@register("store")
class Store(Document):
    """A remote store (NFS over RDMA, object store) as one client server sees it, before its own network cards."""

    schema_name: ClassVar[str] = "llmcap.store/1"

    id: str
    name: str
    vendor: str = ""
    protocol: str
    capacity: Bytes
    read: BytesPerSecond
    """What the store delivers to one client server when nothing else limits it."""
    write: BytesPerSecond | None = None
    latency: Seconds
    price_per_byte_month: float | None = Field(default=None, gt=0)
    sources: tuple[Source, ...]
    notes: str = ""


@register("expander")
class Expander(Module):
    """One CXL memory module: memory of the host beyond its own channels."""

    schema_name: ClassVar[str] = "llmcap.expander/1"

    latency: Seconds


class ScaleUp(Part):
    """The fabric between the devices of one server."""

    kind: Literal["nvswitch", "nvlink-mesh", "nvlink-pair", "infinity-fabric", "pcie", "ethernet", "none"]
    bandwidth: BytesPerSecond
    """Per device and direction."""
    all_to_all: bool = True
    """Every pair can use the whole bandwidth (switched); False for meshes and PCIe."""


class HostMemory(Part):
    """The DRAM of the host, all sockets together."""

    capacity: Bytes | None = None
    """Absent where the memory is the devices' own (`unified_memory`)."""
    bandwidth: BytesPerSecond
    """Theoretical read bandwidth of all channels."""
    power: Watts | None = None
    price: Dollars | None = None


class Host(Part):
    cpu: str
    sockets: Count
    dram: HostMemory


class UnifiedMemory(Part):
    """One memory serves processor and device: the device's, and there is no DRAM beside it."""

    kept: Bytes
    """Of each device's memory, what the system and other programs keep: an engine gets at most the rest."""


class DriveSet(Part):
    """Drives of one model."""

    drive: str
    count: Count


class ExpanderSet(Part):
    """CXL memory modules of one model."""

    expander: str
    count: Count


class NicSet(Part):
    """Network cards of one model."""

    nic: str
    count: Count


class CustomTier(Part):
    """A further place for KV caches, given by its plain figures (CXL memory, an appliance)."""

    name: str
    capacity: Bytes
    read: BytesPerSecond
    """Aggregate read bandwidth as the server sees it."""
    write: BytesPerSecond | None = None
    latency: Seconds
    through: Literal["device", "host", "network", "peer"] = "host"
    """device: straight to the devices' links; host: through host memory; network: from a remote store; peer: from
    another server's device memory."""
    power: Watts | None = None
    price: Dollars | None = None


@register("server")
class Server(Document):
    """A server as a whole: devices, their fabric, the host and the tiers that can hold KV caches."""

    schema_name: ClassVar[str] = "llmcap.server/1"

    id: str
    name: str
    vendor: str
    hypothetical: bool = False
    """True when no vendor sells it (said in every answer)."""
    device: str
    """Id of the device document."""
    devices: Count
    scale_up: ScaleUp
    host: Host
    unified_memory: UnifiedMemory | None = None
    """Given where processor and devices share one memory; such a server has no tier dram."""
    host_link: BytesPerSecond | None = None
    """Overrides the device's own link when the server's slots are slower or faster."""
    nvme: DriveSet | None = None
    cxl: ExpanderSet | None = None
    """CXL memory modules; they make the tier cxl."""
    nics: NicSet | None = None
    """Network cards of the compute fabric, between servers."""
    storage_nics: NicSet | None = None
    """Network cards towards remote stores; the compute NICs serve when absent."""
    store: str | None = None
    """Id of a remote store mounted by default."""
    tiers: tuple[CustomTier, ...] = ()
    direct_storage: bool = False
    """Drives and network cards reach device memory without a copy in host memory (GPUDirect)."""
    power: Watts | None = None
    sources: tuple[Source, ...]
    notes: str = ""

    @model_validator(mode="after")
    def _one_memory_or_two(self) -> Self:
        dram = self.host.dram
        if self.unified_memory is None:
            if dram.capacity is None:
                raise ValueError("host.dram.capacity is missing (only a server with unified_memory has none)")
            return self
        own = [name for name in ("capacity", "power", "price") if getattr(dram, name) is not None]
        if own:
            raise ValueError(f"host.dram.{own[0]}: with unified_memory the memory is the device's, leave it out")
        if any(tier.name == "dram" for tier in self.tiers):
            raise ValueError("tiers: with unified_memory there is no DRAM to keep caches in")
        return self
