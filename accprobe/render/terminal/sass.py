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
from accprobe.render.content.kernel_names import short_name
from accprobe.render.terminal.console import ruled, styled

NAMED = 3
"""Kernels of a group that are named; `--all` has each."""


def kernel_tables(kernels: Sequence[Kernel], expand: bool = False) -> RenderableType:
    """Each file with its summary, then its kernels; those that are alike together, unless `expand`."""
    parts: list[RenderableType] = []
    for file, of_file in groupby(kernels, lambda kernel: kernel.file):
        found = list(of_file)
        parts.append(Text(file, "bold underline"))
        parts += [Text(f"  {line}", "bold") for line in sass.file_summary(found)]
        for alike in sass.alike_kernels(found, expand):
            parts += _block(alike)
    return Group(*parts)


def kernels_total(kernels: Sequence[Kernel], reading: Reading) -> RenderableType:
    """What stands below all files: how accumulators are known, and how much was read."""
    sources = [Text(line, "dim") for line in sass.accumulator_sources(kernels)]
    return Group(*sources, Text(sass.kernels_summary(kernels, reading), "bold"))


def _block(alike: sass.AlikeKernels) -> Iterator[RenderableType]:
    first, count = alike.first, len(alike.kernels)
    different = list(dict.fromkeys(short_name(kernel.name) for kernel in alike.kernels))
    names = ", ".join(different[:NAMED]) + (", …" if len(different) > NAMED else "")
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
