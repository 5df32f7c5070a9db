"""Conditions of a scenario: 'tp divides kv_heads', 'cached_tokens < context_tokens', 'model != llama-4-scout'."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from llmcap.errors import DocumentError, Problem, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.units import parse_count

Truth = bool | NDArray[np.bool_]

#: Facts of the model that a condition may name, beside the inputs of a case.
FACTS: Final = ("query_heads", "kv_heads", "layers", "experts", "max_context")
#: Numbers along the case axis, as columns name them.
NUMBERS: Final = ("users", "context_tokens", "cached_tokens", "output_tokens")

_RELATIONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    ">": operator.gt,
}
_FORM: Final = re.compile(r"\s*(\S+)\s*(<=|>=|==|!=|<|>|\bdivides\b)\s*(\S+(?:\s*\*\s*\S+)*)\s*")


@dataclass(frozen=True, slots=True)
class Condition:
    """LEFT relation RIGHT; a side is a name, a count, a word, or names and counts joined by '*'."""

    text: str
    left: tuple[str, ...]
    relation: str
    right: tuple[str, ...]

    @property
    def names(self) -> set[str]:
        """Everything either side multiplies."""
        return {*self.left, *self.right}

    def of_numbers(self) -> bool:
        """Whether it depends on the numbers of a case, not on its structure alone."""
        return bool(self.names & set(NUMBERS))

    def holds(self, values: Mapping[str, Any]) -> Truth:
        """Whether it holds, for scalars or broadcastable arrays.

        Raises
        ------
        KeyError
            A name without a value.
        """
        left, right = _side(self.left, values), _side(self.right, values)
        if self.relation == "divides":
            return np.asarray(np.mod(right, left) == 0) if _is_array(left, right) else right % left == 0
        found: Truth = _RELATIONS[self.relation](left, right)
        return found


def parse_condition(text: str, file: str, known: tuple[str, ...]) -> Condition:
    """Read one condition.

    Raises
    ------
    DocumentError
        Not of the form, or a name that no case has.
    """
    example = "write for example 'tp divides kv_heads' or 'cached_tokens < context_tokens'"
    spaced = re.sub(r"\s*\*\s*", "*", text)
    match = _FORM.fullmatch(spaced)
    if match is None:
        raise DocumentError([Problem(file, None, "where", f"'{printable(text, 60)}' is not a condition", example)])
    left, relation, right = match.groups()
    condition = Condition(text, _factors(left), relation, _factors(right))
    words = relation in ("==", "!=") and len(condition.left) == len(condition.right) == 1
    for position, name in enumerate((*condition.left, *condition.right)):
        if name in known or _count(name) is not None or (words and position == 1):
            continue
        hint = did_you_mean(name, known) or f"known: {', '.join(known)}"
        raise DocumentError([Problem(file, None, "where", f"unknown name '{printable(name, 40)}' in '{text}'", hint)])
    return condition


def _factors(side: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in side.split("*"))
    return tuple(
        {"context": "context_tokens", "isl": "context_tokens", "osl": "output_tokens"}.get(n, n) for n in names
    )


def _count(name: str) -> int | None:
    try:
        return parse_count(name)
    except ValueError:
        return None


def _side(names: tuple[str, ...], values: Mapping[str, Any]) -> Any:
    product: Any = None
    for name in names:
        number = _count(name)
        if number is not None:
            value: Any = number
        elif name in values:
            value = values[name]
        elif len(names) == 1 and name not in (*FACTS, *NUMBERS):
            value = name  # a word to compare with
        else:
            raise KeyError(name)
        product = value if product is None else product * value
    return product


def _is_array(*values: Any) -> bool:
    return any(isinstance(v, np.ndarray) for v in values)
