"""`llmcap tiers`: reload against recompute, for lists of contexts, users and cached prefixes."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path
from typing import Annotated, Any

from llmcap.cli.options import Format, OutputFile, chosen_format, option, with_case_options
from llmcap.cli.output import write_text
from llmcap.errors import printable

_LOAD, _TRAFFIC = "Load", "Traffic, wear and money"

Hit = Annotated[
    str | None,
    option(
        _LOAD,
        "--hit",
        metavar="SHARE,...",
        help="Cached share of each context, instead of --cached-tokens: 0.9 or 50%,90%; 1 is all.",
    ),
]
SharedTokens = Annotated[
    str | None,
    option(
        _LOAD,
        "--shared-tokens",
        metavar="N",
        help="First tokens that all users have in common: held, loaded and computed once.",
    ),
]
Returns = Annotated[
    str | None,
    option(
        _LOAD,
        "--returns",
        metavar="uniform|zipf:S",
        help="Which of the --sessions come back (default: uniform; zipf is zipf:1).",
    ),
]
Arrivals = Annotated[
    str | None,
    option(
        _TRAFFIC, "--arrivals", metavar="N", help="Requests a second, at random: adds waiting, wear, and savings a day."
    ),
]
Discipline = Annotated[
    str | None,
    option(
        _TRAFFIC,
        "--discipline",
        metavar="sharing|fcfs",
        help="How a tier serves several reloads at once (default: sharing).",
    ),
]
WritePolicy = Annotated[
    str | None,
    option(
        _TRAFFIC,
        "--write-policy",
        metavar="through|second-touch|back",
        help="What is written to the drives (default: through: everything).",
    ),
]
UsedOnce = Annotated[
    str | None,
    option(
        _TRAFFIC,
        "--used-once",
        metavar="SHARE",
        help="Share of the state that nobody asks for again, for second-touch (default: 0.758).",
    ),
]
Prices = Annotated[
    str | None,
    option(
        _TRAFFIC, "--prices", metavar="ID|FILE", help="Price list, such as hyperscaler-2026-04: adds energy and cost."
    ),
]

MlperfConfig = Annotated[
    Path | None,
    option(
        "Output",
        "--mlperf-config",
        metavar="FILE",
        help="Also write the model and its tiers as configuration of the KV cache benchmark of MLPerf Storage.",
    ),
]


@with_case_options(
    helps={
        "context": "Prompts, cached tokens included: one or a list, 1k,32k,1M (default: 1M).",
        "users": "Users active at once: one or a list, 1,8,16 (default: 1).",
        "cached_tokens": "First tokens of each context that are reused: one or a list (default: 0, the whole context).",
        "sessions": "Caches kept in all: adds where they live and what a returning one waits.",
    }
)
def tiers(
    given: dict[str, Any],
    hit: Hit = None,
    shared_tokens: SharedTokens = None,
    returns: Returns = None,
    arrivals: Arrivals = None,
    discipline: Discipline = None,
    write_policy: WritePolicy = None,
    used_once: UsedOnce = None,
    prices: Prices = None,
    form: Format = None,
    output: OutputFile = None,
    mlperf_config: MlperfConfig = None,
) -> None:
    """Reload against recompute on every tier, for every combination of the lists.

    Each row is one case and one tier: time to compute all again, to reload, reloading and computing the rest, the two
    overlapped layer by layer, and the best split. Below the table stands where offload gains nothing, and why. Rows
    of users who do not fit device memory together have no times; exit status 0.
    """
    chosen = chosen_format(form)
    from llmcap.analyses.offload.tier_table import tier_table

    extras = {
        "hit": hit, "shared_tokens": shared_tokens, "returns": returns, "arrivals": arrivals,
        "discipline": discipline, "write_policy": write_policy, "used_once": used_once, "prices": prices,
    }  # fmt: skip
    table = tier_table(**given, **{name: value for name, value in extras.items() if value is not None})
    if chosen == "json":
        from llmcap.report.tables import json_text

        text = json_text(table.to_dict())
    elif chosen == "csv":
        from llmcap.report.tables import csv_text

        text = csv_text(table.rows)
    elif chosen == "md":
        from llmcap.report.tier_page import tier_markdown

        text = tier_markdown(table.rows, table.notes)
    else:
        from llmcap.report.tier_page import tier_page

        width = min(shutil.get_terminal_size((120, 24)).columns, 140)
        text = tier_page(table.rows, table.notes, width, fitted=output is None and sys.stdout.isatty())
    write_text(text, output)
    if mlperf_config is not None:
        from llmcap.analyses.offload.mlperf_storage import benchmark_config

        write_text(benchmark_config(table.setting, max(row["users"] for row in table.rows)), mlperf_config)
        print(f"configuration in {printable(str(mlperf_config), 200)}", file=sys.stderr)
