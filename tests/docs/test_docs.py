"""The documentation is run: every `$ llmcap` line of the README and of docs/, and every Python session.

Quoted output must be what the command prints, apart from line breaks, bars, digests, and numbers that moved by less
than 5 %. `python tests/docs/test_docs.py` writes the output of today into the documents.

In a block marked `console`, lines after `$ ` are commands and the rest is their output; a line `...` stands for any
number of lines, and `# exit 4` after a command states its exit status. `console no-run` is left alone. A block marked
`yaml file=NAME` (or csv) is a file for the commands after it. A block marked `pycon` is a Python session.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import itertools
import json
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
WIDTH = "100"
TOLERANCE = 0.05

_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_BARS = re.compile(r"[\u2500-\u259f·]+")
_NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_DIGEST = re.compile(r"[0-9a-f]{7}")
_LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)]*)?\)")


@dataclass
class Command:
    """One `$ ` line of a console block and the output quoted below it."""

    text: str
    shown: str
    status: int
    quoted: list[str] = field(default_factory=list)


@dataclass
class Block:
    """One fenced block of a page."""

    info: list[str]
    text: str
    start: int
    end: int

    @property
    def file(self) -> str | None:
        names = [part.removeprefix("file=") for part in self.info[1:] if part.startswith("file=")]
        return names[0] if names else None

    @property
    def commands(self) -> list[Command]:
        if self.info[:1] != ["console"] or "no-run" in self.info:
            return []
        found: list[Command] = []
        lines = iter(self.text.splitlines())
        for line in lines:
            if not line.startswith("$ "):
                if found:
                    found[-1].quoted.append(line)
                continue
            shown, whole = line, line[2:]
            while whole.endswith("\\"):
                more = next(lines)
                shown, whole = f"{shown}\n{more}", whole[:-1] + more
            stated = re.search(r"\s# exit (\d+)$", whole)
            found.append(Command(whole[: stated.start()] if stated else whole, shown, int(stated[1]) if stated else 0))
        return found


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    return [Block(m[1].split(), m[2], m.start(2), m.end(2)) for m in _FENCE.finditer(text)]


def run_command(text: str) -> tuple[int, str]:
    """Run one command line in process; only llmcap and a few shell words are known."""
    from llmcap.cli.app import run

    words = shlex.split(text)
    if words[0] == "llmcap":
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            status = run(words[1:])
        return status, out.getvalue() + err.getvalue()
    if words[0] == "export":
        name, _, value = words[1].partition("=")
        os.environ[name] = value.replace("$PWD", os.getcwd())
        return 0, ""
    if words[0] == "cat":
        return 0, "".join(Path(name).read_text(encoding="utf-8") for name in words[1:])
    raise AssertionError(f"'{words[0]}' is not run here: mark the block 'console no-run'")


# -- comparison --------------------------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    """Words without bars, wherever the lines break."""
    return _BARS.sub(" ", text).split()


def same_word(wanted: str, got: str) -> bool:
    """Equal, or equal but for numbers that are close, or both digests."""
    if wanted == got:
        return True
    if _NUMBER.sub("0", wanted) == _NUMBER.sub("0", got):
        pairs = zip(_NUMBER.findall(wanted), _NUMBER.findall(got), strict=True)
        numbers = [(float(a.replace(",", "")), float(b.replace(",", ""))) for a, b in pairs]
        return all(abs(a - b) <= TOLERANCE * max(abs(a), abs(b)) for a, b in numbers)
    return bool(_DIGEST.fullmatch(wanted.rstrip(",;")) and _DIGEST.fullmatch(got.rstrip(",;")))


def difference(quoted: list[str], printed: str) -> str:
    """Where the quoted output departs from the printed one; empty if nowhere."""
    parts: list[list[str]] = [[]]
    for line in quoted:
        if line.strip() == "...":
            parts.append([])
        else:
            parts[-1] += words_of(line)
    got = words_of(printed)
    at = 0
    for number, part in enumerate(parts):
        if number == len(parts) - 1 and number > 0:
            at = max(at, len(got) - len(part))
        elif number > 0:
            while at + len(part) <= len(got) and not all(map(same_word, part, got[at:])):
                at += 1
        for i, word in enumerate(part):
            here = got[at + i] if at + i < len(got) else "<end>"
            if not same_word(word, here):
                near = slice(max(at + i - 5, 0), at + i + 3)
                return f"quoted '{' '.join(part[max(i - 5, 0) : i + 3])}', printed '{' '.join(got[near])}'"
        at += len(part)
    return "" if at == len(got) else f"printed but not quoted: '{' '.join(got[at : at + 8])}'"


class _Checker(doctest.OutputChecker):
    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not difference(want.splitlines(), got)


@contextlib.contextmanager
def workplace() -> Iterator[None]:
    """An empty folder, a fixed width, and an environment that is put back afterwards."""
    before, kept = Path.cwd(), dict(os.environ)
    folder = tempfile.mkdtemp()
    os.environ.update(COLUMNS=WIDTH, NO_COLOR="1")
    os.environ.pop("LLMCAP_PATH", None)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.clear()
        os.environ.update(kept)
        shutil.rmtree(folder)


def write_file(block: Block) -> None:
    """Put a file block into the working folder."""
    if block.file is not None:
        path = Path(block.file)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")


def run_session(block: Block, names: dict[str, object], page: Path) -> list[str]:
    """Run a Python session with the names of the earlier ones; what went wrong."""
    out = io.StringIO()
    session = doctest.DocTestParser().get_doctest(block.text, names, page.name, str(page), 0)
    runner = doctest.DocTestRunner(_Checker(), optionflags=doctest.ELLIPSIS)
    runner.run(session, out=out.write, clear_globs=False)
    names.update(session.globs)
    return [out.getvalue()] if runner.failures else []


# -- tests -------------------------------------------------------------------------------------------------------------


def test_refreshing_keeps_what_a_quotation_keeps() -> None:
    printed = "head 2\nskipped\nTable\nrow 5\nskipped\nend 7\n"
    quoted = ["head 1", "...", "Table", "row 4", "...", "end 6"]
    assert refreshed(quoted, printed) == ["head 2", "...", "Table", "row 5", "...", "end 7"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_runs_and_prints_what_it_quotes(page: Path) -> None:
    wrong: list[str] = []
    names: dict[str, object] = {}
    with workplace():
        for block in blocks_of(page.read_text(encoding="utf-8")):
            write_file(block)
            for command in block.commands:
                status, printed = run_command(command.text)
                if status != command.status:
                    wrong.append(f"$ {command.text}\n  exit {status}: {printed[-300:]}")
                elif any(line.strip() for line in command.quoted) and (gap := difference(command.quoted, printed)):
                    wrong.append(f"$ {command.text}\n  {gap}")
            if block.info[:1] == ["pycon"]:
                wrong += run_session(block, names, page)
    assert not wrong, "\n".join([*wrong, "if the new output is right: python tests/docs/test_docs.py"])


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    targets = [
        t for t in _LINK.findall(page.read_text(encoding="utf-8")) if "://" not in t and not t.startswith("mailto")
    ]
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_the_readme_shows_the_program() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    quoted = [command for block in blocks_of(text) for command in block.commands if command.quoted]
    assert any(command.text == "llmcap estimate" for command in quoted)


_RUN = re.compile(
    r"^(\| `llmcap ([^`]+)`[^|]*\| [\d.,]+ s \| )([\d.,]+) s \| ([\d.,]+) to ([\d.,]+) s \|", re.MULTILINE
)


def times_of(text: str) -> list[float]:
    """Time to first token that a command answers, low and high."""
    status, printed = run_command(f"llmcap {text} --format json")
    assert status == 0
    results = json.loads(printed)["results"]
    return [results[name] for name in ("ttft_s", "ttft_low_s", "ttft_high_s")]


def test_the_long_runs_of_the_readme_are_what_the_model_says() -> None:
    rows = _RUN.findall((ROOT / "README.md").read_text(encoding="utf-8"))
    assert len(rows) >= 4
    for _, text, *figures in rows:
        assert [float(figure.replace(",", "")) for figure in figures] == pytest.approx(times_of(text), rel=0.006), text


def long_runs_refreshed(text: str) -> str:
    """A page whose table of long runs has the times of today, to three digits."""

    def row(found: re.Match[str]) -> str:
        best, low, high = (f"{t:.{3 if t < 1.0 else max(3 - len(str(int(t))), 0)}f}" for t in times_of(found[2]))
        return f"{found[1]}{best} s | {low} to {high} s |"

    return _RUN.sub(row, text)


def test_the_kernel_errors_of_the_readme_are_those_of_the_document() -> None:
    from llmcap.specs.registry import load

    text = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    fits = load("calibration", "b200").document.fits
    for operator, words in (
        ("gemm", "matrix products"),
        ("prefill_attention", "prefill attention"),
        ("moe", "experts"),
    ):
        errors = [100.0 * fit.median_ape for fit in fits if fit.operator == operator]
        assert f"{min(errors):.0f} to {max(errors):.0f} % for {words}" in text


@pytest.mark.parametrize(
    ("quoted", "printed", "same"),
    [
        (["a 24.1 s ███"], "a  24.3 s █████ \n", True),
        (["a 24.1 s"], "a 34.1 s", False),
        (["a 24.1 s"], "a 24.1 ms", False),
        (["a", "...", "d"], "a\nb\nc\nd", True),
        (["a", "...", "c", "...", "e"], "a b c d e", True),
        (["a", "...", "d"], "a\nb\nc\ne", False),
        (["a b"], "a b c", False),
        (["a b c"], "a b", False),
        (["dgx-b200 02fad15, x"], "dgx-b200 c34a482, x", True),
        (["(1,000 to 2,000)"], "(1,010 to 2,010)", True),
    ],
)
def test_the_comparison_can_fail(quoted: list[str], printed: str, same: bool) -> None:
    assert (difference(quoted, printed) == "") is same


# -- refreshing --------------------------------------------------------------------------------------------------------


def refreshed(quoted: list[str], printed: str) -> list[str]:
    """Quoted lines as they would be printed today, cut where they were cut."""
    lines = [line.rstrip() for line in printed.rstrip("\n").splitlines()]
    cuts = [i for i, line in enumerate(quoted) if line.strip() == "..."]
    if not cuts:
        return lines
    head, tail = cuts[0], len(quoted) - 1 - cuts[-1]
    kept, at = lines[:head], head
    for start, end in itertools.pairwise(cuts):
        part = quoted[start + 1 : end]
        found = next((i for i in range(at, len(lines)) if part and lines[i].strip() == part[0].strip()), None)
        if found is None:
            raise SystemExit(f"no longer printed: {part[:1]}")
        at = found + len(part)
        kept += ["...", *lines[found:at]]
    return [*kept, "...", *(lines[-tail:] if tail else [])]


def refresh(page: Path) -> bool:
    """Write the output of today into a page; whether it changed."""
    text = page.read_text(encoding="utf-8")
    parts, done = [], 0
    with workplace():
        for block in blocks_of(text):
            write_file(block)
            if not (commands := block.commands):
                continue
            lines: list[str] = []
            for command in commands:
                lines.append(command.shown)
                status, printed = run_command(command.text)
                if status != command.status:
                    raise SystemExit(f"{page.name}: $ {command.text}: exit {status}\n{printed}")
                if any(line.strip() for line in command.quoted):
                    lines += refreshed(command.quoted, printed)
            parts += [text[done : block.start], "\n".join(lines) + "\n"]
            done = block.end
    new = long_runs_refreshed("".join(parts) + text[done:])
    if new != text:
        page.write_text(new, encoding="utf-8")
    return new != text


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    for _page in [Path(name).resolve() for name in sys.argv[1:]] or PAGES:
        if refresh(_page):
            print(f"refreshed {_page.relative_to(ROOT)}")
