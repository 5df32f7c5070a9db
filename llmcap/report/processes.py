"""Local processes that encode chunks, each on a pipe of its own: one that dies takes nothing with it.

A shared result queue would not do: a process killed while it sends leaves half a message, whose readers wait for ever.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Final

from llmcap.errors import LlmcapError

#: Deaths after which it is the work, not chance, that kills.
MOST_DEATHS: Final = 10
#: Chunks per process that may wait for an earlier one to be written.
AHEAD: Final = 2


@dataclass(slots=True)
class _Worker:
    process: BaseProcess
    pipe: Connection
    index: int | None = None


def in_processes(make: Callable[[Any], Callable[[int], Any]], task: Any, indices: range, workers: int) -> Iterator[Any]:
    """Results of `make(task)(index)` for each index, in order.

    Parameters
    ----------
    make : callable
        Run once in each process; a function of a module, since processes are spawned.
    task : object
        Its argument, picklable.
    indices : range
    workers : int

    Raises
    ------
    LlmcapError
        What a process raised, or that processes keep dying.
    """
    context = multiprocessing.get_context("spawn")

    def start() -> _Worker:
        here, there = context.Pipe()
        process = context.Process(target=_serve, args=(make, task, there), daemon=True)
        process.start()
        there.close()  # so that the process's death ends the pipe
        return _Worker(process, here)

    crew = [start() for _ in range(min(workers, max(len(indices), 1)))]
    waiting, done, following, deaths = list(reversed(indices)), {}, indices.start, 0
    try:
        while following < indices.stop:
            for worker in crew:
                if worker.index is None and waiting and waiting[-1] < following + AHEAD * len(crew) + 1:
                    worker.index = waiting.pop()
                    with suppress(OSError):  # dead already; the pipe's end is noticed below
                        worker.pipe.send(worker.index)
            for ready in wait([worker.pipe for worker in crew]):
                worker = next(w for w in crew if w.pipe is ready)
                try:
                    result = worker.pipe.recv()
                except (EOFError, OSError):
                    deaths += 1
                    if deaths > MOST_DEATHS:
                        raise LlmcapError(
                            f"worker processes died {deaths} times",
                            "give fewer --workers, or free memory, and continue with --resume",
                        ) from None
                    if worker.index is not None:
                        waiting = sorted([*waiting, worker.index], reverse=True)
                    worker.process.join()
                    crew[crew.index(worker)] = start()
                    continue
                if isinstance(result, BaseException):
                    raise result
                assert worker.index is not None
                done[worker.index], worker.index = result, None
            while following in done:
                yield done.pop(following)
                following += 1
    finally:
        for worker in crew:
            worker.pipe.close()
            worker.process.terminate()
            worker.process.join()


def _serve(make: Callable[[Any], Callable[[int], Any]], task: Any, pipe: Connection) -> None:
    """In the process: answer one index after another until the pipe closes."""
    try:
        work = make(task)
        while True:
            pipe.send(work(pipe.recv()))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return
    except Exception as error:
        with suppress(OSError):
            pipe.send(error)
