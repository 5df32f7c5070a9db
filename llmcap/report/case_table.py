"""A table of cases for people: what differs between them, the times, and what each tier makes of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from llmcap.report.tables import Row, plain_table
from llmcap.units import format_bytes, format_count, format_seconds

#: Columns of a case that describe the question, in the order of the answer; those that never change are left out.
_ASKED: Final = (
    "model", "hardware", "devices", "tp", "pp", "dp", "ep", "cp", "weight_dtype", "activation_dtype", "kv_dtype",
    "attention_dtype", "kv_policy", "engine", "chunk_tokens", "assumptions", "arrivals", "arrivals_per_s", "lengths",
    "prefill_devices", "prefill_tp", "prefill_ep", "draft_tokens", "acceptance", "users", "sessions", "context_tokens",
    "cached_tokens", "output_tokens",
)  # fmt: skip
_ALWAYS: Final = ("model", "users", "context_tokens")


def _shown(form: Callable[[Any], str]) -> Callable[[Any], str]:
    return lambda value: "-" if value is None else form(value)


#: (column, heading, how it is written)
_FIGURES: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("ttft_s", "first token", _shown(format_seconds)),
    ("tpot_s", "per token", _shown(format_seconds)),
    ("kv_bytes_per_user", "KV a user", _shown(format_bytes)),
    ("max_users_hbm", "room for", _shown("{:,}".format)),
    ("tier", "tier", str),
    ("users_held", "holds", _shown("{:,}".format)),
    ("ttft_reload_s", "with reload", _shown(format_seconds)),
    ("recompute_s", "without", _shown(format_seconds)),
    ("winner", "faster", _shown(str)),
)
#: The same of a steady state, where one is asked for.
_SERVING: Final[tuple[tuple[str, str, Callable[[Any], str]], ...]] = (
    ("serving_ttft_s", "TTFT served", _shown(format_seconds)),
    ("serving_tpot_s", "TPOT served", _shown(format_seconds)),
    ("serving_output_tok_per_s", "tokens/s", _shown("{:,.0f}".format)),
    ("serving_saturation_requests_per_s", "saturates at", _shown("{:,.3g}/s".format)),
)


def cases_table(rows: Sequence[Row]) -> str:
    """Rows of `evaluate_cases` as aligned text, one line per case and tier; csv and json hold every column."""
    asked = [name for name in _ASKED if name in _ALWAYS or len({row.get(name) for row in rows}) > 1]
    figures = _FIGURES if not any("serving_fits" in row for row in rows) else (*_FIGURES[:2], *_SERVING, *_FIGURES[2:])
    found = []
    for row in rows:
        cells = {_heading(name): _written(name, row.get(name)) for name in asked}
        cells |= {heading: form(row.get(column)) for column, heading, form in figures}
        if not row["fits"]:
            cells["first token"] = "does not fit"
        found.append(cells)
    words = {"model", "hardware", "weight dtype", "activation dtype", "kv dtype", "attention dtype", "kv policy"}
    left = words | {"engine", "assumptions", "arrivals", "lengths", "tier", "faster"}
    right = {name for cells in found[:1] for name in cells} - left
    return plain_table(found, right=right) + "All columns: --format csv or json.\n"


def _heading(name: str) -> str:
    return name.removesuffix("_tokens").replace("_", " ")


def _written(name: str, value: Any) -> str:
    if value is None:
        return "-"
    return format_count(int(value)) if name.endswith("_tokens") or name in ("users", "sessions") else str(value)
