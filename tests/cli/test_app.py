"""The table of commands, help, version, and what a cold start loads."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

import llmcap as package
from llmcap.analyses.options import Options, known_options
from llmcap.analyses.serving.load import COLUMNS, PREFIX
from llmcap.cli import options, reference
from llmcap.cli.app import COMMANDS, command
from llmcap.glossary import GLOSSARY, entry

DOCS = Path(__file__).resolve().parents[2] / "docs" / "cli.md"


def test_help_lists_every_command(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("--help")
    assert ran.status == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", ran.out, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(llmcap: Callable[..., Any], name: str) -> None:
    assert command(name).help
    ran = llmcap(name, "--help")
    assert ran.status == 0
    assert ran.out.startswith(f"Usage: llmcap {name}")
    for parameter in getattr(command(name), "params", []):
        assert getattr(parameter, "help", None), parameter.name


def test_no_arguments_show_the_help(llmcap: Callable[..., Any]) -> None:
    ran = llmcap()
    assert ran.status == 2
    assert "Commands:" in ran.err


def test_version(llmcap: Callable[..., Any]) -> None:
    ran = llmcap("--version")
    assert ran.status == 0
    assert re.fullmatch(rf"llmcap {re.escape(package.__version__)}( \(commit [0-9a-f]{{12}}\))?\n", ran.out)


def loaded_by(*arguments: str) -> set[str]:
    code = f"import sys; from llmcap.cli.app import run; run({list(arguments)!r}); print('\\n' + ' '.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.rsplit("\n", 2)[-2].split())


def test_help_loads_nothing_heavy() -> None:
    assert not loaded_by("--help") & {"pandas", "matplotlib", "pyarrow", "numpy", "pydantic", "yaml", "rich"}


def test_json_loads_no_more_than_it_needs() -> None:
    loaded = loaded_by("estimate", "--format", "json")
    assert "numpy" in loaded
    assert not loaded & {"pandas", "matplotlib", "pyarrow", "rich", "scipy"}


def test_an_estimate_loads_nothing_of_the_steady_state_until_it_is_asked_for() -> None:
    assert not [name for name in loaded_by("estimate", "--format", "json") if "serving" in name]
    assert "llmcap.analyses.serving.load" in loaded_by("estimate", "--context", "1k", "--arrivals", "closed")


def test_every_option_of_a_case_is_an_option_of_the_command() -> None:
    assert {*options.CASE_OPTIONS, *options.LOAD_OPTIONS} == set(known_options())
    flags = {flag for p in command("estimate").params for flag in p.opts}
    assert {"--tier" if n == "tiers" else "--" + n.replace("_", "-") for n in known_options()} <= flags


def test_the_glossary_knows_every_option_and_column() -> None:
    answer = package.estimate(context="1k")
    columns = [*answer.inputs, *answer.results, *answer.tiers[0], *known_options(), "arrivals_per_s"]
    columns += [PREFIX + name for name in COLUMNS]
    assert [name for name in columns if name not in GLOSSARY] == []
    for name, found in GLOSSARY.items():
        assert found.text, name
        assert not found.text.endswith("."), name
        assert found.label, name
        if name.startswith("usd_per_"):  # a price, whatever it is the price of
            assert found.unit == "USD", name
            continue
        suffix = next((end for end in ("_bytes_per_s", "_per_s", "_bytes", "_tokens", "_s") if name.endswith(end)), "")
        unit = {"_bytes_per_s": "B/s", "_bytes": "B", "_tokens": "tokens", "_s": "s"}.get(suffix, found.unit)
        assert found.unit == unit, name
    assert entry("Cached-Tokens") is GLOSSARY["cached_tokens"]


def test_defaults_in_the_help_are_the_defaults() -> None:
    from llmcap.analyses.options import AXES

    plain = Options()
    for name, shown in options._DEFAULTS.items():
        assert shown == str(AXES[name] if name in AXES else getattr(plain, name))


def test_formats_are_those_that_are_offered() -> None:
    (text, *_), option = get_args(options.Format)[:2][0].__args__, get_args(options.Format)[1]
    assert text is str
    assert option.metavar == "|".join(options.FORMATS)


def test_the_reference_page_is_up_to_date() -> None:
    written = DOCS.read_text(encoding="utf-8")
    assert written == reference.reference_text(), "run: python -m llmcap.cli.reference docs/cli.md"
