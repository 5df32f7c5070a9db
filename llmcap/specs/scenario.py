"""Scenarios: one question asked for many cases; axes, named overrides, filters and the columns to keep."""

from __future__ import annotations

import re
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from pydantic import Field, field_validator, model_validator

from llmcap.errors import printable
from llmcap.specs.base import Document
from llmcap.specs.registry import register
from llmcap.units import QuantityError, parse_count

Scalar = str | int | float
#: Values of an axis: a list, or a range in words such as "log 1k..1M 40 points".
Values = Annotated[tuple[Scalar, ...] | str, Field(union_mode="left_to_right")]

MAX_POINTS: Final = 2_000_000
"""Values of one axis at most."""
#: The axis whose values name overrides.
OVERRIDE: Final = "override"

_COUNT: Final = r"[0-9](?:[0-9.,_]*[0-9])?[A-Za-z]*"
_RANGE: Final = re.compile(
    rf"(?:(log|linear)\s+)?({_COUNT})\s*\.\.\s*({_COUNT})(?:\s+(?:step\s+({_COUNT})|({_COUNT})\s+points))?"
)
_EXAMPLE: Final = "write 'log 1k..1M 40 points', 'linear 1..100 12 points', '1..100' or '0..1M step 50k'"


def is_range(text: str) -> bool:
    """Whether a text is a range of counts rather than one value.

    >>> is_range("1k..1M step 1k"), is_range("dgx-b200"), is_range("../mine.yaml")
    (True, False, False)
    """
    return _RANGE.fullmatch(text.strip()) is not None


def parse_range(text: str) -> tuple[int, ...]:
    """The whole numbers of a range; both ends belong to it, and rounding leaves each number once.

    Raises
    ------
    QuantityError

    Examples
    --------
    >>> parse_range("log 1k..1M 4 points"), parse_range("2..10 step 4"), parse_range("1..3")
    ((1000, 10000, 100000, 1000000), (2, 6, 10), (1, 2, 3))
    """
    match = _RANGE.fullmatch(text.strip())
    if match is None:
        raise QuantityError(f"'{printable(text, 60)}' is not a range", _EXAMPLE)
    form, first, last, step, points = match.groups()
    low, high = parse_count(first), parse_count(last)
    if high < low:
        raise QuantityError(f"'{printable(text, 60)}' runs downwards", f"write {last}..{first}")
    if form is not None and points is None:
        raise QuantityError(f"'{printable(text, 60)}' does not say how many points", _EXAMPLE)
    if points is None:
        width = parse_count(step) if step is not None else 1
        if width < 1:
            raise QuantityError("a step of 0 never ends", _EXAMPLE)
        if (high - low) // width >= MAX_POINTS:
            raise QuantityError(f"more than {MAX_POINTS:,} points", "choose a larger step")
        return tuple(range(low, high + 1, width))
    number = parse_count(points)
    if not 2 <= number <= MAX_POINTS:
        raise QuantityError(f"{number:,} points", f"a range has 2 to {MAX_POINTS:,} points")
    if form == "log":
        if low < 1:
            raise QuantityError("a logarithmic range cannot begin at 0", "begin at 1, or use linear")
        values = np.geomspace(low, high, number)
    else:
        values = np.linspace(low, high, number)
    return tuple(int(v) for v in np.unique(np.rint(values)))


@register("scenario")
class Scenario(Document):
    """A question asked for many cases.

    Option names are those of the command, with underscores. Numeric axes (users, context, cached_tokens,
    output_tokens, and new_tokens: context = cached_tokens + new_tokens) take ranges.
    """

    schema_name: ClassVar[str] = "llmcap.scenario/1"

    id: str
    name: str
    question: str
    """What the sweep answers, in one sentence."""
    base: dict[str, Scalar] = Field(default_factory=dict)
    """Options that all cases share."""
    overrides: dict[str, dict[str, Scalar]] = Field(default_factory=dict)
    """Named sets of options; the axis `override` names those to run, each over the base."""
    axes: dict[str, Values]
    """Option name -> values, in the order of the rows: the last axis varies fastest."""
    combine: Literal["grid", "zip"] = "grid"
    """grid: every combination; zip: the first values of all axes, then the second ones."""
    where: tuple[str, ...] = ()
    """Conditions that each case must meet: 'tp divides kv_heads', 'cached_tokens < context_tokens'."""
    columns: tuple[str, ...] = ()
    """Columns to keep, in their order; empty: all. Without a tier column there is one row per case."""
    tiers: tuple[str, ...] = ()
    """Tiers that get a row; empty: all that the machine has."""
    notes: str = ""

    @field_validator("axes", "base", "overrides")
    @classmethod
    def _names_are_plain(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name in value:
            if not re.fullmatch(r"[a-z][a-z0-9_-]{0,40}", name):
                raise QuantityError(
                    f"'{printable(name, 40)}' is not a name", "use lower-case letters, digits, '_', '-'"
                )
        return value

    @field_validator("axes")
    @classmethod
    def _axes_have_values(cls, value: dict[str, Any]) -> dict[str, Any]:
        for name, values in value.items():
            if isinstance(values, str):
                parse_range(values)
                continue
            if not values:
                raise QuantityError(f"axis '{name}' has no values", "give a list or a range")
            if any(isinstance(v, bool) for v in values):
                raise QuantityError(f"axis '{name}' holds true or false", "give ids, counts or dtypes")
            if len(set(map(str, values))) < len(values):
                double = next(v for v in values if sum(str(v) == str(w) for w in values) > 1)
                raise QuantityError(f"axis '{name}' holds {printable(double, 40)} twice", "keep one")
        if not value:
            raise QuantityError("no axes", "give at least one, such as 'context: log 1k..1M 40 points'")
        return value

    @model_validator(mode="after")
    def _overrides_exist(self) -> Scenario:
        named = self.axes.get(OVERRIDE, ())
        for name in (named,) if isinstance(named, str) else named:
            if name not in self.overrides:
                known = ", ".join(self.overrides) or "none"
                raise ValueError(f"axis override names '{printable(name, 40)}', but the overrides are: {known}")
        return self
