"""Sweeps as tables: for the terminal, and their cells and remarks for pages too."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.isa.formats import FORMATS
from accprobe.report.sweeps import EffectiveBits, SweepRecord
from accprobe.report.words import register
from accprobe.sass import opcodes

WIDE = 126
"""Columns from which predicted errors, registers, shared memory and stages are shown."""

SIMULATED = "Simulated: published models evaluated, nothing was measured."


class Line(NamedTuple):
    """The records of one configuration, one for each operand set."""

    records: tuple[SweepRecord, ...]

    @property
    def first(self) -> SweepRecord:
        return self.records[0]

    def of(self, operands: str) -> SweepRecord | None:
        return next((each for each in self.records if each.operands == operands), None)


class Cells(NamedTuple):
    """What a line shows."""

    dtype: Text
    warps: Text
    block_k: Text
    ran_as: Text
    normal: Text
    full_width: Text
    error: Text
    predicted: Text
    differ: Text
    tflops: Text
    registers: Text
    shared: Text
    stages: Text


HEADERS = {
    "dtype": "operand\ntype",
    "warps": "\nwarps",
    "block_k": "\nblock-K",
    "ran_as": "\nran as",
    "normal": "bits,\nnormal",
    "full_width": "bits,\nfull-width",
    "error": "relative\nerror",
    "predicted": "predicted\nerror",
    "differ": "bits\ndiffer",
    "tflops": "\nTFLOP/s",
    "registers": "\nregisters",
    "shared": "shared\nKiB",
    "stages": "\nstages",
}
_LEFT = ("dtype", "ran_as", "normal", "full_width")
_NARROW = tuple(field for field in Cells._fields if field not in ("predicted", "registers", "shared", "stages"))


def header(field: str) -> str:
    """On one line."""
    return HEADERS[field].replace("\n", " ").strip()


def problems(records: Sequence[SweepRecord]) -> Iterator[tuple[str, list[Line]]]:
    """What was swept, in words, and its lines: records that differ in their operands alone stand together."""
    found: dict[tuple[object, ...], list[SweepRecord]] = {}
    for each in records:
        found.setdefault(each.model_copy(update={"operands": "normal"}).key, []).append(each)
    for problem, group in groupby((Line(tuple(same)) for same in found.values()), _problem):
        yield problem, list(group)


def sweeps(records: Sequence[SweepRecord], width: int, expand: bool = False, simulated: bool = False) -> RenderableType:
    """Sweeps, a table for each problem; `expand`: with all counts of changed elements."""
    parts: list[RenderableType] = []
    for problem, shown in problems(records):
        parts += [""] if parts else []
        parts.append(Text(problem, "bold"))
        if any(line.first.measured for line in shown):
            parts.append(_table(shown, width))
        parts += remarks(shown, simulated)
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
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1 if width >= WIDE else 0, 0, 0))
    fields, lines = table(shown, _NARROW if width < WIDE else Cells._fields)
    for field in fields:
        justify: Literal["left", "right"] = "left" if field in _LEFT else "right"
        found.add_column(HEADERS[field], justify=justify, no_wrap=True)
    for line, after in zip(zip(shown, lines, strict=True), [*shown[1:], None], strict=True):
        found.add_row(*line[1], end_section=after is not None and after.first.dtype != line[0].first.dtype)
    return found


def table(shown: Sequence[Line], among: Sequence[str] = Cells._fields) -> tuple[list[str], list[list[Text]]]:
    """The columns, of those given, in which anything stands, and the lines."""
    every = [cells(line)._asdict() for line in shown]
    fields = [field for field in among if any(each[field].plain for each in every)]
    return fields, [[each[field] for field in fields] for each in every]


def cells(line: Line) -> Cells:
    """A line's cells, empty where nothing is known."""
    each = line.first
    return Cells(
        Text(each.dtype),
        Text(str(each.num_warps)),
        Text(str(each.block_k)),
        _ran_as(each),
        _bits(line.of("normal") or line.of("uniform")),
        _bits(line.of("full-width")),
        _error(each.relative_error),
        _error(each.prediction.relative_error if each.prediction else None),
        _differ(line),
        Text("" if each.tflops is None else f"{each.tflops:.0f}"),
        Text("" if each.registers is None else str(each.registers)),
        Text("" if each.shared_bytes is None else f"{each.shared_bytes / 1024:.0f}"),
        Text("" if each.num_stages is None else str(each.num_stages)),
    )


def _ran_as(record: SweepRecord) -> Text:
    counts = dict(record.lowering)
    if not record.opcodes:
        ffma = counts.get("FFMA")
        return Text(f"{ffma}×FFMA" if ffma else "")
    text = " + ".join(f"{counts[opcode]}×{opcodes.stem(opcode)}" for opcode in record.opcodes)
    return Text(text, "bold magenta" if _is_converted(record) else "")


def _is_converted(record: SweepRecord) -> bool:
    """Whether fp8 operands were converted for the f16 unit."""
    return record.dtype in ("e4m3", "e5m2") and any(opcodes.stem(opcode).endswith("HMMA") for opcode in record.opcodes)


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


def _error(value: float | None) -> Text:
    return Text("" if value is None else f"{value:.2e}")


def _differ(line: Line) -> Text:
    predicted = [each.prediction for each in line.records if each.prediction]
    if not predicted:
        return Text("")
    differ = sum(each.differ for each in predicted)
    return Text(f"{differ:,}", "bold red" if differ else "green")


def remarks(shown: Sequence[Line], simulated: bool) -> Iterator[Text]:
    """What has to be known to read a problem's table."""
    records = [record for line in shown for record in line.records]
    if simulated:
        yield Text(SIMULATED, "bold red")
    if converted := [record for record in records if _is_converted(record)]:
        where = "; ".join(places(converted, records))
        yield Text(f"! {where}: operands are converted and multiplied by HMMA, not by fp8's own unit.", "yellow")
    if any(record.effective_bits and record.effective_bits.bound == "at_least" for record in records):
        yield Text("≥: exact sums of these operands would not have shown more either: the data is the limit.", "dim")
    yield from (Text(text, "dim") for text in _told(records, _overflow))
    if predicted := [record.prediction for record in records if record.prediction]:
        elements, masks = predicted[0].elements, len(next((record.masks for record in records if record.masks), [0]))
        yield Text(
            f"predicted: by the published model of the opcode, {elements:,} elements with each of {masks} masks; "
            "bits differ: how many of these, both operand sets.",
            "dim",
        )
    yield from (Text(text, "dim") for text in _told(records, lambda record: record.reason))
    yield from _profiled(records)


def _told(records: Sequence[SweepRecord], tell: Callable[[SweepRecord], str]) -> Iterator[str]:
    """Each thing told once, with the configurations of which it is told."""
    told: dict[str, list[SweepRecord]] = {}
    for record in records:
        if text := tell(record):
            told.setdefault(text, []).append(record)
    for text, those in told.items():
        yield f"{'; '.join(places(those, records))}: {text}"


def places(records: Iterable[SweepRecord], among: Sequence[SweepRecord] = ()) -> Iterator[str]:
    """Configurations in few words: "tf32 with 2, 4, 8 warps at block-K 512"; "at every block-K" where those are all `among`."""
    alike: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for (dtype, count), sizes in _blocks(records).items():
        alike.setdefault((dtype, sizes), []).append(count)
    every = _blocks(among)
    for (dtype, sizes), counts in alike.items():
        whole = len(sizes) > 1 and all(every.get((dtype, count)) == sizes for count in counts)
        yield f"{dtype} with {_words(counts)} warps at {'every block-K' if whole else f'block-K {_words(sizes)}'}"


def _blocks(records: Iterable[SweepRecord]) -> dict[tuple[str, int], tuple[int, ...]]:
    found: dict[tuple[str, int], dict[int, None]] = {}
    for each in records:
        found.setdefault((each.dtype, each.num_warps), {})[each.block_k] = None
    return {key: tuple(sizes) for key, sizes in found.items()}


def _words(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))


def _overflow(record: SweepRecord) -> str:
    if not record.unit_overflow or not record.add_overflow:
        return ""
    unit, add = record.unit_overflow, record.add_overflow
    return (
        f"{' + '.join(map(opcodes.stem, record.opcodes))}, no block overflows (that takes 131,072 products); summed on in the "
        f"unit: right from {unit.smallest} to {unit.largest}, beyond: {unit.rule}; blocks added by ordinary adds: {add.rule}."
    )


def _profiled(records: Sequence[SweepRecord]) -> Iterator[Text]:
    agree = [record for record in records if record.profile and record.profile.agrees]
    if agree:
        where = "; ".join(places(agree, records))
        yield Text(f"{where}: the profiler counted as many executions as the disassembly says.", "green")
    for record in records:
        if record.profile and not record.profile.agrees:
            (place,), profile = places([record]), record.profile
            counted = ", ".join(f"{count:,}×{opcode}" for opcode, count in profile.executed) or "no matrix instruction"
            expected = ", ".join(f"{count:,}×{opcode}" for opcode, count in profile.expected)
            yield Text(f"{place}: the profiler counted {counted}; the disassembly says {expected}.", "bold red")


def _counts(record: SweepRecord) -> Text:
    what = f"{record.dtype}, {record.num_warps} warps, block-K {record.block_k}, {record.operands}"
    changed = " ".join(str(count) for _, count in record.masks)
    control = " ".join(str(count) for _, count in record.control)
    return Text(
        f"{what}\n  changed of {record.m * record.n:,}, masking 0 to 23 bits: {changed}\n"
        f"  exact sums, of {record.control_elements:,}: {control}",
        "dim",
    )
