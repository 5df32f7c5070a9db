"""Rows of a sweep: their order, and that they are what `estimate` says of each case, however the grid is cut."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import llmcap
from llmcap.analyses.sweeps.blockwise import blocks
from llmcap.analyses.sweeps.conditions import parse_condition
from llmcap.analyses.sweeps.grid import Grid
from llmcap.analyses.sweeps.scenarios import adjusted
from llmcap.analyses.sweeps.sweep import Rows, Sweep
from llmcap.errors import OptionError
from llmcap.specs.scenario import Scenario


def scenario(**fields: Any) -> Scenario:
    """A scenario; lists become tuples as when a document is read."""
    return Scenario.model_validate({"schema": "llmcap.scenario/1", "id": "t", "name": "T", "question": "?"} | fields)


def rows_of(document: Scenario, *, chunk_cases: int = 10_000, limit: int | None = None) -> list[dict[str, Any]]:
    """All rows as dicts, words in place of codes, None for what is missing."""
    sweep = Sweep(Grid(document, chunk_cases=chunk_cases))
    return [row for i in range(sweep.grid.chunks) for row in plain(sweep, sweep.rows_of(sweep.grid.box(i), limit))]


def plain(sweep: Sweep, rows: Rows) -> list[dict[str, Any]]:
    columns: list[list[Any]] = []
    for column in sweep.columns:
        values = rows.arrays[column.name].tolist()
        if column.kind == "word":
            values = [None if code < 0 else column.words[code] for code in values]
        elif column.kind == "number":
            values = [None if math.isnan(v) else v for v in values]
        columns.append(values)
    names = [c.name for c in sweep.columns]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float | int) and isinstance(right, float | int) and not isinstance(left, bool):
        return math.isclose(left, right, rel_tol=1e-12, abs_tol=0.0)
    return bool(left == right)


def agree_with_estimate(rows: list[dict[str, Any]], **options: Any) -> None:
    asked: dict[tuple[Any, ...], llmcap.Estimate] = {}
    for row in rows:
        given = {
            n: row[n]
            for n in ("model", "hardware", "users", "cached_tokens", "output_tokens", "kv_dtype", "tp")
            if n in row
        }
        case = (row["context_tokens"], *given.values())
        if case not in asked:
            asked[case] = llmcap.estimate(context=row["context_tokens"], **given | options)
        found = asked[case]
        tier = next(t for t in found.tiers if t["tier"] == row["tier"])
        expected = {**found.inputs, **found.results, **tier}
        wrong = {n: (v, expected[n]) for n, v in row.items() if n in expected and not same(v, expected[n])}
        assert not wrong, row


def test_the_last_axis_varies_fastest_then_the_tier() -> None:
    axes = {"context": (1000, 2000), "tp": (4, 8), "users": (1, 3)}
    rows = rows_of(scenario(axes=axes, columns=("context_tokens", "tp", "users", "tier")))
    expected = [(c, tp, u, t) for c in (1000, 2000) for tp in (4, 8) for u in (1, 3) for t in ("hbm", "dram", "nvme")]
    assert [tuple(r.values()) for r in rows] == expected


def test_rows_are_what_estimate_says() -> None:
    """1,000 random cases of four settings, infeasible ones among them."""
    rng = np.random.default_rng(3)
    context = [int(c) for c in np.unique(np.rint(10 ** rng.uniform(1, 6.3, 25)))]
    rows = rows_of(
        scenario(
            axes={
                "model": ("llama-4-maverick", "gpt-oss-120b"),
                "hardware": ("dgx-b200", "dgx-h100"),
                "users": (1, 2, 7, 90),
                "context": tuple(context),
            },
            base={"output_tokens": 700},
        )
    )
    assert len(rows) == 2 * 2 * 4 * len(context) * 3
    assert {r["fits"] for r in rows} == {True, False}
    chosen = rng.choice(len(rows), 1000, replace=False)
    agree_with_estimate([rows[i] for i in chosen])


def test_rows_with_a_cached_prefix_are_what_estimate_says() -> None:
    rows = rows_of(
        scenario(
            axes={"cached_tokens": (0, 100, 50_000), "new_tokens": (10, 9000), "users": (1, 12)}, base={"drives": 2}
        )
    )
    assert {r["context_tokens"] - r["cached_tokens"] for r in rows} == {10, 9000}
    agree_with_estimate(rows, drives=2)


@pytest.mark.parametrize("chunk_cases", [1, 7, 12, 40, 1000])
def test_any_chunk_size_gives_the_same_rows(chunk_cases: int) -> None:
    document = scenario(
        axes={"context": "log 100..1M 9 points", "tp": (2, 8), "users": (1, 5, 80)}, where=("users * tp < 400",)
    )
    whole, cut = rows_of(document), rows_of(document, chunk_cases=chunk_cases)
    assert len(whole) == len(cut)
    assert all(same(a[n], b[n]) for a, b in zip(whole, cut, strict=True) for n in a)


def test_a_saving_of_one_token_is_rounded_alike_however_the_grid_is_cut() -> None:
    """What a prefix of one token saves is the difference of two nearly equal times: their last digit shows in it."""
    document = scenario(
        base={"model": "gemma-2-2b", "hardware": "dgx-h200"},
        axes={"new_tokens": (90_000, 3, 17_000, 9), "users": (1, 5, 8, 33, 600), "cached_tokens": (1, 5000)},
        columns=("ttft_s", "recompute_s", "break_even_bytes_per_s"),
    )
    whole = rows_of(document)
    assert all(rows_of(document, chunk_cases=n) == whole for n in (1, 3, 10))


def test_the_order_of_axes_changes_the_order_of_rows_alone() -> None:
    axes: dict[str, Any] = {"users": (1, 9), "kv_dtype": ("fp8", "bf16"), "context": (500, 70_000), "drives": (1, 8)}
    forth, back = rows_of(scenario(axes=axes)), rows_of(scenario(axes=dict(reversed(axes.items()))))
    key = lambda r: (r["users"], r["kv_dtype"], r["context_tokens"], r["drives"], r["tier"])  # noqa: E731
    for a, b in zip(sorted(forth, key=key), sorted(back, key=key), strict=True):
        assert all(same(a[n], b[n]) for n in a)


def test_parts_of_a_server_reach_their_tier_alone() -> None:
    """Settings that differ in their drives share the rest, which must not leak into the drives' own columns."""
    rows = rows_of(scenario(axes={"drives": (1, 2, 8), "context": (1000, 300_000)}, base={"users": 4}))
    for row in rows:
        agree_with_estimate([row], drives=row["drives"])
    nvme = {r["drives"]: r["reload_s"] for r in rows if r["tier"] == "nvme" and r["context_tokens"] == 300_000}
    assert nvme[1] > nvme[2] > nvme[8]


def test_zip_takes_values_side_by_side() -> None:
    rows = rows_of(
        scenario(
            axes={"override": ("a", "b", "c"), "users": (3, 2, 1)},
            combine="zip",
            overrides={
                "a": {"model": "llama-3.1-8b", "context": 10},
                "b": {"context": 20},
                "c": {"model": "llama-3.1-8b", "context": 30},
            },
            tiers=("nvme",),
        )
    )
    found = [(r["override"], r["model"], r["users"], r["context_tokens"]) for r in rows]
    assert found == [("a", "llama-3.1-8b", 3, 10), ("b", "llama-4-maverick", 2, 20), ("c", "llama-3.1-8b", 1, 30)]
    agree_with_estimate([{n: v for n, v in r.items() if n != "tp"} for r in rows])


def test_what_does_not_fit_stays() -> None:
    rows = rows_of(scenario(axes={"users": (1, 100_000)}, base={"context": "100k"}, tiers=("dram",)))
    assert [r["fits"] for r in rows] == [True, False]
    assert rows[1]["limit"] == "capacity"
    assert all(rows[1][n] is None for n in ("ttft_s", "tpot_s", "reload_s", "winner", "speedup", "mfu"))
    assert rows[1]["hbm_free_bytes"] < 0 and rows[1]["kv_bytes_total"] > 0


def test_more_steps_than_an_estimate_adds_up_are_refused_before_they_take_memory() -> None:
    document = scenario(base={"chunk_tokens": 16}, axes={"context": ("1k", "1G")})
    with pytest.raises(OptionError, match="62,500,000 prefill steps"):
        rows_of(document)


def test_without_a_tier_column_there_is_one_row_per_case() -> None:
    rows = rows_of(scenario(axes={"users": (1, 2)}, columns=("users", "ttft_s")))
    assert [set(r) for r in rows] == [{"users", "ttft_s"}] * 2


def test_machines_with_other_tiers_have_other_rows() -> None:
    rows = rows_of(
        scenario(
            axes={"override": ("plain", "remote")},
            base={"context": 5000},
            overrides={"plain": {}, "remote": {"store": "nfs-rdma-400g"}},
            columns=("override", "tier", "reload_s"),
        )
    )
    tiers = {o: [r["tier"] for r in rows if r["override"] == o] for o in ("plain", "remote")}
    assert tiers == {"plain": ["hbm", "dram", "nvme"], "remote": ["hbm", "dram", "nvme", "remote"]}
    assert all(r["reload_s"] is not None for r in rows)


def test_conditions_leave_cases_out() -> None:
    document = scenario(
        axes={"model": ("llama-3.1-8b", "llama-4-maverick"), "tp": (1, 3, 4, 8), "context": (1000, 200_000)},
        where=("tp divides kv_heads", "context_tokens <= max_context", "model != llama-3.2-1b"),
        columns=("model", "tp", "context_tokens"),
    )
    found = {tuple(r.values()) for r in rows_of(document)}
    expected = {(m, tp, c) for m in ("llama-3.1-8b", "llama-4-maverick") for tp in (1, 4, 8) for c in (1000, 200_000)}
    assert found == expected - {("llama-3.1-8b", tp, 200_000) for tp in (1, 4, 8)}
    assert Grid(document).count_cases()[0] == len(found)


@pytest.mark.parametrize(
    ("text", "values", "holds"),
    [
        ("tp divides kv_heads", {"tp": 4, "kv_heads": 8}, True),
        ("tp divides kv_heads", {"tp": 3, "kv_heads": 8}, False),
        ("tp*pp <= 8", {"tp": 4, "pp": 4}, False),
        ("cached_tokens < context", {"cached_tokens": np.array([1, 9]), "context_tokens": 5}, [True, False]),
        ("model == llama-4-scout", {"model": "llama-4-scout"}, True),
        ("128k >= context_tokens", {"context_tokens": 128_000}, True),
    ],
)
def test_conditions(text: str, values: dict[str, Any], holds: Any) -> None:
    condition = parse_condition(text, "t", ("tp", "pp", "kv_heads", "cached_tokens", "context_tokens", "model"))
    assert np.array_equal(condition.holds(values), holds)


@pytest.mark.parametrize("limit", [1, 5, 6, 7, 12])
def test_a_limit_keeps_the_first_points(limit: int) -> None:
    document = scenario(axes={"context": (10, 20, 30), "users": (1, 2, 3, 4)}, columns=("context_tokens", "users"))
    for chunk_cases in (3, 100):
        assert rows_of(document, chunk_cases=chunk_cases, limit=limit)[:limit] == rows_of(document)[:limit]
        sweep = Sweep(Grid(document, chunk_cases=100))
        assert sweep.rows_of(sweep.grid.box(0), limit).size == limit


@pytest.mark.parametrize(("shape", "points"), [((7,), 3), ((2, 3, 5), 10), ((4, 4), 1), ((1, 1), 9), ((3, 100), 7)])
def test_blocks_cover_the_grid_once_in_order(shape: tuple[int, ...], points: int) -> None:
    numbered = np.arange(math.prod(shape)).reshape(shape)
    pieces = [numbered[block].reshape(-1) for block in blocks(shape, points)]
    assert np.array_equal(np.concatenate(pieces), np.arange(math.prod(shape)))
    assert max(p.size for p in pieces) <= max(points, 1)


def test_boxes_cover_the_grid_once_in_order() -> None:
    grid = Grid(scenario(axes={"context": (10, 20, 30), "tp": (4, 8), "users": (1, 2, 3, 4, 5)}), chunk_cases=4)
    sizes = [math.prod(grid.box(i).shape) for i in range(grid.chunks)]
    assert sum(sizes) == 30 and max(sizes) <= 4
    assert [grid.offset(i) for i in range(grid.chunks)] == list(np.cumsum([0, *sizes[:-1]]))


def test_the_command_line_changes_a_scenario() -> None:
    document = scenario(
        axes={"users": (1, 2), "context": (10, 20)}, base={"tp": 8}, overrides={"small": {"model": "llama-3.1-8b"}}
    )
    changed = adjusted(document, ["users=5", "isl=1..3", "tp=4,8"], "small")
    assert changed.axes == {"context": "1..3", "tp": ("4", "8")}
    assert changed.base == {"users": "5", "model": "llama-3.1-8b"}
    for wrong in ("users", "user=3", "users="):
        with pytest.raises(OptionError):
            adjusted(document, [wrong], None)
    with pytest.raises(OptionError, match=r"[Dd]id you mean"):
        adjusted(document, [], "smal")


def test_host_memory_with_its_unit_is_a_number_of_bytes() -> None:
    fields = {"base": {"model": "llama-3.1-8b", "hardware": "dgx-h100"}, "columns": ("dram", "tier", "users_held")}
    rows = rows_of(scenario(**fields, axes={"context": ("4k",), "dram": ("1 TB", "2TB")}))
    assert [row["dram"] for row in rows if row["tier"] == "dram"] == [1e12, 2e12]
    overrides = {"less": {"dram": "1 TB"}, "as-sold": {"drives": 4}}
    rows = rows_of(scenario(**fields, overrides=overrides, axes={"context": ("4k",), "override": tuple(overrides)}))
    assert [row["dram"] for row in rows if row["tier"] == "dram"] == [1e12, None]
