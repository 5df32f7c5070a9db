"""The closed forms against the long way: StepModel for times, trying every token for the best split."""

from __future__ import annotations

import numpy as np
import pytest

from llmcap.analyses.closed_forms import TIMES, ChunkedPrefill, DecodeTerms, sequences
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import Options
from llmcap.analyses.setting import resolve
from llmcap.engine.cost import Cost

SETTINGS = [
    Options(),
    Options(model="llama-3.1-8b", hardware="dgx-h100", devices=1),
    Options(tp=4, ep=8),
    Options(pp=2),
    Options(cp=2, chunk_tokens=3000),
    Options(model="deepseek-v3.2", hardware="dgx-h200", tp=1, ep=8),
    Options(model="gpt-oss-120b", chunk_tokens=2048),
    Options(model="gemma-3-27b", hardware="dgx-h100", tp=1),
    Options(model="qwen3-next-80b-a3b"),
]
NAMES = sorted(TIMES | {"low", "high", "flop_s", "byte_s"})


def _id(options: Options) -> str:
    return " ".join(
        f"{n}={getattr(options, n)}" for n in Options.__slots__ if getattr(options, n) != getattr(Options(), n)
    )


@pytest.fixture(params=SETTINGS, ids=_id)
def evaluator(request: pytest.FixtureRequest) -> Evaluator:
    return Evaluator.of(resolve(request.param))


def _cases() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(20)
    context = np.rint(10 ** rng.uniform(0, 6.5, 80))
    context[:6] = [1, 2, 8192, 8193, 16384, 1_000_000]
    cached = np.where(rng.random(80) < 0.5, 0.0, np.floor(context * rng.random(80)))
    users = np.rint(10 ** rng.uniform(0, 2.3, 80))
    return users, context, cached


def _close(found: Cost, wanted: Cost, names: list[str]) -> None:
    for name in names:
        left, right = np.broadcast_arrays(getattr(found, name), getattr(wanted, name))
        np.testing.assert_allclose(left, right, rtol=1e-12, atol=0, err_msg=name)


def test_prefill_is_that_of_the_step_model(evaluator: Evaluator) -> None:
    users, context, cached = _cases()
    fullest, new = evaluator.tiers.fullest(users), context - cached
    forms = ChunkedPrefill.of(evaluator.steps)
    wanted = evaluator.steps.prefill(fullest, new, cached)
    one, launch = forms.prompt(new, cached, frozenset(NAMES))
    _close(forms.cost(fullest, new, one, launch, frozenset(NAMES)), wanted, NAMES)
    np.testing.assert_allclose(
        forms.seconds(fullest, new, forms.attention(new, cached)), wanted.serial, rtol=1e-12, atol=0
    )


def test_decode_is_that_of_the_step_model(evaluator: Evaluator) -> None:
    users, context, _ = _cases()
    fullest, output = evaluator.tiers.fullest(users), np.rint(users * 3.0)
    terms = DecodeTerms.of(evaluator.steps, fullest, context, output, frozenset(NAMES))
    found = terms.cost(sequences(evaluator.steps, fullest))
    names = sorted({*terms.batch, *terms.fixed, *terms.each})
    assert {"memory", "overhead"} <= set(names)
    _close(found, evaluator.steps.decode(fullest, context, output), names)


def test_a_grid_gives_what_its_cases_give_alone(evaluator: Evaluator) -> None:
    users, context = np.array([[1.0, 5.0, 130.0]]), np.array([[3.0], [9000.0], [250_000.0]])
    grid = evaluator.evaluate(users, context, 0, 500)
    for i, c in enumerate(context[:, 0]):
        for j, u in enumerate(users[0]):
            one = evaluator.evaluate(u, c, 0, 500)
            for name, value in grid.results.items():
                both = np.broadcast_to(value, (3, 3))[i, j], np.asarray(one.results[name])
                np.testing.assert_allclose(*both, rtol=1e-12, atol=0, err_msg=name)
            for tier, values in grid.tiers.items():
                for name, value in values.items():
                    both = np.broadcast_to(value, (3, 3))[i, j], np.asarray(one.tiers[tier][name]).reshape(())
                    np.testing.assert_allclose(*both, rtol=1e-12, atol=0, err_msg=f"{tier} {name}")


SMALL_STEPS = [
    Options(chunk_tokens=64),
    Options(chunk_tokens=96, model="llama-3.1-8b", hardware="dgx-h100", devices=1),
    Options(chunk_tokens=64, tp=2),
    Options(chunk_tokens=100, model="gpt-oss-120b"),
    Options(chunk_tokens=256, model="gpt-oss-120b", drives=1),
    Options(chunk_tokens=128, model="deepseek-v3.2", hardware="dgx-h200", tp=1, ep=8),
    Options(chunk_tokens=64, kv_policy="all-full", drives=1),
]


@pytest.mark.parametrize("options", SMALL_STEPS, ids=_id)
def test_the_best_split_is_the_best_of_all_tokens(options: Options) -> None:
    """Every whole x from 0 to the prefix is tried: min over x of max(compute(x), load(x))."""
    evaluator = Evaluator.of(resolve(options))
    model = evaluator.tiers
    assert model.solver is not None
    for tier in model.rates:
        # A tier as slow as the computation, so that both ends and everything between occur.
        for slower in (1.0, 30.0, 1000.0):
            slow = type(tier)(
                **{n: getattr(tier, n) for n in tier.__slots__} | {"shared": tier.shared / slower, "fixed": 1e-3}
            )
            users, prefix = (
                np.array([[1.0, 2.0, 3.0, 9.0]]),
                np.array([[1.0], [5.0], [64.0], [300.0], [777.0], [1500.0]]),
            )
            moved = evaluator.memory.moved_per_user(prefix)
            rate = np.minimum(slow.shared, users / model.fullest(users) * slow.replica)
            reload = slow.fixed + users * moved / rate
            found = model._split(slow, users, prefix, moved, rate, reload)
            x = np.arange(1501.0)[:, None]
            compute = np.asarray(evaluator.steps.prefill(model.fullest(users), x, 0.0).serial)
            for i, p in enumerate(prefix[:, 0]):
                load = slow.fixed + users * np.maximum(moved[i] - model.growing * x, 0.0) / rate
                best = np.maximum(compute, load)[: int(p) + 1].min(axis=0)
                np.testing.assert_allclose(found[i], best, rtol=1e-12, atol=0)
