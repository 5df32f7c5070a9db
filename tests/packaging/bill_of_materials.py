"""A software bill of materials (CycloneDX 1.5) of the installed llmcap: `python bill_of_materials.py FILE`."""

from __future__ import annotations

import json
import re
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

ROOT = "llmcap-model"
_NAME = re.compile(r"[A-Za-z0-9._-]+")


def bill(root: str = ROOT) -> dict[str, Any]:
    """The package, everything that it requires, and what requires what; no time and no random number in it."""
    found: dict[str, Distribution] = {}
    needs: dict[str, list[str]] = {}
    waiting = [root]
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found[name] = distribution(name)
        needs[name] = sorted(_required(found[name]))
        waiting += needs[name]
    parts = {name: _part(name, d) for name, d in sorted(found.items())}
    top = parts.pop(root)
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": top | {"type": "application"}},
        "components": list(parts.values()),
        "dependencies": [
            {"ref": _reference(found[name], name), "dependsOn": [_reference(found[n], n) for n in needs[name]]}
            for name in sorted(needs)
        ],
    }


def _required(package: Distribution) -> set[str]:
    """Names of what a package needs on this machine, extras aside."""
    names = set()
    for line in package.requires or ():
        match = _NAME.match(line)
        if match is None or "extra ==" in line:
            continue
        name = re.sub(r"[-_.]+", "-", match.group()).lower()
        try:
            distribution(name)
        except PackageNotFoundError:  # for another system or Python
            continue
        names.add(name)
    return names


def _reference(package: Distribution, name: str) -> str:
    return f"pkg:pypi/{name}@{package.version}"


def _part(name: str, package: Distribution) -> dict[str, Any]:
    reference = _reference(package, name)
    part: dict[str, Any] = {
        "type": "library", "bom-ref": reference, "name": name, "version": package.version, "purl": reference,
    }  # fmt: skip
    licence = package.metadata.get("License-Expression")
    if licence:
        part["licenses"] = [{"expression": licence}]
    else:
        marks = [c.rpartition(" :: ")[2] for c in package.metadata.get_all("Classifier") or () if "License ::" in c]
        if marks:
            part["licenses"] = [{"license": {"name": mark}} for mark in marks]
        elif text := package.metadata.get("License"):  # the older field: a name, or the whole text
            part["licenses"] = [{"license": {"name": text.splitlines()[0][:80]}}]
    return part


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(bill(), indent=1) + "\n", encoding="utf-8")
