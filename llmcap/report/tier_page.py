"""A table of tiers for people: one line per case and tier, the faster way marked, and what it means in sentences."""

from __future__ import annotations

import textwrap
from collections.abc import Collection, Sequence
from typing import Any, Final

from llmcap.report.tables import Row, markdown_text, plain_table
from llmcap.units import format_bytes, format_count, format_rate, format_seconds, format_si

NONE: Final = "-"
MARK: Final = " *"


#: What a narrow terminal does without, the first first.
_OMITTED: Final = ("overlap", "holds users", "hybrid", "users from", "tokens", "even at", "reload")


def tier_page(rows: Sequence[Row], notes: Sequence[str], width: int = 120, *, fitted: bool = False) -> str:
    """Tiers, times, what else was asked, and the notes, as aligned text.

    `fitted` leaves out columns of times that the width has no room for: for a screen, not for a file or a pipe.
    """
    blocks = [plain_table(_places(rows)), _times_within(rows, width, fitted)]
    blocks += [f"{title}\n{_named_once(lines, width, fitted)}" for title, lines in _extras(rows)]
    if notes:
        blocks.append("".join(textwrap.fill(note + ".", width, subsequent_indent="  ") + "\n" for note in notes))
    return "\n".join(blocks)


def tier_markdown(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """The same in Markdown."""
    times = _times(rows)
    legend = "\n" + "\\" + _legend(times[0]) + "\n" if any(row.get("winner") for row in rows) else ""
    blocks = [markdown_text(_places(rows)), markdown_text(times) + legend]
    blocks += [f"{title}:\n\n{markdown_text(lines)}" for title, lines in _extras(rows)]
    if notes:
        blocks.append("".join(f"- {note}.\n" for note in notes))
    return "\n".join(blocks)


def _places(rows: Sequence[Row]) -> list[dict[str, str]]:
    """One line per tier: what is the same in all cases, or the range of it."""
    found = []
    for name in dict.fromkeys(row["tier"] for row in rows):
        members = [row for row in rows if row["tier"] == name]
        hops = list(dict.fromkeys(row.get("narrowest_hop") or NONE for row in members))
        found.append(
            {
                "tier": name,
                "capacity": format_bytes(members[0]["capacity_bytes"]),
                "reads at": NONE if name == "hbm" else _range(members, "effective_read_bytes_per_s"),
                "limited by": ", ".join(hops),
            }
        )
    return found


def _range(rows: Sequence[Row], column: str) -> str:
    values = [row[column] for row in rows if row.get(column) is not None]
    if not values:
        return NONE
    low, high = _rate(min(values)), _rate(max(values))
    return low if low == high else f"{low} to {high}"


def _times(rows: Sequence[Row]) -> list[dict[str, str]]:
    return _without_empty([_line(row) for row in rows])


def _legend(columns: Collection[str]) -> str:
    """What the marks and break-even columns mean, of those that are there."""
    wins = {"even at": "from 'even at' bandwidth", "tokens": "from 'tokens' of prefix on"}
    said = [text for name, text in wins.items() if name in columns]
    clauses = [f"Reload wins {' and '.join(said)}"] if said else []
    if "users from" in columns:
        clauses.append("it loses with 'users from' users or more")
    return "* the faster way." + (f" {'; '.join(clauses)}." if clauses else "")


def _times_within(rows: Sequence[Row], width: int, fitted: bool) -> str:
    """The table of times with the columns that a width has room for, and its legend."""
    lines = _times(rows)
    gone: list[str] = []
    for column in _OMITTED if fitted else ():
        table = plain_table(lines)
        if max(map(len, table.splitlines())) <= width:
            break
        if column in lines[0]:
            gone.append(column)
            lines = [{name: cell for name, cell in line.items() if name != column} for line in lines]
    if not any(row.get("winner") for row in rows):
        return plain_table(lines)
    legend = _legend(lines[0])
    if gone:
        legend += f" A wider terminal also shows: {', '.join(gone)}."
    return plain_table(lines) + textwrap.fill(legend, width) + "\n"


def _named_once(lines: list[dict[str, str]], width: int, fitted: bool) -> str:
    """A table that leaves out, where it is too wide, what is the same in all its cases: the table of times has it."""
    table = plain_table(lines)
    if not fitted or max(map(len, table.splitlines())) <= width:
        return table
    same = {c for c in ("context", "cached", "users") if c in lines[0] and len({line[c] for line in lines}) == 1}
    return plain_table([{name: cell for name, cell in line.items() if name not in same} for line in lines])


def _extras(rows: Sequence[Row]) -> list[tuple[str, list[dict[str, str]]]]:
    """Titled tables of what was asked beside times, a line per case and tier."""
    tables = []
    for title, group in _EXTRAS.items():
        present = [extra for extra in group if any(extra[0] in row for row in rows)]
        if not present:
            continue
        lines = []
        for row in rows:
            cells = {head: NONE if row.get(c) is None else shown(row[c]) for c, head, shown in present}
            if any(cell != NONE for cell in cells.values()):
                lines.append({**_case(row), **cells})
        if lines:  # none where no case has times
            tables.append((title, _without_empty(lines)))
    return tables


def _without_empty(lines: list[dict[str, str]]) -> list[dict[str, str]]:
    """Columns without any value are left out."""
    empty = {name for name in (lines[0] if lines else {}) if all(line[name] in ("", NONE) for line in lines)}
    return [{name: cell for name, cell in line.items() if name not in empty} for line in lines]


def _case(row: Row) -> dict[str, str]:
    return {
        "context": format_count(row["context_tokens"]),
        "cached": format_count(row["cached_tokens"]) if row["cached_tokens"] else "",
        "users": f"{row['users']:,}",
        "tier": row["tier"],
    }


def _line(row: Row) -> dict[str, str]:
    won, lost = row["winner"] == "reload", row["winner"] == "recompute"
    return {
        **_case(row),
        "recompute": _seconds(row["recompute_s"]) + (MARK if lost else ""),
        "reload": _seconds(row["reload_s"]),
        "TTFT reload": _seconds(row["ttft_reload_s"]) + (MARK if won else ""),
        "overlap": _seconds(row["ttft_overlap_s"]),
        "hybrid": _seconds(row["ttft_hybrid_s"]),
        "even at": _rate(row.get("break_even_bytes_per_s")),
        "tokens": _even(row, "break_even_tokens", "never"),
        "users from": _even(row, "break_even_users", "none"),
        "holds users": f"{row['users_held']:,}",
    }


def _even(row: Row, column: str, otherwise: str) -> str:
    if row["tier"] == "hbm" or row["winner"] is None or column not in row:
        return NONE
    return otherwise if row[column] is None else f"{row[column]:,.0f}"


def _seconds(value: float | None) -> str:
    return NONE if value is None else format_seconds(value)


def _rate(value: float | None) -> str:
    return NONE if value is None else format_rate(value, "B/s")


def _usd(value: float) -> str:
    return f"{value:,.2f} USD" if abs(value) >= 0.1 else f"{value:.2g} USD"


def _percent(value: float) -> str:
    return f"{value:.0%}" if value >= 0.1 else f"{value:.1%}"


#: title -> column, head and form of its cells
_EXTRAS: Final[dict[str, tuple[tuple[str, str, Any], ...]]] = {
    "Where the sessions live": (
        ("sessions_placed", "sessions here", lambda v: f"{v:,}"),
        ("returns_share", "of returns", _percent),
        ("ttft_expected_s", "expected TTFT", format_seconds),
        ("ttft_expected_hbm_only_s", "with HBM alone", format_seconds),
    ),
    "Requests at random": (
        ("tier_utilisation", "tier busy", _percent),
        ("device_utilisation_reload", "devices busy", _percent),
        ("device_utilisation_recompute", "if recomputing", _percent),
        ("ttft_reload_mean_s", "mean TTFT", format_seconds),
        ("ttft_reload_p95_s", "p95 TTFT", format_seconds),
        ("ttft_recompute_mean_s", "mean recompute", format_seconds),
        ("ttft_recompute_p95_s", "p95 recompute", format_seconds),
    ),
    "Writes": (
        ("written_bytes_per_s", "writes", lambda v: format_rate(v, "B/s")),
        ("write_utilisation", "of the write rate", _percent),
        ("drive_writes_per_day", "DWPD", lambda v: f"{v:.2g}"),
        ("drive_life_years", "life", lambda v: f"{v:,.0f} years" if v >= 10 else f"{v:.1f} years"),
    ),
    "Energy and money, a request and a day": (
        ("recompute_j", "recompute", lambda v: format_si(v, "J")),
        ("reload_j", "reload", lambda v: format_si(v, "J")),
        ("recompute_usd", "recompute costs", _usd),
        ("reload_usd", "reload costs", _usd),
        ("freed_device_h_per_day", "device-hours freed", lambda v: f"{v:,.0f}" if abs(v) >= 10 else f"{v:.2g}"),
        ("saved_usd_per_day", "saved a day", _usd),
        ("tier_usd_per_day", "tier a day", _usd),
    ),
}
