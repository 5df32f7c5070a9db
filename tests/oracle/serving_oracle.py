"""Continuous batching step by step: a slow twin of the steady state of serving, with nothing in closed form.

One replica, one prompt's chunk at a time in the order of arrival, every running sequence a token a step. Costs are
given as functions, so that only the queueing and the sharing of steps are under test.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Request:
    arrival: float
    prompt: int
    output: int
    computed: int = 0
    tokens: int = 0
    first: float = 0.0
    last: float = 0.0


@dataclass
class Costs:
    """Of one engine step."""

    decode: Callable[[int, float], float]
    """Time of a step with that many decoding sequences of that mean length; of no sequence nothing."""
    prefill: Callable[[int, int], float]
    """Time that a chunk of so many tokens after so many earlier ones adds to it."""
    chunk: int
    slots: int


def serve(arrivals: list[Request], costs: Costs, clients: int | None = None) -> list[Request]:
    """Serve requests to the end; with `clients`, each sends its next request when the last is answered.

    Requests carry their arrival times, which a closed loop overwrites. Returns them in the order of completion.
    """
    todo = deque(arrivals)
    waiting: deque[Request] = deque()
    running: list[Request] = []
    done: list[Request] = []
    now = 0.0
    for _ in range(clients or 0):
        request = todo.popleft()
        request.arrival = 0.0
        waiting.append(request)
    while todo or waiting or running:
        if clients is None:
            if not waiting and not running:
                now = max(now, todo[0].arrival)
            while todo and todo[0].arrival <= now:
                waiting.append(todo.popleft())
        elif not waiting and not running:
            break
        # Decodes first, then chunks of prompts until the step is full.
        decoding = [r for r in running if r.computed == r.prompt]
        step = 0.0
        if decoding:
            mean = sum(r.prompt + r.tokens for r in decoding) / len(decoding)
            step += costs.decode(len(decoding), mean)
        room = costs.chunk - len(decoding)
        finished: list[Request] = []
        for request in [r for r in running if r.computed < r.prompt]:
            room, more = _chunk(request, room, costs, finished)
            step += more
        while waiting and room > 0 and len(running) < costs.slots:
            request = waiting.popleft()
            running.append(request)
            room, more = _chunk(request, room, costs, finished)
            step += more
        now += step
        for request in finished:
            request.first, request.tokens = now, 1
        for request in decoding:
            request.tokens += 1
        for request in [r for r in running if r.tokens >= r.output]:
            request.last = now
            running.remove(request)
            done.append(request)
            if clients is not None and todo:
                follower = todo.popleft()
                follower.arrival = now
                waiting.append(follower)
    return done


def _chunk(request: Request, room: int, costs: Costs, finished: list[Request]) -> tuple[int, float]:
    size = min(room, request.prompt - request.computed)
    if size <= 0:
        return room, 0.0
    time = costs.prefill(size, request.computed)
    request.computed += size
    if request.computed == request.prompt:
        finished.append(request)
    return room - size, time


def poisson(rate: float, count: int, prompt: int, output: int, seed: int = 1) -> list[Request]:
    """Requests of equal lengths that arrive at random."""
    draw = random.Random(seed)
    now, found = 0.0, []
    for _ in range(count):
        now += draw.expovariate(rate)
        found.append(Request(now, prompt, output))
    return found


def means(done: list[Request], skip: float = 0.2) -> dict[str, float]:
    """Mean times of the requests after the first ones, the rate, and the 95 % quantile of the first token."""
    kept = sorted(done, key=lambda r: r.arrival)[int(skip * len(done)) : int(0.95 * len(done))]
    first = sorted(r.first - r.arrival for r in kept)
    return {
        "ttft_s": sum(first) / len(kept),
        "ttft_p95_s": first[int(0.95 * len(first))],
        "tpot_s": sum((r.last - r.first) / max(r.output - 1, 1) for r in kept) / len(kept),
        "e2el_s": sum(r.last - r.arrival for r in kept) / len(kept),
        "requests_per_s": (len(kept) - 1) / (kept[-1].arrival - kept[0].arrival),
    }
