"""`llmcap models`: list, show, import and check model documents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from llmcap.cli.app import Command, group
from llmcap.cli.options import SHEET_FORMATS, Format, OutputFile, SheetFormat, chosen_format
from llmcap.cli.output import page_width, write_text

models = group("List, show, import and check model documents.")

Which = Annotated[str, typer.Argument(metavar="ID|FILE", help="Id, Hugging Face id, YAML document, or config.json.")]
Context = Annotated[
    str | None, typer.Option("--context", metavar="N", help="Tokens of one sequence (default: the model's limit).")
]
KvDtype = Annotated[
    str | None, typer.Option("--kv-dtype", metavar="DTYPE", help="Dtype of the cache (default: as estimate).")
]
Tp = Annotated[str, typer.Option("--tp", metavar="N", help="Devices that share a sequence (default: 1).")]
KvPolicy = Annotated[
    str, typer.Option("--kv-policy", metavar="hybrid|all-full", help="What local layers keep (default: hybrid).")
]
ConfigPath = Annotated[Path, typer.Argument(metavar="PATH", help="A config.json, or the folder that holds it.")]
Name = Annotated[
    str | None,
    typer.Option(
        "--name", metavar="NAME", help="Name of the model (default: that of the -o file, else of the folder)."
    ),
]
Several = Annotated[
    list[str] | None, typer.Argument(metavar="[ID|FILE]...", help="What to check (default: all that ship).")
]


@models.command("list", cls=Command)
def list_models(form: Format = None, output: OutputFile = None) -> None:
    """List the models that ship, with sizes and the growth of their state per token."""
    from llmcap.analyses.documents.catalogue import model_rows
    from llmcap.report.sheets import models_table
    from llmcap.report.tables import rows_text

    chosen, rows = chosen_format(form), model_rows()
    if chosen == "table":
        write_text(models_table(rows, page_width()), output)
        return
    if chosen != "json":
        rows = [{**row, "huggingface": " ".join(row["huggingface"])} for row in rows]
    write_text(rows_text(rows, chosen), output)


@models.command("show", cls=Command)
def show_model(
    model: Which, context: Context = None, kv_dtype: KvDtype = None, tp: Tp = "1", kv_policy: KvPolicy = "hybrid",
    form: SheetFormat = None, output: OutputFile = None,
) -> None:  # fmt: skip
    """Explain a model: parameters, and the memory of one sequence per layer kind, with formula and source."""
    from llmcap.analyses.documents.catalogue import model_sheet
    from llmcap.report.sheets import model_page
    from llmcap.report.tables import json_text

    chosen = chosen_format(form, allowed=SHEET_FORMATS)
    sheet = model_sheet(model, context=context, kv_dtype=kv_dtype, tp=tp, kv_policy=kv_policy)
    write_text(json_text(sheet) if chosen == "json" else model_page(sheet, page_width()), output)


@models.command("import", cls=Command)
def import_model(path: ConfigPath, name: Name = None, output: OutputFile = None) -> None:
    """Turn the config.json of a Hugging Face repository into a model document (YAML).

    Attention that is not understood is refused by name, never guessed.
    """
    from llmcap.specs.base import dump_document
    from llmcap.specs.huggingface import load_config

    called = name or (None if output is None else output.stem)
    write_text(dump_document(load_config(path, name=called)), output)


@models.command("check", cls=Command)
def check_models(names: Several = None) -> None:
    """Check model documents: they load, every number has a source, totals agree with the published ones.

    Reports the problems of all documents at once and exits with status 3 if there are any.
    """
    from llmcap.analyses.documents.document_checks import MODEL_KINDS, check_documents

    checked = check_documents(MODEL_KINDS, names or [])
    write_text(f"{checked} model document{' is' if checked == 1 else 's are'} sound", None)
