"""Sweeps as tables, one for each problem; and what each configuration of the kernel compiles to, where nothing ran."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.render.content.series import SUMMARY_HEADERS, extent, summary_lines, summary_notes
from accprobe.render.content.sweeps import COLUMNS, SweepLine, by_problem, mask_counts, remarks, sweep_table
from accprobe.render.terminal.console import WholeCells, ruled, styled
from accprobe.report.sweeps import SweepRecord
from accprobe.sweep.atlas import Entry

WIDE = 126
"""Columns from which predicted errors, registers, shared memory and stages are shown."""

_LEFT = ("dtype", "ran_as", "normal", "full_width")
_COMPILED = ("arch", "operands", "warps", "block-K", "opcode", "in the cubin", "accumulator")
_NARROW = tuple(field for field in COLUMNS if field not in ("predicted", "registers", "shared", "stages"))


def sweep_tables(records: Sequence[SweepRecord], width: int, expand: bool = False, simulated: bool = False) -> RenderableType:
    """`expand`: with all counts of changed elements."""
    parts: list[RenderableType] = []
    for problem, shown in by_problem(records):
        parts += [""] if parts else []
        parts.append(Text(problem, "bold"))
        if any(line.first.measured for line in shown):
            parts.append(_table(shown, width))
        parts += map(styled, remarks(shown, simulated))
        if expand:
            parts += [Text(mask_counts(record), "dim") for line in shown for record in line.records if record.masks]
    return Group(*parts)


def sweep_summary(records: Sequence[SweepRecord], simulated: bool = False) -> RenderableType:
    """One line an operand type."""
    found = ruled(left=0)
    for i, header in enumerate(SUMMARY_HEADERS):
        found.add_column(header, justify="left" if i < 2 else "right", overflow="fold")
    for line in summary_lines(records):
        found.add_row(*map(styled, line))
    title = Text("Truncation-mask sweep of a Triton GEMM", "bold")
    title.append(f", {extent(records)}; --sweeps has each", "not bold")
    return Group(title, *([found] if found.row_count else []), *map(styled, summary_notes(records, simulated)))


def _table(shown: Sequence[SweepLine], width: int) -> Table:
    found = ruled(gap=1 if width >= WIDE else 0, left=0)
    fields, lines = sweep_table(shown, _NARROW if width < WIDE else tuple(COLUMNS))
    for field in fields:
        found.add_column(COLUMNS[field].header, justify="left" if field in _LEFT else "right", no_wrap=True)
    last = [here.first.dtype != below.first.dtype for here, below in pairwise(shown)]
    for line, ends in zip(lines, [*last, False], strict=True):
        found.add_row(*map(styled, line), end_section=ends)
    return found


def compilation_table(entries: Sequence[Entry]) -> RenderableType:
    """Block-Ks that become the same opcode share a line."""
    found = WholeCells(_COMPILED, ("warps",), ("in the cubin", "accumulator"))
    rejected: dict[str, list[Entry]] = {}
    for _, of_one in groupby(entries, lambda entry: entry.architecture):
        for (architecture, dtype, warps, opcodes, accumulator, reason), group in groupby(of_one, _alike):
            each = list(group)
            if reason and not opcodes:
                rejected.setdefault(reason, []).extend(each)
                continue
            counts = ", ".join(" + ".join(str(count) for _, count in entry.opcodes) for entry in each)
            style = "bold magenta" if dtype in ("e4m3", "e5m2") and "HMMA" in opcodes else ""
            known = accumulator or "not published"
            found.rows.append(((architecture, dtype, str(warps), _range(each), opcodes, counts, known), style))
        found.ends.add(len(found.rows) - 1)
    notes = [Text(f"{'; '.join(_places(what))}: {reason}", "dim") for reason, what in rejected.items()]
    if not found.rows:
        return Group(*notes)
    return Group(found, *notes, Text("accumulator: fraction bits kept, as published of the opcode; nothing ran.", "dim"))


def _places(rejected: Sequence[Entry]) -> Iterator[str]:
    """In few words: "f32 with 2, 4 warps at block-K 512 on sm_80, sm_90"."""
    alike: dict[tuple[str, int, int], list[str]] = {}
    for each in rejected:
        alike.setdefault((each.dtype, each.num_warps, each.block_k), []).append(each.architecture)
    warps: dict[tuple[str, int, tuple[str, ...]], list[int]] = {}
    for (dtype, count, block_k), on in alike.items():
        warps.setdefault((dtype, block_k, tuple(on)), []).append(count)
    blocks: dict[tuple[str, tuple[int, ...], tuple[str, ...]], list[int]] = {}
    for (dtype, block_k, architectures), counts in warps.items():
        blocks.setdefault((dtype, tuple(counts), architectures), []).append(block_k)
    for (dtype, of, architectures), sizes in blocks.items():
        warps_told, sizes_told = (", ".join(map(str, numbers)) for numbers in (of, sizes))
        yield f"{dtype} with {warps_told} warps at block-K {sizes_told} on {', '.join(architectures)}"


def _alike(entry: Entry) -> tuple[str, str, int, str, str, str]:
    opcodes = " + ".join(opcode for opcode, _ in entry.opcodes)
    return entry.architecture, entry.dtype, entry.num_warps, opcodes, entry.accumulator, entry.reason


def _range(entries: Sequence[Entry]) -> str:
    sizes = [entry.block_k for entry in entries]
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"
