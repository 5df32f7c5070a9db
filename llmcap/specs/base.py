"""Strict documents: closed, frozen pydantic models that know their sources, read from YAML and written to it.

A kind of document subclasses `Document` and names its schema; every nested part subclasses `Part`:

    class Drive(Document):
        schema_name: ClassVar[str] = "llmcap.drive/1"
        capacity: Bytes

    drive = load_document(Path("drive.yaml"), Drive)

Validation is strict: no text for a number, no `yes` for a bool, no unknown key. Lists become tuples.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Final, Literal, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from llmcap.errors import DocumentError, Problem, printable
from llmcap.specs.loader import read_yaml
from llmcap.specs.problems import problems_of
from llmcap.specs.quantities import (
    Bytes,
    BytesOrZero,
    BytesPerSecond,
    Count,
    Dollars,
    DriveWritesPerDay,
    FlopPerSecond,
    Fraction,
    NonNegative,
    PerSecond,
    Quantity,
    Seconds,
    Tokens,
    Watts,
    WholeNumber,
)
from llmcap.units import QuantityError

__all__ = [
    "Bytes",
    "BytesOrZero",
    "BytesPerSecond",
    "Count",
    "Document",
    "Dollars",
    "DriveWritesPerDay",
    "FlopPerSecond",
    "Fraction",
    "NonNegative",
    "Part",
    "PerSecond",
    "Quantity",
    "Seconds",
    "Source",
    "Tokens",
    "Watts",
    "WholeNumber",
    "dangling",
    "dump_document",
    "load_document",
    "uncovered",
]

ID_PATTERN: Final = re.compile(r"[a-z0-9](?:[a-z0-9._+-]{0,78}[a-z0-9])?")


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class Part(BaseModel):
    """A piece of a document: frozen, closed to unknown keys, strict about types."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        str_strip_whitespace=True,
        allow_inf_nan=False,
        protected_namespaces=(),
        # Validators are built when a document of the kind is first read, not for each part at import.
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _lists_become_tuples(cls, data: Any) -> Any:
        # Strict fields want tuples, YAML gives lists; a dict of lists is reached one level down.
        if not isinstance(data, dict):
            return data
        return {
            key: {k: _tuples(v) for k, v in value.items()} if isinstance(value, dict) else _tuples(value)
            for key, value in data.items()
        }


class Source(Part, defer_build=False):  # every document has it, so one validator serves all
    """Where numbers come from: one published or assumed origin and the fields that it vouches for."""

    covers: tuple[str, ...]
    """Dotted path prefixes of the fields, such as `memory.bandwidth`; list positions may be left out."""
    kind: Literal["datasheet", "documentation", "paper", "measured", "derived", "assumed", "config"]
    ref: str = Field(min_length=1)
    """Title and address, or how the value was derived or why it was assumed."""
    date: str = ""
    note: str = ""
    alternatives: tuple[str, ...] = ()
    """Other published values, and where they stand."""


class Document(Part):
    """A whole file. Subclasses set `schema_name`, such as `llmcap.model/1`."""

    schema_name: ClassVar[str] = ""

    schema_: str = Field(default="", alias="schema", validate_default=True)
    id: str
    """Lower-case name by which the document is found; also its file's name."""
    name: str = ""
    """Name for people."""
    sources: tuple[Source, ...] = ()
    """Where the numbers come from."""

    @field_validator("schema_")
    @classmethod
    def _schema_is_ours(cls, value: str) -> str:
        if value not in ("", cls.schema_name):
            raise QuantityError(f"'{printable(value, 60)}' is another schema", f"write {cls.schema_name}")
        return cls.schema_name

    @field_validator("id")
    @classmethod
    def _id_is_plain(cls, value: str) -> str:
        if not ID_PATTERN.fullmatch(value):
            raise QuantityError(
                f"'{printable(value, 60)}' is not an id",
                "use lower-case letters, digits, '-', '.', '_' and '+'",
            )
        return value


D = TypeVar("D", bound=Document)


def load_document(path: Path, document_type: type[D]) -> D:
    """Read and check one file.

    Raises
    ------
    DocumentError
        With every problem of the file: its YAML, its schema key, unknown, missing and wrong values.
    """
    file = str(path)
    data, lines, problems = read_yaml(path)
    if not isinstance(data, dict):
        problem = Problem(
            file, lines.line(()), "", "must be a mapping", f"begin with 'schema: {document_type.schema_name}'"
        )
        raise DocumentError([*problems, problem])
    wanted = document_type.schema_name
    if "schema" not in data:
        problems.append(Problem(file, lines.line(()), "", "missing key 'schema'", f"begin with 'schema: {wanted}'"))
    elif data["schema"] != wanted:
        # The rest of a document of another kind would be nothing but unknown keys.
        found = printable(data["schema"], 60)
        hint = f"a document with 'schema: {wanted}' is wanted here"
        problems.append(Problem(file, lines.line(("schema",)), "schema", f"is '{found}'", hint))
        raise DocumentError(problems)
    try:
        document = document_type.model_validate(data)
    except ValidationError as error:
        problems.extend(problems_of(error, data, document_type, file, lines))
    if problems:
        raise DocumentError(problems)
    return document


def dump_document(document: Document) -> str:
    """The document as YAML: fields in the order of their definition, sources last, quantities with units.

    Reading the text back gives an equal document. Optional fields that were left out or empty stay out.
    """
    content = _plain(document, document.model_dump(mode="json", by_alias=True))
    if "sources" in content:
        content["sources"] = content.pop("sources")
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Dumper(yaml.SafeDumper):
    """Quotes what another YAML reader would not take for text, indents lists, writes no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _plain(value: Any, dumped: Any) -> Any:
    if isinstance(value, Part):
        kept: dict[str, Any] = {}
        for name, field in type(value).model_fields.items():
            item = getattr(value, name)
            # A default number would ask for a source; a default tag tells the members of a union apart.
            unset = name not in value.model_fields_set and isinstance(item, int | float)
            if (unset or item in (None, "", (), {})) and item == field.get_default(call_default_factory=True):
                continue
            key = field.alias or name
            kept[key] = _plain(item, dumped[key])
        return kept
    if isinstance(value, Mapping):
        return {str(key): _plain(item, dumped[key]) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(item, other) for item, other in zip(value, dumped, strict=True)]
    return dumped


# A step of a leaf's path: the names by which a source may call it. A list item may be called by its position,
# its id or its name, or be left out.
_Step = tuple[frozenset[str], bool]


def _leaves(value: Any, path: tuple[_Step, ...], shown: str) -> Iterator[tuple[tuple[_Step, ...], str, Any]]:
    if isinstance(value, Part):
        for name in type(value).model_fields:
            # A default belongs to the schema, which documents it; only what the file says needs a source.
            if name in value.model_fields_set:
                yield from _leaves(getattr(value, name), (*path, (frozenset([name]), False)), f"{shown}.{name}")
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, (*path, (frozenset([str(key)]), False)), f"{shown}.{key}")
    elif isinstance(value, tuple | list):
        for position, item in enumerate(value):
            names = {
                str(position),
                *(str(n) for n in (getattr(item, "id", ""), getattr(item, "name", "")) if n),
            }
            yield from _leaves(item, (*path, (frozenset(names), True)), f"{shown}[{position}]")
    elif path:
        yield path, shown.removeprefix("."), value


def _matches(pattern: list[str], path: tuple[_Step, ...]) -> bool:
    if not pattern:
        return True
    if not path:
        return False
    names, optional = path[0]
    if pattern[0] in names and _matches(pattern[1:], path[1:]):
        return True
    return optional and _matches(pattern, path[1:])


def _prefixes(document: Document) -> list[str]:
    return [prefix for source in document.sources for prefix in source.covers]


def _pattern(prefix: str) -> list[str]:
    return [step for step in re.split(r"[.\[\]]+", prefix) if step]


def _own_leaves(document: Document) -> Iterator[tuple[tuple[_Step, ...], str, Any]]:
    for path, shown, value in _leaves(document, (), ""):
        if not path[0][0] & {"schema_", "id", "name", "sources"}:
            yield path, shown, value


def uncovered(document: Document) -> list[str]:
    """Dotted paths of the numbers in a document for which none of its sources vouches."""
    patterns = [_pattern(prefix) for prefix in _prefixes(document) if _pattern(prefix)]
    return [
        shown
        for path, shown, value in _own_leaves(document)
        if isinstance(value, int | float) and not isinstance(value, bool)
        if not any(_matches(pattern, path) for pattern in patterns)
    ]


def dangling(document: Document) -> list[str]:
    """Entries of `covers` that match no field of the document."""
    paths = [path for path, _, _ in _own_leaves(document)]
    return [
        prefix
        for prefix in _prefixes(document)
        if not _pattern(prefix) or not any(_matches(_pattern(prefix), path) for path in paths)
    ]
