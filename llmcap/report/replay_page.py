"""A replayed trace for people: the trace in a sentence, the hit curve, the tiers, and the times to first token."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from typing import Any, Final

from llmcap.analyses.replays.replay import Replay
from llmcap.errors import printable
from llmcap.report.tables import Row, markdown_text, plain_table
from llmcap.report.words import plural
from llmcap.units import format_bytes, format_count, format_rate, format_seconds

NONE: Final = "-"


#: What a narrow terminal does without, the first first.
_OMITTED: Final = (
    "life 2nd", "DWPD 2nd", "at their peak", "at peak", "second touch", "of ideal", "slower for", "p99", "blocks",
    "DWPD", "writes a day",
)  # fmt: skip


def replay_page(answer: Replay, width: int = 120, *, fitted: bool = False) -> str:
    """Aligned text for a terminal of `width` columns.

    `fitted` leaves out columns that the width has no room for: for a screen, not for a file or a pipe.
    """
    head = "".join(textwrap.fill(line, width) + "\n" for line in _head(answer))
    gone: dict[str, None] = {}
    blocks = [head]
    for title, rows in _tables(answer):
        for column in _OMITTED if fitted else ():
            if max(map(len, plain_table(rows).splitlines())) <= width:
                break
            if column in rows[0]:
                gone[column] = None
                rows = [{name: cell for name, cell in row.items() if name != column} for row in rows]
        blocks.append(f"{title}\n{plain_table(rows)}")
    if gone:
        blocks.append(textwrap.fill(f"A wider terminal also shows: {', '.join(gone)}.", width) + "\n")
    if answer.warnings:
        notes = (_sentence(note) for note in answer.warnings)
        blocks.append("".join(textwrap.fill(note, width, subsequent_indent="  ") + "\n" for note in notes))
    return "\n".join(blocks)


def replay_markdown(answer: Replay) -> str:
    """The same in Markdown, with the assumptions."""
    blocks = ["\n".join(_head(answer)) + "\n"]
    blocks += [f"{title}:\n\n{markdown_text(rows)}" for title, rows in _tables(answer)]
    if answer.warnings:
        blocks.append("".join(f"- {_sentence(note)}\n" for note in answer.warnings))
    blocks.append("".join(f"- {a['name']}: {a['text']} Bias: {a['bias']}.\n" for a in answer.assumptions))
    return "\n".join(blocks)


def _sentence(note: str) -> str:
    text = printable(note, 400)
    return f"{text[:1].upper()}{text[1:]}."


def _head(answer: Replay) -> list[str]:
    s, i = answer.summary, answer.inputs
    lines = [
        f"{printable(i['trace'], 200)}: {plural(s['requests'], 'request')} in {format_seconds(s['duration_s'])}, "
        f"{s['input_tokens']:,} input tokens."
    ]
    if s["ideal_hit_ratio"] is None:
        return lines
    lines.append(
        f"{s['unique_blocks']:,} blocks of {i['block_tokens']:,} tokens, {_percent(s['blocks_used_once_ratio'])} "
        f"used once. With nothing ever evicted {_percent(s['ideal_hit_ratio'])} of the tokens are hit."
    )
    tokens = s["capacity_for_90pct_of_ideal_tokens"]
    if tokens is not None:
        lines.append(
            f"90 % of that needs {format_count(tokens)} tokens of cache, "
            f"{format_bytes(s['capacity_for_90pct_of_ideal_bytes'])} of {i['model']} in {i['kv_dtype']}."
        )
    return lines


def _tables(answer: Replay) -> list[tuple[str, list[dict[str, str]]]]:
    reuse = answer.summary["ideal_hit_ratio"] is not None
    tables = [
        ("Hit ratio of an LRU cache", [_line(row, _CURVE) for row in answer.curve]),
        ("Tiers, inclusive, each with the faster ones before it", [_line(row, _TIERS) for row in answer.tiers]),
        ("Traffic and wear", [_line(row, _TRAFFIC) for row in answer.tiers[1:]] if reuse else []),
        (
            "Time to first token of each request alone, with the tiers up to",
            [_line(row, _TTFT) for row in answer.ttft_rows()],
        ),
    ]
    return [(title, _without_empty(rows)) for title, rows in tables if rows]


def _line(row: Row, columns: Sequence[tuple[str, str, Callable[[Any], str]]]) -> dict[str, str]:
    return {head: NONE if row.get(name) is None else shown(row[name]) for name, head, shown in columns}


def _without_empty(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    empty = {name for name in rows[0] if all(row[name] == NONE for row in rows)}
    return [{name: cell for name, cell in row.items() if name not in empty} for row in rows]


def _percent(ratio: float) -> str:
    return f"{ratio:.1%}".replace("%", " %")


def _rate(value: float) -> str:
    return format_rate(value, "B/s")


def drive_writes(a_day: float) -> str:
    """Drive writes a day: two decimals, or two digits of what is small.

    >>> drive_writes(3.664), drive_writes(0.0214), drive_writes(0.00001), drive_writes(0.0)
    ('3.66', '0.021', 'under 0.001', '0')
    """
    if a_day >= 0.1 or a_day == 0.0:
        return f"{a_day:.2f}" if a_day else "0"
    return f"{a_day:.2g}" if a_day >= 0.001 else "under 0.001"


def _years(value: float) -> str:
    return f"{value:.2g} years" if value < 100 else "over 100 years"


_CURVE: Final = (
    ("capacity_blocks", "blocks", lambda n: f"{n:,}"),
    ("capacity_tokens", "tokens", lambda n: f"{n:,}"),
    ("capacity_bytes", "size", format_bytes),
    ("hit_ratio", "hits", _percent),
)
_TIERS: Final = (
    ("tier", "tier", str),
    ("capacity_bytes", "capacity", format_bytes),
    ("capacity_blocks", "blocks", lambda n: f"{n:,}"),
    ("capacity_tokens", "tokens", lambda n: f"{n:,}"),
    ("hit_ratio", "hits", _percent),
    ("share_of_ideal", "of ideal", _percent),
    ("served_ratio", "from here", _percent),
    ("slower_ratio", "slower for", _percent),
)
_TRAFFIC: Final = (
    ("tier", "tier", str),
    ("read_mean_bytes_per_s", "reads", _rate),
    ("read_peak_bytes_per_s", "at peak", _rate),
    ("write_mean_bytes_per_s", "writes", _rate),
    ("write_peak_bytes_per_s", "at their peak", _rate),
    ("write_bytes_per_day", "writes a day", format_bytes),
    ("write_bytes_per_day_second_touch", "second touch", format_bytes),
    ("drive_writes_per_day", "DWPD", drive_writes),
    ("drive_writes_per_day_second_touch", "DWPD 2nd", drive_writes),
    ("drive_life_years", "life", _years),
    ("drive_life_years_second_touch", "life 2nd", _years),
)
_TTFT: Final = (
    ("up_to", "tiers", str),
    ("mean_s", "mean", format_seconds),
    ("p50_s", "p50", format_seconds),
    ("p95_s", "p95", format_seconds),
    ("p99_s", "p99", format_seconds),
    ("gpu_s_saved", "GPU time saved", format_seconds),
    ("busy_ratio", "busy", _percent),
)
