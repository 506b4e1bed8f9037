"""Comparison of two reports: claims about one subject, and instructions by role if the architectures offer different ones.

A pair has one verdict. A finding that is uncertain on one side is `undecided` if some value is possible on both. Claims that
neither side measured are left out. The headline is the most important change from one generation to the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from accprobe.compare.differences import Verdict
from accprobe.compare.pairs import COMPARED_FIELDS, By, Pair, nearest_shape, offered, paired, shown
from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.isa import architectures
from accprobe.model.fields import IMPORTANCE, title
from accprobe.records.rows import Row
from accprobe.report.report import AnyClaim, Report
from accprobe.report.words import so_many, value


@dataclass(frozen=True)
class Change:
    """A version or a fact about the device that differs; "" if a side lacks it."""

    what: str
    a: str
    b: str


@dataclass(frozen=True)
class Diff:
    """The comparison of report `a` with report `b`. unmeasured: number of instructions that are not measured in either."""

    a: Report
    b: Report
    environment: tuple[Change, ...]
    pairs: tuple[Pair, ...]
    unmeasured: int

    @property
    def differs(self) -> bool:
        """Return whether anything changed or is on one side only; an undecided field does not count."""
        return not {pair.verdict for pair in self.pairs} <= {"undecided", "same"}


def diff(a: Report, b: Report, only: Collection[str] = ()) -> Diff:
    """Compare two reports. only: fields to compare, all if it is empty. Raises UnknownName for unknown fields,
    AccprobeError if both hold claims, but none of one kind, or if one has sweeps only.
    """
    kinds = [dict.fromkeys(f"{claim.kind}s" for claim in side.claims) for side in (a, b)]
    if letter := next((letter for letter, side in zip("AB", (a, b), strict=True) if side.sweeps and not side.claims), ""):
        raise AccprobeError(f"{letter} has sweeps only, which are not compared: give reports of run, gemm, reduce or function")
    if all(kinds) and not kinds[0].keys() & kinds[1].keys():
        held = ", B ".join(" and ".join(each) for each in kinds)
        raise AccprobeError(f"A holds {held}: compare two reports of one kind")
    pairs = _pairs(a, b, _fields(a, b, only))
    unmeasured = {row.name for row in (*a.instructions, *b.instructions)} - {row.name for row in (*a.measured, *b.measured)}
    return Diff(a, b, tuple(_environment(a, b)), tuple(pairs), len(unmeasured))


def generation(report: Report) -> str:
    """Return "Hopper", or the device's name if its architecture is not a known one of GPUs."""
    known = report.device.architecture in architectures.targets()
    return architectures.get(report.device.architecture).generation if known else report.device.name


def side_names(diff: Diff) -> tuple[str, str]:
    """Return the generations of both sides, or the devices of one generation."""
    a, b = generation(diff.a), generation(diff.b)
    return (a, b) if a != b else (diff.a.device.name, diff.b.device.name)


def caution(report: Report, claim: AnyClaim | None) -> str:
    """Return why the results of a claim are not confirmed on hardware; "" if they are."""
    if report.device.kind == "simulated":
        return "simulated"
    return claim.status if claim and claim.status not in ("confirmed", "skipped") else ""


def marked(marks: Iterable[str]) -> str:
    """Join marks, each once: "B simulated", "both simulated"."""
    every = ", ".join(dict.fromkeys(marks))
    return "both simulated" if every == "A simulated, B simulated" else every


def _fields(a: Report, b: Report, only: Collection[str]) -> dict[str, list[str]]:
    """Return the fields to compare by kind of claim, including findings that this version does not know."""
    known: dict[str, dict[str, None]] = {}
    for claim in (*a.claims, *b.claims):
        known.setdefault(claim.kind, dict.fromkeys(COMPARED_FIELDS[claim.kind]))
        known[claim.kind] |= dict.fromkeys(name for part in claim.parts for name in part.findings)
    every = dict.fromkeys(name for names in known.values() for name in names)
    if unknown := [name for name in only if name not in every]:
        raise UnknownName(f"there is no field '{unknown[0]}' to compare; {nearest(unknown[0], every)}")
    return {kind: [name for name in names if name in only or not only] for kind, names in known.items()}


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
    """Return the rows with the largest k, and rows with a name that `other` lacks."""
    names = {row.name for row in other.instructions}
    largest = max(row.instruction.k for row in rows)
    return [row for row in rows if row.instruction.k == largest or row.name not in names]


def _nearest(rows_a: Sequence[Row], rows_b: Sequence[Row]) -> list[tuple[Row, Row]]:
    """Pair each row with the one of nearest shape on the other side; every row is in some pair."""
    pairs = [(row, nearest_shape(row.instruction, rows_b)) for row in rows_a]
    chosen = {row.name for _, row in pairs}
    return pairs + [(nearest_shape(row.instruction, rows_a), row) for row in rows_b if row.name not in chosen]


def _pairs(a: Report, b: Report, fields: Mapping[str, Sequence[str]]) -> Iterator[Pair]:
    """Yield the pairs by role; then claims with one key, and claims of one side that no role has matched."""
    matched: set[tuple[str, ...]] = set()
    for rows_a, rows_b in _matched(a, b):
        matched.update(row.key for row in (*rows_a, *rows_b))
        for row_a, row_b in _nearest(rows_a, rows_b):
            yield from _pair(a, b, row_a, row_b, "role", fields)
    of_a, of_b = ({claim.key: claim for claim in report.claims} for report in (a, b))
    for key in dict.fromkeys([*of_a, *of_b]):
        if (key in of_a and key in of_b) or key not in matched:
            yield from _pair(a, b, of_a.get(key), of_b.get(key), "name", fields)


def _pair(
    of_a: Report, of_b: Report, one: AnyClaim | None, other: AnyClaim | None, by: By, fields: Mapping[str, Sequence[str]]
) -> Iterator[Pair]:
    """Yield the pair with its verdict; none if neither side was measured or has any of the fields."""
    a, b = (claim if claim and claim.status != "skipped" else None for claim in (one, other))
    some = a or b
    if some is None or not any(shown(claim, field) for claim in (a, b) if claim for field in fields[some.kind]):
        return
    marks = tuple(f"{side} {why}" for side, why in (("A", caution(of_a, a)), ("B", caution(of_b, b))) if why)
    if a and b:
        yield paired(a, b, fields[some.kind], marks, by)
        return
    side, absent = ("A", one) if a is None else ("B", other)
    verdict: Verdict = "only in B" if a is None else "only in A"
    yield Pair(a=a, b=b, verdict=verdict, marks=marks, by=by, note=f"no values in {side}: {absent.reason}" if absent else "")


def _environment(a: Report, b: Report) -> Iterator[Change]:
    """Yield differences of versions and devices; a simulated side has none."""
    if "simulated" in (a.device.kind, b.device.kind):
        return
    of_a, of_b = (
        {"device": r.device.name, "architecture": r.device.architecture}
        | {"accprobe": " ".join(filter(None, (r.tool.version, r.tool.commit)))}
        | {key: str(value) for key, value in r.environment.items()}
        | {_FACTS.get(key, key.replace("_", " ")): str(value) for key, value in r.device.facts.items()}
        for r in (a, b)
    )
    for what in dict.fromkeys([*of_a, *of_b]):
        if of_a.get(what) != of_b.get(what):
            yield Change(what, of_a.get(what, ""), of_b.get(what, ""))


# Facts about a device with units; others follow their names.
_FACTS = {"memory_gib": "memory (GiB)", "max_clock_mhz": "largest clock (MHz)"}


# Short names of fields in a headline; other fields have their titles.
WORDS = {"effective_bits": "accumulator", "alignment_bits": "alignment"}

# Most groups of operands, or changes of a product, that a headline names.
MOST_GROUPS = 2


def headline(diff: Diff) -> str:
    """Return "Hopper → Blackwell: FP8 accumulator 13 → 23 bits, QGMMA → UTCQMMA"."""
    items = [*_changes(diff), *_others(diff)]
    words = {pair.word for pair in diff.pairs}
    if "status changed" in words and words <= {"status changed", "same"}:
        items.insert(0, "no value differs")
    if not items:
        both = Counter(pair.verdict for pair in diff.pairs if pair.a and pair.b)
        one = Counter((pair.word, pair.row.kind) for pair in diff.pairs if not (pair.a and pair.b))
        alone = [f"{so_many(n, kind)} {word}" for (word, kind), n in sorted(one.items())]
        rest = ", ".join(f"{n} {verdict}" for verdict, n in sorted(both.items()))
        same = "" if both["changed"] else "no value differs: "
        items = [*alone, f"{same}{rest}"] if rest else ["nothing is in both", *alone] if alone else ["nothing to compare"]
    marks = marked(mark for pair in diff.pairs if pair.instructions for mark in pair.marks)
    return f"{' → '.join(dict.fromkeys(side_names(diff)))}: {'; '.join(items)}{f' ({marks})' if marks else ''}"


def _changes(diff: Diff) -> list[str]:
    """Return the change of the most important field, one item per group of operands. Pairs matched by role come first; other
    pairs count only if no role pair changed.
    """
    pairs = [pair for pair in diff.pairs if pair.verdict == "changed" and pair.instructions]
    for among in ([pair for pair in pairs if pair.by == "role"], pairs):
        for field in IMPORTANCE:
            if groups := _groups(among, field):
                more = [f"{len(groups) - MOST_GROUPS} more"] if len(groups) > MOST_GROUPS else []
                return [*(_item(field, group) for group in groups[:MOST_GROUPS]), *more]
    return []


def _groups(pairs: Iterable[Pair], field: str) -> list[list[Pair]]:
    """Group the pairs by the change of the field, largest group first; drop a group if its operand classes all occur in larger
    groups.
    """
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        if any(each.field == field for each in pair.changes):
            groups.setdefault((*pair.values(field), *pair.values("ran_as")), []).append(pair)
    named: set[str] = set()
    kept = []
    for group in sorted(groups.values(), key=lambda group: (-len(group), group[0].role.d.name != "f32")):
        operands = {pair.role.operands for pair in group}
        if not operands <= named:
            kept.append(group)
        named |= operands
    return kept


def _item(field: str, group: Sequence[Pair]) -> str:
    """Return "FP8 accumulator 13 → 23 bits, QGMMA → UTCQMMA"."""
    first = group[0]
    operands = ", ".join(dict.fromkeys(pair.role.operands for pair in group))
    opcodes = " → ".join(dict.fromkeys(first.values("ran_as")))
    if field == "ran_as":
        return f"{operands} {opcodes}"
    a, b = (_plain(row, field) for row in (first.a, first.b) if row)
    unit = " bits" if field.endswith("_bits") else ""
    return f"{operands} {WORDS.get(field, title(field))} {a} → {b}{unit}, {opcodes}"


def _plain(row: AnyClaim, field: str) -> str:
    """Return the value, bits without the name of a float format; "" for a suggestion."""
    finding = row.findings.get(field) if isinstance(row, Row) else None
    if finding is None:
        return shown(row, field)
    return "" if finding.bound == "suggested" else value(finding, field)


def _others(diff: Diff) -> Iterable[str]:
    """Yield "torch:mm 256x256x4096 f16 -> f32: split-K 4 → 1, partial format f16 → none", "3 other products differ", and
    "1 product: status inferred → confirmed".
    """
    by_kind: dict[str, list[Pair]] = {}
    for pair in diff.pairs:
        if pair.word == "changed" and not pair.instructions:
            by_kind.setdefault(pair.row.kind, []).append(pair)
    for kind, (first, *more) in by_kind.items():
        changes = [f"{each.title} {each.a} → {each.b}" for each in first.changes]
        yield f"{first.row.title}: {', '.join(changes[:MOST_GROUPS])}{', …' * (len(changes) > MOST_GROUPS)}"
        if more:
            yield f"{so_many(len(more), f'other {kind}')} differ{'s' * (len(more) == 1)}"
    alone = [pair for pair in diff.pairs if pair.word == "status changed" and not pair.instructions]
    for (kind, *statuses), count in Counter((pair.row.kind, *pair.values("status")) for pair in alone).items():
        yield f"{so_many(count, kind)}: status {' → '.join(statuses)}"
