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
WIDE: Final = 100
"""Columns from which bars and second-rank columns are shown."""

#: part of the memory bar -> (block, ASCII stand-in, colour)
_PARTS: Final = {
    "weights": ("█", "#", "blue"),
    "KV cache": ("▓", "K", "green"),
    "work space": ("▒", "%", "magenta"),
    "engine reserve": ("░", "-", "yellow"),
    "free": ("·", ".", "bright_black"),
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
        _plain(words.layout(answer), "bright_black"),
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
    bar, legend = Text(), Text()
    for row, cells in zip(rows, _cells([max(r["bytes"], 0.0) / whole for r in rows], room), strict=True):
        block, stand_in, colour = _PARTS[row["part"]]
        mark = stand_in if ascii_only else block
        bar.append(mark * cells, style=colour)
        if row["part"] == "free" and row["bytes"] < 0:
            legend.append(f"short by {format_bytes(-row['bytes'])}", style="bold red")
            continue
        legend.append(mark, style=colour)
        # Spaces that must not break keep a mark with its words.
        legend.append(f" {row['part']} {format_bytes(row['bytes'])}".replace(" ", "\u00a0") + "  ")
    title = f"Memory of one device ({device.name}, {format_bytes(device.memory.capacity)} as its driver reports)"
    users = answer.results["max_users_hbm"]
    room_for = (
        f"Room for {words.plural(users, 'user')} of this length on {words.plural(answer.inputs['devices'], 'device')}."
    )
    return _section(title, bar, legend, _plain(room_for))


def _cells(shares: list[float], room: int) -> list[int]:
    """Whole cells for shares of a bar: what is there shows at least one cell, and the bar is full."""
    cells = [max(1, round(share * room)) if share > 0.0 else 0 for share in shares]
    largest = cells.index(max(cells))
    cells[largest] = max(1, cells[largest] + round(sum(shares) * room) - sum(cells))
    return cells


def _tiers(answer: Estimate, width: int, ascii_only: bool) -> Group:
    wide = width >= WIDE
    cached = answer.inputs["cached_tokens"]
    reusable = cached or answer.inputs["context_tokens"]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bright_black")
    heads = ["tier", "capacity", "users held", "read", *(["reload"] if cached else []), "first token"]
    heads += [""] * wide + ["winner", "wins from"]
    for head in heads:
        table.add_column(head, justify="left" if head in ("tier", "", "winner") else "right", no_wrap=True)
    slowest = max((t["ttft_reload_s"] or 0.0 for t in answer.tiers), default=0.0)
    slowest = max(slowest, answer.tiers[0]["recompute_s"] or 0.0)
    if answer.fits:
        computed = answer.tiers[0]["recompute_s"]
        row: list[Any] = ["(none)", "", "", "", *([""] if cached else []), seconds(computed)]
        row += [_bar(computed / slowest, 14, ascii_only, "yellow")] * wide
        table.add_row(*row, "recompute", "")
    for tier in answer.tiers:
        row = [
            printable(tier["tier"], 12),
            format_bytes(tier["capacity_bytes"]),
            f"{tier['users_held']:,}",
            words.rate(tier),
        ]
        row += [seconds(tier["reload_s"])] if cached else []
        row.append(seconds(tier["ttft_reload_s"]))
        if wide:
            row.append(_bar(tier["ttft_reload_s"] / slowest, 14, ascii_only, "cyan") if answer.fits else "")
        table.add_row(*row, _winner(tier), words.break_even(tier))
    title = (
        f"Reload the KV cache of {reusable:,} tokens, or compute it again?" if answer.fits else "What the tiers hold"
    )
    notes = [_plain(text) for text in (words.break_even_sentence(answer),) if text and answer.fits]
    return _section(title, table, *notes)


def _winner(tier: dict[str, Any]) -> Text:
    if tier["winner"] is None:
        return _plain(words.NONE)
    if tier["winner"] == words.RELOAD_LOSES:
        return _plain(f"recompute ({words.speedup(tier)})", "yellow")
    factor = "" if tier["speedup"] is None else f" {words.speedup(tier)}"
    return _plain(f"reload{factor}", "green")


def _footing(answer: Estimate) -> Group:
    body: list[Any] = [Text()]
    grid = _grid("left", "left")
    for warning in answer.warnings:
        grid.add_row(_plain("Note", "bold yellow" if answer.fits else "bold red"), _plain(warning))
    names = "; ".join(a["name"] for a in answer.assumptions)
    grid.add_row("Assumes", _plain(f"{answer.inputs['assumptions']}: {names}"))
    grid.add_row("Sources", _plain(words.provenance_line(answer), "bright_black"))
    body.append(grid)
    return Group(*body)
