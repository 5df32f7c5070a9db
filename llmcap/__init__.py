"""llmcap: how long until the first token, how big is the KV cache, where does it live, and is reloading it faster than
computing it again.

The public names load on first use, so that `import llmcap` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from llmcap import display as _display

if TYPE_CHECKING:
    from llmcap.analyses.claims.suite import validate_suite as validate_suite
    from llmcap.analyses.estimate import estimate as estimate
    from llmcap.analyses.estimate import load_hardware as load_hardware
    from llmcap.analyses.estimate import load_model as load_model
    from llmcap.analyses.frames import compare as compare
    from llmcap.analyses.frames import explain as explain
    from llmcap.analyses.frames import plan as plan
    from llmcap.analyses.offload.tier_table import tiers as tiers
    from llmcap.analyses.replays.replay import replay as replay
    from llmcap.analyses.result import Estimate as Estimate
    from llmcap.errors import CapacityError as CapacityError
    from llmcap.errors import DocumentError as DocumentError
    from llmcap.errors import LlmcapError as LlmcapError
    from llmcap.errors import OptionError as OptionError

__version__ = "0.1.0"

_HOMES = {
    "Estimate": "llmcap.analyses.result",
    "estimate": "llmcap.analyses.estimate",
    "load_model": "llmcap.analyses.estimate",
    "load_hardware": "llmcap.analyses.estimate",
    "compare": "llmcap.analyses.frames",
    "explain": "llmcap.analyses.frames",
    "plan": "llmcap.analyses.frames",
    "tiers": "llmcap.analyses.offload.tier_table",
    "replay": "llmcap.analyses.replays.replay",
    "validate_suite": "llmcap.analyses.claims.suite",
    "LlmcapError": "llmcap.errors",
    "OptionError": "llmcap.errors",
    "DocumentError": "llmcap.errors",
    "CapacityError": "llmcap.errors",
}

# Answers lie below what draws them; only the package as a whole knows both.
for _answer, _name in (("Estimate", "estimate"), ("TierTable", "tiers"), ("Replay", "replay")):
    for _form in ("html", "markdown"):
        _display.register(_answer, _form, "llmcap.report.notebook", f"{_name}_{_form}")

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'llmcap' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
