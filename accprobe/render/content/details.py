"""What is told of one instruction, in lines of text: the terminal, Markdown and HTML have the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from accprobe.model.explained import explained_text
from accprobe.model.features import Name
from accprobe.model.fields import written_fields
from accprobe.model.record import Patterns
from accprobe.model.tree import Addend, Arithmetic, DotModel, FloatArithmetic, FusedSum, Role
from accprobe.render.content.patterns import evenly_spaced, number_ranges
from accprobe.render.content.verification import exchange_text, outcome, pattern_text
from accprobe.report.rows import NOT_MEASURED, Row, Status
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


def tree(row: Row, model: DotModel) -> Iterator[str]:
    """The tree, results above their terms; marked as `arithmetics` where the order is undetermined, or suggested."""
    first, *below = _tree(model.root, model, "")
    yield _marked(row, "order", "sum", first)
    yield from below


def _tree(node: FusedSum, model: DotModel, indent: str) -> Iterator[str]:
    mark = f" @{model.arithmetics.index(node.arithmetic)}" if len(model.arithmetics) > 1 else ""
    terms = []
    if any(isinstance(term, Addend) for term in node.terms):
        terms.append("C")
    if node.products:
        terms.append(f"products {', '.join(number_ranges(sorted(node.products)))}")
    if node.children:
        terms.append("the sum below" if len(node.children) == 1 else f"the {len(node.children)} sums below")
    yield f"{indent}sum{mark} of {' and '.join(terms)}"
    for child in node.children:
        yield from _tree(child, model, indent + "  ")


def arithmetics(row: Row, model: DotModel) -> Iterator[str]:
    """Each arithmetic that the tree has, and how subnormals are read; `?` after what is undetermined, `~` before what is
    suggested.
    """
    for index, arithmetic in enumerate(model.arithmetics):
        mark = f"@{index} " if len(model.arithmetics) > 1 else ""
        role = model.role(arithmetic)
        told = ((name.replace("_", " "), _marked(row, name, role, text)) for name, text in _fields(arithmetic))
        yield mark + ", ".join(f"{name} {text}" for name, text in told)
    subnormals = {"subnormal_operands": model.subnormal_operands, "subnormal_addend": model.subnormal_addend}
    operands, addend = (_marked(row, name, "sum", text) for name, text in subnormals.items())
    yield f"subnormals of A and B {operands}, of C {addend}"


def _marked(row: Row, feature: str, role: Role, text: str) -> str:
    """A field's value with the mark of the finding that it is from."""
    finding = row.findings.get(str(Name(feature, role)))
    if finding is None:
        return text if row.status in ("confirmed", "simulated") else f"~{text}"
    if finding.bound == "suggested":
        return f"~{text}"
    return f"{text}?" if finding.bound == "undetermined" and (finding.candidates or feature == "order") else text


def _fields(arithmetic: Arithmetic) -> Iterator[tuple[str, str]]:
    """Names and values; without those that say how terms are aligned where every bit of them is kept."""
    yield "result", arithmetic.result.name
    exact = isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None
    for name, field in written_fields(arithmetic).items():
        value = getattr(arithmetic, name)
        if not (exact and field.of_alignment):
            yield name, f"0x{value:x}" if isinstance(field.values, Patterns) else word(value, name)


def finding_lines(row: Row) -> tuple[list[FindingLine], dict[str, str]]:
    """The findings; and notes that several of them have, by the mark that stands for them there."""
    counts = Counter(finding.note for finding in row.findings.values() if finding.note)
    marks = {note: f"({i})" for i, note in enumerate((note for note, count in counts.items() if count > 1), start=1)}
    lines = []
    for feature, finding in row.findings.items():
        left = " or ".join(word(v, feature) for v in finding.candidates)
        remark = marks.get(finding.note, finding.note)
        note = ("; " if finding.note not in marks else " ").join(filter(None, (f"left: {left}" if left else "", remark)))
        value = word(finding.value, feature)
        if feature == "order" and row.model and len(value) > LONG_ORDER:
            value = "the tree above"
        lines.append(FindingLine(feature, value, finding.bound.replace("_", " "), note, finding.bound == "exact"))
    return lines, {mark: note for note, mark in marks.items()}


_PROVISOS: dict[Status, str] = {
    "inferred": "What follows is suggested, no fact: some answer contradicts the model, or not all that it can do was seen.",
    "unstable": "What follows is suggested, no fact: the device gave two answers to one question.",
    "unverified": "What follows is no fact: no model explains the answers, or it is not known that this unit gave them.",
}


def proviso(row: Row) -> str:
    """What has to be known before anything of the row is read, "" where it is confirmed or has nothing to read.

    That no hardware answered is said once, of the whole report (`overview.banner`).
    """
    return _PROVISOS.get(row.status, "") if row.model or row.findings else ""


def reason_told(row: Row) -> str:
    """Why the row is not confirmed, "" where the report's banner says it of every row."""
    return "" if row.reason == NOT_MEASURED else row.reason


_WITNESS = {
    "nvdisasm": "read with nvdisasm",
    "ncu": "executed for one tile, as ncu counted; nvdisasm reads the same",
    "known model": "as the known model has it",
    "machine code": "read from the machine code that ran, by its encoding",
}


def code_named(row: Row) -> str:
    """What a row's digest is of."""
    return "code" if row.opcode_source == "machine code" else "cubin"


def opcode_witness(row: Row) -> str:
    """Who says what an instruction ran as."""
    return _WITNESS.get(row.opcode_source or "", "")


def rivals_left(row: Row) -> Iterator[str]:
    """How many were tried, and which are left."""
    if row.alternatives:
        left = "; ".join(map(str, row.alternatives.surviving)) or "none"
        yield f"{row.alternatives.tested} tried, {len(row.alternatives.surviving)} left: {left}"


def verification(row: Row) -> Iterator[str]:
    """What others recorded that the model explains, what was tried and what it covers, and the first that differs."""
    if row.explains:
        yield f"the published model explains {explained_text(row.explains)}, 0 wrong"
    done = row.verification
    if done is None:
        return
    yield from outcome(done)
    if row.also_at:
        yield f"measured at n = {', '.join(evenly_spaced(row.also_at))} too, each on as many dot products, and alike"
    if first := done.counterexample:
        inst = row.instruction
        yield f"the first that differs, {first.kind}: {exchange_text(inst, first.exchange)}"
        yield f"expected {pattern_text(inst.d, int(first.expected, 16))}"
