"""Failed requirements on kernels, and traces, for CI systems: JUnit XML, SARIF 2.1.0, and annotations of GitHub workflows."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from accprobe.audit.kernels import Kernel, Reading, distinct
from accprobe.audit.requirements import Rule, Shortfall
from accprobe.render.junit import Case, junit_text, suite_element
from accprobe.render.plain import plain
from accprobe.render.subjects.sass import kernel_title, shortfall_line, shortfall_reason
from accprobe.report.report import Tool
from accprobe.trace.causes import TraceFindings
from accprobe.trace.summary import trace_headline

RULES: dict[Rule, str] = {
    "accumulator": "Every accumulator has the bits that --fail-below requires, or is promoted as --unless-promoted allows.",
    "required": "Every kernel with matrix opcodes has one that --require names.",
    "forbidden": "No kernel has an opcode that --forbid names.",
}
"""Descriptions of the rules."""

_SARIF = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def junit(kernels: Sequence[Kernel], reading: Reading, found: Sequence[Shortfall]) -> str:
    """Return a test case for each different kernel, and one with an error for each file that could not be read."""
    cases = [
        _case(same[0].file, kernel_title(same[0]), [each for each in found if each.kernels == same])
        for same in distinct(kernels)
    ]
    if nowhere := [each for each in found if not each.kernels]:
        cases.append(_case("accprobe sass", "required", nowhere))
    cases += [Case("accprobe sass", "reading", "error", message=problem) for problem in reading.problems]
    return junit_text(suite_element("accprobe sass", cases))


def _case(group: str, name: str, found: Sequence[Shortfall]) -> Case:
    """Return a case with at most one failure, as schemas of JUnit XML require."""
    if not found:
        return Case(group, name)
    message = "; ".join(shortfall_reason(each) if each.kernels else each.reason for each in found)
    files = "\n".join(dict.fromkeys(kernel.file for each in found for kernel in each.kernels))
    return Case(group, name, "failure", found[0].rule, message, files)


def trace_junit(found: TraceFindings) -> str:
    """Return a test case for each module of the first run; one with an origin fails."""
    suite = "accprobe trace"
    failed = {each.origin.module: each for each in reversed(found.origins)}
    modules = dict.fromkeys(operation.module for operation in found.comparison.traces[0].operations)
    cases = []
    for module in dict.fromkeys((*modules, *failed)):
        case = Case(suite, module or "outside of modules")
        if each := failed.get(module):
            message = f"{each.origin.operation}: {each.cause.text}"
            case = case._replace(outcome="failure", kind=each.cause.kind, message=message)
        cases.append(case)
    if not found.comparison.equal and not failed:
        cases.append(Case(suite, "result", "failure", "different", trace_headline(found)))
    return junit_text(suite_element(suite, cases))


def sarif(reading: Reading, found: Sequence[Shortfall]) -> str:
    """Return a log of one run: a result for each shortfall, at the first file with the kernel; others are related places."""
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
    """Return the place of a kernel, in line 1: GitHub shows no result without a line."""
    return {
        "physicalLocation": {"artifactLocation": {"uri": quote(os.fsencode(kernel.file))}, "region": {"startLine": 1}},
        "logicalLocations": [{"name": kernel.name, "kind": "function"}],
    }


def github(reading: Reading, found: Sequence[Shortfall]) -> str:
    """Return commands of a workflow that become annotations: `::error file=…,title=…::…`."""
    return "".join(f"{line}\n" for line in _annotations(reading, found))


def _annotations(reading: Reading, found: Sequence[Shortfall]) -> Iterator[str]:
    for each in found:
        where = f"file={_property(each.kernels[0].file)}," if each.kernels else ""
        yield f"::error {where}title=accprobe sass::{_escaped(shortfall_line(each))}"
    for problem in reading.problems:
        yield f"::error title=accprobe sass::{_escaped(problem)}"


def _escaped(text: str) -> str:
    """Escape a message as GitHub's toolkit does (packages/core/src/command.ts)."""
    return plain(text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A"))


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")
