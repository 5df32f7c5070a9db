"""The completion scripts, each run in its own shell as at the Tab key."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from llmcap.cli.completion import SHELLS, script
from llmcap.errors import OptionError

#: (what is typed, the only word that continues it)
TYPED = [
    ("llmcap est", "estimate"),
    ("llmcap --ver", "--version"),
    ("llmcap models im", "import"),
    ("llmcap estimate --output-t", "--output-tokens"),
    ("llmcap models import --na", "--name"),
    ("llmcap estimate --hardware dgx-h1", "dgx-h100"),
    ("llmcap estimate --users 1 --model llama-4-s", "llama-4-scout"),
    ("llmcap tiers --drive micron-9550-m", "micron-9550-max-25.6tb"),
    ("llmcap sweep million", "million-token-context"),
    ("llmcap models show llama-4-m", "llama-4-maverick"),
]


def _written(shell: str, folder: Path) -> Path:
    path = folder / f"llmcap.{shell}"
    path.write_text(script(shell), encoding="utf-8")
    return path


def bash(file: Path, typed: str) -> list[str]:
    words = typed.split()
    quoted = " ".join(f"'{word}'" for word in words)
    text = (
        f"source {file}; COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _llmcap; printf '%s\\n' ${{COMPREPLY[@]}}"
    )
    return subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True).stdout.split()


def fish(file: Path, typed: str) -> list[str]:
    ran = subprocess.run(
        ["fish", "--no-config", "-c", f"source {file}; complete -C '{typed}'"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "HOME": str(file.parent)},
    )
    assert ran.stderr == ""
    return [line.split("\t")[0] for line in ran.stdout.splitlines()]


def zsh(file: Path, typed: str, *, switched_on: bool = True) -> list[str]:
    """The line editor of an interactive zsh: the Tab key is pressed, then a key that writes the line to a file."""
    import pty

    kept = file.with_name("line")
    start = [
        "autoload -Uz compinit; compinit -u -D" if switched_on else "",
        f"source {file}",
        "PS1='READY> '",
        f'keep() {{ print -r -- "$BUFFER" > {kept}; exit }}',
        "zle -N keep",
        "bindkey '^X' keep",
    ]
    (file.parent / ".zshrc").write_text("\n".join(start) + "\n", encoding="utf-8")
    env = {**os.environ, "ZDOTDIR": str(file.parent), "TERM": "dumb", "ZSH_DISABLE_COMPFIX": "true"}
    master, slave = pty.openpty()
    process = subprocess.Popen(
        ["zsh", "-d", "-i"], stdin=slave, stdout=slave, stderr=slave, env=env, start_new_session=True
    )
    os.close(slave)
    shown, pressed = b"", False
    try:
        while select.select([master], [], [], 60)[0]:
            try:
                read = os.read(master, 4096)
            except OSError:  # the shell has left
                break
            shown += read
            if not pressed and b"READY> " in shown:
                os.write(master, typed.encode() + b"\t\x18")
                pressed = True
            if not read:
                break
    finally:
        process.kill()
        process.wait()
        os.close(master)
    assert kept.exists(), shown
    return kept.read_text(encoding="utf-8").split()[len(typed.split()) - 1 :]


ASKED: dict[str, Callable[[Path, str], list[str]]] = {"bash": bash, "zsh": zsh, "fish": fish}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize(("typed", "found"), TYPED, ids=[typed for typed, _ in TYPED])
def test_a_shell_completes(tmp_path: Path, shell: str, typed: str, found: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    assert ASKED[shell](_written(shell, tmp_path), typed) == [found]


@pytest.mark.skipif(shutil.which("zsh") is None, reason="no zsh here")
def test_zsh_completes_without_being_set_up_for_it(tmp_path: Path) -> None:
    """A `.zshrc` of nothing but `source <(llmcap --completion zsh)`."""
    assert zsh(_written("zsh", tmp_path), "llmcap est", switched_on=False) == ["estimate"]


@pytest.mark.skipif(shutil.which("fish") is None, reason="no fish here")
def test_fish_offers_what_fits_the_place(tmp_path: Path) -> None:
    file = _written("fish", tmp_path)
    assert set(fish(file, "llmcap models ")) >= {"list", "show", "import", "check"}
    assert not {"list", "show", "check"} & set(fish(file, "llmcap models import "))
    assert "--format" not in fish(file, "llmcap --")


@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_is_in_every_script(shell: str) -> None:
    from llmcap.cli.app import COMMANDS

    text = script(shell)
    assert all(name in text for name in COMMANDS)
    assert "dgx-b200" in text


def test_a_shell_without_a_script_is_refused() -> None:
    with pytest.raises(OptionError, match="Did you mean 'bash'"):
        script("bsh")
