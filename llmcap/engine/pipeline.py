"""Pipeline stages: how much of the serial time remains when steps follow each other through them."""

from __future__ import annotations

import numpy as np

from llmcap.engine.cost import Value


def pipeline_share(stages: int, steps: Value) -> Value:
    """Share of the serial time that a train of steps takes through `stages` equal stages.

    Parameters
    ----------
    stages : int
        Pipeline stages, each with its share of the layers. [1]
    steps : float or ndarray
        Work in whole steps, fractions allowed: 1.25 is a whole step and a quarter. [1]

    Returns
    -------
    float or ndarray
        1/pp + (pp - 1)/(pp n) for n >= 1: the last stage starts when the first step has passed the others. One step
        or less gains nothing. [1]

    Notes
    -----
    The fill of GPipe (Huang et al., arXiv:1811.06965) with steps of the mean size. Counting work and not whole steps
    keeps the time rising: a second step of a few tokens must not make the first one faster.

    Examples
    --------
    >>> [float(pipeline_share(4, n)) for n in (0.5, 1.0, 3.0)]
    [1.0, 1.0, 0.5]
    """
    return 1.0 / stages + (stages - 1.0) / stages / np.maximum(steps, 1.0)
