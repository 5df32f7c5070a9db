"""What docs/accuracy.md says of rows that were left out."""

from __future__ import annotations

from llmcap.report.accuracy_page import excluded


def test_reasons_of_rows_left_out_are_counted_and_rare_ones_stand_together() -> None:
    twice = "lengths nominal: random; same measurement listed twice under another id; KV exceeds the pool"
    notes = [
        *[twice] * 6,
        *["vendor; nodes=1; no isl"] * 5,
        "a slip of the pen",
        "lengths nominal: random; another slip",
    ]
    table = [{"quality": "C", "notes": text} for text in notes] + [{"quality": "A", "notes": "a slip of the pen"}]
    assert excluded(table) == [
        {"rows": "6", "reason": "same measurement listed twice under another id"},
        {"rows": "5", "reason": "no isl"},
        {"rows": "2", "reason": "others, each in its notes"},
    ]
