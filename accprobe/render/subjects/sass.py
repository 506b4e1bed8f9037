"""Kernels in machine code: those that are alike, their opcodes, accumulators and sums; and what instructions become."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import cast

from accprobe.audit.accumulators import Accumulator
from accprobe.audit.atlas import Atlas
from accprobe.audit.kernels import Kernel, Reading
from accprobe.audit.requirements import Shortfall
from accprobe.isa.formats import FORMATS
from accprobe.render.document import Column, Element, Grid, Heading, List, Paragraph, Phrase, Said
from accprobe.render.subjects.kernel_names import short_name
from accprobe.render.subjects.patterns import brace_patterns
from accprobe.report.words import lowered
from accprobe.sass.opcodes import parse
from accprobe.sass.promotion import Chain

NAMED = 3
"""Kernels of a group that are named; `--all` has each."""


@dataclass(frozen=True)
class OpcodeLine:
    """A matrix opcode of kernels that are alike. count: "×4", "×4-64" where they have it so often; executed: where counted."""

    opcode: str
    count: str
    executed: str | None
    accumulator: Phrase
    sums: list[str]


@dataclass(frozen=True)
class AlikeKernels:
    """Kernels of a file and architecture whose opcodes, sums and conversions are the same, however many of each."""

    kernels: Sequence[Kernel]

    @property
    def first(self) -> Kernel:
        return self.kernels[0]

    @property
    def lines(self) -> Iterator[OpcodeLine]:
        for opcode, _ in self.first.matrix:
            counts = [dict(kernel.matrix)[opcode] for kernel in self.kernels]
            count = f"×{min(counts)}" if min(counts) == max(counts) else f"×{min(counts)}-{max(counts)}"
            executed = sum(dict(kernel.executed or ()).get(opcode, 0) for kernel in self.kernels)
            told = f"{executed:,}" if self.first.executed is not None else None
            yield OpcodeLine(opcode, count, told, _accumulator(self.first, opcode), _sums(self.first, opcode))

    @property
    def notes(self) -> Iterator[Phrase]:
        """What unpacks operands for another unit, and what else feeds it."""
        kernel = self.first
        if kernel.emulated:
            narrow, unit = kernel.emulated
            unpacks = ", ".join(f"{c.count}×{c.opcode}" for c in kernel.conversions if c.unpacked)
            arithmetic = f"the arithmetic is {unit}'s, not an {narrow} unit's"
            yield Phrase(f"{narrow} operands are unpacked for {unit} ({unpacks}): {arithmetic}", "converted")
        fed = [c for c in kernel.conversions if c.feeds and not c.unpacked]
        if fed:
            yield Phrase("fed by " + ", ".join(f"{c.count}×{c.opcode} → {' and '.join(c.feeds)}" for c in fed), "quiet")


def kernel_blocks(kernels: Sequence[Kernel], expand: bool = False) -> Iterator[Element]:
    """Yield each file with its summary, then its kernels; those that are alike together, unless `expand`."""
    for file, of_file in groupby(kernels, lambda kernel: kernel.file):
        found = list(of_file)
        summary = "; ".join(file_summary(found))
        yield Heading((Phrase(file, "strong"), Phrase(f": {summary}" if summary else "")), 2)
        groups = alike_kernels(found, expand)
        counted = any(kernel.executed is not None for kernel in found)
        columns = [Column("kernel", least=20), Column("opcode", least=14)]
        columns += [Column("executed" if counted else "in the text", number=True)]
        columns += [Column("accumulator", least=11), Column("sums", least=16)]
        rows = [(i, _row(group, line)) for i, group in enumerate(groups) for line in group.lines]
        ends = frozenset(at for at, ((i, _), (below, _)) in enumerate(pairwise(rows)) if i != below)
        yield Grid(tuple(columns), tuple(row for _, row in rows), ends)
        if notes := [(Phrase(f"{_title(group)}: "), note) for group in groups for note in group.notes]:
            yield List(tuple(notes), "!")


def _row(group: AlikeKernels, line: OpcodeLine) -> tuple[Said, ...]:
    often = line.count if line.executed is None else line.executed
    return Phrase(_title(group), code=True), Phrase(line.opcode, code=True), often, line.accumulator, "; ".join(line.sums)


def _title(group: AlikeKernels) -> str:
    """ "2 kernels: f, g, sm_90a, 4 launches"."""
    different = list(dict.fromkeys(short_name(kernel.name) for kernel in group.kernels))
    names = ", ".join(different[:NAMED]) + (", …" if len(different) > NAMED else "")
    count = f"{len(group.kernels)} kernels: " if len(group.kernels) > 1 else ""
    launched = sum(kernel.launches or 0 for kernel in group.kernels)
    times = f", {launched} launch{'es' * (launched != 1)}" if group.first.executed is not None else ""
    return f"{count}{names}, {group.first.architecture}{times}"


def kernels_total(kernels: Sequence[Kernel], reading: Reading) -> Iterator[Element]:
    """Yield what stands below all files: how accumulators are known, and how much was read."""
    yield from (Paragraph(Phrase(text, "quiet")) for text in accumulator_sources(kernels))
    yield Paragraph(Phrase(kernels_summary(kernels, reading), "strong"))


def lowering_blocks(atlas: Atlas) -> Iterator[Element]:
    columns = (Column("instruction", least=26), Column("becomes", least=14), Column("on", least=8))
    yield Grid(columns, tuple((Phrase(name, code=True), became, on) for name, became, on in lowering_lines(atlas)))
    yield from (Paragraph(Phrase(text, "quiet")) for text in lowering_notes(atlas))


def alike_kernels(kernels: Sequence[Kernel], expand: bool) -> list[AlikeKernels]:
    """`expand`: each kernel by itself."""
    groups: dict[object, list[Kernel]] = {}
    for number, kernel in enumerate(kernels):
        opcodes = tuple(sorted(opcode for opcode, _ in kernel.matrix))
        sums = tuple(sorted({text for opcode in opcodes for text in _sums(kernel, opcode)}))
        key = (kernel.file, kernel.architecture, opcodes, sums, kernel.emulated, kernel.executed is None)
        groups.setdefault(number if expand else key, []).append(kernel)
    return list(map(AlikeKernels, groups.values()))


def _accumulator(kernel: Kernel, opcode: str) -> Phrase:
    known = kernel.accumulators[opcode]
    if known is None:
        return Phrase("unknown", "quiet")
    narrow = known.bits is not None and known.bits < FORMATS[known.format].mantissa_bits
    return Phrase(known.text, "narrow" if narrow else "")


def _sums(kernel: Kernel, opcode: str) -> list[str]:
    """What becomes of the sums that an opcode makes, one text for those that are alike."""
    return list(dict.fromkeys(promotion(chain) for chain in kernel.chains if opcode in dict(chain.opcodes)))


def promotion(chain: Chain) -> str:
    """ "4 × k32, then promoted by FADD: 128 products"."""
    size = f" × k{chain.k}" if chain.k else f" × {chain.unit}"
    if chain.verdict == "never":
        return "never promoted: one sum for as long as the loop runs"
    if chain.verdict == "unknown":
        least = f"; {chain.least}{size} or more" if chain.least > 1 else ""
        return f"promotion cannot be told: {chain.reason}{least}"
    total = f": {chain.products} products" if chain.k else ""
    if chain.verdict == "whole":
        return f"{chain.most}{size} in all{total}"
    count = str(chain.most) if chain.least == chain.most else f"{max(chain.least, 1)} to {chain.most}"
    return f"{count}{size}, then promoted by {chain.by}{total}"


def kernel_title(kernel: Kernel) -> str:
    """ "gemm (sm_90a, sha256 0123456789ab)"."""
    return f"{short_name(kernel.name)} ({kernel.architecture or 'unknown architecture'}, sha256 {kernel.sha256[:12]})"


def shortfall_reason(found: Shortfall) -> str:
    """Opcode, bits and promotion: "QGMMA.64x64x32 keeps 13 (e8m13) bits, fewer than 22; never promoted: …"."""
    told = f"{found.opcode} {found.reason}".lstrip()
    sums = _sums(found.kernels[0], found.opcode) if found.rule == "accumulator" else []
    return "; ".join([told, *sums])


def shortfall_line(found: Shortfall) -> str:
    """All of it on one line, the file first."""
    if not found.kernels:
        return found.reason
    first, *others = found.kernels
    line = f"{first.file}: {kernel_title(first)}: {shortfall_reason(found)}"
    return f"{line}; the same kernel {len(others)} more time{'s' * (len(others) > 1)}" if others else line


def accumulator_sources(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Where accumulators are known from, one line a source."""
    found: dict[str, dict[str, None]] = {}
    for kernel in kernels:
        for opcode, known in kernel.accumulators.items():
            source = known.source if known else "unknown: neither measured nor published"
            found.setdefault(source, {})[f"{parse(opcode).stem} {kernel.architecture}"] = None
    for source, where in found.items():
        yield f"{', '.join(where)}: {source}"


def file_summary(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Of a file with several kernels: "412 kernels with matrix instructions; 38 accumulate FP8 in 13 bits (promotion
    interval 128: 36, never promoted: 2)"."""
    if len(kernels) < 2 or any(kernel.executed is not None for kernel in kernels):
        return
    narrow: dict[tuple[str, int], list[Kernel]] = {}
    for kernel in kernels:
        for key in {_narrow(opcode, known) for opcode, known in kernel.accumulators.items()} - {None}:
            narrow.setdefault(cast(tuple[str, int], key), []).append(kernel)
    parts = [f"{len(kernels):,} kernels with matrix instructions"]
    for (name, bits), found in sorted(narrow.items()):
        verb = f"accumulate{'s' * (len(found) == 1)}"
        parts.append(f"{len(found):,} {verb} {name} in {bits} bits{_promotion_of(found, (name, bits))}")
    if emulated := sum(kernel.emulated is not None for kernel in kernels):
        parts.append(f"{emulated:,} unpack{'s' * (emulated == 1)} narrow operands for a wider unit")
    yield "; ".join(parts)


def _narrow(opcode: str, known: Accumulator | None) -> tuple[str, int] | None:
    """("FP8", 13) of an opcode that accumulates fewer bits than its result has; None of others."""
    if known is None or known.bits is None or known.bits >= FORMATS[known.format].mantissa_bits:
        return None
    operand = parse(opcode).a
    return ("FP8" if operand in ("e4m3", "e5m2") else operand or parse(opcode).stem).upper(), known.bits


def _promotion_of(kernels: Sequence[Kernel], narrow: tuple[str, int]) -> str:
    """ " (promotion interval 128: 36, never promoted: 2)"."""
    counts: Counter[str] = Counter()
    for kernel in kernels:
        opcodes = {opcode for opcode, known in kernel.accumulators.items() if _narrow(opcode, known) == narrow}
        counts[_interval([chain for chain in kernel.chains if opcodes & dict(chain.opcodes).keys()])] += 1
    return f" ({', '.join(f'{text}: {count:,}' for text, count in counts.most_common())})"


def _interval(chains: Sequence[Chain]) -> str:
    """What becomes of the sums of a kernel: of those that go on for as long as a loop runs, if there are any."""
    verdicts = {chain.verdict for chain in chains}
    if "never" in verdicts:
        return "never promoted"
    if "unknown" in verdicts:
        return "promotion not known"
    if "promoted" not in verdicts:
        return "no loop"
    products = max(chain.products for chain in chains if chain.verdict == "promoted")
    return f"promotion interval {products}" if products else "promoted"


def kernels_summary(kernels: Sequence[Kernel], reading: Reading) -> str:
    every = sum(reading.functions.values())
    if any(kernel.executed is not None for kernel in kernels):
        seen = f"{every:,} launch{'es' * (every != 1)} seen"
        return f"{seen}, {len(kernels):,} kernel{'s' * (len(kernels) != 1)} executed matrix opcodes"
    by_architecture = ", ".join(f"{name} {count:,}" for name, count in reading.functions.items())
    text = f"{every:,} function{'s' * (every != 1)} read ({by_architecture}), {len(kernels):,} with matrix opcodes"
    if reading.ptx:
        text += f"; PTX for {', '.join(reading.ptx)} besides, which the driver compiles"
    return text


def lowering_lines(atlas: Atlas) -> Iterator[tuple[str, str, str]]:
    """Instructions that become the same on the same architectures share a line."""
    alike: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for name, became in atlas.lowerings.items():
        shown: dict[str, list[str]] = {}
        for sequence, targets in became.items():
            shown.setdefault(lowered(sequence), []).extend(targets)
        key = tuple((text, ", ".join(sorted(on, key=atlas.targets.index))) for text, on in shown.items())
        alike.setdefault(key, []).append(name)
    for key, names in alike.items():
        for pattern in brace_patterns(names):
            for text, on in key:
                yield pattern, text, on


def lowering_notes(atlas: Atlas) -> Iterator[str]:
    yield f"compiled with NVRTC {atlas.compiler}, read with nvdisasm {atlas.disassembler}; nothing ran"
    if atlas.missing:
        yield f"No probe, or no longer known to this compiler: {', '.join(atlas.missing)}"
