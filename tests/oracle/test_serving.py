"""Closed forms of serving in steady state against continuous batching simulated step by step."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from llmcap.analyses.options import options_from
from llmcap.analyses.serving.disaggregation import SplitModel
from llmcap.analyses.serving.steady_state import ServingModel
from llmcap.analyses.setting import resolve
from llmcap.engine import queueing
from llmcap.engine.queueing import Moments
from tests.oracle.serving_oracle import Costs, Request, means, poisson, serve

SETTING = resolve(options_from({"model": "llama-3.1-8b", "hardware": "dgx-h100", "devices": 1, "chunk_tokens": 2048}))
CHUNK = 2048
HALF_A_STEP = 0.0045


class Synthetic(ServingModel):
    """The steady state over costs that the simulation can have too: D = base + each B, a prompt so much a token."""

    base, each, token, places = 0.008, 0.00005, 2e-5, 256

    def decode(self, each: Any, context: Any, output: Any) -> Any:
        return np.asarray(self.base + self.each * np.asarray(each))

    def prefill_alone(self, new: Any, cached: Any) -> Any:
        return self.token * new

    def prefill_shared(self, new: Any, cached: Any) -> Any:
        return self.token * new

    def held(self, context: Any, output: Any) -> Any:
        return np.full(np.shape(context), float(self.places))


class FewPlaces(Synthetic):
    places = 16


def model_of(kind: type[Synthetic]) -> Synthetic:
    real = ServingModel.of(SETTING)
    # A prompt waits for half a step on average, and its own step decodes as well; nothing else costs time here, and a
    # sequence sees the others' whole prefill work.
    spread = real.engine.spread.model_copy(update={"interleave": 1.0})
    engine = real.engine.model_copy(update={"running_steps": 1.5, "dispatch": 0.0, "spread": spread})
    return kind(real.setting, real.steps, real.memory, engine)


def costs_of(model: Synthetic) -> Costs:
    return Costs(
        lambda running, _: model.base + model.each * running, lambda size, _: model.token * size, CHUNK, model.places
    )


@pytest.mark.parametrize("kind", [Synthetic, FewPlaces])
@pytest.mark.parametrize(("prompt", "output"), [(1000, 200), (4000, 100), (200, 400)])
@pytest.mark.parametrize("share", [0.1, 0.4, 0.7])
def test_poisson_arrivals(kind: type[Synthetic], prompt: int, output: int, share: float) -> None:
    model = model_of(kind)
    rate = share * float(model.capacity(np.array(float(prompt)), np.array(0.0), np.array(float(output))))
    found = model.poisson(rate, prompt, 0, output)
    seen = means(serve(poisson(rate, 3000, prompt, output), costs_of(model)))
    assert float(found["tpot_s"]) == pytest.approx(seen["tpot_s"], rel=0.05)  # type: ignore[arg-type]
    # Waits rest on the difference between a load and its limit: they are given more room. A short prompt is about a
    # step, of which a closed form knows the mean alone.
    near = pytest.approx(seen["ttft_s"], rel=0.15 if share < 0.5 else 0.25, abs=HALF_A_STEP)
    assert float(found["ttft_s"]) == near  # type: ignore[arg-type]
    queue = found["queue"]
    assert isinstance(queue, Moments)
    calm = float(found["ttft_s"] - queue.mean)  # type: ignore[operator]
    assert calm + float(queueing.quantile(queue, 0.95)) == pytest.approx(seen["ttft_p95_s"], rel=0.4)


@pytest.mark.parametrize("kind", [Synthetic, FewPlaces])
@pytest.mark.parametrize(("prompt", "output"), [(1000, 200), (4000, 100), (200, 400)])
def test_past_saturation_the_queue_of_a_simulation_grows_without_end(
    kind: type[Synthetic], prompt: int, output: int
) -> None:
    model = model_of(kind)
    most = float(model.capacity(np.array(float(prompt)), np.array(0.0), np.array(float(output))))
    above = model.poisson(1.1 * most, prompt, 0, output)
    assert np.isnan(above["ttft_s"])  # type: ignore[arg-type]
    short, long = (means(serve(poisson(1.1 * most, n, prompt, output), costs_of(model))) for n in (2000, 8000))
    assert long["ttft_s"] > 2.0 * short["ttft_s"]


@pytest.mark.parametrize(("kind", "clients"), [(Synthetic, 1), (Synthetic, 8), (Synthetic, 64), (Synthetic, 200),
                                               (FewPlaces, 8), (FewPlaces, 64)])  # fmt: skip
@pytest.mark.parametrize(("prompt", "output"), [(1000, 200), (4000, 100), (200, 400)])
def test_closed_loops(kind: type[Synthetic], clients: int, prompt: int, output: int) -> None:
    model = model_of(kind)
    found = model.closed_loop(clients, prompt, 0, output)
    draw = random.Random(3)
    requests = [
        Request(0.0, int(prompt * draw.uniform(0.8, 1.2)), int(output * draw.uniform(0.8, 1.2)))
        for _ in range(max(12 * clients, 60))
    ]
    seen = means(serve(requests, costs_of(model), clients), skip=0.0)
    assert float(found["tpot_s"]) == pytest.approx(seen["tpot_s"], rel=0.05)
    # The burst at the start is the engine profile's, fitted to measured runs; waits for a place are Little's law's.
    assert float(found["ttft_s"]) == pytest.approx(seen["ttft_s"], rel=0.25, abs=HALF_A_STEP)
    assert float(found["ttft_s"] + (output - 1) * found["tpot_s"]) == pytest.approx(seen["e2el_s"], rel=0.1)


@pytest.mark.parametrize(("prompt", "output", "share", "tpot"), [(1500, 250, 0.2, 0.05), (1500, 250, 0.6, 0.05),
                                                                 (4000, 100, 0.6, 0.07), (8000, 100, 0.6, 0.12),
                                                                 (16_000, 100, 0.6, 0.14)])  # fmt: skip
def test_poisson_arrivals_over_the_steps_of_a_model(prompt: int, output: int, share: float, tpot: float) -> None:
    # Step by step with the sequences' own lengths, priced by the operators of a real setting.
    real = ServingModel.of(SETTING)
    steps = real.steps
    batch = np.asarray((steps.decode_tokens(np.arange(1025.0)) + steps.logits(np.arange(1025.0))).serial)
    near, far = (
        sum(float(steps.decode_attention(op, 1.0, n, 1.0).serial) for op in SETTING.operators.attention)
        for n in (1000.0, 2000.0)
    )
    launch = sum(float(steps.decode_attention(op, 0.0, 1000.0, 1.0).serial) for op in SETTING.operators.attention)
    a_token = (far - near) / 1000.0
    work = float(real.prefill_shared(np.array(float(prompt)), np.array(0.0))) / prompt
    costs = Costs(
        lambda running, mean: float(batch[running]) + launch + running * (near - launch + a_token * (mean - 1000.0)),
        lambda size, _: work * size, CHUNK, 1024,
    )  # fmt: skip
    rate = share * float(real.capacity(np.array(float(prompt)), np.array(0.0), np.array(float(output))))
    found = real.poisson(rate, prompt, 0, output)
    seen = means(serve(poisson(rate, 2500, prompt, output), costs))
    assert float(found["tpot_s"]) == pytest.approx(seen["tpot_s"], rel=tpot)  # type: ignore[arg-type]
    # A prompt alone also has the host's time before it, which full steps hide.
    hidden = float(real.prefill_alone(np.array(float(prompt)), np.array(0.0))) - work * prompt
    calm = float(found["ttft_s"]) - hidden - real.engine.dispatch * float(np.sqrt(max(float(found["running"]), 1.0)))  # type: ignore[arg-type]
    assert calm == pytest.approx(seen["ttft_s"], rel=0.2)


def test_the_simulation_serves_a_request_alone_as_one_would_by_hand() -> None:
    # 3,000 tokens in two steps of 2,048 and 952 at 10 us each, then 4 tokens of 8 ms.
    (done,) = serve([Request(0.0, 3000, 5)], Costs(lambda b, _: 0.008, lambda size, _: 1e-5 * size, 2048, 8))
    assert done.first == pytest.approx(0.03)
    assert done.last == pytest.approx(0.03 + 4 * 0.008)


class Prefilling(Synthetic):
    """Replicas that only prefill: eight devices of the setting, a prompt at a time."""


class Feeding(SplitModel):
    """Two pools whose hosts cost nothing, joined by links of a given rate."""

    def service(self, new: Any, cached: Any) -> Any:
        return self.prefill.prefill_shared(new, cached)


def of_devices(kind: type[Synthetic], devices: int) -> Synthetic:
    one = model_of(kind)
    setting = replace(one.setting, parallelism=replace(one.setting.parallelism, dp=devices))
    return kind(setting, one.steps, one.memory, one.engine)


@pytest.mark.parametrize("share", [0.3, 0.7])
@pytest.mark.parametrize("replicas", [1, 4])
def test_prefill_apart(replicas: int, share: float) -> None:
    prompt, output, link = 2000, 150, 2e10
    model = Feeding(of_devices(Prefilling, replicas), of_devices(Synthetic, 1), link)
    n, k, o = np.array(float(prompt)), np.array(0.0), np.array(float(output))
    rate = share * float(min(model.rates(n, k, o)))
    found = model.at_rate(rate, n, k, o)
    work = float(model.prefill.prefill_shared(n, k))
    moving = float(found["transfer_s"])  # type: ignore[arg-type]
    free = [0.0] * replicas
    handed: list[tuple[float, float]] = []
    for request in poisson(rate, 4000, prompt, output):
        start = max(request.arrival, heapq.heappop(free))
        heapq.heappush(free, start + work)
        handed.append((start + work, request.arrival))
    handed.sort()
    fixed = model.prefill.setting.engine.reloads.peer.fixed
    taken, idle = [], 0.0  # the decode replica takes in one cache after another
    for ready, arrival in handed:
        idle = max(ready, idle) + moving - fixed
        taken.append((idle + fixed, arrival))
    # What the decode pool takes in is one token that costs nothing: its cache is there.
    decode = model_of(Synthetic)
    costs = Costs(lambda b, _: decode.base + decode.each * b, lambda size, done: 0.0, 2048, decode.places)
    served = serve([Request(ready, 1, output) for ready, _ in taken], costs)
    came = dict(taken)
    kept = sorted(served, key=lambda r: r.arrival)[800:3800]
    ttft = sum(r.first - came[r.arrival] for r in kept) / len(kept)
    tpot = sum((r.last - r.first) / (output - 1) for r in kept) / len(kept)
    assert float(found["tpot_s"]) == pytest.approx(tpot, rel=0.05)  # type: ignore[arg-type]
    assert float(found["ttft_s"]) == pytest.approx(ttft, rel=0.2, abs=HALF_A_STEP)  # type: ignore[arg-type]
