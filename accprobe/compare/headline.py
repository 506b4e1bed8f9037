"""The headline of a comparison: the most important change from one generation to the next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from accprobe.compare.diff import Diff, Pair, marked, shown, side_names
from accprobe.compare.products import contrast
from accprobe.model.fields import IMPORTANCE, title
from accprobe.report.rows import Row
from accprobe.report.words import value

# Short names; other fields have their titles.
WORDS = {"effective_bits": "accumulator", "alignment_bits": "alignment"}

# Groups of operands in a headline.
MOST_GROUPS = 2


def headline(diff: Diff) -> str:
    """Return "Hopper → Blackwell: FP8 accumulator 13 → 23 bits, QGMMA → UTCQMMA"."""
    items = [*_changes(diff), *_products(diff), *_function_items(diff)]
    words = {*(pair.word for pair in diff.pairs), *(pair.word for pair in diff.products)}
    if "status changed" in words and words <= {"status changed", "same"}:
        items.insert(0, "no value differs")
    if not items:
        counts = diff.counts + Counter(f"{pair.verdict} (products)" for pair in diff.products)
        rest = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items())) or "nothing to compare"
        verdicts = {*diff.counts, *(pair.verdict for pair in diff.products)}
        shared = not verdicts or verdicts - {"only in A", "only in B"}
        said = "" if diff.counts["changed"] else "no value differs: " if shared else "nothing is in both: "
        items = [f"{said}{rest}"]
    marks = marked(mark for pair in diff.pairs for mark in pair.marks)
    return f"{' → '.join(dict.fromkeys(side_names(diff)))}: {'; '.join(items)}{f' ({marks})' if marks else ''}"


def _function_items(diff: Diff) -> list[str]:
    """Return "2 functions differ", or how many are equal if nothing else is compared."""
    if diff.functions:
        count = len(diff.functions)
        return [f"{count} {'function differs' if count == 1 else 'functions differ'}"]
    if diff.a.functions and diff.b.functions and not (diff.pairs or diff.products):
        return [f"no value differs: {len(diff.a.functions)} same (functions)"]
    return []


def _changes(diff: Diff) -> list[str]:
    """Return the most important changed feature by operands, of pairs by role where there are some."""
    pairs = [pair for pair in diff.pairs if pair.verdict == "changed"]
    for among in ([pair for pair in pairs if pair.by == "role"], pairs):
        for field in IMPORTANCE:
            if groups := _groups(among, field):
                more = [f"{len(groups) - MOST_GROUPS} more"] if len(groups) > MOST_GROUPS else []
                return [*(_item(field, group) for group in groups[:MOST_GROUPS]), *more]
    return []


def _groups(pairs: Iterable[Pair], field: str) -> list[list[Pair]]:
    """Return pairs in which the field changed alike, the largest group first, each operand class once."""
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for pair in pairs:
        if any(d.field == field and d.verdict == "changed" for d in pair.differences):
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


def _plain(row: Row, field: str) -> str:
    """Return the value, bits without the name of a float format; "" for a suggestion."""
    if field in row.findings and row.findings[field].bound == "suggested":
        return ""
    return value(row.findings[field], field) if field in row.findings else shown(row, field)


def _products(diff: Diff) -> Iterable[str]:
    """Yield "torch:mm 256x256x4096 f16 -> f32: 4 slices of 1024, partials f16 → one chain", "3 other products differ"."""
    changed = [pair for pair in diff.products if pair.verdict == "changed"]
    if changed:
        yield f"{changed[0].row.title}: {' → '.join(contrast(changed[0]))}"
    if len(changed) > 1:
        yield f"{len(changed) - 1} other matrix product{'s differ' if len(changed) > 2 else ' differs'}"
