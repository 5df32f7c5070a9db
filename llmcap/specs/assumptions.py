"""Assumption sets: how peaks become times, and every liberty taken with the architecture, by name."""

from typing import ClassVar, Literal

from pydantic import Field

from llmcap.specs.base import BytesPerSecond, Count, Document, Fraction, Part, Source, Tokens
from llmcap.specs.registry import register


class Statement(Part):
    """One assumption, said in words."""

    name: str
    text: str
    source: str
    bias: str
    """Which way it pushes the answer: optimistic, pessimistic, neutral, or which figure it moves."""
    inferred: bool = False
    """Read off published figures, not said by their authors."""


class Roofline(Part):
    """Constant shares of the peaks, used when kernels are not calibrated."""

    compute: Fraction = 1.0
    memory: Fraction = 1.0
    network: Fraction = 1.0
    peak_dtype: str | None = None
    """Dtype whose peak every operator is held against; absent: the operator's own."""


class Deviations(Part):
    """Where a set departs from the model's architecture or the server's links."""

    causal: bool = True
    """False: queries are charged for all keys, masked or not."""
    every_layer_full: bool = False
    """True: windowed and chunked layers attend to everything."""
    kv_heads: Count | None = None
    """KV heads that the state is sized with."""
    state_of_full_layers_only: bool = False
    """True: layers with a window or chunk keep nothing."""
    tier_read: dict[str, BytesPerSecond] = Field(default_factory=dict)
    """Read bandwidth of tiers, in place of the path's."""


class Scales(Part):
    """Factors on calibrated times, fitted to a user's own measurements."""

    prefill: float = Field(default=1.0, gt=0, le=100)
    decode: float = Field(default=1.0, gt=0, le=100)


class Extrapolation(Part):
    """How the band of prefill attention widens beyond the contexts that kernels were measured at."""

    measured_tokens: Tokens
    full_at_tokens: Tokens
    """Context at which the whole widening applies; in between it grows with the logarithm."""
    low: float = Field(gt=0, le=1)
    high: float = Field(ge=1)


@register("assumptions")
class Assumptions(Document):
    """A named way from work to time."""

    schema_name: ClassVar[str] = "llmcap.assumptions/1"

    id: str
    name: str
    times: Literal["calibrated", "roofline"]
    """calibrated: fitted kernels and engine overheads in turn; roofline: constant shares of peaks, overlapped."""
    roofline: Roofline = Roofline()
    deviations: Deviations = Deviations()
    scales: Scales = Scales()
    extrapolation: Extrapolation | None = None
    ideal_transfers: bool = False
    """True: reloads run at nominal bandwidth without software cost."""
    models: tuple[str, ...] = ()
    """Models the set is meant for; empty: any."""
    hardware: tuple[str, ...] = ()
    """Servers the set is meant for; empty: any."""
    statements: tuple[Statement, ...]
    sources: tuple[Source, ...] = ()
