"""A comparison: the headline, what changed, what is on one side alone, what it means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from accprobe.compare.diff import Diff, generation, marked
from accprobe.compare.differences import VerdictWord
from accprobe.compare.headline import headline
from accprobe.render.content import changes
from accprobe.render.content.changes import AlikePairs
from accprobe.render.terminal.console import Hanging, ruled
from accprobe.render.terminal.report import COLUMN_GAP
from accprobe.report.words import so_many

STYLES: dict[VerdictWord, str] = {
    "changed": "yellow",
    "status changed": "yellow",
    "only in A": "magenta",
    "only in B": "magenta",
    "undecided": "cyan",
    "same": "green",
}
MARK = "red"


def diff_report(diff: Diff, width: int, expand: bool = False) -> RenderableType:
    """The whole comparison; `expand`: one entry a pair."""
    parts: list[RenderableType] = [Text(headline(diff), "bold")]
    parts.append(Hanging([Text(side, "dim") for side in changes.sides(diff)], 0))
    for heading, entries in changes.changed_tables(diff, expand).items():
        parts += [Text(f"\n{heading}", "bold"), _table(diff, entries, width)]
    if diff.products:
        parts += [Text(f"\n{changes.PRODUCTS_HEADING}", "bold"), Hanging(list(_products(diff)), 0)]
    below = [*_verdicts(diff, expand), *_environment(diff)]
    parts += [Text(), Hanging(below, 0)] if below else []
    if told := changes.meanings(diff):
        parts += [Text("\nWhat it means for a kernel", "bold"), Hanging([Text(f"! {line}", "yellow") for line in told], 0)]
    if diff.pairs or not diff.products:
        parts += [Text(), Hanging([_summary(diff)], 0)]
    return Group(*parts)


def _table(diff: Diff, entries: Sequence[AlikePairs], width: int) -> RenderableType:
    """Names beside their fields; where one would not be whole there, each above its own."""
    headers = ("field", f"A: {generation(diff.a)}", f"B: {generation(diff.b)}")
    every = [(field.title, field.a, field.b) for entry in entries for field in entry.fields]
    title, a, b = (max(map(len, column)) for column in zip(headers, *every, strict=True))
    names = [_name(entry) for entry in entries]
    longest = max(line.cell_len for name in names for line in name)
    room = width - title - 3 * COLUMN_GAP
    if longest + a + b <= room:
        return _beside(headers, names, entries)
    of_a = min(a, max(room // 2, room - b))
    return _above(headers, (title, of_a, min(b, room - of_a)), names, entries)


def _beside(headers: Sequence[str], names: Sequence[Sequence[Text]], entries: Sequence[AlikePairs]) -> Table:
    table = ruled(left=0)
    for header in ("", *headers):
        table.add_column(header)
    for name, entry in zip(names, entries, strict=True):
        for line, fields in zip_longest(name, _fields(entry), fillvalue=()):
            table.add_row(line or "", *fields)
        table.add_section()
    return table


def _above(
    headers: Sequence[str], widths: Sequence[int], names: Sequence[Sequence[Text]], entries: Sequence[AlikePairs]
) -> RenderableType:
    """The fields further in than the names, by a column that is empty."""

    def table(rows: Iterable[Sequence[Text]], show_header: bool = False) -> Table:
        one = ruled(left=0)
        one.show_header = show_header
        for header, wide in zip(("", *headers), (0, *widths), strict=True):
            one.add_column(header, width=wide, overflow="fold")
        for row in rows:
            one.add_row("", *row)
        return one

    parts: list[RenderableType] = [table((), True)]
    for name, entry in zip(names, entries, strict=True):
        parts += [*name, table(_fields(entry)), Text()]
    return Group(*parts[:-1])


def _name(entry: AlikePairs) -> list[Text]:
    """A line each: what the pairs are, what tells them from others of that name, and who proved them."""
    lines = [Text(line, "bold") for line in _pieces(entry)]
    lines += [Text(entry.apart, "dim")] if entry.apart else []
    return [*lines, Text(entry.marks, MARK)] if entry.marks else lines


def _fields(entry: AlikePairs) -> list[tuple[Text, Text, Text]]:
    return [(Text(f.title), Text(f.a), Text(f.b, "bold")) for f in entry.fields]


def _pieces(entry: AlikePairs) -> list[str]:
    return changes.instruction_patterns(entry.pairs) if entry.first.by == "name" else entry.name.split("; ")


def _verdicts(diff: Diff, expand: bool) -> Iterator[Text]:
    """What is not in the tables; what is the same by number alone, but for `expand`: nobody asks for the names."""
    same: Counter[tuple[str, str]] = Counter()
    for told in changes.verdicts(diff, expand):
        if told.word == "same" and not expand:
            same[told.families, told.marks] += len(told.pairs)
        elif told.word not in changes.CHANGED:
            yield _told(told.word, len(told.pairs), told.instructions, told.remark, told.marks)
    for (families, marks), count in same.items():
        yield _told("same", count, families, "", marks)


def _told(verdict: VerdictWord, count: int, what: str, remark: str, marks: str) -> Text:
    text = Text(verdict, STYLES[verdict])
    text.append(f" {count}: {what}" if count > 1 else f": {what}", "default")
    text.append(f"; {remark}" if remark else "", "dim")
    return text.append(f" ({marks})" if marks else "", MARK)


def _products(diff: Diff) -> Iterator[Text]:
    """Each pair that is not the same, and in what."""
    for pair in changes.told_products(diff):
        line = Text(pair.word, STYLES[pair.word]).append(f"  {pair.row.title}", "bold")
        yield line.append(f" ({marked(pair.marks)})" if pair.marks else "", MARK)
        if why := changes.why_apart(diff, pair):
            yield Text(f"  {why}")
        for each in pair.differences:
            unsure = " (undecided)" if each.verdict == "undecided" else ""
            yield Text(f"    {each.title}: {each.a} → {each.b}{unsure}", "dim" if unsure else "")
    counts = Text("products: ", "bold")
    for i, (verdict, count) in enumerate(changes.verdict_counts(diff.products).items()):
        counts.append(", " if i else "").append(f"{count} {verdict}", STYLES[verdict])
    yield counts


def _environment(diff: Diff) -> Iterator[Text]:
    for change in diff.environment:
        yield Text(f"environment: {change.what}: {change.a or 'not told'} → {change.b or 'not told'}", "dim")


def _summary(diff: Diff) -> Text:
    text = Text("pairs: ", "bold")
    for i, (verdict, count) in enumerate(changes.verdict_counts(diff.pairs).items()):
        text.append(", " if i else "").append(f"{count} {verdict}", STYLES[verdict])
    if diff.unmeasured:
        text.append(f"; {so_many(diff.unmeasured, 'instruction')} measured on neither side", "dim")
    return text
