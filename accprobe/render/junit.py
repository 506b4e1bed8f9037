"""JUnit XML, as CI systems and fleet monitors read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from accprobe.render.plain import plain


class Case(NamedTuple):
    """A test case. outcome: "" if it passed. kind, message, text: of the failure or error. seconds: None if not measured."""

    group: str
    name: str
    outcome: Literal["", "failure", "error", "skipped"] = ""
    kind: str = ""
    message: str = ""
    text: str = ""
    seconds: float | None = None


def suite_element(name: str, cases: Iterable[Case]) -> ElementTree.Element:
    """Return a test suite with its cases and their counts."""
    suite = ElementTree.Element("testsuite", name=plain(name))
    for case in cases:
        element = ElementTree.SubElement(suite, "testcase", classname=plain(case.group), name=plain(case.name))
        if case.seconds is not None:
            element.set("time", f"{case.seconds:.3f}")
        if case.outcome:
            details = {"type": case.kind} if case.kind else {}
            outcome = ElementTree.SubElement(element, case.outcome, details, message=plain(case.message))
            outcome.text = plain(case.text) or None
    for count, path in (("tests", ""), ("failures", "/failure"), ("errors", "/error"), ("skipped", "/skipped")):
        suite.set(count, str(len(suite.findall(f"testcase{path}"))))
    return suite


def junit_text(root: ElementTree.Element) -> str:
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
