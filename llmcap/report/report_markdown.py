"""A report in Markdown, with its figures as files beside it."""

from __future__ import annotations

from pathlib import PurePosixPath

from llmcap.errors import printable
from llmcap.report.document import Report, Table
from llmcap.report.figures.style import rendered, styled
from llmcap.report.html import source_tables


def report_markdown(report: Report, folder: str = "") -> tuple[str, dict[str, bytes]]:
    """The text, and the figures by file name.

    Parameters
    ----------
    report : Report
    folder : str
        Of the figures, as seen from the text; empty: no figures, their content in words alone.
    """
    lines = [f"# {escaped(report.title)}", escaped(report.question), "## Answer"]
    lines += [escaped(sentence) for sentence in report.answer]
    lines += [f"*{escaped(note)}*" for note in report.notes]
    pictures: dict[str, bytes] = {}
    if report.pictures:
        lines.append("## Figures")
    for picture in report.pictures:
        if folder:
            with styled():
                pictures[f"{picture.name}.png"] = rendered(picture.figure, "png")
            where = PurePosixPath(folder, f"{picture.name}.png").as_posix()
            lines.append(f"![{escaped(picture.alternative)}](<{where.replace('<', '').replace('>', '')}>)")
        lines.append(f"*{escaped(picture.caption)}* {'' if folder else escaped(picture.alternative)}".rstrip())
    lines.append("## Tables")
    for table in report.tables:
        lines += _table(table)
    lines.append("## Assumptions and sources")
    for assumed in report.assumptions:
        inferred = " (inferred)" if assumed.inferred else ""
        said = f"{assumed.text} Bias: {assumed.bias}. Source: {assumed.source}."
        lines.append(f"- **{escaped(assumed.name)}**{inferred}: {escaped(said)}")
    for table in source_tables(report):
        lines += _table(table)
    lines += ["## Reproduce", f"```sh\n{report.command.replace('```', '')}\n```", f"llmcap {escaped(report.version)}"]
    return "\n\n".join(lines) + "\n", pictures


def escaped(text: str) -> str:
    """Text with what Markdown would read as markup escaped."""
    return printable(text, 4000).translate({ord(c): "\\" + c for c in "\\`*_[]<>|#"})


def _table(table: Table) -> list[str]:
    lines = [_line([head.label for head in table.heads]), "|" + "---|" * len(table.heads)]
    lines += [_line([cell.text for cell in row]) for row in table.rows]
    head = f"### {escaped(table.caption)}" + (f"\n\n*{escaped(table.note)}*" if table.note else "")
    return [head, "\n".join(lines)]


def _line(texts: list[str]) -> str:
    return f"| {' | '.join(map(escaped, texts))} |"
