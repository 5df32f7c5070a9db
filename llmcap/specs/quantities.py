"""Field types of documents: text with a unit in the file, a base SI number in memory, text out again."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, core_schema

from llmcap.errors import printable
from llmcap.records import dataclass
from llmcap.units import DIMENSIONS, QuantityError, parse_count, parse_quantity, quantity_text


def _shown(value: object) -> str:
    return "an empty value" if value is None else f"'{printable(value, 40)}'"


@dataclass(frozen=True, slots=True)
class Quantity:
    """Marks a float field as a quantity of `dimension` (a key of `llmcap.units.DIMENSIONS`)."""

    dimension: str
    allow_zero: bool | None = None

    @property
    def plain(self) -> bool:
        """Whether the number may stand without a unit."""
        return "" in DIMENSIONS[self.dimension].units

    def read(self, value: Any) -> float:
        """The value in base SI units; only a text with a unit is accepted where a unit is due."""
        example = DIMENSIONS[self.dimension].example
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise QuantityError(f"{_shown(value)} is not a quantity", f"write for example '{example}'")
        if isinstance(value, int | float):
            if not self.plain:
                unit = example.split(" ", 1)[1]
                raise QuantityError(f"{_shown(value)} has no unit", f"write '{value} {unit}' if that is meant")
            value = repr(value)
        return parse_quantity(value, self.dimension, allow_zero=self.allow_zero)

    def write(self, value: float) -> str | float:
        """What a document holds for `value`."""
        return value if self.plain else quantity_text(value, self.dimension)

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            self.read, serialization=core_schema.plain_serializer_function_ser_schema(self.write)
        )

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        kind = DIMENSIONS[self.dimension]
        units = ", ".join(unit for unit in kind.units if unit)
        return {
            "type": ["number", "string"] if self.plain else "string",
            "description": f"{self.dimension}, in one of: {units}",
            "examples": [kind.example],
        }


@dataclass(frozen=True, slots=True)
class WholeNumber:
    """Marks an int field as a count from `minimum` on, which may be written 250k, 1M or 128Ki."""

    minimum: int

    def read(self, value: Any) -> int:
        """The count; bools, fractions and negative numbers are refused."""
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            raise QuantityError(f"{_shown(value)} is not a whole number", f"write {int(value)}")
        if not isinstance(value, str | int):
            raise QuantityError(f"{_shown(value)} is not a whole number", "write for example 250k")
        count = parse_count(value)
        if count < self.minimum:
            raise QuantityError(f"{_shown(value)} is less than {self.minimum}", "write a larger whole number")
        return count

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self.read)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        text = {"type": "string", "examples": ["250k", "128Ki", "1M"]}
        return {"anyOf": [{"type": "integer", "minimum": self.minimum}, text]}


Bytes = Annotated[float, Quantity("bytes", allow_zero=False)]
BytesOrZero = Annotated[float, Quantity("bytes")]
BytesPerSecond = Annotated[float, Quantity("bytes_per_s")]
FlopPerSecond = Annotated[float, Quantity("flop_per_s")]
Seconds = Annotated[float, Quantity("seconds")]
Watts = Annotated[float, Quantity("watts")]
Dollars = Annotated[float, Quantity("usd")]
PerSecond = Annotated[float, Quantity("per_s")]
Fraction = Annotated[float, Quantity("fraction")]
DriveWritesPerDay = Annotated[float, Quantity("dwpd")]
Tokens = Annotated[int, WholeNumber(1)]
Count = Annotated[int, WholeNumber(1)]
NonNegative = Annotated[int, WholeNumber(0)]
