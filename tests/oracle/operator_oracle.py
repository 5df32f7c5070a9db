"""Operators of a step, one by one, on one device: the documents read as plain data, the formulas of docs/theory.md."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tests.oracle.layer_oracle import BYTES, NARROW, WIDE, Doc, elementwise, layers_of, local_matrices
from tests.oracle.plain_documents import number, read


@dataclass(frozen=True)
class Case:
    model: str
    hardware: str = "dgx-b200"
    devices: int = 8
    tp: int = 8
    pp: int = 1
    dp: int = 1
    ep: int = 1
    cp: int = 1
    users: int = 1
    context: int = 1000
    cached: int = 0
    output: int = 10
    weight_dtype: str | None = None
    activation_dtype: str | None = None
    kv_dtype: str | None = None
    kv_policy: str = "hybrid"
    assumptions: str = "calibrated"
    chunk_tokens: int | None = None
    engine: str = "vllm"


class Cost:
    """compute, memory, network, overhead, low, high, FLOP at peak, bytes at peak: seconds each."""

    def __init__(self, *parts: float) -> None:
        self.parts = list(parts) + [0.0] * (8 - len(parts))

    def add(self, other: Cost, times: float = 1.0) -> None:
        self.parts = [a + b * times for a, b in zip(self.parts, other.parts, strict=True)]

    @property
    def serial(self) -> float:
        return sum(self.parts[:4])

    def scaled(self, work: float, launch: float) -> Cost:
        """Work and launches times a factor each, the band in proportion."""
        parts = [*(p * work for p in self.parts[:3]), self.parts[3] * launch]
        ratio = sum(parts) / self.serial if self.serial else 1.0
        return Cost(*parts, self.parts[4] * ratio, self.parts[5] * ratio, *self.parts[6:])


def banded(
    fit: Doc, compute: float, memory: float, network: float, overhead: float, flop: float = 0.0, byte: float = 0.0
) -> Cost:
    t = compute + memory + network + overhead
    return Cost(compute, memory, network, overhead, t * min(fit["low"], 1.0), t * max(fit["high"], 1.0), flop, byte)


def joined(a: float, b: float) -> tuple[float, float]:
    """Two resources that overlap in part, split in proportion to their squares."""
    both = math.hypot(a, b)
    return (a * a / both, b * b / both) if both else (0.0, 0.0)


class Operators:
    """A case's documents and dtypes, and the cost of everything but attention in a step."""

    def __init__(self, case: Case) -> None:
        self.case = c = case
        self.model = read("models", c.model)
        self.server = read("hardware/servers", c.hardware)
        self.device = read("hardware/devices", self.server["device"])
        self.fits = read("hardware/calibration", self.device["calibration"])
        self.engine = read("engines", c.engine)
        self.links = read("hardware/transfers", "default")
        self.rules = read("assumptions", c.assumptions)
        self.calibrated = self.rules["times"] == "calibrated"
        self.ideal_transfers = bool(self.rules.get("ideal_transfers"))
        self.deviations: Doc = self.rules.get("deviations", {})
        self.shares: Doc = self.rules.get("roofline", {})
        self.chunk = c.chunk_tokens or int(number(self.engine["chunk_tokens"]))
        self.layers = layers_of(self.model)
        self.servers = math.ceil(c.devices / self.server["devices"])
        self.peaks = {d: number(p) for d, p in self.device["peaks"].items()}
        self.W = number(self.device["memory"]["bandwidth"])
        self.units = self.device["compute_units"]
        self.fullest = math.ceil(c.users / c.dp)
        self.kernels: Doc = self.engine.get("kernels", {})
        self.family: Doc = self.kernels.get("families", {}).get(self.device["family"], {})
        self._memo: dict[tuple[float, str], Cost] = {}
        # dtypes
        default = c.weight_dtype or self.model.get("weight_dtype", "bf16")
        kept: dict[str, str] = dict(self.model.get("weight_dtypes", {}))
        if c.weight_dtype is not None and c.weight_dtype not in NARROW:
            kept = {}
        elif default in NARROW:
            kept = {"embedding": "bf16", "lm_head": "bf16", "norm": "bf16", "router": "bf16"} | kept
        self.kept, self.default = kept, default
        pinned = [d for _, d in sorted(kept.items()) if d in NARROW]
        bulk = default if default in NARROW or not pinned else pinned[0]
        runs = bulk if bulk in self.peaks and bulk not in ("mxfp4", "int4") else "bf16"
        self.activation = c.activation_dtype or runs
        self.kv = c.kv_dtype or ("fp8" if default in NARROW else "bf16")
        wanted = "fp8" if self.kv in ("nvfp4", "mxfp4", "int4") else self.kv
        self.attention = wanted if wanted in self.peaks and wanted != "int8" else "bf16"

    def stored(self, weight_class: str) -> str:
        return self.kept.get(weight_class, self.default)

    def width(self, dtype: str) -> float:
        return 0.5 + 2.0 / self.model.get("int4_group", 32) if dtype == "int4" else BYTES[dtype]

    def weight_width(self, weight_class: str) -> float:
        return self.width(self.stored(weight_class))

    def runs_in(self, dtype: str) -> str:
        return dtype if dtype in WIDE else self.activation

    # -- operators -----------------------------------------------------------------------------------------------------

    def peak(self, dtype: str) -> float:
        if not self.calibrated:
            dtype = self.shares.get("peak_dtype", dtype)
        return self.peaks[dtype]

    def fit(self, operator: str, dtype: str) -> dict[str, float]:
        table = self.fits[operator]
        order = {"fp16": ["bf16"], "fp32": ["bf16"], "int8": ["fp8", "bf16"], "nvfp4": ["fp8", "bf16"], "fp8": ["bf16"]}
        name = next(d for d in [dtype, *order.get(dtype, [])] if d in table)
        return {k: number(v) for k, v in table[name].items()}

    def launches(self, phase: str) -> float:
        """Share of the launch floors that shows: a captured decode step hides some."""
        return float(self.kernels.get("launch_share", 1.0)) if phase == "decode" else 1.0

    def products(self, phase: str) -> float:
        """The engine's factor on all products of a phase."""
        return float(self.kernels.get("prefill_products", 1.0)) if phase == "prefill" else 1.0

    def gemm(self, m: float, k: float, n: float, weight_class: str, phase: str | None = None) -> Cost:
        stored = self.stored(weight_class)
        runs = self.runs_in(stored)
        flop = 2.0 * m * k * n / self.peak(runs)
        weights = k * n * self.width(stored)
        rows = m * (k * self.width(runs) + 2.0 * n)
        byte = (weights + rows) / self.W
        if not self.calibrated:
            return Cost(flop, byte, 0.0, 0.0, 0.0, 0.0, flop, byte)
        if self.width(stored) < self.width(runs):
            fit = {key: number(v) for key, v in self.fits["weight_only"].items()}
        else:
            fit = self.fit("gemm", runs)
        x = m * n / (self.units * 128.0 * 128.0)
        compute, memory = joined(flop / fit["e"] * (1.0 + fit["x0"] / x), weights / (fit["w"] * self.W))
        t = banded(fit, compute, memory + rows / (fit["a"] * self.W), 0.0, fit["t0"], flop, byte)
        if phase is None:
            return t
        own = self.family.get("gemm", {}).get(runs, {}).get(phase, 1.0)
        return t.scaled(own * self.products(phase), self.launches(phase))

    def experts(self, m: float, block: Doc, phase: str) -> Cost:
        c, hidden = self.case, self.model["hidden_size"]
        stored = self.stored("expert")
        runs = self.runs_in(stored)
        group = math.lcm(c.tp, c.ep)
        tokens = m * (group // c.tp)
        E, k, inner = block["experts"], float(block["top_k"]), block["intermediate"]
        parameters = 3 * hidden * inner
        touched = float(E) if k >= E else E * (1.0 - math.exp(tokens * math.log(1.0 - k / E)))
        flop = tokens * 2.0 * k * parameters / group / self.peak(runs)
        weights = touched * parameters * self.width(stored) / group
        slices = c.tp // math.gcd(c.tp, c.ep)
        b = self.width(runs)
        moved = 4.0 * hidden + k / (group // slices) * (hidden * (2.0 * b + 4.0) + inner / slices * (4.0 + 2.0 * b))
        byte = (weights + tokens * moved) / self.W
        if not self.calibrated:
            return Cost(flop, byte, 0.0, 0.0, 0.0, 0.0, flop, byte)
        key = runs
        if self.width(stored) < self.width(runs) and stored in ("int4", "mxfp4"):
            key = stored
            if stored == "mxfp4" and runs == "fp8":
                key = "mxfp4_fp8"
        fit = self.fit("moe", key)
        r = tokens * k / touched
        own: Doc = self.family.get("experts", {}).get(stored, {})
        padding, floor = fit["r0"], fit["t0"]
        if phase == "decode":  # tiles of 16 rows at the least
            padding = min(padding, r + 16.0)
            floor = number(own.get("launch", self.kernels.get("expert_launch", floor)))
        compute, memory = joined(flop / fit["e"] * (1.0 + padding / r), weights / (fit["w"] * self.W))
        t = banded(fit, compute, memory + tokens * moved / (fit["a"] * self.W), 0.0, floor, flop, byte)
        return t.scaled(own.get(phase, 1.0) * self.products(phase), 1.0)

    def stream(self, moved: float, launches: float = 1.0) -> Cost:
        byte = moved / self.W
        if not self.calibrated:
            return Cost(0.0, byte, 0.0, 0.0, 0.0, 0.0, 0.0, byte)
        s = self.engine["streams"]
        return banded(s, 0.0, byte / s["memory"], 0.0, launches * number(s["launch"]), 0.0, byte)

    def collective(self, kind: str, size: float, ranks: int, span: int) -> Cost:
        inside = span <= self.server["devices"]
        B = number(self.server["scale_up"]["bandwidth"]) if inside else self.nic_per_device
        ring = 2.0 * (ranks - 1) / ranks
        crossing = size * (ranks - 1) / ranks
        servers = min(math.ceil(span / self.server["devices"]), ranks)
        levels = kind == "all_reduce" and 1 < servers < ranks
        inner, each = number(self.server["scale_up"]["bandwidth"]), ranks / servers
        if not self.calibrated:
            moved = {"all_reduce": size * min(ring, 1.0 + 1.0 / ranks), "all_to_all": crossing, "send": size}[kind]
            if levels:
                within = min(2.0 - 2.0 / each, 1.0 + 1.0 / each) * size / inner
                return Cost(0.0, 0.0, max(within, min(2.0 - 2.0 / servers, 1.0 + 1.0 / servers) * size / each / B))
            return Cost(0.0, 0.0, moved / B)
        table = self.fits["collectives"]
        fit = {k: number(v) for k, v in table["all_gather" if kind == "send" else kind].items()}
        alpha = fit["alpha"] + fit["alpha_log2"] * math.log2(ranks)
        rate = fit["beta"] * B
        if kind == "send":
            return banded(fit, 0.0, 0.0, fit["alpha"] + size / rate, 0.0)
        if kind == "all_to_all":
            return banded(fit, 0.0, 0.0, alpha + crossing / rate, 0.0)
        switch = bool(table["all_reduce"]["in_switch"]) and inside and ranks > 2
        one = alpha + (ranks - 1) * size / rate
        two = fit["two_shot"] * alpha + ring * size / rate
        three = fit["switch"] * math.log2(ranks) + (1.0 + 1.0 / ranks) * size / rate if switch else math.inf
        four = math.inf
        if levels:  # gather inside each server, sum over the servers, spread inside
            a, k = fit["alpha"], fit["two_shot"]
            within = k * (a + fit["alpha_log2"] * math.log2(each)) + (2.0 - 2.0 / each) * size / (fit["beta"] * inner)
            latency = a + fit["alpha_log2"] * math.log2(servers)
            part = size / each / rate
            four = within + min(latency + (servers - 1) * part, k * latency + (2.0 - 2.0 / servers) * part)
        return banded(fit, 0.0, 0.0, min(one, two, three, four), 0.0)

    def all_reduce(self, size: float, phase: str) -> Cost:
        t = self.collective("all_reduce", size, self.case.tp, self.case.tp)
        if not self.calibrated:
            return t
        if phase == "prefill":
            return t.scaled(self.family.get("prefill_all_reduce", 1.0), 1.0)
        return t.scaled(self.kernels.get("decode_all_reduce", 1.0), 1.0)

    def ring(self, keys: float, queries: float, results: float, attention: float, launches: float) -> Cost:
        """Messages of ring attention over the context-parallel ranks that one layer's attention does not hide."""
        c = self.case
        inside = c.tp * c.cp <= self.server["devices"]
        B = number(self.server["scale_up"]["bandwidth"]) if inside else self.nic_per_device
        back = results * (c.cp - 1) / c.cp
        if not self.calibrated:
            return Cost(0.0, 0.0, min((c.cp - 1) * keys, (c.cp - 1) * queries + back) / B)
        fit = {k: number(v) for k, v in self.fits["collectives"]["all_gather"].items()}
        rate, beside = fit["beta"] * B, attention / c.cp
        pass_kv = pass_q = 0.0
        for _ in range(c.cp - 1):
            pass_kv += max(keys / rate - beside, 0.0)
            pass_q += max(queries / rate - beside, 0.0)
        return banded(fit, 0.0, 0.0, min(pass_kv, pass_q + back / rate), launches * (c.cp - 1) * fit["alpha"])

    @property
    def nic_per_device(self) -> float:
        cards = self.server["nics"]
        return number(read("hardware/nics", cards["nic"])["bandwidth"]) * cards["count"] / self.server["devices"]

    # -- a step --------------------------------------------------------------------------------------------------------

    def token_work(self, m: float, phase: str) -> Cost:
        """All that m tokens of a step need besides attention, logits and embedding, layer by layer."""
        key = (m, phase)
        if key not in (memo := self._memo):
            memo[key] = self._token_work(m, phase)
        found: Cost = memo[key]
        return found

    def _token_work(self, m: float, phase: str) -> Cost:
        c, hidden = self.case, self.model["hidden_size"]
        total = Cost()
        if self.calibrated:
            o = self.engine[phase]
            t = number(o["step"]) + number(o["layer"]) * len(self.layers)
            t += number(o.get("sequence", 0.0)) * (m if phase == "decode" else 1.0)
            t += number(o.get("latent", 0.0)) * sum(layer[0]["kind"] == "mla" for layer in self.layers)
            t += number(o.get("experts", 0.0)) * sum(layer[1]["kind"] == "moe" for layer in self.layers)
            total.add(Cost(0.0, 0.0, 0.0, t, t * o["low"], t * o["high"]))
        pooled = math.lcm(c.tp, c.ep) // c.tp
        row = hidden * 2.0
        for layer in self.layers:
            for block in layer:
                for matrix in local_matrices(block, hidden, c.tp):
                    total.add(self.gemm(m, matrix.k, matrix.n, matrix.weight_class, phase))
                move = self.stream(m * (elementwise(block) * 2.0 / c.tp + 4.0 * row))
                total.add(move.scaled(1.0, self.launches(phase)) if self.calibrated else move)
                if block["kind"] == "moe":
                    total.add(self.experts(m, block, phase))
                if block["kind"] == "moe" and pooled > 1:
                    group = math.lcm(c.tp, c.ep)
                    sent = m * block["top_k"] * hidden / c.tp
                    total.add(self.collective("all_to_all", sent * self.width(self.activation), group, group))
                    total.add(self.collective("all_to_all", sent * 2.0, group, group))
                elif c.tp > 1:
                    total.add(self.all_reduce(m * row, phase))
        if c.tp > 1:  # the vocabulary-parallel embedding
            total.add(self.all_reduce(m * row, phase))
        for _ in range(c.pp - 1):
            total.add(self.collective("send", m * row / c.tp, 2, c.tp * c.dp * c.cp * 2))
        return total

    def embedding(self, tokens: float, steps: float) -> Cost:
        hidden = self.model["hidden_size"]
        return self.stream(tokens * hidden * (self.weight_width("embedding") / self.case.tp + 2.0), steps)

    def logits(self, m: float) -> Cost:
        weight_class = "embedding" if self.model.get("tie_embeddings") else "lm_head"
        return self.gemm(m, float(self.model["hidden_size"]), self.model["vocab_size"] / self.case.tp, weight_class)
