"""Reload against recompute over again, scalar: paths hop by hop, the best split by search, the break-even by trial."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.oracle.estimate_oracle import Oracle
from tests.oracle.plain_documents import number, read


@dataclass(frozen=True)
class Path:
    """A tier's rates: of the hops that all users share, and of one replica's own links; and the fixed cost."""

    capacity: float
    nominal: float
    shared: float
    replica: float
    fixed: float
    kept: str = "once"


def rate_of(nominal: float, eff: float, t0: float, members: int, block: float) -> float:
    """Members side by side, each moving one block after another."""
    return members * block / (t0 + block / (nominal / members * eff))


def path(o: Oracle, tier: str) -> Path:
    c, server = o.case, o.server
    reloads, links = o.engine["reloads"], o.links
    behaviour = {
        name: {k: number(v) for k, v in links[name].items()} for name in ("device_link", "host_memory", "drive")
    }
    slot = number(server.get("host_link") or o.device["host_link"])
    dram = number(server["host"]["dram"]["bandwidth"]) * o.servers
    copies = o.reserved(2**20, c.tp) / o.reserved(2**20, 1)
    if tier == "dram":
        profile, latency = reloads["host"], 0.0
        capacity = number(server["host"]["dram"]["capacity"]) * o.servers
        hops = [dram]
        block = number(profile["block"])
        h = behaviour["host_memory"]
        shared = rate_of(dram, h["efficiency"], h["per_transfer"], 1, block)
    else:
        assert server["direct_storage"]
        profile = reloads["storage"]
        drive = read("hardware/drives", server["nvme"]["drive"])
        members = server["nvme"]["count"] * o.servers
        capacity, latency = number(drive["capacity"]) * members, number(drive.get("latency", 0.0))
        total = number(drive["read"]) * members
        hops = [total]
        block = number(profile["block"])
        d = behaviour["drive"]
        shared = rate_of(total, d["efficiency"], d["per_transfer"], members, block)
        # Little: transfers in flight, each waiting for the drive and then for its own bytes.
        each = d["per_transfer"] + block / (total / members * d["efficiency"])
        shared = min(shared, profile["in_flight"] * c.devices * block / (latency + each))
        shared = min(shared, number(drive["random_read"]) * members * block)
    link = behaviour["device_link"]
    own = slot if o.ideal_transfers else rate_of(slot, link["efficiency"], link["per_transfer"], 1, block)
    if "rate_per_device" in profile and not o.ideal_transfers:
        own = min(own, number(profile["rate_per_device"]))
    replica = own * c.tp * c.pp * c.cp / copies
    nominal = min(*hops, slot * c.devices)
    if (asked := o.deviations.get("tier_read", {}).get(tier)) is not None:
        return Path(capacity, number(asked), number(asked), math.inf, 0.0)
    if o.ideal_transfers:
        return Path(capacity, nominal, min(hops), replica, 0.0)
    shared /= stored(o, 2**20, profile.get("latent_read", "once"))
    fixed = number(profile["fixed"]) + latency
    return Path(capacity, nominal, shared, replica, fixed, profile.get("latent_kept", "once"))


def stored(o: Oracle, tokens: int, latent: str) -> float:
    """Bytes that all ranks store (or read) of a sequence, over its logical bytes: rank by rank, layer by layer."""
    if o.ideal_transfers:
        return 1.0
    whole = parts = 0.0
    for (elements, heads, cap), layer in zip(o._states(), o.layers, strict=True):
        kept = elements * min(tokens, cap)
        whole += kept
        once = layer[0]["kind"] == "mla" and latent == "once"
        parts += kept if once else sum(kept * math.ceil(heads / o.case.tp) / heads for _ in range(o.case.tp))
    return parts / whole


@dataclass(frozen=True)
class TierOracle:
    o: Oracle
    p: Path

    def moved(self, tokens: int) -> float:
        """Bytes of one user's prefix that travel."""
        return self.o.reserved(tokens, 1) if self.o.case.kv_policy == "all-full" else self.o.state(tokens)

    @property
    def rate(self) -> float:
        return min(self.p.shared, self.o.case.users / self.o.fullest * self.p.replica)

    def reload(self, tokens: int) -> float:
        return self.p.fixed + self.o.case.users * self.moved(tokens) / self.rate

    def prefill(self, new: int, cached: int) -> float:
        return self.o.seconds(self.o.prefill(self.o.fullest, new, cached))

    def load_behind(self, x: int, prefix: int) -> float:
        """Load of what follows the first x tokens: what grows with length is spared, windows always travel."""
        far = 2**40
        growing = (self.moved(far * 2) - self.moved(far)) / far
        return self.p.fixed + self.o.case.users * max(self.moved(prefix) - growing * x, 0.0) / self.rate

    def split(self, x: int, prefix: int) -> float:
        """The first x tokens computed while the others are loaded."""
        return max(self.prefill(x, 0), self.load_behind(x, prefix))

    def best_split(self, prefix: int) -> float:
        """Compute rises with x, load falls: the best is where they meet, or one token before."""
        low, high = 0, prefix
        while high - low > 1:
            x = (low + high) // 2
            if self.prefill(x, 0) > self.load_behind(x, prefix):
                high = x
            else:
                low = x
        return min(self.split(low, prefix), self.split(high, prefix))

    def columns(self) -> dict[str, float | str | None]:
        c = self.o.case
        prefix = c.cached or c.context
        new = c.context - prefix
        rest = self.prefill(new, prefix) if new else 0.0
        recompute = self.prefill(c.context, 0)
        reload = self.reload(prefix)
        ttft = reload + rest
        moving = reload - self.p.fixed
        layers = len(self.o.layers)
        overlap = self.p.fixed + max(moving, rest) + min(moving, rest) / layers
        saved = recompute - rest
        return {
            "capacity_bytes": self.p.capacity,
            "read_bytes_per_s": self.p.nominal,
            "effective_read_bytes_per_s": self.rate,
            "users_held": math.floor(
                self.p.capacity
                / (self.o.state(c.context + c.output) * stored(self.o, c.context + c.output, self.p.kept))
            ),
            "reload_s": reload,
            "ttft_reload_s": ttft,
            "ttft_overlap_s": min(overlap, ttft),
            "ttft_hybrid_s": min(ttft, recompute, self.best_split(prefix) + rest),
            "recompute_s": recompute,
            "speedup": recompute / ttft,
            "winner": "reload" if ttft < recompute else "recompute",
            "break_even_bytes_per_s": c.users * self.moved(prefix) / saved if saved > 0.0 else None,
        }

    def reload_wins(self, prefix: int) -> bool:
        """With this prefix instead, the new tokens held fixed."""
        c = self.o.case
        new = c.context - c.cached if c.cached else 0
        rest = self.prefill(new, prefix) if new else 0.0
        return self.reload(prefix) + rest < self.prefill(prefix + new, 0)
