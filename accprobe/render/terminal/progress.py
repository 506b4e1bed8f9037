"""The progress bar of every long command: on standard error, where that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Show(Protocol):
    """Shows how far a command is."""

    def __call__(self, completed: int, total: int | None, description: str) -> None: ...


@contextmanager
def progress_bar(description: str, speed: bool = False) -> Iterator[Show]:
    """A bar while the block runs; it leaves nothing behind. speed: how many a second, instead of how many of how many."""
    if not sys.stderr.isatty():
        yield lambda completed, total, description: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    done = TaskProgressColumn(show_speed=True) if speed else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda completed, total, description: bar.update(task, completed=completed, total=total, description=description)
