"""Figures: right lines, units, no overlap, every format, whole files, no display and no noise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

import llmcap
from llmcap.analyses.context_axis import along_context
from llmcap.errors import OptionError
from llmcap.report import figures
from llmcap.report.figures import style


def _frame(reload: dict[str, list[float]], recompute: list[float] | None = None) -> pd.DataFrame:
    contexts = [100.0, 1e3, 1e4, 1e5]
    times = recompute or [0.01, 0.1, 1.0, 10.0]
    parts = [
        pd.DataFrame(
            {
                "context_tokens": contexts, "tier": tier, "recompute_s": times,
                "recompute_low_s": np.multiply(times, 0.8), "recompute_high_s": np.multiply(times, 1.5),
                "ttft_reload_s": values, "kv_bytes_total": np.multiply(contexts, 1e6), "capacity_bytes": 4e12,
            }
        )
        for tier, values in reload.items()
    ]  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def _axes() -> tuple[Figure, Axes]:
    figure = Figure()
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


# -- where lines cross -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("recompute", "reload", "at", "time"),
    [
        # Recompute is t = c / 10,000; a reload of 0.1 s flat is met at 1,000 tokens, one of 0.0316 s at 316.
        ([0.01, 0.1, 1.0, 10.0], [0.1, 0.1, 0.1, 0.1], 1e3, 0.1),
        ([0.01, 0.1, 1.0, 10.0], [10**-1.5] * 4, 10**2.5, 10**-1.5),
        ([0.01, 0.1, 1.0, 10.0], [1e-3] * 4, np.nan, np.nan),  # faster throughout
        ([0.01, 0.1, 1.0, 10.0], [20.0] * 4, np.nan, np.nan),  # slower throughout
        ([0.01, 0.1, np.nan, np.nan], [10**-1.5, 10**-1.5, np.nan, np.nan], 10**2.5, 10**-1.5),  # then it does not fit
    ],
)
def test_crossings_by_hand(recompute: list[float], reload: list[float], at: float, time: float) -> None:
    found = figures.crossing(np.array([100.0, 1e3, 1e4, 1e5]), np.array(recompute), np.array(reload))
    assert found == pytest.approx((at, time), nan_ok=True)


def test_the_last_crossing_counts_when_lines_cross_twice() -> None:
    x = np.array([1.0, 10.0, 100.0, 1000.0])
    at, _ = figures.crossing(x, np.array([2.0, 1.0, 2.0, 8.0]), np.array([1.0, 2.0, 4.0, 4.0]))
    assert 100.0 < at < 1000.0


# -- what the axes show ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", ["dgx-b200", "dgx-b200-3.84tb"])
def test_the_legend_has_the_break_even_of_the_page(hardware: str) -> None:
    answer = llmcap.estimate(hardware=hardware)
    _, axes = _axes()
    figures.prefill_against_reload(axes, along_context(answer))
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    tokens = next(tier["break_even_tokens"] for tier in answer.tiers if tier["tier"] == "nvme")
    assert f"reload from NVMe: faster from {tokens:,} tokens (circle)" in labels


def test_prefill_reload_band_and_crossings_are_drawn() -> None:
    _, axes = _axes()
    figures.prefill_against_reload(
        axes, _frame({"dram": [1e-3] * 4, "nvme": [10**-1.5] * 4, "remote": [30.0] * 4}), 1e4
    )
    labels = [text.get_text() for text in axes.get_legend().get_texts()]
    assert any("prefill" in label for label in labels)
    assert any("uncertainty" in label for label in labels)
    assert "reload from DRAM: faster throughout" in labels
    assert "reload from NVMe: faster from about 320 tokens (circle)" in labels
    assert "reload from remote: slower at 100k tokens" in labels
    assert "asked: 10k tokens" in labels
    circles = [line for line in axes.lines if line.get_marker() == "o" and line.get_fillstyle() == "none"]
    assert [float(line.get_xdata()[0]) for line in circles] == pytest.approx([10**2.5])
    assert axes.get_xscale() == axes.get_yscale() == "log"


def test_axes_carry_units() -> None:
    for draw in (figures.prefill_against_reload, figures.cache_against_capacity):
        _, axes = _axes()
        draw(axes, _frame({"dram": [1e-3] * 4}))
        assert axes.get_xlabel().endswith("[tokens]")
        assert axes.get_ylabel().endswith(("[s]", "[bytes]"))


def test_contexts_that_do_not_fit_are_hatched_and_have_no_line() -> None:
    _, axes = _axes()
    figures.prefill_against_reload(axes, _frame({"dram": [1e-3, 1e-3, np.nan, np.nan]}, [0.01, 0.1, np.nan, np.nan]))
    assert "the users do not fit HBM" in [text.get_text() for text in axes.get_legend().get_texts()]


def test_a_question_that_never_fits_says_so() -> None:
    _, axes = _axes()
    figures.prefill_against_reload(axes, _frame({"dram": [np.nan] * 4}, [np.nan] * 4), 1e4)
    assert [text.get_text() for text in axes.texts] == ["the users fit device memory at no context"]


def test_lines_differ_without_colour() -> None:
    dashes = [(str(style["linestyle"]), style["marker"]) for style in style.TIERS]
    assert len(set(dashes)) == len(dashes)


def test_more_tiers_than_styles_are_drawn() -> None:
    _, axes = _axes()
    figures.prefill_against_reload(axes, _frame({f"tier-{n}": [1e-3 * (n + 1)] * 4 for n in range(7)}))
    assert sum("tier-" in text.get_text() for text in axes.get_legend().get_texts()) == 7


@pytest.mark.parametrize(
    "options", [{}, {"store": "nfs-rdma-4x400g", "users": 10, "context": "250k", "cached_tokens": "200k"}]
)
def test_nothing_overlaps_or_leaves_the_figure(options: dict[str, object], monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(style, "save", lambda figure, path, form: drawn.append(figure))
    figures.plot_estimate(llmcap.estimate(**options), "x.png")
    (figure,) = drawn
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    texts = [text.get_window_extent(renderer) for text in figure.texts]
    assert len(boxes) == 2
    assert not boxes[0].overlaps(boxes[1])
    for box in [*boxes, *texts]:
        assert box.x0 >= -1 and box.y0 >= -1
        assert box.x1 <= figure.bbox.x1 + 1 and box.y1 <= figure.bbox.y1 + 1
    for text in texts:
        assert not any(text.overlaps(box) for box in boxes)
    for axes in figure.axes:
        assert not axes.get_legend().get_window_extent(renderer).overlaps(axes.get_window_extent(renderer))
        assert not axes.get_legend().get_window_extent(renderer).overlaps(axes.xaxis.label.get_window_extent(renderer))


# -- the rows behind them ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cached", [0, 90_000])
def test_the_axis_holds_what_estimate_says_at_each_context(cached: int) -> None:
    new = 100_000 - cached if cached else 0
    frame = along_context(llmcap.estimate(context=100_000, cached_tokens=cached, users=3), points=7)
    for _, row in frame.iloc[2:7:2].iterrows():
        context = int(row["context_tokens"])
        one = llmcap.estimate(context=context, cached_tokens=max(context - new, 0) if cached else 0, users=3)
        tier = next(t for t in one.tiers if t["tier"] == row["tier"])
        assert row["recompute_s"] == pytest.approx(tier["recompute_s"], rel=1e-12)
        assert row["ttft_reload_s"] == pytest.approx(tier["ttft_reload_s"], rel=1e-12)
        assert row["kv_bytes_total"] == one.results["kv_bytes_total"]


def test_the_axis_reaches_the_models_limit_and_any_longer_question() -> None:
    limit = llmcap.load_model("llama-4-maverick").max_context
    assert along_context(llmcap.estimate(context="10k"), 5)["context_tokens"].max() == limit
    assert along_context(llmcap.estimate(context="2M"), 5)["context_tokens"].max() == 2_000_000


# -- files -------------------------------------------------------------------------------------------------------------

MAGIC = {"png": b"\x89PNG\r\n", "svg": b"<?xml", "pdf": b"%PDF"}


@pytest.mark.parametrize("form", ["png", "svg", "pdf", "PNG"])
def test_each_suffix_gives_its_format_and_the_same_bytes_twice(form: str, tmp_path: Path) -> None:
    answer = llmcap.estimate(context="10k")
    files = [tmp_path / f"{name}.{form}" for name in "ab"]
    for file in files:
        figures.plot_estimate(answer, file)
    assert files[0].read_bytes().startswith(MAGIC[form.lower()])
    assert files[0].read_bytes() == files[1].read_bytes()
    assert sorted(os.listdir(tmp_path)) == sorted(file.name for file in files)


@pytest.mark.parametrize(("name", "word"), [("figure.gif", ".gif"), ("figure", "no suffix"), ("f.\x1b[31m", "png")])
def test_an_unknown_suffix_is_named_with_those_that_work(name: str, word: str, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"\.png, \.svg, \.pdf") as caught:
        figures.plot_estimate(llmcap.estimate(), tmp_path / name)
    assert word in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_an_error_and_an_old_figure_survives_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = llmcap.estimate()
    with pytest.raises(OptionError, match="cannot be written"):
        figures.plot_estimate(answer, tmp_path / "none" / "x.png")
    old = tmp_path / "x.png"
    old.write_bytes(b"old")

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OptionError, match="No space left"):
        figures.plot_estimate(answer, old)
    assert old.read_bytes() == b"old"
    assert [file.name for file in tmp_path.iterdir()] == ["x.png"]


def test_no_display_and_no_home_are_needed_and_nothing_is_said(tmp_path: Path) -> None:
    code = (
        "import llmcap\nfrom llmcap.report.figures import plot_estimate\n"
        f"plot_estimate(llmcap.estimate(), {str(tmp_path / 'x.png')!r})"
    )
    bare = {k: v for k, v in os.environ.items() if k not in ("DISPLAY", "MPLCONFIGDIR", "XDG_CACHE_HOME", "MPLBACKEND")}
    done = subprocess.run(
        [sys.executable, "-c", code], env={**bare, "HOME": "/proc/nowhere"}, capture_output=True, text=True,
        check=False, cwd=Path(llmcap.__file__).resolve().parents[1],
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "x.png").stat().st_size > 10_000
