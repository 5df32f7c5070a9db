"""What is kept for the users and how long it takes to bring back, written down term by term."""

from __future__ import annotations

from typing import Any

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.explaining.formulas import num, product
from llmcap.analyses.paths import Tier
from llmcap.analyses.tiers import TierRates
from llmcap.arch.parts import StateTerm
from llmcap.arch.state import kept_slots, slot_bytes, state_terms
from llmcap.engine.transfer import Link, link_rate

Row = dict[str, Any]


def kv_rows(evaluator: Evaluator, users: int, tokens: int) -> list[Row]:
    """The logical state of all users, one row per thing that a layer kind keeps; the bytes add up to kv_bytes_total."""
    setting, structure = evaluator.setting, evaluator.memory.structure
    rows = []
    for term, layers in state_terms(structure):
        each = slot_bytes(term, setting.kv_dtype, structure)
        slots = float(kept_slots(term, tokens))
        places = ["model:mixers", "model:layers"]
        rows.append(
            {
                "phase": "kv",
                "operator": f"{term.kind}.{_what(term)}",
                "layers": layers,
                "bytes": users * layers * slots * each,
                "bytes_per_slot": each,
                "slots": slots,
                "form": f"users x layers x {_slots(term)}bytes per slot",
                "formula": product(users, layers, slots, each),
                "places": places if structure is setting.structure else [*places, "assumptions:deviations"],
            }
        )
    return rows


def tier_rows(evaluator: Evaluator, name: str, case: dict[str, int]) -> list[Row]:
    """A reload of all users' reusable prefixes: software and latency, then the transfer; adds up to reload_s."""
    if name == "hbm":
        return []
    setting, model = evaluator.setting, evaluator.tiers
    tier, rates = _tier(evaluator, name)
    users, fullest = case["users"], float(model.fullest(case["users"]))
    prefix = case["cached_tokens"] or case["context"]
    each = float(evaluator.memory.moved_per_user(prefix))
    moved = users * each
    ideal = setting.assumptions.ideal_transfers
    rate = min(rates.shared, users / fullest * rates.replica)
    fixed: Row = {
        "phase": f"tier:{name}",
        "operator": "software and latency",
        "bytes": 0.0,
        "time_s": rates.fixed,
        "bound": "overhead",
        "form": "engine's fixed cost + latency of the tier",
        "formula": f"{num(tier.reload.fixed)} + {num(tier.latency)}" if rates.fixed else "0",
        "places": ["assumptions:ideal_transfers"] if ideal else [f"engine:reloads.{_profile(evaluator, tier)}"],
    }
    transfer: Row = {
        "phase": f"tier:{name}",
        "operator": f"transfer over {rates.narrowest}",
        "bytes": moved,
        "time_s": moved / rate,
        "bound": "network",
        "form": "users x bytes of a prefix / min(shared hops, users / users of the fullest replica x its own links)",
        "formula": (
            f"{product(users, each)}/"
            + (num(rates.shared) if rates.replica == float("inf") else
               f"min({num(rates.shared)}, {num(users)}/{num(fullest)}*{num(rates.replica)})")
        ),
        "efficiency": rate / rates.nominal,
        "places": ["model:mixers", *_hop_places(evaluator, tier)],
    }  # fmt: skip
    return [fixed, transfer]


def tier_hops(evaluator: Evaluator, name: str) -> list[Row]:
    """Rate of each hop of a tier's path; the shared ones together, a device's own link for one replica."""
    if name == "hbm" or name in evaluator.setting.assumptions.deviations.tier_read:
        return []
    setting = evaluator.setting
    tier, _ = _tier(evaluator, name)
    p, machine = setting.parallelism, setting.machine
    ideal, block = setting.assumptions.ideal_transfers, tier.reload.block
    rows = [_hop(hop, block, ideal, _hop_places(evaluator, tier)) for hop in tier.shared]
    own = _hop(machine.device_link, block, ideal, ["device:host_link", "transfers:device_link"])
    devices, copies = p.tp * p.pp * p.cp, evaluator.memory.copies()
    text = own["formula"]
    if tier.reload.rate_per_device is not None and not ideal:
        text = f"min({text}, {num(tier.reload.rate_per_device)})"
        own["places"] = [*own["places"], f"engine:reloads.{_profile(evaluator, tier)}"]
    one = link_rate(machine.device_link, block, ideal=ideal)
    if tier.reload.rate_per_device is not None and not ideal:
        one = min(one, tier.reload.rate_per_device)
    own |= {
        "operator": f"{machine.device_link.name} of a replica",
        "nominal_bytes_per_s": machine.device_link.bandwidth * devices,
        "effective_bytes_per_s": one * devices / copies,
        "form": "rate of one link x devices of a replica / copies that each byte is held in",
        "formula": f"{text}*{devices}/{num(copies)}",
    }
    return [*rows, own]


def _hop(link: Link, block: float, ideal: bool, places: list[str]) -> Row:
    text = num(link.bandwidth)
    form = "nominal bandwidth"
    if not ideal:
        share = product(link.bandwidth, link.efficiency) + (f"/{link.members}" if link.members > 1 else "")
        each = f"({num(link.per_transfer)} + {num(block)}/({share}))"
        text = product(link.members, block) + f"/{each}"
        form = "members x block / (cost per block + block / (efficiency x bandwidth / members))"
        if link.in_flight is not None:
            text = f"min({text}, {product(link.in_flight, block)}/({num(link.latency)} + {each}))"
            form += ", at most transfers in flight x block / (latency + time of a block)"
        if link.operations is not None:
            text = f"min({text}, {product(link.operations, block)})"
            form += ", at most operations x block"
    if link.copies != 1.0:
        text = f"({text})/{num(link.copies)}"
        form += ", over the times each byte crosses"
    if link.readers != 1.0:
        text = f"({text})/{num(link.readers)}"
        form += ", over the ranks that read each byte"
    return {
        "operator": link.name,
        "nominal_bytes_per_s": link.bandwidth / link.copies,
        "effective_bytes_per_s": link_rate(link, block, ideal=ideal),
        "form": form,
        "formula": text,
        "places": places,
    }


def _tier(evaluator: Evaluator, name: str) -> tuple[Tier, TierRates]:
    pairs = zip(evaluator.setting.machine.tiers, evaluator.tiers.rates, strict=True)
    return next((tier, rates) for tier, rates in pairs if tier.name == name)


def _profile(evaluator: Evaluator, tier: Tier) -> str:
    """Which reload profile of the engine a tier uses."""
    reloads = evaluator.setting.engine.reloads
    for name in type(reloads).model_fields:
        own = getattr(reloads, name)
        if (own.fixed, own.rate_per_device) == (tier.reload.fixed, tier.reload.rate_per_device):
            return name
    return "host"


def _hop_places(evaluator: Evaluator, tier: Tier) -> list[str]:
    if tier.name in evaluator.setting.assumptions.deviations.tier_read:
        return ["assumptions:deviations"]
    if tier.name == "dram":
        return ["server:host.dram.bandwidth", "transfers:host_memory"]
    if tier.drive is not None:
        return ["drive:read", "server:nvme.count", "transfers:drive"]
    return ["server:tiers", "transfers:network"]


def _what(term: StateTerm) -> str:
    return {"kv": "KV", "index": "index keys", "conv": "convolution tail"}.get(term.dtype, "state")


def _slots(term: StateTerm) -> str:
    if term.constant:
        return ""
    kept = "T" if term.cap is None else f"min(T, {term.cap:,})"
    return f"{kept} x " if term.stride == 1 else f"floor({kept}/{term.stride:,}) x "
