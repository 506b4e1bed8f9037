"""One instruction of a report in full: the opcodes, the summation tree, every finding, its verification and evidence.
Verifications against a device, and dot products in words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import FEATURES
from accprobe.model.published import explained_text
from accprobe.model.tree import DotModel, FusedSum, number_ranges
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.protocol import Device
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products
from accprobe.records.claims import NOT_MEASURED, Status
from accprobe.records.rows import Row
from accprobe.records.verification import Events, TileCoverage, Verification
from accprobe.render.document import (
    GLUE,
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
    grouped,
    table,
    tabulate,
    unglued,
)
from accprobe.report.words import detour, effective_bits, found, is_narrow, ran_as, so_many, word

PROVISOS: dict[Status, str] = {
    "inferred": "The findings are suggestions: a result contradicts the model, or coverage is incomplete.",
    "unstable": "The findings are suggestions: one query returned two results.",
    "unverified": "The findings are suggestions: no model explains the results, or the unit that ran is not known.",
}
"""The sentence to read before the findings of a row that is not confirmed."""

LEFT_OUT_SHOWN = 3
"""Different numbers of B that are shown of those that a sparse A leaves out."""


class Verified(NamedTuple):
    """One instruction: the outcome, the wall seconds, and the smallest counterexample; None if no repetition differed."""

    inst: Instruction
    done: Verification
    seconds: float
    smallest: Counterexample | None = None

    @property
    def dots_a_second(self) -> float:
        return self.done.compared / self.seconds if self.seconds else 0.0


VERIFIED = (
    Column("instruction", lambda row: row.inst.name, least=44),
    Column("dot products", lambda row: f"{row.done.compared:,}", number=True),
    Column("mismatches", lambda row: f"{row.done.mismatches:,}", number=True),
    Column("tile elements", lambda row: _tile(row.done.tile), "context", number=True),
    Column("events", lambda row: "" if row.done.refuted else _events(row.done.events), "context", number=True),
    Column("dots/s", lambda row: f"{row.dots_a_second:.2g}", "detail", number=True),
    Column("MAC/s", lambda row: f"{row.dots_a_second * row.inst.k:.2g}", "detail", number=True),
)


def _tile(tile: TileCoverage | None) -> str:
    return f"{tile.covered:,} of {tile.total:,}" if tile else ""


def _events(events: Events | None) -> str:
    return f"{events.hit:,} of {events.possible:,}" if events else ""


def verification_blocks(
    models: str, device: Device, lacking: Sequence[Instruction], rows: Sequence[Verified]
) -> Iterator[Element]:
    """Yield the verdict; a line for each instruction; mismatches, or the fault rate that their absence excludes; and the models
    that the device cannot run.
    """
    if device.kind == "simulated":
        yield Paragraph(Phrase("SIMULATED: the device is published models, nothing was measured", "bad"), boxed=True)
    dots, wrong = sum(row.done.compared for row in rows), sum(row.done.mismatches for row in rows)
    among = f"{so_many(len(rows), 'instruction')}, {so_many(dots, 'dot product')}"
    among += f"; {so_many(len(lacking), 'instruction')} not verified" if lacking else ""
    yield Heading(Phrase(f"{wrong:,} mismatch{'es' * (wrong != 1)}: {among}", "bad" if wrong else "good"), 1)
    yield tabulate(VERIFIED, rows, lambda row: "bad" if row.done.mismatches else "")
    if below := (*_uncovered(rows), *_counterexamples(rows)):
        yield List(below, "!")
    least = min((row.done for row in rows), key=lambda done: done.compared, default=None)
    if least and not wrong and (excluded := excluded_faults(least)):
        yield Paragraph(Phrase(f"for each instruction, {excluded}", "quiet"))
    yield Paragraph(Phrase(f"models of {models} compared with {device.name}, {device.architecture}", "quiet"))
    if lacking:
        others = f" and {so_many(len(lacking) - 1, 'other')}" if len(lacking) > 1 else ""
        text = f"! {len(lacking):,} not verified, as the device cannot run them: {lacking[0]}{others}"
        yield Paragraph(Phrase(text, "warning"))


def _uncovered(rows: Sequence[Verified]) -> Iterator[Phrase]:
    """Yield tile elements that differ and events that were not covered, by name."""
    for row in rows:
        if row.done.tile and row.done.tile.differing:
            yield Phrase(f"{row.inst.name}: tile elements that differ: {row.done.tile.differing}", "bad")
        if row.done.events and row.done.events.missing and not row.done.refuted:
            yield Phrase(f"{row.inst.name}: {events_text(row.done.events)}", "warning")


def _counterexamples(rows: Sequence[Verified]) -> Iterator[Phrase]:
    for row in rows:
        if found := row.smallest or row.done.counterexample:
            again = "" if row.smallest else "; a repetition did not differ"
            yield Phrase(f"{row.inst.name}: {mismatch(row.inst, found)} ({found.kind}){again}", "bad")


def outcome(done: Verification) -> Iterator[str]:
    """Yield the dot products compared, the fault rate that they exclude, and the coverage."""
    yield f"{done.mismatches:,} of {done.compared:,} dot products differ from the model, seed {done.seed}"
    if excluded := excluded_faults(done):
        yield f"no mismatch in {done.random:,}: {excluded}"
    if done.kinds:
        yield "operands: " + ", ".join(f"{count:,} {kind}" for kind, count in done.kinds.items())
    if done.results:
        yield f"{done.contradicting:,} of {done.results:,} results contradict the model, including experiments and alternatives"
    if done.queries:
        sizes = f"{done.queries.smallest:,} to {done.queries.largest:,}"
        yield f"{so_many(done.queries.count, 'call')} of the device, with {sizes} dot products each"
    if done.tile:
        wrong = f"; mismatches: {done.tile.differing}" if done.tile.differing else ""
        yield f"{_tile(done.tile)} tile elements covered{wrong}"
    if done.events:
        yield "coverage does not count: results contradict the model" if done.refuted else events_text(done.events)


def excluded_faults(done: Verification) -> str:
    """Return the fault rate that n dot products without a mismatch exclude; "" after a mismatch, or of few.

    A rate above 3/n would have shown in one of n with 95 % (the rule of three: Hanley & Lippman-Hand, JAMA 1983).
    """
    if done.refuted or done.random <= 3:
        return ""
    return f"faults in more than 3 in {done.random:,} of such operands are excluded at 95 %"


def events_text(events: Events) -> str:
    """Return "410 of 412 events covered; missing: …; 3 others not reached: no operand is subnormal"."""
    missing = f"; missing: {', '.join(events.missing)}" if events.missing else ""
    others = "".join(f"; {count:,} others not reached: {why}" for why, count in events.impossible.items())
    return f"{_events(events)} events covered{missing}{others}"


def coverage(done: Sequence[Verification]) -> str:
    """Return the coverage of several rows: "412 of 412 events covered, 512 of 512 tile elements covered, …".

    Events of models that some result contradicts are not counted.
    """
    events = [each.events for each in done if each.events and not each.refuted]
    tiles = [each.tile for each in done if each.tile]
    parts = []
    if events:
        hit, of = sum(each.hit for each in events), sum(each.possible for each in events)
        not_found = sum(each.not_found for each in events)
        cannot = sum(sum(each.impossible.values()) for each in events) - not_found
        others = f" (not counted: {not_found:,} for which no operands were found, {cannot:,} that cannot occur)"
        parts.append(f"{hit:,} of {of:,} events covered{others * bool(not_found or cannot)}")
    if tiles:
        parts.append(f"{sum(each.covered for each in tiles):,} of {sum(each.total for each in tiles):,} tile elements covered")
    if results := sum(each.results for each in done):
        parts.append(f"{sum(each.contradicting for each in done):,} of {results:,} results contradict the model")
    return ", ".join(parts)


def exchange_text(inst: Instruction, shown: Exchange) -> str:
    """Return "k 0: 0x38 (1) × 0x38 (1); k 1-31: …; C 0x0 (0) → 0x3f800000 (1)" without products of two zeros.

    With a sparse A, k counts the stored products, as in the model; their places, and B elsewhere, follow.
    """
    request = shown.request(inst)
    stored = stored_products(inst, request)
    pairs = list(zip(stored.a[0].tolist(), stored.b[0].tolist(), strict=True))
    terms = []
    for pair in dict.fromkeys(pairs):
        if pair != (0, 0):
            at = ", ".join(number_ranges([k for k in range(len(pairs)) if pairs[k] == pair]))
            terms.append(f"k{GLUE}{at}:{GLUE}{pattern_text(inst.a, pair[0])}{GLUE}×{GLUE}{pattern_text(inst.b, pair[1])}")
    terms.append(f"C{GLUE}{pattern_text(inst.c, int(stored.c[0]))}")
    terms += _scales(inst, request)
    if inst.sparsity is not None and request.metadata is not None:
        places = inst.sparsity.stored(request.metadata)[0].tolist()
        others = dict.fromkeys(int(x) for k, x in enumerate(request.b[0]) if k not in places)
        first = ", ".join([pattern_text(inst.b, x) for x in others][:LEFT_OUT_SHOWN])
        more = f" and {len(others) - LEFT_OUT_SHOWN} more" if len(others) > LEFT_OUT_SHOWN else ""
        terms += [f"stored at {', '.join(number_ranges(places))}", f"left out of B {first}{more}"]
    return f"{'; '.join(terms)} →{GLUE}{pattern_text(inst.d, int(shown.d, 16))}"


def _scales(inst: Instruction, request: Request) -> Iterator[str]:
    """Yield the block scales of A and of B, block after block, where they are not all one."""
    for operand, scales in (("A", request.scales_a), ("B", request.scales_b)):
        if inst.scale is not None and scales is not None and (scales != inst.scale.encode(False, 1, 0)).any():
            yield f"scales of {operand} " + ", ".join(pattern_text(inst.scale, code) for code in scales[0].tolist())


def mismatch(inst: Instruction, found: Counterexample) -> str:
    """Return a dot product in hex and value, its result, and the expected one."""
    return unglued(f"{exchange_text(inst, found.exchange)}, expected {pattern_text(inst.d, int(found.expected, 16))}")


@lru_cache(maxsize=1 << 12)
def pattern_text(fmt: Format, pattern: int) -> str:
    import numpy as np

    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return f"0x{pattern:0{fmt.storage_bits // 4}x}{GLUE}({_value_text(value, fmt.digits)})"


def _value_text(value: float, digits: int) -> str:
    """Return the value, a power of two other than 1, 2 and 4 as such."""
    if value != 0 and abs(value) not in (float("inf"), 1.0, 2.0, 4.0) and value == value:
        mantissa, exponent = value.hex().split("p")
        if mantissa.lstrip("-") == "0x1.0000000000000":
            return f"{'-' if value < 0 else ''}2^{int(exponent)}"
    return f"{value:.{digits}g}"


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
    return Section(_title(row), lambda: _body(row), level, anchor)


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
    features = grouped((exchanges, feature) for feature, exchanges in row.evidence.items())
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
    return f"Each line: nonzero products and C → D, as bit patterns (values). {'; '.join(signs)}."
