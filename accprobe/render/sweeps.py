"""Sweeps and the atlas as tables for the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe import units
from accprobe.formats import FORMATS
from accprobe.render.cells import register
from accprobe.sweep.atlas import Entry
from accprobe.sweep.record import EffectiveBits, SweepRecord

WIDE = 110
"""Columns from which registers, shared memory and stages are shown."""


class Line(NamedTuple):
    """The records of one configuration, one for each operand set."""

    records: tuple[SweepRecord, ...]

    @property
    def first(self) -> SweepRecord:
        return self.records[0]

    def of(self, operands: str) -> SweepRecord | None:
        return next((each for each in self.records if each.operands == operands), None)


def lines(records: Sequence[SweepRecord]) -> list[Line]:
    """Records that differ in their operands alone stand together."""
    found: dict[tuple[object, ...], list[SweepRecord]] = {}
    for each in records:
        found.setdefault(each.model_copy(update={"operands": "normal"}).key, []).append(each)
    return [Line(tuple(group)) for group in found.values()]


def sweeps(records: Sequence[SweepRecord], width: int, expand: bool = False, simulated: bool = False) -> RenderableType:
    """Sweeps, a table for each problem; `expand`: with all counts of changed elements."""
    parts: list[RenderableType] = []
    for problem, group in groupby(lines(records), _problem):
        shown = list(group)
        parts += [Text(problem, "bold"), _table(shown, width), *_notes(shown, simulated)]
        if expand:
            parts += [_counts(record) for line in shown for record in line.records if record.masks]
    return Group(*parts)


def _problem(line: Line) -> str:
    each = line.first
    promoted = f", promoted every {each.promote_every} products" if each.promote_every else ""
    how = "rounded" if each.rounded else "cut"
    size = f"m {each.m}, n {each.n}, k {each.k}, blocks of {each.block_m} × {each.block_n}"
    return f"Truncation-mask sweep: {size}{promoted}; masked bits are {how}; Triton {each.triton}"


def _table(shown: Sequence[Line], width: int) -> Table:
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("operand\ntype", "\nwarps", "\nblock-K"):
        found.add_column(header, justify="left" if header.startswith("operand") else "right", no_wrap=True)
    found.add_column("\nran as", no_wrap=True)
    for header in ("bits,\nnormal", "bits,\nfull-width"):
        found.add_column(header, no_wrap=True)
    for header in ("relative\nerror", "predicted\nerror", "bits\ndiffer", "\nTFLOP/s"):
        found.add_column(header, justify="right", no_wrap=True)
    if width >= WIDE:
        for header in ("\nregisters", "shared\nKiB", "\nstages"):
            found.add_column(header, justify="right")
    previous = shown[0].first.dtype
    for line in shown:
        each = line.first
        if each.dtype != previous:
            found.add_section()
            previous = each.dtype
        cells: list[str | Text] = [each.dtype, str(each.num_warps), str(each.block_k), _ran_as(each)]
        cells += [_bits(line.of("normal") or line.of("uniform")), _bits(line.of("full-width"))]
        cells += [
            _error(each.relative_error),
            _error(each.prediction.relative_error if each.prediction else None),
            _differ(line),
        ]
        cells.append("" if each.tflops is None else f"{each.tflops:.0f}")
        if width >= WIDE:
            shared = "" if each.shared_bytes is None else f"{each.shared_bytes / 1024:.0f}"
            cells += ["" if each.registers is None else str(each.registers), shared, str(each.num_stages or "")]
        found.add_row(*cells)
    return found


def _ran_as(record: SweepRecord) -> Text:
    counts = dict(record.lowering)
    if not record.opcodes:
        ffma = counts.get("FFMA")
        return Text(f"{ffma}×FFMA" if ffma else "")
    text = " + ".join(f"{counts[opcode]}×{units.stem(opcode)}" for opcode in record.opcodes)
    return Text(text, "bold magenta" if _is_converted(record) else "")


def _is_converted(record: SweepRecord) -> bool:
    """Whether fp8 operands were converted for the f16 unit."""
    return record.dtype in ("e4m3", "e5m2") and any(units.stem(opcode).endswith("HMMA") for opcode in record.opcodes)


def bits(found: EffectiveBits) -> str:
    """ "13 (e8m13)", "≥22" where the operands need no more."""
    if found.bound == "at_least":
        return f"≥{found.value}"
    return f"{found.value} ({register(FORMATS['f32'], found.value)})"


def _bits(record: SweepRecord | None) -> Text:
    if record is None:
        return Text("")
    if record.unit_overflow:
        return Text(f"32 {record.unit_overflow.rule}", "bold yellow" if record.unit_overflow.rule == "saturate" else "")
    if record.effective_bits is None:
        return Text("")
    narrow = record.effective_bits.bound == "exact" and record.effective_bits.value < FORMATS["f32"].mantissa_bits
    return Text(bits(record.effective_bits), "bold yellow" if narrow else "")


def _error(value: float | None) -> str:
    return "" if value is None else f"{value:.2e}"


def _differ(line: Line) -> Text:
    predicted = [each.prediction for each in line.records if each.prediction]
    if not predicted:
        return Text("")
    differ = sum(each.differ for each in predicted)
    return Text(f"{differ:,}", "bold red" if differ else "green")


def _notes(shown: Sequence[Line], simulated: bool) -> Iterator[Text]:
    records = [record for line in shown for record in line.records]
    if converted := sorted({record.num_warps for record in records if _is_converted(record)}):
        warps = " or ".join(map(str, converted))
        yield Text(f"! With {warps} warps fp8 operands are converted and multiplied by HMMA, not by their own unit.", "yellow")
    if any(record.effective_bits and record.effective_bits.bound == "at_least" for record in records):
        yield Text("≥: exact sums of these operands would not have shown more either: the data is the limit.", "dim")
    for overflowed in dict.fromkeys(map(_overflow, records)):
        if overflowed:
            yield Text(overflowed, "dim")
    if predicted := [record.prediction for record in records if record.prediction]:
        elements, masks = predicted[0].elements, len(next((record.masks for record in records if record.masks), [0]))
        yield Text(
            f"predicted: by the published model of the opcode, {elements:,} elements with each of {masks} masks; "
            "bits differ: how many of these, both operand sets.",
            "dim",
        )
    if simulated:
        yield Text("Simulated: published models evaluated, nothing was measured.", "bold red")
    reasons: dict[str, list[str]] = {}
    for line in shown:
        if line.first.reason:
            what = f"{line.first.dtype} with {line.first.num_warps} warps at block-K {line.first.block_k}"
            reasons.setdefault(line.first.reason, []).append(what)
    for reason, names in reasons.items():
        yield Text(f"{'; '.join(names)}: {reason}", "dim")


def _overflow(record: SweepRecord) -> str:
    if not record.unit_overflow or not record.add_overflow:
        return ""
    unit, add = record.unit_overflow, record.add_overflow
    return (
        f"{record.dtype}, {' + '.join(map(units.stem, record.opcodes))}: no block of {record.block_k} overflows (that takes "
        f"131,072 products); summed on in the unit: right from {unit.smallest} to {unit.largest}, beyond: {unit.rule}; "
        f"blocks added up by ordinary adds: {add.rule}."
    )


def _counts(record: SweepRecord) -> Text:
    what = f"{record.dtype}, {record.num_warps} warps, block-K {record.block_k}, {record.operands}"
    changed = " ".join(str(count) for _, count in record.masks)
    control = " ".join(str(count) for _, count in record.control)
    return Text(
        f"{what}\n  changed of {record.m * record.n:,}, masking 0 to 23 bits: {changed}\n"
        f"  exact sums, of {record.control_elements:,}: {control}",
        "dim",
    )


def atlas_table(entries: Sequence[Entry]) -> RenderableType:
    """The atlas: block-Ks that become the same opcode share a line."""
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for header in ("architecture", "operand type", "warps", "block-K", "opcode", "in the cubin", "accumulator"):
        found.add_column(header, justify="right" if header == "warps" else "left", no_wrap=header != "opcode")
    rejected: dict[str, list[str]] = {}
    previous = entries[0].architecture
    for (architecture, dtype, warps, opcodes, accumulator, reason), group in groupby(entries, _alike):
        each = list(group)
        if reason and not opcodes:
            rejected.setdefault(reason, []).append(f"{architecture} {dtype} with {warps} warps at block-K {_range(each)}")
            if "FFMA" not in reason and reason != "no matrix instruction":
                continue
        if architecture != previous:
            found.add_section()
            previous = architecture
        counts = ", ".join(" + ".join(str(count) for _, count in entry.opcodes) for entry in each)
        style = "bold magenta" if dtype in ("e4m3", "e5m2") and "HMMA" in opcodes else ""
        found.add_row(
            architecture, dtype, str(warps), _range(each), Text(opcodes, style), counts, accumulator or "not published"
        )
    notes = [Text(f"{'; '.join(what)}: {reason}", "dim") for reason, what in rejected.items()]
    return Group(found, *notes, Text("accumulator: fraction bits kept, as published of the opcode.", "dim"))


def _alike(entry: Entry) -> tuple[str, str, int, str, str, str]:
    opcodes = " + ".join(opcode for opcode, _ in entry.opcodes)
    return entry.architecture, entry.dtype, entry.num_warps, opcodes, entry.accumulator, entry.reason


def _range(entries: Sequence[Entry]) -> str:
    sizes = [entry.block_k for entry in entries]
    return str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]}-{sizes[-1]}"
