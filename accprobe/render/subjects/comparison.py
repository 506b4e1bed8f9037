"""A comparison: the headline, what changed, what it means for a kernel, and every other verdict; like pairs together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from accprobe.compare.diff import By, Diff, Pair, generation, marked
from accprobe.compare.differences import VerdictWord
from accprobe.compare.headline import headline
from accprobe.compare.products import ProductPair, contrast
from accprobe.model.explained import explained_text
from accprobe.model.fields import IMPORTANCE, title
from accprobe.render.document import Column, Element, Grid, Heading, List, Paragraph, Phrase, Phrases, Tone, table
from accprobe.render.subjects.patterns import brace_patterns
from accprobe.render.subjects.verification import coverage
from accprobe.report.report import Report
from accprobe.report.words import so_many

HEADINGS: dict[By, str] = {
    "role": "What each generation offers for the same operands",
    "name": "The same instruction",
}

CHANGED: tuple[VerdictWord, ...] = ("changed", "status changed")
ORDER: tuple[VerdictWord, ...] = (*CHANGED, "only in A", "only in B", "undecided", "same")
"""In which verdicts are told."""


TONES: dict[VerdictWord, Tone] = {
    "changed": "warning",
    "status changed": "warning",
    "only in A": "simulated",
    "only in B": "simulated",
    "undecided": "quiet",
    "same": "good",
}

BOTH_CONFIRMED = "measured and confirmed"
"""What stands where nothing marks either side."""


@dataclass(frozen=True)
class Field:
    """One field of an entry: its title and both sides as tables show them."""

    name: str
    a: str
    b: str

    @property
    def title(self) -> str:
        return "instruction" if self.name == "instruction" else title(self.name)


@dataclass(frozen=True)
class AlikePairs:
    """Pairs that changed alike. name: the roles, or the names as patterns; undecided: fields that are so in some of them.

    apart: where others have the same name, what tells these from them: formats, kinds or instructions.
    """

    name: str
    pairs: tuple[Pair, ...]
    fields: tuple[Field, ...]
    undecided: tuple[str, ...]
    apart: str = ""

    @property
    def first(self) -> Pair:
        return self.pairs[0]

    @property
    def full_name(self) -> str:
        return f"{self.name} ({self.apart})" if self.apart else self.name

    @property
    def instructions(self) -> str:
        """The names as patterns: those of A, and those of B where they are others."""
        both = (", ".join(instruction_patterns(self.pairs, side)) for side in ("A", "B"))
        return " → ".join(dict.fromkeys(filter(None, both)))

    @property
    def remark(self) -> str:
        """Why a side has none, or which fields are undecided."""
        return self.first.note or ", ".join(map(title, self.undecided))

    @property
    def families(self) -> str:
        """The instructions' families, of A and of B."""
        return " → ".join(dict.fromkeys(_family(self.first)))

    @property
    def word(self) -> VerdictWord:
        return self.first.word

    @property
    def marks(self) -> str:
        """ "B simulated", on every entry that has such a side."""
        return marked(self.first.marks)


def diff_blocks(diff: Diff, expand: bool = False) -> Iterator[Element]:
    """Yield the whole comparison. expand: an entry a pair, and the names of what is the same."""
    yield Heading(headline(diff), 1)
    yield from (Paragraph(Phrase(side, "quiet")) for side in sides(diff))
    for heading, entries in changed_tables(diff, expand).items():
        yield Heading(heading, 2)
        yield _table(diff, entries)
    if told := meanings(diff):
        yield Heading("What it means for a kernel", 2)
        yield List(tuple(Phrase(sentence, "warning") for sentence in told), "!")
    if diff.products:
        yield Heading("Whole products", 2)
        yield from _products(diff)
    if diff.pairs or not diff.products:
        yield Heading("Every pair", 2)
        yield Paragraph(_counts("pairs", diff.pairs, diff.unmeasured))
        if others := tuple(_others_told(diff, expand)):
            yield List(others)
    if diff.environment:
        yield Heading("Environment", 2)
        changes = ((each.what, each.a or "not recorded", each.b or "not recorded") for each in diff.environment)
        yield table(("what", "A", "B"), changes)


def _table(diff: Diff, entries: Sequence[AlikePairs]) -> Grid:
    columns = (
        Column("instructions", least=24),
        Column("field", least=12),
        Column(f"A: {generation(diff.a)}", least=12),
        Column(f"B: {generation(diff.b)}", least=12),
        Column("status", "detail"),
    )
    rows = [(entry, field) for entry in entries for field in entry.fields]
    ends = (i for i, ((entry, _), (below, _)) in enumerate(pairwise(rows)) if entry is not below)
    cells = ((entry.full_name, field.title, field.a, Phrase(field.b, "strong"), _status(entry.marks)) for entry, field in rows)
    return Grid(columns, tuple(cells), frozenset(ends))


def _status(marks: str) -> Phrase:
    return Phrase(marks, "unverified") if marks else Phrase(BOTH_CONFIRMED, "confirmed")


def _others_told(diff: Diff, expand: bool) -> Iterator[Phrases]:
    """Yield what is not in the tables; what is the same by number alone, but for `expand`."""
    same: Counter[tuple[str, str]] = Counter()
    for told in verdicts(diff, expand):
        if told.word == "same" and not expand:
            same[told.families, told.marks] += len(told.pairs)
        elif told.word not in CHANGED:
            yield _told(told.word, len(told.pairs), told.instructions, told.remark, told.marks)
    for (families, marks), count in same.items():
        yield _told("same", count, families, "", marks)


def _told(verdict: VerdictWord, count: int, what: str, remark: str, marks: str) -> Phrases:
    return (
        Phrase(verdict, TONES[verdict]),
        Phrase(f" {count}: {what}" if count > 1 else f": {what}"),
        Phrase(f"; {remark}" if remark else "", "quiet"),
        Phrase(f" ({marks})" if marks else "", "unverified"),
    )


def _products(diff: Diff) -> Iterator[Element]:
    """Yield each pair that is not the same, and in what."""
    yield Paragraph(_counts("products", diff.products))
    for pair in told_products(diff):
        marks = marked(pair.marks)
        yield Heading(
            (Phrase(f"{pair.word}  ", TONES[pair.word]), Phrase(pair.row.title, "strong"), Phrase(f"  {marks}", "bad")), 3
        )
        if why := why_apart(diff, pair):
            yield Paragraph(why)
        if pair.differences:
            rows = ((each.title, each.a, each.b, each.verdict) for each in pair.differences)
            yield table(("field", "A", "B", Column("verdict", "detail")), rows)


def _counts(what: str, pairs: Sequence[Pair | ProductPair], unmeasured: int = 0) -> Phrases:
    counts = verdict_counts(pairs).items()
    spans = [Phrase(f"{', ' * (i > 0)}{count} {verdict}", TONES[verdict]) for i, (verdict, count) in enumerate(counts)]
    neither = f"; {so_many(unmeasured, 'instruction')} measured on neither side" if unmeasured else ""
    return Phrase(f"{what}: ", "strong"), *spans, Phrase(neither, "quiet")


def changed_pairs(diff: Diff, expand: bool = False) -> list[AlikePairs]:
    """What changed, by role first. `expand`: one entry a pair."""
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for i, pair in enumerate(pair for pair in diff.pairs if pair.verdict == "changed"):
        like = (i,) if expand else (pair.by, pair.role.d, _family(pair), _fields(pair), pair.marks)
        groups.setdefault(like, []).append(pair)
    return _told_apart(sorted(map(_entry, groups.values()), key=_importance))


def changed_tables(diff: Diff, expand: bool = False) -> dict[str, list[AlikePairs]]:
    """What changed, by heading; first values, then where the status alone did."""
    found = changed_pairs(diff, expand)
    tables = {
        f"{heading}: {word}": [entry for entry in found if (entry.first.by, entry.word) == (by, word)]
        for by, heading in HEADINGS.items()
        for word in CHANGED
    }
    return {heading: entries for heading, entries in tables.items() if entries}


def _told_apart(entries: Sequence[AlikePairs]) -> list[AlikePairs]:
    """Those of one name with what differs between them, the shortest that is another of each."""
    alike: dict[str, list[AlikePairs]] = {}
    for entry in entries:
        alike.setdefault(entry.name, []).append(entry)
    tell = {
        name: next((tell for tell in (_formats, _kinds) if len(set(map(tell, same))) == len(same)), _instructions)
        for name, same in alike.items()
        if len(same) > 1
    }
    return [replace(entry, apart=tell[entry.name](entry)) if entry.name in tell else entry for entry in entries]


def _formats(entry: AlikePairs) -> str:
    """ "e4m3 × e5m2, e5m2 × e4m3"."""
    return ", ".join(dict.fromkeys(f"{pair.role.a} × {pair.role.b}" for pair in entry.pairs))


def _kinds(entry: AlikePairs) -> str:
    """ "wgmma → mma.sync kind::f8f6f4"."""
    sides = ([row.instruction for row in rows if row] for rows in zip(*((p.a, p.b) for p in entry.pairs), strict=True))
    return " → ".join(
        ", ".join(dict.fromkeys(f"{inst.family.name}{f' kind::{inst.kind}' * bool(inst.kind)}" for inst in side))
        for side in sides
    )


def _instructions(entry: AlikePairs) -> str:
    return entry.instructions


def _others(diff: Diff, verdict: VerdictWord, expand: bool = False) -> list[AlikePairs]:
    """Every pair of a verdict in which no field is told, or only which are undecided."""
    groups: dict[tuple[object, ...], list[Pair]] = {}
    for i, pair in enumerate(pair for pair in diff.pairs if pair.word == verdict):
        groups.setdefault((i,) if expand else (pair.by, _family(pair), pair.note, pair.marks), []).append(pair)
    return [_entry(group) for group in groups.values()]


def verdicts(diff: Diff, expand: bool = False) -> list[AlikePairs]:
    """Every pair, like ones together."""
    return [alike for verdict in ORDER for alike in _others(diff, verdict, expand)]


def meanings(diff: Diff) -> list[str]:
    """What the changes mean for a kernel, a sentence each, with what it is true of where not of everything of that field."""
    sentences: dict[tuple[str, str], dict[str, None]] = {}
    for pair in diff.pairs:
        for difference in pair.differences:
            if difference.verdict == "changed":
                sentences.setdefault((difference.field, difference.means), {})[str(pair.role)] = None
    several = Counter(field for field, _ in sentences)
    return [
        f"{title(field)}{f' of {_operands(roles)}' if several[field] > 1 else ''}: {sentence}"
        for (field, sentence), roles in sentences.items()
    ]


def sides(diff: Diff) -> tuple[str, str]:
    """ "A: NVIDIA H200, sm_90a, Hopper: 132 confirmed"."""
    return _side("A", diff.a), _side("B", diff.b)


def _side(side: str, report: Report) -> str:
    about = (report.device.name, report.device.architecture, generation(report))
    name = f"{side}: {', '.join(dict.fromkeys(about))}"
    if report.device.kind == "simulated":
        models = f"published models of {so_many(len(report.measured), 'instruction')}; nothing was measured"
        return f"{name}: SIMULATED, {models}{_explained(report)}"
    counts = Counter(row.status for row in report.measured)
    of_products = Counter(row.status for row in report.products)
    told = [f"{name}: {', '.join(f'{count} {status}' for status, count in counts.items())}"] if counts else [name]
    if of_products:
        told.append(f"products: {', '.join(f'{count} {status}' for status, count in of_products.items())}")
    return "; ".join(filter(None, (*told, coverage([row.verification for row in report.measured if row.verification]))))


def _explained(report: Report) -> str:
    """ "; 8 of mma.sync explain 40,000 words recorded on a B200 (MATLAB-tensor-core b12b5a7)"."""
    rows = [row for row in report.measured if row.explains]
    families = Counter(row.instruction.family.name for row in rows)
    which = " and ".join(f"{count} of {family}" for family, count in families.items())
    return f"; {which} explain {explained_text(one for row in rows for one in row.explains)}" if rows else ""


def verdict_counts(pairs: Iterable[Pair | ProductPair]) -> dict[VerdictWord, int]:
    """How many have which verdict, in the order in which verdicts are told."""
    counts = Counter(pair.word for pair in pairs)
    return {word: counts[word] for word in ORDER if counts[word]}


def told_products(diff: Diff) -> list[ProductPair]:
    """The pairs of products that are not the same, in the order of their verdicts."""
    return [pair for word in ORDER for pair in diff.products if pair.word == word != "same"]


def why_apart(diff: Diff, pair: ProductPair) -> str:
    """ "NVIDIA H100: 4 slices of 1024, partials bf16; NVIDIA H200: one chain"."""
    names = (diff.a.device.name, diff.b.device.name)
    a, b = contrast(pair)
    of_a, of_b = names if names[0] != names[1] else ("A", "B")
    return f"{of_a}: {a}; {of_b}: {b}" if a and pair.verdict == "changed" else ""


def _entry(pairs: Sequence[Pair]) -> AlikePairs:
    first = pairs[0]
    undecided = dict.fromkeys(d.field for pair in pairs for d in pair.differences if d.verdict == "undecided")
    fields = [Field(name, a, b) for name, a, b in _fields(first)]
    if first.by == "role" and first.verdict == "changed" and first.a and first.b:
        fields.insert(0, Field("instruction", *_family(first)))
    name = _operands(str(pair.role) for pair in pairs) if first.by == "role" else ", ".join(instruction_patterns(pairs))
    return AlikePairs(name, tuple(pairs), tuple(fields), tuple(undecided))


def instruction_patterns(pairs: Iterable[Pair], side: str = "") -> list[str]:
    """The instructions as patterns: of side A or B, or of the side that has them."""
    rows = [{"A": pair.a, "B": pair.b}.get(side, pair.a or pair.b) for pair in pairs]
    return brace_patterns(dict.fromkeys(row.name for row in rows if row))


def _fields(pair: Pair) -> tuple[tuple[str, str, str], ...]:
    return tuple((d.field, d.a, d.b) for d in pair.differences if d.verdict == "changed")


def _importance(entry: AlikePairs) -> tuple[bool, int]:
    """By role first; then by the first feature that changed, other opcodes last."""
    ranks = [IMPORTANCE.index(field.name) for field in entry.fields if field.name in IMPORTANCE]
    return entry.first.by == "name", min(ranks, default=len(IMPORTANCE))


def _family(pair: Pair) -> tuple[str, ...]:
    return tuple(row.instruction.family.name for row in (pair.a, pair.b) if row)


def _operands(roles: Iterable[str]) -> str:
    """ "F16, BF16 → f32; FP8 → f16"."""
    results: dict[str, dict[str, None]] = {}
    for role in roles:
        operands, _, result = role.partition(" → ")
        results.setdefault(result, {})[operands] = None
    return "; ".join(f"{', '.join(operands)} → {result}" for result, operands in results.items())
