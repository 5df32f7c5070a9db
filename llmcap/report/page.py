"""The terminal page of an estimate: the answer first, then time, memory, tiers and what it rests on."""

from __future__ import annotations

import os
import shutil
from typing import Any, Final, TextIO

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from llmcap.analyses.device_memory import device_memory
from llmcap.analyses.result import Estimate
from llmcap.errors import printable
from llmcap.report import words
from llmcap.report.words import seconds
from llmcap.units import format_bytes

MOST_WIDTH: Final = 120
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


def terminal(stream: TextIO | None) -> Console:
    """A console for a stream's width and abilities; without a stream, or where it is no terminal, plain text."""
    is_terminal = stream is not None and stream.isatty()
    width = min(max(shutil.get_terminal_size((MOST_WIDTH, 24)).columns, 40), MOST_WIDTH)
    plain = not is_terminal or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"
    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("-", "")
    console = Console(
        width=width, force_terminal=not plain, no_color=plain, color_system=None if plain else "auto", highlight=False,
        markup=False, emoji=False, legacy_windows=False, file=stream,
    )  # fmt: skip
    console.options.encoding = "utf-8" if encoding == "utf8" else "ascii"
    return console


def estimate_page(answer: Estimate, console: Console) -> str:
    """The page as text, with escape codes only where the console shows colour."""
    ascii_only = console.options.encoding == "ascii"
    blocks = [_head(answer), _time(answer, console.width, ascii_only)] if answer.fits else [_head(answer)]
    blocks += [_memory(answer, console.width, ascii_only), _tiers(answer, console.width, ascii_only)]
    blocks.append(_footing(answer))
    with console.capture() as captured:
        console.print(Group(*blocks))
    lines = captured.get().split("\n")
    return "\n".join(line.rstrip() for line in lines).strip("\n") + "\n"


def _plain(text: object, style: str = "") -> Text:
    return Text(printable(text, 2000), style=style)


def _head(answer: Estimate) -> Group:
    setting = answer.setting
    title = Text.assemble(
        (printable(setting.model.name), "bold"), " on ", (printable(setting.machine.server.name), "bold")
    )
    style = "bold green" if answer.fits else "bold red"
    first, *rest = words.headline(answer)
    return Group(
        title,
        _plain(words.question(answer)),
        _plain(words.layout(answer), "dim"),
        Text(),
        Padding(Group(_plain(first, style), *(_plain(line, "bold") for line in rest)), (0, 0, 0, 2)),
    )


def _section(title: str, *body: Any) -> Group:
    return Group(Text(), _plain(title, "bold"), Padding(Group(*body), (0, 0, 0, 2)))


def _grid(*justify: str) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    for side in justify:
        table.add_column(justify=side, no_wrap=False)  # type: ignore[arg-type]
    return table


def _time(answer: Estimate, width: int, ascii_only: bool) -> Group:
    total = answer.results["e2el_s"]
    grid = _grid("left", "right", "left")
    room = max(10, min(width - 40, 50))
    for phase in answer.phases:
        share = phase["time_s"] / total
        grid.add_row(phase["name"], seconds(phase["time_s"]), _bar(share, room, ascii_only, "cyan"))
    grid.add_row(_plain("end to end", "bold"), _plain(seconds(total), "bold"), "")
    facts = _grid("left", "left")
    for what, how_much in words.decode_facts(answer):
        facts.add_row(what, _plain(how_much))
    return _section("Time", grid, Text(), facts)


def _bar(share: float, room: int, ascii_only: bool, style: str = "") -> Text:
    """A bar of up to `room` cells; eighths of a cell where the terminal can show them."""
    eighths = round(max(0.0, min(share, 1.0)) * room * 8)
    if ascii_only:
        return Text("#" * round(eighths / 8), style=style)
    text = "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]
    return Text(text or "▏", style=style)


def _memory(answer: Estimate, width: int, ascii_only: bool) -> Group:
    device = answer.setting.machine.device
    rows = device_memory(answer)
    room = max(20, min(width - 6, 72))
    whole = max(device.memory.capacity, sum(r["bytes"] for r in rows if r["part"] != "free"))
    bar, legend = Text(), list[Text]()
    for row, cells in zip(rows, _cells([max(r["bytes"], 0.0) / whole for r in rows], room), strict=True):
        block, stand_in, colour = _PARTS[row["part"]]
        mark = stand_in if ascii_only else block
        bar.append(mark * cells, style=colour)
        if row["part"] == "free" and row["bytes"] < 0:
            legend.append(_plain(f"short by {format_bytes(-row['bytes'])}", "bold red"))
        else:
            legend.append(Text.assemble((mark, colour), f" {row['part']} {format_bytes(row['bytes'])}"))
    title = f"Memory of one device ({device.name}, {format_bytes(device.memory.capacity)} as its driver reports)"
    users = answer.results["max_users_hbm"]
    room_for = (
        f"Room for {words.plural(users, 'user')} of this length on {words.plural(answer.inputs['devices'], 'device')}."
    )
    return _section(title, bar, *_flowed(legend, width - 2), _plain(room_for))


def _flowed(pieces: list[Text], width: int) -> list[Text]:
    """Pieces side by side, in lines that break between pieces only."""
    lines: list[Text] = []
    for piece in pieces:
        if lines and lines[-1].cell_len + 2 + piece.cell_len <= width:
            lines[-1].append("  ").append_text(piece)
        else:
            lines.append(piece.copy())
    return lines


def _cells(shares: list[float], room: int) -> list[int]:
    """Whole cells for shares of a bar: what is there shows at least one cell, and the bar is full."""
    cells = [max(1, round(share * room)) if share > 0.0 else 0 for share in shares]
    largest = cells.index(max(cells))
    cells[largest] = max(1, cells[largest] + round(sum(shares) * room) - sum(cells))
    return cells


def _tiers(answer: Estimate, width: int, ascii_only: bool) -> Group:
    columns = _tier_columns(answer, ascii_only)
    # What a narrow terminal does without, in this order; below that, sentences.
    for column in ("bar", "reload", "read"):
        if _table_width(columns) > width - 2:
            columns.pop(column, None)
    if _table_width(columns) > width - 2:
        body: list[Any] = list(_tier_lines(answer))
    else:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        for head in columns:
            left = head in ("tier", "bar", "winner")
            table.add_column("" if head == "bar" else head, justify="left" if left else "right", no_wrap=True)
        for row in zip(*columns.values(), strict=True):
            table.add_row(*row)
        body = [table]
    if answer.fits and (sentence := words.break_even_sentence(answer)):
        body.append(_plain(sentence))
    if not answer.fits:
        return _section("What the tiers hold", *body)
    reusable = answer.inputs["cached_tokens"] or answer.inputs["context_tokens"]
    return _section(f"Reload the KV cache of {words.plural(reusable, 'token')}, or compute it again?", *body)


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
    return sum(max(heads.get(head, len(head)), *(c.cell_len for c in cells)) + 2 for head, cells in columns.items()) - 2


def _tier_lines(answer: Estimate) -> list[Text]:
    """The tiers in sentences, where a table does not fit."""
    lines = []
    for tier in answer.tiers:
        line = Text.assemble((printable(tier["tier"], 40), "bold"), ": ")
        if answer.fits:
            line.append(f"first token {seconds(tier['ttft_reload_s'])}, ").append_text(_winner(tier)).append("; ")
        held = words.plural(tier["users_held"], "user")
        lines.append(line.append(f"{format_bytes(tier['capacity_bytes'])}, {held}, {words.rate(tier)}"))
    return lines


def _winner(tier: dict[str, Any]) -> Text:
    return _plain(words.winner(tier), "yellow" if tier["winner"] == words.RELOAD_LOSES else "green")


def _footing(answer: Estimate) -> Group:
    body: list[Any] = [Text()]
    grid = _grid("left", "left")
    for note in words.notes(answer):
        grid.add_row(_plain("Note", "bold yellow" if answer.fits else "bold red"), _plain(note))
    names = "; ".join(a["name"] for a in answer.assumptions)
    grid.add_row("Assumes", _plain(f"{answer.inputs['assumptions']}: {names}"))
    grid.add_row("Sources", _plain(words.provenance_line(answer), "dim"))
    body.append(grid)
    return Group(*body)
