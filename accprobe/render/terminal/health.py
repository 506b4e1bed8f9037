"""A check of GPUs: the table while it goes on, and what became of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import click
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.health.outcome import GpuOutcome, HealthOutcome
from accprobe.render.content.health import (
    gpu_counts,
    gpu_title,
    gpu_verdict,
    load_text,
    models_text,
    remarks,
    speed_text,
    word_lines,
)
from accprobe.render.plain import plain
from accprobe.render.terminal.console import Hanging, WholeCells, ruled
from accprobe.render.terminal.progress import BETWEEN_LINES


class ShowGpus(Protocol):
    """Shows how far the GPUs are; `changed` is the one of which something new is known."""

    def __call__(self, gpus: Sequence[GpuOutcome], changed: GpuOutcome) -> None: ...


@contextmanager
def watched(seconds: float) -> Iterator[ShowGpus]:
    """On standard error: a live table, which leaves nothing behind; lines where that is no terminal."""
    if not sys.stderr.isatty():
        yield _Lines(seconds)
        return
    from rich.live import Live

    latest: list[GpuOutcome] = []
    started = time.monotonic()

    def table() -> RenderableType:
        return _table(latest, f"{time.monotonic() - started:.0f} of {seconds:.0f} s, and what compiling takes")

    def show(gpus: Sequence[GpuOutcome], changed: GpuOutcome) -> None:
        latest[:] = gpus

    with Live(console=Console(stderr=True), transient=True, refresh_per_second=4, get_renderable=table):
        yield show


class _Lines:
    """A line a GPU now and then, and one when it ends."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._told: dict[str, float] = {}

    def __call__(self, gpus: Sequence[GpuOutcome], changed: GpuOutcome) -> None:
        now = time.monotonic()
        if not changed.ended and now - self._told.setdefault(changed.where, now) < BETWEEN_LINES:
            return
        self._told[changed.where] = now
        click.echo(
            plain(f"accprobe: {changed.where} {changed.seconds:.0f} of {self._seconds:.0f} s, {gpu_counts(changed)}"),
            err=True,
        )


def health_table(outcome: HealthOutcome) -> RenderableType:
    """A line a GPU; below it its units, unless it is a healthy one of a cluster, what one should know, and what differs."""
    parts: list[RenderableType] = []
    if any(gpu.kind == "simulated" for gpu in outcome.gpus):
        parts.append(Text("SIMULATED: devices that are models, no hardware was checked", "bold red"))
    for gpu in outcome.gpus:
        parts.append(Text(gpu_title(gpu), "bold"))
        if models := models_text(gpu):
            parts.append(Text(models, "dim"))
        if gpu.units and not (gpu.node and gpu.status == "healthy"):
            parts.append(_units(gpu))
        if load := load_text(gpu):
            parts.append(Text(load, "dim"))
        lines = [Text(f"! {remark}", "yellow") for remark in remarks(gpu)]
        for word in gpu.mismatches:
            first, *others = word_lines(word)
            lines += [Text(f"! {first}", "red"), *(Text(f"    {line}", "red") for line in others)]
        parts += [Hanging(lines), Text(gpu_verdict(gpu), _style(gpu)), Text("")]
    return Group(*parts[:-1])


def _style(gpu: GpuOutcome) -> str:
    if gpu.status != "healthy":
        return "bold red"
    return "bold yellow" if gpu.below_full_load else "bold green"


def _units(gpu: GpuOutcome) -> WholeCells:
    numbers = ("results compared", "differ", "seconds", "Tops/s")
    table = WholeCells(("unit", "instruction", *numbers), numbers, ("Tops/s", "seconds"))
    for unit in gpu.units:
        counts = (f"{unit.dots:,}", f"{unit.wrong:,}", f"{unit.seconds:.1f}", speed_text(unit))
        table.rows.append(((unit.unit, unit.instruction, *counts), "red" if unit.wrong else ""))
    return table


def _table(gpus: Sequence[GpuOutcome], caption: str) -> Table:
    table = ruled()
    table.caption = caption
    for header in ("GPU", "name", "status"):
        table.add_column(header, overflow="fold")
    for header in ("results compared", "differ", "seconds"):
        table.add_column(header, justify="right", no_wrap=True)
    for gpu in gpus:
        status = gpu.status if gpu.ended or gpu.wrong else "checking" if gpu.units else "compiling" if gpu.kind else "opening"
        counts = (f"{gpu.dots:,}", f"{gpu.wrong:,}", f"{gpu.seconds:.0f}")
        table.add_row(plain(gpu.where), plain(gpu.name), status, *counts, style="bold red" if gpu.wrong else "")
    return table
