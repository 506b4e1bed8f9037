"""Two reports compared: instructions by name, and by role where the two architectures offer different ones.

A pair ends in one verdict. Findings of which one side is not certain are `undecided` where some value is possible on both.
What neither side measured is no pair.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from accprobe.compare.meaning import meaning
from accprobe.compare.possible import overlap, possible
from accprobe.compare.products import ProductPair, VerdictWord, fields_compared, product_pairs, verdict_word
from accprobe.compare.roles import InstructionRole, nearest_shape, offered, role_of
from accprobe.errors import UnknownName, nearest
from accprobe.isa import architectures
from accprobe.isa.instructions import architectures_with
from accprobe.model.features import finding_names, parsed
from accprobe.model.fields import FEATURES
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import effective_bits, found, ran_as

Verdict = Literal["changed", "only in A", "only in B", "undecided", "same"]
By = Literal["role", "name"]
Side = Literal["A", "B"]

UNDECIDED = "Not known well enough on both sides to tell them apart."
NOT_KNOWN = "not known"


@dataclass(frozen=True)
class Difference:
    """One field in which two rows are not the same: values as tables show them, and a sentence for who writes kernels."""

    field: str
    verdict: Literal["changed", "undecided"]
    a: str
    b: str
    means: str


@dataclass(frozen=True)
class Pair:
    """An instruction of A and one of B; None where a side has none that was measured.

    by: how they were matched. offered: whether they are what the generations offer for the role.
    note: why a side has none. marks: sides whose numbers nobody proved, such as "B simulated".
    """

    by: By
    role: InstructionRole
    offered: bool
    a: Row | None
    b: Row | None
    verdict: Verdict
    differences: tuple[Difference, ...] = ()
    note: str = ""
    marks: tuple[str, ...] = ()

    def values(self, field: str) -> tuple[str, str]:
        """A field's values on both sides, as tables show them."""
        a, b = ("" if row is None else shown(row, field) for row in (self.a, self.b))
        return a, b

    @property
    def word(self) -> VerdictWord:
        return verdict_word(self.verdict, (each.field for each in self.differences if each.verdict == "changed"))


@dataclass(frozen=True)
class Change:
    """One thing beside the instructions: a version, a fact about the device. "" where a side does not say."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class Diff:
    """Report `a` against report `b`. unmeasured: instructions that neither has measured."""

    a: Report
    b: Report
    environment: tuple[Change, ...]
    pairs: tuple[Pair, ...]
    unmeasured: int
    products: tuple[ProductPair, ...] = ()

    @cached_property
    def counts(self) -> Counter[Verdict]:
        return Counter(pair.verdict for pair in self.pairs)

    @property
    def differs(self) -> bool:
        """Whether anything changed or is on one side alone; what is undecided is not shown to differ."""
        verdicts = {*self.counts, *(pair.verdict for pair in self.products)}
        return not verdicts <= {"undecided", "same"}


def diff(a: Report, b: Report, only: Collection[str] = ()) -> Diff:
    """Compare two reports. only: fields to compare, all where it is empty. Raises UnknownName where a field does not exist."""
    of_products = fields_compared(a, b) if a.products or b.products else []
    fields = _fields(a, b, only, of_products)
    pairs = _Comparison(a, b, fields).pairs()
    unmeasured = {row.name for row in (*a.instructions, *b.instructions)} - {row.name for row in (*a.measured, *b.measured)}
    products = product_pairs(a, b, [field for field in of_products if field in only or not only])
    return Diff(a, b, tuple(_environment(a, b)), tuple(pairs), len(unmeasured), tuple(products))


def generation(report: Report) -> str:
    """ "Hopper"; of what is no GPU its name."""
    known = report.device.architecture in architectures.targets()
    return architectures.get(report.device.architecture).generation if known else report.device.name


def shown(row: Row, field: str) -> str:
    """A field as tables show it, "" where the row does not have it."""
    if field == "ran_as":
        return ran_as(row)
    if field == "effective_bits" and field in row.findings:
        return effective_bits(row)
    if field == "status":
        return row.status
    if field == "unstable":
        return f"{row.unstable:,}"
    return found(row, field)


def caution(report: Report, row: Row | None) -> str:
    """Why the numbers of a row are no measurement, or none to rely on; "" where they are confirmed on hardware."""
    if report.device.kind == "simulated":
        return "simulated"
    return row.status if row and row.status not in ("confirmed", "skipped") else ""


def marked(marks: Iterable[str]) -> str:
    """Marks in words, each once: "B simulated", "both simulated"."""
    every = ", ".join(dict.fromkeys(marks))
    return "both simulated" if every == "A simulated, B simulated" else every


def _fields(a: Report, b: Report, only: Collection[str], of_products: Collection[str]) -> list[str]:
    seen = dict.fromkeys(name for report in (a, b) for row in report.measured for name in row.findings)
    known = list(dict.fromkeys([*FEATURES, *finding_names(), *seen]))
    for name in only:
        if name not in known and name not in of_products:
            every = list(dict.fromkeys([*known, *of_products]))
            raise UnknownName(f"there is no field '{name}' to compare; {nearest(name, every)}")
    return [name for name in known if name in only or not only]


def _matched(a: Report, b: Report) -> Iterator[tuple[list[Row], list[Row]]]:
    """The rows that the two offer for a role, where those are not of one family.

    Those of the largest k stand for the role; others of which the other side has the name are compared by name.
    """
    of_a, of_b = offered(a.instructions), offered(b.instructions)
    for wanted, rows_a in of_a.items():
        rows_b = of_b.get(wanted, rows_a)
        if rows_a[0].instruction.family != rows_b[0].instruction.family:
            yield _standing(rows_a, b), _standing(rows_b, a)


def _standing(rows: Sequence[Row], other: Report) -> list[Row]:
    names = {row.name for row in other.instructions}
    largest = max(row.instruction.k for row in rows)
    return [row for row in rows if row.instruction.k == largest or row.name not in names]


def _nearest(rows_a: Sequence[Row], rows_b: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Each row with the one of the other side whose shape is nearest; no row is left out."""
    pairs = [(row, nearest_shape(row.instruction, rows_b)) for row in rows_a]
    chosen = {row.name for _, row in pairs}
    return pairs + [(nearest_shape(row.instruction, rows_a), row) for row in rows_b if row.name not in chosen]


def _named(a: Report, b: Report, matched: Collection[str]) -> Iterator[tuple[Row | None, Row | None]]:
    """Rows of one name; those that one side alone has, unless they are matched by role."""
    of_a, of_b = ({row.name: row for row in report.instructions} for report in (a, b))
    for name in dict.fromkeys([*of_a, *of_b]):
        if (name in of_a and name in of_b) or name not in matched:
            yield of_a.get(name), of_b.get(name)


class _Comparison:
    """The pairs of two reports; `fields` are compared."""

    def __init__(self, a: Report, b: Report, fields: Sequence[str]) -> None:
        self._a, self._b, self._fields = a, b, fields
        self._simulated = "simulated" in (a.device.kind, b.device.kind)
        self._offered = [{row.name for rows in offered(side.instructions).values() for row in rows} for side in (a, b)]

    def pairs(self) -> Iterator[Pair]:
        names: set[str] = set()
        for rows_a, rows_b in _matched(self._a, self._b):
            names |= {row.name for row in (*rows_a, *rows_b)}
            for row_a, row_b in _nearest(rows_a, rows_b):
                yield from self._pair(row_a, row_b, "role")
        for named_a, named_b in _named(self._a, self._b, names):
            yield from self._pair(named_a, named_b, "name")

    def _pair(self, row_a: Row | None, row_b: Row | None, by: By) -> Iterator[Pair]:
        """The pair with its verdict; nothing where neither side was measured, or neither has any of the fields."""
        a, b = (row if row and row.status != "skipped" else None for row in (row_a, row_b))
        one = a or b
        if one is None or not any(shown(row, field) for row in (a, b) if row for field in self._fields):
            return
        sides = (("A", self._a, a), ("B", self._b, b))
        marks = tuple(f"{side} {why}" for side, report, row in sides if (why := caution(report, row)))
        differences: tuple[Difference, ...] = ()
        note = ""
        verdict: Verdict
        if b is None:
            verdict, note = "only in A", _why_absent("B", self._b, row_b, one)
        elif a is None:
            verdict, note = "only in B", _why_absent("A", self._a, row_a, one)
        else:
            differences = tuple(_differences(a, b, self._fields, self._simulated))
            changed = any(difference.verdict == "changed" for difference in differences)
            verdict = "changed" if changed else "undecided" if differences else "same"
        is_offered = all(row.name in names for row, names in zip((a, b), self._offered, strict=True) if row)
        yield Pair(by, role_of(one.instruction), is_offered, a, b, verdict, differences, note, marks)


def _differences(a: Row, b: Row, fields: Sequence[str], simulated: bool) -> Iterator[Difference]:
    for field in fields:
        verdict = _verdict(a, b, field, simulated)
        if verdict is not None:
            means = meaning(field, a, b) if verdict == "changed" else UNDECIDED
            yield Difference(field, verdict, shown(a, field) or NOT_KNOWN, shown(b, field) or NOT_KNOWN, means)


def _verdict(a: Row, b: Row, field: str, simulated: bool) -> Literal["changed", "undecided"] | None:
    """How well a row is proved is no difference where a side is simulated: nothing of it is."""
    if (record := parsed(field).record) and record.of_row:
        texts = {shown(a, field), shown(b, field)}
        if len(texts) == 1 or (simulated and field != "ran_as"):
            return None
        return "changed" if all(texts) else "undecided"
    of_a, of_b = a.findings.get(field), b.findings.get(field)
    if of_a is None or of_b is None:
        lacking = b if of_b is None else a
        return None if of_a is of_b or not _applies(field, lacking) else "undecided"
    if (of_a.value, of_a.bound, of_a.candidates) == (of_b.value, of_b.bound, of_b.candidates):
        return None
    if field == "order" and a.instruction.k != b.instruction.k:
        return None
    return "undecided" if overlap(possible(of_a, field), possible(of_b, field)) else "changed"


def _applies(field: str, row: Row) -> bool:
    """Whether a row that lacks a field might have it: what is known of its sums may say that it means nothing there."""
    if not row.findings:
        return True
    alignment = row.findings.get("alignment_bits")
    exact = alignment is not None and alignment.bound == "exact" and alignment.value is None
    what = parsed(field)
    of_alignment = what.field is not None and what.field.of_alignment
    of_chains = what.record is not None and what.record.of_chains
    return not (what.role == "add" or of_chains or (exact and of_alignment))


def _why_absent(side: Side, report: Report, row: Row | None, other: Row) -> str:
    if row is not None and row.instruction.family != other.instruction.family:
        return f"{side} has no numbers for it (there {row.instruction.family}): {row.reason}"
    if row is not None:
        return f"{side} has no numbers for it: {row.reason}"
    architecture = report.device.architecture
    if architecture in architectures_with(other.instruction):
        known = "" if architecture in architectures.PROCESSORS else f", though {architecture} has it"
        return f"not in the report of {side}{known}"
    return f"{architecture} has no such instruction"


def _environment(a: Report, b: Report) -> Iterator[Change]:
    """What differs around the instructions; a simulated side has no environment to compare."""
    if "simulated" in (a.device.kind, b.device.kind):
        return
    of_a, of_b = (
        {"device": r.device.name, "architecture": r.device.architecture, "accprobe": _tool(r)}
        | {key: str(value) for key, value in r.environment.items()}
        | {key.replace("_", " "): str(value) for key, value in r.device.facts.items()}
        for r in (a, b)
    )
    for what in dict.fromkeys([*of_a, *of_b]):
        if of_a.get(what) != of_b.get(what):
            yield Change(what, of_a.get(what, ""), of_b.get(what, ""))


def _tool(report: Report) -> str:
    return " ".join(filter(None, (report.tool.version, report.tool.commit)))
