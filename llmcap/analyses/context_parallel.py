"""Prefill attention over context-parallel ranks: bytes of the ring, priced by the machine."""

from __future__ import annotations

from llmcap.analyses.setting import Setting
from llmcap.arch.dtypes import bytes_per_element
from llmcap.arch.operators import RESIDUAL_BYTES, WEIGHT_BYTES, Attention
from llmcap.engine.collectives import CollectiveParams, Fabric
from llmcap.engine.cost import Cost, Value
from llmcap.engine.ring import RingMessages, ring
from llmcap.specs.calibration import CollectiveFit


def ring_messages(op: Attention, queries: Value, keys: Value, ranks: int) -> RingMessages:
    """What one rank sends in one layer.

    Parameters
    ----------
    op : Attention
    queries : float or ndarray
        New tokens of one rank. [tokens]
    keys : float or ndarray
        Slots in sight at the end of each step, all ranks' parts together, summed over the steps. [1]
    ranks : int
    """
    outputs = op.heads * (op.work.v_dim * RESIDUAL_BYTES + WEIGHT_BYTES)
    return RingMessages(
        keys * (op.slot_bytes / ranks),
        queries * (op.heads * op.work.qk_dim * bytes_per_element(op.dtype)),
        queries * (outputs * ranks),
    )


def ring_fabric(setting: Setting) -> Fabric:
    """The slowest link between the ranks: network cards where the ring leaves the server."""
    return setting.machine.fabric(setting.parallelism.tp * setting.parallelism.cp)


def ring_fit(setting: Setting) -> CollectiveFit:
    """A hop is priced as a hand-over between stages is: as a gather of two ranks."""
    return setting.calibration.collectives.all_gather


def ring_cost(setting: Setting, messages: RingMessages, attention: Value, launches: Value) -> Cost:
    """Visible messages of one layer's ring; `attention` is one rank's own time without launches. [s]"""
    params = None
    if setting.calibrated:
        fit = ring_fit(setting)
        low, high = min(fit.low, 1.0), max(fit.high, 1.0)
        params = CollectiveParams(fit.alpha, fit.alpha_log2, fit.beta, low, high)
    fabric = ring_fabric(setting)
    return ring(messages, attention, setting.parallelism.cp, launches, fabric=fabric, params=params)


def merged_bytes(op: Attention, queries: Value, ranks: int) -> Value:
    """Memory traffic of joining one rank's partial outputs: all but the first are written and read once more. [B]"""
    return queries * (op.heads * op.work.v_dim * RESIDUAL_BYTES * 2.0 * (ranks - 1))
