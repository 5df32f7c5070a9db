"""A whole estimate over again: slow, scalar, in plain Python numbers, and without any of llmcap.

Written from the formulas of docs/theory.md. It walks through layers one by one, prefill steps one by one, output tokens
one by one and users one by one, where llmcap has closed forms over arrays. Two views of a prefill are kept apart:

- `documented`: what llmcap says it computes, with its stated approximations (each prompt's attention chunked from its
  own start; the keys in sight of a windowed layer bounded by steps x reach; decode at the mean number of attended
  slots; pipeline fill at the mean step; prompts finishing evenly spaced);
- `stepwise`: the same machine walked through step by step without them.

Covered: GQA over full, sliding and chunked scopes, MLA, dense and expert layers; TP, PP, DP, EP, CP; one or several
servers; the assumption sets ideal, calibrated and as-published.
"""

from __future__ import annotations

import math
from functools import cached_property
from itertools import pairwise
from typing import Any

from tests.oracle.layer_oracle import Doc, attention_widths, layer_parameters, local_matrices, seen, state_terms
from tests.oracle.operator_oracle import Case, Cost, Operators, banded, joined
from tests.oracle.plain_documents import number

__all__ = ["Case", "Oracle", "mean_ttft", "summary"]


class Oracle(Operators):
    """An estimate of one case."""

    # -- weights and state ---------------------------------------------------------------------------------------------

    @cached_property
    def parameters(self) -> dict[str, int]:
        m = self.model
        count: dict[str, int] = {"embedding": m["vocab_size"] * m["hidden_size"], "norm": m["hidden_size"]}
        count["lm_head"] = 0 if m.get("tie_embeddings") else m["vocab_size"] * m["hidden_size"]
        for layer in self.layers:
            for block in layer:
                count["norm"] += m["hidden_size"]
                for name, n in layer_parameters(block, m["hidden_size"]).items():
                    count[name] = count.get(name, 0) + n
        return count

    @property
    def weight_bytes(self) -> float:
        return sum(n * self.weight_width(c) for c, n in self.parameters.items())

    @property
    def weight_bytes_per_device(self) -> float:
        c, m = self.case, self.model
        body = m["hidden_size"] * self.weight_width("norm")
        for layer in self.layers:
            for block in layer:
                body += m["hidden_size"] * self.weight_width("norm")
                for matrix in local_matrices(block, m["hidden_size"], c.tp):
                    body += matrix.k * matrix.n * self.weight_width(matrix.weight_class)
                counts = layer_parameters(block, m["hidden_size"])
                body += counts.get("norm", 0) * self.weight_width("norm")
                body += counts.get("expert", 0) * self.weight_width("expert") / math.lcm(c.tp, c.ep)
        end = m["vocab_size"] * m["hidden_size"] / c.tp
        first = end * self.weight_width("embedding")
        last = 0.0 if m.get("tie_embeddings") else end * self.weight_width("lm_head")
        return body / c.pp + (first + last if c.pp == 1 else max(first, last))

    def state(self, tokens: int) -> float:
        total = 0.0
        for elements, _, cap in self._states():
            total += elements * self.width(self.kv) * min(tokens, cap)
        return total

    def marginal(self, tokens: int) -> float:
        return sum(e * self.width(self.kv) for e, _, cap in self._states() if tokens < cap)

    def reserved(self, tokens: int, tp: int) -> float:
        block = int(number(self.engine["kv_block"]))
        total = 0.0
        for elements, heads, cap in self._states():
            slots = tokens if self.case.kv_policy == "all-full" else min(tokens, cap)
            slots = -(-slots // block) * block
            copies = tp * math.ceil(heads / tp) / heads
            total += elements * self.width(self.kv) * slots * copies
        return total

    def _states(self) -> list[tuple[int, int, float]]:
        """(elements per token, pieces it divides into, most tokens kept) of every layer."""
        found = []
        for layer in self.layers:
            for elements, heads, cap in state_terms(layer[0]):
                if self.deviations.get("state_of_full_layers_only") and math.isfinite(cap):
                    continue
                if (instead := self.deviations.get("kv_heads")) is not None:
                    elements, heads = elements // heads * instead, instead
                found.append((elements, heads, cap))
        return found

    @cached_property
    def pool(self) -> float:
        e = self.engine
        usable = number(self.device["memory"]["capacity"]) * e["memory_share"] - number(e["memory_fixed"])
        return usable - self.weight_bytes_per_device - self.work_space

    @property
    def work_space(self) -> float:
        """4 residual rows and 2 of the widest output, in bf16, for every token of a step."""
        c, hidden = self.case, self.model["hidden_size"]
        widest = 0.0
        for layer in self.layers:
            for block in layer:
                widest = max([widest, *(matrix.n for matrix in local_matrices(block, hidden, c.tp))])
                if block["kind"] == "moe":
                    slices = c.tp // math.gcd(c.tp, c.ep)
                    widest = max(widest, 3.0 * block["top_k"] * block["intermediate"] / slices)
        return 2.0 * (4.0 * hidden + 2.0 * widest) * self.chunk / c.cp

    # -- attention in prefill ------------------------------------------------------------------------------------------

    def scope(self, block: Doc) -> tuple[str, float]:
        """Scope and window of a mixer, as the assumption set sees it."""
        return block.get("scope", "full"), float(block.get("window", math.inf))

    def prefill_attention(
        self, block: Doc, flop_pairs: float, rows: float, keys: float, queries: float, launches: float, end: float
    ) -> Cost:
        """One layer; pairs, rows in sight and keys read are those of all prompts, whole replica."""
        c = self.case
        heads = block["heads"] / c.tp
        qk, v, elements, pieces = attention_widths(block)
        slot = elements * math.ceil(pieces / c.tp) / pieces * self.width(self.kv)
        P = self.peak(self.attention)
        flop = flop_pairs * 2.0 * (qk + v) * heads / c.cp / P
        moved = queries / c.cp * heads * (qk * self.width(self.attention) + 2.0 * v) + keys * slot / c.cp
        if self.calibrated and c.cp > 1:  # all partial outputs but the first are written and read once more
            moved += (c.cp - 1) * 2 * 2.0 * queries / c.cp * heads * v
        byte = moved / self.W
        if not self.calibrated:
            t = Cost(flop, byte, 0.0, 0.0, 0.0, 0.0, flop, byte)
            if c.cp > 1:
                t.add(self.ring(*self.ring_bytes(block, keys, queries), 0.0, 0.0))
            return t
        fit = self.fit("prefill_attention", self.attention)
        # A unit as fast as an H100's works on one tile of 128 queries, a faster one on more in proportion.
        at_once = max(self.peaks["bf16"] / self.units / (989e12 / 132.0), 1.0)
        tail = fit["tail"] * rows / c.cp / 128.0 * self.units * at_once * 2.0 * (qk + v) * 128.0 * 128.0
        t = banded(
            fit, (flop * P + tail) / (fit["e"] * P), byte / fit["w"], 0.0, launches * c.cp * fit["t0"], flop, byte
        )
        if (beyond := self.rules.get("extrapolation")) is not None:
            first, whole = number(beyond["measured_tokens"]), number(beyond["full_at_tokens"])
            ramp = min(max(math.log(end / first) / math.log(whole / first), 0.0), 1.0)
            t.parts[4] *= 1.0 - (1.0 - beyond["low"]) * ramp
            t.parts[5] *= 1.0 + (beyond["high"] - 1.0) * ramp
        if c.cp > 1:
            t.add(self.ring(*self.ring_bytes(block, keys, queries), t.parts[0] + t.parts[1], launches))
        return t

    def ring_bytes(self, block: Doc, keys: float, queries: float) -> tuple[float, float, float]:
        """Of one rank: keys and values a hop, queries a hop, partial outputs of all ranks' shares of the queries."""
        c = self.case
        qk, v, elements, pieces = attention_widths(block)
        slot = elements * math.ceil(pieces / c.tp) / pieces * self.width(self.kv)
        own = queries / c.cp * block["heads"] / c.tp
        return keys * slot / c.cp, own * qk * self.width(self.attention), own * (2.0 * v + 4.0) * c.cp

    # -- prefill -------------------------------------------------------------------------------------------------------

    def steps(self, users: int, new: int) -> list[list[tuple[int, int, int]]]:
        """Prompts packed into steps in order: per step, (user, first new token, tokens) segments."""
        if not self.calibrated:
            return [[(u, 0, new) for u in range(users)]]
        found: list[list[tuple[int, int, int]]] = [[]]
        room = self.chunk
        for user in range(users):
            done = 0
            while done < new:
                if room == 0:
                    found.append([])
                    room = self.chunk
                take = min(room, new - done)
                found[-1].append((user, done, take))
                done, room = done + take, room - take
        return found

    def prefill(self, users: int, new: int, cached: int) -> Cost:
        """As documented: token work step by step, attention of each prompt in chunks from its own start."""
        if new == 0:
            return Cost()
        c = self.case
        steps = self.steps(users, new)
        total = Cost()
        for step in steps:
            total.add(self.token_work(sum(n for _, _, n in step) / c.cp, "prefill"))
        total.add(self.embedding(users * new / c.cp, len(steps)))
        chunk = self.chunk if self.calibrated else new
        for layer in self.layers:
            mixer = layer[0]
            scope, window = self.scope(mixer)
            pairs, ends = 0.0, 0.0
            count = 0
            for start in range(0, new, chunk):
                n = min(chunk, new - start)
                pairs += seen(scope, window, cached + start, n)
                ends += cached + start + n
                count += 1
            if self.deviations.get("every_layer_full"):
                pairs = seen("full", math.inf, cached, new)
            if self.deviations.get("causal") is False:
                pairs = float(new * (cached + new))
            end = cached + new
            rows = ends if math.isinf(window) else min(ends, count * min(end, window))
            keys = ends if math.isinf(window) else min(ends, count * min(end, window + min(new, chunk)))
            total.add(
                self.prefill_attention(
                    mixer, users * pairs, users * rows, users * keys, float(users * new), len(steps), end
                )
            )
        batches = min(users, len(steps))
        total.add(self.logits(users / batches), batches)
        if c.pp > 1:
            fill = (c.pp - 1) / c.pp / max(users * new / self.chunk, 1.0) if self.calibrated else 0.0
            parts = [p * (1.0 / c.pp + fill) for p in total.parts]
            parts[6:] = [total.parts[6] / c.pp, total.parts[7] / c.pp]
            total.parts = parts
        return total

    def prefill_stepwise(self, users: int, new: int, cached: int) -> tuple[float, list[float]]:
        """Without approximations, calibrated, pp stages of equal depth: (seconds, time at which each user is done)."""
        c = self.case
        finish = [0.0] * c.pp
        done = [0.0] * users
        for step in self.steps(users, new):
            cost = Cost()
            m = sum(n for _, _, n in step)
            cost.add(self.token_work(m / c.cp, "prefill"))
            cost.add(self.embedding(m / c.cp, 1.0))
            for layer in self.layers:
                scope, window = self.scope(layer[0])
                pairs = sum(seen(scope, window, cached + s, n) for _, s, n in step)
                rows = sum(min(longest(scope, window, cached + s, n), cached + s + n) for _, s, n in step)
                keys = sum(touched_keys(scope, window, cached + s, n) for _, s, n in step)
                cost.add(self.prefill_attention(layer[0], pairs, rows, keys, float(m), 1.0, cached + new))
            last = [u for u, s, n in step if s + n == new]
            if last:
                cost.add(self.logits(float(len(last))))
            ready = 0.0
            for stage in range(c.pp):
                ready = max(ready, finish[stage]) + cost.serial / c.pp
                finish[stage] = ready
            for u in last:
                done[u] = finish[-1]
        return finish[-1], done

    def seconds(self, cost: Cost) -> float:
        if self.calibrated:
            return cost.serial
        s = self.shares
        return max(
            cost.parts[0] / s.get("compute", 1.0),
            cost.parts[1] / s.get("memory", 1.0),
            cost.parts[2] / s.get("network", 1.0),
        )

    # -- decode --------------------------------------------------------------------------------------------------------

    def decode(self, users: int, context: int, output: int) -> Cost:
        """A step at the mean number of attended slots, the mean taken output token by output token."""
        steps = max(output - 1, 1)
        sums = [0.0] * len(self.layers)
        for token in range(steps):
            for i, layer in enumerate(self.layers):
                sums[i] += seen(*self.scope(layer[0]), context + token, 1)
        return self.decode_step(users, [s / steps for s in sums])

    def decode_stepwise(self, users: int, context: int, output: int) -> float:
        """Mean over output tokens of each one's own time."""
        total = 0.0
        for token in range(output - 1):
            slots = [seen(*self.scope(layer[0]), context + token, 1) for layer in self.layers]
            total += self.seconds(self.decode_step(users, slots))
        return total / (output - 1)

    def decode_step(self, users: int, slots: list[float]) -> Cost:
        c = self.case
        m = max(users / c.pp, 1.0)
        total = Cost()
        total.add(self.token_work(m, "decode"))
        total.add(self.embedding(m, 1.0))
        total.add(self.logits(m))
        for layer, attended in zip(self.layers, slots, strict=True):
            block = layer[0]
            heads = block["heads"] / c.tp
            qk, v, elements, pieces = attention_widths(block, absorbed=True)
            if c.cp > 1:  # every rank holds a part of the keys: partial outputs are summed over them
                summed = self.collective("all_reduce", m * heads * (2.0 * v + 4.0), c.cp, c.tp * c.cp)
                factor = self.kernels.get("decode_all_reduce", 1.0) if self.calibrated else 1.0
                total.add(summed.scaled(factor, 1.0) if self.calibrated else summed)
            P = self.peak("bf16" if self.calibrated else self.attention)
            flop = m * attended * 2.0 * (qk + v) * heads / c.cp / P
            slot = elements * math.ceil(pieces / c.tp) / pieces * self.width(self.kv)
            byte = m * attended * slot / c.cp / self.W
            if not self.calibrated:
                total.add(Cost(flop, byte, 0.0, 0.0, 0.0, 0.0, flop, byte))
                continue
            fit = self.fit("decode_attention", "fp8" if self.width(self.kv) <= 1.0 else "bf16")
            compute, memory = joined(flop / fit["e"], byte / fit["w"])
            t = banded(fit, compute, memory, 0.0, fit["t0"], flop, byte)
            total.add(t.scaled(self.kernels.get("decode_attention", 1.0), self.launches("decode")))
        return total


def longest(scope: str, window: float, first: int, n: int) -> float:
    """Keys that the best-sighted query among tokens first .. first + n - 1 sees."""
    if scope == "full":
        return float(first + n)
    if scope == "sliding":
        return min(first + n, window)
    edges = [first, *range(math.ceil((first + 1) / window) * int(window), first + n, int(window)), first + n]
    return max((b - 1) % window + 1 for _, b in pairwise(edges))


def touched_keys(scope: str, window: float, first: int, n: int) -> float:
    """Distinct keys that tokens first .. first + n - 1 see."""
    if scope == "full":
        return float(first + n)
    if scope == "sliding":
        return first + n - max(0, first - window + 1)
    return float(first + n - first // window * window)


def summary(case: Case) -> dict[str, Any]:
    """Results under the names of columns."""
    o, c = Oracle(case), case
    tokens = c.context + c.output
    reserved = o.reserved(tokens, c.tp)
    on_device = reserved / (c.tp * c.pp * c.cp)
    found: dict[str, Any] = {
        "kv_bytes_per_token": o.marginal(tokens),
        "kv_bytes_per_user": o.state(tokens),
        "kv_bytes_total": c.users * o.state(tokens),
        "kv_bytes_total_reserved": c.users * reserved,
        "weight_bytes": o.weight_bytes,
        "weight_bytes_per_device": o.weight_bytes_per_device,
        "max_users_hbm": math.floor(max(o.pool, 0.0) / on_device) * c.dp,
        "fits": o.pool >= o.fullest * on_device,
    }
    free = c.devices * o.pool - c.users * reserved
    found["hbm_free_bytes"] = free if found["fits"] else min(free, c.devices * (o.pool - o.fullest * on_device))
    if not found["fits"]:
        return found
    new = c.context - c.cached
    prefill = o.prefill(o.fullest, new, c.cached)
    decode = o.decode(o.fullest, c.context, c.output)
    t, tpot = o.seconds(prefill), o.seconds(decode)
    after = c.output - 1
    busy = c.users / (c.dp * o.fullest)
    found |= {"prefill_s": t, "ttft_s": t, "e2el_s": t + after * tpot, "mfu": prefill.parts[6] * busy / t}
    found["tpot_s"] = tpot if after else None
    found["mbu"] = decode.parts[7] * busy * min(o.fullest / c.pp, 1.0) / tpot if after else None
    found["output_tok_per_s"] = c.users * c.output / (t + after * tpot)
    found["ttft_mean_s"] = mean_ttft(o, new, t)
    found["ttft_low_s"], found["ttft_high_s"] = prefill.parts[4:6] if o.calibrated else (None, None)
    names = ("compute", "memory", "network", "overhead")
    if o.calibrated:
        shares = [prefill.parts[i] + after * decode.parts[i] for i in range(4)]
    else:
        shares = [0.0] * 4
        for cost, s in ((prefill, t), (decode, after * tpot)):
            scaled = [cost.parts[i] / o.shares.get(n, 1.0) for i, n in enumerate(names[:3])]
            shares[scaled.index(max(scaled))] += s
    found["limit"] = names[shares.index(max(shares))]
    return found


def mean_ttft(o: Oracle, new: int, last: float) -> float:
    """User by user: replicas are filled evenly, prompts (or groups that share a step) finish evenly spaced."""
    total = 0.0
    for replica in range(o.case.dp):
        users = o.case.users // o.case.dp + (replica < o.case.users % o.case.dp)
        if not users:
            continue
        steps = math.ceil(users * new / o.chunk) if o.calibrated else users
        groups = max(min(users, steps), 1)
        whole = last * users / o.fullest
        # The pipeline's fill, before anyone is done.
        fill = (o.case.pp - 1) / max(users * new / o.chunk, 1.0) if o.calibrated else 0.0
        for group in range(groups):
            total += users / groups * whole * ((group + 1) / groups + fill) / (1.0 + fill)
    return total / o.case.users
