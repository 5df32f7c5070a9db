"""Published claims: what somebody said in public, and the question and the bound that test each statement."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from llmcap.specs.base import Count, Document, Part, Source, Tokens
from llmcap.specs.registry import register
from llmcap.units import QuantityError, parse_quantity

#: Why a modelled figure differs from the published one: an explanation in `analyses/claims/claim_reasons.py`.
Topic = Literal[
    "short_prefill", "prefill", "many_users", "cache", "dram", "nvme", "capacity", "next_drives", "pool", "limits",
    "phases",
]  # fmt: skip


class Case(Part):
    """The question behind a figure; what is left out is the suite's own or the command's default."""

    label: str = ""
    """How the case is called beside its figure, where a claim has several."""
    model: str | None = None
    hardware: str | None = None
    drive: str | None = None
    users: Count = 1
    context: Tokens | None = None
    output_tokens: Tokens | None = None


class Check(Part):
    """One figure and the range within which the claim holds."""

    case: Case = Case()
    over: Case | None = None
    """Case whose figure divides; the range then bounds the ratio."""
    quantity: str = Field(pattern=r"^([a-z0-9-]+\.)?[a-z0-9_]+$")
    """A result (`prefill_s`) or a tier's column (`nvme.reload_s`)."""
    at_least: str | None = None
    below: str | None = None

    @model_validator(mode="after")
    def _bounds_can_be_read(self) -> Check:
        low, high = self.bounds
        if low == -math.inf and high == math.inf:
            raise QuantityError("a check without a bound cannot fail", "give at_least, below or both")
        if low >= high:
            raise QuantityError(
                f"nothing lies from {self.at_least} to {self.below}", "at_least must be the smaller one"
            )
        return self

    @property
    def dimension(self) -> str:
        """Dimension of the quantity, read off its unit suffix.

        Raises
        ------
        QuantityError
            The suffix is no unit.
        """
        if self.over is not None:
            return "fraction_of"
        column = self.quantity.rpartition(".")[2]
        if column.endswith("_bytes_per_s"):
            return "bytes_per_s"
        if column.endswith("_s"):
            return "seconds"
        if "bytes" in column:
            return "bytes"
        raise QuantityError(f"'{self.quantity}' has no known unit", "name a column in seconds or bytes")

    @property
    def bounds(self) -> tuple[float, float]:
        """[low, high) in base units, infinite where open.

        Raises
        ------
        QuantityError
            A bound is no quantity of the dimension.
        """

        def read(text: str | None, open_end: float) -> float:
            if text is None:
                return open_end
            if self.dimension != "fraction_of":
                return parse_quantity(text, self.dimension)
            try:
                return float(text)
            except ValueError:
                raise QuantityError(f"'{text}' is not a ratio", "write for example '0.5'") from None

        return read(self.at_least, -math.inf), read(self.below, math.inf)


class Claim(Part):
    """One published statement."""

    id: str
    statement: str
    """What was said, in a sentence."""
    published: str
    """Its figure, as short as it can be put."""
    topic: Topic
    """What the explanation is about."""
    checks: tuple[Check, ...] = ()
    """Figures to test; empty for statements that are modelled as a whole."""
    cases: tuple[Case, ...] = ()
    """Questions behind a statement that is modelled as a whole."""


@register("claims")
class Claims(Document):
    """A suite: the statements of one publication."""

    schema_name: ClassVar[str] = "llmcap.claims/1"

    id: str
    name: str
    model: str
    hardware: str
    published_assumptions: str
    """Assumption set that reproduces the publication."""
    claims: tuple[Claim, ...]
    sources: tuple[Source, ...]
    notes: str = ""
