"""Where a command's answer goes: stdout, or a file that appears whole or not at all."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from llmcap.errors import OptionError, printable


def write_text(text: str, file: Path | None) -> None:
    """Print `text`, or put it into `file` in one step."""
    if file is None:
        sys.stdout.write(text if text.endswith("\n") else text + "\n")
        sys.stdout.flush()
        return
    whole = text if text.endswith("\n") else text + "\n"
    write_file(file, lambda path: _write(path, whole))


def write_file(file: Path, write: Callable[[Path], object], option: str = "--output") -> None:
    """Let `write` fill a temporary file beside `file`, then rename it: readers never see half of it.

    Raises
    ------
    OptionError
        The folder is missing or may not be written to.
    """
    folder = file.parent
    shown = printable(str(file), 200)
    try:
        if not folder.is_dir():
            raise OptionError(option, f"there is no folder '{printable(str(folder), 200)}'", "create it first")
        if file.is_dir():
            raise OptionError(option, f"'{shown}' is a folder", "name a file in it")
        file = Path(os.path.realpath(file))  # a link stays one, and what it points to is written
        if file.exists() and not file.is_file():  # a pipe or a device has no half-written state
            write(file)
            return
        handle, name = tempfile.mkstemp(prefix=f".{file.name[:40]}.", suffix=file.suffix, dir=file.parent)
    except BrokenPipeError:  # the reader left
        raise
    except OSError as error:
        raise OptionError(option, f"'{shown}' cannot be written: {error.strerror}", "choose another file") from None
    os.close(handle)
    temporary = Path(name)
    try:
        write(temporary)
        _match_mode(temporary, file)
        temporary.replace(file)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise OptionError(option, f"'{shown}' cannot be written: {error.strerror}", "choose another file") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def _match_mode(temporary: Path, file: Path) -> None:
    """Temporary files are private; the result gets the mode that a plain open would have given it."""
    if file.exists():
        temporary.chmod(file.stat().st_mode & 0o777)
        return
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o666 & ~mask)


def page_width() -> int:
    """Columns of the terminal, 120 where there is none."""
    return min(max(shutil.get_terminal_size((120, 24)).columns, 40), 160)
