"""A report, or a comparison, as Markdown for issues and reviews: tables in pipes, everything from a report escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from accprobe.compare.diff import Diff, generation
from accprobe.compare.headline import headline
from accprobe.render import changes, sections, sweeps
from accprobe.render.cells import Cells, cells, lines, meanings
from accprobe.render.hanging import GLUE
from accprobe.render.patterns import patterns
from accprobe.render.terminal import HEADERS, legend, reasons, summary, title
from accprobe.report.report import Report, Row
from accprobe.report.words import effective_bits

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~&!])")


def report_markdown(report: Report, expand: bool = False) -> str:
    """The whole report as a table; `expand`: one line an instruction."""
    return _text(_report(report, expand))


def rows_markdown(rows: Iterable[Row]) -> str:
    """Everything that is known of some instructions."""
    return _text(line for row in rows for line in _row(row))


def diff_markdown(diff: Diff, expand: bool = False) -> str:
    """The whole comparison; `expand`: one entry a pair."""
    return _text(_diff(diff, expand))


def _report(report: Report, expand: bool) -> Iterator[str]:
    every = [cells(row) for row in report.measured]
    columns = [name for name in Cells._fields if any(getattr(one, name) for one in every)]
    shown = lines(report.measured, columns, collapse=not expand)
    yield f"## {_plain(report.device.name)}, {_plain(report.device.architecture)}"
    yield from _paragraphs(title(report).plain.split("\n"))
    if shown:
        header = ["instruction", *(getattr(HEADERS, name).replace("\n", " ") for name in columns)]
        table = ((_code(line.pattern), *(_plain(getattr(line.cells, name)) for name in columns)) for line in shown)
        yield _table(header, table)
    if told := meanings(report):
        yield _list(map(_plain, told))
    yield from _paragraphs(legend(report.measured))
    if weak := reasons(report.measured):
        yield _list(_plain(f"{status}: {why}: {', '.join(patterns(names))}") for (status, why), names in weak.items())
    yield from _paragraphs(summary(report, len(shown)).plain.split("\n"))
    for problem, group in sweeps.problems(report.sweeps):
        yield f"### {_plain(problem)}"
        fields, swept = sweeps.table(group)
        yield _table([sweeps.header(field) for field in fields], ([_plain(cell.plain) for cell in line] for line in swept))
        yield _list(_plain(remark.plain) for remark in sweeps.remarks(group, report.device.kind == "simulated"))


def _row(row: Row) -> Iterator[str]:
    yield f"## {_code(row.name)}: {row.status}{f': {_plain(row.reason)}' if row.reason else ''}"
    if row.lowering:
        ran = ", ".join(f"{count}×{_code(opcode)}" for opcode, count in row.lowering)
        digest = f", cubin sha256 {_code(row.cubin_sha256)}" if row.cubin_sha256 else ""
        yield f"Ran as {ran}; {sections.witness(row)}{digest}."
    if bits := effective_bits(row):
        yield f"Effective bits: **{_plain(bits)}**."
    if row.model:
        yield "### Summation tree"
        yield _block(sections.tree(row.model))
        yield "### Arithmetic"
        yield _list(map(_plain, sections.arithmetics(row, row.model)))
    if row.findings:
        found, notes = sections.findings(row)
        yield "### Findings"
        table = ([_code(line.feature), *map(_plain, (line.value, line.bound, line.note))] for line in found)
        yield _table(("feature", "value", "bound", "note"), table)
        yield from _paragraphs(f"{mark} {note}" for mark, note in notes.items())
    if row.verification or row.rivals:
        yield "### Verification"
        yield _list(map(_plain, (*sections.verification(row), *(f"rivals: {line}" for line in sections.rivals(row)))))
    if row.evidence:
        yield "### Evidence"
        yield "Bit patterns (values) of the products that are not 0 × 0, of C → of D."
        for heading, exchanges in sections.evidence(row):
            yield f"**{_plain(heading)}**"
            yield _block(exchanges)


def _diff(diff: Diff, expand: bool) -> Iterator[str]:
    yield f"## {_plain(headline(diff))}"
    yield _list(map(_plain, changes.sides(diff)))
    found = changes.changed(diff, expand)
    for by, heading in changes.HEADINGS.items():
        if entries := [entry for entry in found if entry.first.by == by]:
            yield f"### {heading}"
            table = (
                (_plain(entry.name), *map(_plain, (field.title, field.a, field.b, entry.marks or "measured and confirmed")))
                for entry in entries
                for field in entry.fields
            )
            yield _table(("instructions", "field", f"A: {generation(diff.a)}", f"B: {generation(diff.b)}", "proof"), table)
    if told := changes.meanings(diff):
        yield "### What it means for a kernel"
        yield _list(map(_plain, told))
    yield "### Every verdict"
    verdicts = (
        tuple(map(_plain, (one.verdict, str(one.pairs), one.instructions, one.remark, one.marks or "measured and confirmed")))
        for one in changes.verdicts(diff, expand)
    )
    yield _table(("verdict", "pairs", "instructions", "remark", "proof"), verdicts)
    if diff.environment:
        yield "### Environment"
        rows = (
            tuple(map(_plain, (change.what, change.a or "not told", change.b or "not told"))) for change in diff.environment
        )
        yield _table(("what", "A", "B"), rows)


def _plain(text: str) -> str:
    """Text that no Markdown reader takes for markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.replace(GLUE, " ").split()))


def _code(text: str) -> str:
    """Text in backticks, which no table splits; one that has a backtick is escaped instead."""
    if "`" in text:
        return _plain(text)
    return "`" + " ".join(text.split()).replace("|", r"\|") + "`"


def _block(lines: Iterable[str]) -> str:
    return "\n".join(f"    {line.replace(GLUE, ' ')}" for line in lines)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return map(_plain, texts)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    written = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in written)


def _text(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks) + "\n"
