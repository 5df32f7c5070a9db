"""docs/cli.md, written from the commands themselves: `python -m llmcap.cli.reference docs/cli.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from llmcap.cli.app import COMMANDS, command
from llmcap.glossary import INPUTS, OPTIONS, RESULTS, TIERS, Entry

_INTRODUCTION: Final = """\
# The command line

<!-- Written by `python -m llmcap.cli.reference docs/cli.md`; edit the commands and the glossary instead. -->

Data goes to stdout, messages to stderr. Counts may be written `1M`, `128Ki` or `250k`; other quantities carry their
unit, such as `'2 TB'` or `'100 GB/s'`.

| exit status | meaning |
|---|---|
| 0 | done |
| 2 | an option: its value, or how it goes with the others |
| 3 | the content of a file |
| 4 | the active users do not fit device memory; the answer says what is short |
| 1 | a bug in llmcap; `llmcap --debug COMMAND` shows where |

Documents are found by an explicit path, then in the folders of `$LLMCAP_PATH`, then among those that ship; never in the
working directory unless its path is given. `NO_COLOR` and redirected output give plain text.
"""

_EXAMPLES: Final[dict[str, tuple[str, ...]]] = {
    "estimate": (
        "llmcap estimate",
        "llmcap estimate --context 250k --users 10 --format json",
        "llmcap estimate --model llama-3.1-70b --hardware dgx-h200 --context 100k --cached-tokens 90k",
        "llmcap estimate --tier 'cxl:2 TB:100 GB/s' --drives 4",
        "llmcap estimate --cases cases.csv -o answers.csv",
    ),
    "explain": ("llmcap explain --context 32k --term prefill", "llmcap explain --term tier:nvme --format json"),
    "compare": (
        "llmcap compare dgx-b200 dgx-h200 dgx-h100 --context 128k",
        "llmcap compare tp=8 tp=4,dp=2 kv-dtype=bf16 --users 8 --context 64k",
    ),
    "plan": (
        "llmcap plan --users-max --ttft 2s --tpot 50ms --context 32k",
        "llmcap plan --rate-max --ttft-p95 2s --tpot 50ms --model llama-3.1-70b --hardware dgx-h100 --context 4k",
        "llmcap plan --drives-min --sessions 50k --context 100k --ttft 1s",
        "llmcap plan --cheapest --users 8 --context 32k --ttft 5s --prices hyperscaler-2026-04",
    ),
    "models": (
        "llmcap models show llama-4-maverick --context 1M",
        "llmcap models import path/to/config.json -o my-model.yaml",
        "llmcap models check my-model.yaml",
    ),
    "hardware": ("llmcap hardware show dgx-b200", "llmcap hardware check my-server.yaml"),
    "schema": ("llmcap schema model -o model.schema.json",),
}


def reference_text() -> str:
    """The whole page."""
    parts = [_INTRODUCTION]
    for name in COMMANDS:
        parts += _command_text(f"llmcap {name}", command(name), 2)
        if name in _EXAMPLES:
            parts.append("```sh\n" + "\n".join(_EXAMPLES[name]) + "\n```\n")
    parts.append("## Columns\n")
    parts.append("JSON keys, CSV columns and those of Parquet files share these names; the unit stands last.\n")
    inputs = {name: entry for name, entry in {**OPTIONS, **INPUTS}.items() if name not in ("context", "tiers")}
    for title, entries in (("Inputs", inputs), ("Results", RESULTS), ("Tiers", TIERS)):
        parts += [f"### {title}\n", _columns(entries)]
    return "\n".join(parts)


def _command_text(path: str, found: Any, level: int) -> Iterator[str]:
    yield f"{'#' * level} {path}\n"
    for paragraph in (found.help or "").split("\n\n"):
        yield " ".join(paragraph.split()) + "\n"
    children = getattr(found, "commands", None)
    if children:
        for name, child in children.items():
            yield from _command_text(f"{path} {name}", child, level + 1)
        return
    rows = [_parameter(p) for p in found.params if not getattr(p, "hidden", False) and p.name != "help"]
    if rows:
        yield "| option | meaning |\n|---|---|\n" + "\n".join(rows) + "\n"


def _parameter(parameter: Any) -> str:
    metavar = parameter.metavar or ""
    if parameter.param_type_name == "argument":
        spelled = f"`{metavar or parameter.name.upper()}`"
    else:
        spelled = ", ".join(f"`{option}`" for option in [*parameter.opts, *parameter.secondary_opts])
        spelled += f" `{metavar}`" if metavar else ""
    text = " ".join((getattr(parameter, "help", None) or "").split())
    return f"| {spelled.replace('|', chr(92) + '|')} | {text.replace('|', chr(92) + '|')} |"


def _columns(entries: Mapping[str, Entry]) -> str:
    rows = [
        f"| `{name}` | {entry.unit or '-'} | {entry.text.replace('|', chr(92) + '|')} |"
        for name, entry in entries.items()
    ]
    return "| column | unit | meaning |\n|---|---|---|\n" + "\n".join(rows) + "\n"


def main(arguments: list[str]) -> None:
    """Write the page to the file named, or to stdout."""
    if arguments:
        Path(arguments[0]).write_text(reference_text(), encoding="utf-8")
    else:
        typer.echo(reference_text(), nl=False)


if __name__ == "__main__":
    main(sys.argv[1:])
