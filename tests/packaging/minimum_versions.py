"""The oldest versions that pyproject.toml allows, one requirement a line: `python tests/packaging/minimum_versions.py`.

`make test-minimum` installs exactly these and runs the tests with them, so that a bound that is too low shows.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def minimum_versions() -> list[str]:
    """`name==version` for each `name>=version` among the dependencies; one that has no lower bound is an error."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    found = []
    for dependency in project["dependencies"]:
        parts = re.fullmatch(r"([\w.-]+)>=([\w.]+)", dependency)
        if parts is None:
            raise ValueError(f"pyproject.toml: the dependency '{dependency}' has no plain lower bound")
        found.append(f"{parts[1]}=={parts[2]}")
    return found


if __name__ == "__main__":
    print("\n".join(minimum_versions()))
