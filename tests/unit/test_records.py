"""Records behave as the standard library's frozen dataclasses with slots do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any

import pytest

from llmcap import records
from llmcap.engine.transfer import Link


def kinds_of(dataclass: Callable[..., Any]) -> tuple[Any, Any]:
    """The same two classes, made by one decorator or the other."""

    @dataclass(frozen=True, slots=True)
    class Plain:
        """Of two numbers."""

        one: float
        two: float = 2.0

        def total(self) -> float:
            return self.one + self.two

    @dataclass(frozen=True, slots=True)
    class Full(Plain):
        seen: list[int] = field(default_factory=list, repr=False, compare=False)

        def __post_init__(self) -> None:
            if self.one < 0:
                raise ValueError("one is negative")

        def total(self) -> float:
            return self.one + self.two + len(self.seen)

    return Plain, Full


OURS, THEIRS = kinds_of(records.dataclass), kinds_of(dataclasses.dataclass)


@pytest.mark.parametrize("which", [0, 1], ids=["plain", "full"])
def test_a_record_is_the_dataclass_that_the_standard_library_makes(which: int) -> None:
    ours, theirs = OURS[which], THEIRS[which]
    assert [(f.name, f.default) for f in fields(ours)] == [(f.name, f.default) for f in fields(theirs)]
    assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters)
    assert ours.__slots__ == theirs.__slots__
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__doc__ == theirs.__doc__ or which  # the standard library writes the signature, with the types
    for arguments in [(1.0,), (1.0, 3.0)]:
        mine, other = ours(*arguments), theirs(*arguments)
        assert repr(mine).partition("(")[2] == repr(other).partition("(")[2]
        assert hash(mine) == hash(other)
        assert mine.total() == other.total()
        assert (mine == ours(*arguments), mine == ours(9.0), mine == other) == (True, False, False)
        assert replace(mine, two=7.0) == ours(1.0, 7.0)
        assert copy.deepcopy(mine) == mine


def test_what_takes_no_part_in_comparison_is_not_compared_nor_shown() -> None:
    _, full = OURS
    assert full(1.0, 2.0, [3]) == full(1.0, 2.0, [4])
    assert "seen" not in repr(full(1.0))
    assert full(1.0).seen is not full(1.0).seen


def test_a_record_cannot_change() -> None:
    record = OURS[0](1.0)
    for change in (
        lambda: setattr(record, "one", 2.0),
        lambda: delattr(record, "one"),
        lambda: setattr(record, "x", 1),
    ):
        with pytest.raises(FrozenInstanceError):
            change()
    assert not hasattr(record, "__dict__")


def test_wrong_arguments_are_refused_as_by_any_function() -> None:
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'one'"):
        OURS[0]()
    with pytest.raises(TypeError, match="unexpected keyword argument 'three'"):
        OURS[0](1.0, three=3.0)
    with pytest.raises(ValueError, match="negative"):
        OURS[1](-1.0)


def test_records_travel_to_other_processes() -> None:
    link = Link("pcie", 1e9)
    assert pickle.loads(pickle.dumps(link)) == link


def test_methods_of_the_class_stay() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return self.name

        def __hash__(self) -> int:
            return 7

    assert (repr(Named("a")), hash(Named("a"))) == ("a", 7)


@pytest.mark.parametrize("options", [{"frozen": True, "slots": False}, {"frozen": False, "slots": True}])
def test_other_kinds_come_from_the_standard_library(options: dict[str, bool]) -> None:
    with pytest.raises(TypeError, match="take others from dataclasses"):
        records.dataclass(**options)
