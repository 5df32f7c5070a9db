"""Answers in a notebook: the sentences, a figure and tables, as a fragment of HTML or as Markdown."""

from __future__ import annotations

import hashlib
from html import escape
from typing import TYPE_CHECKING, Final

from llmcap.analyses.result import Estimate
from llmcap.report import words
from llmcap.report.document import Table, table_of
from llmcap.report.figures import cache_against_capacity, prefill_against_reload
from llmcap.report.figures.replay import hits_figure
from llmcap.report.figures.style import inline_svg, new_figure, put_footer, styled
from llmcap.report.markdown import estimate_markdown as estimate_markdown

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from llmcap.analyses.offload.tier_table import TierTable
    from llmcap.analyses.replays.replay import Replay

# Notebooks bring their own light or dark style; these follow the text's colour.
_STYLE: Final = (
    "--figure-ink: currentColor; --figure-muted: currentColor; --figure-rule: rgba(128, 128, 128, .35); "
    "--figure-shade: rgba(128, 128, 128, .25)"
)
_TIERS: Final = (
    "tier", "capacity_bytes", "users_held", "effective_read_bytes_per_s", "reload_s", "ttft_reload_s", "recompute_s",
    "speedup", "winner", "break_even_tokens",
)  # fmt: skip
LISTED: Final = 60


def estimate_html(answer: Estimate) -> str:
    """An estimate: what was asked, the answer, two figures along the context, the tiers, the assumptions."""
    from llmcap.analyses.context_axis import along_context
    from llmcap.report.figures.estimate import footer, heading

    frame, asked = along_context(answer), answer.inputs["context_tokens"]
    with styled():
        left, axes = new_figure()
        prefill_against_reload(axes, frame, asked)
        put_footer(left, footer(answer))
        right, axes = new_figure()
        cache_against_capacity(axes, frame, asked)
        put_footer(right, footer(answer))
        figures = _figures([(left, words.headline(answer)[0]), (right, "KV cache against context")])
    facts = [f"{words.question(answer)}; {words.layout(answer)}.", *words.notes(answer)]
    if answer.serving:
        from llmcap.report import serving_words

        facts[1:1] = [f"{what}: {how_much}" for what, how_much in serving_words.facts(answer)]
    assumed = "; ".join(f"{name}: {text}" for name, text in words.assumption_lines(answer))
    parts = [
        f"<h3>{escape(heading(answer))}</h3>",
        *(f"<p><strong>{escape(line)}</strong></p>" for line in words.headline(answer)),
        *(f"<p>{escape(line)}</p>" for line in facts),
        figures,
        _table(table_of("tiers", "Tiers", answer.tiers, _TIERS)),
        f"<details><summary>Assumptions</summary><p>{escape(assumed)}</p></details>",
    ]
    return f'<div style="{_STYLE}">{"".join(parts)}</div>'


def tiers_html(answer: TierTable) -> str:
    """The rows of `tiers` as a table."""
    rows = answer.rows[:LISTED]
    more = f"<p>{len(answer.rows):,} rows, of which {len(rows)} are shown.</p>" if len(rows) < len(answer.rows) else ""
    columns = ("context_tokens", "cached_tokens", "users", *_TIERS)
    return f"<div>{_table(table_of('tiers', 'Reload against recompute', rows, columns))}{more}</div>"


def replay_html(answer: Replay) -> str:
    """A replay: the curve as a figure and a table, and the tiers."""
    parts = [f"<h3>{escape(str(answer.inputs['trace']))}: {answer.summary['requests']:,} requests</h3>"]
    if answer.curve:
        with styled():
            figure = hits_figure(answer.inputs, answer.curve, answer.tiers, answer.summary["ideal_hit_ratio"])
            parts.append(_figures([(figure, "Hit ratio of a prefix cache against its capacity")]))
        parts.append(_table(table_of("curve", "Hit ratio by capacity", answer.curve, list(answer.curve[0]))))
    if answer.tiers:
        parts.append(_table(table_of("tiers", "Tiers", answer.tiers, list(answer.tiers[0]))))
    return f'<div style="{_STYLE}">{"".join(parts)}</div>'


def replay_markdown(answer: Replay) -> str:
    """A replay in Markdown."""
    from llmcap.report.replay_page import replay_markdown as page

    return page(answer)


def tiers_markdown(answer: TierTable) -> str:
    """The rows of `tiers` in Markdown."""
    from llmcap.report.tables import markdown_text

    return markdown_text(answer.rows[:LISTED])


def _figures(figures: list[tuple[Figure, str]]) -> str:
    found = []
    for figure, said in figures:
        # Several answers may stand in one notebook: ids must differ between them, and not between two runs.
        svg = inline_svg(figure, "f")
        prefix = "f" + hashlib.sha256(svg.encode()).hexdigest()[:10]
        svg = inline_svg(figure, prefix)
        found.append(
            f'<div role="img" aria-label="{escape(said)}" style="flex: 1 1 24rem; max-width: 36rem">{svg}</div>'
        )
    return f'<div style="display: flex; flex-wrap: wrap; gap: 1rem">{"".join(found)}</div>'


def _table(table: Table) -> str:
    head = "".join(f'<th scope="col">{escape(h.label)}</th>' for h in table.heads)
    body = "".join(f"<tr>{''.join(f'<td>{escape(c.text)}</td>' for c in row)}</tr>" for row in table.rows)
    return (
        f"<table><caption>{escape(table.caption)}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
