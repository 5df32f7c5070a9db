"""Devices, pipes, packed bombs, links in a ring, folders where a file is due: refused at once, never read for ever."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest

READERS = {
    "cases": ["estimate", "--cases"],
    "model": ["estimate", "--model"],
    "import": ["models", "import"],
    "measured": ["validate", "--measured"],
    "trace": ["replay"],
    "meta": ["sweep", "-o", "x.csv", "--from"],
    "report": ["report"],
}


def run(*arguments: object, seconds: float = 30.0) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "llmcap", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=seconds)


def refused(ran: subprocess.CompletedProcess[str]) -> None:
    assert ran.returncode in (2, 3), ran.stderr
    assert ran.stderr.startswith("Error: ")
    assert "bug" not in ran.stderr and "Traceback" not in ran.stderr


@pytest.mark.parametrize("name", READERS)
def test_an_endless_device_is_refused(name: str) -> None:
    refused(run(*READERS[name], "/dev/zero"))


@pytest.mark.parametrize("name", ["cases", "measured", "import", "meta"])
def test_a_pipe_that_nobody_writes_to_is_refused(tmp_path: Path, name: str) -> None:
    pipe = tmp_path / "pipe.csv"
    os.mkfifo(pipe)
    refused(run(*READERS[name], pipe))


@pytest.mark.parametrize("name", ["cases", "measured", "import"])
def test_a_ring_of_links_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    refused(run(*READERS[name], tmp_path / "a"))


def test_a_packed_bomb_is_refused(tmp_path: Path) -> None:
    """300 MB of zeros in 300 kB."""
    bomb = tmp_path / "measured.csv.gz"
    with gzip.open(bomb, "wb", compresslevel=1) as stream:
        for _ in range(300):
            stream.write(bytes(1_000_000))
    ran = run("validate", "--measured", bomb)
    refused(ran)
    assert "larger than 200,000,000 bytes" in ran.stderr


@pytest.mark.parametrize("name", ["dir", "cut"])
def test_a_packed_file_that_is_none_is_refused(tmp_path: Path, name: str) -> None:
    file = tmp_path / "measured.csv.gz"
    if name == "dir":
        file.mkdir()
    else:
        file.write_bytes(gzip.compress(b"model,hardware,metric,value\n" * 99)[:-20])
    refused(run("validate", "--measured", file))
