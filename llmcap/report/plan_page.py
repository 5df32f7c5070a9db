"""The answer to an inverse question for people: a sentence, then what binds, what comes next, what it hangs on."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final

from llmcap.analyses.planning.plan import Plan
from llmcap.report.tables import Row, markdown_text, plain_table
from llmcap.report.words import costs
from llmcap.units import format_bytes, format_count, format_rate, format_seconds

NONE: Final = "-"
#: What the tornado table's figures are, by question.
_FIGURES: Final[dict[str, tuple[str, Callable[[float], str]]]] = {
    "users-max": ("users", lambda v: f"{v:,.0f}"),
    "rate-max": ("requests/s", lambda v: f"{v:,.10g}"),
    "clients-max": ("clients", lambda v: f"{v:,.0f}"),
    "devices-min": ("devices", lambda v: f"{v:,.0f}"),
    "drives-min": ("drives", lambda v: f"{v:,.0f}"),
    "dram-min": ("DRAM", format_bytes),
    "bandwidth-for": ("bandwidth", lambda v: format_rate(v, "B/s")),
    "cheapest": ("USD an hour", lambda v: f"{v:,.2f}"),
}
Table = Callable[[Sequence[Row]], str]


def plan_page(plan: Plan, width: int = 120) -> str:
    """As aligned text."""
    return "\n".join(_blocks(plan, lambda rows: plain_table(rows, right=_RIGHT), lambda text: _filled(text, width), ""))


def plan_markdown(plan: Plan) -> str:
    """The same in Markdown."""
    return "\n".join(_blocks(plan, markdown_text, lambda text: text + "\n", "**"))


_RIGHT: Final = ("answer", "gain", "a fifth less", "as asked", "a fifth more", "swing", "first token", "per token",
                 "USD/h", "USD/M output", "devices", "needed", "asked")  # fmt: skip


def _blocks(plan: Plan, table: Table, text: Callable[[str], str], strong: str) -> list[str]:
    found = plan.found
    blocks = [text(_question(plan)), text(f"{strong}{found.text}.{strong}")]
    if found.slack:
        blocks.append(table([_kept(name, row) for name, row in found.slack.items()]))
    if found.relax and len(found.relax) > 1:
        blocks.append("All of these would have to give way:\n\n" + table([_relaxed(row) for row in found.relax]))
    if found.next:
        blocks.append("One step further:\n\n" + table([_step(row) for row in found.next]))
    if found.candidates:
        blocks.append(table([_candidate(row) for row in _near(found.candidates)]))
    moving = [row for row in plan.sensitivity if row["swing"]]
    if moving:
        blocks.append("What moves the answer, a fifth either way:\n\n" + table(_tornado(plan, moving)))
    if found.costs:
        blocks.append(text(f"At this answer it {costs(found.costs)}."))
    notes = [*found.notes, *_excluded(found.excluded)]
    if notes:
        blocks.append("".join(text(f"{note[:1].upper()}{note[1:]}.") for note in notes))
    return blocks


def _question(plan: Plan) -> str:
    i, o = plan.inputs, plan.objectives
    asked = {
        "users-max": "Most users", "rate-max": "Most requests a second", "clients-max": "Most clients",
        "devices-min": "Fewest devices", "dram-min": "Least DRAM",
        "drives-min": "Fewest drives", "bandwidth-for": f"Bandwidth of {o.get('tier')}",
        "cheapest": "Cheapest machine",
    }[plan.question]  # fmt: skip
    where = f" on {i['hardware']}" if "hardware" in i else ""
    load = f"{format_count(i['context_tokens'])} tokens in"
    if i["cached_tokens"]:
        load += f" ({format_count(i['cached_tokens'])} cached)"
    load += f", {format_count(i['output_tokens'])} out"
    if "users" in i:
        load = f"{i['users']:,} user{'s' * (i['users'] > 1)} x {load}"
    if i.get("sessions", 0) > i.get("users", 0):
        load += f", {format_count(i['sessions'])} sessions kept"
    limits = [f"TTFT {format_seconds(o['ttft_s'])}"] if "ttft_s" in o else []
    limits += [f"p95 of TTFT {format_seconds(o['ttft_p95_s'])}"] if "ttft_p95_s" in o else []
    limits += [f"TPOT {format_seconds(o['tpot_s'])}"] if "tpot_s" in o else []
    within = f", within {' and '.join(limits)}" if limits else ""
    reload = f", reloading from {o['tier']}" if "tier" in o and plan.question != "bandwidth-for" else ""
    return f"{asked} for {i['model']}{where}: {load}{within}{reload}"


def _kept(name: str, row: Row) -> Row:
    times = name not in ("capacity", "saturation")
    words = {"ttft": "time to first token", "ttft_p95": "time to first token, p95", "tpot": "time per output token",
             "capacity": "device memory"}  # fmt: skip
    return {
        "objective": words.get(name, name),
        "answer": format_seconds(row["value"]) if times else f"{1.0 - row['left']:.0%}",
        "limit": format_seconds(row["limit"]) if times else "100%",
        "left": f"{row['left']:.1%}",
    }


def _relaxed(row: Row) -> Row:
    return {"limit": row["what"], "how": row["text"]}


def _step(row: Row) -> Row:
    gain = row.get("gain")
    figures: dict[str, tuple[str, Callable[[Any], str]]] = {
        "users": ("users", lambda v: f"{v:,}"),
        "requests_per_s": ("requests/s", lambda v: f"{v:,.10g}"),
        "clients": ("clients", lambda v: f"{v:,}"),
        "sessions": ("sessions", lambda v: f"{v:,}"),
        "ttft_s": ("first token", format_seconds),
        "ttft_reload_s": ("first token", format_seconds),
        "tpot_s": ("per token", format_seconds),
        "usd_per_hour": ("USD/h", lambda v: f"{v:,.2f}"),
    }
    shown: dict[str, Any] = {"change": row["change"]}
    shown |= {head: form(row[n]) for n, (head, form) in figures.items() if row.get(n) is not None}
    return shown | {"gain": NONE if gain is None else f"{gain:+.0%}"}


def _near(rows: Sequence[Row], most: int = 12) -> Sequence[Row]:
    """Candidates about the first that is enough, or the first ones."""
    first = next((i for i, row in enumerate(rows) if row.get("holds")), 0)
    start = max(min(first - most // 2, len(rows) - most), 0)
    return rows[start : start + most]


def _candidate(row: Row) -> Row:
    shown: dict[str, Any] = {}
    if "hardware" in row:
        shown["hardware"] = row["hardware"]
    shown["devices"] = row["devices"]
    shown["layout"] = " ".join(f"{name}{row[name]}" for name in ("tp", "pp", "dp") if row[name] > 1)
    if "holds" in row:
        shown["enough"] = "yes" if row["holds"] else "no"
    shown["first token"] = _seconds(row["ttft_s"])
    shown["per token"] = _seconds(row["tpot_s"])
    if "usd_per_hour" in row:
        shown["USD/h"] = f"{row['usd_per_hour']:,.2f}"
    if "usd_per_million_output_tokens" in row:
        shown["USD/M output"] = f"{row['usd_per_million_output_tokens']:,.2f}"
    return shown


def _seconds(value: float | None) -> str:
    return NONE if value is None or value != value else format_seconds(value)


def _tornado(plan: Plan, rows: Sequence[Row]) -> list[Row]:
    name, form = _FIGURES[plan.question]

    def shown(value: Any) -> str:
        return "none" if value is None else form(value)

    return [
        {
            "what": row["what"],
            "a fifth less": shown(row["answer_less"]),
            "as asked": shown(plan.found.value),
            "a fifth more": shown(row["answer_more"]),
            "of": name,
            "swing": f"{row['swing']:.0%}" if row["swing"] >= 0.01 else "<1%",
        }
        for row in rows
    ]


def _excluded(rows: Sequence[Row]) -> list[str]:
    """Machines that are out, grouped by the reason."""
    reasons: dict[str, list[str]] = {}
    for row in rows:
        reasons.setdefault(row["why"], []).append(row["hardware"])
    return [f"left out, {why}: {', '.join(names)}" for why, names in reasons.items()]


def _filled(text: str, width: int) -> str:
    return textwrap.fill(text, width, subsequent_indent="  ") + "\n"
