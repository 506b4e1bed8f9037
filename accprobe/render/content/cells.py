"""What a report says about an instruction, in words short enough for a table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from accprobe.render.content.patterns import brace_patterns
from accprobe.render.content.phrases import Phrase, Tone
from accprobe.report.report import Report
from accprobe.report.rows import Row, Status
from accprobe.report.words import detour, effective_bits, found, is_narrow, ran_as
from accprobe.sass import opcodes
from accprobe.sass.lowering import is_ordinary


class RowCells(NamedTuple):
    """The outcome of one instruction; instructions with equal cells differ in nothing that a table shows."""

    ran_as: str
    effective_bits: str
    alignment_bits: str
    alignment_rounding: str
    result_rounding: str
    products_per_sum: str
    addend: str
    dots: str
    cells: str
    events: str
    alternatives: str
    status: Status


HEADERS = {
    "ran_as": "ran as",
    "effective_bits": "effective\nbits",
    "alignment_bits": "align.\nbits F",
    "alignment_rounding": "align.\nrounding",
    "result_rounding": "result\nrounding",
    "products_per_sum": "products\na sum",
    "addend": "C joins",
    "dots": "dots\nverified",
    "cells": "cells\nread",
    "events": "events\nmet",
    "alternatives": "rivals\nleft/tried",
    "status": "status",
}

MEASURES = ("dots", "cells", "events", "alternatives")
"""Cells that say how hard an instruction was tried, not what it does: like instructions share a line although these differ."""


class TableLine(NamedTuple):
    """One line of a table: a pattern of instructions that are alike, one of them, and the cells of all."""

    pattern: str
    row: Row
    cells: RowCells

    def phrases(self, columns: Sequence[str]) -> list[Phrase]:
        """The cells of some columns."""
        return [Phrase(getattr(self.cells, column), self._tone(column)) for column in columns]

    def _tone(self, column: str) -> Tone:
        if column == "effective_bits" and is_narrow(self.row):
            return "narrow"
        if column == "ran_as" and detour(self.row):
            return "converted"
        return self.row.status if column == "status" else ""


def cells(row: Row) -> RowCells:
    """The cells of a row that is not skipped; "" where nothing is known."""
    return RowCells(
        ran_as(row),
        effective_bits(row),
        found(row, "alignment_bits"),
        found(row, "alignment_rounding"),
        found(row, "result_rounding"),
        found(row, "products_per_sum"),
        found(row, "addend"),
        _dots(row),
        _cells(row),
        _events(row),
        f"{len(row.alternatives.surviving)}/{row.alternatives.tested}" if row.alternatives else "",
        row.status,
    )


def columns_told(rows: Sequence[Row]) -> list[str]:
    """The columns that are not empty."""
    every = [cells(row) for row in rows]
    return [name for name in RowCells._fields if any(getattr(one, name) for one in every)]


def lines(rows: Sequence[Row], columns: Sequence[str], collapse: bool = True) -> list[TableLine]:
    """The rows as lines, in the order of their first rows.

    `collapse`: those of one family that are equal in the columns shown, but for how hard they were tried, become as few
    lines as patterns allow.
    """
    if not collapse:
        return [TableLine(row.name, row, cells(row)) for row in rows]
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        shown = cells(row)
        key = (getattr(shown, column) for column in columns if column not in MEASURES)
        alike.setdefault((row.instruction.family.name, *key), []).append(row)
    return [
        TableLine(pattern, group[0], _together(group))
        for group in alike.values()
        for pattern in brace_patterns(row.name for row in group)
    ]


def _together(group: Sequence[Row]) -> RowCells:
    """The cells of rows that are alike: how hard they were tried as ranges."""
    done = [row.verification for row in group if row.verification]
    tried = [row.alternatives for row in group if row.alternatives]
    first = cells(group[0])
    if len(done) == len(group) and not any(verification.mismatches for verification in done):
        first = first._replace(dots=_range([verification.dots for verification in done]))
    if len(tried) == len(group):
        left = _range([len(alternatives.surviving) for alternatives in tried])
        first = first._replace(alternatives=f"{left}/{_range([alternatives.tested for alternatives in tried])}")
    every = [cells(row) for row in group]
    read, met = (
        ", ".join(filter(None, dict.fromkeys(texts))) for texts in zip(*((c.cells, c.events) for c in every), strict=True)
    )
    return first._replace(cells=read, events=met)


def _range(counts: Sequence[int]) -> str:
    low, high = compact(min(counts)), compact(max(counts))
    return low if low == high else f"{low}-{high}"


def meanings(report: Report) -> list[str]:
    """What a reader must not miss, one sentence each; of what no hardware answered they say so."""
    narrow: dict[str, list[str]] = {}
    converted: dict[str, list[str]] = {}
    for row in report.measured:
        inst = row.instruction
        how = "Simulated: " if "simulated" in (row.status, report.device.kind) else ""
        if is_narrow(row):
            kept = f"the running sum keeps {effective_bits(row)} of the {inst.d.mantissa_bits} fraction bits of {inst.d}"
            narrow.setdefault(_sentence(how + kept), []).append(row.name)
        if detour(row):
            ran = f"computed by {_stems(row.opcodes)} on converted operands, not by a unit of their own format"
            if is_ordinary(row.lowering):
                ran = f"computed by no matrix unit, but by {_stems(opcode for opcode, _ in row.lowering)}"
            converted.setdefault(_sentence(how + ran), []).append(row.name)
    return [f"{sentence}: {', '.join(brace_patterns(names))}." for sentence, names in (narrow | converted).items()]


def _stems(names: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(map(opcodes.stem, names)))


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:]


def _dots(row: Row) -> str:
    if row.verification is None:
        return ""
    wrong = row.verification.mismatches
    return f"{compact(row.verification.dots)}, {compact(wrong)} wrong" if wrong else compact(row.verification.dots)


def _cells(row: Row) -> str:
    """ "all" of the tile's cells, "96/128", "128/128, some wrong"."""
    tile = row.verification.tile if row.verification else None
    if tile is None:
        return ""
    covered = f"{tile.covered}/{tile.total}"
    if tile.differing:
        return f"{covered}, some wrong"
    return "all" if tile.covered == tile.total else covered


def _events(row: Row) -> str:
    """ "all" that are possible, or "400/412"; "" where results contradict the model."""
    met = row.verification.events if row.verification else None
    if met is None or (row.verification and row.verification.refuted):
        return ""
    return "all" if met.hit == met.possible else f"{met.hit}/{met.possible}"


def compact(count: int) -> str:
    """ "512", "16k", "1.5M": two digits where it is rounded."""
    for size, suffix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.2g}{suffix}" if count < 100 * size else f"{count // size}{suffix}"
    return str(count)
