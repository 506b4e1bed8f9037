"""A report, or a comparison, as Markdown for issues and reviews: tables in pipes, everything from a report escaped."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from accprobe.audit.atlas import Atlas
from accprobe.audit.kernels import Kernel, Reading
from accprobe.budget.error_report import ErrorReport, is_simulated
from accprobe.budget.tolerance import ToleranceReport
from accprobe.compare.diff import Diff, generation, marked
from accprobe.compare.headline import headline
from accprobe.render.content import budget, changes, details, evidence, products, sass, series, sweeps, tolerance
from accprobe.render.content.cells import HEADERS, columns_told, lines, meanings
from accprobe.render.content.kernel_names import short_name
from accprobe.render.content.overview import (
    banner,
    banner_lines,
    is_of_instructions,
    legend,
    reasons,
    report_headline,
    report_title,
    summary,
)
from accprobe.render.content.phrases import on_one_line, unglued, words
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import effective_bits

_SPECIAL = re.compile(r"([\\`*{}\[\]<>#|~&!]|\b_|_\b)")


def report_markdown(report: Report, expand: bool = False, every_sweep: bool = False) -> str:
    """The whole report as a table; `expand`: one line an instruction. Sweeps are one line an operand type, or all of them."""
    told = _sweeps(report) if every_sweep else _sweep_summary(report)
    return _text([*_report(report, expand), *_products(report), *told])


def rows_markdown(report: Report) -> str:
    """Everything that is known of each instruction."""
    warning = banner(report)
    above = [f"**{_plain(warning.text)}**"] if warning else []
    return _text([*above, *_products(report), *(line for row in report.instructions for line in _row(row))])


def diff_markdown(diff: Diff, expand: bool = False) -> str:
    """The whole comparison; `expand`: one entry a pair."""
    return _text(_diff(diff, expand))


def lowerings_markdown(atlas: Atlas) -> str:
    table = ((_code(name), *map(_plain, rest)) for name, *rest in sass.lowering_lines(atlas))
    return _text([_table(sass.LOWERING_HEADERS, table), *_paragraphs(sass.lowering_notes(atlas))])


def kernels_markdown(kernels: Sequence[Kernel], reading: Reading, expand: bool = False) -> str:
    """One table, one line an opcode of a kernel, or of kernels that are alike."""
    counted = any(kernel.executed is not None for kernel in kernels)
    header = ["kernel", "architecture", "opcode", "in the text", *(["executed"] if counted else []), "accumulator", "sums"]
    written = []
    for alike in sass.alike_kernels(kernels, expand):
        first, more = alike.first, len(alike.kernels) - 1
        names = _code(short_name(first.name)) + (f" and {more} more" if more else "")
        for line in alike.lines:
            executed = [line.executed or "0"] if counted else []
            plain = (line.count, *executed, line.accumulator.text, "; ".join(line.sums))
            written.append([names, _plain(first.architecture), _code(line.opcode), *map(_plain, plain)])
        written += [[f"{names}: {_plain(note.text)}", *[""] * (len(header) - 1)] for note in alike.notes]
    above = [
        f"{name}: {line}"
        for name, of_file in groupby(kernels, lambda kernel: kernel.file)
        for line in sass.file_summary([*of_file])
    ]
    below = [*sass.accumulator_sources(kernels), sass.kernels_summary(kernels, reading)]
    return _text([*map(_plain, above), _table(header, written), "\n".join(map(_plain, below))])


def budget_markdown(account: ErrorReport) -> str:
    return _text(_budget(account))


def _budget(account: ErrorReport) -> Iterator[str]:
    columns = budget.columns_of(account)
    header = [on_one_line(budget.BUDGET_COLUMNS[name].header).replace("|", "\\|") for name in columns]
    for accumulation, entries in budget.by_accumulation(account):
        yield f"### {_code(accumulation.name)}"
        yield _plain(budget.budget_title(accumulation).removeprefix(f"{accumulation.name}: "))
        if accumulation.name in account.simulated:
            yield f"**{_plain(budget.SIMULATED)}**"
        grouped = [entry for group in budget.by_data(entries) for entry in group]
        yield _table(header, ([_plain(budget.BUDGET_COLUMNS[name].cell(entry).text) for name in columns] for entry in grouped))
    yield from _paragraphs(budget.budget_notes(account))
    if account.words:
        yield "### In words"
        yield _list(map(_plain, account.words))


def tolerance_markdown(found: ToleranceReport) -> str:
    """The recommended test, and the table of what tests notice."""
    simulated = [f"**{budget.SIMULATED}**"] if is_simulated(found.request.accumulation) else []
    heads = ("mistake", *map(on_one_line, tolerance.test_titles(found).values()))
    rows = ((_plain(phrase.text) for phrase in row) for row in tolerance.kill_rows(found))
    facts = (f"{name}: {_plain(told)}" for name, told in tolerance.tolerance_facts(found))
    words = map(_plain, tolerance.tolerance_words(found))
    title = f"### {_plain(tolerance.tolerance_title(found))}"
    return _text([title, *simulated, _list(facts), _table(map(_plain, heads), rows), _list(words)])


def _report(report: Report, expand: bool) -> Iterator[str]:
    columns = columns_told(report.measured)
    shown = lines(report.measured, columns, collapse=not expand)
    yield f"## {_plain(report.device.name)}, {_plain(report.device.architecture)}"
    of_instructions = is_of_instructions(report)
    first = [*banner_lines(report), *([report_headline(report)] if of_instructions else [])]
    yield from _paragraphs(map(words, first))
    if shown:
        header = ["instruction", *(on_one_line(HEADERS[name]) for name in columns)]
        table = ((_code(line.pattern), *(_plain(cell.text) for cell in line.phrases(columns))) for line in shown)
        yield _table(header, table)
    if told := meanings(report):
        yield _list(map(_plain, told))
    yield from _paragraphs(map(words, (*(summary(report, len(shown)) if of_instructions else ()), *report_title(report))))
    yield from _paragraphs(legend(report.measured, columns))
    if weak := reasons(report.measured):
        yield _list(_plain(why.text) for why in weak)


def _products(report: Report) -> Iterator[str]:
    """Each in full, below a table with a line each where there are several; what is wrong stands first."""
    shown = products.wrong_first(report.products)
    if len(shown) > 1:
        yield "### Whole products"
        yield _table(products.HEADERS, ([_plain(cell.text) for cell in products.summary_line(row)] for row in shown))
    for row in shown:
        yield f"### {_code(row.title)}: {_plain(words(products.status_phrases(row)))}"
        yield from (f"**{_plain(alarm.text)}**" for alarm in products.alarms(row))
        if proviso := products.proviso(row):
            yield f"**{_plain(proviso)}**"
        if told := list(products.lines(row)):
            yield _product_lines(told)
        for region, told in products.plans(row):
            yield f"**{_plain(products.region_heading(region))}**"
            yield _product_lines(told)


def _product_lines(told: Iterable[products.ProductLine]) -> str:
    return _table(("", ""), ((line.label, _plain(line.said.text)) for line in told))


def _sweep_summary(report: Report) -> Iterator[str]:
    """One line an operand type."""
    if not report.sweeps:
        return
    yield f"### Truncation-mask sweep: {_plain(series.extent(report.sweeps))}"
    if swept := list(series.summary_lines(report.sweeps)):
        yield _table(map(on_one_line, series.SUMMARY_HEADERS), ([_plain(cell.text) for cell in line] for line in swept))
    yield from _paragraphs(note.text for note in series.summary_notes(report.sweeps, report.device.kind == "simulated"))


def _sweeps(report: Report) -> Iterator[str]:
    """A table a problem."""
    for problem, group in sweeps.by_problem(report.sweeps):
        yield f"### {_plain(problem)}"
        fields, swept = sweeps.sweep_table(group)
        headers = [on_one_line(sweeps.COLUMNS[field].header) for field in fields]
        yield _table(headers, ([_plain(cell.text) for cell in line] for line in swept))
        yield _list(_plain(remark.text) for remark in sweeps.remarks(group, report.device.kind == "simulated"))


def _row(row: Row) -> Iterator[str]:
    yield f"## {_code(row.name)}: {row.status}{f': {_plain(reason)}' if (reason := details.reason_told(row)) else ''}"
    if proviso := details.proviso(row):
        yield f"**{_plain(proviso)}**"
    if row.lowering:
        ran = ", ".join(f"{count}×{_code(opcode)}" for opcode, count in row.lowering)
        digest = f", {details.code_named(row)} sha256 {_code(row.cubin_sha256)}" if row.cubin_sha256 else ""
        yield f"Ran as {ran}; {details.opcode_witness(row)}{digest}."
    if bits := effective_bits(row):
        yield f"Effective bits: **{_plain(bits)}**."
    if row.model:
        yield "### Summation tree"
        yield _block(details.tree(row, row.model))
        yield "### Arithmetic"
        yield _list(map(_plain, details.arithmetics(row, row.model)))
    if row.findings:
        found, notes = details.finding_lines(row)
        yield "### Findings"
        table = ([_code(line.feature), *map(_plain, (line.value, line.bound, line.note))] for line in found)
        yield _table(("feature", "value", "bound", "note"), table)
        yield from _paragraphs(f"{mark} {note}" for mark, note in notes.items())
    if row.verification or row.alternatives or row.explains:
        yield "### Verification"
        yield _list(map(_plain, (*details.verification(row), *(f"rivals: {line}" for line in details.rivals_left(row)))))
    if row.evidence:
        yield "### Evidence"
        yield _plain(f"In {evidence.HEADING}. {evidence.legend(row)}.")
        for heading, exchanges in evidence.shown_for(row):
            yield f"**{_plain(heading)}**"
            yield _block(exchanges)


def _diff(diff: Diff, expand: bool) -> Iterator[str]:
    yield f"## {_plain(headline(diff))}"
    yield _list(map(_plain, changes.sides(diff)))
    for heading, entries in changes.changed_tables(diff, expand).items():
        yield f"### {heading}"
        table = (
            (
                _plain(entry.full_name),
                *map(_plain, (field.title, field.a, field.b, entry.marks or "measured and confirmed")),
            )
            for entry in entries
            for field in entry.fields
        )
        yield _table(("instructions", "field", f"A: {generation(diff.a)}", f"B: {generation(diff.b)}", "proof"), table)
    if told := changes.meanings(diff):
        yield "### What it means for a kernel"
        yield _list(map(_plain, told))
    if diff.products:
        yield f"### {changes.PRODUCTS_HEADING}"
        yield _plain(", ".join(f"{count} {verdict}" for verdict, count in changes.verdict_counts(diff.products).items()))
        for pair in changes.told_products(diff):
            proof = marked(pair.marks) or "measured and confirmed"
            yield f"{_code(pair.row.title)}: **{pair.word}**, {_plain(proof)}"
            if why := changes.why_apart(diff, pair):
                yield _plain(why)
            if pair.differences:
                fields = (map(_plain, (each.title, each.a, each.b, each.verdict)) for each in pair.differences)
                yield _table(("field", "A", "B", "verdict"), fields)
    if diff.pairs or not diff.products:
        yield "### Every verdict"
        verdicts = (
            (one.word, str(len(one.pairs)), one.instructions, one.remark, one.marks or "measured and confirmed")
            for one in changes.verdicts(diff, expand)
        )
        yield _table(("verdict", "pairs", "instructions", "remark", "proof"), (map(_plain, verdict) for verdict in verdicts))
    if diff.environment:
        yield "### Environment"
        rows = ((change.what, change.a or "not told", change.b or "not told") for change in diff.environment)
        yield _table(("what", "A", "B"), (map(_plain, row) for row in rows))


def _plain(text: str) -> str:
    """Text that no Markdown reader takes for markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(unglued(text).split()))


def _code(text: str) -> str:
    """Text in backticks, which no table splits; one that has a backtick or a backslash is escaped instead."""
    if "`" in text or "\\" in text:
        return _plain(text)
    return "`" + " ".join(text.split()).replace("|", r"\|") + "`"


def _block(lines: Iterable[str]) -> str:
    return "\n".join(f"    {unglued(line)}" for line in lines)


def _list(items: Iterable[str]) -> str:
    return "\n".join(f"- {item}" for item in items)


def _paragraphs(texts: Iterable[str]) -> Iterator[str]:
    return map(_plain, texts)


def _table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    heads = list(header)
    written: list[Iterable[str]] = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in written)


def _text(blocks: Iterable[str]) -> str:
    return "\n\n".join(blocks) + "\n"
