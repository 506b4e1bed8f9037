"""Results for CI and monitoring systems: JUnit XML of traces and of checks of GPUs, and checks as metrics for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Literal, NamedTuple
from xml.etree import ElementTree

from accprobe.errors import plain
from accprobe.health.outcome import GpuOutcome, HealthOutcome, UnitOutcome
from accprobe.render.subjects.health import gpu_verdict, word_lines
from accprobe.trace.compare import TraceComparison
from accprobe.trace.summary import trace_headline


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


def trace_junit(found: TraceComparison) -> str:
    """Return a test case for each module of the first run; one with an origin fails."""
    suite = "accprobe trace"
    failed = {each.module: each for each in reversed(found.origins)}
    modules = dict.fromkeys(operation.module for operation in found.traces[0].operations)
    cases = []
    for module in dict.fromkeys((*modules, *failed)):
        case = Case(suite, module or "outside of modules")
        if each := failed.get(module):
            message = f"{each.operation}: {each.cause.text}"
            case = case._replace(outcome="failure", kind=each.cause.kind, message=message)
        cases.append(case)
    if not found.equal and not failed:
        cases.append(Case(suite, "result", "failure", "different", trace_headline(found)))
    return junit_text(suite_element(suite, cases))


def health_junit(outcome: HealthOutcome) -> str:
    """Return a test suite for each GPU with a case for each unit, and one with an error if the GPU could not be checked."""
    suites = ElementTree.Element("testsuites", name="accprobe health")
    suites.extend(suite_element(f"{gpu.where} {gpu.name}", _health_cases(gpu)) for gpu in outcome.gpus)
    return junit_text(suites)


def _health_cases(gpu: GpuOutcome) -> Iterator[Case]:
    for unit in gpu.units:
        case = Case(gpu.where, unit.unit, seconds=unit.seconds)
        if unit.wrong:
            lines = [line for word in gpu.mismatches if word.instruction == unit.instruction for line in word_lines(word)]
            message = f"{unit.wrong:,} of {unit.dots:,} results differ"
            case = case._replace(outcome="failure", kind="differs", message=message, text="\n".join(lines))
        yield case
    if gpu.status == "healthy" and not gpu.finished:
        yield Case(gpu.where, "the rest", "skipped", message="interrupted: the rest was not compared", seconds=0.0)
    elif gpu.status == "failed" or gpu.reason or not gpu.units:
        yield Case(gpu.where, "check", "error", "failed", gpu_verdict(gpu), seconds=gpu.seconds)


OF_A_GPU: tuple[tuple[str, str, Callable[[GpuOutcome], float]], ...] = (
    ("healthy", "1 after a whole check without a mismatch, else 0", lambda gpu: int(gpu.status == "healthy" and gpu.finished)),
    ("failed", "1 where the GPU could not be checked or stopped", lambda gpu: int(gpu.status == "failed")),
    ("finished", "1 after a whole check, 0 where it was interrupted or stopped", lambda gpu: int(gpu.finished)),
    ("check_seconds", "Wall time of the check", lambda gpu: gpu.seconds),
)
"""Gauges of each GPU: name, help and value."""

OF_A_UNIT: tuple[tuple[str, str, Callable[[GpuOutcome, UnitOutcome], int]], ...] = (
    ("results_compared", "Results compared, of each matrix unit", lambda gpu, unit: unit.dots),
    ("results_differing", "Results that differ, of each matrix unit", lambda gpu, unit: unit.wrong),
    (
        "below_full_load",
        "1 where a matrix unit did not reach full load in a whole check",
        lambda gpu, unit: int(unit.unit in gpu.below_full_load),
    ),
)
"""Gauges of each matrix unit."""


def health_prometheus(outcome: HealthOutcome) -> str:
    """Return gauges in the text format (Prometheus, "Exposition formats") for node_exporter's textfile collector."""
    return "".join(f"{line}\n" for line in _metrics(outcome))


def _metrics(outcome: HealthOutcome) -> Iterator[str]:
    gpus = [(partial(_labels, gpu, place), gpu) for gpu, place in zip(outcome.gpus, _places(outcome.gpus), strict=True)]
    for name, what, value in OF_A_GPU:
        yield from _metric(name, what)
        yield from (f"accprobe_{name}{labels()} {value(gpu)}" for labels, gpu in gpus)
    for name, what, of_unit in OF_A_UNIT:
        yield from _metric(name, what)
        for labels, gpu in gpus:
            yield from (f"accprobe_{name}{labels(unit=unit.unit)} {of_unit(gpu, unit)}" for unit in gpu.units)
    yield from _metric("sm_results_differing", "Results that differ, of each SM that has some")
    for labels, gpu in gpus:
        yield from (f"accprobe_sm_results_differing{labels(sm=sm)} {wrong}" for sm, wrong in gpu.wrong_by_sm.items())


def _metric(name: str, what: str) -> Iterator[str]:
    yield f"# HELP accprobe_{name} {what}."
    yield f"# TYPE accprobe_{name} gauge"


def _places(gpus: Sequence[GpuOutcome]) -> Iterator[int]:
    """Yield the number of each GPU on its node, from 0: several devices may have one name."""
    counted = Counter[str]()
    for gpu in gpus:
        node = gpu.node.id if gpu.node else ""
        yield counted[node]
        counted[node] += 1


def _labels(gpu: GpuOutcome, place: int, **more: str) -> str:
    labels = {"device": gpu.device, "name": gpu.name, "kind": gpu.kind, "uuid": gpu.board.uuid or "", "place": str(place)}
    if gpu.node:
        labels |= {"node": gpu.node.address, "node_id": gpu.node.id, "node_gpu": gpu.node.gpu or ""}
    labels |= more
    escaped = {
        key: plain(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
