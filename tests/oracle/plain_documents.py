"""The shipped documents as plain dictionaries, read without any of llmcap: YAML, and quantities by a table of units."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]

_PREFIX = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PREFIX |= {p + "i": 1024.0 ** (i + 1) for i, p in enumerate("KMGT")}
_TIME = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def number(value: Any) -> float:
    """A quantity in base SI units: '64 TB/s', '3.15 us', '3.3 M/s', '8192', '1M', or a plain number."""
    if isinstance(value, int | float):
        return float(value)
    match = re.fullmatch(r"([0-9.]+(?:e-?[0-9]+)?)\s*([A-Za-z]*)(/s)?", value.strip())
    assert match is not None, value
    amount, unit, _ = match.groups()
    if unit in _TIME:
        return float(amount) * _TIME[unit]
    for base in ("FLOP", "B"):
        if unit.endswith(base):
            return float(amount) * _PREFIX[unit[: -len(base)]]
    return float(amount) * _PREFIX[unit]


@cache
def read(folder: str, name: str) -> dict[str, Any]:
    """A shipped document by folder and id, or a path to one."""
    path = Path(name) if name.endswith(".yaml") else ROOT / folder / f"{name}.yaml"
    found = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(found, dict)
    return found
