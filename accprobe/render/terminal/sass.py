"""What machine code says: kernels, file by file, and the atlas of lowerings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accprobe.audit.atlas import Atlas
from accprobe.audit.kernels import Kernel, Reading
from accprobe.render.content import sass
from accprobe.render.terminal.console import ruled, styled

NAMED = 3
"""Kernels of a group that are named; `--all` has each."""


def kernel_tables(kernels: Sequence[Kernel], reading: Reading, expand: bool = False) -> RenderableType:
    """Those that are alike together, unless `expand`."""
    parts: list[RenderableType] = []
    for file, groups in groupby(sass.alike_kernels(kernels, expand), lambda alike: alike.first.file):
        parts.append(Text(file, "bold underline"))
        for alike in groups:
            parts += _block(alike)
    parts += [Text(line, "dim") for line in sass.accumulator_sources(kernels)]
    parts.append(Text(sass.kernels_summary(kernels, reading), "bold"))
    return Group(*parts)


def _block(alike: sass.AlikeKernels) -> Iterator[RenderableType]:
    first, count = alike.first, len(alike.kernels)
    names = ", ".join(kernel.name for kernel in alike.kernels[:NAMED]) + (", …" if count > NAMED else "")
    title = Text(f"{count} kernels alike: {names}" if count > 1 else names, "bold", overflow="fold")
    launched = sum(kernel.launches or 0 for kernel in alike.kernels)
    times = f", {launched} launch{'es' * (launched != 1)}" if first.executed is not None else ""
    yield title.append(f"  {first.architecture}{times}", "not bold")
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for justify in ("left", "right", "left", "left"):
        table.add_column(justify=justify, overflow="fold")
    for line in alike.lines:
        often = line.count if line.executed is None else f"{line.executed} executed"
        table.add_row(line.opcode, often, styled(line.accumulator), "\n".join(line.sums))
    yield Padding(table, (0, 0, 0, 2))
    for note in alike.notes:
        yield Padding(styled(note), (0, 0, 0, 2))


def lowering_table(atlas: Atlas) -> RenderableType:
    found = ruled()
    for header in sass.LOWERING_HEADERS:
        found.add_column(header, overflow="fold")
    for line in sass.lowering_lines(atlas):
        found.add_row(*line)
    return Group(found, *(Text(line, "dim") for line in sass.lowering_notes(atlas)))
