"""Exchange with the KV cache benchmark of MLPerf Storage: a model as its configuration, its results as a tier.

The benchmark (github.com/mlcommons/storage, kv_cache_benchmark) moves caches of a model between memory tiers and files.
Its "gbps" are GiB a second over the whole run, idle time included: a floor of what the tier can do, unless the run was
bound by it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from llmcap.errors import DocumentError, Problem, printable

if TYPE_CHECKING:
    from llmcap.analyses.setting import Setting

_GIB: Final = 2.0**30
_GB: Final = 1e9
_MOST_BYTES: Final = 256 * 2**20
_ELEMENT: Final = {"fp32": ("float32", 4), "bf16": ("bfloat16", 2), "fp16": ("float16", 2)}


def read_results(path: Path) -> dict[str, float]:
    """Bandwidths and latency of the storage tier from a results file of one run.

    Returns
    -------
    dict
        read, write [B/s] and latency [s], as a custom tier names them. The latency is the median read of the device
        less the transfer of an average entry at the measured rate, never below zero.

    Raises
    ------
    DocumentError
        Not readable, not results of the benchmark, or without reads from storage.
    """
    file = printable(str(path), 200)

    def wrong(message: str, hint: str) -> DocumentError:
        return DocumentError([Problem(file, None, "", message, hint)])

    try:
        if path.stat().st_size > _MOST_BYTES:
            raise wrong("is larger than any results file", "give the JSON file that kv-cache.py --output wrote")
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise wrong(
            f"cannot be read as JSON: {printable(error, 120)}", "give the file of kv-cache.py --output"
        ) from None
    summary = data.get("summary") if isinstance(data, dict) else None
    stats = summary.get("cache_stats") if isinstance(summary, dict) else None
    if not isinstance(summary, dict) or not isinstance(stats, dict):
        raise wrong("has no summary.cache_stats", "give the JSON file that kv-cache.py --output wrote")
    duration = _number(summary, "elapsed_time")
    read = _rate(stats, "read", duration)
    if read is None:
        raise wrong("shows no reads from storage", "run the benchmark with --gpu-mem-gb 0 --cpu-mem-gb 0")
    found = {"read": read}
    write = _rate(stats, "write", duration)
    if write is not None:
        found["write"] = write
    median = _number(stats, "storage_read_device_p50_ms") or _number(stats, "nvme_read_device_p50_ms")
    moved, reads = _number(stats, "total_read_bytes"), _number(stats, "read_iops")
    if median is not None and moved and reads:
        found["latency"] = max(median / 1e3 - moved / reads / read, 0.0)
    return found


def _rate(stats: Mapping[str, Any], way: str, duration: float | None) -> float | None:
    """[B/s]; older versions give only the bytes of the run."""
    listed = _number(stats, f"tier_storage_{way}_bandwidth_gbps")
    if listed:
        return listed * _GIB
    moved = _number(stats, f"total_{way}_bytes")
    return moved / duration if moved and duration else None


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return float(value)


def benchmark_config(setting: Setting, users: int) -> str:
    """The model and tiers of a setting as a YAML configuration, with the command to run in a comment.

    Notes
    -----
    The benchmark multiplies layers, heads and head size. A model whose layers differ is given as one layer with a
    latent that holds everything one more token adds; windows and constant states are beyond it.

    Parameters
    ----------
    setting : Setting
    users : int
        Concurrent users.
    """
    from llmcap.analyses.memory import MemoryModel  # settings come from tiers, and tiers from this module

    memory = MemoryModel.of(setting)
    machine, structure = setting.machine, setting.structure
    per_token = memory.growing_per_token()
    dtype, size = _ELEMENT.get(setting.kv_dtype, ("int8", 1))
    elements = round(per_token / size)
    tiers = {tier.name: tier for tier in machine.tiers}
    flags = {
        "--model": setting.model.id,
        "--num-users": f"{users}",
        "--gpu-mem-gb": f"{max(memory.pool, 0.0) / _GB:.0f}",
        "--num-gpus": f"{machine.devices}",
        "--tensor-parallel": f"{setting.parallelism.tp}",
        "--cpu-mem-gb": f"{tiers['dram'].capacity / _GB:.0f}" if "dram" in tiers else "0",
    }
    if "nvme" in tiers:
        flags["--storage-capacity-gb"] = f"{tiers['nvme'].capacity / _GB:.0f}"
    command = " ".join(f"{flag} {value}" for flag, value in flags.items())
    return (
        f"# KV cache benchmark of MLPerf Storage: {setting.model.name}, {setting.kv_dtype} cache, "
        f"{per_token:,.0f} bytes per token\n"
        f"# python kv-cache.py --config THIS_FILE {command} --cache-dir DIR --output results.json\n"
        f"# then: llmcap tiers --tier nvme:CAPACITY:results.json\n"
        "model_configs:\n"
        f"  {setting.model.id}:\n"
        f"    name: {json.dumps(setting.model.name)}\n"
        "    attention_type: mla\n"
        "    num_layers: 1\n"
        f"    hidden_dim: {structure.hidden}\n"
        f"    num_heads: {structure.query_heads}\n"
        "    kv_heads: 1\n"
        f"    kv_lora_rank: {elements}\n"
        "    qk_rope_head_dim: 0\n"
        f"    dtype: {dtype}\n"
    )
