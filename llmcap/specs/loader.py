"""YAML without its traps: a strict subset read into plain data, with the line of every key.

Plain scalars follow YAML 1.2: `yes`, `on`, `1:30`, `010`, `2026-01-31` and `1_000` stay text, and so do
numbers that a float cannot hold. Refused: duplicate keys, merge keys, tags, several documents in a file, and
aliases or nesting past the point where a person could have written them.
"""

from __future__ import annotations

import hashlib
import math
import re
import stat
from pathlib import Path
from typing import Any, Final

import yaml

from llmcap.errors import DocumentError, Problem, printable

MAX_FILE_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 40
MAX_ALIASES: Final = 50
MAX_NODES: Final = 100_000  # after aliases are expanded

_PARSER: Final[Any] = getattr(
    yaml, "CSafeLoader", yaml.SafeLoader
)  # libyaml's parser is some ten times faster
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,17})")
_FLOAT: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]*)?(?:\.[0-9]*)?(?:[eE][-+]?[0-9]{1,4})?")
_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def path_text(path: tuple[str | int, ...]) -> str:
    """A YAML path for people: ("layers", 2, "mixer") is 'layers[2].mixer'."""
    parts = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return "".join(parts).removeprefix(".")


class LineMap:
    """From a YAML path to its line; a path that is not in the file gets the line of its nearest ancestor."""

    def __init__(self, data: object, lines: dict[int, dict[str | int, int]], first: int = 1) -> None:
        self._data = data  # also keeps the containers alive, whose identities are the keys of `lines`
        self._lines = lines
        self._first = first

    def line(self, path: tuple[str | int, ...]) -> int:
        """The 1-based line of the key or list item at `path`."""
        node: Any = self._data
        line = self._first
        for step in path:
            if isinstance(node, dict) and step in node:
                line = self._lines[id(node)][step]
            elif isinstance(node, list) and isinstance(step, int) and 0 <= step < len(node):
                line = self._lines[id(node)][step]
            else:
                break
            node = node[step]
        return line

    __getitem__ = line


def load_yaml(path: Path) -> tuple[Any, LineMap]:
    """Plain data (dict, list, str, int, float, bool, None) of a YAML file, and where each part stands.

    Raises
    ------
    DocumentError
        The file cannot be read or is not the strict YAML described above; every problem found is listed.
    """
    data, lines, problems = read_yaml(path)
    if problems:
        raise DocumentError(problems)
    return data, lines


def sha256_of(path: Path) -> str:
    """Hexadecimal SHA-256 of the file's bytes."""
    return hashlib.sha256(_read(path)).hexdigest()


def read_yaml(path: Path) -> tuple[Any, LineMap, list[Problem]]:
    """Like `load_yaml`, but what leaves the rest readable (duplicate keys) is returned, not raised."""
    text = _decode(path, _read(path))
    builder = _Builder(str(path))
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise DocumentError([*builder.problems, _syntax_problem(str(path), error)]) from None
    except yaml.YAMLError as error:
        raise _refusal(path, f"is not YAML: {printable(error, 120)}") from None
    if builder.documents == 0:
        raise _refusal(path, "the file is empty", "write a document, beginning with its 'schema:'")
    return builder.root, LineMap(builder.root, builder.lines, builder.first_line), builder.problems


def _refusal(path: Path, message: str, hint: str = "", line: int | None = None) -> DocumentError:
    return DocumentError([Problem(str(path), line, "", message, hint)])


def _read(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise _refusal(path, "is a folder", "name one file in it")
        if not stat.S_ISREG(mode):
            raise _refusal(path, "is not a regular file")
        with path.open("rb") as stream:
            content = stream.read(MAX_FILE_BYTES + 1)
    except FileNotFoundError:
        raise _refusal(path, "no such file", "check the path; ids are written without '.yaml'") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        reason = getattr(error, "strerror", None) or str(error)
        raise _refusal(path, f"cannot be read: {printable(reason)}") from None
    if len(content) > MAX_FILE_BYTES:
        raise _refusal(
            path, f"is larger than {MAX_FILE_BYTES:,} bytes", "documents are small; is this the right file?"
        )
    return content


def _decode(path: Path, content: bytes) -> str:
    content = content.removeprefix(b"\xef\xbb\xbf")
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _refusal(path, "is UTF-16", "save it as UTF-8")
    if (nul := content.find(b"\0")) >= 0:
        raise _refusal(path, "holds a NUL byte, so it is not text", "", content.count(b"\n", 0, nul) + 1)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refusal(path, "is not UTF-8", "save it as UTF-8", line) from None


def _syntax_problem(file: str, error: yaml.MarkedYAMLError) -> Problem:
    mark = error.problem_mark or error.context_mark
    context = f" {error.context}" if error.context else ""
    hint = ""
    if "\\t" in str(error.problem) or "tab" in str(error.problem):
        hint = "indent with spaces"
    elif "mapping values are not allowed" in str(error.problem):
        hint = "quote a text that holds ': '"
    elif "flow" in context and error.context_mark:
        hint = f"the bracket opened on line {error.context_mark.line + 1} is not closed properly"
    return Problem(file, mark.line + 1 if mark else None, "", f"YAML syntax:{context}: {error.problem}", hint)


class _Builder:
    """Plain data from the parser's events, without recursion, so that no file can exhaust the stack."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.lines: dict[int, dict[str | int, int]] = {}
        self.root: Any = None
        self.documents = 0
        self.first_line = 1
        self._open: list[Any] = []  # containers being filled, outermost first
        self._keys: list[str | None] = []  # per container: the key that waits for its value
        self._anchors: dict[str, Any] = {}
        self._sizes: dict[int, int] = {}  # id of a container -> nodes in it, aliases expanded
        self._anchor_of: dict[int, str] = {}
        self._starts: list[int] = []  # per container: nodes counted when it was opened
        self._nodes = 0
        self._aliases = 0

    def take(self, event: Any) -> None:
        name = type(event)
        if name is yaml.ScalarEvent:
            self._scalar(event)
        elif name is yaml.MappingStartEvent or name is yaml.SequenceStartEvent:
            self._start(event, {} if name is yaml.MappingStartEvent else [])
        elif name is yaml.MappingEndEvent or name is yaml.SequenceEndEvent:
            self._end()
        elif name is yaml.AliasEvent:
            self._alias(event)
        elif name is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self._refuse(event, "a second document begins here", "keep one document in a file")

    def _refuse(self, event: Any, message: str, hint: str = "") -> None:
        """Stop at once: what follows could not be trusted, or could be too much."""
        raise DocumentError([*self.problems, self._problem(event, message, hint)])

    def _problem(self, event: Any, message: str, hint: str = "") -> Problem:
        path: list[str | int] = []
        for container, key in zip(self._open, self._keys, strict=True):
            if isinstance(container, list):
                path.append(len(container))
            elif key is not None:
                path.append(printable(key, 40))
        return Problem(self.file, event.start_mark.line + 1, path_text(tuple(path)), message, hint)

    def _count(self, event: Any, nodes: int = 1) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._refuse(event, f"has more than {MAX_NODES:,} values once its aliases are expanded")

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None:
            self._refuse(
                event, f"the tag '{printable(event.tag, 40)}' is not used here", "leave it out; quote texts"
            )

    def _scalar(self, event: Any) -> None:
        self._count(event)
        self._check_tag(event)
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._key(event)
            return
        value = event.value if not event.implicit[0] else _plain_scalar(event.value)
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        self._put(event, value)

    def _key(self, event: Any) -> None:
        key: str = event.value
        mapping = self._open[-1]
        if key == "<<" and event.implicit[0]:
            self._refuse(event, "merge keys ('<<') are not used here", "write the keys out")
        if event.anchor is not None:
            self._refuse(event, "a key cannot carry an anchor", "put the anchor on the value")
        if key in mapping:
            first = self.lines[id(mapping)][key]
            self.problems.append(
                self._problem(
                    event,
                    f"the key '{printable(key, 60)}' stands twice (first on line {first})",
                    "keep one of them",
                )
            )
        self.lines[id(mapping)][key] = event.start_mark.line + 1
        self._keys[-1] = key

    def _start(self, event: Any, container: Any) -> None:
        self._count(event)
        self._check_tag(event)
        if len(self._open) >= MAX_DEPTH:
            self._refuse(event, f"is nested more than {MAX_DEPTH} levels deep")
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._refuse(event, "a key must be text", "quote it, or write the list or mapping as the value")
        if event.anchor is not None:
            self._anchor_of[id(container)] = event.anchor
            self._anchors.pop(event.anchor, None)  # an alias inside the container itself is then unknown
        self.lines[id(container)] = {}
        self._put(event, container)
        self._open.append(container)
        self._keys.append(None)
        self._starts.append(self._nodes)

    def _end(self) -> None:
        container = self._open.pop()
        self._keys.pop()
        self._sizes[id(container)] = self._nodes - self._starts.pop() + 1
        if (anchor := self._anchor_of.get(id(container))) is not None:
            self._anchors[anchor] = container

    def _alias(self, event: Any) -> None:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self._refuse(event, f"uses more than {MAX_ALIASES} aliases", "write the values out")
        if event.anchor not in self._anchors:
            self._refuse(event, f"no anchor '&{printable(event.anchor, 40)}' stands before this alias")
        if self._open and isinstance(self._open[-1], dict) and self._keys[-1] is None:
            self._refuse(event, "an alias cannot be a key", "write the key out")
        value = self._anchors[event.anchor]
        self._count(event, self._sizes.get(id(value), 1) if isinstance(value, dict | list) else 1)
        self._put(event, value)

    def _put(self, event: Any, value: Any) -> None:
        if not self._open:
            self.root = value
            self.first_line = event.start_mark.line + 1
            return
        container = self._open[-1]
        if isinstance(container, list):
            self.lines[id(container)][len(container)] = event.start_mark.line + 1
            container.append(value)
        else:
            container[self._keys[-1]] = value
            self._keys[-1] = None


def _plain_scalar(text: str) -> str | int | float | bool | None:
    """An unquoted scalar under the YAML 1.2 core schema, less octal, hexadecimal, infinities and NaN."""
    first = text[:1]
    if first.isalpha() or first in ("", "~"):
        return _CONSTANTS.get(text, text)
    if first not in "0123456789+-.":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if (
        len(text) <= 40
        and _FLOAT.fullmatch(text)
        and any(c.isdigit() for c in text.lower().partition("e")[0])
    ):
        value = float(text)
        # What overflows, or is an integer past 18 digits, is kept as text: a field will refuse it by name.
        if math.isfinite(value) and any(c in text for c in ".eE"):
            return value
    return text
