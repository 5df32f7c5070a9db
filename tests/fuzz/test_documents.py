"""Whatever is thrown at the readers, they succeed or raise the clear error: no crash, no NaN, no hang."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from llmcap.errors import DocumentError, LlmcapError
from llmcap.specs import registry
from llmcap.specs.base import Document, load_document
from llmcap.specs.loader import load_yaml, sha256_of
from llmcap.units import DIMENSIONS, parse_count, parse_quantity

# fmt: off
YAML_PIECES = st.sampled_from([
    "a", "id", "schema", ": ", ":", "- ", "\n", "\n  ", "\t", "[", "]", "{", "}", ", ", "&x ", "*x",
    "!t ", "!!str ", "<<", "'", '"', "|\n", ">-\n", "---\n", "...\n", "# c\n", "? ", "%YAML 1.1\n", "1",
    "1:30", "yes", "80 GB", "\ufeff", "é", "\x00", "\x85", "\u2028", "~", ".nan", "1e999", "=", "@", "`",
])
QUANTITY_PIECES = st.sampled_from([
    "1", "0", "9", ".", ",", "_", "-", "+", "e", "E", "%", " ", "k", "K", "M", "G", "T", "Ki", "B", "b",
    "it", "/s", "s", "ms", "min", "h", "W", "USD", "FLOP", "IOPS", "inf", "nan", "٥", "µ", "\x00", "\n",
    "400",
])
# fmt: on


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("fuzz")


def check_file(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    for read in (load_yaml, lambda p: load_document(p, Document)):
        try:
            read(path)
        except DocumentError as error:
            assert error.problems
            assert 0 < len(str(error)) < 2400
            assert str(error).replace("\n", "").isprintable()
    assert len(sha256_of(path)) == 64


@given(st.lists(YAML_PIECES, max_size=40).map("".join))
@example("a: &x {b: *x}")
@example("? ? ? ?")
def test_yaml_like_text_is_read_or_refused(folder: Path, text: str) -> None:
    check_file(folder / "doc.yaml", text.encode())


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused(folder: Path, content: bytes) -> None:
    check_file(folder / "doc.yaml", content)


@given(st.data())
def test_a_damaged_shipped_document_is_read_or_refused(folder: Path, data: st.DataObject) -> None:
    kind, name = data.draw(
        st.sampled_from([(kind, name) for kind in ("server", "device", "model") for name in registry.list_ids(kind)])
    )
    lines = registry.find(kind, name).read_text(encoding="utf-8").split("\n")
    position = data.draw(st.integers(0, len(lines) - 1))
    change = data.draw(st.sampled_from(["drop", "double", "cut", "garble", "indent"]))
    line = lines[position]
    lines[position : position + 1] = {
        "drop": [],
        "double": [line, line],
        "cut": [line[: len(line) // 2]],
        "garble": [line.replace(":", data.draw(st.sampled_from([": 7 #", ":", ": [", ": yes #", ": -1 #", ": {} #"])))],
        "indent": ["  " + line],
    }[change]
    path = folder / "damaged.yaml"
    path.write_text("\n".join(lines), encoding="utf-8")
    try:
        load_document(path, registry.document_type_of(kind))
    except DocumentError as error:
        assert all(problem.line is not None for problem in error.problems)
        assert len(str(error)) < 2400


@given(st.one_of(st.lists(QUANTITY_PIECES, max_size=12).map("".join), st.text(max_size=30)))
def test_a_quantity_is_a_sound_number_or_an_error(text: str) -> None:
    for dimension in DIMENSIONS:
        try:
            value = parse_quantity(text, dimension)
        except ValueError as error:
            assert str(error).isprintable()
        else:
            assert math.isfinite(value)
            assert value >= 0


@given(st.one_of(st.lists(QUANTITY_PIECES, max_size=12).map("".join), st.text(max_size=30), st.integers()))
def test_a_count_is_a_sound_number_or_an_error(text: str | int) -> None:
    try:
        value = parse_count(text)
    except ValueError as error:
        assert str(error).isprintable()
    else:
        assert 0 <= value <= 10**15


@given(st.sampled_from(sorted(registry.KINDS)), st.text(max_size=40))
@example("model", "a/b")
@example("model", "/")
@example("model", "~")
@example("model", "~no-such-user-here/x")
@example("engine", "~no-such-user-here/x")
@example("model", ".yaml")
def test_a_name_is_found_or_refused(kind: str, name: str) -> None:
    try:
        registry.find(kind, name)
    except LlmcapError as error:
        assert 0 < len(str(error)) < 2400
        assert str(error).replace("\n", "").isprintable()
