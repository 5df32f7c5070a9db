"""Engine profiles: what a serving engine adds to its kernels, and how it moves caches."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from llmcap.specs.base import Bytes, BytesPerSecond, Count, Document, Fraction, Part, Seconds, Source, Tokens
from llmcap.specs.registry import register

Factor = Annotated[float, Field(gt=0, le=10, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)]


class Overhead(Part):
    """Host and launch time that kernels do not show, with its own wide band."""

    step: Seconds
    """Once per engine step."""
    layer: Seconds
    """Once per layer of a step."""
    recurrent: Seconds = 0.0
    """On top, per layer with a recurrent scan: its many small kernels."""
    latent: Seconds = 0.0
    """On top, per layer with latent attention."""
    experts: Seconds = 0.0
    """On top, per layer with routed experts."""
    sequence: Seconds = 0.0
    """On top, per running sequence of a decode step: scheduling, sampling, detokenising."""
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


class Phases(Part):
    """Factors on calibrated kernel times under this engine."""

    prefill: Factor = 1.0
    decode: Factor = 1.0


class ExpertKernels(Phases):
    """Routed experts of one dtype under this engine."""

    launch: Seconds | None = None
    """Floor of a decode step: routing, permuting, empty tiles. Absent: the calibration's, fitted to prefill sizes."""


class FamilyKernels(Part):
    """What an engine's own kernels do on one family of devices, relative to the calibration, which pools engines."""

    gemm: dict[str, Phases] = Field(default_factory=dict)
    """By dtype of the product."""
    experts: dict[str, ExpertKernels] = Field(default_factory=dict)
    """By dtype of the weights."""
    prefill_all_reduce: Factor = 1.0
    """All-reduces of a prefill step: large messages take another path than those of decode."""


class Kernels(Part):
    """An engine's kernels relative to the calibration."""

    launch_share: Fraction = 1.0
    """Share of the launch floors that a captured decode step still shows."""
    prefill_products: Factor = 1.0
    """All matrix products and experts of a prefill step."""
    decode_attention: Factor = 1.0
    decode_all_reduce: Factor = 1.0
    expert_launch: Seconds | None = None
    """Floor of experts in a decode step where the family says nothing; absent: the calibration's."""
    families: dict[str, FamilyKernels] = Field(default_factory=dict)
    """By family of the device; families without an entry run at the calibration's times."""


class Load(Part):
    """How prefill and decode of c clients share the engine, for one way of sending requests."""

    interleave: NonNegative
    """Share of the others' prefill work that falls into a client's decode."""
    burst: NonNegative
    """Share of the others' prefill work that a mean request waits for before its own."""
    own: NonNegative = 1.0
    """Time of a request's own prefill over the time it takes alone: prompts that stay in step share their steps."""
    slot: NonNegative = 0.0
    """Share of a decode that a request waits for a free slot, over the clients."""


class Range(Part):
    low: float = Field(gt=0, le=1)
    high: float = Field(ge=1)


class Serving(Part):
    """Steady state of continuous batching under a closed loop of c clients."""

    spread: Load
    """Lengths vary from request to request, so clients drift apart after the first burst."""
    fixed: Load
    """All lengths equal: clients stay in step."""
    running_steps: NonNegative
    """Decode steps that pass before the first token is out: the one in progress and those in flight."""
    dispatch: Seconds
    """Cost of admission per square root of the clients of a replica."""
    waiting: NonNegative
    """Wait for a place in the pool over that of a lasting steady state, by Little's law; short runs wait less."""
    admission: Literal["mean", "full"] = "mean"
    """Length by which the pool admits a sequence: what it holds on average, or all it may come to hold."""
    saturated_experts: Factor = 1.0
    """Work of experts at saturation over that at the calibration's balanced routing."""
    saturated_rate: Factor = 1.0
    """Tokens a second at saturation over what the steps alone allow."""
    most_sequences: Count
    """Sequences that a replica runs at once (max_num_seqs, max_batch_size)."""
    memory_share: Fraction
    """Share of device memory under load tests, where it is set higher than by default."""
    tpot: Range
    """10 and 90 % quantiles of measured over predicted TPOT."""
    ttft: Range
    """The same of TTFT."""
    throughput: Range
    """The same of tokens per second."""
    families: tuple[str, ...] = ()
    """Device families whose runs the bands come from; on others the bands of the kernels widen them."""


Copies = Literal["once", "per rank"]


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
    latent_kept: Copies = "once"
    """Copies of a latent (MLA) or an index key, which every tensor-parallel rank holds, that the tier stores."""
    latent_read: Copies = "once"
    """Reads of it from the tier: by one rank that passes it on (or into memory that all share), or by every rank."""

    @model_validator(mode="after")
    def _reads_what_is_kept(self) -> Self:
        if self.latent_kept == "per rank" and self.latent_read == "once":
            raise ValueError("a latent kept per rank is read per rank: set latent_read to 'per rank'")
        return self


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
    kernels: Kernels = Kernels()
    serving: Serving | None = None
    sources: tuple[Source, ...]
    notes: str = ""
