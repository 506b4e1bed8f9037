"""Sweeps: a line for each operand type, and a table for each problem with its remarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from accprobe.isa.formats import FORMATS
from accprobe.render.document import (
    Column,
    Element,
    Grid,
    Heading,
    Paragraph,
    Phrase,
    Section,
    tabulate,
)
from accprobe.report.sweeps import OperandSet, SweepRecord
from accprobe.report.words import register
from accprobe.sass import opcodes

MASKED = (
    "A GEMM clears more and more low bits of its partial sums, for each block-K. The largest number of bits that can be cleared"
    " without a change shows how many the unit computes; the same masks on exact sums show whether the operands limit it (≥)."
)

PROMOTED = (
    "N of 23: the mask clears bits of an f32 sum of several partial sums; N is the number of fraction bits that they reach with"
    " these operands. The unit's accumulator shows where nothing is promoted."
)


FP8 = ("e4m3", "e5m2")


class SweepLine(NamedTuple):
    """The records of one configuration, one for each operand set."""

    records: tuple[SweepRecord, ...]

    @property
    def first(self) -> SweepRecord:
        return self.records[0]


def bits(record: SweepRecord) -> Phrase:
    """Return "13 (e8m13)"; "≥22" where the operands need no more; "20 of 23" of a promoted sum; "32 wrap" of an integer."""
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
    """Return whether the masked sum is an f32 sum of several partial sums, whose bits are not those of the accumulator."""
    return record.promote_every is not None and record.promote_every < record.block_k


def is_converted(record: SweepRecord) -> bool:
    """Return whether fp8 operands were converted for the f16 unit."""
    return record.dtype in FP8 and any(opcodes.stem(opcode).endswith("HMMA") for opcode in record.opcodes)


def unit(record: SweepRecord) -> str:
    """Return the unit that ran: "QGMMA"; "FFMA" without a matrix instruction."""
    return " + ".join(dict.fromkeys(map(opcodes.stem, record.opcodes))) or "FFMA"


def _bits(*operands: OperandSet) -> Callable[[SweepLine], Phrase]:
    return lambda line: next((bits(each) for name in operands for each in line.records if each.operands == name), Phrase(""))


def _of(field: str, form: str = "") -> Callable[[SweepLine], str]:
    return lambda line: "" if (found := getattr(line.first, field)) is None else f"{found:{form}}"


def _ran_as(line: SweepLine) -> Phrase:
    counts = dict(line.first.lowering)
    if not line.first.opcodes:
        return Phrase(f"{counts['FFMA']}×FFMA" if "FFMA" in counts else "")
    text = " + ".join(f"{counts[opcode]}×{opcodes.stem(opcode)}" for opcode in line.first.opcodes)
    return Phrase(text, "converted" if is_converted(line.first) else "")


def _differ(records: Iterable[SweepRecord]) -> Phrase:
    counts = [each.prediction.differ for each in records if each.prediction]
    return Phrase(f"{sum(counts):,}", "bad" if any(counts) else "good") if counts else Phrase("")


COLUMNS = (
    Column("operand\ntype", _of("dtype"), whole=True),
    Column("warps", _of("num_warps"), number=True),
    Column("block-K", _of("block_k"), number=True),
    Column("ran as", _ran_as, least=12),
    Column("bits,\nnormal", _bits("normal", "uniform"), whole=True),
    Column("bits,\nfull-width", _bits("full-width"), "context", whole=True),
    Column("relative\nerror", _of("relative_error", ".2e"), number=True),
    Column("bits\ndiffer", lambda line: _differ(line.records), number=True),
    Column("TFLOP/s", _of("tflops", ".0f"), number=True),
    Column("registers", _of("registers"), "detail", number=True),
)


class TypeLine(NamedTuple):
    """The records of one operand type."""

    name: str
    records: list[SweepRecord]

    @property
    def normal(self) -> list[SweepRecord]:
        """Return the records of normal operands, or all where these were not swept."""
        return [each for each in self.records if each.operands == "normal"] or self.records


def _errors(line: TypeLine) -> str:
    errors = [each.relative_error or 0.0 for each in line.normal]
    least, most = f"{min(errors):.1e}", f"{max(errors):.1e}"
    return "exact" if not max(errors) else least if least == most else f"{least} to {most}"


def _fastest(line: TypeLine) -> str:
    fastest = max((each.tflops for each in line.normal if each.tflops is not None), default=None)
    return "" if fastest is None else f"{fastest:.0f}"


def _kept(line: TypeLine) -> Phrase:
    """Return "QGMMA 13 (e8m13), HMMA 23 (f32)": the fewest bits that a unit's own sums were seen to have."""
    units: dict[str, list[Phrase]] = {}
    for each in line.records:
        if not is_promoted_sum(each) and (found := bits(each)).text:
            units.setdefault(unit(each), []).append(found)
    alike: dict[Phrase, list[str]] = {}
    for name, every in units.items():
        exact = [found for found in every if not found.text.startswith("≥")] or every
        fewest = min(exact, key=lambda found: int(found.text.lstrip("≥").split()[0]))
        alike.setdefault(fewest, []).append(name)
    narrow_first = sorted(alike.items(), key=lambda item: not item[0].tone)
    text = ", ".join(f"{', '.join(names)} {found.text}" for found, names in narrow_first)
    return Phrase(text or "promoted sums alone", "narrow" if any(found.tone for found in alike) else "")


SUMMARY = (
    Column("operand\ntype", lambda line: line.name, whole=True),
    Column("bits kept", _kept, least=12),
    Column("relative\nerror", _errors, least=10),
    Column("TFLOP/s\nat most", _fastest, number=True),
    Column("bits\ndiffer", lambda line: _differ(line.records), number=True),
)


def type_lines(records: Iterable[SweepRecord]) -> list[TypeLine]:
    """Return the measured records by operand type, and by problem where several were swept."""
    swept = [each for each in records if each.measured]
    several = len({_size(each) for each in swept}) > 1
    found: dict[str, list[SweepRecord]] = {}
    for each in swept:
        found.setdefault(f"{each.dtype}, {_size(each)}" if several else each.dtype, []).append(each)
    return [TypeLine(name, of_type) for name, of_type in found.items()]


def _size(record: SweepRecord) -> str:
    return f"m {record.m}, n {record.n}, k {record.k}, blocks of {record.block_m} × {record.block_n}"


def sweep_headline(records: Sequence[SweepRecord]) -> str:
    """Return "Bits kept by partial sums: e4m3: QGMMA 13 (e8m13), HMMA 23 (f32); …"."""
    found = [f"{line.name}: {_kept(line).text}" for line in type_lines(records)]
    return f"Bits kept by partial sums: {'; '.join(found) or 'nothing was measured'}"


def sweep_summary(records: Sequence[SweepRecord], simulated: bool = False) -> Iterator[Element]:
    """Yield a line for each operand type."""
    title = Phrase("Truncation-mask sweep of a Triton GEMM", "strong")
    yield Heading((title, Phrase("; --sweeps has each configuration")), 2)
    yield from _summary(records, simulated)


def _summary(records: Sequence[SweepRecord], simulated: bool) -> Iterator[Element]:
    if found := type_lines(records):
        yield tabulate(SUMMARY, found)
    notes = remarks([SweepLine(tuple(records))], simulated)
    yield from (Paragraph(note) for note in notes if note.tone in ("bad", "warning"))


def sweep_tables(records: Sequence[SweepRecord], simulated: bool = False) -> Iterator[Element]:
    """Yield a table for each problem."""
    yield Heading(sweep_headline(records), 1)
    for problem, shown in by_problem(records):
        yield Heading(problem, 2)
        if any(line.first.measured for line in shown):
            yield sweep_table(shown)
        yield from map(Paragraph, remarks(shown, simulated))


def sweep_page(records: Sequence[SweepRecord], simulated: bool) -> Iterator[Element]:
    """Yield a line for each operand type, then every configuration, folded."""
    yield Heading("Sweeps", 2, "sweeps")
    yield from _summary(records, simulated)
    yield Paragraph(MASKED)
    yield Section("Every configuration", lambda: sweep_tables(records, simulated))


def sweep_table(shown: Sequence[SweepLine]) -> Grid:
    return tabulate(COLUMNS, shown, group=lambda line: line.first.dtype)


def by_problem(records: Sequence[SweepRecord]) -> Iterator[tuple[str, list[SweepLine]]]:
    """Yield each problem in words with its lines; records that differ only in their operands share a line."""
    found: dict[tuple[object, ...], list[SweepRecord]] = {}
    for each in records:
        found.setdefault(_configuration(each), []).append(each)
    for problem, group in groupby((SweepLine(tuple(same)) for same in found.values()), _problem):
        yield problem, list(group)


def _configuration(record: SweepRecord) -> tuple[object, ...]:
    return record.model_copy(update={"operands": "normal"}).key


def _problem(line: SweepLine) -> str:
    each = line.first
    promoted = f", promotion interval {each.promote_every}" if each.promote_every else ""
    return f"Truncation-mask sweep: {_size(each)}{promoted}; Triton {each.triton}"


def remarks(shown: Sequence[SweepLine], simulated: bool) -> Iterator[Phrase]:
    """Yield notes on a problem's table."""
    records = [record for line in shown for record in line.records]
    if simulated:
        yield Phrase("Simulated: published models evaluated, nothing was measured.", "bad")
    if converted := [record for record in records if is_converted(record)]:
        where = "; ".join(places(converted))
        yield Phrase(f"! {where}: operands are converted and multiplied by HMMA, not by fp8's own unit.", "warning")
    if any(record.effective_bits and record.effective_bits.bound == "at_least" for record in records):
        yield Phrase("≥: a lower bound: exact sums of these operands show no more bits either.", "quiet")
    if any(" of " in bits(record).text for record in records):
        yield Phrase(PROMOTED, "quiet")
    yield from _gathered(records, _overflow)
    if predicted := [record.prediction for record in records if record.prediction]:
        masks = len(next((record.masks for record in records if record.masks), [0]))
        yield Phrase(
            f"predicted: by the published model of the opcode, {predicted[0].elements:,} elements with each of {masks} masks; "
            "bits differ: mismatches among them, with all operand sets.",
            "quiet",
        )
    yield from _gathered(records, lambda record: record.reason)
    yield from _profiled(records)


def _gathered(records: Sequence[SweepRecord], text_for: Callable[[SweepRecord], str]) -> Iterator[Phrase]:
    """Yield each text once, with its configurations."""
    found: dict[str, list[SweepRecord]] = {}
    for record in records:
        if text := text_for(record):
            found.setdefault(text, []).append(record)
    yield from (Phrase(f"{'; '.join(places(of_text))}: {text}", "quiet") for text, of_text in found.items())


def places(records: Iterable[SweepRecord]) -> Iterator[str]:
    """Yield configurations in few words: "tf32 with 2, 4, 8 warps at block-K 512"."""
    blocks: dict[tuple[str, int], dict[int, None]] = {}
    for each in records:
        blocks.setdefault((each.dtype, each.num_warps), {})[each.block_k] = None
    alike: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for (dtype, warps), sizes in blocks.items():
        alike.setdefault((dtype, tuple(sizes)), []).append(warps)
    for (dtype, block_ks), several in alike.items():
        yield f"{dtype} with {', '.join(map(str, several))} warps at block-K {', '.join(map(str, block_ks))}"


def _overflow(record: SweepRecord) -> str:
    if not record.unit_overflow or not record.add_overflow:
        return ""
    unit, add = record.unit_overflow, record.add_overflow
    return (
        f"{' + '.join(map(opcodes.stem, record.opcodes))}, no block overflows (that takes 131,072 products); sums that stay in"
        f" the unit: right from {unit.smallest} to {unit.largest}, beyond: {unit.rule};"
        f" blocks added by ordinary adds: {add.rule}."
    )


def _profiled(records: Sequence[SweepRecord]) -> Iterator[Phrase]:
    agree = [record for record in records if record.profile and record.profile.agrees]
    if agree:
        yield Phrase(f"{'; '.join(places(agree))}: the profiler counted the executions that the disassembly has.", "good")
    for record in records:
        if record.profile and not record.profile.agrees:
            (place,), profile = places([record]), record.profile
            counted = ", ".join(f"{count:,}×{opcode}" for opcode, count in profile.executed) or "no matrix instruction"
            expected = ", ".join(f"{count:,}×{opcode}" for opcode, count in profile.expected)
            yield Phrase(f"{place}: the profiler counted {counted}; the disassembly has {expected}.", "bad")
