"""Tiers against the slow twin: every column, the best split by brute force, and the break-even by trial."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache
from itertools import count, islice

import pytest

from tests.oracle.estimate_oracle import Case, Oracle
from tests.oracle.test_estimate import ask, differences, random_case
from tests.oracle.tier_oracle import TierOracle, path


@cache
def cases(n: int = 60, longest: int = 60_000) -> list[Case]:
    """Random cases that fit, not too long for a scalar search."""
    rng = random.Random(112)
    found = (random_case(rng) for _ in count())
    return list(islice((c for c in found if c.context <= longest and c.output <= 100 and ask(c).fits), n))


@pytest.mark.parametrize("block", range(4))
def test_columns_agree_with_the_slow_twin(block: int) -> None:
    wrong = {}
    for case in cases()[block::4]:
        o = Oracle(case)
        got = {t["tier"]: t for t in ask(case).tiers}
        for tier in ("dram", "nvme"):
            if found := differences(TierOracle(o, path(o, tier)).columns(), got[tier]):
                wrong[(case, tier)] = found
    assert not wrong


def test_both_winners_occur() -> None:
    winners = Counter(t["winner"] for case in cases() for t in ask(case).tiers[1:])
    assert min(winners["reload"], winners["recompute"]) >= 15


def test_no_split_beats_the_hybrid_and_some_split_attains_it() -> None:
    """Every whole x for short prefixes; chunk edges, their neighbours and random ones for long ones."""
    rng = random.Random(7)
    for case in cases()[:24]:
        o = Oracle(case)
        got = {t["tier"]: t for t in ask(case).tiers}
        prefix = case.cached or case.context
        rest = o.seconds(o.prefill(o.fullest, case.context - prefix, prefix)) if case.context > prefix else 0.0
        if prefix <= 120:
            xs = set(range(prefix + 1))
        else:
            edges = range(0, prefix, o.chunk)
            xs = {x for e in edges for x in (e, e + 1) if x <= prefix} | {rng.randint(0, prefix) for _ in range(25)}
        for tier in ("dram", "nvme"):
            t = TierOracle(o, path(o, tier))
            best = min(t.split(x, prefix) for x in xs) + rest
            best = min(best, got[tier]["ttft_reload_s"], got[tier]["recompute_s"])
            assert got[tier]["ttft_hybrid_s"] <= best * (1 + 1e-9), (case, tier)
            if prefix <= 120:
                assert got[tier]["ttft_hybrid_s"] >= best * (1 - 1e-9), (case, tier)


def test_break_even_tokens_is_where_reload_starts_to_win() -> None:
    """It wins there and at longer prefixes, and loses one token earlier."""
    rng = random.Random(9)
    seen = 0
    for case in cases()[:30]:
        o = Oracle(case)
        for row in ask(case).tiers[1:]:
            t = TierOracle(o, path(o, row["tier"]))
            edge = row["break_even_tokens"]
            if edge is None or edge > 60_000:
                continue
            seen += 1
            assert t.reload_wins(edge), (case, row)
            assert edge == 1 or not t.reload_wins(edge - 1), (case, row)
            for _ in range(4):
                assert t.reload_wins(rng.randint(edge, 2 * edge + 100)), (case, row)
    assert seen >= 15
