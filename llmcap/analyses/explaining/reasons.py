"""Why two estimates differ: the kind of operator, the limit it meets, and the rate or size behind that."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from llmcap.analyses.explaining.derivation import Derivation, PhaseRows
from llmcap.analyses.explaining.variants import Variant
from llmcap.analyses.offload.tier_columns import narrowest_hop
from llmcap.units import format_bytes, format_rate, format_seconds

Row = dict[str, Any]

#: Ends of operator names and what they are; anything else multiplies matrices.
_KINDS: Final[dict[str, str]] = {
    "attention": "attention", "experts": "experts", "elementwise": "element-wise work", "scan": "recurrent scans",
    "engine overhead": "engine overhead", "all-reduce": "communication", "dispatch": "communication",
    "combine": "communication", "stage hand-over": "communication", "embedding": "embedding", "lm_head": "logits",
}  # fmt: skip


def rates(variant: Variant) -> Row:
    """What the devices in use can do together, and one of them towards the others."""
    setting = variant.evaluator.setting
    machine = setting.machine
    return {
        "peak_flop_per_s": machine.peak(setting.activation_dtype) * machine.devices,
        "attention_peak_flop_per_s": machine.peak(setting.attention_dtype) * machine.devices,
        "hbm_bytes_per_s": machine.device.memory.bandwidth * machine.devices,
        "fabric_bytes_per_s": machine.fabric(setting.parallelism.tp).bandwidth,
    }


def reasons_of(variants: Sequence[Variant]) -> list[Row]:
    """For each further side: what makes most of the difference in time, reload and room, the first side being 1."""
    first = variants[0]
    if not first.estimate.fits:
        return []
    found = []
    base = _phases(first)
    for other in variants[1:]:
        if not other.estimate.fits:
            continue
        own = _phases(other)
        for metric, phase in (("ttft_s", "prefill"), ("tpot_s", "decode")):
            if phase in base and phase in own:
                found.append(_reason(metric, first, other, base[phase], own[phase]))
        found += _of_tiers(first, other)
        found.append(_of_room(first, other))
    return [row for row in found if row]


def _phases(variant: Variant) -> dict[str, PhaseRows]:
    case = variant.case
    derivation = Derivation(
        variant.evaluator, case["users"], case["context"], case["cached_tokens"], case["output_tokens"]
    )
    found = {"prefill": derivation.prefill()}
    after = case["output_tokens"] - 1
    if after:
        whole = derivation.decode()
        found["decode"] = PhaseRows([row | {"time_s": row["time_s"] / after} for row in whole.rows], whole.binding)
    return found


def kind_of(operator: str) -> str:
    """What an operator is, whatever the layer kind it belongs to.

    >>> kind_of("global.attention"), kind_of("all-reduce"), kind_of("dense.up")
    ('attention', 'communication', 'matrix products')
    """
    return _KINDS.get(operator, _KINDS.get(operator.rpartition(".")[2], "matrix products"))


def _by_kind(rows: Sequence[Row]) -> dict[str, float]:
    found: dict[str, float] = {}
    for row in rows:
        kind = kind_of(row["operator"])
        found[kind] = found.get(kind, 0.0) + row["time_s"]
    return found


def _bound(rows: Sequence[Row], kind: str) -> str | None:
    """What takes most of the time of a kind of operator."""
    found: dict[str, float] = {}
    for row in rows:
        if kind_of(row["operator"]) == kind and row["time_s"] > 0.0:
            found[row["bound"]] = found.get(row["bound"], 0.0) + row["time_s"]
    return max(found, key=lambda bound: found[bound]) if found else None


def _reason(metric: str, first: Variant, other: Variant, base: PhaseRows, own: PhaseRows) -> Row:
    before, after = _by_kind(base.rows), _by_kind(own.rows)
    whole = sum(after.values()) - sum(before.values())
    total = sum(before.values())
    if abs(whole) < 1e-9 * total:
        return {}
    changes = {k: after.get(k, 0.0) - before.get(k, 0.0) for k in dict.fromkeys([*before, *after])}
    kind = max(changes, key=lambda k: changes[k] * (1.0 if whole > 0 else -1.0))
    was, now = _bound(base.rows, kind), _bound(own.rows, kind)
    ratio = 1.0 + whole / total
    row: Row = {
        "metric": metric, "variant": other.name, "ratio": ratio, "difference_s": whole, "operator": kind,
        "contribution_s": changes[kind], "share": changes[kind] / whole, "bound_first": was, "bound": now,
        "changes": dict(sorted(changes.items(), key=lambda item: -abs(item[1]))),
    }  # fmt: skip
    if base.binding != own.binding and None not in (base.binding, own.binding):
        # Overlapped, and another resource is the longest: shares of two different resources do not compare.
        what = f"{_change(row)}; of what overlaps, {base.binding} takes longest on {first.name}, {own.binding} here"
        return row | {"bound_first": base.binding, "bound": own.binding, "text": what}
    return row | {"text": _text(row, first, other)}


def _of_tiers(first: Variant, other: Variant) -> list[Row]:
    """Reloads that take another time: bytes and rates."""
    theirs = {t["tier"]: t for t in first.estimate.tiers}
    hops = [_narrowest(v) for v in (first, other)]
    found = []
    for tier in other.estimate.tiers:
        name = tier["tier"]
        base = theirs.get(name)
        if name == "hbm" or base is None or not base["reload_s"] or tier["reload_s"] is None:
            continue
        ratio = tier["reload_s"] / base["reload_s"]
        if abs(ratio - 1.0) < 0.005:
            continue
        moved = other.estimate.results["kv_bytes_total"] / first.estimate.results["kv_bytes_total"]
        rates = [
            f"{format_rate(t['effective_read_bytes_per_s'], 'B/s')} ({narrowest[name]})"
            for t, narrowest in zip((base, tier), hops, strict=True)
        ]
        causes = [_instead("", *rates)]
        if abs(moved - 1.0) > 0.005:
            causes.append(f"caches of {moved:.2f} times the bytes")
        text = _because(f"{other.name}: reload from {name} {ratio:.2f} times as long", causes, ", and ")
        found.append(
            {"metric": "reload_s", "variant": other.name, "tier": name, "ratio": ratio,
             "difference_s": tier["reload_s"] - base["reload_s"], "bound_first": hops[0][name],
             "bound": hops[1][name], "text": text}
        )  # fmt: skip
    return found


def _narrowest(variant: Variant) -> dict[str, str]:
    """Tier -> the hop that bounds its reload."""
    evaluator = variant.evaluator
    places = {tier.name: tier for tier in evaluator.setting.machine.tiers}
    users = np.array([float(variant.case["users"])])
    return {r.name: str(narrowest_hop(evaluator, places[r.name], r, users)[0]) for r in evaluator.tiers.rates}


def _of_room(first: Variant, other: Variant) -> Row:
    """Users that device memory holds: room for caches, and what a user takes."""
    was, now = (v.estimate.results["max_users_hbm"] for v in (first, other))
    if not was or now is None or abs(now / was - 1.0) < 0.005:
        return {}
    pools = [max(v.evaluator.pool, 0.0) * v.evaluator.setting.machine.devices for v in (first, other)]
    users = [v.estimate.results["kv_bytes_total_reserved"] / v.case["users"] for v in (first, other)]
    text = _because(
        f"{other.name}: device memory holds {now / was:.2f} times as many users ({now:,}, not {was:,})",
        [
            _instead("room for caches ", *map(format_bytes, pools)),
            _instead("a user reserves ", *map(format_bytes, users)),
        ],
        ", ",
    )
    return {"metric": "max_users_hbm", "variant": other.name, "ratio": now / was, "text": text}


def _instead(what: str, was: str, now: str) -> str:
    """A change in words; nothing where the digits shown do not change."""
    return f"{what}{now} instead of {was}" if now != was else ""


def _because(effect: str, causes: Sequence[str], joint: str) -> str:
    said = joint.join(cause for cause in causes if cause)
    return f"{effect}; {said}" if said else effect


def _change(row: Row) -> str:
    what = {"ttft_s": "first token", "tpot_s": "time per output token"}[row["metric"]]
    return f"{row['variant']}: {what} {row['ratio']:.2f} times as long ({_signed(row['difference_s'])})"


def _text(row: Row, first: Variant, other: Variant) -> str:
    more = "more" if row["contribution_s"] > 0 else "less"
    text = (
        f"{_change(row)}; {row['operator']} take{_s(row['operator'])} "
        f"{format_seconds(abs(row['contribution_s']))} {more}"
    )
    if row["bound_first"] == row["bound"] and row["bound"] is not None:
        text += f", bound by {row['bound']} on both"
    elif row["bound"] is not None and row["bound_first"] is not None:
        text += f", bound by {row['bound_first']} on {first.name}, by {row['bound']} here"
    rate = _limit(row, first, other)
    return text + (f", {rate}" if rate else "")


def _s(kind: str) -> str:
    return "" if kind.endswith("s") else "s"


def _signed(value: float) -> str:
    return f"{'+' if value > 0 else '-'}{format_seconds(abs(value))}"


def _limit(row: Row, first: Variant, other: Variant) -> str:
    """The rate behind the bound, as a ratio, where it differs."""
    attention = row["operator"] == "attention"
    named = {
        "compute": ("attention_peak_flop_per_s" if attention else "peak_flop_per_s", "peak"),
        "memory": ("hbm_bytes_per_s", "memory bandwidth"),
        "network": ("fabric_bytes_per_s", "bandwidth between devices"),
    }
    if row["bound"] not in named:
        return ""
    column, words = named[row["bound"]]
    ratio = rates(other)[column] / rates(first)[column]
    return f"where its {words} is {ratio:.2f} times as high" if abs(ratio - 1.0) > 0.005 else ""
