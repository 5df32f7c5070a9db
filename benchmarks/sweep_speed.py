"""How fast sweeps are, as ratios measured in one run.

    python benchmarks/sweep_speed.py            some minutes
    python benchmarks/sweep_speed.py --quick    some seconds, smaller grids

Rates differ from machine to machine and with what else runs on it, so each figure stands beside a yardstick of the same
run: one numpy multiplication over as many float64 values as the answer holds, and pyarrow writing the same table.
Engine rates are per second of processor time of one thread; file rates are per second of the clock.
"""

from __future__ import annotations

import argparse
import io
import os
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import Options
from llmcap.analyses.setting import resolve
from llmcap.analyses.sweeps.blockwise import BLOCK_POINTS, Blockwise, blocks
from llmcap.analyses.sweeps.grid import CHUNK_CASES, Grid
from llmcap.analyses.sweeps.sweep import Sweep
from llmcap.report.arrow import table_of
from llmcap.report.sweep_files import Job, write_sweep
from llmcap.specs.registry import load_as
from llmcap.specs.scenario import Scenario


def processor_seconds(work: Callable[[], Any], times: int = 1) -> float:
    """The least of some runs, processor time of this thread."""
    best = np.inf
    for _ in range(times):
        start = time.thread_time()
        work()
        best = min(best, time.thread_time() - start)
    return float(best)


def clock_seconds(work: Callable[[], Any], times: int = 1) -> float:
    best = np.inf
    for _ in range(times):
        start = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - start)
    return float(best)


def multiply_rate() -> float:
    """Values a second of one numpy multiplication, arrays larger than the caches, memory touched before."""
    a, b = np.full(10_000_000, 1.5), np.full(10_000_000, 2.5)
    out = np.empty_like(a)
    np.multiply(a, b, out=out)
    return a.size / processor_seconds(lambda: np.multiply(a, b, out=out), 5)


def grid_of(points: int) -> tuple[np.ndarray, np.ndarray]:
    """Users 1 to 200 against contexts up to 250,000 tokens."""
    users = np.arange(1.0, min(200, points) + 1.0)[None, :]
    contexts = max(points // users.size, 1)
    return users, np.ceil(np.linspace(250_000 / contexts, 250_000, contexts))[:, None]


def full_estimates(evaluator: Evaluator, points: int) -> tuple[int, int]:
    """Evaluate every column of every tier; returns (estimates, float64 values of the answer)."""
    users, contexts = grid_of(points)
    values = done = 0
    lengths = evaluator.lengths(users, contexts, np.zeros((1, 1)), np.full((1, 1), 1000.0))
    for block in blocks((contexts.size, users.size), BLOCK_POINTS):
        cases = evaluator.cases(lengths.cut(block), with_phases=False)
        tiers = evaluator.tier_columns(cases)
        done += cases.fits.size
        values += cases.fits.size * (len(cases.results) + sum(map(len, tiers.values())))
    return done, values


def engine(points: int, multiply: float) -> None:
    evaluator = Evaluator.of(resolve(Options()))
    ballast = Blockwise(frozenset(), by_tier=True)  # settles the allocator as sweeps do
    del ballast
    full_estimates(evaluator, 200_000)
    for size in sorted({1, 10_000, 1_000_000, points}):
        done, values = full_estimates(evaluator, size)
        seconds = processor_seconds(lambda size=size: full_estimates(evaluator, size), 3)  # type: ignore[misc]
        rate = done / seconds
        print(
            f"engine, {done:>10,} full estimates: {rate / 1e6:6.2f} M/s per core"
            f"  ({values / done:.0f} values each; one multiplication of as many values takes"
            f" {values / multiply / seconds:.1%} of the time)"
        )


def tiers_only() -> None:
    """Axes that do not touch the model: host memory and number of drives over one grid of cases."""
    for name, axis in (("dram", [f"{n} TB" for n in range(1, 41)]), ("drives", list(range(1, 41)))):
        document = Scenario.model_validate({
            "schema": "llmcap.scenario/1", "id": "b", "name": "b", "question": "?",
            "axes": {name: axis, "context": "500..250k step 500", "users": "1..200"},
        })  # fmt: skip
        sweep = Sweep(Grid(document))
        wanted = frozenset(c.name for c in sweep.columns)
        parts = [p for i in range(sweep.grid.chunks) for p in sweep.grid.parts(sweep.grid.box(i))]

        def run(parts: Any = parts, wanted: frozenset[str] = wanted) -> int:
            sharing, done = Blockwise(wanted, by_tier=True), 0
            for part in parts:
                for _, columns in sharing.blocks(part, ("hbm", "dram", "nvme"), keep=True):
                    done += columns.results["fits"].size
            return done

        done = run()
        seconds = processor_seconds(run, 2)
        print(f"engine, axis {name}, {done:,} full estimates: {done / seconds / 1e6:.1f} M/s per core")


def files(quick: bool) -> None:
    document = load_as(Scenario, "scenario", "benchmark-1m").document
    sweep = Sweep(Grid(document))
    rows = sweep.rows_of(sweep.grid.box(0))
    table = table_of(sweep.columns, rows)
    words = [c.name for c in sweep.columns if c.kind == "word"]
    alone = {
        "parquet": lambda: pq.write_table(
            table, io.BytesIO(), compression="zstd", compression_level=1, use_dictionary=words, write_statistics=False
        ),
        "csv": lambda: pa_csv.write_csv(table, io.BytesIO()),
    }
    for form, write in alone.items():
        yardstick = rows.size / clock_seconds(write, 3)
        sizes = ("benchmark-1m",) if quick or form == "csv" else ("benchmark-1m", "benchmark-10m")
        seconds: dict[str, float] = {}
        count: dict[str, int] = {}
        for name in sizes:
            task = Job.of(load_as(Scenario, "scenario", name).document, form, chunk_cases=CHUNK_CASES)  # type: ignore[arg-type]
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / f"a.{form}"
                start = time.perf_counter()
                count[name] = write_sweep(task, path)
                seconds[name] = time.perf_counter() - start
            rate = count[name] / seconds[name]
            print(
                f"{name} to {form}: {rate / 1e6:.2f} M rows/s of {len(sweep.columns)} columns"
                f" = {rate / yardstick:.2f} x pyarrow writing the same table in one thread"
            )
        if len(sizes) == 2:
            marginal = (count[sizes[1]] - count[sizes[0]]) / (seconds[sizes[1]] - seconds[sizes[0]])
            print(f"marginal rate to {form} from 1e6 to 1e7 rows: {marginal / 1e6:.2f} M rows/s")
    print(f"peak memory so far: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


def twin() -> None:
    """The scalar twin of the tests, which walks layer by layer, chunk by chunk and user by user."""
    try:
        from tests.oracle.estimate_oracle import Case, summary
    except ImportError:
        print("scalar twin: not at hand (run from the top of a checkout)")
        return
    cases = [Case("llama-4-maverick", users=u, context=c, output=100) for u in (1, 8) for c in (1000, 20_000, 60_000)]
    seconds = processor_seconds(lambda: [summary(case) for case in cases])
    evaluator = Evaluator.of(resolve(Options()))
    done, _ = full_estimates(evaluator, 1_000_000)
    fast = processor_seconds(lambda: full_estimates(evaluator, 1_000_000), 2)
    slower = done / fast / len(cases) * seconds
    print(f"scalar twin of the tests (no tiers): {len(cases) / seconds:.0f} estimates/s, {slower:,.0f} times slower")


def growth(quick: bool) -> None:
    """Time against points, and against the depth of the model."""
    evaluator = Evaluator.of(resolve(Options()))
    sizes = (10**6, 10**7) if quick else (10**6, 10**7, 10**8)
    full_estimates(evaluator, 10**6)
    seconds = [processor_seconds(lambda n=n: full_estimates(evaluator, n), 1 if n > 10**7 else 2) for n in sizes]  # type: ignore[misc]
    for (n, s), (m, t) in zip(
        zip(sizes, seconds, strict=True), list(zip(sizes, seconds, strict=True))[1:], strict=False
    ):
        print(f"from {n:.0e} to {m:.0e} estimates: {(t - s) / (m - n) * 1e9:.0f} ns per estimate")
    for model in ("llama-3.1-8b", "llama-3.1-70b", "llama-3.1-405b", "deepseek-v3", "gpt-oss-120b"):
        evaluator = Evaluator.of(resolve(Options(model=model, hardware="dgx-b300")))
        full_estimates(evaluator, 10**5)
        done, _ = full_estimates(evaluator, 10**6)
        s = processor_seconds(lambda e=evaluator: full_estimates(e, 10**6), 2)  # type: ignore[misc]
        print(f"{model}, {evaluator.setting.structure.layers} layers: {s / done * 1e9:.0f} ns per estimate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    quick = parser.parse_args().quick
    multiply = multiply_rate()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; numpy multiplies {multiply / 1e6:.0f} M values/s")
    engine(10**6 if quick else 10**7, multiply)
    tiers_only()
    files(quick)
    twin()
    growth(quick)


if __name__ == "__main__":
    main()
