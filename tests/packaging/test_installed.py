"""A wheel built from the sdist, in an environment of its own, without a checkout: every command from any folder."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("build")
pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel; packages of this environment serve its build, so that no network is needed."""
    out = tmp_path_factory.mktemp("dist")
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "build", "--no-isolation", "-o", str(out), str(ROOT)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(list(out.glob("*.tar.gz"))) == 1
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command of an environment that holds the wheel, and sees only the dependencies of this one."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, with_pip=False)
    site = next(home.glob("lib/python*/site-packages"))
    with zipfile.ZipFile(built) as wheel:
        wheel.extractall(site)
    packages = {Path(p) for p in sys.path if p.endswith("site-packages")}
    # A .pth line appends: the wheel's own llmcap comes first. Editable installs of this environment are not followed.
    (site / "dependencies.pth").write_text("".join(f"{p}\n" for p in packages), encoding="utf-8")
    return home / "bin" / "python"


def run(python: Path, *words: str, **env: str) -> str:
    command = [str(python), "-m", "llmcap", *words]
    clean = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "LLMCAP_PATH")}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/", env=clean | env)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_it_is_the_wheel_that_runs(installed: Path) -> None:
    where = subprocess.run(
        [str(installed), "-c", "import llmcap; print(llmcap.__file__)"],
        cwd="/", capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert Path(where.stdout.strip()).is_relative_to(installed.parents[1])


def test_the_version_tells_the_commit(installed: Path) -> None:
    told = run(installed, "--version")
    known = (ROOT / ".git").exists() and shutil.which("git") is not None
    assert re.fullmatch(r"llmcap \S+ \(commit [0-9a-f]{12}\)\n" if known else r"llmcap \S+( \(commit .*\))?\n", told)


@pytest.mark.parametrize(
    "words",
    [
        ["--version"], ["--completion", "bash"], ["models", "list"], ["hardware", "list"], ["validate"], ["estimate"],
        ["replay", "mooncake-conversation"], ["sweep", "million-token-context", "-q"], ["schema", "model"], ["tiers"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_runs_without_a_checkout(installed: Path, words: list[str]) -> None:
    assert run(installed, *words)


def test_a_report_is_written(installed: Path, tmp_path: Path) -> None:
    run(installed, "report", "million-token-context", "-o", str(tmp_path / "r.html"))
    assert (tmp_path / "r.html").stat().st_size > 50_000


def test_the_same_bytes_whatever_the_hash_seed_and_threads(installed: Path, tmp_path: Path) -> None:
    question = ("estimate", "--format", "json")
    answers = {run(installed, *question, PYTHONHASHSEED=str(n), OMP_NUM_THREADS=str(n)) for n in (1, 2, 3)}
    assert len(answers) == 1
    files = [tmp_path / f"{n}.parquet" for n in (1, 2)]
    for n, file in enumerate(files, start=1):
        run(installed, "sweep", "million-token-context", "-q", "-o", str(file), PYTHONHASHSEED=str(n),
            OMP_NUM_THREADS=str(n), ARROW_DEFAULT_MEMORY_POOL="system")  # fmt: skip
    assert files[0].read_bytes() == files[1].read_bytes()
