"""Files of a sweep: what is in them, the same bytes however they came about, and nothing half under the final name."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import llmcap.report.sweep_files as sweep_files
from llmcap.errors import DocumentError, OptionError
from llmcap.report.arrow import FileFormat, table_of
from llmcap.report.row_groups import Group, file_footer, split_file
from llmcap.report.stream import StreamFile
from llmcap.report.sweep_files import Job, changed_since, meta_path, read_meta, write_sweep
from llmcap.specs.scenario import Scenario

FORMS: tuple[FileFormat, ...] = ("parquet", "csv")


def job(form: FileFormat = "parquet", chunk_cases: int = 20, **fields: Any) -> Job:
    document = {
        "schema": "llmcap.scenario/1", "id": "t", "name": "T", "question": "?",
        "axes": {"tp": (4, 8), "context": "log 100..2M 30 points", "users": (1, 7, 90)},
    } | fields  # fmt: skip
    return Job.of(Scenario.model_validate(document), form, chunk_cases=chunk_cases)


def content(path: Path) -> tuple[bytes, bytes]:
    return path.read_bytes(), meta_path(path).read_bytes()


@pytest.fixture(scope="module", params=FORMS)
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, tuple[bytes, bytes]]:
    """A job and the bytes of its undisturbed run."""
    path = tmp_path_factory.mktemp("whole") / f"a.{request.param}"
    task = job(request.param)
    write_sweep(task, path)
    return task, content(path)


def test_a_joined_parquet_file_reads_as_its_chunks(tmp_path: Path) -> None:
    task = job()
    sweep = task.sweep()
    rows = write_sweep(task, tmp_path / "a.parquet")
    read = pq.read_table(tmp_path / "a.parquet")
    made = pa.concat_tables([table_of(sweep.columns, r) for r in sweep.all_rows()])
    assert read.num_rows == rows == 2 * 30 * 3 * 3
    # Values and what is told of columns; pyarrow 15 reads dictionaries with wider indices.
    assert read.to_pylist() == made.to_pylist() and read.column_names == made.column_names
    assert [field.metadata for field in read.schema] == [field.metadata for field in made.schema]
    metadata = pq.read_metadata(tmp_path / "a.parquet")
    assert metadata.num_row_groups == sweep.grid.chunks > 5
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    pq.ParquetFile(tmp_path / "a.parquet").read_row_group(3)


def test_columns_are_typed_and_say_their_unit(tmp_path: Path) -> None:
    write_sweep(job(), tmp_path / "a.parquet")
    schema = pq.read_schema(tmp_path / "a.parquet")
    assert schema.field("ttft_s").type == pa.float64() and schema.field("users").type == pa.int64()
    assert schema.field("fits").type == pa.bool_() and pa.types.is_dictionary(schema.field("model").type)
    assert schema.field("ttft_s").metadata[b"unit"] == b"s"
    assert schema.field("kv_bytes_total").metadata[b"unit"] == b"B"
    assert b"first token" in schema.field("ttft_s").metadata[b"description"]


def test_csv_and_parquet_hold_the_same(tmp_path: Path) -> None:
    for form in FORMS:
        write_sweep(job(form), tmp_path / f"a.{form}")
    left, right = pq.read_table(tmp_path / "a.parquet").to_pylist(), pa_csv.read_csv(tmp_path / "a.csv").to_pylist()
    assert len(left) == len(right)
    for a, b in zip(left, right, strict=True):
        assert {k: v for k, v in a.items() if v is not None} == {k: v for k, v in b.items() if v not in (None, "")}


def test_the_same_bytes_again(tmp_path: Path, whole: tuple[Job, tuple[bytes, bytes]]) -> None:
    task, expected = whole
    write_sweep(task, tmp_path / f"b.{task.form}")
    assert content(tmp_path / f"b.{task.form}") == expected
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"b.{task.form}", f"b.{task.form}.meta.json"]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_any_number_of_workers_gives_the_same_bytes(
    tmp_path: Path, whole: tuple[Job, tuple[bytes, bytes]], workers: int
) -> None:
    task, expected = whole
    write_sweep(task, tmp_path / f"b.{task.form}", workers=workers)
    assert content(tmp_path / f"b.{task.form}") == expected


class Killed(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("seed", range(10))
def test_a_resumed_run_ends_with_the_same_bytes(
    tmp_path: Path, whole: tuple[Job, tuple[bytes, bytes]], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed at a random chunk, with a random tail of both working files lost or garbled."""
    task, expected = whole
    rng = random.Random(seed)
    path = tmp_path / f"b.{task.form}"
    last, real = rng.randrange(1, 9), sweep_files.encoded_chunk

    def mortal(sweep: Any, job_: Job, index: int) -> Any:
        if index == last:
            raise Killed
        return real(sweep, job_, index)

    monkeypatch.setattr(sweep_files, "encoded_chunk", mortal)
    with pytest.raises(Killed):
        write_sweep(task, path)
    assert not path.exists()
    monkeypatch.setattr(sweep_files, "encoded_chunk", real)
    for name in rng.choice([(), (".partial",), (".journal",), (".partial", ".journal")]):
        working = path.with_name(f".{path.name}{name}")
        data = working.read_bytes()
        cut = rng.randrange(len(data) // 2, len(data) + 1)
        working.write_bytes(data[:cut] + rng.choice([b"", b"\x00" * 50, b"{"]))
    write_sweep(task, path, resume=True)
    assert content(path) == expected
    assert len(list(tmp_path.iterdir())) == 2


def test_a_resumed_run_computes_only_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task, path, done = job(), tmp_path / "a.parquet", []
    real = sweep_files.encoded_chunk

    def counting(sweep: Any, job_: Job, index: int) -> Any:
        if len(done) == 4:
            raise Killed
        done.append(index)
        return real(sweep, job_, index)

    monkeypatch.setattr(sweep_files, "encoded_chunk", counting)
    with pytest.raises(Killed):
        write_sweep(task, path)
    first = list(done)
    monkeypatch.setattr(sweep_files, "encoded_chunk", lambda s, j, i: (done.append(i), real(s, j, i))[1])
    write_sweep(task, path, resume=True)
    # Two chunks may have been under way when it ended.
    assert min(done[4:]) >= len(first) - 2 and max(done) == task.sweep().grid.chunks - 1


def test_what_was_begun_otherwise_is_not_continued(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    real = sweep_files.encoded_chunk
    monkeypatch.setattr(
        sweep_files, "encoded_chunk", lambda s, j, i: (_ for _ in ()).throw(Killed) if i == 3 else real(s, j, i)
    )
    with pytest.raises(Killed):
        write_sweep(job(), path)
    monkeypatch.setattr(sweep_files, "encoded_chunk", real)
    with pytest.raises(OptionError, match="other arguments"):
        write_sweep(job(base={"output_tokens": 3}), path, resume=True)
    write_sweep(job(base={"output_tokens": 3}), path)
    assert pq.read_table(path)["output_tokens"].unique().to_pylist() == [3]


def test_a_full_disk_is_said_and_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    path.write_bytes(b"old")
    calls = 0
    real = StreamFile._write_line

    def full(self: StreamFile, entry: dict[str, Any]) -> None:
        nonlocal calls
        calls += 1
        if calls == 4:
            raise OSError(28, "No space left on device")
        real(self, entry)

    monkeypatch.setattr(StreamFile, "_write_line", full)
    with pytest.raises(OptionError, match="No space left on device"):
        write_sweep(job(), path)
    assert path.read_bytes() == b"old"
    monkeypatch.setattr(StreamFile, "_write_line", real)
    write_sweep(job(), path, resume=True)
    assert pq.read_metadata(path).num_rows == 540


def test_a_folder_that_is_missing_or_in_the_way_is_said(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no folder"):
        write_sweep(job(), tmp_path / "none" / "a.parquet")
    (tmp_path / "b.parquet").mkdir()
    with pytest.raises(OptionError, match="is a folder"):
        write_sweep(job(), tmp_path / "b.parquet")
    os.mkfifo(tmp_path / "c.parquet")
    with pytest.raises(OptionError, match="a device or a pipe"):
        write_sweep(job(), tmp_path / "c.parquet")
    assert (tmp_path / "c.parquet").is_fifo()


def test_the_meta_file_repeats_the_sweep(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    write_sweep(job(where=["tp == 8"]), path)
    meta = read_meta(meta_path(path))
    assert {s["id"] for s in meta["specs"]} >= {"llama-4-maverick", "dgx-b200", "b200", "vllm", "calibrated"}
    assert set(meta["versions"]) == {"llmcap", "pyarrow"}
    assert changed_since(meta, Job.from_meta(meta)) == []
    older = {**meta, "specs": [{k: v for k, v in s.items() if k != "kind"} for s in meta["specs"]]}
    assert changed_since(older, Job.from_meta(meta)) == []
    touched = [{**s, "sha256": "0" * 64} if s["kind"] == "calibration" else s for s in meta["specs"]]
    assert changed_since({**meta, "specs": touched}, Job.from_meta(meta)) == ["document b200 (calibration) has changed"]
    write_sweep(Job.from_meta(meta), tmp_path / "again.parquet")
    assert content(tmp_path / "again.parquet") == content(path)


@pytest.mark.parametrize("text", ["", "[]", '{"schema": "other/1"}', "\x00"])
def test_what_is_no_meta_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.meta.json"
    path.write_text(text)
    with pytest.raises(DocumentError, match="meta"):
        read_meta(path)


@pytest.mark.parametrize("form", FORMS)
def test_no_rows_is_a_sound_file(tmp_path: Path, form: FileFormat) -> None:
    task = job(form, where=["users > 1k"])
    assert write_sweep(task, tmp_path / f"a.{form}") == 0
    read = pq.read_table(tmp_path / "a.parquet") if form == "parquet" else pa_csv.read_csv(tmp_path / "a.csv")
    assert read.num_rows == 0 and "ttft_s" in read.column_names


def test_chunks_without_rows_leave_no_gap(tmp_path: Path) -> None:
    write_sweep(job(where=["context_tokens > 50k"]), tmp_path / "a.parquet")
    table = pq.read_table(tmp_path / "a.parquet")
    assert table.num_rows > 0 and min(table["context_tokens"].to_pylist()) > 50_000


def test_row_groups_of_foreign_files_join() -> None:
    """The footer code on files that another writer laid out: statistics, nested types, key-value metadata."""
    tables = [
        pa.table({"a": [1, 2, None], "b": ["x", "y", "x"], "c": [[1.5], [], None]}).replace_schema_metadata({"k": "v"}),
        pa.table({"a": [7], "b": ["z"], "c": [[2.5, 3.5]]}, schema=None).replace_schema_metadata({"k": "v"}),
    ]
    whole, groups, footer = b"PAR1", [], b""
    for table in tables:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="snappy")
        body, record, footer = split_file(sink.getvalue().to_pybytes())
        groups.append(Group(record, len(whole)))
        whole += body
    whole += file_footer(footer, groups)
    assert pq.read_table(pa.BufferReader(whole)).to_pylist() == [r for t in tables for r in t.to_pylist()]


def test_dry_run_and_listing(capsys: pytest.CaptureFixture[str]) -> None:
    from llmcap.cli.app import run

    assert run(["sweep", "benchmark-1m", "--dry-run", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["cases"] == 500_000
    assert run(["sweep"]) == 0
    assert "million-token-context" in capsys.readouterr().out


def test_the_command_writes_and_repeats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from llmcap.cli.app import run

    path = tmp_path / "a.csv"
    asked = ["sweep", "million-token-context", "--set", "users=1,2", "-o", str(path)]
    assert run(asked) == 0
    said = capsys.readouterr()
    assert said.out == "" and "48 cases, 96 rows" in said.err
    first = content(path)
    assert run(["sweep", "--from", f"{path}.meta.json"]) == 0
    assert content(path) == first
    assert run([*asked[:4], "-q"]) == 0
    assert capsys.readouterr().out.encode() == first[0]
    for wrong in (
        ["sweep", "no-such"],
        [*asked, "--limit", "0"],
        ["sweep", "kv-dtypes", "-o", str(tmp_path / "a.xls")],
    ):
        assert run(wrong) == 2
    capsys.readouterr()
