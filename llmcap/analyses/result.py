"""Results as people and programs take them: one estimate as a document, many cases as rows.

Column and key names are those of the glossary; a row is one case and one tier.
"""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from llmcap.analyses.evaluate import LIMITS, Columns
from llmcap.analyses.setting import Setting
from llmcap.display import Displayed
from llmcap.records import dataclass

if TYPE_CHECKING:
    import pandas as pd

Array = NDArray[np.float64]

RESULT_COLUMNS = (
    "prefill_s", "ttft_s", "ttft_low_s", "ttft_high_s", "ttft_mean_s", "tpot_s", "tpot_low_s", "tpot_high_s", "e2el_s",
    "output_tok_per_s", "kv_bytes_per_token", "kv_bytes_per_user", "kv_bytes_total", "kv_bytes_total_reserved",
    "weight_bytes", "weight_bytes_per_device", "hbm_free_bytes", "max_users_hbm", "fits", "limit", "mfu", "mbu",
)  # fmt: skip
TIER_COLUMNS = (
    "tier", "capacity_bytes", "read_bytes_per_s", "effective_read_bytes_per_s", "users_held", "reload_s",
    "ttft_reload_s", "ttft_overlap_s", "ttft_hybrid_s", "recompute_s", "speedup", "winner", "break_even_bytes_per_s",
    "break_even_tokens",
)  # fmt: skip
PHASES = ("embedding", "prefill", "decode", "post-processing")


def setting_inputs(setting: Setting) -> dict[str, Any]:
    """The inputs that all cases of a setting share, resolved."""
    p = setting.parallelism
    return {
        "model": setting.model.id,
        "hardware": setting.machine.server.id,
        "devices": p.devices,
        "tp": p.tp,
        "pp": p.pp,
        "dp": p.dp,
        "ep": p.ep,
        "cp": p.cp,
        "weight_dtype": setting.weights.default,
        "activation_dtype": setting.activation_dtype,
        "kv_dtype": setting.kv_dtype,
        "attention_dtype": setting.attention_dtype,
        "kv_policy": setting.options.kv_policy,
        "engine": setting.engine.id,
        "chunk_tokens": setting.chunk_tokens,
        "assumptions": setting.assumptions.id,
        **load_inputs(setting),
    }


def load_inputs(setting: Setting) -> dict[str, Any]:
    """How requests arrive and are served, where they do not simply arrive together; only what was asked for."""
    options = setting.options
    if options.arrivals == "together":
        return {}
    closed = options.arrivals == "closed"
    found = {
        "arrivals": "closed" if closed else "poisson",
        "arrivals_per_s": None if closed else options.arrivals,
        "lengths": (options.lengths or "varied") if closed else None,
        "draft_tokens": options.draft_tokens,
        "acceptance": options.acceptance,
        **{name: getattr(options, name) for name in ("prefill_devices", "prefill_tp", "prefill_ep")},
    }
    return {name: value for name, value in found.items() if value is not None}


def plain(name: str, value: Any) -> Any:
    """A scalar as JSON holds it: whole numbers as integers, no NaN, words for limits."""
    if name == "limit":
        return LIMITS[int(value)]
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, str) or value is None:
        return value
    number = float(value)
    if not np.isfinite(number):
        return None
    if name.startswith(_WHOLE) and number.is_integer():
        return int(number)
    return number


#: Columns that count bytes, users or tokens.
_WHOLE = (
    "kv_bytes", "weight_bytes", "hbm_free", "max_users", "users", "sessions", "capacity", "context", "cached",
    "output_tokens", "break_even_tokens", "read_bytes_per_s",
)  # fmt: skip


def winner(wins: Any, fits: Any) -> str | None:
    """The word for a tier's `wins` where the users fit."""
    if not bool(fits):
        return None
    return "reload" if bool(wins) else "recompute"


@dataclass(frozen=True, slots=True)
class CaseArrays:
    """Columns of a setting's cases, flattened to one case axis of length N (row-major over broadcast inputs)."""

    setting: Setting
    inputs: dict[str, Array]
    """users, context_tokens, cached_tokens, output_tokens: arrays of length N. [1], [tokens]"""
    results: dict[str, Array]
    tiers: dict[str, dict[str, Array]]

    @property
    def size(self) -> int:
        return int(self.inputs["users"].size)

    @property
    def tier_names(self) -> tuple[str, ...]:
        return tuple(self.tiers)


def flatten(
    setting: Setting, columns: Columns, users: Array, context: Array, cached: Array, output: Array
) -> CaseArrays:
    """Broadcast everything to one shape and lay it out along one axis."""
    shape = np.broadcast_shapes(users.shape, context.shape, cached.shape, output.shape)

    def flat(value: Any) -> Any:
        return np.broadcast_to(np.asarray(value), shape).reshape(-1)

    return CaseArrays(
        setting,
        {
            "users": flat(users),
            "context_tokens": flat(context),
            "cached_tokens": flat(cached),
            "output_tokens": flat(output),
        },
        {name: flat(columns.results[name]) for name in RESULT_COLUMNS if name in columns.results},
        {tier: {name: flat(v) for name, v in values.items()} for tier, values in columns.tiers.items()},
    )


def rows_of(arrays: CaseArrays) -> list[dict[str, Any]]:
    """One dict per case and tier, in order; for tables of a size that a person reads."""
    shared = setting_inputs(arrays.setting)
    rows = []
    for i in range(arrays.size):
        case = shared | {n: plain(n, v[i]) for n, v in arrays.inputs.items()}
        case |= {n: plain(n, v[i]) for n, v in arrays.results.items()}
        fits = bool(arrays.results["fits"][i])
        for tier in arrays.tier_names:
            rows.append(case | _tier_row(tier, arrays.tiers[tier], i, fits))
    return rows


def _tier_row(tier: str, values: dict[str, Array], i: int, fits: bool) -> dict[str, Any]:
    row: dict[str, Any] = {"tier": tier}
    for name in TIER_COLUMNS[1:]:
        if name == "winner":
            row[name] = winner(values["wins"][i], fits)
        elif name in values:
            row[name] = plain(name, values[name][i])
    return row


@dataclass(frozen=True, slots=True)
class Estimate(Displayed):
    """The answer to one question.

    `to_dict()` is the JSON document of the command, `tiers` its list of tiers, `to_frame()` one row per tier.
    """

    inputs: dict[str, Any]
    results: dict[str, Any]
    phases: list[dict[str, Any]]
    tiers: list[dict[str, Any]]
    assumptions: list[dict[str, Any]]
    warnings: list[str]
    provenance: dict[str, Any]
    setting: Setting = field(repr=False)
    costs: dict[str, Any] = field(default_factory=dict)
    """Power, energy and money; empty unless prices were given."""
    serving: dict[str, Any] = field(default_factory=dict)
    """Steady state; empty where all users arrive together. Rows name it with the prefix serving_."""

    @property
    def fits(self) -> bool:
        """Whether the active users fit device memory; if not, no time is given."""
        return bool(self.results["fits"])

    @property
    def answered(self) -> bool:
        """Whether what was asked can be served: in steady state where requests come and go, else all at once."""
        if not self.serving:
            return self.fits
        return bool(self.serving["fits"]) and self.serving["limit"] != "saturated"

    def to_dict(self) -> dict[str, Any]:
        """The answer as plain data, schema llmcap.estimate/1."""
        return {
            "schema": "llmcap.estimate/1",
            "inputs": self.inputs,
            "results": self.results,
            **({"serving": self.serving} if self.serving else {}),
            "phases": self.phases,
            "tiers": self.tiers,
            "assumptions": self.assumptions,
            "warnings": self.warnings,
            "provenance": self.provenance,
        } | ({"costs": self.costs} if self.costs else {})

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict per tier, named as the sweep's columns."""
        serving = {f"serving_{name}": value for name, value in self.serving.items()}
        return [{**self.inputs, **self.results, **serving, **self.costs, **tier} for tier in self.tiers]

    def to_frame(self) -> pd.DataFrame:
        """One row per tier."""
        import pandas as pd

        return pd.DataFrame(self.rows())
