"""The version, and the commit: of the checkout it runs from, or the one its package was built from."""

from __future__ import annotations

import re
from pathlib import Path

from llmcap import __version__


def version_text() -> str:
    """'llmcap 0.1.0', followed by the commit where it is known."""
    package = Path(__file__).resolve().parents[1]
    commit = _commit(package.parent / ".git") or _built_from(package / "shipped" / "COMMIT")
    return f"llmcap {__version__}" + (f" (commit {commit[:12]})" if commit else "")


def _commit(git: Path) -> str:
    """The commit checked out, read from the files of the repository; empty where there is none."""
    try:
        head = (git / "HEAD").read_text(encoding="ascii").strip()
        if not head.startswith("ref: "):
            return _hash(head)
        ref = head.removeprefix("ref: ")
        loose = git / ref
        if loose.is_file():
            return _hash(loose.read_text(encoding="ascii").strip())
        packed = (git / "packed-refs").read_text(encoding="ascii")
        found = re.search(rf"^([0-9a-f]{{40,64}}) {re.escape(ref)}$", packed, re.MULTILINE)
        return found.group(1) if found else ""
    except (OSError, UnicodeDecodeError):
        return ""


def _built_from(file: Path) -> str:
    try:
        return _hash(file.read_text(encoding="ascii").strip())
    except (OSError, UnicodeDecodeError):
        return ""


def _hash(text: str) -> str:
    return text if re.fullmatch(r"[0-9a-f]{40,64}", text) else ""
