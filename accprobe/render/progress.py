"""Progress of long commands on standard error: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from accprobe.errors import plain

if TYPE_CHECKING:
    from accprobe.health.outcome import GpuOutcome


class Show(Protocol):
    """Shows the progress of a command."""

    def __call__(self, completed: int, total: int | None, description: str) -> None: ...


BETWEEN_LINES = 10.0
"""Seconds."""


@contextmanager
def progress_bar(description: str, speed: bool = False, in_lines: str = "") -> Iterator[Show]:
    """Show a bar while the block runs, then remove it. speed: items a second, instead of N of M.

    in_lines: the noun of lines that are printed where standard error is not a terminal; "": none.
    """
    if not sys.stderr.isatty():
        lines = _Lines()

        def in_words(completed: int, total: int | None, description: str) -> None:
            if in_lines:
                lines.print(f"{description}: {completed:,}{'' if total is None else f' of {total:,}'} {in_lines}")

        yield in_words
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    done = TaskProgressColumn(show_speed=True) if speed else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), done, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda completed, total, description: bar.update(task, completed=completed, total=total, description=description)


class _Lines:
    """Prints a line about a subject at most every ten seconds."""

    def __init__(self) -> None:
        self._printed: dict[str, float] = {}

    def print(self, text: str, subject: str = "", always: bool = False) -> None:
        now = time.monotonic()
        if always or now - self._printed.setdefault(subject, now) >= BETWEEN_LINES:
            self._printed[subject] = now
            click.echo(plain(f"accprobe: {text}"), err=True)


@contextmanager
def progress_of_gpus(seconds: float) -> Iterator[Callable[[Sequence[GpuOutcome], GpuOutcome], None]]:
    """Show a bar, then remove it; lines where standard error is not a terminal.

    Yields a function to call with all GPUs and the one that changed.
    """
    if not sys.stderr.isatty():
        from accprobe.render.subjects.health import gpu_counts

        lines = _Lines()
        yield lambda gpus, changed: lines.print(
            f"{changed.where} {changed.seconds:.0f} of {seconds:.0f} s, {gpu_counts(changed)}", changed.where, changed.ended
        )
        return
    with progress_bar("compiling") as show:

        def on_change(gpus: Sequence[GpuOutcome], changed: GpuOutcome) -> None:
            ended = f"{sum(gpu.ended for gpu in gpus)} of {len(gpus)} GPUs checked" if len(gpus) > 1 else changed.where
            dots, wrong = sum(gpu.dots for gpu in gpus), sum(gpu.wrong for gpu in gpus)
            text = f"{ended}: {dots:,} results, {wrong:,} mismatches" if dots else f"{ended}: compiling"
            show(int(changed.seconds), int(seconds), text)

        yield on_change
