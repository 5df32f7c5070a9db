"""The six inverse questions and their answers, in figures and in a sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, Final

from llmcap.analyses.planning import plan_machines, plan_tiers, plan_users
from llmcap.analyses.planning.asked import Asked, more, shortfalls, slack
from llmcap.errors import OptionError
from llmcap.records import dataclass
from llmcap.units import format_bytes, format_rate, format_seconds

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found; fields that a question has no use for stay empty."""

    feasible: bool
    answer: Row
    value: float | None
    """The figure that the tornado table follows."""
    text: str
    binding: str | None = None
    """What forbids a better answer, or any."""
    low: Row | None = None
    """The answer when times are at the upper end of their bands: the careful one."""
    high: Row | None = None
    """The answer when times are at the lower end."""
    slack: Row = field(default_factory=dict)
    forbidden: list[Row] = field(default_factory=list)
    """What the next better answer would violate."""
    relax: list[Row] = field(default_factory=list)
    """Without an answer: what to relax and by how much, for the nearest miss."""
    next: list[Row] = field(default_factory=list)
    """What one more step brings."""
    candidates: list[Row] = field(default_factory=list)
    excluded: list[Row] = field(default_factory=list)
    results: Row = field(default_factory=dict)
    costs: Row = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Question:
    """How a question is answered, and its figure alone for the tornado table."""

    answer: Callable[[Asked], Answer]
    value: Callable[[Asked], float | None]


def users_max(asked: Asked) -> Answer:
    """Most active users."""
    users = plan_users.most_users(asked)
    evaluator = asked.evaluator()
    what, forbidden = plan_users.binding(asked, users)
    if users == 0:
        told = "; ".join(row["text"] for row in forbidden)
        steps = plan_users.next_steps(asked, 0)
        return Answer(False, {"users": 0}, 0.0, f"Not even one user: {told}", what, relax=forbidden, next=steps[:5])
    estimate = asked.estimate(users)
    low, high = (plan_users.most_users(asked.with_band(band)) for band in ("high", "low"))
    steps = plan_users.next_steps(asked, users)
    better = f"; next: {steps[0]['change']}, {steps[0]['users']:,} users ({steps[0]['gain']:+.0%})" if steps else ""
    span = f" ({low:,} to {high:,})" if low != high else ""
    text = f"{users:,} user{'s' * (users > 1)}{span}, bound by {_words(what)}{better}"
    return Answer(
        True, {"users": users}, float(users), text, what, {"users": low}, {"users": high},
        slack(asked.measure(evaluator, users), asked.objectives), forbidden, next=steps[:5],
        results=estimate.results, costs=asked.costs(estimate),
    )  # fmt: skip


def devices_min(asked: Asked) -> Answer:
    """Fewest devices.

    Raises
    ------
    OptionError
        No number of devices goes with the degrees of parallelism.
    """
    rows = plan_machines.at_each(asked)
    good = [row for row in rows if row["holds"]]
    if not good:
        best = min(rows, key=lambda row: row["worst"], default=None)
        if best is None:
            raise OptionError(
                "--devices-min",
                "no number of devices goes with the other options",
                "leave --tp, --pp, --dp, --ep and --cp out",
            )
        text = f"No number of devices is enough; nearest are {best['devices']}: " + "; ".join(
            row["text"] for row in best["short"]
        )
        return Answer(False, {"devices": None}, None, text, best["short"][0]["what"] if best["short"] else None,
                      relax=best["short"], candidates=_brief(rows))  # fmt: skip
    first = good[0]
    fewer = [row for row in rows if row["devices"] < first["devices"]]
    more = [row for row in rows if row["devices"] > first["devices"]]
    what = fewer[-1]["short"][0]["what"] if fewer and fewer[-1]["short"] else None
    chosen = plan_machines.smallest(asked) or asked
    estimate = chosen.estimate()
    low, high = (plan_machines.fewest_devices(asked.with_band(band)) for band in ("high", "low"))
    steps = [
        {"change": _layout(row), "ttft_s": row["ttft_s"], "tpot_s": row["tpot_s"],
         "gain": _shorter(first["ttft_s"], row["ttft_s"])}
        for row in more[:2]
    ]  # fmt: skip
    text = f"{first['devices']} device{'s' * (first['devices'] > 1)}"
    text += f"; with {fewer[-1]['devices']}, {_words(what)} is missed" if what else "; fewer there are none"
    if steps:
        text += f"; next: {steps[0]['change']}, first token {steps[0]['gain']:+.0%} time"
    evaluator = chosen.evaluator()
    return Answer(
        True, {"devices": first["devices"]} | {n: estimate.inputs[n] for n in ("tp", "pp", "dp", "ep", "cp")},
        float(first["devices"]), text, what,
        {"devices": low}, {"devices": high}, slack(chosen.measure(evaluator), asked.objectives),
        fewer[-1]["short"] if fewer else [], next=steps, candidates=_brief(rows),
        results=estimate.results, costs=chosen.costs(estimate),
    )  # fmt: skip


def _active_fit(asked: Asked) -> bool:
    """Whether the active users fit device memory, which no tier changes."""
    return bool(asked.measure(asked.evaluator()).fits[0])


def _unfit(asked: Asked) -> Answer | None:
    """The answer about a tier when the active users do not fit device memory: a reload has nowhere to go."""
    if _active_fit(asked):
        return None
    evaluator = asked.evaluator()
    short = [
        row for row in shortfalls(asked.measure(evaluator), asked.objectives, evaluator) if row["what"] == "capacity"
    ]
    text = (
        f"The active users do not fit, whatever the tier; {short[0]['text']}; or fewer --users with --sessions "
        f"{asked.load.sessions:,} if not all are active at once"
    )
    return Answer(False, {}, None, text, "capacity", relax=short)


def dram_min(asked: Asked) -> Answer:
    """Least DRAM of each server that keeps all sessions.

    Raises
    ------
    OptionError
        The server has no DRAM beside its devices' memory.
    """
    if (unfit := _unfit(asked)) is not None:
        return unfit
    evaluator = asked.evaluator()
    machine = evaluator.setting.machine
    if machine.server.unified_memory is not None:
        raise OptionError(
            "--dram-min", f"{machine.server.id} has one memory for processor and device, and no DRAM beside it",
            "ask for --users-max, or --drives-min",
        )  # fmt: skip
    servers = machine.servers
    whole = plan_tiers.session_bytes(asked, evaluator, "dram")
    each = whole / servers
    has = plan_tiers.tier_of(evaluator, "dram").capacity / servers
    sessions = asked.load.sessions
    one = whole / sessions
    steps = [{"change": "twice as much", "sessions": 2 * sessions, "gain": 1.0}]
    notes = [f"device memory itself keeps {_held(asked, evaluator):,} such caches, which count as kept beside these"]
    answer = {"dram_bytes": each, "sessions": sessions, "servers": servers, "has_bytes": has}
    late = _too_late(asked, "dram")
    if late:
        return Answer(False, answer, each, late[0]["text"], "ttft", relax=late, notes=notes)
    told = f"it has {format_bytes(has)}" if each <= has else f"{format_bytes(each - has)} more than it has"
    kept = f"{sessions:,} session{'s' * (sessions > 1)}"
    text = f"{format_bytes(each)} of DRAM in each server keep {kept} of {format_bytes(one)}; {told}"
    return Answer(True, answer, each, text, "capacity", next=steps, notes=notes)


def drives_min(asked: Asked) -> Answer:
    """Fewest drives of each server that keep all sessions and bring them back in time."""
    if (unfit := _unfit(asked)) is not None:
        return unfit
    drives = plan_tiers.fewest_drives(asked)
    if drives is None:
        most = plan_tiers.MOST_DRIVES
        violated = plan_tiers.drives_violate(asked, most)
        tried = plan_tiers.with_drives(asked, most)
        evaluator = tried.evaluator()
        relax: list[Row] = []
        if "ttft" in violated and asked.objectives.ttft is not None:
            relax += _too_late(tried, "nvme")
        if "capacity" in violated:
            needed = plan_tiers.session_bytes(tried, evaluator, "nvme")
            had = plan_tiers.tier_of(evaluator, "nvme").capacity
            kept = int(asked.load.sessions * had / needed)
            told = f"{most} drives hold {had / needed:.1%} of the sessions: keep {kept:,}"
            relax.append({"what": "capacity", "asked": needed, "needed": had, "factor": needed / had, "text": told})
        text = f"No number of drives up to {most} is enough: " + "; ".join(row["text"] for row in relax)
        return Answer(False, {"drives": None}, None, text, max(violated, key=lambda n: violated[n]), relax=relax)
    fewer = plan_tiers.drives_violate(asked, drives - 1) if drives > 1 else {}
    what = max(fewer, key=lambda name: fewer[name]) if fewer else None
    chosen = plan_tiers.with_drives(asked, drives)
    evaluator = chosen.evaluator()
    tier = plan_tiers.tier_of(evaluator, "nvme")
    one = plan_tiers.session_bytes(chosen, evaluator, "nvme") / asked.load.sessions
    here = plan_tiers.reload(chosen, evaluator, "nvme")
    more = plan_tiers.with_drives(asked, drives + 2)
    wider = more.evaluator()
    held, next_held = (int(plan_tiers.tier_of(e, "nvme").capacity // one) for e in (evaluator, wider))
    there = plan_tiers.reload(more, wider, "nvme")
    steps = [{"change": f"--drives {drives + 2}", "sessions": next_held, "gain": next_held / max(held, 1) - 1.0,
              "ttft_reload_s": there.ttft}]  # fmt: skip
    answer = {"drives": drives, "drive": tier.drive.id if tier.drive else None, "capacity_bytes": tier.capacity,
              "sessions": held, "ttft_reload_s": here.ttft}  # fmt: skip
    several = drives > 1
    text = f"{drives} drive{'s' * several} in each server hold{'s' * (not several)} {held:,} session{'s' * (held != 1)}"
    text += f" and give{'s' * (not several)} the first token after {format_seconds(here.ttft)}"
    text += f"; one fewer misses {_words(what)}" if what else ""
    text += f"; two more drives: {steps[0]['gain']:+.0%} sessions, first token after {format_seconds(there.ttft)}"
    return Answer(True, answer, float(drives), text, what, next=steps)


def bandwidth_for(asked: Asked) -> Answer:
    """Read bandwidth that a tier needs."""
    if (unfit := _unfit(asked)) is not None:
        return unfit
    name, limit = asked.objectives.tier, asked.objectives.ttft
    assert name is not None and limit is not None
    row = plan_tiers.bandwidth_for(asked, name)
    feasible, what = bool(row.pop("feasible")), row.pop("binding")
    if not feasible:
        floor = row["floor_s"]
        told = (
            f"No bandwidth is enough: an endlessly fast {name} still gives the first token after "
            f"{format_seconds(floor)}, bound by {_words(what)}; --ttft {format_seconds(floor)} or more, "
            f"{more(floor / limit)}"
        )
        relax = [{"what": "ttft", "asked": limit, "needed": floor, "factor": floor / limit, "text": told}]
        return Answer(False, row, None, told, what, relax=relax)
    nominal, has = row["nominal_bytes_per_s"], row["has_nominal_bytes_per_s"]
    told = "no more than it has" if nominal <= has else f"{nominal / has:.3g} times what it has"
    text = (
        f"{name} must deliver {format_rate(row['needed_bytes_per_s'], 'B/s')}, that is {format_rate(nominal, 'B/s')} "
        f"nominal, {told} ({format_rate(has, 'B/s')}); no bandwidth brings the first token below "
        f"{format_seconds(row['floor_s'])}"
    )
    faster = 1.2 * row["needed_bytes_per_s"]
    after = row["fixed_s"] + row["rest_s"] + row["moved_bytes"] / faster
    steps = [{"change": "a fifth more bandwidth", "ttft_reload_s": max(after, row["floor_s"]),
              "gain": _shorter(limit, max(after, row["floor_s"]))}]  # fmt: skip
    return Answer(True, row, nominal, text, what, next=steps)


def cheapest(asked: Asked) -> Answer:
    """The machine of the catalogue that keeps the objectives for the least money an hour.

    Raises
    ------
    OptionError
        There are no prices.
    """
    if asked.prices is None:
        raise OptionError("--prices", "is missing: --cheapest compares prices", "give --prices hyperscaler-2026-04")
    found, out = plan_machines.machines(asked)
    if not found:
        nearest = min((row for row in out if row.get("factor")), key=lambda row: row["factor"], default=None)
        relax = [] if nearest is None else [{"what": nearest["hardware"], "factor": nearest["factor"],
                                             "text": f"{nearest['hardware']}: {nearest['why']}"}]  # fmt: skip
        text = "No machine of the catalogue is enough" + (f"; nearest is {relax[0]['text']}" if relax else "")
        return Answer(False, {"hardware": None}, None, text, None, relax=relax, excluded=out)
    first = found[0]
    text = f"{first['devices']} of {first['hardware']} for {first['usd_per_hour']:,.2f} USD an hour"
    if "usd_per_million_output_tokens" in first:
        text += f", {first['usd_per_million_output_tokens']:,.2f} USD a million output tokens"
    if len(found) > 1:
        text += f"; next: {found[1]['devices']} of {found[1]['hardware']} for {found[1]['usd_per_hour']:,.2f} USD"
    chosen = plan_machines.narrowed(asked, first["hardware"])
    estimate = chosen.estimate()
    return Answer(
        True, {name: first[name] for name in ("hardware", "devices")}, first["usd_per_hour"], text, None,
        slack=slack(chosen.measure(chosen.evaluator()), asked.objectives), candidates=found, excluded=out,
        next=[{"change": f"{row['hardware']} x {row['devices']}", "usd_per_hour": row["usd_per_hour"],
               "gain": row["usd_per_hour"] / first["usd_per_hour"] - 1.0} for row in found[1:4]],
        results=estimate.results, costs=chosen.costs(estimate),
    )  # fmt: skip


def _too_late(asked: Asked, name: str) -> list[Row]:
    """Empty when the tier meets the TTFT objective, or there is none."""
    limit = asked.objectives.ttft
    if limit is None:
        return []
    now = plan_tiers.reload(asked, asked.evaluator(), name)
    if now.ttft <= limit * (1.0 + 1e-12):
        return []
    factor = now.ttft / limit
    text = (
        f"reloading from {name} gives the first token after {format_seconds(now.ttft)}, however much is kept: "
        f"--ttft {format_seconds(now.ttft)} instead of {format_seconds(limit)}, {more(factor)}"
    )
    return [{"what": "ttft", "asked": limit, "needed": now.ttft, "factor": factor, "text": text}]


def _held(asked: Asked, evaluator: Any) -> int:
    return int(evaluator.memory.users_held(asked.load.context + asked.load.output))


def _layout(row: Row) -> str:
    """The options that make a layout."""
    degrees = " ".join(f"--{name} {row[name]}" for name in ("tp", "pp", "dp") if row[name] > 1)
    return f"--devices {row['devices']} {degrees}".strip()


def _brief(rows: list[Row]) -> list[Row]:
    return [{name: row[name] for name in ("devices", "tp", "pp", "dp", "holds", "ttft_s", "tpot_s")} for row in rows]


def _shorter(before: float, after: float) -> float | None:
    return after / before - 1.0 if before else None


def _words(what: str | None) -> str:
    named = {"ttft": "time to first token", "tpot": "time per output token", "capacity": "device memory"}
    return named.get(what or "", what or "")


def _drives(asked: Asked) -> float | None:
    if not _active_fit(asked):
        return None
    found = plan_tiers.fewest_drives(asked)
    return None if found is None else float(found)


def _devices(asked: Asked) -> float | None:
    found = plan_machines.fewest_devices(asked)
    return None if found is None else float(found)


def _dram(asked: Asked) -> float | None:
    evaluator = asked.evaluator()
    if not _active_fit(asked) or _too_late(asked, "dram"):
        return None
    return plan_tiers.session_bytes(asked, evaluator, "dram") / evaluator.setting.machine.servers


def _bandwidth(asked: Asked) -> float | None:
    if not _active_fit(asked):
        return None
    row = plan_tiers.bandwidth_for(asked, asked.objectives.tier or "")
    return row["nominal_bytes_per_s"] if row["feasible"] else None


ANSWERS: Final[dict[str, Question]] = {
    "users-max": Question(users_max, lambda asked: float(plan_users.most_users(asked)) or None),
    "devices-min": Question(devices_min, _devices),
    "dram-min": Question(dram_min, _dram),
    "drives-min": Question(drives_min, _drives),
    "bandwidth-for": Question(bandwidth_for, _bandwidth),
    "cheapest": Question(cheapest, plan_machines.cheapest_per_hour),
}
