"""A tier as it is typed on the command line: name:capacity:bandwidth."""

from __future__ import annotations

from typing import Any

from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.specs.hardware import CustomTier
from llmcap.specs.loader import sha256_of
from llmcap.specs.registry import Used, as_path
from llmcap.units import QuantityError, parse_quantity

_THROUGH = ("host", "device", "network", "peer")
_KEYS = ("write", "latency", "through")
_EXAMPLE = "write name:capacity:bandwidth, for example 'cxl:2 TB:100 GB/s'"


def parse_tier(text: str) -> tuple[CustomTier, list[Used]]:
    """A tier, and the files that it was read from.

    Parameters
    ----------
    text : str
        name:capacity:bandwidth, then optional write=, latency=, through=. In place of the bandwidth may stand a JSON
        file of results of the MLPerf Storage KV cache benchmark, which gives write bandwidth and latency too.

    Raises
    ------
    OptionError
    DocumentError
        The results file.

    Examples
    --------
    >>> tier, _ = parse_tier("cxl:2 TB:100 GB/s:latency=1 us")
    >>> tier.name, tier.capacity, tier.read, tier.latency
    ('cxl', 2000000000000.0, 100000000000.0, 1e-06)
    """
    shown = printable(text, 80)
    name, *rest = (piece.strip() for piece in text.split(":"))
    name = name.lower()
    if len(rest) < 2:
        raise OptionError("--tier", f"'{shown}' is not a tier", _EXAMPLE)
    if not name or len(name) > 40 or not all(c.isalnum() or c in "-_." for c in name) or not name.isascii():
        raise OptionError("--tier", f"'{shown}' has no usable name", "use letters, digits, '-', '_' and '.'")
    if name == "hbm":
        raise OptionError("--tier", "hbm is the devices' own memory", "choose another name")
    found: dict[str, Any] = {"name": name, "latency": 0.0}
    files: list[Used] = []
    fields = [("capacity", rest[0])]
    if rest[1].lower().endswith(".json"):
        from llmcap.analyses.offload.mlperf_storage import read_results

        path = as_path(rest[1])
        found |= read_results(path)
        files.append(Used(path.name, sha256_of(path), "measured"))
    else:
        fields.append(("read", rest[1]))
    for piece in rest[2:]:
        key, equals, value = (part.strip() for part in piece.partition("="))
        if not equals or key not in _KEYS:
            hint = f"{did_you_mean(key, _KEYS)} write for example latency=10us".strip()
            raise OptionError("--tier", f"'{printable(piece, 40)}' in '{shown}' is not understood", hint)
        if key != "through":
            fields.append((key, value))
            continue
        if value not in _THROUGH:
            raise OptionError(
                "--tier", f"through={printable(value, 20)} is unknown", f"choose one of {', '.join(_THROUGH)}"
            )
        found[key] = value
    for key, value in fields:
        dimension = {"capacity": "bytes", "latency": "seconds"}.get(key, "bytes_per_s")
        try:
            found[key] = parse_quantity(value, dimension, allow_zero=key == "latency")
        except QuantityError as error:
            raise OptionError("--tier", f"{key} of '{shown}': {error.message}", error.hint) from None
    # Values are base SI numbers already, where a document holds text with units.
    return CustomTier.model_construct(**found), files
