"""What fills the memory of one device, part by part."""

from __future__ import annotations

from typing import Any

from llmcap.analyses.memory import MemoryModel
from llmcap.analyses.result import Estimate


def device_memory(answer: Estimate) -> list[dict[str, Any]]:
    """What fills the memory of the fullest device, in order: rows {part, bytes} that add up to its capacity.

    A negative last row (`free`) is what is short.
    """
    setting, p = answer.setting, answer.setting.parallelism
    memory, engine = MemoryModel.of(setting), setting.engine
    capacity = setting.machine.device.memory.capacity
    tokens = float(answer.inputs["context_tokens"] + answer.inputs["output_tokens"])
    fullest = -(-answer.inputs["users"] // p.dp)
    caches = fullest * float(memory.reserved_per_user(tokens)) / (p.tp * p.pp * p.cp)
    if answer.serving:  # who finds no room waits
        caches = min(caches, max(memory.pool, 0.0))
    parts = {
        "weights": memory.weights_per_device,
        "KV cache": caches,
        "work space": memory.work_space,
        "engine reserve": capacity * (1.0 - engine.memory_share) + engine.memory_fixed,
    }
    return [{"part": part, "bytes": value} for part, value in {**parts, "free": capacity - sum(parts.values())}.items()]
