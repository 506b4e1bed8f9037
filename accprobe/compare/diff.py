"""Comparison of two reports: instructions by name, and by role if the architectures offer different ones.

A pair has one verdict. A finding that is uncertain on one side is `undecided` if some value is possible on both. Instructions
that neither side measured are left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from accprobe.compare.differences import (
    NOT_KNOWN,
    UNDECIDED,
    Compared,
    Difference,
    FieldVerdict,
    Verdict,
    finding_verdict,
    meaning,
    overall,
)
from accprobe.compare.products import ProductPair, fields_compared, product_pairs
from accprobe.compare.roles import InstructionRole, nearest_shape, offered, role_of
from accprobe.errors import UnknownName, nearest
from accprobe.isa import architectures
from accprobe.isa.instructions import architectures_with
from accprobe.model.fields import FEATURES, finding_names, parsed
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import effective_bits, found, ran_as

By = Literal["role", "name"]
Side = Literal["A", "B"]


@dataclass(frozen=True, kw_only=True)
class Pair(Compared[Row]):
    """An instruction of A and one of B.

    by: how they were matched. note: why a side has none.
    """

    by: By
    role: InstructionRole
    note: str = ""

    def values(self, field: str) -> tuple[str, str]:
        """Return a field's values on both sides, as in tables."""
        a, b = ("" if row is None else shown(row, field) for row in (self.a, self.b))
        return a, b


@dataclass(frozen=True)
class Change:
    """A version or a fact about the device that differs; "" if a side lacks it."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class Diff:
    """The comparison of report `a` with report `b`. unmeasured: number of instructions that neither has measured."""

    a: Report
    b: Report
    environment: tuple[Change, ...]
    pairs: tuple[Pair, ...]
    unmeasured: int
    products: tuple[ProductPair, ...] = ()
    functions: tuple[Change, ...] = ()

    @cached_property
    def counts(self) -> Counter[Verdict]:
        return Counter(pair.verdict for pair in self.pairs)

    @property
    def differs(self) -> bool:
        """Return whether anything changed or is on one side only; an undecided field does not count."""
        verdicts = {*self.counts, *(pair.verdict for pair in self.products)}
        return not verdicts <= {"undecided", "same"} or bool(self.functions)


def diff(a: Report, b: Report, only: Collection[str] = ()) -> Diff:
    """Compare two reports. only: fields to compare, all if it is empty. Raises UnknownName for unknown fields."""
    of_products = fields_compared(a, b) if a.products or b.products else []
    fields = _fields(a, b, only, of_products)
    pairs = _pairs(a, b, fields)
    unmeasured = {row.name for row in (*a.instructions, *b.instructions)} - {row.name for row in (*a.measured, *b.measured)}
    products = product_pairs(a, b, [field for field in of_products if field in only or not only])
    environment, functions = tuple(_environment(a, b)), tuple(_functions(a, b))
    return Diff(a, b, environment, tuple(pairs), len(unmeasured), tuple(products), functions)


def generation(report: Report) -> str:
    """Return "Hopper", or the device's name if it is not a GPU."""
    known = report.device.architecture in architectures.targets()
    return architectures.get(report.device.architecture).generation if known else report.device.name


def side_names(diff: Diff) -> tuple[str, str]:
    """Return the generations of both sides, or the devices of one generation."""
    a, b = generation(diff.a), generation(diff.b)
    return (a, b) if a != b else (diff.a.device.name, diff.b.device.name)


def shown(row: Row, field: str) -> str:
    """Return a field as in tables, "" if the row does not have it."""
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
    """Return why the numbers of a row are not confirmed on hardware; "" if they are."""
    if report.device.kind == "simulated":
        return "simulated"
    return row.status if row and row.status not in ("confirmed", "skipped") else ""


def marked(marks: Iterable[str]) -> str:
    """Join marks, each once: "B simulated", "both simulated"."""
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
    """Yield the rows that both offer for a role, if their families differ.

    Rows with the largest k represent the role; others are compared by name if the other side has the name.
    """
    of_a, of_b = offered(a.instructions), offered(b.instructions)
    for wanted, rows_a in of_a.items():
        rows_b = of_b.get(wanted, rows_a)
        if rows_a[0].instruction.family != rows_b[0].instruction.family:
            yield _representing(rows_a, b), _representing(rows_b, a)


def _representing(rows: Sequence[Row], other: Report) -> list[Row]:
    names = {row.name for row in other.instructions}
    largest = max(row.instruction.k for row in rows)
    return [row for row in rows if row.instruction.k == largest or row.name not in names]


def _nearest(rows_a: Sequence[Row], rows_b: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Pair each row with the one of the other side whose shape is nearest; every row is in some pair."""
    pairs = [(row, nearest_shape(row.instruction, rows_b)) for row in rows_a]
    chosen = {row.name for _, row in pairs}
    return pairs + [(nearest_shape(row.instruction, rows_a), row) for row in rows_b if row.name not in chosen]


def _named(a: Report, b: Report, matched: Collection[str]) -> Iterator[tuple[Row | None, Row | None]]:
    """Yield rows of one name, and rows of one side that are not matched by role."""
    of_a, of_b = ({row.name: row for row in report.instructions} for report in (a, b))
    for name in dict.fromkeys([*of_a, *of_b]):
        if (name in of_a and name in of_b) or name not in matched:
            yield of_a.get(name), of_b.get(name)


def _pairs(a: Report, b: Report, fields: Sequence[str]) -> Iterator[Pair]:
    names: set[str] = set()
    for rows_a, rows_b in _matched(a, b):
        names |= {row.name for row in (*rows_a, *rows_b)}
        for row_a, row_b in _nearest(rows_a, rows_b):
            yield from _pair(a, b, row_a, row_b, "role", fields)
    for named_a, named_b in _named(a, b, names):
        yield from _pair(a, b, named_a, named_b, "name", fields)


def _pair(of_a: Report, of_b: Report, row_a: Row | None, row_b: Row | None, by: By, fields: Sequence[str]) -> Iterator[Pair]:
    """Yield the pair with its verdict; none if neither side was measured or has any of the fields."""
    a, b = (row if row and row.status != "skipped" else None for row in (row_a, row_b))
    one = a or b
    if one is None or not any(shown(row, field) for row in (a, b) if row for field in fields):
        return
    simulated = "simulated" in (of_a.device.kind, of_b.device.kind)
    differences = tuple(_differences(a, b, fields, simulated)) if a and b else ()
    note = _why_absent("A", of_a, row_a, one) if a is None else _why_absent("B", of_b, row_b, one) if b is None else ""
    yield Pair(
        a=a,
        b=b,
        verdict=overall(differences) if a and b else "only in A" if a else "only in B",
        differences=differences,
        marks=tuple(f"{side} {why}" for side, why in (("A", caution(of_a, a)), ("B", caution(of_b, b))) if why),
        by=by,
        role=role_of(one.instruction),
        note=note,
    )


def _differences(a: Row, b: Row, fields: Sequence[str], simulated: bool) -> Iterator[Difference]:
    for field in fields:
        verdict = _verdict(a, b, field, simulated)
        if verdict is not None:
            means = meaning(field, a, b) if verdict == "changed" else UNDECIDED
            yield Difference(field, verdict, shown(a, field) or NOT_KNOWN, shown(b, field) or NOT_KNOWN, means)


def _verdict(a: Row, b: Row, field: str, simulated: bool) -> FieldVerdict | None:
    """Return the verdict of a field; the status of a simulated side is not compared."""
    if (record := parsed(field).record) and record.of_row:
        texts = {shown(a, field), shown(b, field)}
        if len(texts) == 1 or (simulated and field != "ran_as"):
            return None
        return "changed" if all(texts) else "undecided"
    of_a, of_b = a.findings.get(field), b.findings.get(field)
    if of_a is None or of_b is None:
        lacking = b if of_b is None else a
        return None if of_a is of_b or not _applies(field, lacking) else "undecided"
    if field == "order" and a.instruction.k != b.instruction.k:
        return None
    return finding_verdict(of_a, of_b, field)


def _applies(field: str, row: Row) -> bool:
    """Return whether a row that lacks a field might have it, given what is known of its sums."""
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
        return f"no values in {side} (its {row.instruction.family}): {row.reason}"
    if row is not None:
        return f"no values in {side}: {row.reason}"
    architecture = report.device.architecture
    if architecture in architectures_with(other.instruction):
        known = "" if architecture in architectures.PROCESSORS else f", though {architecture} has it"
        return f"not in the report of {side}{known}"
    return f"{architecture} has no such instruction"


def _functions(a: Report, b: Report) -> Iterator[Change]:
    """Yield functions whose results differ, by their hash where both have one, else by what they compute."""
    of_a, of_b = ({row.key: row for row in report.functions} for report in (a, b))
    for key in dict.fromkeys([*of_a, *of_b]):
        one, other = of_a.get(key), of_b.get(key)
        if one is None or other is None:
            row = one or other
            assert row is not None
            yield Change(row.title, row.computes if one else "", row.computes if other else "")
        elif one.digest and other.digest and one.digest != other.digest:
            yield Change(one.title, f"{one.computes}, results {one.digest}", f"{other.computes}, results {other.digest}")
        elif (one.status, one.computes) != (other.status, other.computes):
            yield Change(one.title, f"{one.status}: {one.computes}", f"{other.status}: {other.computes}")


def _environment(a: Report, b: Report) -> Iterator[Change]:
    """Yield differences of versions and devices; a simulated side has none."""
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
