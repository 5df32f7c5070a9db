"""Calibration documents: the few parameters that turn a device's datasheet peaks into measured kernel times.

A calibration is kept apart from the datasheet. Every efficiency here is a share of the *dense datasheet peak*
of the device document it is used with (tensor peak of the operator's dtype, memory bandwidth, link bandwidth
in one direction), so it carries over to another device of the same family. `low` and `high` are the 10 % and
90 % quantiles of measured over predicted time on rows that the fit did not see: multiply a predicted time by
them for its band.

Symbols: P tensor peak [FLOP/s], W memory bandwidth [B/s], B link bandwidth per direction [B/s], SM compute
units. Wherever it says hypot, two resources overlap in part: the root of the sum of squares.
"""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from llmcap.specs.base import BytesPerSecond, Count, Document, FlopPerSecond, Part, Seconds, Source
from llmcap.specs.registry import register

Efficiency = Annotated[float, Field(gt=0, le=1.05, allow_inf_nan=False)]
"""Share of a datasheet rate; a few per cent above 1 are possible where the datasheet clock is exceeded."""

Shape = Annotated[float, Field(ge=0, allow_inf_nan=False)]
"""Dimensionless size at which an efficiency has fallen by a known factor."""

BandFactor = Annotated[float, Field(gt=0, allow_inf_nan=False)]

KernelDtype = Literal["bf16", "fp8", "fp8_block", "nvfp4", "int8", "fp16", "fp32"]
MoeDtype = Literal["bf16", "fp8", "fp8_block", "nvfp4", "int4", "mxfp4", "mxfp4_fp8", "int8", "fp16", "fp32"]


class Band(Part):
    """Uncertainty of one fit."""

    low: BandFactor
    """10 % quantile of measured over predicted time on held-out rows."""
    high: BandFactor
    """90 % quantile of measured over predicted time on held-out rows."""


class GemmFit(Band):
    """Dense matrix product of m rows with a k x n weight matrix.

    t = t0 + hypot(F/(e P) (1 + x0/x), weights/(w W)) + activations/(a W), with F = 2 m n k, x = m n/(SM
    128^2).
    """

    t0: Seconds
    """Launch and fixed work."""
    e: Efficiency
    """Share of the tensor peak reached by large products."""
    x0: Shape
    """Waves of 128 x 128 output tiles at which the product takes twice the time of a large one per FLOP."""
    w: Efficiency
    """Share of the memory bandwidth at which weights are streamed."""
    a: Efficiency
    """Share of the memory bandwidth at which activations are read and written."""


class PrefillAttentionFit(Band):
    """Attention of new tokens.

    t = t0 + (F + tail (L/128) SM q tile)/(e P) + bytes/(w W), F = 4 H d pairs, tile = 4 d 128^2 FLOP. The tail
    is the time in which the compute units wait for the one with the longest row of key tiles: L is the number
    of keys that the last query sees, q the tiles of 128 queries that a unit works on at once (1 on Hopper, about
    2 on Blackwell: in proportion to its 16-bit tensor rate). It was fitted on prompts without a
    cached prefix, where L is the number of new tokens; with a prefix or a window, L is the prefix plus the new
    tokens, or the window.
    """

    t0: Seconds
    e: Efficiency
    tail: Shape
    w: Efficiency


class DecodeAttentionFit(Band):
    """Attention of one new token per sequence, by cache dtype: t = t0 + hypot(kv_bytes/(w W), F/(e P))."""

    t0: Seconds
    w: Efficiency
    e: Efficiency
    """Share of the bf16 peak in decode bound by compute, as MLA is (the cache is widened on the fly)."""


class MoeFit(Band):
    """Routed experts: t = t0 + hypot(F/(e P) (1 + r0/r), touched weights/(w W)) + moved bytes/(a W).

    r = tokens per touched expert. Moved bytes of one device = 4 T h + (T k/ep) [h (2 b + 4) + (i/tp) (4 + 2
    b)] with T tokens over all expert ranks, h hidden size, i expert width, b bytes of an activation: input
    and output, the permuted copy, the intermediate. Fitted for T from 1,024 on: t0 counts the routing and
    permuting kernels of a prefill step and is an upper bound for a decode step.
    """

    t0: Seconds
    e: Efficiency
    r0: Shape
    w: Efficiency
    a: Efficiency


class CollectiveFit(Band):
    """Alpha-beta collective of n ranks: t = alpha + alpha_log2 log2(n) + (n-1)/n S/(beta B).

    S is the size of the whole buffer on one rank: gathered (all-gather), before reduction (reduce-scatter),
    sent to all (all-to-all).
    """

    alpha: Seconds
    alpha_log2: Seconds
    """Added latency for each doubling of the group."""
    beta: Efficiency
    """Share of the link bandwidth per direction."""


class AllReduceFit(CollectiveFit):
    """All-reduce, the fastest of its algorithms, with l = alpha + alpha_log2 log2(n).

    One-shot: l + (n-1) S/(beta B), every rank reads all peers. Two-shot: two_shot l + 2 (n-1)/n S/(beta B). Where
    the switch adds up (NVSwitch of Hopper and later, n > 2): switch log2(n) + (1 + 1/n) S/(beta B).
    """

    two_shot: Annotated[float, Field(ge=1, allow_inf_nan=False)]
    """Latency of the two-shot algorithm over that of the one-shot one."""
    in_switch: bool
    """Whether the switch reduces in flight."""
    switch: Seconds = 0.0
    """Latency of a reduction in the switch, per doubling of the group."""


class Collectives(Part):
    """Collectives inside one scale-up domain."""

    all_reduce: AllReduceFit
    all_gather: CollectiveFit
    reduce_scatter: CollectiveFit
    all_to_all: CollectiveFit


class Reference(Part):
    """The datasheet rates that the efficiencies of a one-device document are shares of."""

    peaks: dict[str, FlopPerSecond]
    memory_bandwidth: BytesPerSecond
    link_bandwidth: BytesPerSecond
    compute_units: Count


class FitReport(Part):
    """How one parameter set was obtained and how well it predicts rows that it did not see."""

    operator: str
    dtype: str
    rows: Annotated[int, Field(ge=0)]
    """Rows used in the fit (0: carried over from another document)."""
    rows_held_out: Annotated[int, Field(ge=0)]
    median_ape: Annotated[float, Field(ge=0)] | None = None
    """Median absolute percentage error of the predicted time, as a fraction, held-out rows."""
    p90_ape: Annotated[float, Field(ge=0)] | None = None
    range: str = ""
    """Smallest to largest size among the rows."""
    backends: str = ""
    """Rows, held-out error and bias (median of measured over predicted) by engine."""
    note: str = ""


@register("calibration")
class CalibrationDocument(Document):
    """Kernel parameters of a device, or pooled over a family of devices."""

    schema_name: ClassVar[str] = "llmcap.calibration/1"

    id: str
    name: str
    device: str = ""
    """Id of the device that was measured; empty in a pooled document."""
    family: str = ""
    """Family that a pooled document speaks for; empty in a one-device document."""
    reference: Reference | None = None
    gemm: dict[KernelDtype, GemmFit]
    weight_only: GemmFit
    """4-bit weights times 16-bit activations: P is the bf16 peak, weight bytes those of 4 bits and scales."""
    prefill_attention: dict[KernelDtype, PrefillAttentionFit]
    decode_attention: dict[KernelDtype, DecodeAttentionFit]
    moe: dict[MoeDtype, MoeFit]
    collectives: Collectives
    fits: tuple[FitReport, ...] = ()
    notes: str = ""
    """How far the kernels were measured, where that is not far: said among the assumptions of an answer."""
    sources: tuple[Source, ...]
