"""The options of a question: names, defaults, and the checks that need no document.

A value may be text as a person types it ("1M", "128Ki") or a number; the same names are the command's options, the
columns of a cases file and the axes of a scenario.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, get_args

from llmcap.errors import OptionError, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.specs.model import Dtype
from llmcap.units import QuantityError, format_bytes, parse_count, parse_quantity

DTYPES: tuple[str, ...] = get_args(Dtype)
KV_POLICIES = ("hybrid", "all-full")
ARRIVALS = ("together", "closed")
LENGTHS = ("varied", "equal")


@dataclass(frozen=True, slots=True)
class Options:
    """Everything that picks the structure of a case: documents, dtypes, parallelism. None means the default."""

    model: str = "llama-4-maverick"
    hardware: str = "dgx-b200"
    devices: int | None = None
    tp: int | None = None
    pp: int | None = None
    dp: int | None = None
    ep: int | None = None
    cp: int | None = None
    weight_dtype: str | None = None
    activation_dtype: str | None = None
    kv_dtype: str | None = None
    attention_dtype: str | None = None
    kv_policy: str = "hybrid"
    assumptions: str = "calibrated"
    engine: str = "vllm"
    chunk_tokens: int | None = None
    drive: str | None = None
    drives: int | None = None
    dram: float | None = None
    expander: str | None = None
    expanders: int | None = None
    nic: str | None = None
    nics: int | None = None
    store: str | None = None
    tiers: tuple[str, ...] = ()
    """Further places for caches, each written name:capacity:bandwidth."""
    storage_path: str | None = None
    transfer_block: float | None = None
    transfers_in_flight: int | None = None
    arrivals: str | float = "together"
    """How requests arrive: "together", "closed" in a loop, or a rate of Poisson arrivals [1/s]."""
    lengths: str | None = None
    draft_tokens: int | None = None
    acceptance: float | None = None
    prefill_devices: int | None = None
    prefill_tp: int | None = None
    prefill_ep: int | None = None

    def together(self) -> Options:
        """The same with all users arriving together: what the memory and the steps of a setting depend on.

        Experts that are spread over a pool of devices are spread over as large a part of all of them as divides both.
        """
        if self.arrivals == "together":
            return self
        nothing: dict[str, Any] = dict.fromkeys(LOAD_OPTIONS)
        changes = nothing | {"arrivals": "together"}
        if self.prefill_devices is not None and self.ep is not None and self.devices is not None:
            changes["ep"] = math.gcd(self.ep, self.devices // ((self.pp or 1) * (self.cp or 1)))
        return replace(self, **changes)


#: Options that are numbers along the case axis, with their defaults.
AXES: dict[str, int | str] = {
    "users": 1,
    "context": "1M",
    "cached_tokens": 0,
    "output_tokens": 1000,
}
#: Options of serving in steady state, which `estimate` and sweeps answer.
LOAD_OPTIONS = (
    "arrivals",
    "lengths",
    "draft_tokens",
    "acceptance",
    "prefill_devices",
    "prefill_tp",
    "prefill_ep",
)
#: Options that count things, of the structure.
_COUNTS = (
    "devices",
    "tp",
    "pp",
    "dp",
    "ep",
    "cp",
    "chunk_tokens",
    "drives",
    "expanders",
    "nics",
    "transfers_in_flight",
    "draft_tokens",
    "prefill_devices",
    "prefill_tp",
    "prefill_ep",
)
#: Beyond these a question is a slip of the pen, and tokens could no longer be counted exactly or in time.
_LARGEST = {
    **dict.fromkeys(("users", "context", "cached_tokens", "output_tokens"), 10**9),
    **dict.fromkeys(("devices", "drives", "expanders", "nics"), 10**6),
    "draft_tokens": 64,
    "workers": 1024,
    "block_tokens": 10**6,
}
_DTYPE_OPTIONS = ("weight_dtype", "activation_dtype", "kv_dtype", "attention_dtype")
_ALIASES = {"context_tokens": "context", "isl": "context", "osl": "output_tokens", "tier": "tiers"}


def option_name(name: str) -> str:
    """The option as it is typed: cached_tokens -> --cached-tokens."""
    return "--" + name.replace("_", "-")


def canonical(name: str) -> str:
    """The option a column or keyword stands for (context_tokens is context), dashes allowed."""
    plain = name.strip().lower().replace("-", "_")
    return _ALIASES.get(plain, plain)


def known_options() -> tuple[str, ...]:
    """All names that a case may give."""
    return (*(f.name for f in fields(Options)), *AXES, "sessions")


def count(name: str, value: object, minimum: int = 1) -> int:
    """A whole number of at least `minimum`, from text or a number.

    Raises
    ------
    OptionError
        Naming the option, the value and what would be right.
    """
    example = {"context": "128k", "users": "10"}.get(name, "8")
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise OptionError(
            option_name(name), f"'{printable(value)}' is not a whole number", f"write for example {example}"
        )
    try:
        number = parse_count(value)
    except ValueError as error:
        hint = getattr(error, "hint", "") or f"write for example {example}"
        raise OptionError(option_name(name), getattr(error, "message", str(error)), hint) from None
    if number > (most := _LARGEST.get(name, number)):
        raise OptionError(option_name(name), f"'{printable(value)}' is too large", f"the largest is {most:,}")
    if number < minimum:
        raise OptionError(
            option_name(name), f"must be at least {minimum}, not {number}", f"write for example {example}"
        )
    return number


def options_from(given: Mapping[str, Any], *, under_load: bool = False) -> Options:
    """Check the structural options given and lay them over the defaults.

    Parameters
    ----------
    given : mapping
        Option names to values, text or numbers.
    under_load : bool
        Whether the question can be asked of requests that come and go.

    Raises
    ------
    OptionError
        Unknown name, dtype or policy, or a count that is none.
    """
    known = {f.name for f in fields(Options)}
    clean: dict[str, Any] = {}
    for name, value in given.items():
        if name not in known:
            raise OptionError(option_name(name), "no such option", did_you_mean(name, known_options()))
        if value is None or (isinstance(value, str) and not value.strip()):
            continue
        if name in LOAD_OPTIONS and not under_load:
            raise OptionError(
                option_name(name), "is a matter of `estimate` and of sweeps", "leave it out here, or ask there"
            )
        if name == "arrivals":
            clean[name] = _arrivals(value)
        elif name == "acceptance":
            clean[name] = _fraction(name, value)
        elif name == "lengths":
            clean[name] = _choice(name, str(value), LENGTHS)
        elif name in _COUNTS:
            clean[name] = count(name, value)
        elif name in _DTYPE_OPTIONS:
            clean[name] = _choice(name, str(value), DTYPES)
        elif name == "kv_policy":
            clean[name] = _choice(name, str(value), KV_POLICIES)
        elif name in ("dram", "transfer_block"):
            clean[name] = _bytes(name, value)
        elif name == "storage_path":
            clean[name] = _choice(name, str(value), ("direct", "bounce"))
        elif name == "tiers":
            clean[name] = _texts("tier", value)
        elif isinstance(value, str):
            clean[name] = value.strip()
        else:
            raise OptionError(option_name(name), f"'{printable(value)}' is not a name", "give an id or a path")
    options = replace(Options(), **clean)
    _check_load(options)
    return options


def _check_load(options: Options) -> None:
    """Options of a load that only mean something together."""
    if options.arrivals == "together":
        for name in LOAD_OPTIONS[1:]:
            if getattr(options, name) is not None:
                raise OptionError(
                    option_name(name), "is about requests that come and go",
                    "add --arrivals closed, or a rate such as --arrivals 2/s",
                )  # fmt: skip
    elif options.draft_tokens is None and options.acceptance is not None:
        raise OptionError(
            "--acceptance", "is of drafted tokens, and none are drafted", "add --draft-tokens, or leave it"
        )
    elif options.draft_tokens is not None and options.acceptance is None:
        raise OptionError(
            "--acceptance", "is needed with --draft-tokens",
            "give the chance that a drafted token is accepted; DeepSeek-V3 reports 0.85 to 0.9 for one token",
        )  # fmt: skip
    for name in ("prefill_tp", "prefill_ep"):
        if getattr(options, name) is not None and options.prefill_devices is None and options.arrivals != "together":
            raise OptionError(
                option_name(name), "is of devices that only prefill, and there are none", "add --prefill-devices"
            )
    if options.lengths is not None and isinstance(options.arrivals, float):
        raise OptionError(
            "--lengths", "tells apart how clients of a closed loop keep in step", "leave it out with a rate"
        )
    if options.lengths == "equal" and options.prefill_devices is not None:
        raise OptionError(
            "--lengths", "no steps are known of clients in step whose prompts are prefilled elsewhere",
            "leave it out with --prefill-devices",
        )  # fmt: skip


def _arrivals(value: object) -> str | float:
    """ "together", "closed", or a rate. [1/s]"""
    plain = str(value).strip().lower()
    if plain.replace(".", "", 1).isdecimal():
        meant = printable(plain, 40) if plain.strip("0.") else "2"
        raise OptionError("--arrivals", f"'{printable(plain, 40)}' has no unit", f"write '{meant}/s'")
    if plain in ARRIVALS:
        return plain
    try:
        return parse_quantity(plain, "per_s")
    except QuantityError as error:
        if not any(ch.isdigit() for ch in plain):
            raise OptionError(
                "--arrivals", f"unknown arrivals '{printable(value, 40)}'",
                f"{did_you_mean(plain, ARRIVALS)} one of {', '.join(ARRIVALS)}, or a rate such as 2/s".strip(),
            ) from None  # fmt: skip
        raise OptionError(
            "--arrivals", error.message, f"{error.hint.replace('3.3 M/s', '2/s')}, '120/min' or '500/h'"
        ) from None


def _fraction(name: str, value: object) -> float:
    try:
        return parse_quantity(str(value), "fraction")
    except QuantityError as error:
        raise OptionError(option_name(name), error.message, error.hint) from None


def _choice(name: str, value: str, choices: tuple[str, ...]) -> str:
    plain = value.strip().lower()
    if plain not in choices:
        raise OptionError(
            option_name(name), f"unknown {name.replace('_', ' ')} '{printable(value, 40)}'",
            (did_you_mean(plain, choices) + f" one of {', '.join(choices)}").strip(),
        )  # fmt: skip
    return plain


def _texts(name: str, value: object) -> tuple[str, ...]:
    """One text, several separated by commas, or a sequence of texts."""
    given = value.split(",") if isinstance(value, str) else value
    if not isinstance(given, list | tuple) or not all(isinstance(item, str) for item in given):
        raise OptionError(option_name(name), f"'{printable(value)}' is not text", "write name:capacity:bandwidth")
    return tuple(item.strip() for item in given if item.strip())


def _bytes(name: str, value: object) -> float:
    if isinstance(value, float | int) and not isinstance(value, bool) and 0 < value < 1e30:
        meant = format_bytes(value) if value >= 1e6 else f"{value:g} GB"
        raise OptionError(option_name(name), f"'{value:g}' has no unit", f"write '{meant}' if that is meant")
    try:
        return parse_quantity(str(value), "bytes", allow_zero=False)
    except QuantityError as error:
        raise OptionError(option_name(name), error.message, error.hint) from None
