"""What is told of one instruction, in lines of text: the terminal, Markdown and HTML have the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from typing import NamedTuple

from accprobe.infer.findings import Exchange as Seen
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.features import parsed
from accprobe.model.fields import FEATURES, Patterns, fields_of
from accprobe.model.tree import Addend, Arithmetic, DotModel, FloatArithmetic, FusedSum, Role
from accprobe.render.hanging import GLUE
from accprobe.report import report
from accprobe.report.report import Exchange, Row
from accprobe.report.words import word

LONG_ORDER = 24
"""Characters; a longer order is shown as a tree alone."""


class FindingLine(NamedTuple):
    """One finding as a table has it. mark: stands for a note that several findings have."""

    feature: str
    value: str
    bound: str
    note: str
    is_exact: bool


def tree(model: DotModel) -> Iterator[str]:
    """The tree, results above their terms."""
    return _tree(model.root, model, "")


def _tree(node: FusedSum, model: DotModel, indent: str) -> Iterator[str]:
    mark = f" @{model.arithmetics.index(node.arithmetic)}" if len(model.arithmetics) > 1 else ""
    terms = []
    if any(isinstance(term, Addend) for term in node.terms):
        terms.append("C")
    if node.products:
        terms.append(f"products {', '.join(ranges(sorted(node.products)))}")
    if node.children:
        terms.append("the sum below" if len(node.children) == 1 else f"the {len(node.children)} sums below")
    yield f"{indent}sum{mark} of {' and '.join(terms)}"
    for child in node.children:
        yield from _tree(child, model, indent + "  ")


def ranges(numbers: list[int]) -> Iterator[str]:
    """Ascending numbers as "0-15", "20"."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"


def arithmetics(row: Row, model: DotModel) -> Iterator[str]:
    """Each arithmetic that the tree has, and how subnormals are read; `?` after what is undetermined."""
    for index, arithmetic in enumerate(model.arithmetics):
        mark = f"@{index} " if len(model.arithmetics) > 1 else ""
        open_ = _undetermined(row, model.role(arithmetic))
        yield mark + ", ".join(f"{name.replace('_', ' ')} {text}{'?' * (name in open_)}" for name, text in _fields(arithmetic))
    open_ = _undetermined(row, "sum")
    operands, addend = ("?" * (name in open_) for name in ("subnormal_operands", "subnormal_addend"))
    yield f"subnormals of A and B {model.subnormal_operands}{operands}, of C {model.subnormal_addend}{addend}"


def _undetermined(row: Row, role: Role) -> set[str]:
    """Features of the role's sums that are undetermined."""
    found = (parsed(name) for name, finding in row.findings.items() if finding.bound == "undetermined" and finding.left)
    return {name.feature for name in found if name.role == role}


def _fields(arithmetic: Arithmetic) -> Iterator[tuple[str, str]]:
    """Names and values; without those that say how terms are aligned where every bit of them is kept."""
    yield "result", arithmetic.result.name
    exact = isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None
    for name, field in fields_of(type(arithmetic)).items():
        value = getattr(arithmetic, name)
        if not (exact and field.of_alignment):
            yield name, f"0x{value:x}" if isinstance(field.values, Patterns) else word(value, name)


def findings(row: Row) -> tuple[list[FindingLine], dict[str, str]]:
    """The findings; and notes that several of them have, by the mark that stands for them there."""
    counts = Counter(finding.note for finding in row.findings.values() if finding.note)
    marks = {note: f"({i})" for i, note in enumerate((note for note, count in counts.items() if count > 1), start=1)}
    lines = []
    for feature, finding in row.findings.items():
        left = " or ".join(word(v, feature) for v in finding.left)
        remark = marks.get(finding.note, finding.note)
        note = ("; " if finding.note not in marks else " ").join(filter(None, (f"left: {left}" if left else "", remark)))
        value = word(finding.value, feature)
        if feature == "order" and row.model and len(value) > LONG_ORDER:
            value = "the tree above"
        lines.append(FindingLine(feature, value, finding.bound.replace("_", " "), note, finding.bound == "exact"))
    return lines, {mark: note for note, mark in marks.items()}


_WITNESS = {
    "nvdisasm": "read with nvdisasm",
    "ncu": "executed for one tile, as ncu counted; nvdisasm reads the same",
    "known model": "as the known model has it",
}


def witness(row: Row) -> str:
    """Who says what an instruction ran as."""
    return _WITNESS.get(row.opcode_source or "", "")


def rivals(row: Row) -> Iterator[str]:
    """How many were tried, and which are left."""
    if row.rivals:
        left = "; ".join(f"{rival.field} {rival.value}" for rival in row.rivals.survived) or "none"
        yield f"{row.rivals.tried} tried, {len(row.rivals.survived)} left: {left}"


def verification(row: Row) -> Iterator[str]:
    """How many dot products of which operands were tried, and the first that differs."""
    done = row.verification
    if done is None:
        return
    yield f"{done.mismatches:,} of {done.dots:,} random dot products differ from the model, seed {done.seed}"
    if done.kinds:
        yield "operands: " + ", ".join(f"{count:,} {kind}" for kind, count in done.kinds.items())
    if first := done.counterexample:
        inst = row.instruction
        yield f"the first that differs, {first.kind}: {_exchange(inst, first.exchange)}"
        yield f"expected {_shown(inst.d, int(first.expected, 16))}"


class Evidence(NamedTuple):
    """Exchanges that decided some features, and what to see in them."""

    heading: str
    exchanges: list[str]


def evidence(row: Row) -> Iterator[Evidence]:
    """The evidence, by the features that it decided."""
    features: dict[tuple[Exchange, ...], list[str]] = {}
    for feature, exchanges in row.evidence.items():
        features.setdefault(exchanges, []).append(feature)
    for exchanges, names in features.items():
        why = [FEATURES[name].evidence for name in names if name in FEATURES and FEATURES[name].evidence]
        heading = ", ".join(names) + (f": {why[0]}" if why else "")
        yield Evidence(heading, [_exchange(row.instruction, shown) for shown in exchanges])


def _exchange(inst: Instruction, shown: Exchange) -> str:
    """ "k 0: 0x38 (1) × 0x38 (1); k 1-31: …; C 0x0 (0) → 0x3f800000 (1)"; products of two zeros are left out."""
    seen = report.patterns(inst, shown)
    pairs = list(zip(seen.a, seen.b, strict=True))
    terms = []
    for pair in dict.fromkeys(pairs):
        if pair != (0, 0):
            at = ", ".join(ranges([k for k in range(inst.k) if pairs[k] == pair]))
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
