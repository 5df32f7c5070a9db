"""What a table of tiers says in sentences: where reloading wins, where it gains nothing, and why."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import Any

from llmcap.analyses.offload.tier_question import Extras
from llmcap.analyses.setting import Setting
from llmcap.units import format_bytes, format_count, format_seconds

Row = dict[str, Any]


def notes_of(setting: Setting, rows: list[Row], extras: Extras) -> list[str]:
    """Sentences on a whole table, most important first."""
    said = [*_capacity(rows), *_memory(rows, extras)]
    for name in dict.fromkeys(row["tier"] for row in rows):
        if name != "hbm":
            said += _tier([row for row in rows if row["tier"] == name], extras)
    if extras.sessions is not None:
        said += _placement(rows, extras)
    if setting.machine.server.hypothetical:
        said.append(f"{setting.machine.server.name}: nobody sells this machine")
    return said


def _capacity(rows: list[Row]) -> Iterator[str]:
    short = _cases(row for row in rows if row["tier"] == "hbm" and row["winner"] is None)
    if short:
        fewer = "ask for fewer --users with --sessions N if not all of them are active at once"
        yield f"No times where the users do not fit device memory together: {short}; {fewer}"


def _memory(rows: list[Row], extras: Extras) -> Iterator[str]:
    fits = [
        row for row in rows
        if row["tier"] == "hbm" and row["winner"] and (extras.sessions or row["users"]) <= row["users_held"]
    ]  # fmt: skip
    everywhere = len(fits) == sum(row["tier"] == "hbm" and row["winner"] is not None for row in rows)
    if fits:
        which = "in every case that has times" if everywhere else _cases(fits)
        hint = "" if extras.sessions else " (--sessions N says how many caches are kept)"
        yield (
            "Savings are those of caches that have left device memory; offload gains nothing where device memory keeps "
            f"all caches, so that none has to leave: {which}{hint}"
        )


def _tier(rows: list[Row], extras: Extras) -> Iterator[str]:
    name = rows[0]["tier"]
    timed = [row for row in rows if row["winner"] is not None]
    lost = [row for row in timed if row["winner"] == "recompute"]
    if lost:
        worst = max(lost, key=lambda row: row["ttft_reload_s"] / row["recompute_s"])
        yield (
            f"{name}: computing again is faster than reloading in {len(lost)} of {len(timed)} cases ({_cases(lost)}); "
            f"at worst {format_seconds(worst['ttft_reload_s'])} against {format_seconds(worst['recompute_s'])}"
        )
    if any("smaller than the HBM pool" in (row["no_gain_because"] or "") for row in timed):
        yield (
            f"{name}: {format_bytes(rows[0]['capacity_bytes'])} are less than device memory keeps for caches; as a "
            "cache tier it adds little"
        )
    if extras.arrivals is not None:
        yield from _overload(name, timed, extras.arrivals)
    few = [row for row in rows if row["users_held"] < (extras.sessions or row["users"])]
    if few:
        least = min(few, key=lambda row: row["users_held"])
        yield (
            f"{name} alone holds fewer than the sessions kept: {least['users_held']:,} of "
            f"{extras.sessions or least['users']:,} at {format_count(least['context_tokens'])} tokens"
        )


def _overload(name: str, timed: list[Row], arrivals: float) -> Iterator[str]:
    """Arrivals that reloads cannot keep up with, and writes that the tier cannot take."""
    over = [row for row in timed if max(row["tier_utilisation"], row["device_utilisation_reload"]) >= 1.0]
    if over:
        least = min(row["sustained_reload_per_s"] for row in over)
        yield (
            f"{name}: {arrivals:,.4g} requests a second are more than reloads sustain, {least:,.3g} a second at worst, "
            f"so the queue grows without bound and saves nothing ({_cases(over)})"
        )
    full = [row for row in timed if (row.get("write_utilisation") or 0.0) > 1.0]
    if full:
        worst = max(row["write_utilisation"] for row in full)
        yield f"{name}: new state comes up to {worst:,.3g} times as fast as the tier can be written ({_cases(full)})"


def _placement(rows: list[Row], extras: Extras) -> Iterator[str]:
    dropped = [row for row in rows if row["tier"] == "hbm" and row["winner"] and row["sessions_dropped"] > 0]
    if dropped:
        most = max(dropped, key=lambda row: row["sessions_dropped"])
        yield (
            f"{most['sessions_dropped']:,} of {extras.sessions:,} sessions of "
            f"{format_count(most['context_tokens'])} tokens fit no tier and are computed again when they return"
        )


def _cases(rows: Any) -> str:
    """'1k tokens (1, 8 users), 32k tokens (8 users)', cut after a few."""
    found = []
    for context, members in groupby(rows, key=lambda row: row["context_tokens"]):
        users = list(dict.fromkeys(f"{row['users']:,}" for row in members))
        some = ", ".join(users[:6]) + (" ..." if len(users) > 6 else "")
        found.append(f"{format_count(context)} tokens x {some} user{'s' if users != ['1'] else ''}")
    return "; ".join(found[:6]) + (f"; and {len(found) - 6} more contexts" if len(found) > 6 else "")
