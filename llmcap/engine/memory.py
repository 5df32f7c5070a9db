"""What fits in device memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from llmcap.engine.cost import Value

Array = NDArray[np.float64]


def cache_pool(capacity: float, usable: float, fixed: float, weights: float, activations: Value) -> Value:
    """Bytes left for caches on one device; negative when weights and work space alone do not fit.

    Parameters
    ----------
    capacity : float
        Device memory as the driver reports it. [B]
    usable : float
        Share of it that the engine allows itself (vLLM: gpu_memory_utilization, 0.9).
    fixed : float
        Context, graphs and communication buffers. [B]
    weights : float
        [B]
    activations : float or ndarray
        Largest work space of a step. [B]

    Returns
    -------
    float or ndarray
        [B]
    """
    return capacity * usable - fixed - weights - activations


def sequences_held(pool: Value, bytes_per_sequence: Value) -> Array:
    """Whole sequences of `bytes_per_sequence` that `pool` bytes hold, 0 when the pool is negative."""
    pool = np.maximum(pool, 0.0)
    return np.asarray(
        np.where(bytes_per_sequence > 0.0, np.floor(pool / np.maximum(bytes_per_sequence, 1e-300)), np.inf)
    )
