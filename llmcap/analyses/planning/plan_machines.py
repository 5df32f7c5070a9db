"""Fewest devices for a load, and the cheapest machine of the catalogue that serves it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from llmcap.analyses.costs import CostModel
from llmcap.analyses.planning.asked import Asked, layouts, shortfalls
from llmcap.analyses.setting import resolve
from llmcap.errors import LlmcapError
from llmcap.specs.registry import list_ids

Row = dict[str, Any]


def smallest(asked: Asked) -> Asked | None:
    """The question about the smallest number of devices that keeps all objectives; None when no number does."""
    for _, tried, evaluator in layouts(asked):
        if bool(tried.measure(evaluator).holds[0]):
            return tried
    return None


def fewest_devices(asked: Asked) -> int | None:
    """That number."""
    found = smallest(asked)
    return None if found is None else found.options.devices


def at_each(asked: Asked) -> list[Row]:
    """Each number of devices in the layout that comes nearest to the objectives, with what it violates."""
    rows: dict[int, Row] = {}
    for devices, tried, evaluator in layouts(asked):
        measured = tried.measure(evaluator)
        worst = max(float(r[0]) for r in measured.ratios.values())
        if devices in rows and rows[devices]["worst"] <= worst:
            continue
        p = evaluator.setting.parallelism
        rows[devices] = {
            "devices": devices, "tp": p.tp, "pp": p.pp, "dp": p.dp, "ep": p.ep, "cp": p.cp,
            "holds": bool(measured.holds[0]), "ttft_s": float(measured.ttft[0]), "tpot_s": float(measured.tpot[0]),
            "worst": worst, "short": shortfalls(measured, tried.objectives, evaluator),
        }  # fmt: skip
    return list(rows.values())


def machines(asked: Asked) -> tuple[list[Row], list[Row]]:
    """Servers of the catalogue with prices: those that keep the objectives, cheapest first, and those that do not.

    A server that cannot run the model (no peak for its dtype, heads that do not divide) is among the latter.
    """
    found: list[Row] = []
    out: list[Row] = []
    for server in list_ids("server"):
        tried = asked.with_options(hardware=server, devices=None)
        try:
            setting = resolve(tried.options)
            price = CostModel(setting.machine, asked.prices).device_second
            if setting.machine.server.hypothetical or price is None:
                why = "no price" if price is None else "not sold by anyone"
                out.append({"hardware": server, "why": why})
                continue
            chosen = smallest(tried)
            if chosen is None:
                rows = at_each(tried)
                best = min(rows, key=lambda row: row["worst"], default=None)
                short = best["short"] if best else []
                out.append({"hardware": server, "why": short[0]["text"] if short else "the model does not fit",
                            "factor": best["worst"] if best else None})  # fmt: skip
                continue
            estimate = chosen.estimate()
        except LlmcapError as error:
            out.append({"hardware": server, "why": error.message})
            continue
        costs = chosen.costs(estimate)
        r = estimate.results
        found.append(
            {"hardware": server}
            | {n: estimate.inputs[n] for n in ("devices", "tp", "pp", "dp")}
            | {name: r[name] for name in ("ttft_s", "tpot_s", "output_tok_per_s", "max_users_hbm")}
            | {name: costs[name] for name in costs if name not in ("prices", "prices_as_of")}
        )
    return sorted(found, key=lambda row: (row["usd_per_hour"], row["hardware"])), out


def cheapest_per_hour(asked: Asked) -> float | None:
    """Price of the cheapest machine that keeps the objectives; None when none does. [USD/h]"""
    found, _ = machines(asked)
    return found[0]["usd_per_hour"] if found else None


def narrowed(asked: Asked, hardware: str) -> Asked:
    """The question about one machine with as many devices as it needs."""
    tried = replace(asked, options=replace(asked.options, hardware=hardware))
    return smallest(tried) or tried
