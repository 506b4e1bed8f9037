"""Findings for what runs checks, kernels and traces: JUnit's XML, SARIF 2.1.0, and annotations of GitHub's workflows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from accprobe.audit.kernels import Kernel, Reading, distinct
from accprobe.audit.requirements import Rule, Shortfall
from accprobe.render.plain import plain
from accprobe.render.subjects.sass import kernel_title, shortfall_line, shortfall_reason
from accprobe.report.report import Tool
from accprobe.trace.causes import TraceFindings
from accprobe.trace.summary import trace_headline

RULES: dict[Rule, str] = {
    "accumulator": "Every accumulator has the bits that --fail-below asks for, or is promoted as --unless-promoted says.",
    "required": "Every kernel with matrix opcodes has one that --require names.",
    "forbidden": "No kernel has an opcode that --forbid names.",
}
"""What each rule asks."""

_SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def junit(kernels: Sequence[Kernel], reading: Reading, found: Sequence[Shortfall]) -> str:
    """A test case a kernel, the same one once; a file that could not be read is one with an error."""
    suite = ElementTree.Element("testsuite", name="accprobe sass")
    for same in distinct(kernels):
        case = ElementTree.SubElement(suite, "testcase", classname=plain(same[0].file), name=plain(kernel_title(same[0])))
        _fail(case, [each for each in found if each.kernels == same])
    if nowhere := [each for each in found if not each.kernels]:
        _fail(ElementTree.SubElement(suite, "testcase", classname="accprobe sass", name="required"), nowhere)
    for problem in reading.problems:
        case = ElementTree.SubElement(suite, "testcase", classname="accprobe sass", name="reading")
        ElementTree.SubElement(case, "error", message=plain(problem))
    return _suite_text(suite)


def _suite_text(suite: ElementTree.Element) -> str:
    for count, tag in (("tests", "testcase"), ("failures", "testcase/failure"), ("errors", "testcase/error")):
        suite.set(count, str(len(suite.findall(tag))))
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


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
        ElementTree.SubElement(case, "failure", type="different", message=plain(trace_headline(found)))
    return _suite_text(suite)


def _fail(case: ElementTree.Element, found: Sequence[Shortfall]) -> None:
    """One failure, as schemas of JUnit's XML allow no more in a case."""
    if found:
        message = plain("; ".join(shortfall_reason(each) if each.kernels else each.reason for each in found))
        files = "\n".join(dict.fromkeys(kernel.file for each in found for kernel in each.kernels))
        ElementTree.SubElement(case, "failure", type=found[0].rule, message=message).text = plain(files)


def sarif(reading: Reading, found: Sequence[Shortfall]) -> str:
    """A log of one run: a result a shortfall, at the first file that has the kernel; its other files are related places."""
    rules = [{"id": rule, "shortDescription": {"text": text}} for rule, text in RULES.items()]
    driver = {"name": "accprobe", "version": Tool.current().version, "rules": rules}
    unread = [{"level": "error", "message": {"text": problem}} for problem in reading.problems]
    run = {
        "tool": {"driver": driver},
        "invocations": [{"executionSuccessful": not unread, "toolExecutionNotifications": unread}],
        "results": [_result(each) for each in found],
    }
    return json.dumps({"$schema": _SARIF, "version": "2.1.0", "runs": [run]}, indent=1) + "\n"


def _result(found: Shortfall) -> dict[str, Any]:
    result: dict[str, Any] = {"ruleId": found.rule, "level": "error", "message": {"text": shortfall_line(found)}}
    if not found.kernels:
        return result
    first, *others = found.kernels
    result |= {"locations": [_location(first)], "partialFingerprints": {"kernel/v1": f"{first.sha256} {found.opcode}".strip()}}
    return result | ({"relatedLocations": list(map(_location, others))} if others else {})


def _location(kernel: Kernel) -> dict[str, Any]:
    """GitHub shows no result without a line; a binary has one."""
    return {
        "physicalLocation": {"artifactLocation": {"uri": quote(os.fsencode(kernel.file))}, "region": {"startLine": 1}},
        "logicalLocations": [{"name": kernel.name, "kind": "function"}],
    }


def github(reading: Reading, found: Sequence[Shortfall]) -> str:
    """Commands of a workflow, which become annotations: `::error file=…,title=…::…`."""
    return "".join(f"{line}\n" for line in _annotations(reading, found))


def _annotations(reading: Reading, found: Sequence[Shortfall]) -> Iterator[str]:
    for each in found:
        where = f"file={_property(each.kernels[0].file)}," if each.kernels else ""
        yield f"::error {where}title=accprobe sass::{_escaped(shortfall_line(each))}"
    for problem in reading.problems:
        yield f"::error title=accprobe sass::{_escaped(problem)}"


def _escaped(text: str) -> str:
    """As GitHub's own toolkit writes messages (packages/core/src/command.ts)."""
    return plain(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
