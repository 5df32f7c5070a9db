"""The completion script of bash, run in bash; those of zsh and fish are only looked at."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from llmcap.cli.completion import SHELLS, script
from llmcap.errors import OptionError


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "llmcap.bash"
    path.write_text(script("bash"), encoding="utf-8")
    return path


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["est"], ["estimate"]),
        (["models", "im"], ["import"]),
        (["estimate", "--output-t"], ["--output-tokens"]),
        (["models", "import", "--na"], ["--name"]),
        (["estimate", "--hardware", "dgx-h1"], ["dgx-h100"]),
        (["estimate", "--users", "1", "--model", "llama-4-s"], ["llama-4-scout"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_bash_completes(file: Path, words: list[str], found: list[str]) -> None:
    typed = " ".join(f"'{word}'" for word in ["llmcap", *words])
    text = f"source {file}; COMP_WORDS=({typed}); COMP_CWORD={len(words)}; _llmcap; printf '%s\\n' ${{COMPREPLY[@]}}"
    ran = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == found


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_every_script(shell: str) -> None:
    from llmcap.cli.app import COMMANDS

    text = script(shell)
    assert all(name in text for name in COMMANDS)
    assert "dgx-b200" in text


def test_a_shell_without_a_script_is_refused() -> None:
    with pytest.raises(OptionError, match="Did you mean 'bash'"):
        script("bsh")
