"""One instruction of a report in full: the opcodes, the summation tree, every finding, its verification and evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accprobe.isa.instructions import Instruction
from accprobe.model.fields import FEATURES
from accprobe.model.published import explained_text
from accprobe.model.tree import DotModel, FusedSum, number_ranges
from accprobe.operands.exchange import Exchange
from accprobe.render.document import (
    Code,
    Column,
    Element,
    Grid,
    Heading,
    List,
    Paragraph,
    Phrase,
    Phrases,
    Section,
    Tone,
    table,
)
from accprobe.render.subjects.verification import PROVISOS, exchange_text, outcome, pattern_text
from accprobe.report.claims import NOT_MEASURED
from accprobe.report.rows import Row
from accprobe.report.words import detour, effective_bits, found, is_narrow, ran_as, word

LONG_ORDER = 24
"""Characters; a longer order is shown as a tree alone."""

WITNESS = {
    "nvdisasm": "read with nvdisasm",
    "ncu": "executed for one tile, as counted by ncu; nvdisasm reads the same",
    "known model": "as in the known model",
    "machine code": "decoded from the machine code that ran",
}


def instruction_section(row: Row, level: int = 3, anchor: str = "") -> Section:
    """Return the result of an instruction, and below it all that the report has of it."""
    return Section(_title(row), lambda: _body(row), level, anchor, row.name)


def _title(row: Row) -> Phrases:
    """Return the name, the status and the result: "QGMMA, 13 (e8m13) effective bits, RZ"."""
    bits = f"{effective_bits(row)}{'' if row.instruction.d.is_integer else ' effective bits'}" if effective_bits(row) else ""
    parts = [*filter(None, (ran_as(row), bits, found(row, "result_rounding")))] or ["no model"]
    result = Phrase(", ".join(parts), "converted" if detour(row) else "narrow" if is_narrow(row) else "")
    return Phrase(row.name, "strong", code=True), Phrase("  "), Phrase(row.status, row.status), Phrase(": "), result


def _body(row: Row) -> Iterator[Element]:
    if reason := "" if row.reason == NOT_MEASURED else row.reason:
        yield Paragraph(Phrase(f"{row.status}: {reason}", row.status))
    if row.status in PROVISOS and (row.model or row.findings):
        yield Paragraph(Phrase(PROVISOS[row.status], row.status), boxed=True)
    if row.lowering:
        yield Heading("Ran as", 4)
        yield from map(Paragraph, _lowering(row))
    if row.model:
        yield Heading("Summation tree", 4)
        yield Code(tuple(tree(row, row.model)))
    if row.findings:
        yield Heading("Findings", 4)
        yield _findings(row)
    if row.verification or row.explains or row.alternatives:
        yield Heading("Verification", 4)
        yield List(tuple(_verification(row)))
    if row.evidence:
        yield Section("Evidence", lambda: _evidence(row), 4)


def _lowering(row: Row) -> Iterator[Phrases]:
    opcodes = (
        (Phrase(f"{count}×"), Phrase(opcode, "converted" if detour(row) else "", True)) for opcode, count in row.lowering
    )
    yield tuple(span for pair in opcodes for span in (Phrase(", "), *pair))[1:]
    if detour(row):
        yield (Phrase(detour(row), "converted"),)
    what = "code" if row.opcode_source == "machine code" else "cubin"
    digest = f", {what} sha256 {row.cubin_sha256}" if row.cubin_sha256 else ""
    yield (Phrase(f"{WITNESS.get(row.opcode_source or '', '')}{digest}", "quiet"),)


def tree(row: Row, model: DotModel) -> list[str]:
    """Return the tree, results above their terms; "?" where the order is undetermined, "~" where it is suggested."""
    first, *below = _tree(model.root, model, "")
    order = row.findings.get("order")
    if order is not None and order.bound == "undetermined":
        return [f"{first}?", *below]
    suggested = order is None and row.status not in ("confirmed", "simulated")
    return [f"~{first}" if suggested or (order is not None and order.bound == "suggested") else first, *below]


def _tree(node: FusedSum, model: DotModel, indent: str) -> Iterator[str]:
    """Yield a sum and those below it, with their formats where there are several arithmetics."""
    terms = []
    if node.has_addend:
        terms.append("C")
    if node.products:
        terms.append(f"products {', '.join(number_ranges(sorted(node.products)))}")
    if node.children:
        terms.append("the sum below" if len(node.children) == 1 else f"the {len(node.children)} sums below")
    what = f"{model.role(node.arithmetic)} in {node.arithmetic.result}" if len(model.arithmetics) > 1 else "sum"
    yield f"{indent}{what} of {' and '.join(terms)}"
    for child in node.children:
        yield from _tree(child, model, indent + "  ")


def _findings(row: Row) -> Grid:
    rows = []
    for feature, finding in row.findings.items():
        candidates = " or ".join(word(value, feature) for value in finding.candidates)
        note = "; ".join(filter(None, (f"candidates: {candidates}" if candidates else "", finding.note)))
        value = word(finding.value, feature)
        is_long = feature == "order" and row.model and len(value) > LONG_ORDER
        cells = ("the tree above" if is_long else value, finding.bound.replace("_", " "), note)
        tone: Tone = "" if finding.bound == "exact" else "warning"
        rows.append([Phrase(feature, tone, True), *(Phrase(text, tone) for text in cells)])
    return table((Column("feature", whole=True), "value", Column("bound", whole=True), "note"), rows)


def _verification(row: Row) -> Iterator[str]:
    """Yield recorded results that the model matches, what was tested, the first mismatch, and the alternatives."""
    if row.explains:
        yield f"the published model matches {explained_text(row.explains)}, 0 mismatches"
    if done := row.verification:
        yield from outcome(done)
        if first := done.counterexample:
            inst = row.instruction
            yield f"the first mismatch, {first.kind}: {exchange_text(inst, first.exchange)}"
            yield f"expected {pattern_text(inst.d, int(first.expected, 16))}"
    if row.alternatives:
        surviving = "; ".join(map(str, row.alternatives.surviving)) or "none"
        yield f"alternatives: {row.alternatives.tested} tested, {len(row.alternatives.surviving)} surviving: {surviving}"


def _evidence(row: Row) -> Iterator[Element]:
    """Yield the exchanges that decided some features, by these features."""
    features: dict[tuple[Exchange, ...], list[str]] = {}
    for feature, exchanges in row.evidence.items():
        features.setdefault(exchanges, []).append(feature)
    headings = []
    for names in features.values():
        why = [FEATURES[name].evidence for name in names if name in FEATURES and FEATURES[name].evidence]
        headings.append(", ".join(names) + (f": {why[0]}" if why else ""))
    yield Paragraph(Phrase(_legend(row.instruction, headings), "quiet"))
    for heading, exchanges in zip(headings, features, strict=True):
        yield Paragraph(Phrase(heading, "strong"))
        yield Code(tuple(exchange_text(row.instruction, shown) for shown in exchanges))


def _legend(inst: Instruction, headings: Sequence[str]) -> str:
    """Return the meaning of the signs in this evidence."""
    place = "among the products that A stores" if inst.sparse else "along K"
    signs = [f"k: place {place}", "×: A times B", "→: the result of the device"]
    if any("M" in heading.split() for heading in headings):
        signs.append("M: a number so large that a small one beside it is lost")
    return f"In bit patterns (values) of the products that are not 0 × 0, of C → of D. {'; '.join(signs)}."
