"""Paths of tiers: more of anything is never slower, and bounds hold."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmcap.engine.queueing import delay, quantile
from llmcap.engine.transfer import Link, link_rate, path_rate

LINKS = st.builds(
    Link,
    st.just("hop"),
    st.floats(1e8, 1e13),
    st.floats(0.0, 1e-3),
    st.floats(0.05, 1.0),
    st.integers(1, 64),
    st.none() | st.floats(1e3, 1e9),
    st.floats(1.0, 8.0),
    st.none() | st.floats(1.0, 1e4),
    st.floats(0.0, 0.1),
)
BLOCKS = st.floats(512, 1e9)
FACTORS = st.floats(1.0, 100.0)
SLACK = 1 - 1e-9


@given(LINKS, BLOCKS, FACTORS)
def test_larger_blocks_are_never_slower(link: Link, block: float, factor: float) -> None:
    assert link_rate(link, block * factor, ideal=False) >= link_rate(link, block, ideal=False) * SLACK


@given(LINKS, BLOCKS, FACTORS)
def test_a_better_link_is_never_slower(link: Link, block: float, factor: float) -> None:
    rate = link_rate(link, block, ideal=False)
    better = [
        replace(link, bandwidth=link.bandwidth * factor),
        replace(link, per_transfer=link.per_transfer / factor),
        replace(link, latency=link.latency / factor),
        replace(link, operations=None),
        replace(link, in_flight=None),
        replace(link, in_flight=None if link.in_flight is None else link.in_flight * factor),
    ]
    assert all(link_rate(other, block, ideal=False) >= rate * SLACK for other in better)


@given(LINKS, BLOCKS)
def test_nothing_is_faster_than_ideal(link: Link, block: float) -> None:
    assert 0.0 < link_rate(link, block, ideal=False) <= link_rate(link, block, ideal=True) / SLACK


@given(st.lists(LINKS, min_size=1, max_size=4), LINKS, BLOCKS)
def test_a_further_hop_is_never_faster(path: list[Link], hop: Link, block: float) -> None:
    assert path_rate((*path, hop), block, ideal=False)[0] <= path_rate(tuple(path), block, ideal=False)[0]


@given(st.floats(1e-3, 0.98), st.floats(1e-6, 1e3), st.sampled_from(["fcfs", "sharing"]))
def test_waits_scale_with_the_service_and_grow_with_the_load(rho: float, service: float, discipline: str) -> None:
    one = delay(rho, 1.0, discipline)  # type: ignore[arg-type]
    scaled = delay(rho / service, service, discipline)  # type: ignore[arg-type]
    busier = delay(min(rho * 1.01, 0.99), 1.0, discipline)  # type: ignore[arg-type]
    assert abs(float(scaled.mean) / service / float(one.mean) - 1) < 1e-6
    assert float(one.variance) >= 0.0
    assert float(busier.mean) >= float(one.mean)
    assert float(quantile(busier)) >= float(quantile(one)) * SLACK
