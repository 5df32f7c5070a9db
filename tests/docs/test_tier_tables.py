"""The tables of docs/tiers.md are what the shipped scenario kv-tiers gives; run this file to write those of today.

Winners must be the same, except where the two ways are within 5 % of each other, and numbers within 5 %.
"""

from __future__ import annotations

import csv
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from llmcap.cli.app import run
from llmcap.report.tables import markdown_text
from llmcap.units import format_count, format_rate, format_seconds

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tiers.md"
MARKS = ("<!-- kv-tiers: begin -->\n", "<!-- kv-tiers: end -->\n")
TOLERANCE = 0.05

Row = dict[str, str]
MODELS = {"llama-4-maverick": "Llama 4 Maverick, fp8", "llama-3.1-70b": "Llama 3.1 70B, bf16"}
MACHINES = {"b200": "DGX B200", "h100": "DGX H100"}
#: column -> override after the machine's name, tier
TIERS = {"DRAM": ("gen5", "dram"), "Gen5": ("gen5", "nvme"), "Gen6": ("gen6", "nvme"), "remote": ("gen5", "remote")}


def rows_of_scenario() -> list[Row]:
    """The sweep's rows, through the command."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.csv"
        assert run(["sweep", "kv-tiers", "-o", str(path)]) == 0
        with path.open(newline="", encoding="utf-8") as handle:
            return list(csv.DictReader(handle))


def tables(rows: list[Row]) -> str:
    """All tables as Markdown."""
    by_case = {(r["model"], r["override"], r["context_tokens"], r["sessions"], r["tier"]): r for r in rows}
    text = []
    for model, model_name in MODELS.items():
        for machine, machine_name in MACHINES.items():
            cases = list(dict.fromkeys((r["context_tokens"], r["sessions"]) for r in rows))
            lines = []
            for context, sessions in cases:
                found = {
                    head: by_case[model, f"{machine}-{override}", context, sessions, tier]
                    for head, (override, tier) in TIERS.items()
                }
                first = found["DRAM"]
                fits = first["fits"] == "true"
                lines.append(
                    {
                        "context": format_count(int(context)),
                        "sessions": f"{int(sessions):,}",
                        "active": f"{int(first['users']):,}" if fits else "none fits",
                        "recompute": format_seconds(float(first["recompute_s"])) if fits else "-",
                        **{head: outcome(row) for head, row in found.items()},
                        "break-even": format_rate(float(first["break_even_bytes_per_s"]), "B/s") if fits else "-",
                    }
                )
            text.append(f"### {model_name}, on {machine_name}\n\n{markdown_text(lines)}")
    return "\n".join([*text, smallest_prefixes(rows)])


def outcome(row: Row) -> str:
    """'reload 34x', 'recompute' where reloading is slower."""
    if not row["winner"]:
        return "-"
    times = float(row["speedup"])
    return f"{row['winner']} {times:.0f}x" if times >= 10 else f"{row['winner']} {times:.2g}x"


def smallest_prefixes(rows: list[Row]) -> str:
    """Break-even tokens of one user."""
    one = {
        (r["model"], r["override"], r["tier"]): r for r in rows if (r["sessions"], r["context_tokens"]) == ("1", "8000")
    }
    lines = []
    for model, model_name in MODELS.items():
        for machine, machine_name in MACHINES.items():
            cells = {}
            for head, (override, tier) in TIERS.items():
                tokens = one[model, f"{machine}-{override}", tier]["break_even_tokens"]
                cells[head] = f"{int(float(tokens)):,}" if tokens else "never"
            lines.append({"model": model_name, "machine": machine_name, **cells})
    title = "### Smallest prefix [tokens] from which reloading wins, one user"
    return f"{title}\n\n{markdown_text(lines)}"


def between_marks(page: str) -> tuple[str, str, str]:
    """The page before, between and after the marks."""
    before, rest = page.split(MARKS[0])
    inside, after = rest.split(MARKS[1])
    return before + MARKS[0], inside, MARKS[1] + after


def cells(text: str) -> Iterator[tuple[str, str]]:
    """(head of the row, cell) of all tables."""
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip("|").split("|")]
        yield from ((" ".join(parts[:2]), part) for part in parts)


def alike(quoted: str, got: str) -> bool:
    if quoted == got:
        return True
    numbers = [[float(n.replace(",", "")) for n in re.findall(r"\d[\d,.]*", t)] for t in (quoted, got)]
    words = [re.sub(r"\d[\d,.]*", "0", t) for t in (quoted, got)]
    near = len(numbers[0]) == len(numbers[1]) and all(
        abs(a - b) <= TOLERANCE * max(a, b) + 0.1 * (max(a, b) < 10) for a, b in zip(*numbers, strict=True)
    )
    tie = all(n and 0.9 <= n[-1] <= 1.1 for n in numbers)
    return near and (words[0] == words[1] or tie)


def test_the_tables_are_those_of_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    _, quoted, _ = between_marks(PAGE.read_text(encoding="utf-8"))
    got = tables(rows_of_scenario())
    pairs = list(zip(cells(quoted.strip()), cells(got.strip()), strict=True))
    wrong = [f"{q[0]}: quoted '{q[1]}', now '{g[1]}'" for q, g in pairs if not alike(q[1], g[1])]
    assert not wrong, f"run python {Path(__file__).name}: {wrong[:5]}"


def main() -> None:
    """Write the tables of today into the page."""
    before, _, after = between_marks(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(before + "\n" + tables(rows_of_scenario()) + "\n" + after, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
