"""A table of cases: one row each, columns named as the options; evaluated setting by setting, answered in order."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from llmcap.analyses.estimate import check_case, check_steps
from llmcap.analyses.evaluate import Evaluator
from llmcap.analyses.options import AXES, Options, canonical, count, known_options, options_from
from llmcap.analyses.result import flatten, rows_of
from llmcap.analyses.setting import resolve
from llmcap.errors import DocumentError, LlmcapError, Problem, did_you_mean, printable
from llmcap.specs.bounded_files import read_bounded

if TYPE_CHECKING:
    from llmcap.analyses.serving.load import LoadModel

#: Cases of one file at most; larger tables are a sweep's business.
MAX_CASES = 1_000_000
MAX_BYTES = 200_000_000


def read_cases(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file of cases.

    Raises
    ------
    DocumentError
        Unknown or repeated columns, rows of the wrong width, an empty file, not UTF-8.
    """
    file = printable(str(path), 200)
    try:
        text = read_bounded(path, MAX_BYTES, "give a UTF-8 CSV file with a header").decode("utf-8-sig")
        lines = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except (UnicodeDecodeError, csv.Error) as error:
        raise DocumentError(
            [Problem(file, None, "", f"cannot be read as CSV: {error}", "give a UTF-8 CSV file with a header")]
        ) from None
    if not lines or not any(cell.strip() for cell in lines[0]):
        raise DocumentError([Problem(file, 1, "", "is empty", f"first line: column names such as {', '.join(AXES)}")])
    header = [canonical(name) for name in lines[0]]
    problems = [
        Problem(
            file,
            1,
            printable(name),
            "unknown column",
            _column_hint(name),
        )
        for name in header
        if name not in known_options()
    ]
    problems += [
        Problem(file, 1, name, "column given twice", "keep one")
        for name in sorted({n for n in header if header.count(n) > 1})
    ]
    rows = []
    for number, line in enumerate(lines[1:], start=2):
        if not any(cell.strip() for cell in line):
            continue
        if len(line) != len(header):
            problems.append(
                Problem(
                    file, number, "", f"{len(line)} cells where the header has {len(header)}", "one cell per column"
                )
            )
            continue
        rows.append(dict(zip(header, line, strict=True)) | {"_line": str(number)})
    if not rows and not problems:
        problems.append(Problem(file, None, "", "holds no cases", "one row per case after the header"))
    if len(rows) > MAX_CASES:
        problems.append(Problem(file, None, "", f"more than {MAX_CASES:,} cases", "use a scenario with llmcap sweep"))
    if problems:
        raise DocumentError(problems)
    return rows


def _column_hint(name: str) -> str:
    if any(mark in name for mark in ";\t|"):
        return "separate columns by commas"
    return did_you_mean(name, known_options()) or f"known: {', '.join(known_options())}"


def evaluate_cases(
    cases: Sequence[Mapping[str, Any]], defaults: Mapping[str, Any] | None = None, *, file: str = "cases"
) -> list[dict[str, Any]]:
    """Rows of results, one per case and tier, in the order of the cases.

    Parameters
    ----------
    cases : sequence of mappings
        Option names to values, text or numbers; empty cells take the default.
    defaults : mapping, optional
        Options for what a case leaves open.
    file : str
        Name under which problems are reported.

    Raises
    ------
    DocumentError
        Naming row and column of every case that cannot be evaluated.
    """
    groups: dict[Options, list[tuple[int, dict[str, int]]]] = {}
    loads: dict[Options, LoadModel] = {}
    kept_sessions: dict[int, int] = {}
    problems: list[Problem] = []
    for index, case in enumerate(cases):
        given = {**(defaults or {}), **{k: v for k, v in case.items() if k != "_line" and str(v).strip() != ""}}
        numbers = {name: given.pop(name, default) for name, default in AXES.items()}
        kept = given.pop("sessions", None)
        try:
            checked = check_case(
                numbers["users"], numbers["context"], numbers["cached_tokens"], numbers["output_tokens"]
            )
            sessions = checked["users"] if kept is None else count("sessions", kept, minimum=checked["users"])
            options = options_from(given, under_load=True)
            check_steps(resolve(options.together()), checked["context"])
            if options.arrivals != "together":
                loads[options] = loads.get(options) or _load_of(options)
                loads[options].check(checked["users"])
        except DocumentError as error:
            line = int(case["_line"]) if "_line" in case else index + 1
            problems += [Problem(file, line, "", f"{p}", "") for p in error.problems]
            continue
        except LlmcapError as error:
            line = int(case["_line"]) if "_line" in case else index + 1
            problems.append(Problem(file, line, "", error.message, error.hint))
            continue
        groups.setdefault(options, []).append((index, checked))
        kept_sessions[index] = sessions
    if problems:
        raise DocumentError(problems)
    found: list[list[dict[str, Any]]] = [[] for _ in cases]
    for options, members in groups.items():
        setting = resolve(options.together())
        u, c, k, o = (
            np.array([case[name] for _, case in members], dtype=np.float64)
            for name in ("users", "context", "cached_tokens", "output_tokens")
        )
        columns = Evaluator.of(setting).evaluate(u, c, k, o)
        load = loads.get(options)
        arrays = flatten(setting if load is None else load.setting, columns, u, c, k, o)
        rows = rows_of(arrays)
        served = None if load is None else load.rows(u, c, k, o)
        tiers = len(arrays.tier_names)
        for position, (index, _) in enumerate(members):
            found[index] = [
                _with(row, kept_sessions[index], {} if served is None else served[position])
                for row in rows[position * tiers : (position + 1) * tiers]
            ]
    return [row for rows in found for row in rows]


def _load_of(options: Options) -> LoadModel:
    from llmcap.analyses.serving.load import LoadModel, under_load

    return LoadModel.of(under_load(resolve(options.together()), options))


def _with(row: dict[str, Any], sessions: int, serving: dict[str, Any]) -> dict[str, Any]:
    """The row with the caches kept in all beside the users, and the steady state before the tier's columns."""
    found: dict[str, Any] = {}
    for name, value in row.items():
        if name == "tier":
            found |= serving
        found[name] = value
        if name == "users":
            found["sessions"] = sessions
    return found
