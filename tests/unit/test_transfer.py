"""Links, paths and splits worked by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from llmcap.engine.transfer import (
    Link,
    best_split,
    break_even_rate,
    dense_break_even_rule,
    link_rate,
    overlapped,
    path_rate,
    reload_bandwidth,
    reload_time,
)

#: PCIe Gen5 x16 as measured: 3.15 us a transfer, 51.5 GB/s beyond it (vLLM KV offloading post, figure 2, H100).
PCIE = Link("pcie", 64e9, 3.15e-6, 51.5 / 64)


@pytest.mark.parametrize(
    ("block", "measured", "tolerance"),
    [(2e6, 48e9, 0.02), (32e3, 7.5e9, 0.18), (64e3, 14e9, 0.10)],
)
def test_pcie_blocks_reach_the_measured_rates(block: float, measured: float, tolerance: float) -> None:
    """Read off the plot; the two-parameter curve holds from 64 KB up and is 16 % high at 32 KB."""
    assert link_rate(PCIE, block, ideal=False) == pytest.approx(measured, rel=tolerance)


def test_link_rate_by_hand() -> None:
    # 4 members of 10 GB/s at 80 %: a 1 MB block takes 25 us + 125 us, so 4 x 1 MB / 150 us = 26.67 GB/s.
    link = Link("drives", 40e9, 25e-6, 0.8, 4)
    assert link_rate(link, 1e6, ideal=False) == pytest.approx(4e6 / 150e-6)
    assert link_rate(link, 1e6, ideal=True) == 40e9


def test_operations_bound_small_blocks() -> None:
    # 100,000 operations a second of 4 KB are 0.4 GB/s, whatever the link.
    link = Link("drives", 40e9, operations=1e5)
    assert link_rate(link, 4e3, ideal=False) == pytest.approx(0.4e9)
    assert link_rate(link, 4e6, ideal=False) == pytest.approx(40e9)


def test_transfers_in_flight_hide_latency() -> None:
    # Little: 2 in flight, each 100 us of waiting + 100 us of 1 MB at 10 GB/s: 2 MB / 200 us = 10 GB/s, just the link's.
    link = Link("drive", 10e9, in_flight=2, latency=100e-6)
    assert link_rate(link, 1e6, ideal=False) == pytest.approx(10e9)
    one = Link("drive", 10e9, in_flight=1, latency=100e-6)
    assert link_rate(one, 1e6, ideal=False) == pytest.approx(5e9)


def test_copies_divide_the_logical_rate() -> None:
    assert link_rate(Link("host", 100e9, copies=2.0), 1e6, ideal=False) == pytest.approx(50e9)
    assert link_rate(Link("host", 100e9, copies=2.0), 1e6, ideal=True) == pytest.approx(50e9)


def test_the_narrowest_hop_counts() -> None:
    path = (Link("drives", 112e9), Link("host", 600e9, copies=2.0), Link("nic", 50e9))
    assert path_rate(path, 1e6, ideal=True) == (50e9, "nic")


def test_reload_time() -> None:
    assert float(reload_time(44.7e9, 44.7e9, 13e-3)) == pytest.approx(1.013)
    assert float(reload_time(0.0, 44.7e9, 13e-3)) == 0.0


def test_users_share_hops_but_not_their_replicas_links() -> None:
    assert float(reload_bandwidth(2, 1, 100.0, 30.0)) == 60.0  # two replicas, 30 each
    assert float(reload_bandwidth(8, 8, 100.0, 30.0)) == 30.0  # one replica
    assert float(reload_bandwidth(16, 2, 100.0, 30.0)) == 100.0  # eight replicas would take 240


def test_break_even_rate() -> None:
    assert float(break_even_rate(25e9, 0.5)) == 50e9
    assert math.isnan(float(break_even_rate(25e9, 0.0)))
    assert math.isnan(float(break_even_rate(25e9, -1.0)))


def test_overlap_by_layers() -> None:
    # 10 layers, 1 s of loading, 0.5 s of computing: the last layer's 0.05 s come after.
    assert float(overlapped(1.0, 0.5, 10)) == pytest.approx(1.05)
    assert float(overlapped(0.5, 1.0, 10)) == pytest.approx(1.05)
    assert float(overlapped(1.0, 0.5, 1)) == pytest.approx(1.5)
    # Layer by layer: a layer is computed once it is loaded and the one before is computed.
    load, compute, ready = 0.1, 0.05, 0.0
    for layer in range(10):
        ready = max(ready, (layer + 1) * load) + compute
    assert float(overlapped(1.0, 0.5, 10)) == pytest.approx(ready)


def test_best_split_by_hand() -> None:
    # 100 tokens, compute 2 s each, load 3 s each: 60 computed (120 s) while 40 load (120 s).
    p = np.array([100.0])
    assert best_split(p, lambda x: 2.0 * x, lambda x: 3.0 * (100.0 - x)).item() == 120.0
    # 7 tokens, 2 s and 3 s: x = 4 gives max(8, 9) = 9, x = 5 gives max(10, 6) = 10.
    assert best_split(np.array([7.0]), lambda x: 2.0 * x, lambda x: 3.0 * (7.0 - x)).item() == 9.0


@pytest.mark.parametrize("step", [40.0, 7.5, 1.0, 0.3, 1000.0])
def test_best_split_in_steps_that_begin_with_a_jump(step: float) -> None:
    """Compute jumps where a step begins, falls and rises within it; against every whole token."""
    rng = np.random.default_rng(3)
    prefix = rng.integers(0, 400, 50).astype(np.float64)
    for slower in 10.0 ** rng.uniform(-2.0, 2.0, 30):

        def compute(x: np.ndarray) -> np.ndarray:
            begun = np.ceil(x / step)
            within = x / step - (begun - 1.0)
            return np.where(x > 0.0, begun + 0.4 * (within - 0.7) ** 2, 0.0)

        def load(x: np.ndarray, p: np.ndarray = prefix, rate: float = slower) -> np.ndarray:
            return np.maximum(rate * (p - x), 0.5) / step

        found = best_split(prefix, compute, load, np.full_like(prefix, step))
        for i, p in enumerate(prefix):
            x = np.arange(p + 1.0)
            assert found[i] == np.maximum(compute(x), load(x, p)).min()


def test_best_split_at_the_ends() -> None:
    p = np.array([10.0])
    # Loading all costs less than computing one token; computing all costs less than loading one.
    assert best_split(p, lambda x: 1e6 * x, lambda x: 0.1 * (10.0 - x)).item() == pytest.approx(1.0)
    assert best_split(p, lambda x: 1e-6 * x, lambda x: 100.0 * (10.0 - x)).item() == pytest.approx(1e-5)
    # A load that never falls below 5 s.
    assert best_split(p, lambda x: 1.0 * x, lambda x: 5.0 + 0.0 * x).item() == 5.0
    assert best_split(np.array([0.0]), lambda x: x, lambda x: 0.0 * x).item() == 0.0


def test_mooncake_rule() -> None:
    """R. Qin et al., FAST 2025, eq. 2: "6 GB/s" on 8 A100 and "19 GB/s" on 8 H800 recompute to 5.86 and 18.57."""
    for peak, published in ((312e12, 5.86e9), (989e12, 18.57e9)):
        # 2 x 8192 x 2 / (8 x (4 x 8192 x 8192 + 22 x 8192^2)) B per FLOP, times 8 devices.
        by_hand = 8 * peak * (2 * 8192 * 2) / (8 * (4 * 8192 * 8192 + 22 * 8192 * 8192))
        rule = dense_break_even_rule(8 * peak, 8192, 8192, element=2, gqa=8, pairs=4, matrices=22)
        assert rule == pytest.approx(by_hand, rel=1e-12)
        assert rule == pytest.approx(published, rel=1e-3)
