"""`llmcap hardware`: list, show and check hardware documents."""

from __future__ import annotations

from typing import Annotated

import typer

from llmcap.cli.app import Command, group
from llmcap.cli.options import SHEET_FORMATS, Format, OutputFile, SheetFormat, chosen_format
from llmcap.cli.output import page_width, write_text
from llmcap.errors import printable

Server = Annotated[str, typer.Argument(metavar="ID|FILE", help="Id or YAML document of a server, or id of a part.")]
Parts = Annotated[bool, typer.Option("--parts", help="List devices, drives, cards and other parts instead.")]
Several = Annotated[
    list[str] | None, typer.Argument(metavar="[ID|FILE]...", help="What to check (default: all that ship).")
]

hardware = group("List, show and check hardware documents.")


@hardware.command("list", cls=Command)
def list_hardware(parts: Parts = False, form: Format = None, output: OutputFile = None) -> None:
    """List the servers that ship, with their memory, peaks and the tiers that can hold caches."""
    if parts:
        from llmcap.analyses.documents.parts import part_rows
        from llmcap.report.tables import plain_table, rows_text

        chosen, found = chosen_format(form), part_rows()
        if chosen == "table":
            room = page_width() - 40  # beside the longest kind and id
            found = [{**row, "name": printable(row["name"], room)} for row in found]
        write_text(plain_table(found) if chosen == "table" else rows_text(found, chosen), output)
        return
    from llmcap.analyses.documents.catalogue import server_rows
    from llmcap.report.sheets import servers_table
    from llmcap.report.tables import rows_text

    chosen, rows = chosen_format(form), server_rows()
    write_text(servers_table(rows, page_width()) if chosen == "table" else rows_text(rows, chosen), output)


@hardware.command("show", cls=Command)
def show_hardware(server: Server, form: SheetFormat = None, output: OutputFile = None) -> None:
    """Explain a server: devices, links, tiers and the path from each to the devices, with sources.

    A part (a device, its calibration, a drive, a network card ...) is shown as its document.
    """
    from llmcap.analyses.documents.catalogue import server_sheet
    from llmcap.report.sheets import server_page
    from llmcap.report.tables import json_text

    chosen = chosen_format(form, allowed=SHEET_FORMATS)
    from llmcap.analyses.documents.parts import part_sheets
    from llmcap.specs.registry import list_ids

    found = [] if server.strip().lower() in list_ids("server") else part_sheets(server)
    if found:
        text = "\n".join(f"# {part['kind']}\n{part['text']}" for part in found)
        write_text(json_text(found) if chosen == "json" else text, output)
        return
    sheet = server_sheet(server)
    write_text(json_text(sheet) if chosen == "json" else server_page(sheet, page_width()), output)


@hardware.command("check", cls=Command)
def check_hardware(names: Several = None) -> None:
    """Check hardware documents: they load, every number has a source, and the parts they name exist.

    Reports the problems of all documents at once and exits with status 3 if there are any.
    """
    from llmcap.analyses.documents.document_checks import HARDWARE_KINDS, check_documents

    checked = check_documents(HARDWARE_KINDS, names or [])
    write_text(f"{checked} hardware document{' is' if checked == 1 else 's are'} sound", None)
