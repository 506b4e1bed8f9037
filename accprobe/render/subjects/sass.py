"""Kernels in machine code: their opcodes, accumulators and sums, like kernels together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby
from typing import NamedTuple

from accprobe.audit.accumulators import Accumulator
from accprobe.audit.kernels import UNPACKS, Kernel, Reading, Shortfall
from accprobe.isa.formats import FORMATS
from accprobe.isa.opcodes import parse
from accprobe.render.document import Column, Element, Heading, List, Paragraph, Phrase, paragraphs, tabulate
from accprobe.report.words import so_many
from accprobe.sass.promotion import Chain

NAMED = 3
"""Kernels of a group that are named; `--all` has each."""

LONGEST = 96
"""Characters of a shortened name."""


class OpcodeLine(NamedTuple):
    """A matrix opcode of kernels that are alike."""

    kernels: Sequence[Kernel]
    opcode: str

    @property
    def in_text(self) -> str:
        """Return "×4", "×4-64" where kernels have different counts."""
        counts = [dict(kernel.matrix)[self.opcode] for kernel in self.kernels]
        return f"×{min(counts)}" if min(counts) == max(counts) else f"×{min(counts)}-{max(counts)}"

    @property
    def accumulator(self) -> Phrase:
        known = self.kernels[0].accumulators[self.opcode]
        return Phrase(known.text if known else "unknown", "narrow" if _narrow(self.opcode, known) else "" if known else "quiet")


COLUMNS = (
    Column("kernel", lambda line: Phrase(_title(line.kernels), code=True), least=20),
    Column("opcode", lambda line: Phrase(line.opcode, code=True), least=14),
    Column("in the code", lambda line: line.in_text, number=True),
    Column("accumulator", lambda line: line.accumulator, least=11),
    Column("sums", lambda line: "; ".join(_sums(line.kernels[0], line.opcode)), least=16),
)


def kernel_blocks(kernels: Sequence[Kernel], expand: bool = False) -> Iterator[Element]:
    """Yield each file with its summary, then its kernels; those that are alike together, unless `expand`."""
    for file, of_file in groupby(kernels, lambda kernel: kernel.file):
        found = list(of_file)
        yield Heading(Phrase(file, "strong"), 2)
        yield Paragraph(file_summary(found))
        groups = alike_kernels(found, expand)
        lines = [OpcodeLine(group, opcode) for group in groups for opcode, _ in group[0].matrix]
        yield tabulate(COLUMNS, lines, group=lambda line: id(line.kernels))
        if notes := [(Phrase(f"{_title(group)}: "), note) for group in groups for note in _notes(group[0])]:
            yield List(tuple(notes), "!")


def _notes(kernel: Kernel) -> Iterator[Phrase]:
    """Yield the conversions that unpack operands for another unit."""
    if kernel.emulated:
        narrow, unit = kernel.emulated
        unpacks = ", ".join(f"{count}×{opcode}" for opcode, count in kernel.conversions if UNPACKS.match(opcode))
        arithmetic = f"the arithmetic is {unit}'s, not an {narrow} unit's"
        yield Phrase(f"{narrow} operands are unpacked for {unit} ({unpacks}): {arithmetic}", "converted")


def _title(kernels: Sequence[Kernel]) -> str:
    """Return "2 kernels: f, g, sm_90a"."""
    different = list(dict.fromkeys(short_name(kernel.name) for kernel in kernels))
    names = ", ".join(different[:NAMED]) + (", …" if len(different) > NAMED else "")
    count = f"{len(kernels)} kernels: " if len(kernels) > 1 else ""
    return f"{count}{names}, {kernels[0].architecture}"


def kernels_total(kernels: Sequence[Kernel], reading: Reading) -> Iterator[Element]:
    """Yield the sources of the accumulators, and how much was read."""
    yield from paragraphs(accumulator_sources(kernels), "quiet")
    every = sum(reading.functions.values())
    by_architecture = ", ".join(f"{name} {count:,}" for name, count in reading.functions.items())
    read = f"{every:,} GPU function{'s' * (every != 1)} read ({by_architecture}), {len(kernels):,} with matrix opcodes"
    yield Paragraph(Phrase(read, "strong"))


def alike_kernels(kernels: Sequence[Kernel], expand: bool) -> list[list[Kernel]]:
    """Return kernels of one file and architecture with the same opcodes, sums and emulated format together, unless `expand`."""
    groups: dict[object, list[Kernel]] = {}
    for number, kernel in enumerate(kernels):
        opcodes = tuple(sorted(opcode for opcode, _ in kernel.matrix))
        sums = tuple(sorted({text for opcode in opcodes for text in _sums(kernel, opcode)}))
        key = (kernel.file, kernel.architecture, opcodes, sums, kernel.emulated)
        groups.setdefault(number if expand else key, []).append(kernel)
    return list(groups.values())


def _sums(kernel: Kernel, opcode: str) -> list[str]:
    """Return the promotion of an opcode's sums, one text for equal ones."""
    return list(dict.fromkeys(promotion(chain) for chain in kernel.chains if opcode in dict(chain.opcodes)))


def promotion(chain: Chain) -> str:
    """Return "4 × k32, then promoted by FADD: 128 products"."""
    size = f" × k{chain.k}" if chain.k else f" × {chain.unit}"
    if chain.verdict == "never":
        return "never promoted in the loop"
    if chain.verdict == "unknown":
        least = f"; {chain.least}{size} or more" if chain.least > 1 else ""
        return f"promotion not known: {chain.reason}{least}"
    total = f": {chain.products} products" if chain.k else ""
    if chain.verdict == "whole":
        return f"{chain.most}{size} in all{total}"
    count = str(chain.most) if chain.least == chain.most else f"{max(chain.least, 1)} to {chain.most}"
    return f"{count}{size}, then promoted by {chain.by}{total}"


def shortfall_line(found: Shortfall) -> str:
    """Return file, kernel, opcode, bits and promotion of a failed requirement on one line."""
    if not found.kernels:
        return found.reason
    first, *others = found.kernels
    sums = _sums(first, found.opcode) if found.rule == "accumulator" else []
    reason = "; ".join([f"{found.opcode} {found.reason}".lstrip(), *sums])
    title = f"{short_name(first.name)} ({first.architecture or 'unknown architecture'}, sha256 {first.sha256[:12]})"
    again = f"; the same kernel {len(others)} more time{'s' * (len(others) > 1)}" if others else ""
    return f"{first.file}: {title}: {reason}{again}"


def accumulator_sources(kernels: Sequence[Kernel]) -> Iterator[str]:
    """Yield each source of accumulators with its opcodes."""
    found: dict[str, dict[str, None]] = {}
    for kernel in kernels:
        for opcode, known in kernel.accumulators.items():
            source = known.source if known else "unknown: neither measured nor published"
            found.setdefault(source, {})[f"{parse(opcode).stem} {kernel.architecture}"] = None
    for source, where in found.items():
        yield f"{', '.join(where)}: {source}"


def file_summary(kernels: Sequence[Kernel]) -> str:
    """Return "FP8 accumulates in 13 bits (promotion interval 128: 36, never promoted: 2); 412 kernels with matrix opcodes"."""
    narrow: dict[tuple[str, int], list[Kernel]] = {}
    for kernel in kernels:
        for key in dict.fromkeys(_narrow(opcode, known) for opcode, known in kernel.accumulators.items()):
            if key is not None:
                narrow.setdefault(key, []).append(kernel)
    parts = [f"{name} accumulates in {bits} bits{_promotion_of(found, (name, bits))}" for (name, bits), found in narrow.items()]
    if not parts and all(known for kernel in kernels for known in kernel.accumulators.values()):
        parts.append("no accumulator is narrower than its result")
    if emulated := sum(kernel.emulated is not None for kernel in kernels):
        parts.append(f"{so_many(emulated, 'kernel')} unpack{'s' * (emulated == 1)} narrow operands for a wider unit")
    return "; ".join([*parts, f"{so_many(len(kernels), 'kernel')} with matrix opcodes"])


def _narrow(opcode: str, known: Accumulator | None) -> tuple[str, int] | None:
    """Return ("FP8", 13) of an opcode that accumulates fewer bits than its result has, None of others."""
    if known is None or known.bits is None or known.bits >= FORMATS[known.format].mantissa_bits:
        return None
    operand = parse(opcode).a
    return ("FP8" if operand in ("e4m3", "e5m2") else operand or parse(opcode).stem).upper(), known.bits


def _promotion_of(kernels: Sequence[Kernel], narrow: tuple[str, int]) -> str:
    """Return " (promotion interval 128: 36, never promoted: 2)", without a count for a single kernel."""
    counts: Counter[str] = Counter()
    for kernel in kernels:
        opcodes = {opcode for opcode, known in kernel.accumulators.items() if _narrow(opcode, known) == narrow}
        counts[_interval([chain for chain in kernel.chains if opcodes & dict(chain.opcodes).keys()])] += 1
    return f" ({', '.join(f'{text}: {count:,}' if len(kernels) > 1 else text for text, count in counts.most_common())})"


def _interval(chains: Sequence[Chain]) -> str:
    """Return the promotion of a kernel's sums, "never promoted" if that is so of any."""
    verdicts = {chain.verdict for chain in chains}
    if "never" in verdicts:
        return "never promoted"
    if "unknown" in verdicts:
        return "promotion not known"
    if "promoted" not in verdicts:
        return "no loop"
    products = max(chain.products for chain in chains if chain.verdict == "promoted")
    return f"promotion interval {products}" if products else "promoted"


@cache
def demangled(name: str) -> str:
    """Return the name as in C++; unchanged where it is not mangled, or cxxfilt is missing."""
    if not name.startswith("_Z"):
        return name
    try:
        import cxxfilt

        return str(cxxfilt.demangle(name))
    except Exception:  # without the package or a C++ library, and of a name that is none
        return name


@cache
def short_name(name: str) -> str:
    """Return the demangled name without its result and parameters, at most LONGEST characters."""
    full = demangled(name)
    is_function = full != name or full.endswith(")")
    text = _without_parameters(full).replace("> >", ">>").replace("> >", ">>") if is_function else full
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _without_parameters(text: str) -> str:
    """Return "f<int>" of "void f<int>(int*)"; brackets also belong to `(anonymous namespace)` and to casts of arguments."""
    text = text.replace("(anonymous namespace)::", "")
    level = start = 0
    for i, character in enumerate(text):
        level += (character == "<") - (character == ">")
        if character == " " and not level:
            start = i + 1
        elif character == "(" and not level:
            return text[start:i]
    return text[start:]
