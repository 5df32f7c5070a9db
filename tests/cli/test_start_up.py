"""What a cold `llmcap estimate` loads and builds, counted; how long it takes is measured in benchmarks/start_up.py.

It has to start within twice the time of the libraries that it cannot do without, and each thing counted here once cost
five to fifty milliseconds of that.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
from typing import Any

import pytest

PROBE = """
import dataclasses, json, sys
import typer
brought = {"rich"} & set(sys.modules)  # by older releases of typer
from llmcap.cli.app import run
run(["estimate"])
from pydantic import BaseModel
ours = [module for name, module in sys.modules.items() if name.partition(".")[0] == "llmcap"]
classes = [c for m in ours for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__]
models = [c for c in classes if issubclass(c, BaseModel)]
json.dump({
    "modules": sorted(set(sys.modules) - brought),
    "models": len(models),
    "built": sorted(c.__name__ for c in models if c.__pydantic_complete__),
    # Those of llmcap.records hand their initialiser to the standard library; it makes none for them.
    "costly": sorted(c.__name__ for c in classes if dataclasses.is_dataclass(c) and c.__dataclass_params__.init),
}, sys.stderr)
"""


@pytest.fixture(scope="module")
def estimate() -> dict[str, Any]:
    ran = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, check=True)
    return dict(json.loads(ran.stderr))


def test_the_page_loads_no_library_that_it_can_do_without(estimate: dict[str, Any]) -> None:
    heavy = {"rich", "pandas", "matplotlib", "pyarrow", "scipy", "jinja2", "dask", "multiprocessing"}
    assert not heavy & set(estimate["modules"])


def test_no_option_is_converted_that_was_not_given(estimate: dict[str, Any]) -> None:
    # Newer releases of typer convert with pydantic, an adapter for each option.
    assert "pydantic.type_adapter" not in estimate["modules"]


def test_rooms_of_other_questions_stay_closed(estimate: dict[str, Any]) -> None:
    ours = [name for name in estimate["modules"] if name.startswith("llmcap.")]
    assert [name for name in ours if name.count(".") > 2] == []  # llmcap.analyses.planning.plan
    assert len(ours) <= 75


def test_pydantic_builds_validators_for_the_documents_that_are_read(estimate: dict[str, Any]) -> None:
    documents = {"Model", "Server", "Device", "Drive", "Nic", "Engine", "Assumptions", "Transfers"}
    assert documents | {"CalibrationDocument", "Source"} <= set(estimate["built"])
    # Beside them only parts that stand as defaults.
    assert len(estimate["built"]) <= 18
    assert estimate["models"] <= 75


def test_records_are_made_the_cheap_way(estimate: dict[str, Any]) -> None:
    assert set(estimate["costly"]) <= {"_Open"}  # of the YAML loader: it changes


def test_garbage_is_not_looked_for_while_a_command_loads() -> None:
    import llmcap.cli  # noqa: F401

    assert gc.get_threshold()[0] >= 100_000
