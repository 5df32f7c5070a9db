"""Engine profiles: what a serving engine adds to its kernels, and how it moves caches."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from llmcap.specs.base import Bytes, BytesPerSecond, Count, Document, Fraction, Part, Seconds, Source, Tokens
from llmcap.specs.registry import register


class Overhead(Part):
    """Host and launch time that kernels do not show, with its own wide band."""

    step: Seconds
    """Once per engine step."""
    layer: Seconds
    """Once per layer of a step."""
    low: float = Field(gt=0, le=1)
    """Lower end of the band, as a factor."""
    high: float = Field(ge=1)
    """Upper end of the band, as a factor."""


class Streams(Part):
    """Element-wise passes and recurrent scans, whose fusion is the engine's doing."""

    launch: Seconds
    memory: Fraction
    """Share of the memory bandwidth they reach."""
    compute: Fraction
    """Share of the bf16 peak that scans reach."""
    low: float = Field(gt=0, le=1)
    high: float = Field(ge=1)


class ReloadPath(Part):
    """How the engine moves a cached state from one kind of tier."""

    fixed: Seconds
    """Software cost per reload, whatever its size."""
    block: Bytes
    """Size of one transfer."""
    rate_per_device: BytesPerSecond | None = None
    """Most that one device's worker moves; absent: the links decide."""
    in_flight: Count | None = None
    """Transfers that one device's worker keeps under way at once; absent: as many as it takes."""
    link_share: Fraction | None = None
    """Share of the tier's nominal bandwidth that this path was measured to reach; absent: as for any link."""


class Reloads(Part):
    host: ReloadPath
    """From host memory."""
    storage: ReloadPath
    """From drives of the server straight into device memory (GPUDirect Storage)."""
    file: ReloadPath
    """From files through a buffer in host memory."""
    network: ReloadPath
    """From remote stores."""
    peer: ReloadPath
    """From the device memory of another server (prefill to decode)."""


@register("engine")
class Engine(Document):
    """A serving engine as the performance model sees it."""

    schema_name: ClassVar[str] = "llmcap.engine/1"

    id: str
    name: str
    versions: str
    """Versions the figures stand for."""
    chunk_tokens: Tokens
    """Most tokens of one prefill step (max_num_batched_tokens)."""
    kv_block: Tokens
    """Tokens per cache block."""
    memory_share: Fraction
    """Share of device memory the engine allows itself."""
    memory_fixed: Bytes
    """Context, graphs and communication buffers per device."""
    prefill: Overhead
    decode: Overhead
    streams: Streams
    reloads: Reloads
    sources: tuple[Source, ...]
    notes: str = ""
