"""A progress bar on stderr for long commands: done, rate, time left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text


class RateColumn(ProgressColumn):
    """Rows a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{speed / 1e6:.2f} M rows/s" if speed else "")


@contextmanager
def progress_bar(total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar of rows; the value is a function that takes the rows done so far."""
    columns = (
        TextColumn("{task.completed:,.0f} rows"), BarColumn(), TextColumn("{task.percentage:.0f} %"), RateColumn(),
        TimeRemainingColumn(),
    )  # fmt: skip
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("rows", total=total)
        yield lambda done: bar.update(task, completed=done)
