"""Time of the operators that run on one device: matrix products, attention, experts, recurrent scans, copies.

Every function gives two answers through one signature. With kernel parameters (fitted to measured kernels, see
`hardware/calibration/`) it returns the calibrated time, split by what bounds it. Without (`params=None`) it returns
the bare roofline terms, compute F/P and memory Q/W, which the caller overlaps: the ideal bound.

Forms. P is the dense peak of the operator's dtype [FLOP/s], W the memory bandwidth [B/s], both of one device; e, w, a
the shares of them that large kernels reach; t0 the launch floor [s]. (+) is the root of the sum of squares: two
resources that overlap in part. The forms and the papers behind them: docs/theory.md, section 4.
"""

from __future__ import annotations

import numpy as np

from llmcap.engine.cost import Cost, Value, banded
from llmcap.records import dataclass

#: Rows of the smallest tile of an expert kernel in decode: the tensor instruction's 16.
DECODE_TILE = 16.0
#: Dense 16-bit tensor rate of a compute unit whose attention kernels work on 128 queries at once, the unit that
#: `query_tiles` counts in [FLOP/s]. 989 TFLOP/s over 132 units: NVIDIA H100 Tensor Core GPU Architecture (SXM5).
QUERY_TILE_RATE = 989e12 / 132


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """What a kernel sees of its device."""

    peak: float
    """Dense peak of the operator's dtype. [FLOP/s]"""
    bandwidth: float
    """Memory bandwidth. [B/s]"""
    compute_units: int
    query_tiles: float = 1.0
    """Tiles of 128 queries that a compute unit works on at once in prefill attention, see `query_tiles`."""


@dataclass(frozen=True, slots=True)
class GemmParams:
    """t = t0 + F/(e P)(1 + x0/x) (+) weights/(w W) + activations/(a W), x = m n / (SMs 128^2)."""

    t0: float
    e: float
    x0: float
    w: float
    a: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class AttentionParams:
    """t = t0 + (F + tail (R/128) SMs q tile)/(e P) + bytes/(w W), tile = 2 (d_qk + d_v) 128^2 FLOP, R the longest row.

    q: tiles of queries per compute unit.
    """

    t0: float
    e: float
    tail: float
    w: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class DecodeAttentionParams:
    """t = t0 + bytes/(w W) (+) F/(e P)."""

    t0: float
    w: float
    e: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class ExpertParams:
    """t = t0 + F/(e P)(1 + r0/r) (+) touched weights/(w W) + activations/(a W), r tokens per touched expert."""

    t0: float
    e: float
    r0: float
    w: float
    a: float
    low: float
    high: float
    tile: float | None = None
    """Smallest tile of the kernels of a decode step [rows]; then r0 is at most r + tile. None: r0 as fitted."""


@dataclass(frozen=True, slots=True)
class StreamParams:
    """t = t0 + bytes/(w W) (+) F/(e P): element-wise passes and recurrent scans."""

    t0: float
    w: float
    e: float
    low: float
    high: float


_Fitted = GemmParams | AttentionParams | DecodeAttentionParams | ExpertParams | StreamParams


def _roofline(flop: Value, moved: Value, rates: DeviceRates) -> Cost:
    """F/P and Q/W, which are also what MFU and MBU are counted from."""
    flop_s, byte_s = flop / rates.peak, moved / rates.bandwidth
    return Cost(compute=flop_s, memory=byte_s, flop_s=flop_s, byte_s=byte_s)


def _calibrated(params: _Fitted, bare: Cost, *, compute: Value, memory: Value, overhead: Value) -> Cost:
    """A time with the band of its fit; `bare` is the roofline of the same work."""
    return banded(
        params.low, params.high, compute=compute, memory=memory, overhead=overhead,
        flop_s=bare.flop_s, byte_s=bare.byte_s,
    )  # fmt: skip


def _overlap(compute: Value, memory: Value) -> tuple[Value, Value]:
    """Split sqrt(c^2 + m^2) between the two in proportion to their squares, so that the parts add up to it."""
    joint = np.sqrt(compute * compute + memory * memory)
    safe = np.where(joint > 0.0, joint, 1.0)
    return compute * compute / safe, memory * memory / safe


def gemm(
    m: Value, *, k: float, n: float, weight_bytes: float, bytes_per_row: float, rates: DeviceRates,
    params: GemmParams | None,
) -> Cost:  # fmt: skip
    """One matrix product of m rows with a k x n weight matrix.

    Parameters
    ----------
    m : float or ndarray
        Rows (tokens). [1]
    k, n : float
        Inputs and outputs on this device. [1]
    weight_bytes : float
        Bytes of the matrix, read once. [B]
    bytes_per_row : float
        Activation bytes read and written per row. [B]
    rates : DeviceRates
    params : GemmParams or None
        None: bare roofline terms.

    Returns
    -------
    Cost
        [s]

    Notes
    -----
    The wave term x0/x makes small tiles inefficient: x counts 128 x 128 output tiles per compute unit. Fitted for
    m 1 to 65,536; the held-out error of each fit stands in its calibration document.

    Examples
    --------
    8,192 x 5,120 x 10,240 at 4,500 TFLOP/s peak: 2 m k n = 8.59e11 FLOP, 191 us at the peak; with e = 0.5 twice that.
    """
    bare = _roofline(2.0 * m * k * n, weight_bytes + m * bytes_per_row, rates)
    if params is None:
        return bare
    x = np.maximum(m * n / (rates.compute_units * 16384.0), 1e-12)
    work = bare.flop_s / params.e * (1.0 + params.x0 / x)
    compute, memory = _overlap(work, weight_bytes / (params.w * rates.bandwidth))
    memory = memory + m * bytes_per_row / (params.a * rates.bandwidth)
    return _calibrated(params, bare, compute=compute, memory=memory, overhead=params.t0)


def query_tiles(peak: float, compute_units: int) -> float:
    """Tiles of 128 queries that a compute unit works on at once in prefill attention, at least one.

    Parameters
    ----------
    peak : float
        Dense 16-bit tensor peak of the device. [FLOP/s]
    compute_units : int

    Notes
    -----
    A kernel keeps the tensor cores of a unit busy with as many queries as they are fast: 128 on Hopper
    (FlashAttention-3), two tiles of 128 on Blackwell, whose units are twice as fast (FlashAttention-4, CUTLASS). So
    the row of key tiles that the last unit still works on takes about the same time on both.

    Examples
    --------
    >>> query_tiles(989e12, 132), round(query_tiles(2250e12, 148), 2), query_tiles(312e12, 108)
    (1.0, 2.03, 1.0)
    """
    return max(1.0, peak / compute_units / QUERY_TILE_RATE)


def prefill_attention(
    flop: Value, rows: Value, read_bytes: Value, launches: Value, *, dims: float, rates: DeviceRates,
    params: AttentionParams | None,
) -> Cost:  # fmt: skip
    """Causal attention of new tokens over earlier ones, summed over the launches of a chunked prefill.

    Parameters
    ----------
    flop : float or ndarray
        2 (d_qk + d_v) x heads x attended pairs on this device. [FLOP]
    rows : float or ndarray
        Tokens that the last query of a launch sees, summed over launches and prompts. [tokens]
    read_bytes : float or ndarray
        Queries, keys, values and outputs moved. [B]
    launches : float or ndarray
        Kernel launches (prefill steps). [1]
    dims : float
        d_qk + d_v of one head.
    rates, params
        As in `gemm`, the peak being that of the attention dtype.

    Returns
    -------
    Cost
        [s], all launches together.

    Notes
    -----
    Additive, not a maximum: each launch ends with a tail in which some units still work on the longest row of key
    tiles, as many queries at once as the unit holds. Because each term is linear in work, the sum over chunks needs
    no loop. Measured to 16,384 tokens; beyond that it extrapolates by work.
    """
    bare = _roofline(flop, read_bytes, rates)
    if params is None:
        return bare
    tail = params.tail * (rows / 128.0) * rates.compute_units * rates.query_tiles * (2.0 * dims * 16384.0)
    compute = (flop + tail) / (params.e * rates.peak)
    return _calibrated(params, bare, compute=compute, memory=bare.byte_s / params.w, overhead=launches * params.t0)


def decode_attention(
    flop: Value, read_bytes: Value, *, rates: DeviceRates, params: DecodeAttentionParams | None
) -> Cost:
    """Attention of one new token per sequence: the cache is read once, score and value products beside it.

    Parameters
    ----------
    flop, read_bytes : float or ndarray
        Of all sequences of the step, on this device. [FLOP], [B]
    rates, params
        As in `prefill_attention`.

    Returns
    -------
    Cost
        [s]; one launch.

    Examples
    --------
    32 sequences that read 100 MB each at 8 TB/s: 3.2 GB, 0.4 ms at the full rate, 0.5 ms with w = 0.8.

    >>> rates = DeviceRates(2.25e15, 8e12, 148)
    >>> cost = decode_attention(0.0, 3.2e9, rates=rates, params=DecodeAttentionParams(0.0, 0.8, 0.5, 1.0, 1.0))
    >>> round(float(cost.serial) * 1e3, 3)
    0.5
    """
    bare = _roofline(flop, read_bytes, rates)
    if params is None:
        return bare
    compute, memory = _overlap(bare.flop_s / params.e, bare.byte_s / params.w)
    return _calibrated(params, bare, compute=compute, memory=memory, overhead=params.t0)


def touched_experts(tokens: Value, experts: int, active: float) -> Value:
    """Distinct experts that a batch meets under uniform routing: E (1 - (1 - k/E)^T).

    Parameters
    ----------
    tokens : float or ndarray
        T. [tokens]
    experts : int
        E.
    active : float
        k, chosen by each token without repetition, independently of other tokens.

    Examples
    --------
    >>> float(touched_experts(1.0, 128, 1)), round(float(touched_experts(128.0, 128, 1)), 1)
    (1.0, 81.1)
    """
    share = active / experts
    if share >= 1.0:
        return experts + 0.0 * tokens
    return np.asarray(-experts * np.expm1(tokens * np.log1p(-share)))


def experts(
    tokens: Value, *, count: int, active: float, flop_per_token: float, bytes_per_expert: float, share: float,
    bytes_per_row: float, rates: DeviceRates, params: ExpertParams | None,
) -> Cost:  # fmt: skip
    """Routed experts of one layer, balanced over the devices of the group.

    Parameters
    ----------
    tokens : float or ndarray
        Tokens of all ranks that share the experts. [tokens]
    count, active : int, float
        Experts, and experts a token meets.
    flop_per_token : float
        FLOP of one token in its experts, whole group. [FLOP]
    bytes_per_expert : float
        Weight bytes of one expert. [B]
    share : float
        Part of the group's work and weights on this device.
    bytes_per_row : float
        Activation bytes per token of the group that this device moves. [B]
    rates, params
        As in `gemm`.

    Returns
    -------
    Cost
        [s]; one launch.

    Notes
    -----
    r0 counts the rows that tiles are padded by in steps of a thousand tokens and more. Decode kernels choose small
    tiles: with `tile` given, min(r0, r + tile) rows of padding per expert, so that a few tokens per expert leave the
    step to the memory bandwidth.

    Examples
    --------
    2 tokens per touched expert and tiles of 16 rows: 2 + 18 rows of arithmetic instead of 2 + 247, were r0 = 247.
    """
    touched = touched_experts(tokens, count, active)
    weights = touched * bytes_per_expert * share
    rows = tokens * bytes_per_row
    bare = _roofline(tokens * flop_per_token * share, weights + rows, rates)
    if params is None:
        return bare
    per_expert = np.maximum(tokens * active / np.maximum(touched, 1e-12), 1e-12)
    padding = params.r0 if params.tile is None else np.minimum(params.r0, per_expert + params.tile)
    work = bare.flop_s / params.e * (1.0 + padding / per_expert)
    compute, memory = _overlap(work, weights / (params.w * rates.bandwidth))
    memory = memory + rows / (params.a * rates.bandwidth)
    return _calibrated(params, bare, compute=compute, memory=memory, overhead=params.t0)


def stream(move_bytes: Value, flop: Value, launches: Value, *, rates: DeviceRates, params: StreamParams | None) -> Cost:
    """Bytes through memory with some arithmetic beside: norms, activations, gathers, recurrent scans.

    Parameters
    ----------
    move_bytes, flop, launches : float or ndarray
        Of all launches together. [B], [FLOP], [1]
    rates, params
        As in `gemm`, the peak being that of bf16.

    Returns
    -------
    Cost
        [s], all launches together.

    Examples
    --------
    80 GB at 8 TB/s: 10 ms, and 100 launches of 5 us.

    >>> rates = DeviceRates(2.25e15, 8e12, 148)
    >>> cost = stream(80e9, 0.0, 100.0, rates=rates, params=StreamParams(5e-6, 1.0, 1.0, 1.0, 1.0))
    >>> round(float(cost.serial) * 1e3, 3)
    10.5
    """
    bare = _roofline(flop, move_bytes, rates)
    if params is None:
        return bare
    compute, memory = _overlap(bare.flop_s / params.e, bare.byte_s / params.w)
    return _calibrated(params, bare, compute=compute, memory=memory, overhead=launches * params.t0)
