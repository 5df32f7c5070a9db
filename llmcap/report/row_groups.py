"""Parquet files joined from row groups that were encoded apart.

A Parquet file is magic bytes, the pages of its row groups, and a footer that says where they lie. Row groups encoded
as little files of their own therefore join without being read again: their pages are copied and the offsets in the
footer moved. That makes a large file resumable, and lets processes encode while one of them writes.

The footer is a Thrift struct in the compact protocol; the few field numbers used here are those of parquet.thrift
(Apache Parquet format 2.x): FileMetaData 3 num_rows, 4 row_groups; RowGroup 1 columns, 3 num_rows, 5 file_offset,
7 ordinal; ColumnChunk 2 file_offset, 3 meta_data; ColumnMetaData 9, 10, 11 page offsets.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

from llmcap.records import dataclass

MAGIC: Final = b"PAR1"

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)
#: A struct as field number -> (type, value); lists are (element type, values).
Struct = dict[int, tuple[int, Any]]

_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 3, 5, 7
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_PAGE_OFFSETS: Final = (9, 10, 11)


@dataclass(frozen=True, slots=True)
class Group:
    """A row group and where its pages begin in the joined file."""

    record: bytes
    start: int


def split_file(data: bytes) -> tuple[bytes, bytes, bytes]:
    """(pages, row group record, footer without row groups) of a Parquet file with one row group or none.

    Offsets in the record count from the start of the pages.
    """
    (length,) = struct.unpack("<I", data[-8:-4])
    meta = _Reader(data[-8 - length : -8]).struct()
    groups = meta[_ROW_GROUPS][1][1]  # none when the file holds no rows
    for group in groups:
        _move(group, -len(MAGIC))
    meta[_ROW_GROUPS] = (_LIST, (_STRUCT, []))
    meta[_NUM_ROWS] = (_I64, 0)
    return data[len(MAGIC) : -8 - length], b"".join(map(_write_struct, groups)), _write_struct(meta)


def file_footer(footer: bytes, groups: Sequence[Group]) -> bytes:
    """The end of a file whose row groups begin at the given places, magic bytes included."""
    meta = _Reader(footer).struct()
    records = []
    for ordinal, group in enumerate(g for g in groups if g.record):
        record = _Reader(group.record).struct()
        _move(record, group.start)
        if ordinal <= 32767:  # the field is 16 bits wide and optional
            record[_ORDINAL] = (_I16, ordinal)
        else:
            record.pop(_ORDINAL, None)
        records.append(record)
    meta[_ROW_GROUPS] = (_LIST, (_STRUCT, records))
    meta[_NUM_ROWS] = (_I64, sum(record[_GROUP_ROWS][1] for record in records))
    whole = _write_struct(meta)
    return whole + struct.pack("<I", len(whole)) + MAGIC


def _move(group: Struct, by: int) -> None:
    for chunk in group[_COLUMNS][1][1]:
        _move_field(chunk, _CHUNK_OFFSET, by)
        for name in _PAGE_OFFSETS:
            _move_field(chunk[_CHUNK_META][1], name, by)
    _move_field(group, _GROUP_OFFSET, by)


def _move_field(part: Struct, name: int, by: int) -> None:
    # An offset of 0 is a field that its writer left empty: no page begins before the magic bytes end.
    # Records on their own count from the first page, so there 0 is a place and only moving up is possible.
    if name in part and (part[name][1] > 0 or by > 0) and not (name == _CHUNK_OFFSET and part[name][1] <= 0):
        part[name] = (part[name][0], part[name][1] + by)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def varint(self) -> int:
        value = shift = 0
        while True:
            b = self.byte()
            value |= (b & 0x7F) << shift
            if b < 0x80:
                return value
            shift += 7

    def signed(self) -> int:
        n = self.varint()
        return (n >> 1) ^ -(n & 1)

    def value(self, kind: int) -> Any:
        if kind in (_I16, _I32, _I64):
            return self.signed()
        if kind == _BINARY:
            length = self.varint()
            self.at += length
            return self.data[self.at - length : self.at]
        if kind == _STRUCT:
            return self.struct()
        if kind in (_LIST, _SET):
            head = self.byte()
            size = head >> 4 if head >> 4 != 15 else self.varint()
            return head & 15, [self.value(head & 15) for _ in range(size)]
        if kind == _DOUBLE:
            self.at += 8
            return self.data[self.at - 8 : self.at]
        if kind in (_BYTE, _TRUE, _FALSE):  # an element of a list
            return self.byte()
        raise ValueError(f"Thrift type {kind} does not occur in Parquet footers")

    def struct(self) -> Struct:
        found: Struct = {}
        number = 0
        while (head := self.byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self.signed()
            kind = head & 15
            found[number] = (kind, None if kind in (_TRUE, _FALSE) else self.value(kind))
        return found


def _varint(n: int) -> bytes:
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7F | 0x80)
        n >>= 7
    out.append(n)
    return bytes(out)


def _signed(n: int) -> bytes:
    return _varint((n << 1) ^ (n >> 63))


def _write_value(kind: int, value: Any) -> bytes:
    if kind in (_I16, _I32, _I64):
        return _signed(value)
    if kind == _BINARY:
        return _varint(len(value)) + bytes(value)
    if kind == _STRUCT:
        return _write_struct(value)
    if kind in (_LIST, _SET):
        element, values = value
        head = (
            bytes([len(values) << 4 | element]) if len(values) < 15 else bytes([0xF0 | element]) + _varint(len(values))
        )
        return head + b"".join(_write_value(element, v) for v in values)
    if kind == _DOUBLE:
        return bytes(value)
    return bytes([value])


def _write_struct(fields: Struct) -> bytes:
    out = bytearray()
    last = 0
    for number in sorted(fields):
        kind, value = fields[number]
        step = number - last
        out += bytes([step << 4 | kind]) if 0 < step < 16 else bytes([kind]) + _signed(number)
        if kind not in (_TRUE, _FALSE):
            out += _write_value(kind, value)
        last = number
    out.append(0)
    return bytes(out)
