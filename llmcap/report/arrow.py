"""Rows of a sweep as Arrow tables, and those as the bytes of a Parquet row group or of CSV lines."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, Final, Literal

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

from llmcap.analyses.sweeps.sweep import Column, Rows
from llmcap.glossary import GLOSSARY
from llmcap.records import dataclass
from llmcap.report.row_groups import MAGIC, Group, file_footer, split_file

FileFormat = Literal["parquet", "csv"]

_TYPES: Final = {"number": pa.float64(), "count": pa.int64(), "truth": pa.bool_()}


@dataclass(frozen=True, slots=True)
class Encoded:
    """A chunk as it stands in the file."""

    index: int
    rows: int
    body: bytes
    group: bytes = b""
    """Parquet: the footer's record of the row group, offsets counted from the start of `body`."""
    footer: bytes = b""
    """Parquet: the footer without row groups, the same for every chunk."""


def schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Types of the columns; unit and meaning of each as field metadata."""
    return pa.schema([_field(c) for c in columns])


def table_of(columns: Sequence[Column], rows: Rows) -> pa.Table:
    """A chunk as an Arrow table; NaN and missing words become nulls."""
    arrays = [_array(c, rows.arrays[c.name]) for c in columns]
    return pa.Table.from_arrays(arrays, schema=schema_of(columns))


def encode(columns: Sequence[Column], rows: Rows, form: FileFormat) -> Encoded:
    """The bytes of one chunk, which depend on nothing but its rows."""
    table = table_of(columns, rows)
    if form == "csv":
        sink = io.BytesIO()
        options = pa_csv.WriteOptions(include_header=rows.index == 0, quoting_style="needed", batch_size=65_536)
        pa_csv.write_csv(table, sink, options)
        return Encoded(rows.index, rows.size, sink.getvalue())
    buffer = write_parquet(columns, table)
    body, group, footer = split_file(buffer)
    return Encoded(rows.index, rows.size, body, group, footer)


def write_parquet(columns: Sequence[Column], table: pa.Table) -> bytes:
    """A whole Parquet file of one row group: zstd, dictionaries for words only, since numbers seldom repeat."""
    sink = pa.BufferOutputStream()
    words = [c.name for c in columns if c.kind == "word"]
    with pq.ParquetWriter(
        sink, table.schema, compression="zstd", compression_level=1, use_dictionary=words or False,
        write_statistics=[c.name for c in columns if c.kind == "count"] or False,
    ) as writer:  # fmt: skip
        writer.write_table(table, row_group_size=max(table.num_rows, 1))
    return bytes(sink.getvalue())


def file_start(form: FileFormat) -> bytes:
    """Bytes before the first chunk."""
    return MAGIC if form == "parquet" else b""


def file_end(form: FileFormat, footer: bytes, groups: Sequence[Group]) -> bytes:
    """Bytes after the last chunk."""
    return file_footer(footer, groups) if form == "parquet" else b""


def _field(column: Column) -> pa.Field:
    metadata: dict[str, str] = {}
    entry = GLOSSARY.get(column.name)
    if entry is not None:
        metadata = {"description": entry.text, **({"unit": entry.unit} if entry.unit else {})}
    kind: Any = pa.dictionary(pa.int16(), pa.string()) if column.kind == "word" else _TYPES[column.kind]
    return pa.field(column.name, kind, metadata=metadata or None)


def _array(column: Column, values: Any) -> pa.Array:
    if column.kind != "word":
        return pa.array(values, type=_TYPES[column.kind], from_pandas=True)
    missing = values < 0
    codes = pa.array(values, mask=missing) if missing.any() else pa.array(values)
    return pa.DictionaryArray.from_arrays(codes, pa.array(column.words, pa.string()))
