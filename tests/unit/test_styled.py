"""Styled text: where lines break, how columns align, and which codes reach the terminal."""

from __future__ import annotations

import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llmcap.report.styled import Text, aligned, cells, paragraphs

WORDS = st.lists(st.text("abcdefgh", min_size=1, max_size=9), min_size=1, max_size=30)


@given(WORDS, st.integers(9, 60))
def test_words_break_as_textwrap_breaks_them(words: list[str], width: int) -> None:
    plain = " ".join(words)
    assert [line.plain for line in Text(plain, "bold").wrapped(width)] == textwrap.wrap(plain, width)


@given(st.text("ab 漢字é\u0301", max_size=60), st.integers(2, 20))
def test_no_line_is_wider_than_asked_and_no_letter_is_lost(plain: str, width: int) -> None:
    lines = Text(plain).wrapped(width)
    assert all(line.width <= width for line in lines)
    assert "".join(line.plain for line in lines).replace(" ", "") == plain.replace(" ", "")


def test_wide_letters_take_two_cells_and_marks_none() -> None:
    assert cells("漢字") == 4
    assert cells("e\u0301") == 1
    assert cells("█▏") == 2


def test_a_break_keeps_the_style_of_each_piece() -> None:
    first, second = Text("one ", "bold").append("two three", "red").wrapped(7)
    assert first.pieces == [("one ", "bold"), ("two", "red")]
    assert second.pieces == [("three", "red")]


def test_columns_stand_under_each_other_and_the_last_one_wraps() -> None:
    rows = [[Text("a"), Text("1"), Text("one two three")], [Text("bcd"), Text("20"), Text("four")]]
    shown = [line.plain.rstrip() for line in aligned(rows, "lrl", 16)]
    assert shown == ["a     1  one two", "         three", "bcd  20  four"]


def test_an_indent_stands_before_every_line() -> None:
    assert [line.plain for line in paragraphs([Text("one two"), Text("three")], 6, 2)] == [
        "  one",
        "  two",
        "  thre",
        "  e",
    ]


@pytest.mark.parametrize(("colour", "shown"), [(True, "\x1b[1;32mgo\x1b[0m on"), (False, "go on")])
def test_codes_stand_only_where_there_is_a_style_and_a_wish(colour: bool, shown: str) -> None:
    assert Text("go", "bold green").append(" on").shown(colour) == shown
