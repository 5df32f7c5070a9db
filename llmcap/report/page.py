"""The terminal page of an estimate: the answer first, then time, memory, tiers and what it rests on."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TextIO

from llmcap.analyses.device_memory import device_memory
from llmcap.analyses.result import Estimate
from llmcap.errors import printable
from llmcap.report import words
from llmcap.report.styled import Text, aligned, paragraphs
from llmcap.report.words import seconds
from llmcap.units import format_bytes

MOST_WIDTH: Final = 120
INDENT: Final = 2
BAR: Final = 14
"""Cells of the longest bar in the table of tiers."""

#: part of the memory bar -> (block, ASCII stand-in, colour)
_PARTS: Final = {
    "weights": ("█", "#", "blue"),
    "KV cache": ("▓", "K", "green"),
    "work space": ("▒", "%", "magenta"),
    "engine reserve": ("░", "-", "yellow"),
    "free": ("·", ".", "dim"),
}


class Terminal(NamedTuple):
    """What a page is written for."""

    width: int
    """[cells]"""
    ascii_only: bool
    colour: bool

    @property
    def room(self) -> int:
        """Width within the indent of a section. [cells]"""
        return self.width - INDENT


def terminal(stream: TextIO | None) -> Terminal:
    """A stream's width and abilities; without a stream, or where it is no terminal, plain text."""
    is_terminal = stream is not None and stream.isatty()
    width = min(max(shutil.get_terminal_size((MOST_WIDTH, 24)).columns, 40), MOST_WIDTH)
    plain = not is_terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") in ("dumb", "unknown")
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    return Terminal(width, ascii_only=encoding != "utf8", colour=not plain)


def estimate_page(answer: Estimate, terminal: Terminal) -> str:
    """The page as text, with escape codes only where the terminal shows colour."""
    lines = _head(answer, terminal)
    if answer.serving:
        lines += _serving(answer, terminal)
    if answer.fits:
        lines += _time(answer, terminal)
    if answer.fits or "prefill_devices" not in answer.inputs:  # each pool of devices has another share of the weights
        lines += _memory(answer, terminal)
    lines += [*_tiers(answer, terminal), *_footing(answer, terminal)]
    return "\n".join(line.shown(terminal.colour).rstrip() for line in lines) + "\n"


def _plain(text: object, style: str = "") -> Text:
    return Text(printable(text, 2000), style)


def _head(answer: Estimate, terminal: Terminal) -> list[Text]:
    setting = answer.setting
    title = _plain(setting.model.name, "bold").append(" on ").append(_plain(setting.machine.server.name, "bold"))
    asked = [title, _plain(words.question(answer)), _plain(words.layout(answer), "dim")]
    first, *rest = words.headline(answer)
    told = [_plain(first, "bold green" if answer.answered else "bold red"), *(_plain(line, "bold") for line in rest)]
    return [*paragraphs(asked, terminal.width), Text(), *paragraphs(told, terminal.width, INDENT)]


def _section(title: str, body: Sequence[Text], terminal: Terminal) -> list[Text]:
    head = paragraphs([_plain(title, "bold")], terminal.width)
    return [Text(), *head, *(Text(" " * INDENT).append(line) for line in body)]


def _serving(answer: Estimate, terminal: Terminal) -> list[Text]:
    from llmcap.report import serving_words

    facts = [(Text(what), _plain(how_much)) for what, how_much in serving_words.facts(answer)]
    if not facts:  # no request fits
        return []
    return _section("Serving in steady state", aligned(facts, "ll", terminal.room), terminal)


def _time(answer: Estimate, terminal: Terminal) -> list[Text]:
    total = answer.results["e2el_s"]
    room = max(10, min(terminal.width - 40, 50))
    spent = [
        (Text(p["name"]), Text(seconds(p["time_s"])), _bar(p["time_s"] / total, room, terminal.ascii_only, "cyan"))
        for p in answer.phases
    ]
    spent.append((_plain("end to end", "bold"), _plain(seconds(total), "bold"), Text()))
    facts = [(Text(what), _plain(how_much)) for what, how_much in words.decode_facts(answer)]
    body = [*aligned(spent, "lrl", terminal.room), Text(), *aligned(facts, "ll", terminal.room)]
    return _section(words.time_title(answer), body, terminal)


def _bar(share: float, room: int, ascii_only: bool, style: str = "") -> Text:
    """A bar of up to `room` cells; eighths of a cell where the terminal can show them."""
    eighths = round(max(0.0, min(share, 1.0)) * room * 8)
    if ascii_only:
        return Text("#" * round(eighths / 8), style)
    text = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return Text(text or "▏", style)


def _memory(answer: Estimate, terminal: Terminal) -> list[Text]:
    device = answer.setting.machine.device
    rows = device_memory(answer)
    room = max(20, min(terminal.width - 6, 72))
    whole = max(device.memory.capacity, sum(r["bytes"] for r in rows if r["part"] != "free"))
    bar, legend = Text(), list[Text]()
    for row, cells in zip(rows, _cells([max(r["bytes"], 0.0) / whole for r in rows], room), strict=True):
        block, stand_in, colour = _PARTS[row["part"]]
        mark = stand_in if terminal.ascii_only else block
        bar.append(mark * cells, colour)
        if row["part"] == "free" and row["bytes"] < 0:
            legend.append(_plain(f"short by {format_bytes(-row['bytes'])}", "bold red"))
        else:
            legend.append(Text(mark, colour).append(f" {row['part']} {format_bytes(row['bytes'])}"))
    reported = f"{device.name}, {format_bytes(device.memory.capacity)} as its driver reports"
    title = f"Memory of one device{words.memory_filled(answer)} ({reported})"
    body = [bar, *_flowed(legend, terminal.room), *_plain(words.room_sentence(answer)).wrapped(terminal.room)]
    return _section(title, body, terminal)


def _flowed(pieces: list[Text], width: int) -> list[Text]:
    """Pieces side by side, in lines that break between pieces only."""
    lines: list[Text] = []
    for piece in pieces:
        if lines and lines[-1].width + 2 + piece.width <= width:
            lines[-1].append("  ").append(piece)
        else:
            lines.append(Text().append(piece))
    return lines


def _cells(shares: list[float], room: int) -> list[int]:
    """Whole cells for shares of a bar: what is there shows at least one cell, and the bar is full."""
    cells = [max(1, round(share * room)) if share > 0.0 else 0 for share in shares]
    largest = cells.index(max(cells))
    cells[largest] = max(1, cells[largest] + round(sum(shares) * room) - sum(cells))
    return cells


def _tiers(answer: Estimate, terminal: Terminal) -> list[Text]:
    columns = _tier_columns(answer, terminal.ascii_only)
    # What a narrow terminal does without, in this order; below that, sentences.
    for column in ("bar", "reload", "read"):
        if _table_width(columns) > terminal.room:
            columns.pop(column, None)
    if _table_width(columns) > terminal.room:
        body = aligned(_tier_lines(answer), "ll", terminal.room)
    else:
        heads = [Text("" if head == "bar" else head, "dim") for head in columns]
        sides = "".join("l" if head in ("tier", "bar", "winner") else "r" for head in columns)
        body = aligned([heads, *zip(*columns.values(), strict=True)], sides, terminal.room)
    if answer.fits and (sentence := words.break_even_sentence(answer)):
        body += _plain(sentence).wrapped(terminal.room)
    if not answer.fits:
        return _section("What the tiers hold", body, terminal)
    reusable = answer.inputs["cached_tokens"] or answer.inputs["context_tokens"]
    title = f"Reload the KV cache of {words.plural(reusable, 'token')}, or compute it again?"
    return _section(title, body, terminal)


def _tier_columns(answer: Estimate, ascii_only: bool) -> dict[str, list[Text]]:
    """Cells by column head: a row for computing everything again, then one for each tier."""
    tiers, fits = answer.tiers, answer.fits
    columns = {
        "tier": [_plain(t["tier"]) for t in tiers],
        "capacity": [_plain(format_bytes(t["capacity_bytes"])) for t in tiers],
        "users held": [_plain(f"{t['users_held']:,}") for t in tiers],
        "read": [_plain(words.rate(t)) for t in tiers],
    }
    if not fits:
        return columns
    if answer.inputs["cached_tokens"]:
        columns["reload"] = [_plain(seconds(t["reload_s"])) for t in tiers]
    computed = tiers[0]["recompute_s"]
    slowest = max(computed, *(t["ttft_reload_s"] for t in tiers))
    columns = {head: [Text(), *cells] for head, cells in columns.items()}
    columns["tier"][0] = _plain("(none)")
    columns["first token"] = [_plain(seconds(v)) for v in (computed, *(t["ttft_reload_s"] for t in tiers))]
    bars = [(computed, "yellow"), *((t["ttft_reload_s"], "cyan") for t in tiers)]
    columns["bar"] = [_bar(value / slowest, BAR, ascii_only, colour) for value, colour in bars]
    columns["winner"] = [_plain("recompute"), *(_winner(t) for t in tiers)]
    columns["wins from"] = [Text(), *(_plain(words.break_even(t)) for t in tiers)]
    return columns


def _table_width(columns: dict[str, list[Text]]) -> int:
    heads = {"bar": BAR}
    return sum(max(heads.get(head, len(head)), *(c.width for c in cells)) + 2 for head, cells in columns.items()) - 2


def _tier_lines(answer: Estimate) -> list[tuple[Text, Text]]:
    """(tier, what is told of it in a sentence), where a table does not fit."""
    lines = []
    for tier in answer.tiers:
        line = Text()
        if answer.fits:
            line.append(f"first token {seconds(tier['ttft_reload_s'])}, ").append(_winner(tier)).append("; ")
        held = words.plural(tier["users_held"], "user")
        line.append(f"{format_bytes(tier['capacity_bytes'])}, {held}, {words.rate(tier)}")
        lines.append((Text(printable(tier["tier"], 40), "bold"), line))
    return lines


def _winner(tier: dict[str, Any]) -> Text:
    return _plain(words.winner(tier), "yellow" if tier["winner"] == words.RELOAD_LOSES else "green")


def _footing(answer: Estimate, terminal: Terminal) -> list[Text]:
    noted = "bold yellow" if answer.fits else "bold red"
    names = "; ".join(a["name"] for a in answer.assumptions)
    rows = [
        *((Text("Note", noted), _plain(note)) for note in words.notes(answer)),
        (Text("Assumes"), _plain(f"{answer.inputs['assumptions']}: {names}")),
        (Text("Sources"), _plain(words.provenance_line(answer), "dim")),
    ]
    return [Text(), *aligned(rows, "ll", terminal.width)]
