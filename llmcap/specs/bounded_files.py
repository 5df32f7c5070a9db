"""Files of unknown origin, read whole but never without end: no device, no pipe that nobody writes to, no gzip bomb."""

from __future__ import annotations

import gzip
import stat
import zlib
from pathlib import Path
from typing import IO, cast

from llmcap.errors import DocumentError, Problem, printable


def read_bounded(path: Path, most_bytes: int, hint: str) -> bytes:
    """The bytes of a regular file, unpacked if its name ends in .gz.

    Parameters
    ----------
    path : Path
    most_bytes : int
        Size [bytes], unpacked, past which the file is refused.
    hint : str
        What to give instead of a file that cannot be read.

    Raises
    ------
    DocumentError
    """
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise _refused(path, "is a folder", "name one file in it")
        if not stat.S_ISREG(mode):
            raise _refused(path, "is not a regular file", "save what it gives into a file first")
        packed = path.suffix == ".gz"
        with cast("IO[bytes]", gzip.open(path, "rb")) if packed else path.open("rb") as stream:
            content = stream.read(most_bytes + 1)
    except (OSError, ValueError, EOFError, zlib.error) as error:  # ValueError: a NUL in the name
        raise _refused(path, f"cannot be read: {_reason(error)}", hint) from None
    if len(content) > most_bytes:
        raise _refused(path, f"is larger than {most_bytes:,} bytes", "is this the right file?")
    return content


def _reason(error: Exception) -> str:
    return printable(getattr(error, "strerror", None) or error, 120)


def _refused(path: Path, message: str, hint: str) -> DocumentError:
    return DocumentError([Problem(printable(path, 300), None, "", message, hint)])
