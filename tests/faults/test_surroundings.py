"""No home, no terminal, no colour, a foreign locale, a cache nobody may write: the same answer in the same words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

QUESTION = [sys.executable, "-m", "llmcap", "estimate", "--context", "1k"]


def run(
    command: list[str], change: dict[str, str | None] | None = None, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """The command with some variables of the environment set, or taken away (None)."""
    changed = {**os.environ, **(change or {})}
    env = {k: v for k, v in changed.items() if v is not None}
    return subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, cwd=folder, timeout=60, stdin=subprocess.DEVNULL
    )


@pytest.fixture(scope="module")
def usual() -> str:
    ran = run(QUESTION)
    assert ran.returncode == 0
    assert "\x1b" not in ran.stdout  # no terminal: no colours
    return ran.stdout


@pytest.mark.parametrize(
    "change",
    [
        {"HOME": None, "XDG_CACHE_HOME": None},
        {"HOME": "/nonexistent"},
        {"NO_COLOR": "1", "TERM": "dumb"},
        {"TERM": None},
        {"LC_ALL": "de_DE.UTF-8", "LANG": "de_DE.UTF-8"},
        {"PYTHONHASHSEED": "1", "OMP_NUM_THREADS": "1"},
        {"PYTHONHASHSEED": "2", "OMP_NUM_THREADS": "3", "OPENBLAS_NUM_THREADS": "3"},
    ],
    ids=lambda change: "-".join(change),
)
def test_the_answer_does_not_depend_on_surroundings(usual: str, change: dict[str, str | None]) -> None:
    ran = run(QUESTION, change)
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, usual, "")


def test_a_locale_with_decimal_commas_changes_no_number(tmp_path: Path) -> None:
    """Whoever embeds llmcap may have called setlocale; the first locale with a comma that the machine has is taken."""
    code = (
        "import locale, sys\n"
        "for name in ('de_DE.UTF-8', 'fr_FR.UTF-8', 'de_DE', 'nl_NL.UTF-8', 'C'):\n"
        "    try: locale.setlocale(locale.LC_ALL, name); break\n"
        "    except locale.Error: pass\n"
        "from llmcap.cli.app import run\n"
        "sys.exit(run(['estimate', '--context', '1.5k', '--format', sys.argv[1]]))\n"
    )
    for form in ("csv", "json"):
        foreign = run([sys.executable, "-c", code, form])
        plain = run([*QUESTION[:-1], "1.5k", "--format", form])
        assert (foreign.returncode, foreign.stdout) == (0, plain.stdout)


@pytest.mark.parametrize("columns", ["1", "20", "0", "x", "100000"])
def test_any_width_of_a_terminal_will_do(columns: str) -> None:
    ran = run(QUESTION, {"COLUMNS": columns})
    assert ran.returncode == 0
    assert max(map(len, ran.stdout.splitlines())) <= 160


@pytest.mark.slow
def test_a_figure_needs_no_cache_of_matplotlib(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where a folder is due", encoding="utf-8")
    change = {"MPLCONFIGDIR": str(blocked), "HOME": str(blocked)}
    ran = run([*QUESTION, "--plot", "a.svg"], change, tmp_path)
    assert ran.returncode == 0, ran.stderr
    assert "Traceback" not in ran.stderr
    usual = run([*QUESTION, "--plot", "b.svg"], None, tmp_path)
    assert usual.returncode == 0
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_may_not_be_written_to(tmp_path: Path) -> None:
    tmp_path.chmod(0o555)
    ran = run([*QUESTION, "-o", "a.txt"], None, tmp_path)
    assert ran.returncode == 2
    assert "cannot be written" in ran.stderr
    ran = run([sys.executable, "-m", "llmcap", "sweep", "kv-dtypes", "--limit", "9", "-o", "a.csv"], None, tmp_path)
    assert ran.returncode == 2
    assert "cannot be written" in ran.stderr


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder here that even root may not write to")
@pytest.mark.parametrize("command", [["estimate", "--context", "1k"], ["sweep", "kv-dtypes", "--limit", "9", "-q"]])
def test_a_folder_that_nobody_may_write_to(command: list[str]) -> None:
    ran = run([sys.executable, "-m", "llmcap", *command, "-o", "/proc/self/a.csv"])
    assert ran.returncode == 2
    assert ran.stderr.startswith("Error: --output: '/proc/self/a.csv' cannot be written")
    assert ran.stderr.count("\n") == 1
