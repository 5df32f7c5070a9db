"""Documents: found in the stated places only, checked strictly, every problem with its line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from llmcap.errors import DocumentError, LlmcapError, OptionError
from llmcap.specs import registry
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


# Lookup


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in $LLMCAP_PATH, and a working directory with documents that must not be found."""
    root = tmp_path / "shelf"
    for folder, name, body in [
        ("models", "tiny-1b", "huggingface: [Org/Tiny-1B-Instruct, 'Org/Tiny-1B']"),
        ("models", "tiny-1b-base", "huggingface: [Org/Tiny-1B-Base]"),
        ("models", "other-7b", 'id: other-7b\nhuggingface: ["Org.x/Other-7B"]\nlayers: [a, b]'),
        ("hardware/servers", "box-1", SOUND),
    ]:
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / f"{name}.yaml").write_text(body + "\n", encoding="utf-8")
    here = tmp_path / "cwd"
    (here / "models").mkdir(parents=True)
    (here / "models" / "secret.yaml").write_text("id: secret\n")
    (here / "secret.yaml").write_text("id: secret\n")
    (here / "secret").write_text("id: secret\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("LLMCAP_PATH", f"{os.pathsep}{root}{os.pathsep}")
    return root


@pytest.mark.parametrize(
    ("name", "stem"),
    [
        ("tiny-1b", "tiny-1b"),
        ("TINY-1B", "tiny-1b"),
        (" tiny-1b ", "tiny-1b"),
        ("Org/Tiny-1B", "tiny-1b"),
        ("org/tiny-1b-instruct", "tiny-1b"),
        ("ORG/TINY-1B-BASE", "tiny-1b-base"),
        ("org/tiny-1b-chat", "tiny-1b"),
        ("org.x/other-7b-Instruct", "other-7b"),
    ],
)
def test_a_model_is_found_by_id_and_by_hugging_face_id(shelf: Path, name: str, stem: str) -> None:
    assert registry.find("model", name) == shelf / "models" / f"{stem}.yaml"


def test_a_path_is_taken_as_it_is(shelf: Path, tmp_path: Path) -> None:
    assert registry.find("model", str(tmp_path / "cwd" / "secret.yaml")) == tmp_path / "cwd" / "secret.yaml"
    assert registry.find("model", "secret.yaml") == Path("secret.yaml")
    assert registry.find("model", "./secret") == Path("secret")


def test_nothing_is_found_in_the_working_directory(shelf: Path) -> None:
    with pytest.raises(OptionError):
        registry.find("model", "secret")


@pytest.mark.parametrize(
    ("kind", "name", "option", "word"),
    [
        ("model", "tiny-1", "--model", "tiny-1b"),
        ("model", "org/tiny-2b", "--model", "Org/Tiny-1B"),
        ("server", "box-2", "--hardware", "box-1"),
        ("model", "zzzzzz", "--model", "other-7b"),
        ("model", "", "--model", "unknown"),
        ("model", "..", "--model", "unknown"),
        ("model", "*", "--model", "unknown"),
        ("model", "\x1b[31m", "--model", "\\x1b"),
        ("model", "x" * 10_000, "--model", "unknown"),
    ],
)
def test_an_unknown_id_says_what_is_known(shelf: Path, kind: str, name: str, option: str, word: str) -> None:
    with pytest.raises(OptionError) as caught:
        registry.find(kind, name)
    assert caught.value.option == option
    assert word in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    "name", ["missing.yaml", "../shelf/models/none", "/no/such/file.yml", "a\0b.yaml", "x/" * 3000]
)
def test_a_missing_file_is_named(shelf: Path, name: str) -> None:
    with pytest.raises(DocumentError) as caught:
        registry.find("model", name)
    assert "no such file" in str(caught.value)


def test_own_documents_go_before_shipped_ones(shelf: Path) -> None:
    shipped = registry.list_ids("server")
    (shelf / "hardware/servers/dgx-b200.yaml").write_text(SOUND)
    assert registry.find("server", "dgx-b200").parent == shelf / "hardware/servers"
    assert set(registry.list_ids("server")) == {*shipped, "box-1", "dgx-b200"}


def test_a_folder_that_does_not_exist_is_not_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLMCAP_PATH", "/no/such/folder")
    with pytest.raises(OptionError, match="LLMCAP_PATH"):
        registry.find("model", "x")


def test_a_new_hugging_face_id_is_seen(shelf: Path) -> None:
    registry.find("model", "Org/Tiny-1B")
    (shelf / "models" / "new.yaml").write_text("huggingface: [Org/New]\n")
    assert registry.find("model", "org/new").stem == "new"


def test_loading_gives_document_path_and_digest_once(shelf: Path) -> None:
    first = registry.load_as(Machine, "server", "box-1")
    assert first.document.capacity == 1.44e12
    assert first.path == shelf / "hardware/servers/box-1.yaml"
    assert len(first.sha256) == 64
    assert registry.load_as(Machine, "server", "BOX-1").document is first.document
    first.path.write_text(SOUND.replace("1.44 TB", "2 TB  "))
    os.utime(first.path, ns=(1, 1))
    assert registry.load_as(Machine, "server", "box-1").document.capacity == 2e12


def test_only_known_kinds_can_be_registered() -> None:
    with pytest.raises(ValueError, match="not one of"):
        registry.register("toaster")


# Shipped documents

SHIPPED = [(kind, name) for kind in registry.KINDS for name in registry.list_ids(kind)]


def test_shipped_documents_are_found_from_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert "dgx-b200" in registry.list_ids("server")
    assert registry.find("server", "dgx-b200").is_file()


@pytest.mark.parametrize(("kind", "name"), SHIPPED)
def test_a_shipped_document_is_sound_and_named_by_its_id(kind: str, name: str) -> None:
    loaded = registry.load(kind, name)
    assert loaded.document.id == name
    assert load_text(kind, dump_document(loaded.document)) == loaded.document


def load_text(kind: str, text: str) -> Document:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "again.yaml"
        path.write_text(text, encoding="utf-8")
        return load_document(path, registry.document_type_of(kind))


@pytest.mark.parametrize("name", registry.list_ids("model"))
def test_a_model_keeps_its_hugging_face_ids_on_one_line(name: str) -> None:
    path = registry.find("model", name)
    ids = registry.load("model", name).document.huggingface
    assert [
        entry for entry, where in registry._index(path.parent, path.parent.stat().st_mtime_ns) if where == path
    ] == list(ids)


@pytest.mark.parametrize("kind", sorted({kind for kind, _ in SHIPPED}))
def test_each_kind_has_a_json_schema(kind: str) -> None:
    schema = registry.json_schema(kind)
    assert schema["properties"]["schema"] == {"const": registry.document_type_of(kind).schema_name}
    assert "schema" in schema["required"]
    assert schema["additionalProperties"] is False
    assert schema["properties"]["id"]["description"].startswith("Lower-case name")
    assert schema["$defs"]["Source"]["properties"]["covers"]["description"].startswith("Dotted path prefixes")


@pytest.mark.parametrize("name", ["../models/llama-3.1-8b", "..%2fmodels", "a/../../etc/passwd", "a\\b"])
def test_an_id_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(LlmcapError):
        registry.find("engine", name)
