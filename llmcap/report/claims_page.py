"""A suite of published claims as a page: which figures stand at a glance, and why the others do not."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from llmcap.report.tables import Row

#: Columns of the machine-readable table, in order.
COLUMNS = ("id", "published", "as_published", "calibrated", "verdict", "why")


def tally(rows: Sequence[Row]) -> str:
    """How many of the claims stand."""
    whole = sum(row["verdict"] == "stands" for row in rows)
    partly = sum(row["verdict"].startswith("stands") for row in rows) - whole
    rest = len(rows) - whole - partly
    return f"{whole} of {len(rows)} claims stand, {partly} stand in part or by the band, {rest} do not"


def claims_page(rows: Sequence[Row], width: int = 100, *, color: bool = False) -> str:
    """The page as text.

    Parameters
    ----------
    rows : sequence of mappings
        As `llmcap.analyses.claims.suite.judge_suite` returns them.
    width : int
        [characters]
    color : bool
        Whether the verdicts carry terminal colours; they read without them.
    """
    out = io.StringIO()
    console = Console(
        file=out, width=max(width, 60), force_terminal=color, no_color=not color, highlight=False, emoji=False,
        color_system="standard" if color else None, markup=False,
    )  # fmt: skip
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold")
    table.add_column("id", no_wrap=True)
    table.add_column("published", ratio=3)
    table.add_column("as published", ratio=3)
    table.add_column("calibrated", ratio=3)
    table.add_column("verdict", min_width=10, ratio=2)
    for row in rows:
        verdict = Text(row["verdict"], style=_style(row["verdict"]))
        table.add_row(row["id"], row["published"], row["as_published"], row["calibrated"], verdict)
    console.print(table)
    console.print()
    console.print(Text(tally(rows) + ".", style="bold"))
    console.print()
    console.print("Why published and calibrated figures differ")
    reasons = Table.grid(padding=(0, 2, 0, 0))
    reasons.add_column(no_wrap=True)
    reasons.add_column()
    for row in rows:
        reasons.add_row(row["id"], f"{row['why'][:1].upper()}{row['why'][1:]}.")
    console.print(reasons)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _style(verdict: str) -> str:
    if verdict == "stands":
        return "green"
    return "yellow" if verdict.startswith("stands") else "red"
