"""The bill of materials names every declared dependency, and nothing that is not there."""

from __future__ import annotations

import importlib.util
import tomllib
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import pytest


def test_the_bill_is_closed_and_complete() -> None:
    here = Path(__file__).parent
    try:
        distribution("llmcap-model")
    except PackageNotFoundError:
        pytest.skip("llmcap is not installed here")
    spec = importlib.util.spec_from_file_location("bill_of_materials", here / "bill_of_materials.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.bill()
    names = {part["name"] for part in found["components"]}
    project = tomllib.loads((here.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {d.partition(">=")[0] for d in project["dependencies"]} <= names
    references = {part["bom-ref"] for part in [*found["components"], found["metadata"]["component"]]}
    assert {d["ref"] for d in found["dependencies"]} == references
    assert {r for d in found["dependencies"] for r in d["dependsOn"]} <= references
    assert all(part.get("licenses") for part in found["components"])
