"""Sweeps: a line an operand type, or a table a problem with their remarks; and what each configuration compiles to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import NamedTuple

from accprobe.isa.formats import FORMATS
from accprobe.render.charts import chart_picture
from accprobe.render.document import Column, Element, Figure, Grid, Heading, List, Paragraph, Phrase, Section, Tone
from accprobe.render.subjects.sweep_series import by_type, charts, either, unit
from accprobe.report.sweeps import OperandSet, SweepRecord
from accprobe.report.words import register
from accprobe.sass import opcodes
from accprobe.sweep.atlas import Entry


class SweepLine(NamedTuple):
    """The records of one configuration, one for each operand set."""

    records: tuple[SweepRecord, ...]

    @property
    def first(self) -> SweepRecord:
        return self.records[0]

    def of(self, operands: str) -> SweepRecord | None:
        return next((each for each in self.records if each.operands == operands), None)


class SweepColumn(NamedTuple):
    """cell: of a line, empty where nothing is known."""

    column: Column
    cell: Callable[[SweepLine], Phrase]


PROMOTED = (
    "N of 23: what is masked is an f32 sum, with 23 fraction bits, of parts that the unit cut to fewer; N is how many of them"
    " these parts reach into with these operands. No accumulator is N bits wide: the unit's shows where nothing is promoted."
)
"""What is said of the bits of promoted sums."""

COLUMNS = {
    "dtype": SweepColumn(Column("operand\ntype", whole=True), lambda line: Phrase(line.first.dtype)),
    "warps": SweepColumn(Column("warps", number=True), lambda line: _number(line.first.num_warps)),
    "block_k": SweepColumn(Column("block-K", number=True), lambda line: _number(line.first.block_k)),
    "ran_as": SweepColumn(Column("ran as", least=12), lambda line: _ran_as(line.first)),
    "normal": SweepColumn(Column("bits,\nnormal", whole=True), lambda line: _bits(line, "normal", "uniform")),
    "full_width": SweepColumn(Column("bits,\nfull-width", "context", whole=True), lambda line: _bits(line, "full-width")),
    "error": SweepColumn(Column("relative\nerror", number=True), lambda line: _number(line.first.relative_error, ".2e")),
    "differ": SweepColumn(Column("bits\ndiffer", number=True), lambda line: _differ(line)),
    "tflops": SweepColumn(Column("TFLOP/s", number=True), lambda line: _number(line.first.tflops, ".0f")),
    "predicted": SweepColumn(Column("predicted\nerror", "detail", number=True), lambda line: _predicted(line.first)),
    "registers": SweepColumn(Column("registers", "detail", number=True), lambda line: _number(line.first.registers)),
    "shared": SweepColumn(
        Column("shared\nKiB", "detail", number=True), lambda line: _number(line.first.shared_bytes, ".0f", 1024)
    ),
    "stages": SweepColumn(Column("stages", "detail", number=True), lambda line: _number(line.first.num_stages)),
}

SUMMARY = (
    Column("operand\ntype", whole=True),
    Column("bits kept", least=12),
    Column("relative\nerror", least=10),
    Column("TFLOP/s\nat most", number=True),
    Column("bits\ndiffer", number=True),
)

COMPILED = (
    Column("arch", whole=True),
    Column("operands", whole=True),
    Column("warps", number=True),
    Column("block-K", whole=True),
    Column("opcode", whole=True),
    Column("in the cubin", "context", least=10),
    Column("accumulator", "context", least=10),
)

MASKED = (
    "A GEMM masks ever more low bits of its partial sums, for each block-K. The most bits that can be masked without a change"
    " show how many the unit computes; the same masks on exact sums show whether the operands can tell (≥: they cannot)."
)


def sweep_summary(records: Sequence[SweepRecord], simulated: bool = False) -> Iterator[Element]:
    """Yield a line an operand type."""
    yield Heading(
        (Phrase("Truncation-mask sweep of a Triton GEMM", "strong"), Phrase(f", {extent(records)}; --sweeps has each")), 2
    )
    yield from _summary(records, simulated)


def _summary(records: Sequence[SweepRecord], simulated: bool) -> Iterator[Element]:
    if rows := tuple(summary_lines(records)):
        yield Grid(SUMMARY, rows)
    notes = remarks([SweepLine(tuple(records))], simulated)
    yield from (Paragraph(note) for note in notes if note.tone in ("bad", "warning"))


def sweep_tables(records: Sequence[SweepRecord], expand: bool = False, simulated: bool = False) -> Iterator[Element]:
    """Yield a table a problem. expand: with all counts of changed elements."""
    for problem, shown in by_problem(records):
        yield Heading(problem, 2)
        if any(line.first.measured for line in shown):
            yield _table(shown)
        yield from map(Paragraph, remarks(shown, simulated))
        if expand:
            counts = (mask_counts(record) for line in shown for record in line.records if record.masks)
            yield List(tuple(Phrase(text, "quiet") for text in counts))


def sweep_page(records: Sequence[SweepRecord], simulated: bool, plots: bool) -> Iterator[Element]:
    """Yield a line an operand type and charts, then folded what else there is."""
    yield Heading("Sweeps", 2, "sweeps")
    yield Paragraph(f"{MASKED} {extent(records)}.")
    yield from _summary(records, simulated)
    if plots:
        drawn = charts(records)
        error, speed, masks = (tuple(map(chart_picture, part)) for part in drawn)
        yield from [Figure(error)] if error else []
        yield from [Section("Speed against block-K", lambda: [Figure(speed)])] if speed else []
        yield from [Section("Changed elements and error by mask", lambda: [Figure(masks)])] if masks else []
    yield Section("Every configuration", lambda: sweep_tables(records, simulated=simulated))


def _table(shown: Sequence[SweepLine]) -> Grid:
    told, rows = sweep_table(shown)
    last = [here.first.dtype != below.first.dtype for here, below in pairwise(shown)]
    ends = frozenset(i for i, ends in enumerate(last) if ends)
    return Grid(tuple(COLUMNS[name].column for name in told), tuple(map(tuple, rows)), ends)


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
    size = f"m {each.m}, n {each.n}, k {each.k}, blocks of {each.block_m} × {each.block_n}"
    return f"Truncation-mask sweep: {size}{promoted}; masked bits are cleared; Triton {each.triton}"


def sweep_table(shown: Sequence[SweepLine]) -> tuple[list[str], list[list[Phrase]]]:
    """Return the columns in which anything stands, and the lines."""
    every = [{name: column.cell(line) for name, column in COLUMNS.items()} for line in shown]
    told = [name for name in COLUMNS if any(cells[name].text for cells in every)]
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


def summary_lines(records: Sequence[SweepRecord]) -> Iterator[tuple[Phrase, ...]]:
    """One line an operand type, under `SUMMARY`; of types of which nothing was measured there is none."""
    for name, series in by_type(records).items():
        every = [each for one in series for each in one.records]
        normal = [each for one in series for each in one.records if each.operands == one.normal_operands]
        errors = [each.relative_error or 0.0 for each in normal]
        least, most = (f"{error:.1e}" for error in (min(errors), max(errors)))
        error = ("exact" if not max(errors) else least) if least == most else f"{least} to {most}"
        fastest = max((each.tflops for each in normal if each.tflops is not None), default=None)
        predicted = [each.prediction.differ for each in every if each.prediction]
        differ = Phrase(f"{sum(predicted):,}", "bad" if any(predicted) else "good") if predicted else Phrase("")
        yield Phrase(name), _kept(every), Phrase(error), Phrase("" if fastest is None else f"{fastest:.0f}"), differ


def _kept(records: Sequence[SweepRecord]) -> Phrase:
    """ "HMMA 23 (f32), QGMMA 13 (e8m13)": of each unit the fewest bits that its own sums were seen to have."""
    units: dict[str, list[Phrase]] = {}
    for each in records:
        if not is_promoted_sum(each) and (told := bits(each)).text:
            units.setdefault(unit(each), []).append(told)
    exact = {name: [told for told in every if not told.text.startswith("≥")] or every for name, every in units.items()}
    fewest = {name: min(every, key=lambda told: int(told.text.lstrip("≥").split()[0])) for name, every in exact.items()}
    alike: dict[Phrase, list[str]] = {}
    for name, told in fewest.items():
        alike.setdefault(told, []).append(name)
    text = ", ".join(
        f"{', '.join(names)} {told.text}" for told, names in sorted(alike.items(), key=lambda item: not item[0].tone)
    )
    return Phrase(text or "promoted sums alone", "narrow" if any(told.tone for told in alike) else "")


def extent(records: Sequence[SweepRecord]) -> str:
    """ "63 configurations: block-K 32 to 512, 2, 4 or 8 warps, promoted every 32 or 128"."""
    swept = {each.model_copy(update={"operands": "normal"}).key for each in records}
    sizes = [each.block_k for each in records]
    warps = either(sorted({each.num_warps for each in records}))
    promoted = either(sorted({each.promote_every for each in records if each.promote_every}))
    size = f"block-K {min(sizes)} to {max(sizes)}" if min(sizes) < max(sizes) else f"block-K {sizes[0]}"
    text = f"{len(swept)} configuration{'s' * (len(swept) > 1)}: {size}, {warps} warps"
    return f"{text}, some promoted every {promoted}" if promoted else text


def compilation_blocks(entries: Sequence[Entry]) -> Iterator[Element]:
    """Yield what each configuration compiles to; block-Ks that become the same opcode share a line."""
    rows: list[tuple[Phrase, ...]] = []
    ends = set()
    rejected: dict[str, list[Entry]] = {}
    for _, of_one in groupby(entries, lambda entry: entry.architecture):
        for (architecture, dtype, warps, ran, accumulator, reason), group in groupby(of_one, _alike):
            each = list(group)
            if reason and not ran:
                rejected.setdefault(reason, []).extend(each)
                continue
            counts = ", ".join(" + ".join(str(count) for _, count in entry.opcodes) for entry in each)
            tone: Tone = "converted" if dtype in ("e4m3", "e5m2") and "HMMA" in ran else ""
            cells = (architecture, dtype, str(warps), _range(each), ran, counts, accumulator or "not published")
            rows.append(tuple(Phrase(text, tone) for text in cells))
        ends.add(len(rows) - 1)
    if rows:
        yield Grid(COMPILED, tuple(rows), frozenset(ends))
    yield from (Paragraph(Phrase(f"{'; '.join(_places(what))}: {reason}", "quiet")) for reason, what in rejected.items())
    if rows:
        yield Paragraph(Phrase("accumulator: fraction bits kept, as published of the opcode; nothing ran.", "quiet"))


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
