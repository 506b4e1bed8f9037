"""A report as a whole: the headline, the table of instructions, rows that are not confirmed, the device and versions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from accprobe.build.lowerings import is_ordinary
from accprobe.compare.pairs import role_of
from accprobe.isa import opcodes
from accprobe.model.fields import FEATURES
from accprobe.model.published import explained_text, title
from accprobe.model.published import names as chips
from accprobe.records.claims import NOT_MEASURED, Status
from accprobe.records.rows import Row
from accprobe.render.document import (
    Column,
    Element,
    Grid,
    Heading,
    List,
    Paragraph,
    Phrase,
    Phrases,
    fact_grid,
    grouped,
    on_one_line,
    paragraphs,
    tabulate,
    text_of,
)
from accprobe.render.subjects.functions import function_blocks, function_headline
from accprobe.render.subjects.instruction import coverage, instruction_section
from accprobe.render.subjects.products import all_alarms, products_blocks, products_page
from accprobe.render.subjects.sweeps import sweep_blocks, sweep_headline, sweep_page
from accprobe.report.published import measured_on
from accprobe.report.report import Report
from accprobe.report.words import brace_patterns, detour, effective_bits, found, is_narrow, ran_as, so_many, status_counts

FACTS = {"sm_count": "{} SMs", "memory_gib": "{} GiB", "max_clock_mhz": "{} MHz at most"}
"""Facts about a device in words; others follow their names."""

HEADLINE_GROUPS = 2
"""Groups of narrow accumulators that a headline names."""


class TableLine(NamedTuple):
    """A line of the table: a row, and the pattern of the names of all rows like it."""

    pattern: str
    row: Row


def _finding(feature: str) -> Callable[[TableLine], str]:
    return lambda line: found(line.row, feature)


COLUMNS: tuple[Column, ...] = (
    Column("instruction", lambda line: Phrase(line.pattern, code=True), least=34),
    Column("ran as", lambda line: Phrase(ran_as(line.row), "converted" if detour(line.row) else ""), least=12),
    Column(
        "effective\nbits",
        lambda line: Phrase(effective_bits(line.row), "narrow" if is_narrow(line.row) else ""),
        whole=True,
    ),
    Column("align.\nbits F", _finding("alignment_bits"), whole=True),
    Column("result\nrounding", _finding("result_rounding"), whole=True),
    Column("products per\nfused sum", _finding("products_per_sum"), "context"),
    Column("C added in", _finding("addend"), "context", whole=True),
    Column("status", lambda line: Phrase(line.row.status, line.row.status), detail_if_same=True, whole=True),
    Column("alignment\nrounding", _finding("alignment_rounding"), "detail"),
)

MARKS = {
    "≥.*": "≥: a lower bound; the operands' formats reach no further.",
    "~.*": "~: suggested: explains most results of a row that is not confirmed; any other value is possible.",
    "not observable": "not observable: integer sums that wrap around, or only grow, are the same in every order.",
    "first sum": "first sum: C and the first products are one fused sum; the others are added to its result.",
    r".*\?": "?: undetermined: several values explain every result; the details of an instruction list them.",
    r"\d+(\+\d+)+\??": "{}: products of each fused sum, in the order in which they are added.",
}
"""Meanings of table entries, by their pattern; {} is the first such entry."""


def report_blocks(report: Report, expand: bool = False) -> Iterator[Element]:
    """Yield the whole report. expand: a line for each instruction and swept configuration, and all of each product."""
    yield from banner_blocks(report)
    shown = lines(report.measured, collapse=not expand)
    if is_of_instructions(report):
        yield Heading(report_headline(report), 1)
        yield from _instructions(report, shown)
        yield from map(Paragraph, summary(report, len(shown)))
    where = "" if is_of_instructions(report) else f"{report.device.name}: "
    if report.products:
        yield from products_blocks(report.products, expand, where)
    if report.functions:
        yield from function_blocks(report.functions, expand, where)
    if report.sweeps:
        yield from sweep_blocks(report.sweeps, expand)
    yield from map(Paragraph, report_title(report))


def rows_blocks(report: Report) -> Iterator[Element]:
    """Yield all that is known of each product, function and instruction."""
    yield from banner_blocks(report)
    yield from products_blocks(report.products, expand=True) if report.products else ()
    yield from function_blocks(report.functions) if report.functions else ()
    yield from (instruction_section(row, level=2) for row in report.instructions)


def report_page(report: Report) -> Iterator[Element]:
    """Yield a page: tables of all claims, a section for each instruction and product, the versions, and the glossary."""
    of_instructions = is_of_instructions(report)
    yield from banner_blocks(report)
    other = _other_headline(report)
    yield Heading(report_headline(report) if of_instructions else f"{report.device.name}: {other}", 1)
    if faults := all_alarms(report.products):
        yield List(faults, "!")
    shown = lines(report.measured, collapse=False)
    if of_instructions:
        yield from _instructions(report, shown, page=True)
    if report.products:
        yield from products_page(report.products)
    if report.functions:
        is_first = not of_instructions and not report.products
        yield Heading("Functions" if is_first else function_headline(report.functions), 2, "functions")
        yield from tuple(function_blocks(report.functions, expand=True))[1:]
    if report.sweeps:
        yield from sweep_page(report.sweeps)
    if of_instructions:
        yield Heading("Instructions", 2, "instructions")
        yield from (instruction_section(each.row, anchor=f"i{i}") for i, each in enumerate(shown))
    yield Heading("Measured with", 2, "measured")
    yield from map(Paragraph, (*(summary(report) if of_instructions else ()), *report_title(report)))
    yield Heading("Glossary", 2, "glossary")
    yield fact_grid(GLOSSARY.items())


def _other_headline(report: Report) -> str:
    if report.products:
        return status_counts(report.products)
    return function_headline(report.functions) if report.functions else sweep_headline(report.sweeps)


def is_of_instructions(report: Report) -> bool:
    """Return whether a report has instructions, or no products, functions and sweeps either."""
    return bool(report.instructions) or not (report.products or report.functions or report.sweeps)


def banner_blocks(report: Report) -> Iterator[Element]:
    """Yield the warning that no GPU was measured, or not now."""
    device = report.device
    if device.kind == "simulated":
        because = f"no GPU found ({device.reason}); " if device.reason else ""
        published = any(row.reason == NOT_MEASURED for row in report.instructions) and not measured_on(device.architecture)
        never = "; no probe has run on hardware of this architecture" if published else ""
        is_published = device.name in {f"simulated {title(name)}" for name in chips()}
        models = "these are published models" if is_published else "computed by models"
        text = f"SIMULATED: {because}{models}, nothing was measured{never}"
        yield Paragraph(Phrase(text, "bad"), boxed=True)
    elif device.kind == "cpu" and device.reason:
        text = f"no GPU found ({device.reason}): the processor's own dot products were measured"
        yield Paragraph(Phrase(text, "warning"), boxed=True)
    elif device.kind == "replay":
        yield Paragraph(Phrase("REPLAYED from a recording: nothing was measured now", "replayed"), boxed=True)


def report_headline(report: Report) -> str:
    """Return the result in one line: narrow accumulators, then the number of instructions with each status."""
    narrow = list(dict.fromkeys(_accumulates(row) for row in report.measured if is_narrow(row)))
    shown = narrow[:HEADLINE_GROUPS] + [f"{len(narrow) - HEADLINE_GROUPS} more"] * (len(narrow) > HEADLINE_GROUPS)
    missing = report.measurable - len(report.measured)
    counts = status_counts(report.measured, missing) or "no instruction was measured"
    counts = "stopped early: " * bool(missing) + counts
    return f"{report.device.name}: {'; '.join([*shown, counts])}"


def _accumulates(row: Row) -> str:
    """Return "FP8 wgmma accumulates in 13 fraction bits (e8m13), truncated (RZ)"."""
    bits, _, register = effective_bits(row).partition(" ")
    rounding = row.findings.get("result_rounding")
    truncated = ", truncated (RZ)" if rounding and rounding.value == "RZ" else ""
    name = f"{role_of(row.instruction).operands} {row.name.partition('.')[0]}"
    return f"{name} accumulates in {bits} fraction bits {register}{truncated}"


def _instructions(report: Report, shown: Sequence[TableLine], page: bool = False) -> Iterator[Element]:
    caption = "The name of an instruction links to its evidence." if page else ""
    links = "i" if page else ""
    grid = tabulate(COLUMNS, shown, None, lambda line: line.row.instruction.family, links, caption=caption, filtered=page)
    if shown:
        yield grid
    if consequences := meanings(report):
        yield List(tuple((Phrase(sentence, "warning"), *_pattern_spans(names)) for sentence, names in consequences), "!")
    yield from legend(grid)
    yield from paragraphs(_matches(report.measured), "quiet")
    for status, reason, names in reasons(report.instructions):
        if status == "skipped":
            yield Paragraph(Phrase(_skipped(report, reason, names), "quiet"))
        else:
            why = f"{status}: {reason}: " if reason else f"{status}: "
            yield Paragraph((Phrase(why, status), *_pattern_spans(names)))


def lines(rows: Sequence[Row], collapse: bool = True) -> list[TableLine]:
    """Return the rows as lines: narrow accumulators first, then newer kinds of instructions; those without a unit last.

    collapse: rows of one family with the same text in every column become as few lines as patterns allow.
    """
    families = list(dict.fromkeys(row.instruction.family.name for row in rows))
    rank = {name: -i for i, name in enumerate(families)}
    alike: dict[object, list[Row]] = {}
    for row in sorted(rows, key=lambda row: (bool(detour(row)), not is_narrow(row), rank[row.instruction.family.name])):
        cells = [text_of(column.cell(TableLine("", row))) for column in COLUMNS if column.cell]
        alike.setdefault((row.instruction.family.name, *cells) if collapse else row.name, []).append(row)
    return [TableLine(pattern, same[0]) for same in alike.values() for pattern in brace_patterns(row.name for row in same)]


def meanings(report: Report) -> list[tuple[str, list[str]]]:
    """Return sentences that a reader must not miss, each with the instructions that it is true of."""
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
                ran = f"sum is computed by {_stems(opcode for opcode, _ in row.lowering)}, not by a matrix unit: "
            converted.setdefault(f"{how} {ran}", []).append(row.name)
    return list((narrow | converted).items())


def _stems(names: Iterable[str]) -> str:
    return " + ".join(dict.fromkeys(map(opcodes.stem, names)))


def legend(grid: Grid) -> Iterator[Paragraph]:
    """Yield the meaning of the marks in the table."""
    for mark, meaning in MARKS.items():
        cells = [(column, text_of(row[i])) for i, column in enumerate(grid.columns) if i for row in grid.rows]
        found = {on_one_line(column.header): text for column, text in cells if re.fullmatch(mark, text, re.DOTALL)}
        if found:
            words = meaning.format(next(iter(found.values())).removesuffix("?"))
            yield Paragraph(Phrase(words, "quiet", about=frozenset(found)))


def _matches(rows: Sequence[Row]) -> Iterator[str]:
    """Yield the results of others that published models explain."""
    for words, names in grouped((explained_text(row.explains), row.name) for row in rows if row.explains).items():
        yield f"Each published model matches {words}, 0 mismatches: {', '.join(brace_patterns(names))}."


def _pattern_spans(names: Iterable[str]) -> list[Phrase]:
    """Return the names as patterns, with commas between."""
    spans = [span for pattern in brace_patterns(names) for span in (Phrase(", "), Phrase(pattern, code=True))]
    return spans[1:]


def reasons(rows: Iterable[Row]) -> list[tuple[Status, str, list[str]]]:
    """Return why rows are not confirmed, by status and reason; without a reason that the banner gives for all of them."""
    why = grouped(((row.status, row.reason), row.name) for row in rows if not row.holds and row.reason != NOT_MEASURED)
    return sorted(((*key, names) for key, names in why.items()), key=lambda each: each[0] == "skipped")


def _skipped(report: Report, reason: str, names: Sequence[str]) -> str:
    listing = f" (`accprobe list --instructions {report.device.architecture}` names them)"
    more = "" if report.device.kind == "simulated" else listing
    return f"skipped: {reason}: {len(names)} of {so_many(report.run.selected, 'instruction')}{more}"


def summary(report: Report, lines_shown: int | None = None) -> Iterator[Phrases]:
    """Yield how many instructions were measured, and the coverage. lines_shown: lines of the table."""
    done = {"simulated": "simulated", "replay": "replayed"}.get(report.device.kind, "measured")
    alike = ""
    if lines_shown is not None and lines_shown < len(report.measured):
        alike = f"; equal ones share a line ({so_many(lines_shown, 'line')}, --all has each)"
    took = f" in {report.run.seconds:.1f} s" if report.run.seconds else ""
    yield Phrase(f"{so_many(len(report.measured), 'instruction')} {done}{took}", "strong"), Phrase(alike, "quiet")
    if covered := coverage([row.verification for row in report.measured if row.verification]):
        yield (Phrase(covered, "quiet"),)
    if missing := report.measurable - len(report.measured):
        yield (Phrase(f"The run stopped early: {missing} of {so_many(report.measurable, 'instruction')} not measured", "bad"),)


def report_title(report: Report) -> Iterator[Phrases]:
    """Yield the device and the versions that measured it."""
    facts = ", ".join(FACTS.get(key, f"{key.replace('_', ' ')} {{}}").format(fact) for key, fact in report.device.facts.items())
    device = Phrase(f"{report.device.name}, {report.device.architecture}", "strong")
    yield device, Phrase(f"; {facts}" if facts else "", "quiet")
    commit = f" ({report.tool.commit})" if report.tool.commit else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.environment.items())
    measured = f"accprobe {report.tool.version}{commit}, seed {report.seed}{f'; {versions}' if versions else ''}"
    yield (Phrase(measured, "quiet"),)


_WORDS = {
    "instruction": "one PTX matrix multiply-accumulate, D = A·B + C. Its name has the types of D, A, B, C for mma.sync, and of"
    " D, A, B for wgmma and tcgen05, where C is D. .rs is a wgmma that takes A from registers",
    "opcode": "a SASS instruction: HMMA, QGMMA, UTCQMMA, …",
    "lowering": "all of the SASS that one PTX instruction becomes: converts, several matrix opcodes, a separate add of C",
    "e8m13": "a float with 8 exponent and 13 fraction bits; with the sign 22 bits, hence FP22",
    "fused sum": "one hardware addition of many terms: aligned to the largest exponent, truncated to F fraction bits, added"
    " exactly, rounded once",
    "summation tree": "the order of addition: leaves are the K products and C, inner nodes are fused sums",
    "RZ, RNE, RU, RD": "rounding toward zero; to nearest, ties to even; up; down",
    "truncate, floor, nearest, sticky": "treatment of the bits of a term below F: dropped; dropped in two's complement;"
    " rounded; or-ed into the last bit kept",
    "promotion": "adding the matrix unit's partial sum to a separate register every so many products",
    "exact": "of a value: known; of a sum: every bit of every term is kept",
    "≥": "a lower bound: the operands show no more bits",
    "suggested, ~": "in a row that is not confirmed: explains most results; any other value is possible",
    "undetermined, ?": "several values explain every result; the note lists them",
    "not observable": "every value gives the same bits, such as each order of integer sums that wrap around",
    "evidence": "dot products that the device was sent, and its results: bit patterns in hex, values in brackets",
    "verification": "random dot products that the model was compared with the device on, bit for bit",
    "tile elements": "results of one instruction: each lies in the register of a lane, and a fault may be in a few of them",
    "events": "functional coverage: shifts, carries, ties, cancellation, overflow that sums of the model can have",
    "alternative": "a model that differs in one field; it survives if no result contradicts it",
    "confirmed": "the expected unit ran, and the model predicts every result, tile element and event",
    "inferred": "there is a model, but a result contradicts it, or coverage is incomplete",
    "unstable": "the device gave two results for one query",
    "unverified": "there is no model, the expected unit did not run, or the unit that ran is not known",
    "simulated": "computed from models, not measured",
}

GLOSSARY: dict[str, str] = _WORDS | {feature.title: feature.says for feature in FEATURES.values()}
"""Words of every report, then its features."""
