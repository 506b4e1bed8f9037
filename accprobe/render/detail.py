"""One instruction of a report in full: what ran, the summation tree, every finding and the exchanges that show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accprobe import report
from accprobe.experiments.findings import Exchange as Seen
from accprobe.formats import Format
from accprobe.instructions import Instruction
from accprobe.model import Addend, Arithmetic, DotModel, FloatArithmetic, FusedSum
from accprobe.render.cells import effective_bits, is_converted, is_narrow, word
from accprobe.render.terminal import STATUS_STYLES
from accprobe.report import Exchange, Row

WHY = {
    "order": "M and -M on two leaves, a unit on a third: a unit that is lost was added while M was still there",
    "alignment_bits": "M - M and an ever smaller term: the last that survives, the first that is lost",
    "result_bits": "M and an ever smaller term: the last that the result shows, the first that it does not",
    "alignment_rounding": "terms of both signs below the last bit kept, beside M - M",
    "result_rounding": "ties, and terms on either side of them, of both signs",
    "product_exponent": "products whose exponent is not the sum of their factors' exponents, beside a term near the cut",
    "zero_terms": "a zero times a large number, beside a small number",
    "min_exponent": "the smallest numbers, alone: what is lost lies below the lowest alignment",
    "carries": "many terms of one sign",
}
"""What to see in the evidence of a feature."""


ALIGNMENT = ("alignment_rounding", "product_exponent", "min_exponent", "zero_terms")
"""Fields that mean nothing where every bit of the terms is kept."""

LONG_ORDER = 24
"""Characters; a longer order is shown as a tree alone."""

GLUE = "\ue000"
"""A space at which no line is broken."""


class _Lines:
    """Lines of text with an indent; what does not fit on one goes on below, further in."""

    def __init__(self, lines: list[Text], indent: int = 2) -> None:
        self._lines, self._indent = lines, indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Text]:
        for line in self._lines:
            own = len(line.plain) - len(line.plain.lstrip())
            line = line[own:]
            indent = " " * (self._indent + own)
            wrapped = line.wrap(console, max(options.max_width - len(indent) - 4, 20))
            for i, piece in enumerate(wrapped):
                piece.rstrip()
                piece.plain = piece.plain.replace(GLUE, " ")
                yield Text(indent + ("    " if i else "")) + piece


def detail(row: Row) -> RenderableType:
    """Everything that the report says about an instruction."""
    head = Text(row.name, "bold")
    head.append(f"  {row.status}", STATUS_STYLES[row.status])
    head.append(f": {row.reason}" if row.reason else "")
    parts: list[RenderableType] = [head]
    for heading, lines in _sections(row):
        parts += [Text(f"\n{heading}", "bold"), lines]
    return Group(*parts)


def _sections(row: Row) -> Iterator[tuple[str, RenderableType]]:
    if row.lowering:
        yield "ran as", _Lines(list(_lowering(row)))
    if bits := effective_bits(row):
        yield "effective bits", _Lines([Text(bits, "bold yellow" if is_narrow(row) else "bold")])
    if row.model:
        yield "summation tree", _plain(_tree(row.model.root, row.model))
        yield "arithmetic", _plain(_arithmetics(row, row.model))
    if row.findings:
        yield "findings", _findings(row)
    if row.verification:
        yield "verification", _plain(_verification(row, row.verification))
    if row.rivals:
        left = "; ".join(f"{rival.field} {rival.value}" for rival in row.rivals.survived) or "none"
        yield "rivals", _plain([f"{row.rivals.tried} tried, {len(row.rivals.survived)} left: {left}"])
    if row.evidence:
        yield "evidence: bit patterns (values) of the products that are not 0 × 0, of C → of D", _plain(_evidence(row))


def _plain(lines: Iterable[str]) -> _Lines:
    return _Lines([Text(line) for line in lines])


def _lowering(row: Row) -> Iterator[Text]:
    yield Text(", ".join(f"{count}×{opcode}" for opcode, count in row.lowering), "bold magenta" if is_converted(row) else "")
    if is_converted(row):
        yield Text("a unit of other formats: the operands were converted for it", "magenta")
    digest = f", cubin sha256 {row.cubin_sha256}" if row.cubin_sha256 else ""
    yield Text(f"read with {row.opcode_source}{digest}", "dim")


def _tree(node: FusedSum, model: DotModel, indent: str = "") -> Iterator[str]:
    """The tree, results above their terms."""
    mark = f" @{model.arithmetics.index(node.arithmetic)}" if len(model.arithmetics) > 1 else ""
    terms = []
    if any(isinstance(term, Addend) for term in node.terms):
        terms.append("C")
    if node.products:
        terms.append(f"products {', '.join(_ranges(sorted(node.products)))}")
    if node.children:
        terms.append("the sum below" if len(node.children) == 1 else f"the {len(node.children)} sums below")
    yield f"{indent}sum{mark} of {' and '.join(terms)}"
    for child in node.children:
        yield from _tree(child, model, indent + "  ")


def _ranges(numbers: list[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


def _arithmetics(row: Row, model: DotModel) -> Iterator[str]:
    for index, arithmetic in enumerate(model.arithmetics):
        mark = f"@{index} " if len(model.arithmetics) > 1 else ""
        adds_products = any(node.products for node in model.root.nodes() if node.arithmetic == arithmetic)
        open_ = _undetermined(row, "" if adds_products else "add_")
        yield mark + ", ".join(f"{name.replace('_', ' ')} {text}{'?' * (name in open_)}" for name, text in _fields(arithmetic))
    open_ = _undetermined(row, "")
    operands, addend = ("?" * (name in open_) for name in ("subnormal_operands", "subnormal_addend"))
    yield f"subnormals of A and B {model.subnormal_operands}{operands}, of C {model.subnormal_addend}{addend}"


def _undetermined(row: Row, prefix: str) -> set[str]:
    """Features that are undetermined, without their prefix."""
    found = (name for name, finding in row.findings.items() if finding.bound == "undetermined" and finding.left)
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


def _fields(arithmetic: Arithmetic) -> Iterator[tuple[str, str]]:
    """Names and values; without those that say how terms are aligned where every bit of them is kept."""
    exact = isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None
    for name, plain in arithmetic.__dict__.items():
        if not (exact and name in ALIGNMENT):
            yield name, f"0x{plain:x}" if name == "nan" else plain.name if isinstance(plain, Format) else word(plain, name)


def _findings(row: Row) -> Group:
    """A table; notes that several findings have stand below it."""
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("feature", "value", "bound", "note"):
        found.add_column(header, overflow="fold", no_wrap=header in ("feature", "bound"))
    counts = Counter(finding.note for finding in row.findings.values() if finding.note)
    marks = {note: f"({i})" for i, note in enumerate((note for note, count in counts.items() if count > 1), start=1)}
    for feature, finding in row.findings.items():
        left = " or ".join(word(v, feature) for v in finding.left)
        remark = marks.get(finding.note, finding.note)
        note = ("; " if finding.note not in marks else " ").join(filter(None, (f"left: {left}" if left else "", remark)))
        style = "" if finding.bound == "exact" else "yellow"
        value = word(finding.value, feature)
        if feature == "order" and row.model and len(value) > LONG_ORDER:
            value = "the tree above"
        found.add_row(feature, value, finding.bound.replace("_", " "), note, style=style)
    return Group(Padding(found, (0, 0, 0, 2), expand=False), _plain(f"{mark} {note}" for note, mark in marks.items()))


def _verification(row: Row, done: report.Verification) -> Iterator[str]:
    yield f"{done.mismatches:,} of {done.dots:,} random dot products differ from the model, seed {done.seed}"
    if done.kinds:
        yield "operands: " + ", ".join(f"{count:,} {kind}" for kind, count in done.kinds.items())
    if first := done.counterexample:
        inst = row.instruction
        yield f"the first that differs, {first.kind}: {_exchange(inst, first.exchange)}"
        yield f"expected {_shown(inst.d, int(first.expected, 16))}"


def _evidence(row: Row) -> Iterator[str]:
    features: dict[tuple[Exchange, ...], list[str]] = {}
    for feature, exchanges in row.evidence.items():
        features.setdefault(exchanges, []).append(feature)
    for exchanges, names in features.items():
        why = [WHY[name] for name in names if name in WHY]
        yield ", ".join(names) + (f": {why[0]}" if why else "")
        yield from (f"  {_exchange(row.instruction, shown)}" for shown in exchanges)


def _exchange(inst: Instruction, shown: Exchange) -> str:
    """ "k 0: 0x38 (1) × 0x38 (1); k 1-31: …; C 0x0 (0) → 0x3f800000 (1)"; products of two zeros are left out."""
    seen = report.patterns(inst, shown)
    pairs = list(zip(seen.a, seen.b, strict=True))
    terms = []
    for pair in dict.fromkeys(pairs):
        if pair != (0, 0):
            at = ", ".join(_ranges([k for k in range(inst.k) if pairs[k] == pair]))
            terms.append(f"k {at}: {_shown(inst.a, pair[0])}{GLUE}×{GLUE}{_shown(inst.b, pair[1])}")
    terms.append(f"C{GLUE}{_shown(inst.c, seen.c)}")
    return f"{'; '.join(terms)} →{GLUE}{_shown(inst.d, seen.d)}"


def mismatch(inst: Instruction, seen: Seen, expected: int) -> str:
    """A dot product in hex and value, what came back, and what was expected."""
    text = f"{_exchange(inst, report.exchange(inst, seen))}, expected {_shown(inst.d, expected)}"
    return text.replace(GLUE, " ")


def _shown(fmt: Format, pattern: int) -> str:
    import numpy as np

    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return f"0x{pattern:0{fmt.storage_bits // 4}x}{GLUE}({_number(value)})"


def _number(value: float) -> str:
    """A power of two as such where that is shorter to read."""
    if value != 0 and abs(value) not in (float("inf"), 1.0, 2.0, 4.0) and value == value:
        mantissa, exponent = value.hex().split("p")
        if mantissa.lstrip("-") == "0x1.0000000000000":
            return f"{'-' if value < 0 else ''}2^{int(exponent)}"
    return f"{value:.9g}"
