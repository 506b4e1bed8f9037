"""The headline of a comparison: the most important change from one generation to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from accprobe.compare.diff import Diff, marked, side_names
from accprobe.compare.pairs import Pair, shown
from accprobe.model.fields import IMPORTANCE, title
from accprobe.report.report import AnyClaim
from accprobe.report.rows import Row
from accprobe.report.words import so_many, value

# Short names; other fields have their titles.
WORDS = {"effective_bits": "accumulator", "alignment_bits": "alignment"}

# Groups of operands in a headline.
MOST_GROUPS = 2


def headline(diff: Diff) -> str:
    """Return "Hopper → Blackwell: FP8 accumulator 13 → 23 bits, QGMMA → UTCQMMA"."""
    items = [*_changes(diff), *_others(diff)]
    words = {pair.word for pair in diff.pairs}
    if "status changed" in words and words <= {"status changed", "same"}:
        items.insert(0, "no value differs")
    if not items:
        counts = Counter((pair.verdict, pair.row.kind) for pair in diff.pairs)
        alone = [f"{so_many(n, kind)} {verdict}" for (verdict, kind), n in sorted(counts.items()) if verdict.startswith("only")]
        rest = ", ".join(f"{n} {verdict}" for (verdict, _), n in sorted(counts.items()) if not verdict.startswith("only"))
        same = "" if any(verdict == "changed" for verdict, _ in counts) else "no value differs: "
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
    """Group the pairs by the change of the field, largest group first; drop a group whose operand classes all occur in larger
    groups.
    """
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        if any(each.field == field for each in pair.changes):
            groups.setdefault((*pair.values(field), *pair.values("ran_as")), []).append(pair)
    named: set[str] = set()
    kept = []
    for group in sorted(groups.values(), key=lambda group: (-len(group), group[0].role.d != "f32")):
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
    """Yield "torch:mm 256x256x4096 f16 -> f32: 4 slices of 1024, partials f16 → one chain", "3 other products differ"."""
    by_kind: dict[str, list[Pair]] = {}
    for pair in diff.pairs:
        if pair.verdict == "changed" and not pair.instructions:
            by_kind.setdefault(pair.row.kind, []).append(pair)
    for kind, (first, *more) in by_kind.items():
        yield f"{first.row.title}: {' → '.join(first.contrast())}"
        if more:
            yield f"{so_many(len(more), f'other {kind}')} differ{'s' * (len(more) == 1)}"
