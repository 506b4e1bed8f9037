"""A report, a comparison or an account, as one HTML file that loads nothing: style and script are in it, no others may run.

Everything from a report is escaped; the page's policy lets only its own script run, by digest.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from accprobe.budget.error_report import ErrorReport
from accprobe.build import install
from accprobe.compare.diff import Diff, generation, marked
from accprobe.compare.headline import headline
from accprobe.errors import ToolMissing
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.render.content import budget, changes, details, evidence, products, series, sweeps
from accprobe.render.content.cells import HEADERS, TableLine, columns_told, lines, meanings
from accprobe.render.content.glossary import GLOSSARY
from accprobe.render.content.overview import (
    banner,
    device_facts,
    is_of_instructions,
    legend,
    measured_with,
    reasons,
    summary,
    why_skipped,
)
from accprobe.render.content.phrases import MARKED, on_one_line, unglued, words
from accprobe.render.content.reproduction import commands, recorded_versions
from accprobe.render.pictures.bits import bits_picture
from accprobe.render.pictures.budget import budget_charts
from accprobe.render.pictures.charts import chart_picture
from accprobe.render.pictures.products import product_picture
from accprobe.render.pictures.sweeps import Charts, charts
from accprobe.render.pictures.tree import tree_picture
from accprobe.report.report import Report
from accprobe.report.words import detour, effective_bits, ran_as

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_NAME = re.compile(r"(\S+\.m\d+n\S+)")
"""An instruction's name, or a pattern of several, in a sentence."""


class Inline(NamedTuple):
    """A style sheet or script that stands in the page, and its digest for the page's policy."""

    text: str
    digest: str


Show = Callable[[int, int], None]
"""Told how many instructions are written, and of how many."""


def report_page(report: Report, plots: bool = True, show: Show = lambda done, total: None) -> str:
    """The whole report. plots: whether sweeps are drawn. The status is beside the name: in sight on pages of any width."""
    columns = sorted(columns_told(report.measured), key=lambda name: name != "status")
    written = lines(report.measured, columns, collapse=False)
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            banner=banner(report),
            about=[*filter(None, [device_facts(report)]), measured_with(report)],
            of_instructions=is_of_instructions(report),
            summary=list(map(words, summary(report))),
            meanings=meanings(report),
            headers=HEADERS,
            columns=columns,
            lines=written,
            counted=_counted(written, show),
            legend=list(legend(report.measured, columns)),
            weak=reasons(report.measured),
            skipped=why_skipped(report),
            charts=charts(report.sweeps) if plots else Charts([], [], []),
            glossary=GLOSSARY,
            commands=commands(report),
            versions=recorded_versions(report),
        )
    )


def diff_page(diff: Diff, expand: bool = False) -> str:
    """The whole comparison; `expand`: one entry a pair."""
    return (
        _environment()
        .get_template("diff.html")
        .render(
            diff=diff,
            changes=changes,
            marked=marked,
            headline=headline(diff),
            sides=changes.sides(diff),
            generations=(generation(diff.a), generation(diff.b)),
            tables=changes.changed_tables(diff, expand),
            meanings=changes.meanings(diff),
            verdicts=changes.verdicts(diff, expand),
            unmeasured=diff.unmeasured,
            environment=diff.environment,
        )
    )


def budget_page(account: ErrorReport) -> str:
    """The whole account, with its errors drawn."""
    return (
        _environment()
        .get_template("budget.html")
        .render(account=account, budget=budget, columns=budget.columns_of(account), charts=budget_charts(account))
    )


def _counted(written: Sequence[TableLine], show: Show) -> Iterator[TableLine]:
    for i, line in enumerate(written):
        show(i, len(written))
        yield line


def _pictures(inst: Instruction, model: DotModel) -> Iterator[tuple[str, str]]:
    """One drawing an arithmetic, of the sum that takes most kinds of terms."""
    nodes = list(model.root.nodes())
    for index, arithmetic in enumerate(model.arithmetics):
        having = [node for node in nodes if node.arithmetic == arithmetic]
        node = max(having, key=lambda node: (bool(node.products), node.has_addend, bool(node.children)))
        mark = f" @{index}" if len(model.arithmetics) > 1 else ""
        yield f"a sum{mark} of {len(node.terms)} terms", bits_picture(inst, node)


@cache
def _environment() -> Environment:
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as e:
        raise ToolMissing(f"HTML needs jinja2, which cannot be imported ({e}): {install.HTML}") from None

    loader = PackageLoader("accprobe.render")
    made = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(unglued=unglued, on_one_line=on_one_line, whole_names=_whole_names)
    made.globals.update(
        details=details,
        evidence=evidence,
        products=products,
        product_picture=product_picture,
        series=series,
        sweeps=sweeps,
        MARKED=MARKED,
        chart_picture=chart_picture,
        tree_picture=tree_picture,
        pictures=_pictures,
    )
    made.globals.update(ran_as=ran_as, effective_bits=effective_bits, detour=detour)
    made.globals.update(style=_inline(made, "page.css", "chart.css"), script=_inline(made, "page.js"))
    return made


def _whole_names(text: str) -> Markup:
    """The text, with instructions' names and patterns as elements that break no line where they fit on one."""
    from markupsafe import Markup, escape

    names = Markup('<span class="name">{}</span>')
    return Markup("").join(names.format(word) if i % 2 else escape(word) for i, word in enumerate(_NAME.split(text)))


def _inline(environment: Environment, *names: str) -> Inline:
    from markupsafe import Markup

    assert environment.loader is not None
    text = "".join(environment.loader.get_source(environment, name)[0] for name in names)
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return Inline(Markup(text), f"sha256-{digest}")
