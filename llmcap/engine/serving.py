"""Steady state of continuous batching, in closed form over the case axis. No models and no event loop here.

Symbols: c clients of one replica, D mean decode step with all of them running, P prefill work of one prompt inside a
full step, P1 prefill of one prompt alone (host overheads included), o output tokens. All times in seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from llmcap.engine.cost import Value

Array = NDArray[np.float64]
_GRID: Final = 40
_FEWEST: Final = 1e-8
"""Mean of running sequences from which the grid begins: a long prefill may feed a decode of its own very little."""
_REFINEMENTS: Final = 20


def admitted(clients: Value, held: Value) -> tuple[Array, Array]:
    """Clients that run, and how many more wait for each that runs.

    Parameters
    ----------
    clients, held : float or ndarray
        Clients, and sequences that the cache pool holds at their mean length. [1]

    Returns
    -------
    running, excess : ndarray
        min(clients, held) and clients / running - 1. [1]

    Notes
    -----
    Engines admit by the length that a sequence has now, not the one it will have: the pool is counted at the mean
    length of a sequence, prompt and half the output. A pool is never taken to hold less than 0.3 of the clients: it is
    a small difference of large numbers, and the run took place.

    Examples
    --------
    >>> [float(x) for x in admitted(64.0, 40.0)]
    [40.0, 0.6000000000000001]
    """
    clients = np.asarray(clients, dtype=np.float64)
    running = np.minimum(clients, np.maximum(np.maximum(held, 0.3 * clients), 1.0))
    return running, clients / running - 1.0


def time_per_output_token(decode: Value, prefill: Value, clients: Value, output: Value, interleave: Value) -> Array:
    """Mean time between tokens of one client while the others come and go.

    Parameters
    ----------
    decode, prefill : float or ndarray
        D and P. [s]
    clients, output : float or ndarray
        c and o. [1], [tokens]
    interleave : float
        Share of the others' prefill work that falls into a client's decode, about 1.

    Returns
    -------
    ndarray
        D + interleave (c - 1) P / o. [s]

    Notes
    -----
    In a closed loop each client sees each other client prefill once while it produces its o tokens. Below 1 when
    prefills fall together with the client's own, above 1 when mixed steps cost more than their parts.

    Examples
    --------
    8 clients, D = 10 ms, P = 100 ms, 1,000 tokens: 10 ms + 7 x 0.1 ms = 10.7 ms.

    >>> round(float(time_per_output_token(0.010, 0.1, 8, 1000, 1.0)), 5)
    0.0107
    """
    others = np.maximum(np.asarray(clients, dtype=np.float64) - 1.0, 0.0)
    return np.asarray(decode + interleave * others * prefill / np.maximum(output, 1.0))


def time_to_first_token(
    alone: Value, prefill: Value, tpot: Value, clients: Value, output: Value, *, ahead: Value, own: Value,
    burst: Value, slot: Value, running_steps: Value, dispatch: float,
) -> Array:  # fmt: skip
    """Mean time to first token under a closed loop whose clients all start at once.

    Parameters
    ----------
    alone, prefill, tpot : float or ndarray
        P1, P and the mean time between tokens. [s]
    clients, output : float or ndarray
        Running clients of a replica, output tokens.
    ahead : float or ndarray
        Other clients whose prefill holds the engine up: those of the replica, or those of all replicas where experts
        span them and so all step together.
    own : float
        P1 is taken times this: prompts that stay in step share their steps.
    burst : float
        Share of the others' prefill work that a mean request waits for. With n prompts per client and one burst at
        the start it is 1 / (2 n): 0.05 for ten.
    slot : float
        Share of a decode that a request waits for a slot, over the clients.
    running_steps : float or ndarray
        Decode steps in progress or in flight when a prompt arrives, or made before the scheduler looks at it.
    dispatch : float
        Host cost per square root of the clients. [s]

    Returns
    -------
    ndarray
        own P1 + burst ahead P + running_steps tpot + dispatch sqrt(c) + slot o tpot / c; the terms with tpot only
        where c > 1. Waiting for a place in the pool comes on top. [s]

    Examples
    --------
    One client alone: P1 and its dispatch.

    >>> float(time_to_first_token(0.25, 0.2, 0.01, 1, 100, ahead=0, own=1, burst=0.05, slot=0, running_steps=2,
    ...                           dispatch=0.0))
    0.25
    """
    clients = np.asarray(clients, dtype=np.float64)
    others = np.maximum(clients - 1.0, 0.0)
    several = np.minimum(others, 1.0)
    return np.asarray(
        own * alone
        + burst * ahead * prefill
        + running_steps * tpot * several
        + dispatch * np.sqrt(clients)
        + slot * several / clients * output * tpot
    )


def throughput(running: Value, decode: Value, prefill: Value, output: Value) -> Array:
    """Output tokens a second of a replica that keeps `running` sequences busy.

    Each sequence costs its prefill once and its share of o decode steps: B o / (o D + B P). [tokens/s]

    Parameters
    ----------
    running, decode, prefill, output : float or ndarray
        B, D [s], P [s] and o [tokens].

    Examples
    --------
    >>> round(float(throughput(100, 0.02, 0.05, 1000)), 1)
    4000.0
    """
    return np.asarray(running * output / np.maximum(output * decode + running * prefill, 1e-300))


def completed(clients: Value, running: Value, stay: Value, decode: Value, prefill: Value, output: Value) -> Array:
    """Requests a second of a replica in a closed loop.

    Parameters
    ----------
    clients, running : float or ndarray
        c of this replica, and how many of them run at once, B. [1]
    stay : float or ndarray
        From the start of a request's prefill to its last token. [s]
    decode, prefill, output : float or ndarray
        D, P and o.

    Returns
    -------
    ndarray
        min(c / stay, B / (o D + B P)): what Little's law makes of the stay, and no more than the steps have time for.
        [1/s]

    Examples
    --------
    10 clients that stay 2 s each; steps of 10 ms for 100 tokens and 50 ms of prefill would let 6.7 a second through.
    20 clients meet that limit.

    >>> float(completed(10, 10, 2.0, 0.01, 0.05, 100)), round(float(completed(20, 10, 2.0, 0.01, 0.05, 100)), 3)
    (5.0, 6.667)
    """
    work = output * decode + running * prefill
    return np.asarray(np.minimum(clients / np.maximum(stay, 1e-300), running / np.maximum(work, 1e-300)))


def static_batch(batch: Value, prefill_all: Value, decode: Value, output: Value) -> Array:
    """Output tokens a second of one batch that starts and ends together: B o / (prefill + (o - 1) D). [tokens/s]

    Parameters
    ----------
    batch, prefill_all, decode, output : float or ndarray
        B, prefill of all its prompts [s], D [s] and o [tokens].

    Examples
    --------
    >>> float(static_batch(10, 1.0, 0.01, 101))
    505.0
    """
    return np.asarray(batch * output / (prefill_all + np.maximum(output - 1.0, 0.0) * decode))


def running_at(rate: Value, stay: Callable[[Array], Value], most: Value) -> Array:
    """Mean sequences that run when requests arrive at a rate, by Little's law.

    Parameters
    ----------
    rate : float or ndarray
        Requests a second on one replica. [1/s]
    stay : callable
        Time that a request spends running when B sequences run; rises, slower than linearly. [s]
    most : float or ndarray
        Sequences that the replica can run.

    Returns
    -------
    ndarray
        B = rate stay(B), at most `most`. [1]

    Notes
    -----
    rate stay(B) - B is positive below the solution and negative above it, since stay is concave and not zero at B = 0.
    Fluctuations around the mean are left out (mean field): stay varies little over them.

    Examples
    --------
    1 s whatever the others, 2 requests a second: 2 sequences run.

    >>> round(float(running_at(2.0, lambda b: 1.0 + 0.0 * b, 512.0)), 6)
    2.0
    """
    rate = np.asarray(rate, dtype=np.float64)
    return _crossing(lambda b: rate * stay(b) - b, rate, most)


def running_of_clients(clients: Value, present: Callable[[Array], Value], most: Value) -> Array:
    """Sequences that run in a closed loop: B such that present(B) clients are in the system.

    Parameters
    ----------
    clients : float or ndarray
        c. [1]
    present : callable
        Requests that run or wait when B run, by Little's law; rises, `inf` where no steady state is left. [1]
    most : float or ndarray
        Sequences that the replicas can run.

    Returns
    -------
    ndarray
        [1]

    Examples
    --------
    Half as many wait as run: 6 clients, 4 run.

    >>> round(float(running_of_clients(6, lambda b: 1.5 * b, 100.0)), 6)
    4.0
    """
    clients = np.asarray(clients, dtype=np.float64)

    def lacking(b: Array) -> Array:
        with np.errstate(divide="ignore"):
            return np.asarray(clients / present(b) - 1.0)  # nearly linear even where a queue grows without bound

    return _crossing(lacking, clients, most)


def _crossing(lacking: Callable[[Array], Value], like: Array, most: Value) -> Array:
    """Where a function of B falls through zero between 0 and `most`, or `most`; array functions of one root each.

    A grid of sequences brackets it, asked along a new first axis at once; then false position (Illinois), bisection
    where the function is not finite.
    """
    top = np.broadcast_to(np.asarray(most, dtype=np.float64), np.broadcast_shapes(like.shape, np.shape(most)))
    column = (-1, *(1,) * top.ndim)
    few = np.geomspace(_FEWEST, 1.0, _GRID // 2).reshape(column) + np.zeros_like(top)
    many = np.maximum(top, 1.0) ** np.linspace(0.0, 1.0, _GRID)[1:].reshape(column)
    grid = np.minimum(np.concatenate([np.zeros((1, *top.shape)), few, many]), top)
    values = np.asarray(lacking(grid))
    grid = np.broadcast_to(grid, values.shape)
    first = np.argmax(values <= 0.0, axis=0)
    never = ~np.any(values <= 0.0, axis=0)
    above = np.where(never, len(grid) - 1, first)[None]
    below = np.maximum(above - 1, 0)
    low, high = (np.take_along_axis(grid, at, axis=0)[0] for at in (below, above))
    f_low, f_high = (np.take_along_axis(values, at, axis=0)[0] for at in (below, above))
    best, least = low, np.abs(f_low)
    for _ in range(_REFINEMENTS):
        with np.errstate(invalid="ignore", divide="ignore"):
            middle = high - f_high * (high - low) / (f_high - f_low)
        inside = np.isfinite(middle) & (middle > low) & (middle < high)
        middle = np.where(inside, middle, (low + high) / 2.0)
        value = np.asarray(lacking(middle))
        closer = (np.abs(value) < least) & (value > -0.5)
        best, least = np.where(closer, middle, best), np.where(closer, np.abs(value), least)
        more = value > 0.0
        # Illinois: the end that stays counts half, so that both ends close in.
        f_low, f_high = np.where(more, value, f_low / 2.0), np.where(more, f_high / 2.0, value)
        low, high = np.where(more, middle, low), np.where(more, high, middle)
    return np.asarray(np.where(never, grid[-1], best))


def tokens_per_step(acceptance: Value, drafted: int) -> Array:
    """Tokens that a speculative step yields: 1 + a + a^2 + ... + a^k for k drafted tokens accepted with rate a.

    Examples
    --------
    >>> float(tokens_per_step(0.5, 2)), float(tokens_per_step(1.0, 3))
    (1.75, 4.0)
    """
    a = np.asarray(acceptance, dtype=np.float64)
    return np.asarray(np.sum(np.power(a[..., None], np.arange(drafted + 1)), axis=-1))
