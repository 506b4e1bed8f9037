"""Sweeps: the bits kept for each operand type, and a table for each problem."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from accprobe.isa import opcodes
from accprobe.isa.formats import FORMATS
from accprobe.records.sweeps import OperandSet, SweepRecord
from accprobe.render.document import Column, Element, Heading, Paragraph, Phrase, Section, grouped, tabulate
from accprobe.report.words import percent, register

NOTES = (
    "≥: a lower bound: exact sums of these operands show no more bits either. N of 23: the mask clears bits of an f32 sum of"
    " several partial sums (promotion), of which these operands reach N. bits differ: elements, with any mask, that the"
    " opcode's published model predicts otherwise."
)

SweepLine = tuple[SweepRecord, ...]
"""The records of one configuration, one for each operand set."""


def bits(record: SweepRecord) -> Phrase:
    """Return "13 (e8m13)"; "≥22" where the operands need no more; "20 of 23" of a promoted sum."""
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
    """Return whether the masked sum is an f32 sum of several partial sums. It then does not have the accumulator's bits."""
    return record.promote_every is not None and record.promote_every < record.block_k


def _bits(operands: OperandSet) -> Callable[[SweepLine], Phrase]:
    return lambda line: next((bits(each) for each in line if each.operands == operands), Phrase(""))


def _of(field: str, form: str = "") -> Callable[[SweepLine], str]:
    return lambda line: "" if (found := getattr(line[0], field)) is None else f"{found:{form}}"


def _ran_as(line: SweepLine) -> Phrase:
    counts = dict(line[0].lowering)
    if not line[0].opcodes:
        return Phrase(f"{counts['FFMA']}×FFMA" if "FFMA" in counts else "")
    text = " + ".join(f"{counts[opcode]}×{opcodes.stem(opcode)}" for opcode in line[0].opcodes)
    converted = line[0].dtype in ("e4m3", "e5m2") and any(opcodes.stem(opcode).endswith("HMMA") for opcode in line[0].opcodes)
    return Phrase(text, "converted" if converted else "")  # fp8 operands were converted for the f16 unit


def _differ(line: SweepLine) -> Phrase:
    counts = [each.prediction.differ for each in line if each.prediction]
    return Phrase(f"{sum(counts):,}", "bad" if any(counts) else "good") if counts else Phrase("")


COLUMNS = (
    Column("operand\ntype", _of("dtype"), whole=True),
    Column("warps", _of("num_warps"), number=True),
    Column("block-K", _of("block_k"), number=True),
    Column("ran as", _ran_as, least=12),
    Column("bits kept,\nnormal", _bits("normal"), whole=True),
    Column("bits kept,\nfull-width", _bits("full-width"), "context", whole=True),
    Column("relative\nerror", lambda x: "" if x[0].relative_error is None else percent(x[0].relative_error), number=True),
    Column("bits\ndiffer", _differ, number=True),
    Column("TFLOP/s", _of("tflops", ".0f"), number=True),
    Column("registers", _of("registers"), "detail", number=True),
    Column("remark", _of("reason"), "context", least=20),
)


def sweep_blocks(records: Sequence[SweepRecord], expand: bool) -> Iterator[Element]:
    """Yield the bits kept for each operand type. expand: also a table for each problem."""
    yield Heading(sweep_headline(records) + "; --all has each configuration" * (not expand), 2)
    if expand:
        yield from sweep_tables(records)


def sweep_page(records: Sequence[SweepRecord]) -> Iterator[Element]:
    """Yield the bits kept for each operand type, then every configuration, folded."""
    yield Heading("Sweeps", 2, "sweeps")
    yield Paragraph(sweep_headline(records))
    yield Section("Every configuration", lambda: sweep_tables(records))


def sweep_headline(records: Iterable[SweepRecord]) -> str:
    """Return "Bits kept by partial sums of a Triton GEMM: e4m3, e5m2: QGMMA 13 (e8m13), HMMA 23 (f32); …"."""
    swept = [each for each in records if each.measured]
    several = len({_size(each) for each in swept}) > 1
    types = grouped((f"{each.dtype}, {_size(each)}" if several else each.dtype, each) for each in swept)
    alike = grouped((_kept(of_type), name) for name, of_type in types.items())
    found = "; ".join(f"{', '.join(names)}: {kept}" for kept, names in alike.items())
    return f"Bits kept by partial sums of a Triton GEMM: {found or 'nothing was measured'}"


def _kept(records: Iterable[SweepRecord]) -> str:
    """Return "QGMMA 13 (e8m13), HMMA 23 (f32)": the fewest bits that a unit's own sums were seen to have."""
    own = ((each.opcodes, found) for each in records if not is_promoted_sum(each) and (found := bits(each)).text)
    units = grouped((" + ".join(dict.fromkeys(map(opcodes.stem, names))) or "FFMA", found) for names, found in own)
    alike: dict[Phrase, list[str]] = {}
    for name, every in units.items():
        exact = [found for found in every if not found.text.startswith("≥")] or every
        fewest = min(exact, key=lambda found: int(found.text.lstrip("≥").split()[0]))
        alike.setdefault(fewest, []).append(name)
    narrow_first = sorted(alike.items(), key=lambda item: not item[0].tone)
    return ", ".join(f"{', '.join(names)} {found.text}" for found, names in narrow_first) or "promoted sums alone"


def _size(record: SweepRecord) -> str:
    return f"m {record.m}, n {record.n}, k {record.k}, blocks of {record.block_m} × {record.block_n}"


def sweep_tables(records: Sequence[SweepRecord]) -> Iterator[Element]:
    """Yield a table for each problem; records that differ only in their operands share a line."""
    found = grouped((each.model_copy(update={"operands": "normal"}).key, each) for each in records)
    for problem, lines in groupby(map(tuple, found.values()), _problem):
        yield Heading(problem, 2)
        yield tabulate(COLUMNS, lines, group=lambda line: line[0].dtype)
    yield Paragraph(Phrase(NOTES, "quiet"))


def _problem(line: SweepLine) -> str:
    promoted = f", promotion interval {line[0].promote_every}" if line[0].promote_every else ""
    return f"Truncation-mask sweep: {_size(line[0])}{promoted}; Triton {line[0].triton}"
