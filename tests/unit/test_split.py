"""The best split and the break-even prefix against every whole token, for many rates on the same tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import Options
from llmcap.analyses.setting import resolve
from llmcap.analyses.split import SplitSolver
from llmcap.analyses.sweeps.blockwise import Blockwise
from llmcap.analyses.sweeps.grid import Grid
from llmcap.analyses.sweeps.sweep import Sweep
from llmcap.analyses.tiers import MOST_TIERS, TierModel, TierRates
from llmcap.specs.scenario import Scenario

LONGEST = 3000
SETTINGS = {
    "chunked attention": Options(chunk_tokens=256),
    "dp": Options(chunk_tokens=192, tp=2, dp=4),
    "cp": Options(chunk_tokens=128, tp=4, cp=2),
    "windows": Options(model="gpt-oss-120b", chunk_tokens=512),
    "windows of no common width": Options(model="gemma-3-27b", hardware="dgx-h100", tp=1, chunk_tokens=300),
    "sparse latent": Options(model="deepseek-v3.2", hardware="dgx-h200", tp=1, ep=8, chunk_tokens=1000),
    "recurrent": Options(model="qwen3-next-80b-a3b", chunk_tokens=256),
    "all-full": Options(chunk_tokens=256, kv_policy="all-full"),
    "one token a step": Options(chunk_tokens=1),
    "two tokens a step": Options(chunk_tokens=2),
    "small": Options(model="llama-3.1-8b", hardware="dgx-h100", devices=1, chunk_tokens=333),
}


def slowed(tier: TierRates, by: float, fixed: float) -> TierRates:
    return replace(tier, shared=tier.shared / by, fixed=fixed)


def parts(model: TierModel, tier: TierRates, users: np.ndarray, prefix: np.ndarray) -> tuple[np.ndarray, ...]:
    """(moved, rate, reload) as the columns of a tier have them."""
    moved = model.memory.moved_per_user(prefix)
    rate = np.minimum(tier.shared, users / model.fullest(users) * tier.replica)
    return moved, rate, tier.fixed + users * moved / rate


@pytest.mark.parametrize("name", SETTINGS)
def test_no_whole_token_splits_better(name: str) -> None:
    """Random users, prefixes and rates from far faster to far slower than computing; tables or not, bit for bit."""
    rng = np.random.default_rng(list(SETTINGS).index(name))
    evaluator = Evaluator.of(resolve(SETTINGS[name]))
    model = evaluator.tiers
    solver = model.solver
    assert solver is not None
    users = rng.permutation(np.arange(1.0, 250.0))[None, :12]
    prefix = np.sort(rng.integers(1, LONGEST, 60)).astype(np.float64)[:, None]
    x = np.arange(LONGEST + 1.0)[:, None]
    compute = np.asarray(evaluator.steps.prefill(model.fullest(users), x, 0.0).serial)
    tier = model.rates[-1]
    for slower in 10.0 ** rng.uniform(-1.0, 3.5, 14):
        slow = slowed(tier, slower, fixed=float(10.0 ** rng.uniform(-5.0, -1.0)))
        moved, rate, reload = parts(model, slow, users, prefix)
        found = model._split(slow, users, prefix, moved, rate, reload)
        for i, p in enumerate(prefix[:, 0]):
            load = slow.fixed + users * np.maximum(moved[i] - model.growing * x, 0.0) / rate
            best = np.maximum(compute, load)[: int(p) + 1].min(axis=0)
            np.testing.assert_allclose(found[i], best, rtol=1e-12, atol=0)
        # A solver that has not been asked before has no tables.
        bare = SplitSolver(solver.prefill, type(solver.times)(solver.prefill))
        relief = np.atleast_1d(users * model.growing / rate)
        np.testing.assert_array_equal(found, bare.best(model.fullest(users), prefix, reload, relief, slow.fixed))
    assert solver.times._tables


@pytest.mark.parametrize(
    "options",
    [
        Options(model="llama-2-7b", hardware="dgx-a100-80gb", tp=1, pp=4, devices=4, chunk_tokens=777),
        Options(model="qwen2.5-0.5b", dp=2, pp=4, chunk_tokens=512),
        Options(model="mpt-7b", pp=2, cp=4, chunk_tokens=16),
    ],
)
def test_no_whole_token_splits_better_between_stages(options: Options) -> None:
    """A step of a few tokens fills the stages as a whole one does, so that computing takes less a little later."""
    evaluator = Evaluator.of(resolve(options))
    model = evaluator.tiers
    users, prefix = np.array([[1.0, 2.0, 7.0]]), np.array([[500.0], [5287.0], [12_213.0]])
    x = np.arange(prefix.max() + 1.0)[:, None]
    compute = np.asarray(evaluator.steps.seconds(evaluator.steps.prefill(model.fullest(users), x, 0.0)))
    assert np.any(np.diff(compute, axis=0) < 0.0)
    for tier in model.rates:
        for slower in (1.0, 1.7, 3.0, 8.0):
            slow = slowed(tier, slower, fixed=tier.fixed)
            moved, rate, reload = parts(model, slow, users, prefix)
            found = model._split(slow, users, prefix, moved, rate, reload)
            for i, p in enumerate(prefix[:, 0]):
                load = slow.fixed + users * np.maximum(moved[i] - model.growing * x, 0.0) / rate
                best = np.maximum(compute, load)[: int(p) + 1].min(axis=0)
                np.testing.assert_allclose(found[i], best, rtol=1e-12, atol=0)


def test_a_single_case_is_a_cell_of_the_grid() -> None:
    model = Evaluator.of(resolve(Options())).tiers
    tier, users = model.rates[-1], np.arange(1.0, 100.0)[None, :]
    prefix = np.linspace(3_000.0, 900_000.0, 80).round()[:, None]
    moved, rate, reload = parts(model, tier, users, prefix)
    for _ in range(8):  # tables are made on the way
        grid = model._split(tier, users, prefix, moved, rate, reload)
    for i, j in ((0, 0), (7, 3), (40, 1), (79, 98), (60, 50)):
        one = parts(model, tier, users[:, j], prefix[i])
        assert model._split(tier, users[:, j], prefix[i], *one).item() == pytest.approx(grid[i, j], rel=1e-12)


@pytest.mark.parametrize("name", SETTINGS)
def test_break_even_prefixes_of_many_rates(name: str) -> None:
    """Against every whole prefix: it wins there and loses a token earlier, and where it wins from there on, is it."""
    options = SETTINGS[name]
    base = Evaluator.of(resolve(options))
    users, longest = np.array([[1.0, 2.0, 9.0, 70.0, 200.0]]), 6000
    p = np.arange(1.0, longest + 1.0)[:, None]
    compared = 0
    for new in (0.0, 130.0, 5000.0):
        fullest = base.tiers.fullest(users)
        saved = np.asarray(base.steps.prefill(fullest, p + new, 0.0).serial)
        if new:
            saved = saved - np.asarray(base.steps.prefill(fullest, np.full_like(p, new), p).serial)
        for drives in (1, 2, 3, 7, 30):
            model = base.with_tiers_of(resolve(replace(options, drives=drives))).tiers
            tier = next(r for r in model.rates if r.name == "nvme")
            found = model.break_even_tokens(tier, users, np.full((1, 1), new))[0]
            won = np.asarray(model.reload(tier, users, model.memory.moved_per_user(p)) < saved)
            for j, edge in enumerate(found):
                lost = np.flatnonzero(~won[:, j])
                if np.isnan(edge) or edge > longest:
                    assert lost.size and lost[-1] == longest - 1
                    continue
                assert edge == (lost[-1] + 2 if lost.size else 1)
                compared += 1
    assert compared >= 30


@pytest.mark.parametrize(
    ("options", "users", "new"),
    [
        (Options(model="bloom-7b1", hardware="h800-8x", tp=4, chunk_tokens=1000), 4, 0),
        (Options(model="bloom-7b1", hardware="h800-8x", tp=4, chunk_tokens=1000), 7, 0),
        (Options(model="llama-2-7b", hardware="gb300-nvl72"), 513, 5),
        (
            Options(model="dots.llm1", hardware="dgx-b200-gen6", weight_dtype="nvfp4", pp=4, chunk_tokens=8191),
            30,
            20_000,
        ),
        (Options(model="gemma-3-12b", hardware="gaudi3-8x", kv_dtype="fp8", tp=4, kv_policy="all-full"), 64, 100),
        (Options(model="qwen-7b", hardware="gb300-nvl72", tp=8, kv_policy="all-full"), 200, 0),
    ],
)
def test_reloading_that_wins_loses_and_wins_again(options: Options, users: int, new: int) -> None:
    """Computing jumps at a step and reloading at a block: of all prefixes the last one that loses counts."""
    evaluator = Evaluator.of(resolve(options))
    model = evaluator.tiers
    tier = next(r for r in model.rates if r.name == "nvme")
    p, u = np.arange(1.0, 40_001.0), np.array([float(users)])
    saved = evaluator.steps.seconds(evaluator.steps.prefill(model.fullest(u), p + new, 0.0))
    if new:
        saved = saved - evaluator.steps.seconds(evaluator.steps.prefill(model.fullest(u), np.full_like(p, new), p))
    won = np.asarray(model.reload(tier, u, model.memory.moved_per_user(p)) < saved)
    assert np.any(np.diff(won.astype(int)) < 0)
    assert model.break_even_tokens(tier, u, np.array([float(new)])).item() == np.flatnonzero(~won)[-1] + 2


def test_many_cases_at_once_break_even_where_each_does() -> None:
    """More cases than are searched together."""
    model = Evaluator.of(resolve(Options())).tiers
    tier = model.rates[-1]
    users, new = np.arange(1.0, 41.0)[None, :], np.arange(100.0, 4100.0, 100.0)[:, None]
    grid = model.break_even_tokens(tier, users, new)
    assert grid.shape == (40, 40)
    for i, j in ((0, 0), (13, 39), (39, 0), (25, 25)):
        assert model.break_even_tokens(tier, users[:, [j]], new[[i]]).item() == grid[i, j]


@pytest.mark.parametrize("cached", [0, 1500])
def test_settings_that_differ_in_their_tiers_share_without_a_change(cached: int) -> None:
    """More rates than are kept, in two rounds, some users who do not fit: as each setting alone."""
    drives = [*range(1, MOST_TIERS + 6), 3, 1]
    document = Scenario.model_validate(
        {
            "schema": "llmcap.scenario/1", "id": "s", "name": "s", "question": "?", "base": {"cached_tokens": cached},
            "axes": {"drives": sorted(set(drives)), "context": "2k..800k step 57k", "users": [1, 3, 50, 190]},
        }
    )  # fmt: skip
    sweep = Sweep(Grid(document))
    sharing = Blockwise(frozenset(c.name for c in sweep.columns), by_tier=True)
    made = {part.choice["drives"]: part for part in sweep.grid.parts(sweep.grid.box(0))}
    unfit = False
    for number in drives:
        part = made[number]
        alone = Evaluator.of(part.setting)
        for _, columns in sharing.blocks(part, ("hbm", "dram", "nvme"), keep=True):
            wanted = alone.evaluate(*(part.numbers[n] for n in ("users", "context_tokens")), cached, 1000)
            unfit |= not np.all(columns.results["fits"])
            for tier in ("hbm", "dram", "nvme"):
                assert set(columns.tiers[tier]) == set(wanted.tiers[tier])
                for column, values in columns.tiers[tier].items():
                    want = wanted.tiers[tier][column]
                    np.testing.assert_allclose(*np.broadcast_arrays(values, want), rtol=1e-9, err_msg=column)
    assert unfit
