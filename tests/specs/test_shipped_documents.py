"""Documents of every kind that come with the package."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcap.specs import registry
from llmcap.specs.base import (
    Document,
    dangling,
    dump_document,
    load_document,
    uncovered,
)

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


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in SHIPPED if kind != "scenario"])
def test_sources_of_a_shipped_document_cover_its_numbers_and_nothing_else(kind: str, name: str) -> None:
    document = registry.load(kind, name).document
    assert (uncovered(document), dangling(document)) == ([], [])


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
