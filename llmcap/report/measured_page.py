"""Errors against measured rows as a page for people."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, Final

from llmcap.report.tables import plain_table

_SHOWN: Final = ("rows", "median", "90 %", "bias", "in band")
WORST: Final = 8


#: What is taken of rows of one's own that do not say it.
EQUAL_LENGTHS: Final = (
    "Lengths are taken as equal from request to request, which keeps clients in step; a column 'lengths' with 'varied' "
    "says otherwise, and may double or halve the first token."
)
#: What a narrow terminal does without, the first first.
_OMITTED: Final = ("engine", "hardware", "ratio", "osl", "isl")


def measured_page(
    summary: Mapping[str, Any],
    table: Sequence[Mapping[str, Any]],
    width: int = 120,
    *,
    note: str = "",
    fitted: bool = False,
) -> str:
    """Errors by metric and group, the worst rows, what was left out with the reason, and a note.

    `fitted` leaves out columns that the width has no room for: for a screen, not for a file or a pipe.
    """
    lines = [
        textwrap.fill(
            f"{summary['predicted']:,} of {summary['rows']:,} rows predicted. Errors are absolute, in per cent of the "
            "measured value.",
            width,
        ),
        "",
        plain_table([{"metric": m, **shown(e)} for m, e in summary["metrics"].items()], right=_SHOWN).rstrip(),
    ]
    if not summary["metrics"]:
        lines = lines[:1]
    for by in dict.fromkeys(g["by"] for g in summary["groups"]):
        here = [g for g in summary["groups"] if g["by"] == by]
        rows = [{"metric": g["metric"], by: g["group"] or "-", **shown(g)} for g in here]
        lines += ["", f"By {by}", plain_table(rows, right=_SHOWN).rstrip()]
    if summary["without_profile"]:
        lines += ["", "Engines without a profile of their own, predicted as vllm unless --engine says otherwise"]
        lines += [f"  {e['rows']:5d}  {e['engine']}" for e in summary["without_profile"]]
    worst = worst_rows(table)
    for column in _OMITTED if fitted else ():
        if worst and max(map(len, plain_table(worst).splitlines())) > width:
            worst = [{name: cell for name, cell in row.items() if name != column} for row in worst]
    if worst:
        lines += ["", "Furthest off", plain_table(worst, right=("measured", "predicted", "ratio")).rstrip()]
    if summary["skipped"]:
        lines += ["", "Left out", *(f"  {s['rows']:5d}  {s['reason']}" for s in summary["skipped"])]
    if note:
        lines += ["", textwrap.fill(note, width)]
    return "\n".join(lines) + "\n"


def shown(errors: Mapping[str, Any]) -> dict[str, str]:
    """The figures of one group as people read them."""
    return {
        "rows": f"{errors['rows']:,}",
        "median": f"{errors['median_ape']:.1%}",
        "90 %": f"{errors['p90_ape']:.1%}",
        "bias": f"{errors['median_bias']:+.1%}",
        "in band": f"{errors['coverage']:.0%}",
    }


def worst_rows(table: Sequence[Mapping[str, Any]], n: int = WORST) -> list[dict[str, str]]:
    """Rows furthest off by ratio, either way."""
    judged = [row for row in table if row.get("ape") is not None and row["predicted"] > 0.0]
    ratio = {id(row): row["predicted"] / float(row["value"]) for row in judged}
    judged.sort(key=lambda row: -abs(math.log(ratio[id(row)])))
    columns = ("model", "hardware", "engine", "concurrency", "isl", "osl", "metric")
    return [
        {c: str(row.get(c, ""))[:28] for c in columns}
        | {
            "measured": f"{float(row['value']):.4g}",
            "predicted": f"{row['predicted']:.4g}",
            "ratio": f"{ratio[id(row)]:.2f}",
        }
        for row in judged[:n]
    ]
