"""Files of earlier answers, read for a report: rows from CSV, Parquet or JSON, and the JSON of single commands.

Large files are read twice in a stream: once for the values of each axis, once for the rows at some of those values.
"""

from __future__ import annotations

import json
import math
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from llmcap.analyses.sweeps.thinning import spread_positions
from llmcap.errors import DocumentError, OptionError, Problem, printable
from llmcap.records import dataclass
from llmcap.report.figures.series import INPUTS, NUMBERS
from llmcap.report.sweep_files import meta_path

if TYPE_CHECKING:
    import pandas as pd

MOST_ROWS: Final = 12_000
MOST_JSON_BYTES: Final = 200_000_000
SUFFIXES: Final = (".json", ".csv", ".parquet")


@dataclass(frozen=True, slots=True)
class Result:
    """An earlier answer: rows, or the document of a command."""

    path: Path
    total: int = 0
    """Rows of the file."""
    frame: pd.DataFrame | None = None
    document: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    """The `.meta.json` of a sweep, if it lies beside the file."""

    @property
    def schema(self) -> str:
        """Schema of the document, such as llmcap.estimate/1; empty for rows."""
        return str(self.document.get("schema", ""))


def read_result(path: Path) -> Result:
    """Read a file of results.

    Raises
    ------
    OptionError
        There is no such file, or its suffix is of no known form.
    DocumentError
        It does not hold what its suffix says.
    """
    shown = printable(str(path), 200)
    if not path.is_file():
        raise OptionError("SOURCE", f"there is no file '{shown}'", "name a scenario, or a .json, .csv or .parquet file")
    if path.suffix.lower() not in SUFFIXES:
        hint = f"a result ends in {', '.join(SUFFIXES)}, a scenario in .yaml"
        raise OptionError("SOURCE", f"'{shown}' is of no known form", hint)
    if path.suffix.lower() == ".json":
        return _read_json(path)
    form = path.suffix.lower().lstrip(".")
    try:
        total, table = _read_rows(path, form)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        text = printable(str(error).split("\n")[0], 160)
        raise DocumentError([Problem(shown, None, "", f"cannot be read as {form}: {text}")]) from None
    if not table.num_rows or not table.num_columns:
        raise DocumentError([Problem(shown, None, "", "holds no rows", "name a file that a sweep has written")])
    return Result(path, total, table.to_pandas(), {}, _meta(path))


def _read_json(path: Path) -> Result:
    shown = printable(str(path), 200)
    if path.stat().st_size > MOST_JSON_BYTES:
        raise DocumentError([Problem(shown, None, "", "is too large for JSON", "keep many rows as CSV or Parquet")])
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DocumentError([Problem(shown, None, "", f"is not JSON: {printable(error, 160)}")]) from None
    rows = found.get("rows", []) if isinstance(found, dict) else found
    whole = isinstance(found, dict) and str(found.get("schema", "")).startswith("llmcap.")
    if not whole and not (isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows)):
        hint = "name the JSON of an llmcap command, or a list of rows"
        raise DocumentError([Problem(shown, 1, "", "holds neither an answer of llmcap nor rows", hint)])
    import pandas as pd

    frame = None
    if isinstance(rows, list) and rows and all(isinstance(row, dict) for row in rows):
        flat = [{k: v for k, v in row.items() if not isinstance(v, dict | list)} for row in rows]
        frame = pd.DataFrame(flat)
    return Result(path, 0 if frame is None else len(frame), frame, found if isinstance(found, dict) else {}, {})


def _read_rows(path: Path, form: str) -> tuple[int, pa.Table]:
    data = ds.dataset(str(path), format=form)
    names = data.schema.names
    total = data.count_rows()
    if total <= MOST_ROWS:
        return total, data.to_table()
    axes = [n for n in INPUTS if n in names]
    values: dict[str, set[Any]] = {name: set() for name in axes}
    for batch in data.to_batches(columns=axes):
        for name in axes:
            if len(values[name]) <= MOST_ROWS:
                values[name].update(pc.unique(batch.column(name)).to_pylist())
    kept = _kept_values(values, total)
    condition = None
    for name, some in kept.items():
        part = ds.field(name).isin(some)
        condition = part if condition is None else condition & part
    table = data.to_table(filter=condition)
    if MOST_ROWS // 50 < table.num_rows <= 4 * MOST_ROWS:
        return total, table
    # The rows are no grid: every n-th of them is as good as any.
    stride = math.ceil(total / MOST_ROWS)
    pieces, seen = [], 0
    for batch in data.to_batches():
        first = -seen % stride
        pieces.append(pa.Table.from_batches([batch.take(pa.array(np.arange(first, batch.num_rows, stride)))]))
        seen += batch.num_rows
    return total, pa.concat_tables(pieces)


def _kept_values(values: dict[str, set[Any]], total: int) -> dict[str, list[Any]]:
    """Some values of each long axis of numbers, so that a grid of `total` rows shrinks to a readable number."""
    numbers = {n: sorted(v for v in values[n] if v is not None) for n in NUMBERS if n in values}
    sizes = {n: len(v) for n, v in numbers.items() if len(v) > 4}
    whole = dict(sizes)
    while sizes and total * math.prod(sizes[n] / whole[n] for n in sizes) > MOST_ROWS and max(sizes.values()) > 4:
        longest = max(sizes, key=lambda n: sizes[n])
        sizes[longest] = max(int(sizes[longest] * 0.8), 4)
    found: dict[str, list[Any]] = {}
    for name, size in sizes.items():
        if size < whole[name]:
            positions = spread_positions(np.array(numbers[name], dtype=np.float64), size)
            found[name] = [numbers[name][i] for i in positions]
    return found


def _meta(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(meta_path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
