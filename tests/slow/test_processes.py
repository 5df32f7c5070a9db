"""Worker processes that die: their chunks are made again, in order, and a task that kills every process is given up."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from llmcap.errors import LlmcapError, OptionError
from llmcap.report.processes import in_processes

pytestmark = pytest.mark.slow


def dies_once(folder: str) -> Callable[[int], tuple[int, bytes]]:
    """A large answer, so that it does not fit a pipe's buffer; the first to meet index 5 is killed."""

    def work(index: int) -> tuple[int, bytes]:
        mark = Path(folder) / "died"
        if index == 5 and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return index, bytes(3_000_000)

    return work


def always_dies(_: str) -> Callable[[int], int]:
    def work(index: int) -> int:
        os.kill(os.getpid(), signal.SIGKILL)
        return index

    return work


def refuses(_: str) -> Callable[[int], int]:
    raise OptionError("--model", "no such thing", "try another")


def test_a_killed_process_is_replaced(tmp_path: Path) -> None:
    found = list(in_processes(dies_once, str(tmp_path), range(2, 12), 2))
    assert [index for index, _ in found] == list(range(2, 12))
    assert (tmp_path / "died").exists()


def test_processes_that_keep_dying_are_given_up() -> None:
    with pytest.raises(LlmcapError, match="died"):
        list(in_processes(always_dies, "", range(3), 1))


def test_an_error_comes_through() -> None:
    with pytest.raises(OptionError, match="no such thing"):
        list(in_processes(refuses, "", range(3), 2))
