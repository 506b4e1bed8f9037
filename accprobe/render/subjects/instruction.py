"""One instruction of a report in full: what ran, the summation tree, every finding and the results that show it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from accprobe.isa.instructions import Instruction
from accprobe.model.explained import explained_text
from accprobe.model.fields import FEATURES, Name, written_fields
from accprobe.model.record import Patterns
from accprobe.model.tree import Addend, Arithmetic, DotModel, FloatArithmetic, FusedSum, Role
from accprobe.operands.exchange import Exchange
from accprobe.operands.sparse import stored_products
from accprobe.render.document import GLUE, Code, Column, Element, Figure, Heading, List, Paragraph, Phrase, Section, Tone, table
from accprobe.render.subjects.instruction_pictures import bits_picture, tree_picture
from accprobe.render.subjects.patterns import number_ranges
from accprobe.render.subjects.verification import elsewhere, exchange_text, outcome, pattern_text
from accprobe.report.rows import NOT_MEASURED, Row, Status
from accprobe.report.words import detour, effective_bits, is_narrow, ran_as, word

LONG_ORDER = 24
"""Characters; a longer order is shown as a tree alone."""


class FindingLine(NamedTuple):
    """One finding as a table has it. note: may be a mark, which stands for a note that several findings have."""

    feature: str
    value: str
    bound: str
    note: str


def instruction_blocks(row: Row) -> Iterator[Element]:
    """Yield all that the report says of an instruction."""
    reason = f": {reason_told(row)}" if reason_told(row) else ""
    yield Heading((Phrase(row.name, "strong", code=True), Phrase("  "), Phrase(row.status, row.status), Phrase(reason)), 2)
    yield from _body(row)


def instruction_section(row: Row, anchor: str) -> Section:
    """Return the same for a page, folded."""
    short = ", ".join(filter(None, (ran_as(row), effective_bits(row))))
    title = (Phrase(row.name), Phrase(f"  {short}  ", "quiet"), Phrase(row.status, row.status))

    def body() -> Iterator[Element]:
        if reason := reason_told(row):
            yield Paragraph(Phrase(f"{row.status}: {reason}", row.status))
        yield from _body(row)

    return Section(title, body, anchor=anchor, name=row.name)


def _body(row: Row) -> Iterator[Element]:
    if told := proviso(row):
        yield Paragraph(Phrase(told, row.status), boxed=True)
    if row.lowering:
        yield Heading("Ran as", 4)
        yield from map(Paragraph, _lowering(row))
    if bits := effective_bits(row):
        yield Heading("Effective bits", 4)
        yield Paragraph(Phrase(bits, "narrow" if is_narrow(row) else "strong"))
    if row.model:
        yield Heading("Summation tree", 4)
        yield Figure((tree_picture(row.model),))
        yield Code(tuple(tree(row, row.model)))
        yield Heading("Arithmetic", 4)
        yield from _pictures(row, row.model)
        yield List(tuple(arithmetics(row, row.model)))
    if row.findings:
        yield Heading("Findings", 4)
        yield from _findings(row)
    if row.verification or row.explains or row.alternatives:
        yield Heading("Verification", 4)
        yield List((*verification(row), *alternative_lines(row)))
    if row.evidence:
        yield Section("Evidence", lambda: _evidence(row), 4)


def _lowering(row: Row) -> Iterator[list[Phrase]]:
    tone: Tone = "converted" if detour(row) else ""
    counts = [
        (Phrase(f"{', ' * (i > 0)}{count}×"), Phrase(opcode, tone, True)) for i, (opcode, count) in enumerate(row.lowering)
    ]
    yield [span for pair in counts for span in pair]
    if told := detour(row):
        yield [Phrase(told, "converted")]
    what = "code" if row.opcode_source == "machine code" else "cubin"
    digest = f", {what} sha256 {row.cubin_sha256}" if row.cubin_sha256 else ""
    yield [Phrase(f"{_WITNESS.get(row.opcode_source or '', '')}{digest}", "quiet")]


def _pictures(row: Row, model: DotModel) -> Iterator[Figure]:
    """Yield a drawing for each arithmetic: of the sum that takes most kinds of terms."""
    nodes = list(model.root.nodes())
    for index, arithmetic in enumerate(model.arithmetics):
        having = [node for node in nodes if node.arithmetic == arithmetic]
        node = max(having, key=lambda node: (bool(node.products), node.has_addend, bool(node.children)))
        mark = f" @{index}" if len(model.arithmetics) > 1 else ""
        caption = f"a sum{mark} of {len(node.terms)} terms; places are powers of two below the largest term's exponent"
        yield Figure((bits_picture(row.instruction, node),), caption)


def _findings(row: Row) -> Iterator[Element]:
    """Yield a table; notes that several findings have stand below it."""
    found, notes = finding_lines(row)
    columns = (Column("feature", whole=True), "value", Column("bound", whole=True), "note")
    yield table(columns, (_toned(each) for each in found))
    if notes:
        yield List(tuple(f"{mark} {note}" for mark, note in notes.items()))


def _toned(found: FindingLine) -> list[Phrase]:
    tone: Tone = "" if found.bound == "exact" else "warning"
    return [Phrase(found.feature, tone, True), *(Phrase(text, tone) for text in (found.value, found.bound, found.note))]


def _evidence(row: Row) -> Iterator[Element]:
    yield Paragraph(Phrase(f"In {EVIDENCE_HEADING}. {evidence_legend(row)}.", "quiet"))
    for heading, exchanges in shown_for(row):
        yield Paragraph(Phrase(heading, "strong"))
        yield Code(tuple(exchanges))


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
        lines.append(FindingLine(feature, value, finding.bound.replace("_", " "), note))
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


def alternative_lines(row: Row) -> Iterator[str]:
    """Yield how many alternative models were tested, and which survive."""
    if row.alternatives:
        left = "; ".join(map(str, row.alternatives.surviving)) or "none"
        yield f"alternatives: {row.alternatives.tested} tested, {len(row.alternatives.surviving)} surviving: {left}"


def verification(row: Row) -> Iterator[str]:
    """What others recorded that the model explains, what was tried and what it covers, and the first that differs."""
    if row.explains:
        yield f"the published model explains {explained_text(row.explains)}, 0 mismatches"
    done = row.verification
    if done is None:
        return
    yield from outcome(done)
    if first := done.counterexample:
        inst = row.instruction
        yield f"the first that differs, {first.kind}: {exchange_text(inst, first.exchange)}"
        yield f"expected {pattern_text(inst.d, int(first.expected, 16))}"


EVIDENCE_HEADING = "bit patterns (values) of the products that are not 0 × 0, of C → of D"


class Evidence(NamedTuple):
    """Exchanges that decided some features, and what to see in them."""

    heading: str
    exchanges: list[str]


def shown_for(row: Row) -> Iterator[Evidence]:
    """The evidence, by the features that it decided."""
    for heading, exchanges in _by_heading(row).items():
        yield Evidence(heading, list(_texts(row.instruction, exchanges)))


def _by_heading(row: Row) -> dict[str, tuple[Exchange, ...]]:
    features: dict[tuple[Exchange, ...], list[str]] = {}
    for feature, exchanges in row.evidence.items():
        features.setdefault(exchanges, []).append(feature)
    found = {}
    for exchanges, names in features.items():
        why = [FEATURES[name].evidence for name in names if name in FEATURES and FEATURES[name].evidence]
        found[", ".join(names) + (f": {why[0]}" if why else "")] = exchanges
    return found


def evidence_legend(row: Row) -> str:
    """What the signs mean, those that this row's evidence has."""
    sparse = row.instruction.sparse
    told = [f"k: place {'among the products that A stores' if sparse else 'along K'}", "×: A times B", "→: the device's answer"]
    if any("M" in heading.split() for heading in _by_heading(row)):
        told.append("M: a number so large that a small one beside it is lost")
    if sparse:
        told.append("elsewhere: what B has where A stores nothing, told where that alone differs")
    return "; ".join(told)


def _texts(inst: Instruction, exchanges: Sequence[Exchange]) -> Iterator[str]:
    """Each exchange; of those that differ only in what a sparse A leaves out, that."""
    stored = [_stored(inst, shown) if inst.sparse else () for shown in exchanges]
    for i, shown in enumerate(exchanges):
        if inst.sparse and stored.count(stored[i]) > 1:
            first = f"{inst.stored.k} products, C{GLUE}{pattern_text(inst.c, int(shown.c, 16))}"
            about = "the same" if stored[i] in stored[:i] else first
            yield f"{about}; elsewhere {elsewhere(inst, shown)} →{GLUE}{pattern_text(inst.d, int(shown.d, 16))}"
        else:
            yield exchange_text(inst, shown, whole=False)


def _stored(inst: Instruction, shown: Exchange) -> tuple[str, ...]:
    """The question that is left of it without what a sparse A leaves out."""
    asked = stored_products(inst, shown.request(inst))
    return shown.a, asked.b.tobytes().hex(), shown.c, shown.scales_a, shown.scales_b
