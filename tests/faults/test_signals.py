"""Ended from outside, a run leaves quickly, quietly and with nothing half-written under its name."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = [
    sys.executable, "-m", "llmcap", "sweep", "kv-dtypes", "-q", "--chunk-cases", "200",
    "--set", "users=1..60", "--set", "context=log 1k..200k 60 points",
]  # fmt: skip


def started(command: list[str], journal: Path) -> subprocess.Popen[str]:
    """The process, once its first chunk is noted."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and not (journal.exists() and journal.read_bytes().count(b"\n") >= 2):
        select.select([], [], [], 0.005)
    return process


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["interrupted", "terminated"]
)
@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["threads", "processes"])
def test_a_sweep_ends_cleanly_and_continues(tmp_path: Path, number: int, status: int, workers: list[str]) -> None:
    whole, path = tmp_path / "whole.csv", tmp_path / "ended.csv"
    subprocess.run([*SWEEP, "-o", str(whole)], check=True)
    process = started([*SWEEP, *workers, "-o", str(path)], tmp_path / ".ended.csv.journal")
    process.send_signal(number)
    _, err = process.communicate(timeout=20)
    assert process.returncode in (0, status), err
    assert "Traceback" not in err
    if process.returncode:
        assert not path.exists()
        assert "Interrupted" in err and "--resume" in err
        assert (tmp_path / ".ended.csv.partial").exists()
        subprocess.run([*SWEEP, "-o", str(path), "--resume"], check=True)
    assert path.read_bytes() == whole.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "ended.csv", "ended.csv.meta.json", "whole.csv", "whole.csv.meta.json",
    ]  # fmt: skip


def test_two_processes_into_one_file(tmp_path: Path) -> None:
    path = tmp_path / "one.csv"
    command = [*SWEEP, "--limit", "12000", "-o", str(path)]
    first = started(command, tmp_path / ".one.csv.journal")
    first.send_signal(signal.SIGSTOP)  # so that it is certainly still at it
    second = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    first.send_signal(signal.SIGCONT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 0, err
    assert second.returncode == 2
    assert second.stderr.startswith("Error: --output: another run is writing")
    assert len(path.read_bytes().splitlines()) > 10_000
    assert os.listdir(tmp_path).count("one.csv") == 1
