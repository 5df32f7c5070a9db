"""Queueing: closed forms against simulations written from the definitions, and hand-worked values."""

from __future__ import annotations

import numpy as np
import pytest

from llmcap.engine.queueing import Moments, batch, delay, quantile, utilisation


def simulate_fcfs(rho: float, n: int = 400_000) -> np.ndarray:
    """Waiting times of M/D/1 with service 1 by Lindley's recursion, W' = max(W + 1 - A, 0)."""
    gaps = np.random.default_rng(7).exponential(1.0 / rho, n)
    walk = np.concatenate([[0.0], np.cumsum(1.0 - gaps)])
    return (walk - np.minimum.accumulate(walk))[n // 10 :]


def simulate_sharing(rho: float, n: int = 40_000) -> np.ndarray:
    """Response times of M/D/1 processor sharing with service 1, event by event."""
    arrivals = np.cumsum(np.random.default_rng(11).exponential(1.0 / rho, n))
    # Under sharing every request gains service at the same speed, so requests leave in the order of arrival: one that
    # comes when each of those present has got v in all is done when that total reaches v + 1.
    done, responses, inside = 0.0, [], []
    now = 0.0
    for t in [*arrivals, np.inf]:
        while inside and now + (inside[0][0] - done) * len(inside) <= t:
            now += (inside[0][0] - done) * len(inside)
            done = inside[0][0]
            responses.append(now - inside.pop(0)[1])
        if np.isinf(t):
            break
        done += (t - now) / len(inside) if inside else 0.0
        now = t
        inside.append((done + 1.0, t))
    return np.array(responses[n // 10 :])


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.85])
def test_first_come_first_served_matches_a_simulation(rho: float) -> None:
    waits = simulate_fcfs(rho)
    found = delay(rho, 1.0)
    assert float(found.mean) == pytest.approx(waits.mean(), rel=0.05)
    assert float(found.variance) == pytest.approx(waits.var(), rel=0.12)
    assert float(quantile(found)) == pytest.approx(np.quantile(waits, 0.95), rel=0.08)


@pytest.mark.parametrize("rho", [0.3, 0.6, 0.8])
def test_processor_sharing_matches_a_simulation(rho: float) -> None:
    excess = simulate_sharing(rho) - 1.0
    found = delay(rho, 1.0, "sharing")
    assert float(found.mean) == pytest.approx(excess.mean(), rel=0.06)
    assert float(found.variance) == pytest.approx(excess.var(), rel=0.15)
    assert float(quantile(found)) == pytest.approx(np.quantile(excess, 0.95), rel=0.12)


def test_sharing_waits_twice_as_long_on_average_as_the_queue() -> None:
    """Equal requests: rho s/(1-rho) against rho s/(2 (1-rho))."""
    assert float(delay(0.7, 1.0, "sharing").mean) == pytest.approx(2 * float(delay(0.7, 1.0).mean))


def test_no_steady_state_is_nan_not_a_number() -> None:
    for discipline in ("fcfs", "sharing"):
        full = delay(np.array([0.5, 1.0, 2.0]), 1.0, discipline)
        assert np.isnan(full.mean).tolist() == [False, True, True]
        assert np.isnan(quantile(full)).tolist() == [False, True, True]


def test_nothing_waits_for_a_resource_that_is_not_used() -> None:
    idle = delay(2.0, 0.0)
    assert float(idle.mean) == 0.0
    assert float(quantile(idle)) == 0.0
    assert float(delay(0.0, 1.0, "sharing").mean) == 0.0


def test_replicas_split_the_arrivals() -> None:
    assert float(delay(1.6, 1.0, servers=2).mean) == pytest.approx(float(delay(0.8, 1.0).mean))
    assert float(utilisation(1.6, 1.0, 2.0)) == pytest.approx(0.8)


def test_batch_by_hand() -> None:
    """Five requests of 2 s: done at 2, 4, 6, 8, 10 s; the mean is 6, 95 % of five is all five."""
    mean, high, last = batch(5, 2.0, "fcfs")
    assert (float(mean), float(high), float(last)) == (6.0, 10.0, 10.0)
    assert float(batch(20, 1.0, "fcfs")[1]) == 19.0
    assert [float(x) for x in batch(5, 2.0, "sharing")] == [10.0, 10.0, 10.0]


def test_delays_in_tandem_add_and_the_high_quantile_does_not_double() -> None:
    one = delay(0.8, 1.0)
    both = one + one
    assert float(both.mean) == pytest.approx(2 * float(one.mean))
    assert float(quantile(one)) < float(quantile(both)) < 2 * float(quantile(one))


def test_a_narrow_delay_is_taken_as_exponential() -> None:
    """Mean 1, no spread: the fit cannot follow and errs on the long side, ln 20."""
    assert float(quantile(Moments(np.array(1.0), np.array(0.0)))) == pytest.approx(np.log(20.0))
