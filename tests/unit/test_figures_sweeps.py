"""Figures of sweeps: what is drawn is what the rows say, labels name it, units stand on the axes, grey suffices."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from llmcap.analyses.sweeps.survey import Survey
from llmcap.errors import OptionError
from llmcap.report.figures import bars, loads, maps, operators, style, sweeps
from llmcap.report.figures.series import cases_of, lines_of, numeric_axis, spread, telling, varying
from llmcap.report.pictures import KINDS, Material, picture
from llmcap.specs.registry import load_as
from llmcap.specs.scenario import Scenario


def _axes() -> Axes:
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure.subplots()


def _labels(axes: Axes) -> list[str]:
    legend = axes.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def _rows(**axes: list[Any]) -> pd.DataFrame:
    """A grid of cases with two tiers; time to first token is users * context / 1e4, and caches are 1e6 times that."""
    grid = pd.MultiIndex.from_product([*axes.values(), ["hbm", "dram", "nvme"]], names=[*axes, "tier"]).to_frame(False)
    work = grid["users"] * grid["context_tokens"]
    return grid.assign(
        ttft_s=work / 1e4, ttft_low_s=work / 2e4, ttft_high_s=work / 0.5e4, kv_bytes_total=work * 1e6,
        recompute_s=work / 1e4, ttft_reload_s=np.where(grid["tier"] == "nvme", work / 2e4 + 1.0, work / 1e5),
        capacity_bytes=np.where(grid["tier"] == "dram", 4e12, 3e13), output_tok_per_s=grid["users"] * 10.0,
    ).assign(
        winner=lambda f: np.where(f["ttft_reload_s"] < f["recompute_s"], "reload", "recompute"),
        speedup=lambda f: f["recompute_s"] / f["ttft_reload_s"], fits=True, limit="compute",
    )  # fmt: skip


# -- lines -------------------------------------------------------------------------------------------------------------


def test_inputs_that_follow_from_others_or_change_nothing_make_no_lines() -> None:
    frame = pd.DataFrame(
        {
            "model": ["a", "a", "b", "b"] * 2, "tp": [8, 8, 4, 4] * 2, "drive": ["x", "y"] * 4,
            "context_tokens": [1] * 4 + [2] * 4, "ttft_s": [1.0, 1.0, 3.0, 3.0, 2.0, 2.0, 6.0, 6.0],
        }
    )  # fmt: skip
    assert varying(frame, ["context_tokens"]) == ["model", "drive"]
    assert telling(frame, ["model", "drive"], "ttft_s", "context_tokens") == ["model"]
    found = lines_of(frame, "context_tokens", "ttft_s")
    assert [label for label, _ in found.lines] == ["a", "b"]
    assert [rows["ttft_s"].tolist() for _, rows in found.lines] == [[1.0, 2.0], [3.0, 6.0]]


def test_too_many_lines_hold_some_inputs_and_say_which() -> None:
    frame = _rows(hardware=["p", "q"], users=list(range(1, 10)), context_tokens=[1000, 2000, 4000])
    frame["ttft_s"] *= np.where(frame["hardware"] == "q", 2.0, 1.0)
    found = lines_of(cases_of(frame), "context_tokens", "ttft_s")
    assert found.total == 18
    assert [label for label, _ in found.lines] == [
        f"{machine}, {users}" for machine in "pq" for users in ("1 user", "5 users", "9 users")
    ]
    three = frame.assign(kv_dtype=np.where(frame["users"] > 4, "fp8", "bf16"))
    assert lines_of(cases_of(three), "context_tokens", "ttft_s", most=2).held == "1 user"


def test_inputs_are_held_where_most_lines_have_answers() -> None:
    frame = pd.DataFrame(
        [
            {"model": model, "tp": tp, "context_tokens": c, "ttft_s": c * n if tp >= need else np.nan}
            for n, (model, need) in enumerate((("a", 1), ("b", 4), ("c", 2), ("d", 16)), start=1)
            for tp in (1, 2, 4)
            for c in (10, 20)
        ]
    )
    found = lines_of(frame, "context_tokens", "ttft_s", most=4)
    assert found.held == "TP 4"
    assert [label for label, _ in found.lines] == ["a", "b", "c"], "d fits nowhere"


def test_lines_hold_the_rows_and_the_band_stands_where_lines_are_few() -> None:
    frame = _rows(users=[1, 4], context_tokens=[1000, 2000, 4000, 8000, 16_000])
    axes = _axes()
    sweeps.first_token_time(axes, frame)
    assert _labels(axes) == ["1 user", "4 users", "uncertainty"]
    assert [line.get_ydata().tolist() for line in axes.lines] == [
        [u * c / 1e4 for c in (1000, 2000, 4000, 8000, 16_000)] for u in (1, 4)
    ]
    assert len(axes.collections) == 2
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("context [tokens]", "time to first token [s]")
    many = _axes()
    sweeps.first_token_time(many, _rows(users=[1, 2, 3, 4], context_tokens=[1000, 2000, 4000, 8000, 16_000]))
    assert len(many.lines) == 4
    assert not many.collections


def test_capacities_are_drawn_at_their_size_when_all_rows_share_them() -> None:
    frame = _rows(users=[1], context_tokens=[1000, 2000, 4000])
    axes = _axes()
    sweeps.cache_size(axes, frame)
    assert _labels(axes) == ["KV cache", "DRAM, 4 TB", "NVMe, 30 TB"]
    assert [line.get_ydata()[0] for line in axes.lines[1:]] == [4e12, 3e13]
    assert axes.get_ylabel() == "KV cache of all users [bytes]"
    frame.loc[frame["context_tokens"] == 4000, "capacity_bytes"] *= 2
    assert sweeps.capacities(frame) == []


def test_what_device_memory_has_for_caches_is_free_plus_reserved() -> None:
    frame = _rows(users=[1, 2], context_tokens=[1000]).assign(hbm_free_bytes=9e11, kv_bytes_total_reserved=1e11)
    assert sweeps.capacities(frame)[0] == ("hbm", 1e12)


def test_reloads_have_a_line_for_each_tier() -> None:
    axes = _axes()
    sweeps.reload_time(axes, _rows(users=[2], context_tokens=[1000, 2000, 4000]))
    assert _labels(axes) == ["DRAM", "NVMe"]
    assert axes.lines[1].get_ydata().tolist() == [1.1, 1.2, 1.4]


def test_costs_are_the_column() -> None:
    frame = _rows(users=[1, 2, 4, 8, 16], context_tokens=[1000]).assign(
        usd_per_million_output_tokens=lambda f: 80.0 / f["users"]
    )
    axes = _axes()
    sweeps.cost_per_million(axes, frame)
    assert axes.lines[0].get_ydata().tolist() == [80.0, 40.0, 20.0, 10.0, 5.0]
    assert axes.get_ylabel() == "cost per million output tokens [USD]"


def test_a_prefix_that_grows_is_the_axis_and_new_tokens_make_lines() -> None:
    frame = _rows(users=[1], context_tokens=[1000, 2000]).assign(cached_tokens=lambda f: f["context_tokens"] - 100)
    both = pd.concat([frame, frame.assign(context_tokens=frame["context_tokens"] + 400)])
    both = both.assign(new_tokens=both["context_tokens"] - both["cached_tokens"])
    assert numeric_axis(both) == "cached_tokens"
    assert varying(cases_of(both), ["cached_tokens"]) == ["new_tokens"]


@pytest.mark.parametrize(("count", "most"), [(1, 1), (7, 3), (100, 6), (6, 6), (9, 1)])
def test_positions_are_spread_with_both_ends(count: int, most: int) -> None:
    found = spread(count, most)
    assert len(found) <= most
    assert found[0] == 0
    assert most == 1 or found[-1] == count - 1


def test_lines_and_hatches_differ_without_colour() -> None:
    dashes = [(str(look["linestyle"]), look["marker"]) for look in style.LINES]
    assert len(set(dashes)) == len(dashes)
    hatches = [hatch for _, hatch in maps._RELOADS]
    assert len(set(hatches)) == len(hatches)
    assert len({hatch for fill, hatch in bars._PARTS.values()} - {""}) == 3


# -- map, front, roofline ----------------------------------------------------------------------------------------------


def test_the_map_names_what_wins_in_each_cell() -> None:
    rows = []
    for context in (1000.0, 10_000.0):
        for users in (1.0, 2.0, 4.0):
            for tier, wins in (("dram", context > 5000 or users == 1), ("nvme", context > 5000)):
                fits = users < 4 or context < 5000
                winner = ("reload" if wins else "recompute") if fits else None
                rows.append({"context_tokens": context, "users": users, "tier": tier, "winner": winner})
    xs, ys, codes, names = maps.answers_of(pd.DataFrame(rows), "context_tokens", "users")
    both, dram = "reload is faster from every tier (DRAM, NVMe)", "reload is faster from DRAM alone"
    assert names == [both, dram, maps.COMPUTING, maps.NOT_FITTING]
    assert (xs.tolist(), ys.tolist()) == ([1000.0, 10_000.0], [1.0, 2.0, 4.0])
    assert codes.tolist() == [[1, 0], [2, 0], [2, 3]]
    axes = _axes()
    assert maps.break_even_map(axes, pd.DataFrame(rows)) == names
    assert _labels(axes) == names
    drawn = [c for c in axes.collections if isinstance(c, PolyCollection)]
    assert len({(tuple(c.get_facecolor()[0]), c.get_hatch()) for c in drawn}) == 4


def test_rectangles_of_the_map_cover_its_cells_once() -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        mask = rng.random((int(rng.integers(1, 7)), int(rng.integers(1, 7)))) < 0.6
        xs, ys = np.arange(mask.shape[1] + 1.0), np.arange(mask.shape[0] + 1.0)
        covered = np.zeros(mask.shape, int)
        for box in maps._boxes(mask, xs, ys):
            left, right = int(box[0][0]), int(box[1][0])
            low, high = int(box[0][1]), int(box[2][1])  # a hair beyond the edge is cut off
            covered[low:high, left:right] += 1
        assert (covered == mask).all()


def test_the_front_holds_exactly_what_nothing_beats() -> None:
    rng = np.random.default_rng(5)
    for _ in range(100):
        cost, gain = rng.integers(0, 8, 12).astype(float), rng.integers(0, 8, 12).astype(float)
        front = {(cost[i], gain[i]) for i in loads.front_of(cost, gain)}
        beaten = [
            any((c <= a and g >= b) and (c < a or g > b) for c, g in zip(cost, gain, strict=True))
            for a, b in zip(cost, gain, strict=True)
        ]
        assert front == {(a, b) for a, b, lost in zip(cost, gain, beaten, strict=True) if not lost}


def test_the_front_is_drawn_with_its_ends_named() -> None:
    axes = _axes()
    front = loads.pareto(axes, _rows(users=[1, 2, 4], context_tokens=[1000, 2000]))
    assert front["ttft_s"].tolist() == [0.1, 0.2, 0.4]
    assert axes.lines[-3].get_xdata().tolist() == [0.1, 0.2, 0.4]
    assert "its start: 1 user, 1k tokens in" in _labels(axes)
    assert "its end: 4 users, 1k tokens in" in _labels(axes)


def test_operators_stand_at_their_intensity_under_the_roofs() -> None:
    # Two devices: 4e12 FLOP and 2e9 bytes in 4 ms are 2,000 FLOP/byte and 0.5 PFLOP/s each.
    frame = pd.DataFrame(
        [
            {"phase": "prefill", "operator": "dense.up", "flop": 4e12, "bytes": 2e9, "time_s": 4e-3},
            {"phase": "prefill", "operator": "all-reduce", "flop": 0.0, "bytes": 1e9, "time_s": 1e-3},
            {"phase": "decode", "operator": "head", "flop": 1e9, "bytes": 1e9, "time_s": 1e-3},
        ]
    )
    placed = operators.placed(frame, 2)
    assert placed["intensity"].tolist() == [2000.0, 1.0]
    assert placed["rate"].tolist() == pytest.approx([5e14, 5e11])
    assert placed["share"].tolist() == pytest.approx([0.8, 1.0])
    axes = _axes()
    assert operators.roofline(axes, frame, {"bf16": 1e15, "fp8": 2e15}, 4e12, 2) == ["prefill dense.up", "decode head"]
    labels = _labels(axes)
    assert "bf16 peak 1 PFLOP/s, ridge at 250 FLOP/byte" in labels
    assert "prefill: dense.up, 80% of its time" in labels
    roof = axes.lines[0]
    x, y = roof.get_xdata(), roof.get_ydata()
    assert y.tolist() == np.minimum(1e15, 4e12 * x).tolist()
    assert axes.get_xlabel() == "arithmetic intensity [FLOP/byte]"
    assert axes.get_ylabel() == "rate of one device [FLOP/s]"


# -- bars and hits -----------------------------------------------------------------------------------------------------


def test_parts_of_memory_stack_up_and_what_is_short_is_marked() -> None:
    parts = [("weights", 50e9), ("KV cache", 70e9), ("free", -20e9)]
    frame = pd.DataFrame([{"label": "one", "part": part, "bytes": size} for part, size in parts])
    axes = _axes()
    bars.memory_stack(axes, frame)
    edges = [(bar.get_x(), bar.get_width()) for bar in axes.patches]
    assert edges == [(0.0, 50e9), (50e9, 70e9), (120e9, 0.0)]
    mark = next(line for line in axes.lines if str(line.get_label()) == "end of memory")
    assert mark.get_xdata().tolist() == [100e9]  # the device has 50 + 70 - 20 GB
    assert axes.get_xlabel() == "memory of one device [bytes]"


def test_times_side_by_side_carry_their_band() -> None:
    frame = pd.DataFrame({"label": ["a", "b"], "ttft_s": [1.0, np.nan], "ttft_low_s": [0.5, np.nan],
                          "ttft_high_s": [2.5, np.nan]})  # fmt: skip
    axes = _axes()
    bars.time_bars(axes, frame)
    assert [bar.get_width() for bar in axes.patches] == [1.0, 0.0]
    assert [text.get_text() for text in axes.get_yticklabels()] == ["a", "b"]
    (segments,) = [c.get_segments() for c in axes.collections]
    assert [s[:, 0].tolist() for s in segments] == [[0.5, 2.5]]


def test_hits_are_steps_below_the_ideal_with_the_tiers() -> None:
    curve = pd.DataFrame({"capacity_bytes": [1e9, 1e10, 1e11], "hit_ratio": [0.1, 0.3, 0.4]})
    tiers = pd.DataFrame({"tier": ["hbm", "dram"], "capacity_bytes": [5e9, 5e10], "hit_ratio": [0.2, 0.35]})
    axes = _axes()
    loads.hit_ratio(axes, curve, tiers, 0.45)
    assert axes.lines[0].get_ydata().tolist() == [0.1, 0.3, 0.4]
    assert axes.lines[0].get_drawstyle() == "steps-post"
    assert _labels(axes)[1:] == ["nothing ever evicted, 45.0%", "HBM, 20.0% with all before it",
                                 "DRAM, 35.0% with all before it"]  # fmt: skip
    assert [line.get_xdata()[0] for line in axes.lines[2:]] == [5e9, 5e10]
    assert "[bytes]" in axes.get_xlabel() and "[%" in axes.get_ylabel()


# -- text and files ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["$x^{2}$ and $\\frac$", "_hidden", "<script>alert(1)</script>", "模型 \U0001f600", "a\x1b[31m"]
)
def test_any_name_can_be_drawn_and_says_nothing(name: str, recwarn: pytest.WarningsRecorder) -> None:
    frame = _rows(model=[name, "other"], users=[1], context_tokens=[1000, 2000, 4000])
    frame["ttft_s"] *= np.where(frame["model"] == "other", 2.0, 1.0)
    with style.styled():
        figure, axes = style.new_figure()
        sweeps.first_token_time(axes, frame)
        style.put_footer(figure, f"model {name}")
        svg = style.inline_svg(figure, "f0")
        png = style.rendered(figure, "png")
    assert png.startswith(b"\x89PNG")
    assert "<script" not in svg
    assert len(_labels(axes)) == 3


def test_a_figure_for_a_page_takes_its_colours_from_the_page_and_its_ids_are_its_own() -> None:
    with style.styled():
        figure, axes = style.new_figure()
        sweeps.first_token_time(axes, _rows(users=[1], context_tokens=[1000, 2000, 4000]))
        style.put_footer(figure, "footer")
        one, two = style.inline_svg(figure, "a"), style.inline_svg(figure, "b")
    assert "var(--figure-ink)" in one and "var(--figure-muted)" in one and "var(--figure-rule)" in one
    assert "<style" not in one and "<!--" not in one and "<metadata" not in one
    ids = re.findall(r'\bid="([^"]+)"', one)
    assert len(ids) == len(set(ids)) and all(i.startswith("a-") for i in ids)
    referred = set(re.findall(r'(?:href="#|url\(#)([^")]+)', one))
    assert referred <= set(ids)
    assert two == one.replace('"a-', '"b-').replace("#a-", "#b-")
    assert re.search(r"scale\(0\.\d{5,}", one), "letters keep their size"


def test_axes_of_small_span_have_ticks() -> None:
    axes = _axes()
    sweeps.first_token_time(axes, _rows(users=[1], context_tokens=[131_072, 262_144, 524_288]))
    assert axes.get_xticks().tolist() == [131_072, 262_144, 524_288]


LOADED = ("interactivity", "load")


@pytest.mark.parametrize(
    ("scenario", "kind"),
    [
        *((s, k) for s in ("million-token-context", "coding-assistant") for k in KINDS if k not in (*LOADED, "cost")),
        *((s, k) for s in ("prefill-apart", "arrivals-until-saturation") for k in LOADED),
    ],
)
def test_nothing_overlaps_or_leaves_the_figure(scenario: str, kind: str, drawn: Callable[[str, str], Figure]) -> None:
    figure = drawn(scenario, kind)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    (axes,) = figure.axes
    boxes = [axes.get_tightbbox(renderer), *(text.get_window_extent(renderer) for text in figure.texts)]
    for box in boxes:
        assert box.x0 >= -1 and box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
    for one, two in [(a, b) for i, a in enumerate(boxes) for b in boxes[i + 1 :]]:
        assert not one.overlaps(two)
    legend = axes.get_legend()
    if legend is not None:
        assert not legend.get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))
        assert not legend.get_window_extent(renderer).overlaps(axes.xaxis.label.get_window_extent(renderer))
    for axis in (axes.xaxis, axes.yaxis):
        # Labels of both axes meet in the corner; along one axis they must not.
        shown = [t.get_window_extent(renderer) for t in axis.get_ticklabels() if t.get_text() and t.get_visible()]
        inside = [box for box in shown if box.width > 0]
        assert not any(a.overlaps(b) for a, b in itertools.pairwise(inside)), kind


@pytest.fixture(scope="module")
def drawn() -> Callable[[str, str], Figure]:
    made: dict[str, Material] = {}

    def draw(scenario: str, kind: str) -> Figure:
        if scenario not in made:
            document = load_as(Scenario, "scenario", scenario).document
            made[scenario] = Material(Survey(document, most_cases=150))
        with style.styled():
            found = picture(kind, made[scenario])
            assert found is not None
            assert found.alternative and found.caption
            return found.figure

    return draw


@pytest.mark.parametrize(("kind", "word"), [("prefil", "prefill"), ("hits", "replay")])
def test_unknown_kinds_are_refused_with_a_way_out(kind: str, word: str) -> None:
    document = load_as(Scenario, "scenario", "million-token-context").document
    with pytest.raises(OptionError, match=word):
        picture(kind, Material(Survey(document)))
