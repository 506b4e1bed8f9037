"""Progress of long commands on standard error: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from accprobe.errors import plain


class Show(Protocol):
    def __call__(self, completed: int, total: int | None, description: str) -> None: ...


BETWEEN_LINES = 10.0
"""Seconds."""

BAR, BESIDE = 8, 28
"""Columns of a bar, and of all that stands beside its description: the bar, the counts and the time."""

PERCENT = 100
"""A total that makes the completed number a percentage."""


@contextmanager
def progress_bar(description: str, speed: bool = False) -> Iterator[Show]:
    """Show a bar while the block runs, then remove it; lines where standard error is not a terminal. speed: a percentage, or
    items a second while the total is unknown, instead of N of M.
    """
    if not sys.stderr.isatty():
        with _lines(description) as show:
            yield show
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.table import Column

    console = Console(stderr=True)
    done = TaskProgressColumn(show_speed=True) if speed else MofNCompleteColumn()
    words = Column(no_wrap=True, max_width=max(console.width - BESIDE, BESIDE))
    columns = (TextColumn("{task.description}", table_column=words), BarColumn(BAR), done, TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda completed, total, description: bar.update(task, completed=completed, total=total, description=description)


@contextmanager
def _lines(description: str) -> Iterator[Show]:
    """Print a line every ten seconds, also during a long step."""
    latest, ended, started = description, threading.Event(), time.monotonic()

    def show(completed: int, total: int | None, description: str) -> None:
        nonlocal latest
        if total == PERCENT:
            latest = f"{description}: {completed} %" if completed else description  # a step without a known length stays at 0
        else:
            latest = f"{completed:,} of {total:,} done; {description}" if total else description

    def print_lines() -> None:
        while not ended.wait(BETWEEN_LINES):
            click.echo(plain(f"accprobe: {latest}, {time.monotonic() - started:.0f} s"), err=True)

    threading.Thread(target=print_lines, daemon=True).start()
    try:
        yield show
    finally:
        ended.set()
