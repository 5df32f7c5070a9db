"""A report as one self-contained page: inline style, script and figures; nothing is loaded, all text is escaped."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import Final

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup

from llmcap.report.document import Report, Table, table_of
from llmcap.report.figures.style import inline_svg, styled

_UNSEEN: Final = re.compile("[\\x00-\\x08\\x0b-\\x1f\\x7f-\\x9f\\u061c\\u200e\\u200f\\u202a-\\u202e\\u2066-\\u2069]")
#: Head of a column of the table of sources.
_SOURCES: Final = ("document", "covers", "kind", "source", "date", "note")


def report_html(report: Report) -> str:
    """The page.

    The figures' greys are the page's own, so that they follow light, dark and print. A content security policy lets
    no script run but the page's own.
    """
    script = _part("report.js")
    with styled():
        pictures = [(picture, Markup(inline_svg(picture.figure, f"f{n}"))) for n, picture in enumerate(report.pictures)]
    return _environment().get_template("report.html").render(
        report=report,
        pictures=pictures,
        source_tables=source_tables(report),
        style=Markup(_part("report.css")),
        script=Markup(script),
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )  # fmt: skip


def source_tables(report: Report) -> list[Table]:
    """Where the numbers come from, and the documents with their digests."""
    tables = []
    if report.sources:
        tables.append(table_of("sources", "Where the numbers come from", report.sources, _SOURCES))
    if report.documents:
        rows = [{"document": name, "kind": kind, "sha256": digest} for name, digest, kind in report.documents]
        tables.append(table_of("documents", "Documents used", rows, ("document", "kind", "sha256")))
    return tables


@cache
def _environment() -> Environment:
    loader = DictLoader({"report.html": _part("report.html")})
    return Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, keep_trailing_newline=True, finalize=_visible
    )


def _visible(value: object) -> object:
    """Text with its control characters and marks of direction spelled out, so that a name cannot reorder a line."""
    if type(value) is not str:
        return value
    return _UNSEEN.sub(lambda mark: mark[0].encode("unicode_escape").decode("ascii"), value)


def _part(name: str) -> str:
    return files("llmcap.report").joinpath("templates", name).read_text(encoding="utf-8")
