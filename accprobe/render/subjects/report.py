"""A report as a whole: the headline, the table of instructions, rows that are not confirmed, the device and versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from accprobe.compare.roles import role_of
from accprobe.model.published import explained_text
from accprobe.render.document import Column, Element, Grid, Heading, List, Paragraph, Phrase, Phrases, tabulate, text_of
from accprobe.render.subjects.appendix import glossary, reproduction
from accprobe.render.subjects.instruction import instruction_blocks, instruction_section
from accprobe.render.subjects.patterns import brace_patterns, pattern_spans
from accprobe.render.subjects.products import all_alarms, product_counts, products_blocks, products_page
from accprobe.render.subjects.sweeps import sweep_headline, sweep_page, sweep_summary, sweep_tables
from accprobe.render.subjects.verification import coverage
from accprobe.report.coverage_status import was_measured
from accprobe.report.report import Report
from accprobe.report.rows import NOT_MEASURED, Row, Status
from accprobe.report.words import detour, effective_bits, found, is_narrow, ran_as, so_many
from accprobe.sass import opcodes
from accprobe.sass.lowering import is_ordinary
from accprobe.verify.outcome import Verification

FACTS = {"sm_count": "{} SMs", "memory_gib": "{} GiB", "max_clock_mhz": "{} MHz at most"}
"""Facts about a device in words; others follow their names."""

HEADLINE_GROUPS = 2
"""Groups of narrow accumulators that a headline names."""

SHOWN_FINDINGS = ("alignment_bits", "result_rounding", "products_per_sum", "addend", "alignment_rounding")


class TableLine(NamedTuple):
    """A line of the table: rows that differ only in how much was tested, and the pattern of their names."""

    pattern: str
    rows: Sequence[Row]

    @property
    def row(self) -> Row:
        return self.rows[0]


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
    Column("status", lambda line: Phrase(line.row.status, line.row.status), whole=True),
    Column("align.\nrounding", _finding("alignment_rounding"), "detail"),
    Column("dots\nverified", lambda line: _dots(line.rows), "detail"),
    Column("tile elements\ncovered", lambda line: _each(_tile, line.rows), "detail"),
    Column("events\ncovered", lambda line: _each(_events, line.rows), "detail"),
    Column("alternatives\nsurviving/tested", lambda line: _alternatives(line.rows), "detail"),
)


def report_blocks(report: Report, expand: bool = False, every_sweep: bool = False) -> Iterator[Element]:
    """Yield the whole report. expand: a line for each instruction; every_sweep: a line for each configuration."""
    yield from banner_blocks(report)
    shown = lines(report.measured, collapse=not expand)
    if is_of_instructions(report):
        yield Heading(report_headline(report), 1)
        yield from _instructions(report, shown)
        yield from map(Paragraph, summary(report, len(shown)))
    if report.products:
        yield from products_blocks(report.products, expand)
    if report.sweeps:
        simulated = report.device.kind == "simulated"
        yield from sweep_tables(report.sweeps, simulated) if every_sweep else sweep_summary(report.sweeps, simulated)
    yield from map(Paragraph, report_title(report))


def rows_blocks(report: Report) -> Iterator[Element]:
    """Yield all that is known of each product and instruction."""
    yield from banner_blocks(report)
    yield from products_blocks(report.products, expand=True) if report.products else ()
    for row in report.instructions:
        yield from instruction_blocks(row)


def report_page(report: Report) -> Iterator[Element]:
    """Yield a page: a line and a section for each instruction, then the glossary and how to measure it again."""
    of_instructions = is_of_instructions(report)
    yield from banner_blocks(report)
    yield Heading(report_headline(report) if of_instructions else _other_headline(report), 1)
    if faults := all_alarms(report.products):
        yield List(faults, "!")
    shown = lines(report.measured, collapse=False)
    if of_instructions:
        yield from _instructions(report, shown, page=True)
    if report.products:
        yield from products_page(report.products)
    if report.sweeps:
        yield from sweep_page(report.sweeps, report.device.kind == "simulated")
    if of_instructions:
        yield Heading("Instructions", 2, "instructions")
        yield from (instruction_section(each.row, f"i{i}") for i, each in enumerate(shown))
    yield Heading("Measured with", 2, "measured")
    yield from map(Paragraph, (*(summary(report) if of_instructions else ()), *report_title(report)))
    yield from glossary()
    yield from reproduction(report)


def is_of_instructions(report: Report) -> bool:
    """A report may have only products or sweeps."""
    return bool(report.instructions) or not (report.products or report.sweeps)


def banner_blocks(report: Report) -> Iterator[Element]:
    """Yield the warning that no hardware was measured, or not now."""
    device = report.device
    if device.kind == "simulated":
        because = f"no GPU found ({device.reason}); " if device.reason else ""
        published = any(row.reason == NOT_MEASURED for row in report.instructions) and not was_measured(device.architecture)
        never = "; no probe has run on hardware of this architecture" if published else ""
        text = f"SIMULATED: {because}these are published models, nothing was measured{never}"
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
    counts = Counter(row.status for row in report.instructions if row.status != "skipped")
    total = sum(counts.values())
    ended = [f"{count:,} of {so_many(total, 'instruction')} {status}" for status, count in counts.most_common()]
    return f"{report.device.name}: {'; '.join([*shown, ', '.join(ended) or 'no instruction was measured'])}"


def _other_headline(report: Report) -> str:
    found = f"products: {product_counts(report.products)}" if report.products else sweep_headline(report.sweeps)
    return f"{report.device.name}: {found}"


def _accumulates(row: Row) -> str:
    """Return "FP8 wgmma accumulates in 13 fraction bits (e8m13), truncated (RZ)"."""
    bits, _, register = effective_bits(row).partition(" ")
    rounding = row.findings.get("result_rounding")
    truncated = ", truncated (RZ)" if rounding and rounding.value == "RZ" else ""
    name = f"{role_of(row.instruction).operands} {row.name.partition('.')[0]}"
    return f"{name} accumulates in {bits} fraction bits {register}{truncated}"


def _instructions(report: Report, shown: Sequence[TableLine], page: bool = False) -> Iterator[Element]:
    grid = _table(shown, page)
    if shown:
        yield grid
    if told := meanings(report):
        yield List(tuple((Phrase(sentence, "warning"), *pattern_spans(names)) for sentence, names in told), "!")
    yield from (Paragraph(Phrase(text, "quiet")) for text in legend(report.measured, grid))
    for status, reason, names in reasons(report.instructions):
        if status == "skipped":
            yield Paragraph(Phrase(_skipped(report, reason, names), "quiet"))
        else:
            why = f"{status}: {reason}: " if reason else f"{status}: "
            yield Paragraph((Phrase(why, status), *pattern_spans(names)))


def _table(shown: Sequence[TableLine], page: bool) -> Grid:
    columns = COLUMNS
    if len({each.row.status for each in shown}) == 1:
        columns = tuple(replace(each, need="detail") if each.header == "status" else each for each in COLUMNS)
    linked: dict[str, Any] = (
        {"links": "i", "caption": "The name of an instruction links to its evidence.", "filtered": True} if page else {}
    )
    return tabulate(columns, shown, group=lambda line: line.row.instruction.family, **linked)


def lines(rows: Sequence[Row], collapse: bool = True) -> list[TableLine]:
    """Return the rows as lines: narrow accumulators first, then newer kinds of instructions; those without a unit last.

    collapse: rows of one family with the same findings become as few lines as patterns allow.
    """
    families = list(dict.fromkeys(row.instruction.family.name for row in rows))
    rank = {name: -i for i, name in enumerate(families)}
    ordered = sorted(rows, key=lambda row: (bool(detour(row)), not is_narrow(row), rank[row.instruction.family.name]))
    alike: dict[tuple[str, ...], list[Row]] = {}
    for row in ordered:
        of_findings = (found(row, name) for name in SHOWN_FINDINGS)
        key = (row.instruction.family.name, row.status, ran_as(row), effective_bits(row), *of_findings)
        alike.setdefault(key if collapse else (row.name,), []).append(row)
    return [
        TableLine(pattern, of_line) for of_line in alike.values() for pattern in brace_patterns(row.name for row in of_line)
    ]


def _verifications(rows: Sequence[Row]) -> list[Verification]:
    return [row.verification for row in rows if row.verification]


def _dots(rows: Sequence[Row]) -> str:
    done = _verifications(rows)
    wrong = sum(each.mismatches for each in done)
    return f"{_range([each.dots for each in done])}{f', {compact(wrong)} differ' if wrong else ''}" if done else ""


def _each(cell: Callable[[Verification], str], rows: Sequence[Row]) -> str:
    return ", ".join(filter(None, dict.fromkeys(map(cell, _verifications(rows)))))


def _tile(done: Verification) -> str:
    """Return "all" elements of the tile, "96/128", "128/128, some differ"."""
    tile = done.tile
    if tile is None:
        return ""
    counts = f"{tile.covered}/{tile.total}"
    return f"{counts}, some differ" if tile.differing else "all" if tile.covered == tile.total else counts


def _events(done: Verification) -> str:
    """Return "all" that can be reached, or "400/412"; "" where results contradict the model."""
    events = done.events
    if events is None or done.refuted:
        return ""
    return "all" if events.hit == events.possible else f"{events.hit}/{events.possible}"


def _alternatives(rows: Sequence[Row]) -> str:
    tried = [row.alternatives for row in rows if row.alternatives]
    surviving = [len(each.surviving) for each in tried]
    return f"{_range(surviving)}/{_range([each.tested for each in tried])}" if tried else ""


def _range(counts: Sequence[int]) -> str:
    low, high = compact(min(counts)), compact(max(counts))
    return low if low == high else f"{low}-{high}"


def compact(count: int) -> str:
    """Return "512", "16k", "1.5M": two digits where it is rounded."""
    for size, suffix in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.2g}{suffix}" if count < 100 * size else f"{count // size}{suffix}"
    return str(count)


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
                ran = f"sum is computed by no matrix unit, but by {_stems(opcode for opcode, _ in row.lowering)}: "
            converted.setdefault(f"{how} {ran}", []).append(row.name)
    return list((narrow | converted).items())


def _stems(names: Iterable[str]) -> str:
    return " and ".join(dict.fromkeys(map(opcodes.stem, names)))


def legend(rows: Sequence[Row], grid: Grid) -> Iterator[str]:
    """Yield the meaning of the marks in the table, and the results of others that published models explain."""
    every = [text_of(cell) for row in grid.rows for cell in row[1:]]
    if any(text.startswith("≥") for text in every):
        yield "≥: a lower bound; the operands' formats reach no further."
    if any(text.startswith("~") for text in every):
        yield "~: suggested: explains most results of a row that is not confirmed; any other value is possible."
    if "any" in every:
        yield "any: not observable; integer sums that wrap around are the same in every order."
    if any(text.endswith("?") for text in every):
        yield "?: undetermined: several values explain every result; the details of an instruction list them."
    alike: dict[str, list[str]] = {}
    for row in rows:
        if row.explains:
            alike.setdefault(explained_text(row.explains), []).append(row.name)
    for words, names in alike.items():
        yield f"Each published model matches {words}, 0 mismatches: {', '.join(brace_patterns(names))}."


def reasons(rows: Iterable[Row]) -> list[tuple[Status, str, list[str]]]:
    """Return why rows are not confirmed, by status and reason; without a reason that the banner gives for all of them."""
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
    """Yield the number of instructions with each status, and the coverage. lines_shown: lines of the table."""
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
    if covered := coverage(_verifications(report.measured)):
        yield (Phrase(covered, "quiet"),)
    if missing := report.run.selected - len(report.instructions):
        yield (Phrase(f"The run was interrupted: {missing} of {so_many(report.run.selected, 'instruction')} missing", "bad"),)


def report_title(report: Report) -> Iterator[Phrases]:
    """Yield the device and the versions that measured it."""
    facts = ", ".join(FACTS.get(key, f"{key.replace('_', ' ')} {{}}").format(fact) for key, fact in report.device.facts.items())
    device = Phrase(f"{report.device.name}, {report.device.architecture}", "strong")
    yield device, Phrase(f"; {facts}" if facts else "", "quiet")
    commit = f" ({report.tool.commit})" if report.tool.commit else ""
    versions = ", ".join(f"{name} {version}" for name, version in report.environment.items())
    measured = f"accprobe {report.tool.version}{commit}, seed {report.seed}{f'; {versions}' if versions else ''}"
    yield (Phrase(measured, "quiet"),)


def beside(report: Report) -> str:
    """Return the first sentence that a reader must not miss."""
    sentence, names = meanings(report)[0]
    return f"{sentence}{text_of(pattern_spans(names))}"
