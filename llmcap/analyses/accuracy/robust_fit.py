"""Least squares with a soft-L1 loss for a few parameters, in numpy alone: a fit to one's own rows needs no scipy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

STEP: Final = 1e-4
_ROUNDS: Final = 100
_CONVERGED: Final = 1e-6
_SMALL: Final = 1e-8


def soft_l1_fit(residual: Callable[[Array], Array], start: Array, bound: float, loss_scale: float) -> Array:
    """Parameters x that minimise sum rho(residual(x)), rho(r) = c^2 (sqrt(1 + (r / c)^2) - 1), within a box.

    Parameters
    ----------
    residual : callable
        x, shape (n,), to residuals, shape (m,) [1].
    start : ndarray, shape (n,)
        Where the search begins, inside the box.
    bound : float
        Each |x| is at most this [1].
    loss_scale : float
        c: residuals well above it count by their size, not by its square [1].

    Returns
    -------
    ndarray, shape (n,)

    Notes
    -----
    Levenberg and Marquardt's steps on iteratively reweighted rows: with weights w = (1 + (r / c)^2)^(-1/2) the gradient
    of the loss is J^T (w r) (Holland and Welsch 1977). Columns of J are central differences of STEP.

    Examples
    --------
    The centre of 0, 0 and 9 is 3 by least squares. Under c = 0.1 the far value pulls with c alone, the near ones with
    2 x / sqrt(1 + (x / c)^2): x = c / sqrt(3).

    >>> centre = soft_l1_fit(lambda x: x - np.array([0.0, 0.0, 9.0]), np.zeros(1), 20.0, 0.1)
    >>> round(float(centre[0]), 3)
    0.058
    """
    x, damping = np.asarray(start, np.float64).copy(), 1e-3
    r = residual(x)
    loss = _loss(r, loss_scale)
    for _ in range(_ROUNDS):
        weight = 1.0 / np.sqrt(1.0 + (r / loss_scale) ** 2)
        slopes = np.stack([(residual(x + e) - residual(x - e)) / (2.0 * STEP) for e in STEP * np.eye(x.size)], axis=1)
        gradient = slopes.T @ (weight * r)
        curvature = (slopes.T * weight) @ slopes
        while True:
            step = -np.linalg.solve(curvature + damping * np.diag(np.diag(curvature) + _SMALL), gradient)
            tried = np.clip(x + step, -bound, bound)
            new = residual(tried)
            better = _loss(new, loss_scale)
            if better <= loss or damping > 1e8:
                break
            damping *= 4.0
        moved = float(np.abs(tried - x).max())
        if better > loss:
            return x
        x, r, loss, damping = tried, new, better, max(damping / 4.0, 1e-9)
        if moved < _CONVERGED:
            break
    return x


def _loss(r: Array, scale: float) -> float:
    return float(np.sum(np.sqrt(1.0 + (r / scale) ** 2) - 1.0))
