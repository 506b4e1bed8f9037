"""Verifications against a device, on each of its SMs, and against recorded vectors; and dot products in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from accprobe.devices.protocol import Device
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products
from accprobe.render.document import GLUE, Column, Element, Grid, Heading, List, Paragraph, Phrase, Phrases, Tone, unglued
from accprobe.render.subjects.patterns import number_ranges
from accprobe.report.words import so_many
from accprobe.verify.outcome import Events, Queries, Verification
from accprobe.verify.vectors import Comparison

UNCOVERED = "coverage does not count: results contradict the model"
"""What stands where the events of a model would, which some result contradicts."""

LEFT_OUT_SHOWN = 3
"""Different numbers that are shown of those that a sparse A leaves out."""


class Verified(NamedTuple):
    """One instruction: the outcome, the wall seconds, and the smallest counterexample (None: none, or it did not come back)."""

    inst: Instruction
    done: Verification
    seconds: float
    smallest: Counterexample | None = None

    @property
    def dots_a_second(self) -> float:
        return self.done.dots / self.seconds if self.seconds else 0.0


_COVERAGE: dict[str, Callable[[Verification], str]] = {
    "tile elements": lambda done: f"{done.tile.covered:,} of {done.tile.total:,}" if done.tile else "",
    "events": lambda done: f"{done.events.hit:,} of {done.events.possible:,}" if done.events and not done.refuted else "",
}
"""Columns that are there where anything was counted, and their cells."""


def banner_blocks(device: Device) -> Iterator[Element]:
    if device.kind == "simulated":
        yield Paragraph(Phrase("SIMULATED: the device is published models, nothing was measured", "bad"), boxed=True)


def compared_blocks(models: str, device: Device, lacking: Sequence[Instruction]) -> Iterator[Element]:
    """Yield what was compared with what, and which models the device cannot run."""
    yield Paragraph(Phrase(f"models of {models} against {device.name}, {device.architecture}", "quiet"))
    if lacking:
        others = f" and {so_many(len(lacking) - 1, 'other')}" if len(lacking) > 1 else ""
        text = f"! {len(lacking):,} not verified, as the device cannot run them: {lacking[0]}{others}"
        yield Paragraph(Phrase(text, "warning"))


def verification_blocks(rows: Sequence[Verified]) -> Iterator[Element]:
    """Yield the verdict; a line an instruction; what differs, and the faults that none that differs excludes."""
    dots, wrong = sum(row.done.dots for row in rows), sum(row.done.mismatches for row in rows)
    total = f"{_mismatches(wrong)}: {so_many(len(rows), 'instruction')}, {so_many(dots, 'dot product')}"
    yield Heading(Phrase(total, "bad" if wrong else "good"), 1)
    covered = {header: tell for header, tell in _COVERAGE.items() if any(tell(row.done) for row in rows)}
    columns = [Column("instruction", least=44), _number("dot products"), _number("mismatches")]
    columns += [Column(header, "context", number=True) for header in covered]
    columns += [Column("dots/s", "detail", number=True), Column("MAC/s", "detail", number=True)]
    cells = (
        (
            row.inst.name,
            f"{row.done.dots:,}",
            f"{row.done.mismatches:,}",
            *(tell(row.done) for tell in covered.values()),
            f"{row.dots_a_second:.2g}",
            f"{row.dots_a_second * row.inst.k:.2g}",
        )
        for row in rows
    )
    bad = [bool(row.done.mismatches) for row in rows]
    yield Grid(tuple(columns), tuple(_red(texts, is_bad) for texts, is_bad in zip(cells, bad, strict=True)))
    if below := (*_uncovered(rows), *_counterexamples(rows)):
        yield List(below, "!")
    least = min((row.done for row in rows), key=lambda done: done.dots, default=None)
    if least and not wrong and (excluded := excluded_faults(least)):
        yield Paragraph(Phrase(f"of each instruction: {excluded}", "quiet"))


def _mismatches(count: int) -> str:
    return f"{count:,} mismatch{'es' * (count != 1)}"


def _number(header: str) -> Column:
    return Column(header, number=True)


def _red(texts: Sequence[str], is_bad: bool) -> Phrases:
    tone: Tone = "bad" if is_bad else ""
    return tuple(Phrase(text, tone) for text in texts)


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


def vectors_blocks(rows: Sequence[Comparison]) -> Iterator[Element]:
    """Yield the verdict; a line a set of results; how else they were read, and what differs."""
    dots, wrong = sum(row.dots for row in rows), sum(row.mismatches for row in rows)
    total = f"{_mismatches(wrong)}: {so_many(len(rows), 'set')} of results, {so_many(dots, 'dot product')}"
    yield Heading(Phrase(total, "bad" if wrong else "good"), 1)
    columns = (
        Column("GPU"),
        Column("operands", "context"),
        Column("result", "context"),
        _number("dot products"),
        _number("mismatches"),
        Column("read as", least=26),
    )
    cells = (
        (each.gpu, each.operand, each.result, f"{row.dots:,}", f"{row.mismatches:,}", str(row.reading))
        for row in rows
        for each in (row.recorded,)
    )
    yield Grid(columns, tuple(_red(texts, bool(row.mismatches)) for texts, row in zip(cells, rows, strict=True)))
    for row in rows:
        if row.others:
            others = "; ".join(f"as {reading} {count:,} would differ" for reading, count in row.others)
            yield Paragraph(Phrase(f"{row.recorded.name}: {others}", "quiet"))
    if first := [f"{row.recorded.name}: {mismatch(row.reading.inst, row.first)}" for row in rows if row.first]:
        yield List(tuple(Phrase(text, "bad") for text in first), "!")


def outcome(done: Verification) -> Iterator[str]:
    """How many dot products of which operands were tried, what that excludes, and how much of the instruction it covers."""
    yield f"{done.mismatches:,} of {done.dots:,} dot products differ from the model, seed {done.seed}"
    if excluded := excluded_faults(done):
        yield f"no mismatch in {done.random:,}: {excluded}"
    if done.kinds:
        yield "operands: " + ", ".join(f"{count:,} {kind}" for kind, count in done.kinds.items())
    if done.results:
        yield f"{done.contradicting:,} of {done.results:,} answers contradict the model, of experiments and rivals too"
    if done.queries:
        yield queries_text(done.queries)
    if done.tile:
        wrong = f"; wrong: {done.tile.differing}" if done.tile.differing else ""
        yield f"read {done.tile.covered:,} of {done.tile.total:,} cells{wrong}"
    if done.events:
        yield UNCOVERED if done.refuted else events_text(done.events)


def queries_text(queries: Queries) -> str:
    """ "412 queries of 1 to 65,537 dot products"."""
    return f"{queries.count:,} queries of {queries.smallest:,} to {queries.largest:,} dot products"


def excluded_faults(done: Verification) -> str:
    """What dot products without a mismatch exclude: of a fault rate above 3/n, one at least of n would have differed with 95 %
    (the rule of three: Hanley & Lippman-Hand, JAMA 1983). "" where anything differed, or few were tried.
    """
    if done.refuted or done.random <= 3:
        return ""
    return f"faults in more than 3 in {done.random:,} of such operands are excluded at 95 %"


def events_text(events: Events) -> str:
    """ "410 of 412 events; 3 cannot occur because no operand is subnormal; missing: …"."""
    impossible = "".join(f"; {count:,} cannot occur because {why}" for why, count in events.impossible.items())
    missing = f"; missing: {', '.join(events.missing)}" if events.missing else ""
    return f"{events.hit:,} of {events.possible:,} events{impossible}{missing}"


def coverage(done: Sequence[Verification]) -> str:
    """Of several rows together: "412 of 412 events met, 512 of 512 cells read, 17 of 48,213 answers contradict their model".

    Events of models that some result contradicts are not counted.
    """
    events = [each.events for each in done if each.events and not each.refuted]
    cells = [each.tile for each in done if each.tile]
    told = []
    if events:
        told.append(f"{sum(each.hit for each in events):,} of {sum(each.possible for each in events):,} events met")
    if cells:
        told.append(f"{sum(each.covered for each in cells):,} of {sum(each.total for each in cells):,} cells read")
    if answers := sum(each.results for each in done):
        told.append(f"{sum(each.contradicting for each in done):,} of {answers:,} answers contradict their model")
    return ", ".join(told)


def exchange_text(inst: Instruction, shown: Exchange, whole: bool = True) -> str:
    """ "k 0: 0x38 (1) × 0x38 (1); k 1-31: …; C 0x0 (0) → 0x3f800000 (1)"; products of two zeros are left out.

    Of a sparse A, k counts the products that are stored, as the model has them. whole: where they are stored, and what B has
    elsewhere, is told by itself.
    """
    question = shown.request(inst)
    asked = stored_products(inst, question)
    pairs = list(zip(asked.a[0].tolist(), asked.b[0].tolist(), strict=True))
    terms = []
    for pair in dict.fromkeys(pairs):
        if pair != (0, 0):
            at = ", ".join(number_ranges([k for k in range(len(pairs)) if pairs[k] == pair]))
            terms.append(f"k {at}:{GLUE}{pattern_text(inst.a, pair[0])}{GLUE}×{GLUE}{pattern_text(inst.b, pair[1])}")
    terms.append(f"C{GLUE}{pattern_text(inst.c, int(asked.c[0]))}")
    terms += _scales(inst, question)
    if whole and inst.sparsity is not None and question.metadata is not None:
        stored = inst.sparsity.stored(question.metadata)[0].tolist()
        terms += [f"stored at {', '.join(number_ranges(stored))}", f"left out of B {elsewhere(inst, shown)}"]
    return f"{'; '.join(terms)} →{GLUE}{pattern_text(inst.d, int(shown.d, 16))}"


def _scales(inst: Instruction, asked: Request) -> Iterator[str]:
    """The block scales of A and of B, block after block, where they are not all one."""
    for operand, scales in (("A", asked.scales_a), ("B", asked.scales_b)):
        if inst.scale is not None and scales is not None and (scales != inst.scale.encode(False, 1, 0)).any():
            yield f"scales of {operand} " + ", ".join(pattern_text(inst.scale, code) for code in scales[0].tolist())


def elsewhere(inst: Instruction, shown: Exchange) -> str:
    """Which numbers B has where a sparse A stores nothing, the first few of them."""
    asked = shown.request(inst)
    assert inst.sparsity is not None
    assert asked.metadata is not None
    stored = inst.sparsity.stored(asked.metadata)[0].tolist()
    others = dict.fromkeys(int(x) for k, x in enumerate(asked.b[0]) if k not in stored)
    told = [pattern_text(inst.b, x) for x in others][:LEFT_OUT_SHOWN]
    more = f" and {len(others) - len(told)} more" if len(others) > len(told) else ""
    return f"{', '.join(told)}{more}"


def mismatch(inst: Instruction, found: Counterexample) -> str:
    """A dot product in hex and value, what came back, and what was expected."""
    return unglued(f"{exchange_text(inst, found.exchange)}, expected {pattern_text(inst.d, int(found.expected, 16))}")


@lru_cache(maxsize=1 << 12)
def pattern_text(fmt: Format, pattern: int) -> str:
    import numpy as np

    value = float(fmt.values(np.array([pattern], fmt.dtype))[0])
    return f"0x{pattern:0{fmt.storage_bits // 4}x}{GLUE}({_value_text(value)})"


def _value_text(value: float) -> str:
    """A power of two as such where that is shorter to read."""
    if value != 0 and abs(value) not in (float("inf"), 1.0, 2.0, 4.0) and value == value:
        mantissa, exponent = value.hex().split("p")
        if mantissa.lstrip("-") == "0x1.0000000000000":
            return f"{'-' if value < 0 else ''}2^{int(exponent)}"
    return f"{value:.9g}"
