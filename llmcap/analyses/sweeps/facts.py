"""What the conditions of a scenario can name: the resolved inputs of a setting, and facts of its model."""

from __future__ import annotations

from typing import Any

from llmcap.analyses.result import setting_inputs
from llmcap.analyses.setting import Setting
from llmcap.arch.structure import Structure


def facts_of(setting: Setting) -> dict[str, Any]:
    """What a condition can name of a setting."""
    return {**setting_inputs(setting), **model_facts(setting.structure), "max_context": setting.model.max_context}


def model_facts(structure: Structure) -> dict[str, Any]:
    """What a condition can name of a model alone."""
    units = [term.units for part, _ in structure.mixers for term in part.states if not term.constant]
    experts = [part.experts.experts for part, _ in structure.ffns if part.experts is not None]
    return {
        "query_heads": structure.query_heads,
        "kv_heads": min(units, default=0),
        "layers": structure.layers,
        "experts": min(experts, default=0),
    }
