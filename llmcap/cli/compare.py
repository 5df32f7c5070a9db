"""`llmcap compare`: machines, models or settings side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from llmcap.cli.options import Format, GpuHour, Kwh, OutputFile, Prices, chosen_format, with_case_options
from llmcap.cli.output import page_width, write_text

Items = Annotated[
    list[str],
    typer.Argument(
        metavar="ID|FILE|OPTION=VALUE,...", help="Two to six servers, models or settings, such as kv-dtype=bf16,tp=4."
    ),
]


@with_case_options()
def compare(
    given: dict[str, Any],
    items: Items,
    prices: Prices = None,
    price_gpu_hour: GpuHour = None,
    price_kwh: Kwh = None,
    form: Format = None,
    output: OutputFile = None,
) -> None:
    """Set two to six machines, models or settings side by side: ratios to the first, and why they differ.

    The other options hold for all sides. A side that does not fit device memory has no times; exit status 0.
    """
    chosen = chosen_format(form)
    from llmcap.analyses.explaining.compare import compare as beside

    extras = {"prices": prices, "price_gpu_hour": price_gpu_hour, "price_kwh": price_kwh}
    sides = beside(*items, **given, **{n: v for n, v in extras.items() if v is not None})
    if chosen == "json":
        from llmcap.report.tables import json_text

        text = json_text(sides.to_dict())
    elif chosen == "csv":
        from llmcap.report.tables import csv_text

        text = csv_text(sides.flat_rows())
    elif chosen == "md":
        from llmcap.report.compare_page import compare_markdown

        text = compare_markdown(sides)
    else:
        from llmcap.report.compare_page import compare_page

        text = compare_page(sides, min(page_width(), 140))
    write_text(text, output)
