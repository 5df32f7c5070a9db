"""Two runs into one file: the second is told so, and what the first writes stays whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from llmcap.errors import OptionError
from llmcap.report.arrow import Encoded, file_start
from llmcap.report.stream import StreamFile

pytest.importorskip("fcntl")
ROW = b"1,2\n"


def test_a_file_in_the_works_is_refused_and_unharmed(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with StreamFile(path, "csv", "one", resume=False) as first:
        first.append(Encoded(0, 1, ROW))
        for resume in (False, True):
            with pytest.raises(OptionError, match=r"another run is writing .*a\.csv"):
                StreamFile(path, "csv", "one", resume=resume)
        first.append(Encoded(1, 1, ROW))
        first.finish()
    assert path.read_bytes() == file_start("csv") + 2 * ROW
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_a_run_that_ended_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    with StreamFile(path, "csv", "one", resume=False) as first:
        first.append(Encoded(0, 1, ROW))
    with StreamFile(path, "csv", "one", resume=True) as second:
        assert second.chunks == 1
        second.finish()
    assert path.read_bytes() == file_start("csv") + ROW


def test_other_files_of_the_folder_are_free(tmp_path: Path) -> None:
    with (
        StreamFile(tmp_path / "a.csv", "csv", "one", resume=False),
        StreamFile(tmp_path / "b.csv", "csv", "one", resume=False),
    ):
        pass
