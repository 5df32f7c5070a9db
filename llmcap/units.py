"""Quantities at the edge: text with units in, base SI floats inside, text for people out.

k, M, G, T ... are powers of 1000; Ki, Mi, Gi ... powers of 1024. B is a byte; bits are spelled `bit`.

>>> parse_quantity("1.44 TB", "bytes")
1440000000000.0
>>> parse_quantity("400 Gbit/s", "bytes_per_s")
50000000000.0
>>> parse_count("128Ki")
131072
>>> format_bytes(25.2e9)
'25.2 GB'
"""

from __future__ import annotations

import math
import re
from typing import Final

from llmcap.errors import printable
from llmcap.records import dataclass

_DECIMAL: Final = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
_BINARY: Final = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_LARGEST: Final = 1e30  # nothing that llmcap describes comes near; a larger number is a slip of the pen
_LARGEST_COUNT: Final = 10**15

# ASCII digits only (\d would take every script's); thousands commas only in whole groups of three.
_NUMBER: Final = r"[+-]?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)?(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,4})?"
_QUANTITY: Final = re.compile(rf"({_NUMBER})[ \t]*(.*)", re.DOTALL)


class QuantityError(ValueError):
    """A text that is no quantity or count of the wanted kind; `message` says why, `hint` what would be."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}; {hint}" if hint else message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True)
class _Dimension:
    units: dict[str, tuple[int, int]]  # unit -> exact factor to the base unit, as numerator and denominator
    written: tuple[str, ...]  # the units used for writing documents, the base unit first
    example: str
    positive: bool = False
    hints: dict[str, str] | None = None  # frequent wrong unit, folded to lower case -> what to write instead


def _scaled(unit: str, prefixes: dict[str, int], denominator: int = 1) -> dict[str, tuple[int, int]]:
    return {prefix + unit: (factor, denominator) for prefix, factor in prefixes.items()}


_BYTES = {**_scaled("B", _DECIMAL), **_scaled("B", _BINARY)}
_BITS_PER_S = _scaled("bit/s", _DECIMAL, 8)
_TIMES = {"s": (1, 1), "ms": (1, 10**3), "us": (1, 10**6), "ns": (1, 10**9), "min": (60, 1), "h": (3600, 1)}
_BIT_HINT = "write bit/s for bits (400 Gbit/s) or B/s for bytes (50 GB/s)"

DIMENSIONS: Final[dict[str, _Dimension]] = {
    "bytes": _Dimension(
        _BYTES,
        ("B", "kB", "MB", "GB", "TB", "PB", "KiB", "MiB", "GiB", "TiB"),
        "80 GB",
        hints={"kb": "write kB for 1000 bytes or KiB for 1024"},
    ),
    "bytes_per_s": _Dimension(
        {**{unit + "/s": factor for unit, factor in _BYTES.items()}, **_BITS_PER_S},
        ("B/s", "kB/s", "MB/s", "GB/s", "TB/s"),
        "64 GB/s",
        positive=True,
        hints={p + suffix: _BIT_HINT for p in ("", "k", "m", "g", "t") for suffix in ("b/s", "bps")},
    ),
    "flop_per_s": _Dimension(
        {**_scaled("FLOP/s", _DECIMAL), **_scaled("OP/s", _DECIMAL)},
        ("FLOP/s", "MFLOP/s", "GFLOP/s", "TFLOP/s", "PFLOP/s"),
        "2250 TFLOP/s",
        positive=True,
        hints={p + "flops": "FLOPS reads as a count and as a rate: write FLOP/s" for p in ("", "m", "g", "t", "p")},
    ),
    "seconds": _Dimension(
        {**_TIMES, "d": (86400, 1)},
        ("s", "ms", "us", "ns"),
        "8 us",
        hints={"\u00b5s": "write us for microseconds", "\u03bcs": "write us for microseconds"},
    ),
    "watts": _Dimension({**_scaled("W", _DECIMAL), "mW": (1, 1000)}, ("W", "kW", "MW"), "700 W"),
    "usd": _Dimension(_scaled("USD", _DECIMAL), ("USD",), "25 USD", hints={"$": "write USD after the number"}),
    "per_s": _Dimension(
        {
            **{p + "/s": (f, 1) for p, f in _DECIMAL.items()},
            "/min": (1, 60),
            "/h": (1, 3600),
            **{p + gap + "IOPS": (f, 1) for p, f in _DECIMAL.items() for gap in ("", " ")},
        },
        ("/s", "k/s", "M/s"),
        "3.3 M/s",
        positive=True,
    ),
    "fraction": _Dimension({"": (1, 1), "%": (1, 100)}, ("",), "0.67"),
    "dwpd": _Dimension({"": (1, 1), "DWPD": (1, 1)}, ("",), "3"),
}


def _exact(number: str) -> tuple[int, int]:
    """Digits as an exact numerator and denominator, so that scaling rounds once and '1.44 TB' is 1.44e12."""
    mantissa, _, exponent = number.replace(",", "").lower().partition("e")
    whole, _, decimals = mantissa.partition(".")
    digits = int(whole + decimals) if len(whole + decimals) <= 60 else 10**60
    power = int(exponent or "0") - len(decimals)
    if abs(power) > 400:  # outside of every float; keeps the integers below small
        return (digits, 1) if digits == 0 else (0, 1) if power < 0 else (10**400, 1)
    return (digits * 10**power, 1) if power >= 0 else (digits, 10**-power)


def _number(text: str, what: str, hint: str) -> tuple[str, str]:
    """The number at the start of `text`, and what follows it."""
    match = _QUANTITY.fullmatch(text.strip(" \t\n\r"))
    number, rest = match.groups() if match else ("", text)
    if not re.search("[0-9]", number.lower().partition("e")[0]):
        raise QuantityError(f"'{printable(text, 40)}' is not {what}", hint)
    if number.startswith("-"):
        raise QuantityError(f"'{printable(text, 40)}' is negative", hint)
    return number.lstrip("+"), rest


def parse_quantity(text: str, dimension: str, *, allow_zero: bool | None = None) -> float:
    """Read a quantity with its unit into base SI units.

    Parameters
    ----------
    text : str
        A number and a unit, such as "1.44 TB", "64 GB/s", "400 Gbit/s", "2250 TFLOP/s", "8 us", "4 min 12 s".
    dimension : str
        A key of `DIMENSIONS`: bytes, bytes_per_s, flop_per_s, seconds, watts, usd, per_s, fraction, dwpd.
    allow_zero : bool, optional
        Whether zero may stand. By default rates must be positive and everything else may be zero.

    Returns
    -------
    float
        The value in B, B/s, FLOP/s, s, W, USD, 1/s, or 1.

    Raises
    ------
    QuantityError
        A ValueError with `message` and `hint`.
    """
    kind = DIMENSIONS[dimension]
    hint = f"write for example '{kind.example}'"
    if dimension == "seconds" and (spaced := re.split(r"[ \t]+", text.strip())) and len(spaced) in (4, 6):
        value = _compound_seconds(text, spaced, hint)
    else:
        number, unit = _number(text, "a number" if "" in kind.units else "a number with a unit", hint)
        if unit not in kind.units:
            raise _unit_error(text, number, unit, kind, hint)
        numerator, denominator = _exact(number)
        try:
            value = numerator * kind.units[unit][0] / (denominator * kind.units[unit][1])
        except OverflowError:
            value = math.inf
        if value == 0 and numerator:
            raise QuantityError(f"'{printable(text, 40)}' is too small to be true", hint)
    if not value <= _LARGEST:
        raise QuantityError(f"'{printable(text, 40)}' is too large to be true", hint)
    if value == 0 and not (not kind.positive if allow_zero is None else allow_zero):
        raise QuantityError(f"'{printable(text, 40)}' must be greater than zero", hint)
    if dimension == "fraction" and value > 1:
        raise QuantityError(f"'{printable(text, 40)}' is more than the whole", "write 0 to 1, or '67 %'")
    return value


def _unit_error(text: str, number: str, unit: str, kind: _Dimension, hint: str) -> QuantityError:
    known = kind.hints or {}
    if not unit:
        base = "s" if "s" in kind.units else kind.example.split(" ", 1)[1]
        return QuantityError(f"'{printable(text, 40)}' has no unit", f"write '{number} {base}' if that is meant")
    if unit.lower() in known:
        return QuantityError(f"unit '{printable(unit, 20)}' is ambiguous or not used here", known[unit.lower()])
    by_lower = {u.lower(): u for u in kind.units if u}
    if unit.lower() in by_lower:
        return QuantityError(
            f"unknown unit '{printable(unit, 20)}'",
            f"case matters: write '{number} {by_lower[unit.lower()]}'",
        )
    return QuantityError(f"unknown unit '{printable(unit, 20)}' in '{printable(text, 40)}'", hint)


def _compound_seconds(text: str, parts: list[str], hint: str) -> float:
    """Durations as people write them ('4 min 12 s', '3 h 5 min'): larger units first, whole but the last."""
    factors = {unit: n / d for unit, (n, d) in DIMENSIONS["seconds"].units.items()}
    sizes = [factors.get(unit) for unit in parts[1::2]]
    if None in sizes or not all(re.fullmatch(r"[0-9]{1,9}", n) for n in parts[:-2:2]):
        raise QuantityError(f"'{printable(text, 40)}' is not a duration", hint)
    known = [size for size in sizes if size is not None]
    if known != sorted(set(known), reverse=True):
        raise QuantityError(f"'{printable(text, 40)}' is not a duration", "larger units come first: '4 min 12 s'")
    return sum(parse_quantity(f"{n} {unit}", "seconds") for n, unit in zip(parts[::2], parts[1::2], strict=True))


def parse_count(text: str | int) -> int:
    """Read a whole number such as 250k, 1M, 128Ki, 1_000 or 1,000,000; zero passes, the caller has a minimum.

    >>> [parse_count(t) for t in ("1M", "1Mi", "1.5k", "1,000")]
    [1000000, 1048576, 1500, 1000]
    """
    if isinstance(text, bool) or not isinstance(text, str | int):
        raise QuantityError(f"'{printable(text, 40)}' is not a whole number", "write for example 250k")
    if isinstance(text, int):
        value, remainder = text, 0
        if value < 0:
            raise QuantityError(f"'{printable(text, 40)}' is negative", "write a whole number such as 250k")
    else:
        hint = "write a whole number such as 1000, 250k, 128Ki or 1M"
        joined = re.sub(r"(?<=[0-9])_(?=[0-9])", "", text)
        number, suffix = _number(joined, "a whole number", hint)
        suffixes = {**_DECIMAL, **_BINARY, "K": 1000}
        if suffix not in suffixes:
            by_lower = {s.lower(): s for s in suffixes if s != "K"}
            if suffix.lower() in by_lower:
                hint = f"case matters: write '{number}{by_lower[suffix.lower()]}'"
            raise QuantityError(f"'{printable(text, 40)}' is not a whole number", hint)
        numerator, denominator = _exact(number)
        value, remainder = divmod(numerator * suffixes[suffix], denominator)
    if value > _LARGEST_COUNT:
        raise QuantityError(f"'{printable(text, 40)}' is too large", "the largest count is 10^15")
    if remainder:
        raise QuantityError(f"'{printable(text, 40)}' is not whole", "write a whole number such as 1000 or 1.5k")
    return value


def quantity_text(value: float, dimension: str) -> str:
    """The shortest text that `parse_quantity` reads back as exactly `value`.

    >>> quantity_text(1.44e12, "bytes"), quantity_text(2**30, "bytes"), quantity_text(8e-6, "seconds")
    ('1.44 TB', '1 GiB', '8 us')
    """
    kind = DIMENSIONS[dimension]
    candidates = []
    for unit in kind.written:
        numerator, denominator = kind.units[unit]
        text = f"{value * denominator / numerator:.15g} {unit}".strip()
        if parse_quantity(text, dimension, allow_zero=True) == value:
            candidates.append(("e" in text, len(text), -numerator / denominator, text))
    # 15 digits do not tell every float apart; the shortest repr of the value itself always does.
    return min(candidates)[-1] if candidates else f"{value!r} {kind.written[0]}".strip()


def _three_digits(x: float) -> str:
    """Three significant digits without an exponent: '25.2', '0.0123', '1,230,000'."""
    rounded = float(f"{x:.3g}")
    if rounded == 0:
        return "0"
    decimals = max(0, 2 - math.floor(math.log10(abs(rounded))))
    text = f"{rounded:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def format_si(x: float, unit: str) -> str:
    """`x` with three significant digits and the prefix that leaves 1 to 999 before the unit."""
    if not math.isfinite(x):
        return "n/a"
    rounded = abs(float(f"{x:.3g}"))
    prefix, factor = max(
        ((p, f) for p, f in _DECIMAL.items() if f <= rounded), key=lambda item: item[1], default=("", 1)
    )
    return f"{_three_digits(x / factor)} {prefix}{unit}"


def format_bytes(x: float) -> str:
    """Bytes with a decimal prefix: '25.2 GB'."""
    return format_si(x, "B")


def format_flop_rate(x: float) -> str:
    """FLOP/s with a decimal prefix: '2.25 PFLOP/s'."""
    return format_si(x, "FLOP/s")


def format_rate(x: float, unit: str) -> str:
    """A rate in `unit`: '112 GB/s' where the unit takes prefixes, '1,230 tok/s' elsewhere, '1 request/s'."""
    if unit in ("B/s", "bit/s", "FLOP/s", "FLOP", "W"):
        return format_si(x, unit)
    if not math.isfinite(x):
        return "n/a"
    shown = _three_digits(x)
    return f"{shown} {unit.replace('s/', '/', 1) if shown == '1' else unit}"


def format_seconds(x: float) -> str:
    """A duration: '3.2 us', '140 ms', '27.1 s', '4 min 12 s' from two minutes, '3 h 5 min', '12.5 d'."""
    if not math.isfinite(x):
        return "n/a"
    sign, x = ("-" if x < 0 else ""), abs(x)
    rounded = float(f"{x:.3g}")
    if x >= 48 * 3600:
        return f"{sign}{_three_digits(x / 86400)} d"
    if x >= 7200 - 0.5:
        hours, minutes = divmod(round(x / 60), 60)
        return f"{sign}{hours} h {minutes} min"
    if rounded >= 120:
        minutes, seconds = divmod(round(x), 60)
        return f"{sign}{minutes} min {seconds} s"
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if rounded >= size:
            return f"{sign}{_three_digits(x / size)} {unit}"
    return f"{sign}{_three_digits(x * 1e9)} ns" if x else "0 s"


def format_count(n: int) -> str:
    """A count, shortened only where nothing is lost: '1M', '250k', '1,048,576', '1,000'."""
    for suffix, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        # Small thousands read better in full, and a suffix is worth it only for a round number.
        if abs(n) >= (10_000 if suffix == "k" else size) and n % (size // 10) == 0:
            return f"{n / size:,g}{suffix}" if abs(n) < 100_000 * size else f"{n:,}"
    return f"{n:,}"
