"""Dot products that a device was asked, and what it answered: one in words, bit patterns in hex with their values, or many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from accprobe.health.sms import Checkup
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.exchange import Counterexample, Exchange
from accprobe.operands.request import Request
from accprobe.operands.sparse import stored_products
from accprobe.render.content.patterns import number_ranges
from accprobe.render.content.phrases import GLUE, unglued
from accprobe.verify.outcome import Events, Queries, Verification

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


class CheckedUp(NamedTuple):
    """One instruction on every SM."""

    inst: Instruction
    done: Checkup
    seconds: float


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
    return f"0x{pattern:0{fmt.storage_bits // 4}x}{GLUE}({_number(value)})"


def _number(value: float) -> str:
    """A power of two as such where that is shorter to read."""
    if value != 0 and abs(value) not in (float("inf"), 1.0, 2.0, 4.0) and value == value:
        mantissa, exponent = value.hex().split("p")
        if mantissa.lstrip("-") == "0x1.0000000000000":
            return f"{'-' if value < 0 else ''}2^{int(exponent)}"
    return f"{value:.9g}"
