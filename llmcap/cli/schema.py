"""`llmcap schema`: JSON Schemas of the documents, for editors."""

from __future__ import annotations

from typing import Annotated

import typer

from llmcap.cli.options import OutputFile
from llmcap.cli.output import write_text
from llmcap.errors import OptionError, did_you_mean, printable


def schema(
    kind: Annotated[str, typer.Argument(metavar="KIND", help="model, server, device, drive, nic, store, scenario ...")],
    output: OutputFile = None,
) -> None:
    """Print the JSON Schema of a kind of document, to complete and check it in an editor.

    Put '# yaml-language-server: $schema=FILE' on top of a document to use it.
    """
    from llmcap.report.tables import json_text
    from llmcap.specs.registry import KINDS, json_schema

    plain = kind.strip().lower()
    if plain not in KINDS:
        hint = did_you_mean(plain, KINDS) or f"choose one of {', '.join(KINDS)}"
        raise OptionError("KIND", f"'{printable(kind, 40)}' is no kind of document", hint)
    write_text(json_text(json_schema(plain)), output)
