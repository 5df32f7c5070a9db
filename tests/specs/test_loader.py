"""Strict YAML: what is read, what is refused, and where a problem stands."""

from __future__ import annotations

import hashlib
import itertools
from pathlib import Path

import pytest

from llmcap.errors import DocumentError
from llmcap.specs.loader import load_yaml, path_text, sha256_of


@pytest.fixture
def read(tmp_path: Path):
    def write_and_read(content: str | bytes):
        path = tmp_path / "doc.yaml"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return load_yaml(path)

    return write_and_read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("No", "No"),
        ("on", "on"),
        ("OFF", "OFF"),
        ("y", "y"),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("1:30", "1:30"),
        ("190:20:30", "190:20:30"),
        ("010", "010"),
        ("0o10", "0o10"),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("2026-01-31", "2026-01-31"),
        ("2026-01-31 10:00:00", "2026-01-31 10:00:00"),
        (".inf", ".inf"),
        (".nan", ".nan"),
        ("1e400", "1e400"),
        ("0", 0),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("'7'", "7"),
        ('"true"', "true"),
        ("123456789012345678901234567890", "123456789012345678901234567890"),
        ("80 GB", "80 GB"),
        ("1.2.3", "1.2.3"),
        ("=", "="),
        ("٥", "٥"),
    ],
)
def test_plain_scalars_are_what_they_look_like(read, text: str, value: object) -> None:
    data, _ = read(f"a: {text}\n")
    assert data["a"] == value
    assert type(data["a"]) is type(value)


def test_keys_are_always_text(read) -> None:
    data, _ = read("on: 1\n8: 2\nnull: 3\n1.5: 4\n")
    assert data == {"on": 1, "8": 2, "null": 3, "1.5": 4}


def test_every_key_and_item_knows_its_line(read) -> None:
    _, lines = read("a: 1\nb:\n  c:\n    - x\n    - {d: 1,\n       e: 2}\n\nf: [1,\n 2]\n")
    expected = {
        ("a",): 1,
        ("b",): 2,
        ("b", "c"): 3,
        ("b", "c", 0): 4,
        ("b", "c", 1): 5,
        ("b", "c", 1, "d"): 5,
        ("b", "c", 1, "e"): 6,
        ("f", 1): 9,
        ("b", "missing", "deeper"): 2,  # the nearest ancestor that exists
        ("nowhere",): 1,
        ("b", "c", 7): 3,
    }
    assert {path: lines.line(path) for path in expected} == expected


def test_a_yaml_path_reads_like_one() -> None:
    assert path_text(("layers", 2, "mixer")) == "layers[2].mixer"
    assert path_text((0, "a")) == "[0].a"
    assert path_text(()) == ""


def test_aliases_share_a_value(read) -> None:
    data, lines = read("base: &b {x: 1}\nother: *b\nscalar: &s 5\nagain: [*s, *s]\n")
    assert data == {"base": {"x": 1}, "other": {"x": 1}, "scalar": 5, "again": [5, 5]}
    assert lines.line(("other", "x")) == 1


@pytest.mark.parametrize(
    ("content", "line", "word"),
    [
        ("id: x\nid: y\n", 2, "twice"),
        ("a:\n  b: 1\n  c: 2\n  b: 3\n", 4, "twice"),
        ("a: 1\n'a': 2\n", 2, "twice"),
        ("base: &b {x: 1}\nother:\n  <<: *b\n", 3, "merge"),
        ("a: !!python/object:os.system {}\n", 1, "tag"),
        ("a: !custom 1\n", 1, "tag"),
        ("a: !!str 1\n", 1, "tag"),
        ("a: 1\n---\nb: 2\n", 2, "second document"),
        ("a: &x [*x]\n", 1, "anchor"),
        ("a: *nowhere\n", 1, "alias"),
        ("[a, b]: 1\n", 1, "key"),
        ("? {a: b}\n: 1\n", 1, "key"),
        ("a: &k 1\n*k : 2\n", 2, "key"),
        ("&k a: 1\n", 1, "anchor"),
        ("id: x\n  layers: [1,\n", 2, "syntax"),
        ("a: [1, 2\nb: 3\n", 2, "line 1"),
        ("a:\n\tb: 1\n", 2, "spaces"),
        ("a: b: c\n", 1, "quote"),
        ("a: 'open\n", 2, "syntax"),
        ("a: \x07\n", None, "not YAML"),
        (b"a: 1\nb: \0\n", 2, "NUL"),
        (b"a: 1\nb: \xff\n", 2, "UTF-8"),
        ("a: 1".encode("utf-16"), None, "UTF-16"),
        ("", None, "empty"),
        ("# only a comment\n", None, "empty"),
        ("x" * 1_000_001, None, "larger"),
        ("a: " + "[" * 41 + "]" * 41, 1, "nested"),
        ("[" * 500_000, 1, ""),
        ("a: &a [1]\nb: [" + "*a, " * 51 + "]\n", 2, "aliases"),
        ("[" + "1, " * 100_001 + "]", 1, "values"),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_a_trap_is_refused_with_its_line(read, content: str | bytes, line: int | None, word: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(content)
    problem = caught.value.problems[0]
    assert problem.file.endswith("doc.yaml")
    assert problem.line == line
    assert word in str(problem)
    assert len(str(caught.value)) < 2400


def test_an_alias_bomb_is_refused_long_before_it_goes_off(read) -> None:
    letters = "abcdefghi"
    bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
        f"{new}: &{new} [{','.join([f'*{old}'] * 9)}]\n" for old, new in itertools.pairwise(letters)
    )
    with pytest.raises(DocumentError):
        read(bomb)


def test_all_duplicates_are_reported_at_once(read) -> None:
    with pytest.raises(DocumentError) as caught:
        read("a: 1\na: 2\nb: {c: 1, c: [1]}\nb: &x {c: {}}\n")
    assert [(p.line, p.path) for p in caught.value.problems] == [(2, ""), (3, "b"), (4, "")]


def test_depth_and_aliases_up_to_the_limit_are_fine(read) -> None:
    data, _ = read("a: " + "[" * 39 + "]" * 39 + "\nb: &b 1\nc: [" + "*b, " * 50 + "]\n")
    assert data["c"] == [1] * 50


def test_a_byte_order_mark_and_windows_line_ends_are_fine(read) -> None:
    data, lines = read(b"\xef\xbb\xbfa: 1\r\nb: x\r\n")
    assert data == {"a": 1, "b": "x"}
    assert lines.line(("b",)) == 2


@pytest.mark.parametrize(
    ("name", "word"),
    [("missing.yaml", "no such file"), (".", "folder"), ("x" * 5000, "cannot be read"), ("a\0b", "")],
    ids=["missing", "folder", "long", "nul"],
)
def test_what_cannot_be_opened_is_named(tmp_path: Path, name: str, word: str) -> None:
    with pytest.raises(DocumentError) as caught:
        load_yaml(tmp_path / name)
    assert word in str(caught.value)
    assert name == "." or name[:5].replace("\0", "\\x00") in str(caught.value) or "xxx" in str(caught.value)


def test_the_digest_is_that_of_the_bytes(tmp_path: Path) -> None:
    path = tmp_path / "doc.yaml"
    path.write_bytes(b"a: 1\r\n")
    assert sha256_of(path) == hashlib.sha256(b"a: 1\r\n").hexdigest()
