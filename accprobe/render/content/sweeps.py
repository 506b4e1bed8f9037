"""Sweeps as tables: their problems, columns, cells and remarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from accprobe.isa.formats import FORMATS
from accprobe.render.content.phrases import Phrase
from accprobe.report.sweeps import OperandSet, SweepRecord
from accprobe.report.words import register
from accprobe.sass import opcodes


class SweepLine(NamedTuple):
    """The records of one configuration, one for each operand set."""

    records: tuple[SweepRecord, ...]

    @property
    def first(self) -> SweepRecord:
        return self.records[0]

    def of(self, operands: str) -> SweepRecord | None:
        return next((each for each in self.records if each.operands == operands), None)


class Column(NamedTuple):
    """cell: of a line, empty where nothing is known."""

    header: str
    cell: Callable[[SweepLine], Phrase]


PROMOTED = (
    "N of 23: what is masked is an f32 sum, with 23 fraction bits, of parts that the unit cut to fewer; N is how many of them"
    " these parts reach into with these operands. No accumulator is N bits wide: the unit's shows where nothing is promoted."
)
"""What is said of the bits of promoted sums."""

COLUMNS = {
    "dtype": Column("operand\ntype", lambda line: Phrase(line.first.dtype)),
    "warps": Column("\nwarps", lambda line: _number(line.first.num_warps)),
    "block_k": Column("\nblock-K", lambda line: _number(line.first.block_k)),
    "ran_as": Column("\nran as", lambda line: _ran_as(line.first)),
    "normal": Column("bits,\nnormal", lambda line: _bits(line, "normal", "uniform")),
    "full_width": Column("bits,\nfull-width", lambda line: _bits(line, "full-width")),
    "error": Column("relative\nerror", lambda line: _number(line.first.relative_error, ".2e")),
    "predicted": Column("predicted\nerror", lambda line: _predicted(line.first)),
    "differ": Column("bits\ndiffer", lambda line: _differ(line)),
    "tflops": Column("\nTFLOP/s", lambda line: _number(line.first.tflops, ".0f")),
    "registers": Column("\nregisters", lambda line: _number(line.first.registers)),
    "shared": Column("shared\nKiB", lambda line: _number(line.first.shared_bytes, ".0f", 1024)),
    "stages": Column("\nstages", lambda line: _number(line.first.num_stages)),
}


def by_problem(records: Sequence[SweepRecord]) -> Iterator[tuple[str, list[SweepLine]]]:
    """What was swept, in words, and its lines: records that differ in their operands alone stand together."""
    found: dict[tuple[object, ...], list[SweepRecord]] = {}
    for each in records:
        found.setdefault(each.model_copy(update={"operands": "normal"}).key, []).append(each)
    for problem, group in groupby((SweepLine(tuple(same)) for same in found.values()), _problem):
        yield problem, list(group)


def _problem(line: SweepLine) -> str:
    each = line.first
    promoted = f", promoted every {each.promote_every} products" if each.promote_every else ""
    how = "rounded" if each.rounded else "cut"
    size = f"m {each.m}, n {each.n}, k {each.k}, blocks of {each.block_m} × {each.block_n}"
    return f"Truncation-mask sweep: {size}{promoted}; masked bits are {how}; Triton {each.triton}"


def sweep_table(shown: Sequence[SweepLine], among: Sequence[str] = tuple(COLUMNS)) -> tuple[list[str], list[list[Phrase]]]:
    """The columns, of those given, in which anything stands, and the lines."""
    every = [{name: COLUMNS[name].cell(line) for name in among} for line in shown]
    told = [name for name in among if any(cells[name].text for cells in every)]
    return told, [[cells[name] for name in told] for cells in every]


def _bits(line: SweepLine, *operands: OperandSet) -> Phrase:
    return next((bits(record) for each in operands if (record := line.of(each))), Phrase(""))


def _ran_as(record: SweepRecord) -> Phrase:
    counts = dict(record.lowering)
    if not record.opcodes:
        ffma = counts.get("FFMA")
        return Phrase(f"{ffma}×FFMA" if ffma else "")
    text = " + ".join(f"{counts[opcode]}×{opcodes.stem(opcode)}" for opcode in record.opcodes)
    return Phrase(text, "converted" if _is_converted(record) else "")


def _is_converted(record: SweepRecord) -> bool:
    """Whether fp8 operands were converted for the f16 unit."""
    return record.dtype in ("e4m3", "e5m2") and any(opcodes.stem(opcode).endswith("HMMA") for opcode in record.opcodes)


def bits(record: SweepRecord) -> Phrase:
    """ "13 (e8m13)"; "≥22" where the operands need no more; "20 of 23" of a promoted sum; "32 wrap" of an integer."""
    if record.unit_overflow:
        return Phrase(f"32 {record.unit_overflow.rule}", "narrow" if record.unit_overflow.rule == "saturate" else "")
    found = record.effective_bits
    if found is None:
        return Phrase("")
    if found.bound == "at_least":
        return Phrase(f"≥{found.value}")
    f32 = FORMATS["f32"]
    if found.value == f32.mantissa_bits or not is_promoted_sum(record):
        return Phrase(f"{found.value} ({register(f32, found.value)})", "narrow" if found.value < f32.mantissa_bits else "")
    return Phrase(f"{found.value} of {f32.mantissa_bits}")


def is_promoted_sum(record: SweepRecord) -> bool:
    """Whether what is masked is an f32 sum of several partial sums: its bits are not those of the unit's accumulator."""
    return record.promote_every is not None and record.promote_every < record.block_k


def _number(value: float | None, form: str = "", unit: int = 1) -> Phrase:
    return Phrase("" if value is None else f"{value / unit if unit > 1 else value:{form}}")


def _predicted(record: SweepRecord) -> Phrase:
    return _number(record.prediction.relative_error if record.prediction else None, ".2e")


def _differ(line: SweepLine) -> Phrase:
    predicted = [each.prediction for each in line.records if each.prediction]
    if not predicted:
        return Phrase("")
    differ = sum(each.differ for each in predicted)
    return Phrase(f"{differ:,}", "bad" if differ else "good")


def remarks(shown: Sequence[SweepLine], simulated: bool) -> Iterator[Phrase]:
    """What has to be known to read a problem's table."""
    records = [record for line in shown for record in line.records]
    if simulated:
        yield Phrase("Simulated: published models evaluated, nothing was measured.", "bad")
    if converted := [record for record in records if _is_converted(record)]:
        where = "; ".join(places(converted, records))
        yield Phrase(f"! {where}: operands are converted and multiplied by HMMA, not by fp8's own unit.", "warning")
    if any(record.effective_bits and record.effective_bits.bound == "at_least" for record in records):
        yield Phrase("≥: exact sums of these operands would not have shown more either: the data is the limit.", "quiet")
    if any(" of " in bits(record).text for record in records):
        yield Phrase(PROMOTED, "quiet")
    yield from (Phrase(text, "quiet") for text in _told(records, _overflow))
    if predicted := [record.prediction for record in records if record.prediction]:
        elements, masks = predicted[0].elements, len(next((record.masks for record in records if record.masks), [0]))
        yield Phrase(
            f"predicted: by the published model of the opcode, {elements:,} elements with each of {masks} masks; "
            "bits differ: how many of these, both operand sets.",
            "quiet",
        )
    yield from (Phrase(text, "quiet") for text in _told(records, lambda record: record.reason))
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


def _profiled(records: Sequence[SweepRecord]) -> Iterator[Phrase]:
    agree = [record for record in records if record.profile and record.profile.agrees]
    if agree:
        where = "; ".join(places(agree, records))
        yield Phrase(f"{where}: the profiler counted as many executions as the disassembly says.", "good")
    for record in records:
        if record.profile and not record.profile.agrees:
            (place,), profile = places([record]), record.profile
            counted = ", ".join(f"{count:,}×{opcode}" for opcode, count in profile.executed) or "no matrix instruction"
            expected = ", ".join(f"{count:,}×{opcode}" for opcode, count in profile.expected)
            yield Phrase(f"{place}: the profiler counted {counted}; the disassembly says {expected}.", "bad")


def mask_counts(record: SweepRecord) -> str:
    """How many elements each mask changed."""
    what = f"{record.dtype}, {record.num_warps} warps, block-K {record.block_k}, {record.operands}"
    changed = " ".join(str(count) for _, count in record.masks)
    control = " ".join(str(count) for _, count in record.control)
    return (
        f"{what}\n  changed of {record.m * record.n:,}, masking 0 to 23 bits: {changed}\n"
        f"  exact sums, of {record.control_elements:,}: {control}"
    )
