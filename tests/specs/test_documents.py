"""Documents: checked strictly, every problem with its line, every number with its source."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from llmcap.errors import DocumentError
from llmcap.specs.base import (
    Bytes,
    BytesPerSecond,
    Count,
    Document,
    FlopPerSecond,
    Fraction,
    NonNegative,
    Part,
    Seconds,
    Source,
    Tokens,
    dangling,
    dump_document,
    load_document,
    uncovered,
)


class Full(Part):
    kind: Literal["full"] = "full"
    heads: Count


class Window(Part):
    kind: Literal["window"]
    heads: Count
    window: Tokens


class Tier(Part):
    name: str
    bandwidth: BytesPerSecond
    latency: Seconds = 0.0


class Machine(Document):
    schema_name: ClassVar[str] = "llmcap.machine/1"

    capacity: Bytes
    peaks: dict[str, FlopPerSecond] = Field(default_factory=dict)
    layers: tuple[Annotated[Full | Window, Field(discriminator="kind")], ...] = ()
    tiers: tuple[Tier, ...] = ()
    best: Tier | None = None
    share: Fraction = 1.0
    spare: NonNegative = 0
    ready: bool = False
    factor: float = 1.0
    groups: dict[str, tuple[int, ...]] = Field(default_factory=dict)


SOUND = """\
schema: llmcap.machine/1
id: box-1
name: Box
capacity: 1.44 TB
peaks: {bf16: 2250 TFLOP/s, fp8: 4.5 PFLOP/s}
layers:
  - {kind: full, heads: 8}
  - kind: window
    heads: 8
    window: 8Ki
tiers:
  - {name: dram, bandwidth: 64 GB/s, latency: 8 us}
share: 67 %
ready: true
factor: 2
groups: {a: [1, 2], b: []}
sources:
  - {covers: [capacity, peaks.bf16], kind: datasheet, ref: Box datasheet}
"""


def machine(tmp_path: Path, text: str) -> Machine:
    path = tmp_path / "box-1.yaml"
    path.write_text(text, encoding="utf-8")
    return load_document(path, Machine)


def problems(tmp_path: Path, text: str) -> list[tuple[int | None, str, str]]:
    with pytest.raises(DocumentError) as caught:
        machine(tmp_path, text)
    return [(p.line, p.path, f"{p.message}; {p.hint}") for p in caught.value.problems]


def test_a_sound_document_holds_base_units(tmp_path: Path) -> None:
    box = machine(tmp_path, SOUND)
    assert (box.id, box.schema_) == ("box-1", "llmcap.machine/1")
    assert box.capacity == 1.44e12
    assert box.peaks == {"bf16": 2.25e15, "fp8": 4.5e15}
    assert box.layers == (Full(heads=8), Window(kind="window", heads=8, window=8192))
    assert box.tiers[0].latency == 8e-6
    assert (box.share, box.factor, box.ready, box.spare) == (0.67, 2.0, True, 0)
    assert box.groups == {"a": (1, 2), "b": ()}


def test_a_document_cannot_be_changed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="frozen"):
        machine(tmp_path, SOUND).capacity = 1.0  # type: ignore[misc]


def test_what_is_written_is_read_back_equal(tmp_path: Path) -> None:
    box = machine(tmp_path, SOUND)
    text = dump_document(box)
    assert machine(tmp_path, text) == box
    assert dump_document(machine(tmp_path, text)) == text
    assert "capacity: 1.44 TB" in text
    assert text.startswith("schema: llmcap.machine/1\nid: box-1\n")
    assert text.index("sources:") > text.index("groups:")


def test_a_document_made_in_python_keeps_its_union_tags(tmp_path: Path) -> None:
    box = Machine(id="box-1", capacity="80 GB", layers=(Full(heads=2),), peaks={"fp8": "1 PFLOP/s"})  # type: ignore[arg-type]
    assert machine(tmp_path, dump_document(box)) == box


@given(
    capacity=st.floats(min_value=1e-3, max_value=1e25),
    latency=st.floats(min_value=0, max_value=1e9),
    name=st.text(max_size=30).map(str.strip),
    factor=st.floats(allow_nan=False, allow_infinity=False),
)
def test_any_document_is_read_back_equal(
    tmp_path_factory: pytest.TempPathFactory, capacity: float, latency: float, name: str, factor: float
) -> None:
    tier = Tier.model_construct(name=name, bandwidth=1e9, latency=latency)
    box = Machine(id="a", capacity="1 B", name=name, factor=factor).model_copy(  # type: ignore[arg-type]
        update={"capacity": capacity, "tiers": (tier,)}
    )
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(dump_document(box), encoding="utf-8")
    back = load_document(path, Machine)
    assert (back.capacity, back.tiers[0].latency, back.factor) == (capacity, latency, factor)
    assert back.name == name


def test_every_problem_is_reported_with_its_line_and_path(tmp_path: Path) -> None:
    text = """\
schema: llmcap.machine/1
id: Box One
capacity: 80
peaks:
  fp8: 4500 TFLOPS
layers:
  - {kind: window, heads: 0, window: 8k}
  - kind: wndow
  - kind: window
    hed: 8
    window: 1.5
  - {heads: 1}
tiers:
  - {name: dram, bandwith: 64 GB/s}
  - 7
best: {name: 5, bandwidth: 0 GB/s}
ready: yes
factor: "2"
groups: {a: [1, x]}
spare: true
"""
    found = problems(tmp_path, text)
    expected = {
        (2, "id"): "lower-case",
        (3, "capacity"): "write '80 GB'",
        (5, "peaks.fp8"): "FLOP/s",
        (7, "layers[0].heads"): "less than 1",
        (8, "layers[1]"): "did you mean 'window'?",
        (10, "layers[2].hed"): "did you mean 'heads'?",
        (11, "layers[2].window"): "not a whole number",
        (12, "layers[3]"): "missing key 'kind'",
        (14, "tiers[0].bandwith"): "did you mean 'bandwidth'?",
        (15, "tiers[1]"): "must be a mapping",
        (16, "best.name"): "must be text",
        (16, "best.bandwidth"): "greater than zero",
        (17, "ready"): "true or false",
        (18, "factor"): "without quotes",
        (19, "groups.a[1]"): "whole number",
        (20, "spare"): "not a whole number",
        (9, "layers[2]"): "missing key 'heads'",
        (14, "tiers[0]"): "missing key 'bandwidth'",
    }
    said = {(line, path): words for line, path, words in found}
    assert set(said) == set(expected)
    assert {place: words for place, words in expected.items() if words not in said[place]} == {}


def test_missing_keys_of_one_place_are_one_problem(tmp_path: Path) -> None:
    found = problems(tmp_path, "schema: llmcap.machine/1\ntiers: [{}]\n")
    assert sorted(words for _, _, words in found) == [
        "missing keys 'id', 'capacity'; ",
        "missing keys 'name', 'bandwidth'; ",
    ]


def test_a_missing_schema_hides_nothing(tmp_path: Path) -> None:
    text = "\n".join(str(p) for p in problems(tmp_path, "id: x\nnonsense_key: 1\n"))
    assert "schema: llmcap.machine/1" in text
    assert "nonsense_key" in text
    assert "'capacity'" in text


def test_a_duplicate_hides_nothing(tmp_path: Path) -> None:
    text = "\n".join(str(p) for p in problems(tmp_path, "schema: llmcap.machine/1\nid: x\nid: y\ncapacity: 80\n"))
    assert "twice" in text
    assert "80 GB" in text


def test_a_document_of_another_kind_is_called_that_and_nothing_else(tmp_path: Path) -> None:
    found = problems(tmp_path, "schema: llmcap.model/1\nid: x\nheads: 1\n")
    assert len(found) == 1
    assert found[0][:2] == (1, "schema")
    assert "llmcap.machine/1" in found[0][2]


@pytest.mark.parametrize("text", ["- 1\n", "just text\n", "7\n", "null\n", "[]\n"])
def test_a_document_is_a_mapping(tmp_path: Path, text: str) -> None:
    assert "must be a mapping" in problems(tmp_path, text)[0][2]


def test_a_union_member_named_like_one_of_its_keys_does_not_confuse_the_path(tmp_path: Path) -> None:
    text = SOUND.replace("window: 8Ki", "window: 0")
    assert [(line, path) for line, path, _ in problems(tmp_path, text)] == [(10, "layers[1].window")]


def test_numbers_without_a_source_are_found(tmp_path: Path) -> None:
    assert uncovered(machine(tmp_path, SOUND)) == [
        "peaks.fp8",
        "layers[0].heads",
        "layers[1].heads",
        "layers[1].window",
        "tiers[0].bandwidth",
        "tiers[0].latency",
        "share",
        "factor",
        "groups.a[0]",
        "groups.a[1]",
    ]


@pytest.mark.parametrize(
    ("covers", "left"),
    [
        ("tiers", []),
        ("tiers.bandwidth", ["tiers[0].latency", "tiers[1].bandwidth"]),
        ("tiers.bandwith", None),
        ("tiers[1]", ["tiers[0].bandwidth", "tiers[0].latency"]),
        ("tiers.dram", ["tiers[1].bandwidth"]),
        ("tiers.dram.latency", ["tiers[0].bandwidth", "tiers[1].bandwidth"]),
        ("tier", None),
        ("", None),
        ("capacity.unit", None),
    ],
)
def test_a_source_covers_by_prefix_position_or_name(covers: str, left: list[str] | None) -> None:
    tiers = (
        Tier(name="dram", bandwidth="1 GB/s", latency="1 s"),  # type: ignore[arg-type]
        Tier(name="nvme", bandwidth="1 GB/s"),  # type: ignore[arg-type]
    )
    sources = (
        Source(covers=("capacity",), kind="datasheet", ref="x"),
        Source(covers=(covers,), kind="paper", ref="y"),
    )
    box = Machine(id="a", capacity="1 GB", tiers=tiers, sources=sources)  # type: ignore[arg-type]
    if left is None:
        assert dangling(box) == [covers]
        assert len(uncovered(box)) == 3
    elif covers == "tiers.bandwidth":
        # A prefix without a position covers the field in every item.
        assert uncovered(box) == ["tiers[0].latency"]
    else:
        assert dangling(box) == []
        assert uncovered(box) == left
