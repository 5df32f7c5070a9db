"""The real thing: a sweep's process killed at random moments and resumed ends with the bytes of an undisturbed run."""

from __future__ import annotations

import random
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

COMMAND = [
    sys.executable, "-m", "llmcap", "sweep", "kv-dtypes", "-q", "--chunk-cases", "1000",
    "--set", "users=1..60", "--set", "context=log 1k..200k 60 points",
]  # fmt: skip


def test_killed_twenty_times_and_resumed(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.parquet", tmp_path / "killed.parquet"
    subprocess.run([*COMMAND, "-o", str(whole)], check=True)
    rng = random.Random(7)
    kills = 0
    for _ in range(200):
        process = subprocess.Popen([*COMMAND, "-o", str(path), "--resume"])
        try:
            # Start-up takes about a second; a run that is let live longer gets further.
            status = process.wait(timeout=0.5 + 1.2 * rng.random())
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            if path.exists():  # it had just finished
                assert path.read_bytes() == whole.read_bytes()
                path.unlink()
            if kills < 20:
                continue
            status = subprocess.run([*COMMAND, "-o", str(path), "--resume"], check=True).returncode
        assert status == 0
        assert path.read_bytes() == whole.read_bytes()
        if kills >= 20:
            break
        for left in tmp_path.glob("killed.parquet*"):
            left.unlink()
    assert kills >= 20
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_a_file_system_that_refuses_is_said(tmp_path: Path) -> None:
    """The limit on a file's size refuses writes as a full disk does."""
    path = tmp_path / "a.parquet"
    path.write_bytes(b"old")

    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    found = subprocess.run(
        [*COMMAND, "-o", str(path)], capture_output=True, text=True, check=False, preexec_fn=small_files
    )
    assert found.returncode == 2 and "File too large" in found.stderr and "--resume" in found.stderr
    assert path.read_bytes() == b"old"
    subprocess.run([*COMMAND, "-o", str(path), "--resume"], check=True)
    assert path.read_bytes()[:4] == b"PAR1"
