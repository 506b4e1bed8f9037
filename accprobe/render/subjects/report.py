"""A report as a whole: the headline, the table of instructions, what marks mean, what is not confirmed, what measured it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, get_args

from accprobe.compare.roles import role_of
from accprobe.model.explained import explained_text
from accprobe.render.document import Column, Element, Grid, Heading, List, Paragraph, Phrase, Phrases, Tone, text_of
from accprobe.render.subjects.appendix import glossary, reproduction
from accprobe.render.subjects.instruction import instruction_blocks, instruction_section
from accprobe.render.subjects.patterns import brace_patterns, pattern_spans
from accprobe.render.subjects.products import alarms, products_blocks, products_page
from accprobe.render.subjects.sweeps import sweep_page, sweep_summary, sweep_tables
from accprobe.render.subjects.verification import coverage
from accprobe.report.coverage_status import was_measured
from accprobe.report.report import Report
from accprobe.report.rows import NOT_MEASURED, Row, Status
from accprobe.report.words import detour, effective_bits, found, is_narrow, is_unknown, ran_as, so_many
from accprobe.sass import opcodes
from accprobe.sass.lowering import is_ordinary

FACTS = {"sm_count": "{} SMs", "memory_gib": "{} GiB", "max_clock_mhz": "{} MHz at most"}
"""Facts about a device in words; others are written after their names."""

HEADLINE_GROUPS = 2
"""Groups of narrow accumulators that a headline names."""

COLUMNS = {
    "ran_as": Column("ran as", least=12),
    "effective_bits": Column("effective\nbits", whole=True),
    "alignment_bits": Column("align.\nbits F", whole=True),
    "result_rounding": Column("result\nrounding", whole=True),
    "products_per_sum": Column("products per\nfused sum", "context"),
    "addend": Column("C added in", "context", whole=True),
    "status": Column("status", whole=True),
    "alignment_rounding": Column("align.\nrounding", "detail"),
    "dots": Column("dots\nverified", "detail"),
    "cells": Column("tile elements\ncovered", "detail"),
    "events": Column("events\ncovered", "detail"),
    "alternatives": Column("alternatives\nsurviving/tested", "detail"),
}
"""Columns of the table beside the instruction, by field of `RowCells`."""

EFFORT = ("dots", "cells", "events", "alternatives")
"""Cells that say how hard an instruction was tried, not what it does: like instructions share a line although these differ."""


class RowCells(NamedTuple):
    """The outcome of one instruction; instructions with equal cells differ in nothing that a table shows."""

    ran_as: str
    effective_bits: str
    alignment_bits: str
    result_rounding: str
    products_per_sum: str
    addend: str
    status: Status
    alignment_rounding: str
    dots: str
    cells: str
    events: str
    alternatives: str


class TableLine(NamedTuple):
    """One line of the table: a pattern of instructions that are alike, one of them, and the cells of all."""

    pattern: str
    row: Row
    cells: RowCells

    def span(self, column: str) -> Phrase:
        tones: dict[str, Tone] = {"status": self.row.status}
        tones |= {"effective_bits": "narrow"} if is_narrow(self.row) else {}
        tones |= {"ran_as": "converted"} if detour(self.row) else {}
        return Phrase(getattr(self.cells, column), tones.get(column, ""))


def report_blocks(report: Report, expand: bool = False, every_sweep: bool = False) -> Iterator[Element]:
    """Yield the whole report. expand: a line an instruction; every_sweep: each configuration, not an operand type a line."""
    yield from banner_blocks(report)
    shown = lines(report.measured, collapse=not expand)
    if is_of_instructions(report):
        yield Heading(report_headline(report), 1)
        yield from _instructions(report, shown)
    yield from map(Paragraph, (*(summary(report, len(shown)) if is_of_instructions(report) else ()), *report_title(report)))
    if report.products:
        yield from products_blocks(report.products, expand)
    if report.sweeps:
        simulated = report.device.kind == "simulated"
        yield from sweep_tables(report.sweeps, expand, simulated) if every_sweep else sweep_summary(report.sweeps, simulated)


def rows_blocks(report: Report) -> Iterator[Element]:
    """Yield all that is known of each product and instruction."""
    yield from banner_blocks(report)
    yield from products_blocks(report.products, expand=True) if report.products else ()
    for row in report.instructions:
        yield from instruction_blocks(row)


def report_page(report: Report, plots: bool = True) -> Iterator[Element]:
    """Yield a page: a line and a section an instruction, then what the words mean and how to measure it again."""
    of_instructions = is_of_instructions(report)
    yield from banner_blocks(report)
    yield Heading(report_headline(report) if of_instructions else f"{report.device.name}, {report.device.architecture}", 1)
    if loud := [(Phrase(f"{row.title}: ", "strong"), alarm) for row in report.products for alarm in alarms(row)]:
        yield List(tuple(loud), "!")
    written = lines(report.measured, collapse=False)
    if of_instructions:
        yield from _instructions(report, written, filtered=True)
    if report.products:
        yield from products_page(report.products)
    if report.sweeps:
        yield from sweep_page(report.sweeps, report.device.kind == "simulated", plots)
    if of_instructions:
        yield Heading("Instructions", 2, "instructions")
        yield from (instruction_section(each.row, f"i{i}") for i, each in enumerate(written))
    yield Heading("Measured with", 2, "measured")
    yield from map(Paragraph, (*(summary(report) if of_instructions else ()), *report_title(report)))
    yield from glossary()
    yield from reproduction(report)


def is_of_instructions(report: Report) -> bool:
    """A report may have whole products or sweeps alone."""
    return bool(report.instructions) or not (report.products or report.sweeps)


def banner_blocks(report: Report) -> Iterator[Element]:
    """Yield what has to be known before anything else is read: that no hardware answered, or not now."""
    device = report.device
    if device.kind == "simulated":
        because = f"no GPU found ({device.reason}); " if device.reason else ""
        never = "; no probe has run on hardware of this architecture" if _is_published(report) else ""
        text = f"SIMULATED: {because}these are published models, nothing was measured{never}"
        yield Paragraph(Phrase(text, "bad"), boxed=True)
    elif device.kind == "cpu" and device.reason:
        text = f"no GPU found ({device.reason}): the processor's own dot products were measured"
        yield Paragraph(Phrase(text, "warning"), boxed=True)
    elif device.kind == "replay":
        yield Paragraph(Phrase("REPLAYED from a recording: nothing was measured now", "replayed"), boxed=True)


def _is_published(report: Report) -> bool:
    """Whether nothing was even evaluated, and no recorded report is of the architecture."""
    return any(row.reason == NOT_MEASURED for row in report.instructions) and not was_measured(report.device.architecture)


def report_headline(report: Report) -> str:
    """Return the result in one line: narrow accumulators, then how many instructions ended in which status."""
    narrow = list(dict.fromkeys(_accumulates(row) for row in report.measured if is_narrow(row)))
    shown = narrow[:HEADLINE_GROUPS] + [f"{len(narrow) - HEADLINE_GROUPS} more"] * (len(narrow) > HEADLINE_GROUPS)
    counts = Counter(row.status for row in report.instructions if row.status != "skipped")
    total = sum(counts.values())
    ended = [f"{count:,} of {so_many(total, 'instruction')} {status}" for status, count in counts.most_common()]
    return f"{report.device.name}: {'; '.join([*shown, ', '.join(ended) or 'no instruction was measured'])}"


def _accumulates(row: Row) -> str:
    """ "FP8 wgmma accumulates in 13 fraction bits (e8m13), truncated (RZ)"."""
    inst = row.instruction
    bits, _, register = effective_bits(row).partition(" ")
    rounding = row.findings.get("result_rounding")
    truncated = ", truncated (RZ)" if rounding and rounding.value == "RZ" else ""
    name = f"{role_of(inst).operands} {inst.name.partition('.')[0]}"
    return f"{name} accumulates in {bits} fraction bits {register}{truncated}"


def _instructions(report: Report, shown: Sequence[TableLine], filtered: bool = False) -> Iterator[Element]:
    if shown:
        yield _table(shown, filtered)
    if told := meanings(report):
        yield List(tuple((Phrase(sentence, "warning"), *pattern_spans(names)) for sentence, names in told), "!")
    yield from (Paragraph(Phrase(text, "quiet")) for text in legend(report.measured))
    for status, reason, names in reasons(report.instructions):
        if status == "skipped":
            yield Paragraph(Phrase(_skipped(report, reason, names), "quiet"))
        else:
            why = f"{status}: {reason}: " if reason else f"{status}: "
            yield Paragraph((Phrase(why, status), *pattern_spans(names)))


def _table(shown: Sequence[TableLine], filtered: bool) -> Grid:
    told = [name for name in COLUMNS if any(getattr(each.cells, name) for each in shown)]
    columns = [Column("instruction", least=34), *(COLUMNS[name] for name in told)]
    if len({each.row.status for each in shown}) == 1:
        columns = [column if column.header != "status" else Column("status", "detail", whole=True) for column in columns]
    families = [each.row.instruction.family.name for each in shown]
    return Grid(
        tuple(columns),
        tuple(
            (Phrase(each.pattern, code=True, target=f"i{i}" if filtered else ""), *(each.span(name) for name in told))
            for i, each in enumerate(shown)
        ),
        frozenset(i for i, (one, below) in enumerate(pairwise(families)) if one != below),
        "A line an instruction; its name links to the evidence." if filtered else "",
        filtered,
    )


def lines(rows: Sequence[Row], collapse: bool = True) -> list[TableLine]:
    """Return the rows as lines: narrow accumulators first, then newer kinds of instructions; those without a unit last.

    collapse: rows of one family that are equal but for the effort become as few lines as patterns allow.
    """
    families = list(dict.fromkeys(row.instruction.family.name for row in rows))
    rank = {name: -i for i, name in enumerate(families)}
    ordered = sorted(rows, key=lambda row: (bool(detour(row)), not is_narrow(row), rank[row.instruction.family.name]))
    if not collapse:
        return [TableLine(row.name, row, cells(row)) for row in ordered]
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in ordered:
        shown = cells(row)
        key = (getattr(shown, column) for column in COLUMNS if column not in EFFORT)
        alike.setdefault((row.instruction.family.name, *key), []).append(row)
    return [
        TableLine(pattern, group[0], _together(group))
        for group in alike.values()
        for pattern in brace_patterns(row.name for row in group)
    ]


def cells(row: Row) -> RowCells:
    """Return the cells of a row that is not skipped; "" where nothing is known."""
    named = ("alignment_bits", "result_rounding", "products_per_sum", "addend", "alignment_rounding")
    return RowCells(
        ran_as=ran_as(row),
        effective_bits=effective_bits(row),
        status=row.status,
        dots=_dots(row),
        cells=_cells(row),
        events=_events(row),
        alternatives=f"{len(row.alternatives.surviving)}/{row.alternatives.tested}" if row.alternatives else "",
        **{name: found(row, name) for name in named},
    )


def _together(group: Sequence[Row]) -> RowCells:
    """Return the cells of rows that are alike: the effort as ranges."""
    done = [row.verification for row in group if row.verification]
    tried = [row.alternatives for row in group if row.alternatives]
    first = cells(group[0])
    if len(done) == len(group) and not any(verification.mismatches for verification in done):
        first = first._replace(dots=_range([verification.dots for verification in done]))
    if len(tried) == len(group):
        left = _range([len(alternatives.surviving) for alternatives in tried])
        first = first._replace(alternatives=f"{left}/{_range([alternatives.tested for alternatives in tried])}")
    every = [cells(row) for row in group]
    read, met = (
        ", ".join(filter(None, dict.fromkeys(texts))) for texts in zip(*((c.cells, c.events) for c in every), strict=True)
    )
    return first._replace(cells=read, events=met)


def _range(counts: Sequence[int]) -> str:
    low, high = compact(min(counts)), compact(max(counts))
    return low if low == high else f"{low}-{high}"


def _dots(row: Row) -> str:
    if row.verification is None:
        return ""
    wrong = row.verification.mismatches
    return f"{compact(row.verification.dots)}, {compact(wrong)} differ" if wrong else compact(row.verification.dots)


def _cells(row: Row) -> str:
    """ "all" elements of the tile, "96/128", "128/128, some differ"."""
    tile = row.verification.tile if row.verification else None
    if tile is None:
        return ""
    covered = f"{tile.covered}/{tile.total}"
    if tile.differing:
        return f"{covered}, some differ"
    return "all" if tile.covered == tile.total else covered


def _events(row: Row) -> str:
    """ "all" that are possible, or "400/412"; "" where results contradict the model."""
    met = row.verification.events if row.verification else None
    if met is None or (row.verification and row.verification.refuted):
        return ""
    return "all" if met.hit == met.possible else f"{met.hit}/{met.possible}"


def compact(count: int) -> str:
    """ "512", "16k", "1.5M": two digits where it is rounded."""
    for size, suffix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.2g}{suffix}" if count < 100 * size else f"{count // size}{suffix}"
    return str(count)


def meanings(report: Report) -> list[tuple[str, list[str]]]:
    """Return what a reader must not miss: sentences, each with the instructions that it is true of."""
    narrow: dict[str, list[str]] = {}
    converted: dict[str, list[str]] = {}
    for row in report.measured:
        inst = row.instruction
        how = "Simulated: the" if "simulated" in (row.status, report.device.kind) else "The"
        if is_narrow(row):
            kept = f"running sum keeps {effective_bits(row)} of the {inst.d.mantissa_bits} fraction bits of {inst.d}: "
            narrow.setdefault(f"{how} {kept}", []).append(row.name)
        if detour(row):
            ran = f"operands are converted and multiplied by {_stems(row.opcodes)}, not by a unit of their own format: "
            if is_ordinary(row.lowering):
                ran = f"sum is computed by no matrix unit, but by {_stems(opcode for opcode, _ in row.lowering)}: "
            converted.setdefault(f"{how} {ran}", []).append(row.name)
    return list((narrow | converted).items())


def _stems(names: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(map(opcodes.stem, names)))


def legend(rows: Sequence[Row]) -> Iterator[str]:
    """Yield what the marks of the table mean, those that it has; and what vouches for models that were not measured."""
    every = [text for row in rows for text in cells(row)]
    if any(text.startswith("≥") for text in every):
        yield "≥: a lower bound; the operands' formats reach no further."
    if any(text.startswith("~") for text in every):
        yield "~: suggested: explains most results of a row that is not confirmed; any other value is possible."
    if "any" in every:
        yield "any: not observable; integer sums that wrap around are the same in every order."
    undetermined = Counter(
        feature
        for row in rows
        for feature, finding in row.findings.items()
        if finding.bound == "undetermined" and (finding.candidates or is_unknown(row, finding))
    )
    if undetermined:
        mark = "?: undetermined" if any(text.endswith("?") for text in every) else "Undetermined"
        features = ", ".join(f"{feature} {count}" for feature, count in undetermined.most_common())
        yield f"{mark}: several values explain every result; instructions by feature: {features}."
    alike: dict[str, list[str]] = {}
    for row in rows:
        if row.explains:
            alike.setdefault(explained_text(row.explains), []).append(row.name)
    for words, names in alike.items():
        yield f"Each published model explains {words}, 0 mismatches: {', '.join(brace_patterns(names))}."


def reasons(rows: Iterable[Row]) -> list[tuple[Status, str, list[str]]]:
    """Return why rows are not confirmed, those of one status and reason together; not what the banner says of all of them."""
    why: dict[tuple[Status, str], list[str]] = {}
    for row in rows:
        if not row.holds and row.reason != NOT_MEASURED:
            why.setdefault((row.status, row.reason), []).append(row.name)
    return sorted(((*key, names) for key, names in why.items()), key=lambda each: each[0] == "skipped")


def _skipped(report: Report, reason: str, names: Sequence[str]) -> str:
    listing = f" (`accprobe list --instructions {report.device.architecture}` names them)"
    more = "" if report.device.kind == "simulated" else listing
    return f"skipped: {reason}: {len(names)} of {so_many(report.run.selected, 'instruction')}{more}"


def summary(report: Report, lines_shown: int | None = None) -> Iterator[Phrases]:
    """Yield how many instructions ended in which status, and how much of them was covered.

    lines_shown: lines of the table, where like instructions share one.
    """
    counts = Counter(row.status for row in report.instructions)
    done = {"simulated": "simulated", "replay": "replayed"}.get(report.device.kind, "measured")
    every = ", ".join(f"{counts[status]} {status}" for status in get_args(Status) if status != "skipped" and counts[status])
    skipped = f"; {counts['skipped']} skipped" if counts["skipped"] else ""
    alike = ""
    if lines_shown is not None and lines_shown < len(report.measured):
        alike = f"; like ones share a line ({so_many(lines_shown, 'line')}, --all has each)"
    took = f" in {report.run.seconds:.1f} s" if report.run.seconds else ""
    ended = f"{so_many(len(report.measured), 'instruction')} {done}{took}: {every or 'none'}{skipped}"
    yield Phrase(ended, "strong"), Phrase(alike, "quiet")
    if covered := coverage([row.verification for row in report.measured if row.verification]):
        yield (Phrase(covered, "quiet"),)
    if cut := report.run.selected - len(report.instructions):
        yield (Phrase(f"The run was cut short: {cut} of {so_many(report.run.selected, 'instruction')} missing", "bad"),)


def report_title(report: Report) -> Iterator[Phrases]:
    """Yield the device and the versions that measured it."""
    facts = ", ".join(FACTS.get(key, f"{key.replace('_', ' ')} {{}}").format(fact) for key, fact in report.device.facts.items())
    yield (
        Phrase(f"{report.device.name}, {report.device.architecture}", "strong"),
        Phrase(f"; {facts}" if facts else "", "quiet"),
    )
    commit = f" ({report.tool.commit})" if report.tool.commit else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.environment.items())
    measured = f"accprobe {report.tool.version}{commit}, seed {report.seed}{f'; {versions}' if versions else ''}"
    yield (Phrase(measured, "quiet"),)


def beside(report: Report) -> str:
    """Return the first thing that a reader must not miss of a report."""
    sentence, names = meanings(report)[0]
    return f"{sentence}{text_of(pattern_spans(names))}"
