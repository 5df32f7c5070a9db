"""`llmcap plan`: inverse questions."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from llmcap.cli.options import Format, GpuHour, Kwh, OutputFile, Prices, chosen_format, option, with_case_options
from llmcap.cli.output import page_width, write_text
from llmcap.errors import OptionError

_QUESTION, _OBJECTIVES = "Question (one of these)", "Objectives"

UsersMax = Annotated[bool, option(_QUESTION, "--users-max", help="Most users active at once.")]
RateMax = Annotated[bool, option(_QUESTION, "--rate-max", help="Most requests a second that arrive at random.")]
ClientsMax = Annotated[
    bool, option(_QUESTION, "--clients-max", help="Most clients that each send one request after another.")
]
DevicesMin = Annotated[bool, option(_QUESTION, "--devices-min", help="Fewest devices for the users.")]
DramMin = Annotated[bool, option(_QUESTION, "--dram-min", help="Least DRAM of each server that keeps all --sessions.")]
DrivesMin = Annotated[
    bool, option(_QUESTION, "--drives-min", help="Fewest drives of each server that keep all --sessions.")
]
BandwidthFor = Annotated[
    str | None, option(_QUESTION, "--bandwidth-for", metavar="TIER", help="Bandwidth that a tier needs to meet --ttft.")
]
Cheapest = Annotated[
    bool, option(_QUESTION, "--cheapest", help="Machine of the catalogue that meets the objectives for least money.")
]
Ttft = Annotated[
    str | None,
    option(
        _OBJECTIVES,
        "--ttft",
        metavar="TIME",
        help="Longest time to first token of the last user, or of the mean request under load, such as 2s.",
    ),
]
TtftP95 = Annotated[
    str | None,
    option(_OBJECTIVES, "--ttft-p95", metavar="TIME", help="Longest for 95 % of requests; with --rate-max."),
]
Tpot = Annotated[
    str | None, option(_OBJECTIVES, "--tpot", metavar="TIME", help="Longest time per output token, such as 50ms.")
]
FromTier = Annotated[
    str | None,
    option(
        _OBJECTIVES,
        "--from-tier",
        metavar="TIER",
        help="Prefixes (--cached-tokens, or all) are reloaded from this tier.",
    ),
]
NoSensitivity = Annotated[bool, option("Output", "--no-sensitivity", help="Leave out what moves the answer.")]


@with_case_options(leave_out=("arrivals",), under_load=True)
def plan(
    given: dict[str, Any],
    users_max: UsersMax = False,
    rate_max: RateMax = False,
    clients_max: ClientsMax = False,
    devices_min: DevicesMin = False,
    dram_min: DramMin = False,
    drives_min: DrivesMin = False,
    bandwidth_for: BandwidthFor = None,
    cheapest: Cheapest = False,
    ttft: Ttft = None,
    ttft_p95: TtftP95 = None,
    tpot: Tpot = None,
    from_tier: FromTier = None,
    prices: Prices = None,
    price_gpu_hour: GpuHour = None,
    price_kwh: Kwh = None,
    no_sensitivity: NoSensitivity = False,
    form: Format = None,
    output: OutputFile = None,
) -> None:
    """Solve for what keeps the objectives: users, requests a second, devices, DRAM, drives, bandwidth, cost.

    The answer names what binds it, what one step further brings, and what moves it most. Without an answer it says
    what to relax and by how much: exit status 0, or 4 when it is device memory that does not suffice.
    """
    chosen = chosen_format(form)
    flags = {"users-max": users_max, "rate-max": rate_max, "clients-max": clients_max, "devices-min": devices_min,
             "dram-min": dram_min, "drives-min": drives_min,
             "bandwidth-for": bandwidth_for is not None, "cheapest": cheapest}  # fmt: skip
    asked = [name for name, on in flags.items() if on]
    if len(asked) != 1:
        told = "no question" if not asked else f"{len(asked)} questions at once"
        raise OptionError("", told, f"give one of {', '.join('--' + name for name in flags)}")
    if bandwidth_for is not None and from_tier is not None:
        raise OptionError("--from-tier", "goes without --bandwidth-for, which names the tier", "leave it out")
    from llmcap.analyses.planning.plan import plan as solve

    extras = {"ttft": ttft, "ttft_p95": ttft_p95, "tpot": tpot,
              "tier": bandwidth_for if bandwidth_for is not None else from_tier,
              "prices": prices, "price_gpu_hour": price_gpu_hour, "price_kwh": price_kwh}  # fmt: skip
    answer = solve(
        asked[0], **given, **{n: v for n, v in extras.items() if v is not None}, sensitivity=not no_sensitivity
    )
    if chosen == "json":
        from llmcap.report.tables import json_text

        text = json_text(answer.to_dict())
    elif chosen == "csv":
        from llmcap.report.tables import csv_text

        text = csv_text(answer.rows())
    elif chosen == "md":
        from llmcap.report.plan_page import plan_markdown

        text = plan_markdown(answer)
    else:
        from llmcap.report.plan_page import plan_page

        text = plan_page(answer, min(page_width(), 120))
    write_text(text, output)
    if not answer.feasible and answer.found.binding == "capacity":
        print(f"Error: {answer.found.text}", file=sys.stderr)
        raise typer.Exit(4)
