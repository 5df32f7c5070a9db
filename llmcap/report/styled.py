"""Styled text for terminals: words that wrap, columns that align, escape codes only where they are wanted.

Enough for the page of an estimate, and all that it loads; rich would take as long as the estimate itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from typing import Final

#: word of a style -> code of the terminal (ECMA-48, select graphic rendition)
_CODES: Final = {
    "bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "magenta": "35", "cyan": "36",
}  # fmt: skip
_GAP: Final = 2
"""Cells between two columns."""


def cells(text: str) -> int:
    """Cells that a terminal gives to `text`: two for wide letters, none for marks above others."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text
    )


class Text:
    """Pieces of text, each with a style: words such as "bold green", or nothing."""

    __slots__ = ("pieces",)

    def __init__(self, text: str = "", style: str = "") -> None:
        self.pieces: list[tuple[str, str]] = [(text, style)] if text else []

    def append(self, text: str | Text, style: str = "") -> Text:
        """This text, with more at its end."""
        self.pieces += text.pieces if isinstance(text, Text) else Text(text, style).pieces
        return self

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.pieces)

    @property
    def width(self) -> int:
        """[cells]"""
        return cells(self.plain)

    def cut(self, start: int, end: int) -> Text:
        """The letters from `start` to before `end`, with their styles."""
        found, position = Text(), 0
        for text, style in self.pieces:
            if kept := text[max(start - position, 0) : max(end - position, 0)]:
                found.append(kept, style)
            position += len(text)
        return found

    def wrapped(self, width: int) -> list[Text]:
        """Lines of at most `width` cells, broken between words; a word that is longer is broken itself."""
        plain = self.plain
        starts = _line_starts(plain, width)
        ends = [start + len(plain[start:end].rstrip()) for start, end in pairwise([*starts, len(plain)])]
        return [self.cut(start, end) for start, end in zip(starts, ends, strict=True)]

    def shown(self, colour: bool) -> str:
        """With escape codes or without."""
        if not colour:
            return self.plain
        return "".join(
            f"\x1b[{';'.join(_CODES[word] for word in style.split())}m{text}\x1b[0m" if style else text
            for text, style in self.pieces
        )


def _line_starts(plain: str, width: int) -> list[int]:
    """Positions of the letters that lines begin with."""
    starts, used = [0], 0
    for word in re.finditer(r"(\s*)(\S+)", plain):
        gap, letters = cells(word[1]), cells(word[2])
        if used and used + gap + letters > width:
            starts.append(word.start(2))
            used = 0
        else:
            used += gap
        if used + letters <= width:
            used += letters
            continue
        for position in range(word.start(2), word.end(2)):
            one = cells(plain[position])
            if used + one > width:
                starts.append(position)
                used = 0
            used += one
    return starts


def paragraphs(texts: Iterable[Text], width: int, indent: int = 0) -> list[Text]:
    """Lines of one text after the other, `indent` cells from the left."""
    return [Text(" " * indent).append(line) for text in texts for line in text.wrapped(width - indent)]


def aligned(rows: Sequence[Sequence[Text]], sides: str, width: int) -> list[Text]:
    """Lines of rows whose cells stand under each other; what is too wide wraps in the last column.

    Parameters
    ----------
    rows : sequence of rows, all of one length
    sides : str
        "l" or "r" for each column: where its cells stand.
    width : int
        Of the whole. [cells]
    """
    widths = [max(cell.width for cell in column) for column in zip(*rows, strict=True)]
    widths[-1] = max(min(widths[-1], width - sum(widths[:-1]) - _GAP * (len(widths) - 1)), 1)
    lines = []
    for row in rows:
        for parts in zip_longest(*([cell] for cell in row[:-1]), row[-1].wrapped(widths[-1]), fillvalue=Text()):
            line = Text()
            for part, room, side in zip(parts, widths, sides, strict=True):
                space = " " * (room - part.width)
                before, after = (space, "") if side == "r" else ("", space)
                line.append(before).append(part).append(after + " " * _GAP)
            lines.append(line)
    return lines
