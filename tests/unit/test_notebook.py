"""Answers in notebooks: every registered renderer exists, nothing heavy loads before it is asked, text is escaped."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import llmcap
from llmcap import display
from llmcap.analyses.offload.tier_table import tier_table


@pytest.mark.parametrize(("key", "place"), sorted(display._RENDERERS.items()))
def test_every_registered_renderer_exists(key: tuple[str, str], place: tuple[str, str]) -> None:
    assert callable(getattr(import_module(place[0]), place[1]))
    assert key[1] in ("html", "markdown")


def test_an_estimate_shows_figures_and_its_tiers() -> None:
    answer = llmcap.estimate(context="100k")
    html = answer._repr_html_()
    assert html is not None
    assert html.count("<svg") == 2
    assert html.count('role="img"') == 2
    for tier in answer.tiers:
        assert f"<td>{tier['tier']}</td>" in html
    markdown = answer._repr_markdown_()
    assert markdown is not None and "| tier |" in markdown


def test_ids_differ_between_the_answers_of_one_notebook_and_not_between_runs() -> None:
    pages = [llmcap.estimate(context=c)._repr_html_() or "" for c in ("10k", "20k", "10k")]
    ids = [set(re.findall(r'\bid="([^"]+)"', page)) for page in pages]
    assert ids[0] and not ids[0] & ids[1]
    assert pages[0] == pages[2]


def test_tables_and_replays_show_themselves() -> None:
    replay = llmcap.replay(generate="users=20,turns=4,seed=1")
    assert (replay._repr_html_() or "").count("<svg") == 1
    assert "hit" in (replay._repr_markdown_() or "")
    tiers = tier_table(context="1k,10k", users=[1, 2])
    assert (tiers._repr_html_() or "").count("<tr>") == 1 + len(tiers.rows)
    assert (tiers._repr_markdown_() or "").count("\n") == 2 + len(tiers.rows)


def test_an_answer_nobody_renders_is_left_to_its_plain_text() -> None:
    class Unknown(display.Displayed):
        __slots__ = ()

    assert Unknown()._repr_html_() is None


def test_drawing_libraries_load_only_when_a_notebook_asks() -> None:
    code = "import sys, llmcap; llmcap.estimate(); sys.exit(any(m in sys.modules for m in ('matplotlib', 'jinja2')))"
    root = Path(llmcap.__file__).resolve().parents[1]
    assert subprocess.run([sys.executable, "-c", code], cwd=root, check=False).returncode == 0
