"""The small fit of one's own rows: a value worked by hand, scipy's solver as a twin, and the edge of the box."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import least_squares

from llmcap.analyses.accuracy.robust_fit import soft_l1_fit


def test_a_far_value_pulls_with_the_scale_of_the_loss_alone() -> None:
    """Two values at 0, one far away: 2 x / sqrt(1 + (x / c)^2) = c, so x = c / sqrt(3)."""
    centre = soft_l1_fit(lambda x: x - np.array([0.0, 0.0, 9.0]), np.zeros(1), 20.0, 0.1)
    assert centre[0] == pytest.approx(0.1 / np.sqrt(3.0), rel=1e-3)


@pytest.mark.parametrize("seed", range(8))
def test_the_minimum_is_that_of_scipy(seed: int) -> None:
    """Times that are sums of two parts, each with a factor of its own, as prefill and decode are."""
    rng = np.random.default_rng(seed)
    parts, measured = rng.uniform(0.1, 2.0, (9, 2)), rng.normal(0.0, 1.0, 9)

    def residual(x: np.ndarray) -> np.ndarray:
        return np.concatenate([np.log(parts @ np.exp(x)) - measured, 0.1 * x, [0.1 * (x[0] - x[1])]])

    ours = soft_l1_fit(residual, np.zeros(2), 3.0, 0.1)
    twin = least_squares(
        residual, np.zeros(2), bounds=(-3.0, 3.0), loss="soft_l1", f_scale=0.1, xtol=1e-12, ftol=1e-14, gtol=1e-12
    )
    assert ours == pytest.approx(twin.x, abs=2e-4)


def test_what_no_parameter_in_the_box_explains_ends_at_its_edge() -> None:
    assert soft_l1_fit(lambda x: x - 7.0, np.zeros(2), 3.0, 0.1) == pytest.approx([3.0, 3.0])
