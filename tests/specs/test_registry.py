"""Documents are found in the stated places only."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar

import pytest

from llmcap.errors import DocumentError, LlmcapError, OptionError
from llmcap.specs import registry
from llmcap.specs.base import Bytes, Document


class Machine(Document):
    schema_name: ClassVar[str] = "llmcap.machine/1"

    capacity: Bytes


SOUND = """\
schema: llmcap.machine/1
id: box-1
name: Box
capacity: 1.44 TB
"""


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


@pytest.mark.parametrize("name", ["../models/llama-3.1-8b", "..%2fmodels", "a/../../etc/passwd", "a\\b"])
def test_an_id_cannot_leave_its_folder(name: str) -> None:
    with pytest.raises(LlmcapError):
        registry.find("engine", name)
