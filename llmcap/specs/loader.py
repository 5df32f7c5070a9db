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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

import yaml

from llmcap.errors import DocumentError, Problem, printable

MAX_FILE_BYTES: Final = 1_000_000
MAX_DEPTH: Final = 40
MAX_ALIASES: Final = 50
MAX_NODES: Final = 100_000  # after aliases are expanded

_PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser is some ten times faster
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
            own = self._lines.get(id(node), {})
            if step not in own:
                break
            line, node = own[step], node[step]
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
    """Like `load_yaml`, but what leaves the rest readable (duplicate keys) is returned, not raised.

    Raises
    ------
    DocumentError
        The file cannot be read, is not YAML, or is empty.
    """
    text = _decode(path, _read(path))
    builder = _Builder(str(path))
    try:
        for event in yaml.parse(text, Loader=_PARSER):
            builder.take(event)
    except yaml.MarkedYAMLError as error:
        raise DocumentError([*builder.problems, _syntax_problem(str(path), text, error)]) from None
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
        raise _refusal(path, f"is larger than {MAX_FILE_BYTES:,} bytes", "documents are small; is this the right file?")
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


def _syntax_problem(file: str, text: str, error: yaml.MarkedYAMLError) -> Problem:
    mark, problem = error.problem_mark or error.context_mark, str(error.problem)
    rows = text.split("\n")
    line = min(mark.line, len(rows) - 1) if mark else 0  # the mark may stand behind the end
    hint = ""
    if mark and "\t" in rows[line][: mark.column + 1]:
        hint = "indent with spaces, not with tabs"
    elif "mapping values are not allowed" in problem:
        hint = "quote a text that holds ': ', and check the indentation"
    elif "did not find expected" in problem and error.context_mark and "flow" in str(error.context):
        hint = f"the bracket opened on line {error.context_mark.line + 1} is not closed properly"
    context = f"{error.context}: " if error.context else ""
    return Problem(file, line + 1, "", f"YAML syntax: {context}{problem}", hint)


@dataclass(slots=True)
class _Open:
    """A list or mapping whose end has not been read yet."""

    container: Any
    lines: dict[str | int, int]
    anchor: str | None
    nodes_before: int
    wants_key: bool  # whether the next node is a mapping's key
    key: str = ""  # in a mapping: the key whose value is being read


class _Builder:
    """Plain data from the parser's events, without recursion, so that no file can exhaust the stack."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.lines: dict[int, dict[str | int, int]] = {}  # by identity of the container
        self.root: Any = None
        self.documents = 0
        self.first_line = 1
        self._open: list[_Open] = []  # outermost first
        self._anchors: dict[str, tuple[Any, int]] = {}  # value, and how many nodes it has, aliases expanded
        self._nodes = 0
        self._aliases = 0
        self._discarded: list[Any] = []  # keeps overwritten values alive, as identities must stay unique

    def take(self, event: Any) -> None:
        name = type(event)
        if name is yaml.ScalarEvent:
            self._scalar(event)
        elif name is yaml.MappingStartEvent:
            self._start(event, {})
        elif name is yaml.SequenceStartEvent:
            self._start(event, [])
        elif name is yaml.MappingEndEvent or name is yaml.SequenceEndEvent:
            ended = self._open.pop()
            if ended.anchor is not None:
                self._anchors[ended.anchor] = (ended.container, self._nodes - ended.nodes_before)
            self._value_is_complete()
        elif name is yaml.AliasEvent:
            self._alias(event)
        elif name is yaml.DocumentStartEvent:
            self.documents += 1
            if self.documents > 1:
                self._refuse(event, "a second document begins here", "keep one document in a file")

    def _refuse(self, event: Any, message: str, hint: str = "") -> NoReturn:
        """Stop at once: what follows could not be trusted, or could be too much."""
        raise DocumentError([*self.problems, self._problem(event, message, hint)])

    def _problem(self, event: Any, message: str, hint: str = "") -> Problem:
        path: list[str | int] = []
        for level in self._open:
            if isinstance(level.container, list):
                # The item of an outer list is in its list already, that of the innermost is not.
                path.append(len(level.container) - (level is not self._open[-1]))
            elif not level.wants_key:
                path.append(printable(level.key, 40))
        return Problem(self.file, event.start_mark.line + 1, path_text(tuple(path)), message, hint)

    def _count(self, event: Any, nodes: int = 1) -> None:
        self._nodes += nodes
        if self._nodes > MAX_NODES:
            self._refuse(event, f"has more than {MAX_NODES:,} values once its aliases are expanded")

    def _check_tag(self, event: Any) -> None:
        if event.tag is not None:
            self._refuse(event, f"the tag '{printable(event.tag, 40)}' is not used here", "leave it out; quote texts")

    def _scalar(self, event: Any) -> None:
        self._count(event)
        self._check_tag(event)
        if self._open and self._open[-1].wants_key:
            self._key(event, self._open[-1])
            return
        value = _plain_scalar(event.value) if event.implicit[0] else event.value
        if event.anchor is not None:
            self._anchors[event.anchor] = (value, 1)
        self._put(event, value)
        self._value_is_complete()

    def _key(self, event: Any, mapping: _Open) -> None:
        key: str = event.value
        if key == "<<" and event.implicit[0]:
            self._refuse(event, "merge keys ('<<') are not used here", "write the keys out")
        if event.anchor is not None:
            self._refuse(event, "a key cannot carry an anchor", "put the anchor on the value")
        if key in mapping.lines:
            message = f"the key '{printable(key, 60)}' stands twice (first on line {mapping.lines[key]})"
            self.problems.append(self._problem(event, message, "keep one of them"))
            self._discarded.append(mapping.container[key])
        mapping.lines[key] = event.start_mark.line + 1
        mapping.key, mapping.wants_key = key, False

    def _start(self, event: Any, container: Any) -> None:
        self._check_tag(event)
        if len(self._open) >= MAX_DEPTH:
            self._refuse(event, f"is nested more than {MAX_DEPTH} levels deep")
        if self._open and self._open[-1].wants_key:
            self._refuse(event, "a key must be text", "quote it, or write the list or mapping as the value")
        if event.anchor is not None:
            self._anchors.pop(event.anchor, None)  # inside itself the anchor is not known yet
        lines: dict[str | int, int] = {}
        self.lines[id(container)] = lines
        self._put(event, container)
        self._open.append(_Open(container, lines, event.anchor, self._nodes, isinstance(container, dict)))
        self._count(event)

    def _alias(self, event: Any) -> None:
        self._aliases += 1
        if self._aliases > MAX_ALIASES:
            self._refuse(event, f"uses more than {MAX_ALIASES} aliases", "write the values out")
        if event.anchor not in self._anchors:
            self._refuse(event, f"no anchor '&{printable(event.anchor, 40)}' stands before this alias")
        if self._open and self._open[-1].wants_key:
            self._refuse(event, "an alias cannot be a key", "write the key out")
        value, nodes = self._anchors[event.anchor]
        self._count(event, nodes)
        self._put(event, value)
        self._value_is_complete()

    def _value_is_complete(self) -> None:
        if self._open:
            self._open[-1].wants_key = isinstance(self._open[-1].container, dict)

    def _put(self, event: Any, value: Any) -> None:
        if not self._open:
            self.root = value
            self.first_line = event.start_mark.line + 1
            return
        level = self._open[-1]
        if isinstance(level.container, list):
            level.lines[len(level.container)] = event.start_mark.line + 1
            level.container.append(value)
        else:
            level.container[level.key] = value


def _plain_scalar(text: str) -> str | int | float | bool | None:
    """An unquoted scalar under the YAML 1.2 core schema, less octal, hexadecimal, infinities and NaN."""
    first = text[:1]
    if first.isalpha() or first in ("", "~"):
        return _CONSTANTS.get(text, text)
    if first not in "0123456789+-.":
        return text
    if _INTEGER.fullmatch(text):
        return int(text)
    if len(text) <= 40 and _FLOAT.fullmatch(text) and any(c.isdigit() for c in text.lower().partition("e")[0]):
        value = float(text)
        # What overflows, or is an integer past 18 digits, is kept as text: a field will refuse it by name.
        if math.isfinite(value) and any(c in text for c in ".eE"):
            return value
    return text
