"""Where documents are found: an explicit path, then the folders of $LLMCAP_PATH, then what llmcap ships.

Nothing is ever taken from the working directory unless its path is given. A folder in $LLMCAP_PATH has the
layout of the shipped documents: `models/`, `hardware/servers/` ... with one `<id>.yaml` for each document.
"""

from __future__ import annotations

import functools
import importlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

from llmcap.errors import DocumentError, OptionError, Problem, did_you_mean, printable
from llmcap.records import dataclass
from llmcap.specs.base import ID_PATTERN, Document, load_document
from llmcap.specs.loader import sha256_of

D = TypeVar("D", bound=Document)


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of document: its folder, the option that names one, and the module that defines its type."""

    folder: str
    option: str
    module: str


KINDS: Final[dict[str, Kind]] = {
    "model": Kind("models", "--model", "llmcap.specs.model"),
    "server": Kind("hardware/servers", "--hardware", "llmcap.specs.hardware"),
    "device": Kind("hardware/devices", "--hardware", "llmcap.specs.hardware"),
    "drive": Kind("hardware/drives", "--drive", "llmcap.specs.hardware"),
    "nic": Kind("hardware/nics", "--nic", "llmcap.specs.hardware"),
    "store": Kind("hardware/stores", "--store", "llmcap.specs.hardware"),
    "expander": Kind("hardware/expanders", "--expander", "llmcap.specs.hardware"),
    "calibration": Kind("hardware/calibration", "--calibration", "llmcap.specs.calibration"),
    "transfers": Kind("hardware/transfers", "--transfers", "llmcap.specs.transfers"),
    "prices": Kind("hardware/prices", "--prices", "llmcap.specs.prices"),
    "engine": Kind("engines", "--engine", "llmcap.specs.engine"),
    "assumptions": Kind("assumptions", "--assumptions", "llmcap.specs.assumptions"),
    "claims": Kind("measurements/claims", "--suite", "llmcap.specs.claims"),
    "scenario": Kind("scenarios", "SCENARIO", "llmcap.specs.scenario"),
}

_TYPES: dict[str, type[Document]] = {}

# Digest -> the files with that content as they were when they were read: (path, modified, size).
_STAMPS: dict[str, set[tuple[Path, int, int]]] = {}


class Used(NamedTuple):
    """A document that a result rests on. Ids are unique only within a kind: b200 is a device and a calibration."""

    id: str
    sha256: str
    kind: str

    def row(self) -> dict[str, str]:
        """As it stands in the provenance of an answer."""
        return {"id": self.id, "kind": self.kind, "sha256": self.sha256}


@dataclass(frozen=True, slots=True)
class Loaded(Generic[D]):
    """A checked document, the file it came from and that file's digest."""

    document: D
    path: Path
    sha256: str

    @property
    def used(self) -> Used:
        """The document as a result names it; the kind is that of its schema (llmcap.device/1)."""
        return Used(self.document.id, self.sha256, self.document.schema_name.partition("/")[0].rpartition(".")[2])


def register(kind: str) -> Callable[[type[D]], type[D]]:
    """Class decorator: documents of `kind` are of the decorated type.

    Raises
    ------
    ValueError
        A kind that is not in KINDS.
    """
    if kind not in KINDS:
        raise ValueError(f"'{kind}' is not one of {', '.join(KINDS)}")

    def remember(document_type: type[D]) -> type[D]:
        _TYPES[kind] = document_type
        return document_type

    return remember


def document_type_of(kind: str) -> type[Document]:
    """The registered type of `kind`, importing the module that defines it when need be."""
    if kind not in _TYPES:
        importlib.import_module(KINDS[kind].module)
    return _TYPES[kind]


def shipped_root() -> Path:
    """The folder of the shipped `models/`, `hardware/` ...: inside a wheel, or the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "shipped"
    return inside if inside.is_dir() else package.parent


def search_roots() -> list[Path]:
    """The folders of $LLMCAP_PATH in their order, then the shipped one.

    Raises
    ------
    OptionError
        One of them does not exist.
    """
    roots = []
    for entry in os.environ.get("LLMCAP_PATH", "").split(os.pathsep):
        # An empty entry must not come to mean the working directory.
        if not entry.strip():
            continue
        root = as_path(entry)
        if not root.is_dir():
            raise OptionError("LLMCAP_PATH", f"'{printable(entry, 200)}' is not a folder", "name folders that exist")
        roots.append(root)
    return [*roots, shipped_root()]


def list_ids(kind: str) -> list[str]:
    """All ids of `kind`, sorted."""
    return sorted({path.stem for folder in _folders(kind) for path in folder.glob("*.yaml")})


def find(kind: str, name: str) -> Path:
    """The file that `name` stands for: a path, an id in any case, or for a model also a Hugging Face id.

    Raises
    ------
    DocumentError
        `name` is a path and there is no such file.
    OptionError
        `name` is an id and no document of this kind has it.
    """
    if kind == "model" and (path := _by_huggingface(name)) is not None:
        return path
    if _looks_like_path(name):
        path = as_path(name)
        if exists(path):
            return path
        if not (kind == "model" and re.fullmatch(r"[\w.-]+/[\w.-]+", name) and not name.endswith(_EXTENSIONS)):
            hint = "check the path, or give an id as 'llmcap models list' and 'llmcap hardware list' show them"
            raise DocumentError([Problem(printable(name, 300), None, "", "no such file", hint)])
        raise _unknown(kind, name)
    identity = name.strip().lower()
    if ID_PATTERN.fullmatch(identity):
        for folder in _folders(kind):
            path = folder / f"{identity}.yaml"
            if path.is_file():
                return path
    raise _unknown(kind, name)


def load(kind: str, name: str) -> Loaded[Any]:
    """Find, read and check a document. Repeated calls share one object until the file changes."""
    return _load_path(document_type_of(kind), find(kind, name))


def load_as(document_type: type[D], kind: str, name: str) -> Loaded[D]:
    """`load` for callers that name the type they expect."""
    return _load_path(document_type, find(kind, name))


def stamp(path: Path, sha256: str) -> None:
    """Remember that the file at `path` was read with this content."""
    status = path.stat()
    _STAMPS.setdefault(sha256, set()).add((path.absolute(), status.st_mtime_ns, status.st_size))


def unchanged(sha256: str) -> bool:
    """Whether every file that was read with this content still is as it was then."""
    for seen in tuple(_STAMPS.get(sha256, ())):
        path, modified_ns, size = seen
        try:
            status = path.stat()
        except OSError:
            status = None
        if status is None or (status.st_mtime_ns, status.st_size) != (modified_ns, size):
            _STAMPS[sha256].discard(seen)
            return False
    return True


def json_schema(kind: str) -> dict[str, Any]:
    """JSON Schema of the documents of `kind`, for editors."""
    from llmcap.specs.json_schema import schema_of

    return schema_of(document_type_of(kind))


_EXTENSIONS: Final = (".yaml", ".yml", ".json")


def _looks_like_path(name: str) -> bool:
    separators = [os.sep, *([os.altsep] if os.altsep else [])]
    return any(separator in name for separator in separators) or name.lower().endswith(_EXTENSIONS)


def is_folder(name: str) -> bool:
    """Whether there is a folder of that name."""
    try:
        return as_path(name).is_dir()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def as_path(name: str) -> Path:
    """The path that a name stands for, `~` expanded where there is such a home."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # the home of a user who does not exist
        return Path(name)


def exists(path: Path) -> bool:
    """Whether there is such a file or folder; a name that no file can have is none."""
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or holds a NUL
        return False


def _folders(kind: str) -> Iterator[Path]:
    for root in search_roots():
        folder = root / KINDS[kind].folder
        if folder.is_dir():
            yield folder


def _unknown(kind: str, name: str) -> OptionError:
    # A user's own documents are named before the shipped ones, of which there may be more than fit the message.
    ids = list(dict.fromkeys(path.stem for folder in _folders(kind) for path in sorted(folder.glob("*.yaml"))))
    known = [*ids, *(huggingface_ids() if kind == "model" and "/" in name else [])]
    some = f"known: {', '.join(ids[:12])}{' ...' if len(ids) > 12 else ''}" if ids else ""
    noun = "hardware" if kind == "server" else kind
    return OptionError(KINDS[kind].option, f"unknown {noun} '{printable(name, 60)}'", did_you_mean(name, known) or some)


# Parsing every model document would cost more than the estimate itself, so the ids are taken from the text:
# each document keeps its `huggingface: [a/b, c/d]` on one line.

_HUGGINGFACE_LINE: Final = re.compile(r"^huggingface:[ \t]*\[([^\]\n]*)\]", re.MULTILINE)
_VARIANT: Final = re.compile(r"-(?:instruct|base|chat|it|hf)(?=-|$)")


def huggingface_ids() -> list[str]:
    """The Hugging Face ids of all models, as their documents spell them."""
    return [name for folder in _folders("model") for name, _ in _index(folder, folder.stat().st_mtime_ns)]


def _by_huggingface(name: str) -> Path | None:
    wanted = name.strip().lower()
    if "/" not in wanted or wanted.endswith(_EXTENSIONS):
        return None
    entries = [entry for folder in _folders("model") for entry in _index(folder, folder.stat().st_mtime_ns)]
    for identity, path in entries:
        if identity.lower() == wanted:
            return path
    # Another variant has the same architecture; of several documents the one with the plainest id is meant.
    bare = _VARIANT.sub("", wanted)
    variants = [path for identity, path in entries if _VARIANT.sub("", identity.lower()) == bare]
    return min(variants, key=lambda path: len(path.stem), default=None)


@functools.lru_cache(maxsize=16)
def _index(folder: Path, modified_ns: int) -> tuple[tuple[str, Path], ...]:
    entries: list[tuple[str, Path]] = []
    for path in sorted(folder.glob("*.yaml")):
        try:
            line = _HUGGINGFACE_LINE.search(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            continue
        names = line.group(1).split(",") if line else []
        entries.extend((text.strip(" \t'\""), path) for text in names if text.strip(" \t'\""))
    return tuple(entries)


def _load_path(document_type: type[D], path: Path) -> Loaded[D]:
    try:
        status = path.stat()
    except (OSError, ValueError):
        return Loaded(load_document(path, document_type), path, sha256_of(path))  # raises the clear error
    return _load_cached(document_type, path, status.st_mtime_ns, status.st_size)  # type: ignore[return-value]


@functools.lru_cache(maxsize=1024)
def _load_cached(document_type: type[Document], path: Path, modified_ns: int, size: int) -> Loaded[Document]:
    loaded = Loaded(load_document(path, document_type), path, sha256_of(path))
    stamp(path, loaded.sha256)
    return loaded
