"""The progress of every long command, on standard error: a bar where that is a terminal, or lines now and then."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import click

from accprobe.render.plain import plain


class Show(Protocol):
    """Shows how far a command is."""

    def __call__(self, completed: int, total: int | None, description: str) -> None: ...


BETWEEN_LINES = 10.0
"""Seconds, where progress is told in lines."""


@contextmanager
def progress_bar(description: str, speed: bool = False, in_lines: str = "") -> Iterator[Show]:
    """A bar while the block runs; it leaves nothing behind. speed: how many a second, instead of how many of how many.

    in_lines: what is counted, where lines are to tell it to what is no terminal; else nothing is told there.
    """
    if not sys.stderr.isatty():
        yield _Lines(in_lines) if in_lines else lambda completed, total, description: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    done = TaskProgressColumn(show_speed=True) if speed else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda completed, total, description: bar.update(task, completed=completed, total=total, description=description)


class _Lines:
    def __init__(self, counted: str) -> None:
        self._counted, self._told = counted, time.monotonic()

    def __call__(self, completed: int, total: int | None, description: str) -> None:
        now = time.monotonic()
        if now - self._told < BETWEEN_LINES:
            return
        self._told = now
        of = "" if total is None else f" of {total:,}"
        click.echo(plain(f"accprobe: {description}: {completed:,}{of} {self._counted}"), err=True)
