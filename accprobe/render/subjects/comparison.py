"""Comparisons of reports: the changes, their consequences for a kernel, other verdicts; and checks of requirements."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from accprobe.compare.diff import Diff, generation, headline, marked, side_names
from accprobe.compare.differences import VerdictWord
from accprobe.compare.pairs import InstructionRole, Pair
from accprobe.compare.requirements import Outcome
from accprobe.model.fields import IMPORTANCE, title
from accprobe.model.published import explained_text
from accprobe.render.document import (
    Column,
    Element,
    Grid,
    Heading,
    List,
    Paragraph,
    Phrase,
    Phrases,
    Tone,
    grouped,
    paragraphs,
    table,
    tabulate,
)
from accprobe.report.report import Report
from accprobe.report.words import brace_patterns, so_many, status_counts

HEADINGS = {
    "role": "The same operands",
    "instruction": "The same instruction",
    "product": "The same product",
    "reduction": "The same reduction",
    "function": "The same function",
}
"""By how the pairs were matched: by role, or by name, of each kind."""

TONES: dict[VerdictWord, Tone] = {
    "changed": "warning",
    "status changed": "warning",
    "only in A": "simulated",
    "only in B": "simulated",
    "undecided": "quiet",
    "same": "good",
}
"""By verdict, in the order in which they are printed."""


Entry = tuple[Pair, ...]
"""Pairs that are shown together: they have one verdict and, if they changed, the same changed fields."""


def diff_blocks(diff: Diff, expand: bool = False) -> Iterator[Element]:
    """Yield the whole comparison. expand: an entry for each pair, and all names."""
    yield Heading(headline(diff), 1)
    yield from paragraphs(sides(diff), "quiet")
    every = diff_entries(diff, expand)
    changed = [entry for entry in every if entry[0].verdict == "changed"]
    for word, words in (("changed", "changed"), ("status changed", "only the status changed")):
        for by, heading in HEADINGS.items():
            if entries := [entry for entry in changed if _match(entry[0]) == by and entry[0].word == word]:
                yield Heading(f"{heading}: {words}", 2)
                yield _table(diff, entries)
    if any(value.endswith("?") for entry in changed for field in changed_fields(entry[0]) for value in field):
        yield from paragraphs(["?: undetermined: several values explain every result; `accprobe show` lists them."], "quiet")
    if found := meanings(diff):
        yield Heading("Consequences for a kernel", 2)
        yield List(tuple(Phrase(sentence, "warning") for sentence in found), "!")
    yield Heading("Every pair", 2)
    for kind in dict.fromkeys(pair.row.kind for pair in diff.pairs) or ("instruction",):
        pairs = [pair for pair in diff.pairs if pair.row.kind == kind]
        yield Paragraph(_counts(f"pairs of {kind}s", pairs, diff.unmeasured if kind == "instruction" else 0))
    if others := tuple(_line(entry, expand) for entry in every if entry not in changed):
        yield List(others)
    if diff.environment:
        yield Heading("Environment", 2)
        changes = ((each.what, each.a or "not recorded", each.b or "not recorded") for each in diff.environment)
        yield table(("what", "A", "B"), changes)


def _table(diff: Diff, changed: Sequence[Entry]) -> Grid:
    a, b = side_names(diff)
    columns = (
        Column(f"{changed[0][0].row.kind}s", lambda row: _names(row[0]), least=24),
        Column("field", lambda row: row[1][0], least=12),
        Column(f"A: {a}", lambda row: row[1][1], least=12),
        Column(f"B: {b}", lambda row: Phrase(row[1][2], "strong"), least=12),
        Column("status", lambda row: Phrase(marked(row[0][0].marks) or "measured and confirmed"), "detail"),
    )
    rows = [(entry, field) for entry in changed for field in changed_fields(entry[0])]
    return tabulate(columns, rows, group=lambda row: id(row[0]))


def changed_fields(pair: Pair) -> list[tuple[str, str, str]]:
    """Return the title and both sides of each changed field."""
    families = _families(pair)
    instruction = [("instruction", *families)] if pair.by == "role" and len(families) == 2 else []
    return [*instruction, *((each.title, each.a, each.b) for each in pair.changes)]


def _match(pair: Pair) -> str:
    """Return the key in HEADINGS."""
    return "role" if pair.by == "role" else pair.row.kind


def _names(entry: Entry) -> str:
    """Return the operands of pairs by role, patterns of the names of other instructions, the titles of other claims."""
    if (match := _match(entry[0])) == "role":
        return _operands(pair.role for pair in entry)
    titles = dict.fromkeys(pair.row.title for pair in entry)
    return ", ".join(brace_patterns(titles)) if match == "instruction" else ";\n".join(titles)


def _line(entry: Entry, expand: bool) -> Phrases:
    """Return the verdict and number of pairs, their families or names, the reason and the marks."""
    first, count = entry[0], len(entry)
    names = _names(entry) if expand or count == 1 else " → ".join(dict.fromkeys(_families(first)))
    undecided = dict.fromkeys(d.title for pair in entry for d in pair.differences if d.verdict == "undecided")
    remark = first.note or ", ".join(undecided)
    return (
        Phrase(first.word, TONES[first.verdict]),
        Phrase(f" {count}: {names}" if count > 1 else f": {names}"),
        Phrase(f"; {remark}" if remark else "", "quiet"),
        Phrase(f" ({marked(first.marks)})" if first.marks else "", "unverified"),
    )


def _counts(what: str, pairs: Sequence[Pair], unmeasured: int) -> Phrases:
    counts = verdict_counts(pairs).items()
    spans = [Phrase(f"{', ' * (i > 0)}{count} {word}", TONES[word]) for i, (word, count) in enumerate(counts)]
    neither = f"; no values on either side: {so_many(unmeasured, 'instruction')}" if unmeasured else ""
    return Phrase(f"{what}: ", "strong"), *spans, Phrase(neither, "quiet")


def verdict_counts(pairs: Iterable[Pair]) -> dict[VerdictWord, int]:
    counts = Counter(pair.word for pair in pairs)
    return {word: counts[word] for word in TONES if counts[word]}


def diff_entries(diff: Diff, expand: bool = False) -> list[Entry]:
    """Return all pairs by verdict: changes by role first, then by the most important field. expand: an entry for each pair."""
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for i, pair in enumerate(diff.pairs):
        by_role = (pair.by, pair.role.d) if pair.by == "role" and pair.verdict == "changed" else ()
        key = (pair.word, by_role, _families(pair), pair.changes, pair.note, pair.marks)
        groups.setdefault((i,) if expand else key, []).append(pair)
    return sorted(map(tuple, groups.values()), key=lambda entry: _importance(entry[0]))


def _importance(pair: Pair) -> tuple[int, int, int]:
    ranks = [IMPORTANCE.index(each.field) for each in pair.changes if each.field in IMPORTANCE]
    return list(TONES).index(pair.verdict), list(HEADINGS).index(_match(pair)), min(ranks, default=len(IMPORTANCE))


def _families(pair: Pair) -> tuple[str, ...]:
    """Return "wgmma" of A and "mma.sync kind::f8f6f4" of B; "products" of products."""
    families = (f"{inst.family.name}{f' kind::{inst.kind}' if inst.kind else ''}" for inst in pair.instructions)
    return tuple(families) or (f"{pair.row.kind}s",)


def meanings(diff: Diff) -> list[str]:
    """Return the consequences of the changes, with the operands where a field has several."""
    changes = ((pair, each) for pair in diff.pairs for each in pair.changes if each.means)
    sentences = grouped(((each.field, each.means), pair.role) for pair, each in changes)
    several = Counter(field for field, _ in sentences)
    return [
        f"{title(field)}{f' of {_operands(roles)}' if several[field] > 1 else ''}: {sentence}"
        for (field, sentence), roles in sentences.items()
    ]


def _operands(roles: Iterable[InstructionRole]) -> str:
    """Return "f16, bf16 → f32; e4m3, e4m3 × e5m2 → f16"."""
    results: dict[str, dict[str, None]] = {}
    for role in roles:
        formats = " × ".join(dict.fromkeys((role.a.name, role.b.name)))
        operands, _, result = str(role).replace(role.operands, formats, 1).partition(" → ")
        results.setdefault(result, {})[operands] = None
    return "; ".join(f"{', '.join(operands)} → {result}" for result, operands in results.items())


def sides(diff: Diff) -> tuple[str, str]:
    """Return "A: NVIDIA H200, sm_90a, Hopper: 132 confirmed", and B."""
    return _side("A", diff.a), _side("B", diff.b)


def _side(side: str, report: Report) -> str:
    name = f"{side}: {', '.join(dict.fromkeys((report.device.name, report.device.architecture, generation(report))))}"
    if report.device.kind == "simulated":
        rows = [row for row in report.measured if row.explains]
        families = Counter(row.instruction.family.name for row in rows)
        which = " and ".join(so_many(count, f"{name} instruction") for name, count in families.items())
        matched = f"; models of {which} match {explained_text(one for row in rows for one in row.explains)}" if rows else ""
        models = f"published models of {so_many(len(report.measured), 'instruction')}; nothing was measured"
        return f"{name}: SIMULATED, {models}{matched}"
    missing = report.measurable - len(report.measured) if report.instructions else 0
    return ": ".join(filter(None, (name, "stopped early" * bool(missing), status_counts(report.claims, missing))))


def requirement_blocks(outcomes: Sequence[Outcome], missing: str = "") -> Iterator[Element]:
    """Yield how many requirements passed, then a line for each; below a failed one, the values found and their names.

    missing: what the run did not measure, if it stopped early, which fails the check.
    """
    if missing:
        yield Heading(Phrase(f"FAILED: the run stopped early, {missing} not measured", "bad"), 1)
    failed = sum(not outcome.passed for outcome in outcomes)
    of = so_many(len(outcomes), "requirement")
    yield Heading(Phrase(f"{failed} of {of} failed", "bad") if failed else Phrase(f"{len(outcomes)} of {of} passed", "good"), 1)
    yield List(tuple(item for outcome in outcomes for item in _items(outcome)))


def _items(outcome: Outcome) -> Iterator[tuple[Phrase, ...] | List]:
    verdict = Phrase("passed", "good") if outcome.passed else Phrase("FAILED", "bad")
    yield verdict, Phrase(f"  {outcome.requirement.text}"), Phrase(f"  ({_count(outcome)})", "quiet")
    if outcome.failures:
        yield List(tuple(f"found {value}: {_listed(names)}" for value, names in outcome.failures.items()))


def _listed(names: Sequence[str]) -> str:
    """Return the names of instructions as patterns, others as they are."""
    return "; ".join(names) if any(" " in name for name in names) else ", ".join(brace_patterns(names))


def _count(outcome: Outcome) -> str:
    if not outcome.matched:
        return "; ".join(filter(None, ("nothing measured matches", outcome.meant)))
    broken = len(set().union(*outcome.failures.values()))
    return f"{outcome.matched - broken} of {outcome.matched} meet it"
