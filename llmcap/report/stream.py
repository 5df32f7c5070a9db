"""A large file written chunk by chunk: whole or absent under its name, and continued after a kill.

Chunks are appended to `.NAME.partial`; a line in `.NAME.journal` says that one is complete. A resumed run cuts the
partial file behind the last complete chunk, computes the rest, and ends with the bytes of an undisturbed run.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from llmcap.errors import OptionError, printable
from llmcap.records import dataclass
from llmcap.report.arrow import Encoded, FileFormat, file_end, file_start
from llmcap.report.row_groups import Group


@dataclass(frozen=True, slots=True)
class Done:
    """A complete chunk of the partial file."""

    end: int
    rows: int
    crc: int
    start: int
    group: bytes


class StreamFile:
    """The file being written, with what an earlier run left when it is resumed.

    Parameters
    ----------
    path : Path
        Final name.
    form : {"parquet", "csv"}
    identity : str
        Digest of everything that the bytes depend on; a partial file of another identity is not continued.
    resume : bool
        Continue what is there; nothing there is no error.
    """

    def __init__(self, path: Path, form: FileFormat, identity: str, *, resume: bool) -> None:
        self.path = path
        self.form = form
        self.identity = identity
        self.partial = path.with_name(f".{path.name}.partial")
        self.journal = path.with_name(f".{path.name}.journal")
        self.done: list[Done] = []
        self.footer = b""
        self._data: IO[bytes] | None = None
        self._log: IO[bytes] | None = None
        _check_folder(path)
        try:
            with self._clear_errors():
                self._open(resume)
        except BaseException:
            self._close()
            raise

    def __enter__(self) -> StreamFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        for handle in (self._data, self._log):
            if handle is not None:
                with contextlib.suppress(OSError):  # what could not be flushed is not in the journal either
                    handle.close()

    @property
    def chunks(self) -> int:
        """Complete chunks."""
        return len(self.done)

    @property
    def rows(self) -> int:
        """Rows of the complete chunks."""
        return sum(d.rows for d in self.done)

    def append(self, chunk: Encoded) -> None:
        """Write the next chunk and note that it is complete."""
        assert self._data is not None and chunk.index == self.chunks
        with self._clear_errors():
            start = self.done[-1].end if self.done else len(file_start(self.form))
            self._data.write(chunk.body)
            self._data.flush()
            self._note(
                Done(start + len(chunk.body), chunk.rows, zlib.crc32(chunk.body), start, chunk.group), chunk.footer
            )

    def extend(self, chunks: Iterable[Encoded], progress: Callable[[int], None] | None = None) -> None:
        """Append chunks in order and report the rows written so far."""
        for chunk in chunks:
            self.append(chunk)
            if progress is not None:
                progress(self.rows)

    def finish(self, beside: tuple[Path, str] | None = None) -> None:
        """Give the file its name; `beside` is a small text file that appears with it."""
        assert self._data is not None and self._log is not None
        with self._clear_errors():
            groups = [Group(d.group, d.start) for d in self.done]
            self._data.write(file_end(self.form, self.footer, groups))
            self._data.flush()
            os.fsync(self._data.fileno())
            self._data.close()
            if beside is not None:
                note = beside[0].with_name(f".{beside[0].name}.partial")
                note.write_text(beside[1], encoding="utf-8")
            self.partial.replace(self.path)
            if beside is not None:
                note.replace(beside[0])
            if os.name == "nt":  # there an open file cannot go, and nothing is locked
                self._log.close()
            self.journal.unlink()
            self._log.close()

    # -- the two working files ---------------------------------------------------------------------------------------

    def _open(self, resume: bool) -> None:
        self._log = self._claimed()
        if resume and self.partial.exists():
            self._recover(self._log.read())
        fresh = not self.done
        self._data = self.partial.open("wb" if fresh else "r+b")
        self._log.seek(0)
        self._log.truncate()
        self._write_line({"identity": self.identity, "form": self.form})
        if fresh:
            self._data.write(file_start(self.form))
            self._data.flush()
            return
        self._data.truncate(self.done[-1].end)
        self._data.seek(self.done[-1].end)
        done, self.done = self.done, []
        for one in done:
            self._note(one, self.footer)

    def _claimed(self) -> IO[bytes]:
        """The journal, open and locked: two runs into one file would write through each other."""
        log = os.fdopen(os.open(self.journal, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        # A journal that is gone or another one by now belonged to a run that has just ended.
        if not _lock(log) or not _is_at(log, self.journal):
            log.close()
            raise OptionError(
                "--output", f"another run is writing '{printable(str(self.path), 200)}'",
                "wait until it ends, or name another file",
            )  # fmt: skip
        return log

    def _recover(self, journal: bytes) -> None:
        """Complete chunks of an earlier run, as far as journal and data agree."""
        lines = journal.split(b"\n")[:-1]  # the last piece is empty or torn
        entries = [_entry(line) for line in lines]
        if not entries or entries[0] is None:
            return
        if entries[0].get("identity") != self.identity:
            raise OptionError(
                "--resume",
                f"'{printable(str(self.partial), 200)}' was begun with other arguments, documents or versions",
                "run without --resume to begin again",
            )  # fmt: skip
        start = len(file_start(self.form))
        with self.partial.open("rb") as data:
            data.seek(start)
            for entry in entries[1:]:
                if entry is None:
                    return
                body = data.read(entry["end"] - start)
                if start + len(body) != entry["end"] or zlib.crc32(body) != entry["crc"]:
                    return
                self.footer = base64.b64decode(entry.get("footer", "")) or self.footer
                group = base64.b64decode(entry.get("group", ""))
                self.done.append(Done(entry["end"], entry["rows"], entry["crc"], start, group))
                start = entry["end"]

    def _note(self, done: Done, footer: bytes) -> None:
        entry: dict[str, Any] = {"end": done.end, "rows": done.rows, "crc": done.crc}
        if done.group:
            entry["group"] = base64.b64encode(done.group).decode()
        if footer and not self.done:
            entry["footer"] = base64.b64encode(footer).decode()
            self.footer = footer
        self._write_line(entry)
        self.done.append(done)

    def _write_line(self, entry: dict[str, Any]) -> None:
        assert self._log is not None
        self._log.write(json.dumps(entry).encode() + b"\n")
        self._log.flush()

    def _clear_errors(self) -> _ClearErrors:
        return _ClearErrors(self.path)


class _ClearErrors:
    """Failures of the file system, said as what they mean for the sweep."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        return None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, OSError):
            shown = printable(str(self.path), 200)
            raise OptionError(
                "--output", f"'{shown}' cannot be written: {error.strerror or error}; a file of that name is as it was",
                "free some space or name another folder, then continue with --resume",
            ) from None  # fmt: skip


def _check_folder(path: Path) -> None:
    folder = path.parent
    if not folder.is_dir():
        raise OptionError("--output", f"there is no folder '{printable(str(folder), 200)}'", "create it first")
    if path.is_dir():
        raise OptionError("--output", f"'{printable(str(path), 200)}' is a folder", "name a file in it")
    if path.exists() and not path.is_file():
        hint = "name a file, or leave -o out and take CSV from stdout"
        raise OptionError("--output", f"'{printable(str(path), 200)}' is a device or a pipe, not a file", hint)


def _lock(file: IO[bytes]) -> bool:
    """Whether the file is this process's alone; the lock ends with the process, however that ends."""
    try:
        import fcntl
    except ModuleNotFoundError:  # Windows
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_at(file: IO[bytes], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _entry(line: bytes) -> dict[str, Any] | None:
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
