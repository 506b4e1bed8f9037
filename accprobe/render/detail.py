"""One instruction of a report in full: what ran, the summation tree, every finding and the exchanges that show it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from accprobe import report
from accprobe.formats import Format
from accprobe.instructions import Instruction
from accprobe.model import Addend, Arithmetic, DotModel, FusedSum
from accprobe.render.cells import effective_bits, is_converted, is_narrow, word
from accprobe.render.terminal import STATUS_STYLES
from accprobe.report import Exchange, Row


def detail(row: Row) -> RenderableType:
    """Everything that the report says about an instruction."""
    head = Text(row.name, "bold")
    head.append(f"  {row.status}", STATUS_STYLES[row.status])
    head.append(f": {row.reason}" if row.reason else "")
    parts: list[RenderableType] = [head]
    for heading, lines in _sections(row):
        parts.append(Text(f"\n{heading}", "bold"))
        parts += [Padding(line, (0, 0, 0, 2), expand=False) for line in lines]
    return Group(*parts)


def _sections(row: Row) -> Iterator[tuple[str, list[RenderableType]]]:
    if row.lowering:
        yield "ran as", list(_lowering(row))
    if bits := effective_bits(row):
        yield "effective bits", [Text(bits, "bold yellow" if is_narrow(row) else "bold")]
    if row.model:
        yield "summation tree", [Text(line) for line in _tree(row.model.root, row.model)]
        yield "arithmetic", [Text(line) for line in _arithmetics(row.model)]
    if row.findings:
        yield "findings", [_findings(row)]
    if row.verification:
        yield "verification", [Text(line) for line in _verification(row, row.verification)]
    if row.rivals:
        left = "; ".join(f"{rival.field} {rival.value}" for rival in row.rivals.survived) or "none"
        yield "rivals", [Text(f"{row.rivals.tried} tried, {len(row.rivals.survived)} left: {left}")]
    if row.evidence:
        yield "evidence: bit patterns (values)", [Text(line) for line in _evidence(row)]


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
    yield f"{indent}sum{mark} of {' and '.join(terms) or 'sums'}"
    for child in node.children:
        yield from _tree(child, model, indent + "  ")


def _ranges(numbers: list[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


def _arithmetics(model: DotModel) -> Iterator[str]:
    for index, arithmetic in enumerate(model.arithmetics):
        mark = f"@{index} " if len(model.arithmetics) > 1 else ""
        yield mark + ", ".join(f"{name} {text}" for name, text in _fields(arithmetic))
    yield f"subnormals of A and B {model.subnormal_operands}, of C {model.subnormal_addend}"


def _fields(arithmetic: Arithmetic) -> Iterator[tuple[str, str]]:
    for name, plain in arithmetic.__dict__.items():
        text = f"0x{plain:x}" if name == "nan" else plain.name if isinstance(plain, Format) else word(plain, name)
        yield name.replace("_", " "), text


def _findings(row: Row) -> Table:
    found = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for header in ("feature", "value", "bound", "note"):
        found.add_column(header, overflow="fold")
    for feature, finding in row.findings.items():
        left = " or ".join(word(v, feature) for v in finding.left)
        note = "; ".join(filter(None, (f"left: {left}" if left else "", finding.note)))
        style = "" if finding.bound == "exact" else "yellow"
        found.add_row(feature, word(finding.value, feature), finding.bound.replace("_", " "), note, style=style)
    return found


def _verification(row: Row, done: report.Verification) -> Iterator[str]:
    yield f"{done.mismatches:,} of {done.dots:,} random dot products differ from the model, seed {done.seed}"
    if done.kinds:
        yield "operands: " + ", ".join(f"{count:,} {kind}" for kind, count in done.kinds.items())
    if first := done.counterexample:
        inst = row.instruction
        yield f"the first that differs, {first.kind}: {_exchange(inst, first.exchange)}"
        yield f"expected {_shown(inst.d, int(first.expected, 16))}"


def _evidence(row: Row) -> Iterator[str]:
    for feature, exchanges in row.evidence.items():
        yield feature
        yield from (f"  {_exchange(row.instruction, shown)}" for shown in exchanges)


def _exchange(inst: Instruction, shown: Exchange) -> str:
    """ "k 0: 0x38 (1) × 0x38 (1); k 1-31: …; C 0x0 (0) → 0x3f800000 (1)"; products of two zeros are left out."""
    seen = report.patterns(inst, shown)
    pairs = list(zip(seen.a, seen.b, strict=True))
    terms = []
    for pair in dict.fromkeys(pairs):
        if pair != (0, 0):
            at = ", ".join(_ranges([k for k in range(inst.k) if pairs[k] == pair]))
            terms.append(f"k {at}: {_shown(inst.a, pair[0])} × {_shown(inst.b, pair[1])}")
    return f"{'; '.join([*terms, f'C {_shown(inst.c, seen.c)}'])} → {_shown(inst.d, seen.d)}"


def _shown(fmt: Format, pattern: int) -> str:
    import numpy as np

    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return f"0x{pattern:0{fmt.storage_bits // 4}x} ({_number(value)})"


def _number(value: float) -> str:
    """A power of two as such where that is shorter to read."""
    if value != 0 and abs(value) not in (float("inf"), 1.0, 2.0, 4.0) and value == value:
        mantissa, exponent = value.hex().split("p")
        if mantissa.lstrip("-") == "0x1.0000000000000":
            return f"{'-' if value < 0 else ''}2^{int(exponent)}"
    return f"{value:.9g}"
