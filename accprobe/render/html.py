"""A report, or a comparison, as one HTML file that loads nothing: style and script are in it, and nothing else may run.

Everything from a report is escaped; the page's policy lets only its own script run, by digest.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from accprobe.compare.diff import Diff, generation
from accprobe.compare.headline import headline
from accprobe.model.tree import DotModel
from accprobe.render import changes, sections, sweeps
from accprobe.render.bits_picture import bits_picture
from accprobe.render.cells import Cells, cells, meanings
from accprobe.render.glossary import GLOSSARY
from accprobe.render.hanging import GLUE
from accprobe.render.patterns import patterns
from accprobe.render.reproduce import commands, versions
from accprobe.render.terminal import HEADERS, legend, reasons, summary, title
from accprobe.render.tree_picture import tree_picture
from accprobe.report.report import Report, Row
from accprobe.report.words import is_converted, is_narrow

if TYPE_CHECKING:
    from jinja2 import Environment


class Inline(NamedTuple):
    """A style sheet or script that stands in the page, and its digest for the page's policy."""

    text: str
    digest: str


@dataclass(frozen=True)
class _Instruction:
    """What the template needs of a row."""

    row: Row
    id: str
    cells: Cells
    shown: list[tuple[str, str]]
    tree: str
    pictures: Sequence[tuple[str, str]]

    @property
    def is_narrow(self) -> bool:
        return is_narrow(self.row)

    @property
    def is_converted(self) -> bool:
        return is_converted(self.row)

    @property
    def any_order(self) -> bool:
        return "order" in self.row.findings and self.row.findings["order"].bound == "undetermined"

    @property
    def arithmetics(self) -> list[str]:
        return list(sections.arithmetics(self.row, self.row.model)) if self.row.model else []

    @property
    def witness(self) -> str:
        return sections.witness(self.row)

    @property
    def findings(self) -> list[sections.FindingLine]:
        return sections.findings(self.row)[0]

    @property
    def notes(self) -> dict[str, str]:
        return sections.findings(self.row)[1]

    @property
    def verification(self) -> list[str]:
        return [_plain(line) for line in sections.verification(self.row)]

    @property
    def rivals(self) -> list[str]:
        return list(sections.rivals(self.row))

    @property
    def evidence(self) -> Iterator[tuple[str, list[str]]]:
        for heading, exchanges in sections.evidence(self.row):
            yield heading, [_plain(exchange) for exchange in exchanges]


def report_page(report: Report, figures: Sequence[str] = ()) -> str:
    """The whole report. figures: SVG of the sweeps, where the report has any."""
    from markupsafe import Markup

    every = [cells(row) for row in report.measured]
    columns = [name for name in Cells._fields if any(getattr(one, name) for one in every)]
    skipped: dict[str, list[str]] = {}
    for row in report.instructions:
        if row.status == "skipped":
            skipped.setdefault(row.reason, []).append(row.name)
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            about=_about(report),
            summary=summary(report).plain,
            meanings=meanings(report),
            headers=[getattr(HEADERS, name).replace("\n", " ") for name in columns],
            rows=[_instruction(row, i, columns) for i, row in enumerate(report.measured)],
            legend=list(legend(report.measured)),
            weak=reasons(report.measured),
            skipped=skipped,
            patterns=patterns,
            sweeps=_sweeps(report),
            figures=[Markup(figure) for figure in figures],
            glossary=GLOSSARY,
            commands=commands(report),
            versions=versions(report),
        )
    )


def _sweeps(report: Report) -> list[tuple[str, list[str], list[list[tuple[str, bool]]], list[str]]]:
    """Of each problem: what was swept, headers, the lines' cells and which of them are marked, and remarks."""
    found = []
    for problem, shown in sweeps.problems(report.sweeps):
        fields, every = sweeps.table(shown)
        lines = [[(cell.plain, "bold" in str(cell.style)) for cell in line] for line in every]
        told = [remark.plain for remark in sweeps.remarks(shown, report.device.kind == "simulated")]
        found.append((problem, list(map(sweeps.header, fields)), lines, told))
    return found


def diff_page(diff: Diff, expand: bool = False) -> str:
    """The whole comparison; `expand`: one entry a pair."""
    found = changes.changed(diff, expand)
    return (
        _environment()
        .get_template("diff.html")
        .render(
            headline=headline(diff),
            sides=changes.sides(diff),
            generations=(generation(diff.a), generation(diff.b)),
            tables={heading: [entry for entry in found if entry.first.by == by] for by, heading in changes.HEADINGS.items()},
            meanings=changes.meanings(diff),
            verdicts=list(changes.verdicts(diff, expand)),
            unmeasured=diff.unmeasured,
            environment=diff.environment,
        )
    )


def _about(report: Report) -> list[str]:
    """Facts and versions; the page's heading has the name already."""
    facts, made = title(report).plain.split("\n")[-2:]
    return [*filter(None, [facts.partition("; ")[2]]), made]


def _instruction(row: Row, index: int, columns: Sequence[str]) -> _Instruction:
    from markupsafe import Markup

    told = cells(row)
    tree = Markup(tree_picture(row.model)) if row.model else Markup()
    pictures = [(caption, Markup(picture)) for caption, picture in _pictures(row, row.model)] if row.model else []
    return _Instruction(row, f"i{index}", told, [(name, getattr(told, name)) for name in columns], tree, pictures)


def _pictures(row: Row, model: DotModel) -> Iterator[tuple[str, str]]:
    """One drawing an arithmetic, of the sum that takes most kinds of terms."""
    nodes = list(model.root.nodes())
    for index, arithmetic in enumerate(model.arithmetics):
        having = [node for node in nodes if node.arithmetic == arithmetic]
        node = max(having, key=lambda node: (bool(node.products), node.has_addend, bool(node.children)))
        mark = f" @{index}" if len(model.arithmetics) > 1 else ""
        yield f"a sum{mark} of {len(node.terms)} terms", bits_picture(row.instruction, node)


def _plain(text: str) -> str:
    return text.replace(GLUE, " ")


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("accprobe.render")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.globals.update(style=_inline(made, "page.css"), script=_inline(made, "page.js"))
    return made


def _inline(environment: Environment, name: str) -> Inline:
    from markupsafe import Markup

    assert environment.loader is not None
    text: Any = environment.loader.get_source(environment, name)[0]
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Inline(Markup(text), f"sha256-{digest}")
