"""A real Dask cluster of two worker processes, one of which is killed while parts are written."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pa_dataset
import pytest

from llmcap.errors import OptionError
from llmcap.report.arrow import table_of
from llmcap.report.cluster import META_NAME, run_on_cluster
from llmcap.report.sweep_files import Job
from llmcap.specs.scenario import Scenario

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.slow,
    # Dask warns about its own ports, loops and sockets when a worker dies.
    pytest.mark.filterwarnings("ignore"),
]


def job(chunk_cases: int = 40) -> Job:
    document = {
        "schema": "llmcap.scenario/1", "id": "t", "name": "T", "question": "?",
        "axes": {"tp": (4, 8), "context": "log 100..200k 300 points", "users": (1, 7, 90)},
    }  # fmt: skip
    return Job.of(Scenario.model_validate(document), "parquet", chunk_cases=chunk_cases)


@pytest.fixture
def cluster() -> Any:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=50
    ) as running:
        yield running


def test_parts_hold_all_rows_though_a_worker_is_killed(tmp_path: Path, cluster: Any) -> None:
    task = job()
    sweep = task.sweep()
    folder = tmp_path / "out"
    killed: list[int] = []

    def kill_one(rows: int) -> None:
        if rows and not killed:
            victim = next(iter(cluster.workers.values())).pid
            killed.append(victim)
            os.kill(victim, signal.SIGKILL)

    rows = run_on_cluster(task, sweep, folder, cluster.scheduler_address, chunks_per_part=2, progress=kill_one)
    assert killed
    assert rows == 2 * 300 * 3 * 3
    read = pa_dataset.dataset(folder, format="parquet").to_table()
    made = pa.concat_tables([table_of(sweep.columns, r) for r in sweep.all_rows()])
    assert read.equals(made)
    assert not [p.name for p in folder.iterdir() if p.name.endswith(".partial")] or len(killed) == 1
    # What is there is kept, what was lost is made again.
    lost = sorted(folder.glob("part-*.parquet"))[3]
    before = lost.read_bytes()
    lost.unlink()
    assert run_on_cluster(task, sweep, folder, cluster.scheduler_address, resume=True, chunks_per_part=2) == rows
    assert lost.read_bytes() == before
    assert (folder / META_NAME).is_file()


def test_a_folder_in_use_is_refused(tmp_path: Path, cluster: Any) -> None:
    (tmp_path / "something").write_text("mine")
    with pytest.raises(OptionError, match="not empty"):
        run_on_cluster(job(), job().sweep(), tmp_path, cluster.scheduler_address)


def test_no_scheduler_is_said(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no Dask scheduler"):
        run_on_cluster(job(), job().sweep(), tmp_path / "out", "tcp://127.0.0.1:9")
    assert not (tmp_path / "out").exists()
