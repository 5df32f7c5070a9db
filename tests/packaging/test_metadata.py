"""What a package says of itself: typed, licensed, sourced, and with nothing at run time beyond what is declared."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from llmcap.specs.bounded_files import read_bounded

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
DATA = ("assumptions", "engines", "hardware", "measurements", "models", "scenarios")


def test_the_package_is_typed() -> None:
    assert (ROOT / "llmcap" / "py.typed").is_file()
    assert "Typing :: Typed" in PROJECT["classifiers"]


def test_every_import_is_declared() -> None:
    declared = {re.split(r"[\[<>= ]", d)[0].lower() for d in PROJECT["dependencies"]}
    declared |= {"yaml"} if "pyyaml" in declared else set()
    optional = {"dask", "distributed", "scipy", "tornado"}  # asked for by name where they are used
    optional |= {"markupsafe", "pydantic_core"}  # parts of jinja2 and pydantic that these always bring
    found: set[str] = set()
    for file in (ROOT / "llmcap").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                found.add((node.module or "").partition(".")[0])
    assert found - set(sys.stdlib_module_names) - {"llmcap"} <= declared | optional


def test_every_dependency_has_a_lower_bound_that_can_be_installed() -> None:
    """`make test-minimum` installs just these versions."""
    ran = subprocess.run(
        [sys.executable, Path(__file__).with_name("minimum_versions.py")], capture_output=True, text=True, check=True
    )
    assert [line.replace("==", ">=") for line in ran.stdout.splitlines()] == PROJECT["dependencies"]


@pytest.mark.parametrize("folder", DATA)
def test_every_data_file_has_a_licence(folder: str) -> None:
    """REUSE.toml names a licence for each shipped file, and the licence's text is in LICENSES."""
    entries = tomllib.loads((ROOT / "REUSE.toml").read_text(encoding="utf-8"))["annotations"]
    patterns = [(re.compile(_expression(path)), e["SPDX-License-Identifier"]) for e in entries for path in e["path"]]
    for file in (f for f in (ROOT / folder).rglob("*") if f.is_file() and "__pycache__" not in f.parts):
        name = file.relative_to(ROOT).as_posix()
        licences = [licence for pattern, licence in patterns if pattern.fullmatch(name)]
        assert licences, name
        assert (ROOT / "LICENSES" / f"{licences[-1]}.txt").is_file()


def _expression(glob: str) -> str:
    return re.escape(glob).replace(r"\*\*", ".*").replace(r"\*", "[^/]*")


def test_bounded_reading_takes_what_fits(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"12345")
    assert read_bounded(file, 5, "x") == b"12345"
