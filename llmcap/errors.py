"""Everything llmcap raises on purpose.

    LlmcapError                 exit 1   base class; catch this one to catch them all
    |-- OptionError             exit 2   an option's value or a combination of options, unknown ids included
    |-- DocumentError           exit 3   the content of a file; carries every Problem found in it
    `-- CapacityError           exit 4   the question is sound, but the memory does not suffice

Each error says what is wrong, where, and what to do instead. Text that came from the user is echoed only
through `printable`, so that a terminal never receives the control codes of a file or of an argument.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import ClassVar

from llmcap.records import dataclass

MAX_TEXT = 2300  # characters of one error's text: a screenful, and what scripts can keep in one log record
MAX_PROBLEMS = 20
MAX_PROBLEM_TEXT = 300


def printable(text: object, limit: int = 80, keep: str = "") -> str:
    """`text` with control, bidirectional and unassigned characters escaped and cut to `limit` characters.

    Characters in `keep` pass unescaped (a newline, in texts of several lines).
    """
    raw = str(text)
    # Escaping lengthens, so cutting first bounds the work; `limit` characters in give at least `limit` out.
    shown = "".join(
        c if c.isprintable() or c in keep else c.encode("unicode_escape", "backslashreplace").decode("ascii")
        for c in raw[: limit + 1]
    )
    return shown if len(shown) <= limit else shown[: max(limit - 3, 0)] + "..."


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A question naming the closest of `choices`, or an empty text when none is close.

    >>> did_you_mean("dgx-b20", ["dgx-b200", "dgx-h100"])
    "did you mean 'dgx-b200'?"
    """
    by_lower = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(word[:100].lower(), list(by_lower), n=1, cutoff=0.6)
    return f"did you mean '{printable(by_lower[close[0]])}'?" if close else ""


def _sentence(message: str, hint: str) -> str:
    if not hint:
        return message
    # A hint may be a question and what else can be done: "did you mean 'x'? choose one of x, y".
    first, asked, rest = hint.partition("'? ")
    told = " ".join(f"{part[:1].upper()}{part[1:]}" for part in ((first + asked).rstrip(), rest) if part)
    return f"{message.rstrip()}{'' if message.rstrip()[-1:] in '.!?:' else '.'} {told}"


class LlmcapError(Exception):
    """An error with a message for people, a hint what to do instead, and the exit status of the command."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return printable(_sentence(self.message, self.hint), MAX_TEXT, keep="\n")


class OptionError(LlmcapError):
    """An option has a value that cannot be used, alone or beside the others."""

    exit_code: ClassVar[int] = 2

    def __init__(self, option: str, message: str, hint: str = "") -> None:
        super().__init__(f"{option}: {message}" if option else message, hint)
        self.option = option
        self.args = (option, message, hint)


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong in a file: where it stands, what it is, and what would be right."""

    file: str
    line: int | None
    path: str
    message: str
    hint: str = ""

    def __str__(self) -> str:
        # Of a long file name the end tells more than the beginning.
        file = self.file if len(self.file) <= 100 else "..." + self.file[-97:]
        where = [printable(file, 400), *([str(self.line)] if self.line is not None else [])]
        place = ":".join(where) + ": " + (f"{printable(self.path, 100)}: " if self.path else "")
        text = place + self.message + (f"; {self.hint}" if self.hint else "")
        return printable(text, MAX_PROBLEM_TEXT)


class DocumentError(LlmcapError):
    """A file cannot be used; `problems` lists everything found wrong in it."""

    exit_code: ClassVar[int] = 3

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        super().__init__(self._text())
        self.args = (self.problems,)

    def _text(self) -> str:
        lines: list[str] = []
        for problem in self.problems[:MAX_PROBLEMS]:
            line = str(problem)
            if lines and sum(map(len, lines)) + len(lines) + len(line) > MAX_TEXT - 60:
                break
            lines.append(line)
        rest = len(self.problems) - len(lines)
        return "\n".join([*lines, *([f"... and {rest} more"] if rest else [])])


class CapacityError(LlmcapError):
    """Weights or caches need more memory than there is."""

    exit_code: ClassVar[int] = 4
