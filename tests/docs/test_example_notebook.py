"""The example notebook was executed, holds no trace of the machine it ran on, and its code still runs."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

NOTEBOOK = Path(__file__).resolve().parents[2] / "docs" / "example.ipynb"


def _cells(kind: str) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    return [cell for cell in cells if cell["cell_type"] == kind]


def test_every_cell_was_run_in_order_and_shows_something() -> None:
    cells = _cells("code")
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        shown = [output for output in cell["outputs"] if output["output_type"] == "execute_result"]
        assert len(shown) == len(cell["outputs"]) == 1
    assert "<svg" in str(cells[0]["outputs"]) and "<table" in str(cells[0]["outputs"])


def test_it_is_small_and_names_no_folder_of_a_machine() -> None:
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 500_000
    assert not any(folder in text for folder in ("/home/", "/root/", "/tmp/", "/Users/"))


def test_its_code_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    # IPython is what shows the last figure; the code before it does not need a notebook.
    display = ModuleType("IPython.display")
    display.SVG = bytes  # type: ignore[attr-defined]
    package = ModuleType("IPython")
    # matplotlib asks a loaded IPython for its version, and whether it runs in a notebook.
    package.version_info, package.get_ipython = (9, 0), lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", display)
    names: dict[str, Any] = {}
    for cell in _cells("code"):
        exec("".join(cell["source"]), names)
    assert names["answer"].fits
    assert names["image"].startswith(b"<?xml")
