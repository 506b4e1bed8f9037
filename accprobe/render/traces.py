"""The findings of two traces on a terminal, as an HTML page that loads nothing, and as JUnit XML."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from html import escape
from xml.etree import ElementTree

from accprobe.render.document import Element, Heading, Paragraph, Phrase, table
from accprobe.render.plain import plain
from accprobe.trace import summary
from accprobe.trace.causes import TraceFindings

_STYLE = """
body { font: 15px system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; color: #222 }
table { border-collapse: collapse; width: 100%; margin: 1em 0 }
th, td { text-align: left; padding: .2em .6em; border-bottom: 1px solid #ddd; vertical-align: top }
.origin td { background: #ffd7d7 }
.consequence td { background: #fff3cd } .unmapped td, .only td, .other td { background: #eee }
input { font: inherit; padding: .3em; width: 20em }
"""

_SCRIPT = """
document.getElementById("filter").addEventListener("input", event => {
  for (const row of document.querySelectorAll("#timeline tbody tr"))
    row.hidden = !row.dataset.module.includes(event.target.value);
});
"""

_TIMELINE = ("A", "B", "phase", "module", "operation", "result", "state")


def trace_blocks(found: TraceFindings) -> Iterator[Element]:
    """Yield the first difference or that there is none; the counts; and a line an origin."""
    yield Heading(Phrase(summary.trace_headline(found), "good" if found.comparison.equal else "bad"), 1)
    yield Paragraph(summary.counts(found))
    if limits := summary.limits(found):
        yield Paragraph(Phrase(limits, "warning"))
    if found.origins:
        yield table(summary.ORIGIN_HEADERS, summary.rows(found))


def trace_json(found: TraceFindings) -> str:
    return json.dumps(summary.findings_json(found), indent=2) + "\n"


def trace_html(found: TraceFindings) -> str:
    """Return a page with the origins and the operations of both runs; a field filters them by module."""
    digest = base64.b64encode(hashlib.sha256(_SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    origins = "".join(f"<tr>{_cells(row)}</tr>" for row in summary.rows(found))
    lines = "".join(
        f'<tr class="{row.state.split()[0]}" data-module="{escape(row.module)}">{_cells(row)}</tr>'
        for row in summary.timeline(found)
    )
    table = f"<h2>Origins</h2><table><thead><tr>{_heads(summary.ORIGIN_HEADERS)}</tr></thead><tbody>{origins}</tbody></table>"
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{escape(policy)}">
<title>accprobe trace</title><style>{_STYLE}</style></head><body>
<h1>{escape(summary.trace_headline(found))}</h1><p>{escape(summary.counts(found))}</p>
{table if origins else ""}
<h2>Operations</h2><p><label>Module <input id="filter"></label></p>
<table id="timeline"><thead><tr>{_heads(_TIMELINE)}</tr></thead><tbody>{lines}</tbody></table>
<script>{_SCRIPT}</script></body></html>
"""


def _heads(names: tuple[str, ...]) -> str:
    return "".join(f"<th>{escape(name)}</th>" for name in names)


def _cells(cells: tuple[str, ...]) -> str:
    return "".join(f"<td>{escape(cell)}</td>" for cell in cells)


def trace_junit(found: TraceFindings) -> str:
    """Return a test suite with a test case for each module of the first run; one with an origin fails."""
    suite = ElementTree.Element("testsuite", name="accprobe trace")
    failed = {each.origin.module: each for each in reversed(found.origins)}
    modules = dict.fromkeys(operation.module for operation in found.comparison.traces[0].operations)
    for module in dict.fromkeys((*modules, *failed)):
        case = ElementTree.SubElement(suite, "testcase", classname="accprobe trace", name=plain(module or "outside of modules"))
        if module in failed:
            each = failed[module]
            message = plain(f"{each.origin.operation}: {each.cause.text}")
            ElementTree.SubElement(case, "failure", type=each.cause.kind, message=message)
    if not found.comparison.equal and not failed:
        case = ElementTree.SubElement(suite, "testcase", classname="accprobe trace", name="result")
        ElementTree.SubElement(case, "failure", type="different", message=plain(summary.trace_headline(found)))
    suite.set("tests", str(len(suite.findall("testcase"))))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
