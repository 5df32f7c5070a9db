"""Puts the commit that a package is built from into it, so that `llmcap --version` can tell it without a checkout."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CommitHook(BuildHookInterface):
    """In a checkout the commit is git's; in an unpacked sdist it stands in the file COMMIT."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # a checkout knows its commit, and that one changes
            return
        commit = self._commit(Path(self.root))
        if not commit:
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "COMMIT"
        file.write_text(commit + "\n", encoding="ascii")
        place = "COMMIT" if self.target_name == "sdist" else "llmcap/shipped/COMMIT"
        build_data["force_include"][str(file)] = place

    @staticmethod
    def _commit(root: Path) -> str:
        if (root / ".git").exists():
            command = ["git", "-C", str(root), "rev-parse", "HEAD"]
            try:
                text = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
            except OSError:  # no git
                return ""
        else:
            kept = root / "COMMIT"
            text = kept.read_text(encoding="ascii").strip() if kept.is_file() else ""
        return text if re.fullmatch(r"[0-9a-f]{40,64}", text) else ""
