"""The layers: imports go downward only, heavy libraries stay where they are needed, modules stay small."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "llmcap"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "shipped" not in path.relative_to(PACKAGE).parts)
LEVEL = {
    "units": 0,
    "errors": 0,
    "glossary": 0,
    "display": 0,
    "records": 0,
    "specs": 1,
    "arch": 2,
    "engine": 2,
    "analyses": 3,
    "report": 4,
    "cli": 5,
    "__init__": 6,
    "__main__": 6,
}
SIBLINGS = {"arch", "engine"}
HEAVY = {"pandas", "matplotlib", "pyarrow", "scipy", "jinja2", "dask", "distributed"}
TERMINAL = {"typer", "rich", "click"}
ALLOWED = {  # distributions that a layer may import at all
    "units": set(),
    "errors": set(),
    "glossary": set(),
    "display": set(),
    "records": set(),
    "arch": {"numpy"},
    "engine": {"numpy"},
}
MAX_LINES = 400


def layer_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports_of(tree: ast.AST, path: Path) -> Iterator[tuple[str, bool]]:
    """Every imported dotted name, and whether it is imported as soon as the module is."""

    def visit(node: ast.AST, at_once: bool) -> Iterator[tuple[str, bool]]:
        for child in ast.iter_child_nodes(node):
            now = at_once and not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
            if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
                now = False
            if isinstance(child, ast.Import):
                yield from ((alias.name, at_once) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = child.module or ""
                if child.level:
                    package = path.relative_to(PACKAGE.parent).parent.parts
                    base = ".".join([*package[: len(package) - child.level + 1], *filter(None, [base])])
                yield from ((f"{base}.{alias.name}", at_once) for alias in child.names)
            else:
                yield from visit(child, now)

    yield from visit(tree, True)


def offences(path: Path, source: str) -> list[str]:
    layer = layer_of(path)
    if layer not in LEVEL:
        return [f"'{layer}' is no known layer"]
    found = []
    for name, at_once in imports_of(ast.parse(source), path):
        top, *rest = name.split(".")
        if top == "llmcap":
            target = rest[0] if rest else "__init__"
            if target == "__version__":
                continue
            target = target if target in LEVEL else "__init__"
            if LEVEL[target] > LEVEL[layer]:
                found.append(f"{name}: {layer} lies below {target}")
            elif {layer, target} == SIBLINGS:
                found.append(f"{name}: arch and engine do not know each other")
        elif top in HEAVY and at_once and LEVEL[layer] != LEVEL["report"]:
            found.append(f"{name}: import it in the function that needs it")
        elif top in TERMINAL and layer not in ("cli", "report", "__main__"):
            found.append(f"{name}: only cli and report write to terminals")
        elif layer in ALLOWED and top not in sys.stdlib_module_names and top not in ALLOWED[layer]:
            found.append(f"{name}: {layer} imports only {sorted(ALLOWED[layer]) or 'the standard library'}")
    return found


def test_there_are_modules() -> None:
    assert PACKAGE / "units.py" in MODULES


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_keeps_to_its_layer(path: Path) -> None:
    assert offences(path, path.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_module_is_of_readable_size_and_explains_itself(path: Path) -> None:
    source = path.read_text(encoding="utf-8")
    assert source.count("\n") <= MAX_LINES
    tree = ast.parse(source)
    if tree.body:
        assert ast.get_docstring(tree), "begins with no docstring"
    # Modules full of documents go without: pydantic would compile each annotation again at every cold start.
    if any(not isinstance(node, ast.Expr) for node in tree.body) and not defines_documents(path):
        assert "from __future__ import annotations" in source


def defines_documents(path: Path) -> bool:
    return path.parent.name == "specs"


@pytest.mark.parametrize("name", ["utils", "util", "common", "helpers", "misc"])
def test_no_module_is_named_after_nothing(name: str) -> None:
    assert not [path for path in MODULES if name in path.relative_to(PACKAGE).with_suffix("").parts]


@pytest.mark.parametrize(
    ("module", "source", "word"),
    [
        ("specs/x.py", "from llmcap.arch import state", "below"),
        ("specs/x.py", "from ..analyses.estimate import estimate", "below"),
        ("arch/x.py", "from llmcap.engine.roofline import time", "each other"),
        ("engine/x.py", "def f():\n    from llmcap.arch import state", "each other"),
        ("analyses/x.py", "import pandas as pd", "in the function"),
        ("analyses/x.py", "try:\n    import pandas\nexcept ImportError:\n    pass", "in the function"),
        ("analyses/x.py", "class A:\n    import scipy.optimize", "in the function"),
        ("engine/x.py", "import pydantic", "only"),
        ("units.py", "import numpy", "standard library"),
        ("analyses/x.py", "def f():\n    import rich.table", "terminals"),
        ("arch/x.py", "import llmcap", "below"),
        ("arch/x.py", "from llmcap import estimate", "below"),
        ("strange/x.py", "", "no known layer"),
    ],
)
def test_the_rules_catch_what_breaks_them(module: str, source: str, word: str) -> None:
    found = offences(PACKAGE / module, source)
    assert len(found) == 1
    assert word in found[0]


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("analyses/x.py", "def f():\n    import pandas as pd"),
        ("analyses/x.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import pandas as pd"),
        ("arch/x.py", "import numpy as np\nfrom llmcap.specs.model import Model\nfrom . import state"),
        ("report/x.py", "import matplotlib.pyplot as plt"),
        ("cli/x.py", "import typer\nfrom llmcap.analyses import estimate"),
        ("analyses/x.py", "from llmcap import __version__"),
    ],
)
def test_the_rules_let_the_rest_pass(module: str, source: str) -> None:
    assert offences(PACKAGE / module, source) == []
