"""Results for CI and monitoring systems: JUnit XML of traces and of checks of GPUs, and checks as metrics for Prometheus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from xml.etree import ElementTree

from accprobe.errors import plain
from accprobe.health.outcome import GpuOutcome, HealthOutcome
from accprobe.render.subjects.health import gpu_verdict, word_lines
from accprobe.trace.compare import TraceComparison
from accprobe.trace.summary import trace_headline


def trace_junit(found: TraceComparison) -> str:
    """Return a test case for each module of the first run or with an origin, which fails it; "result" if others differ."""
    suite = ElementTree.Element("testsuite", name="accprobe trace")
    failed = {each.module: each for each in reversed(found.origins)}
    modules = (operation.module for operation in found.traces[0].operations)
    for module in dict.fromkeys((*modules, *failed)):
        case = _case(suite, "accprobe trace", module or "outside of modules")
        if each := failed.get(module):
            _set_outcome(case, "failure", f"{each.operation}: {each.cause.text}", each.cause.kind)
    if not found.equal and not failed:
        _set_outcome(_case(suite, "accprobe trace", "result"), "failure", trace_headline(found), "different")
    return _junit_text(suite, [suite])


def health_junit(outcome: HealthOutcome) -> str:
    """Return a test suite for each GPU with a case for each unit, and one for what was not checked: an error, or skipped."""
    root = ElementTree.Element("testsuites", name="accprobe health")
    for gpu in outcome.gpus:
        suite = ElementTree.SubElement(root, "testsuite", name=plain(f"{gpu.where} {gpu.name}"))
        for unit in gpu.units:
            case = _case(suite, gpu.where, unit.unit, unit.seconds)
            if unit.wrong:
                lines = [line for word in gpu.mismatches if word.instruction == unit.instruction for line in word_lines(word)]
                _set_outcome(case, "failure", f"{unit.wrong:,} of {unit.dots:,} results differ", "differs", "\n".join(lines))
        if gpu.status == "healthy" and not gpu.finished:
            _set_outcome(_case(suite, gpu.where, "the rest", 0.0), "skipped", "interrupted: the rest was not compared")
        elif gpu.status == "failed" or gpu.reason or not gpu.units:
            _set_outcome(_case(suite, gpu.where, "check", gpu.seconds), "error", gpu_verdict(gpu), "failed")
    return _junit_text(root, root)


def _case(suite: ElementTree.Element, group: str, name: str, seconds: float | None = None) -> ElementTree.Element:
    """Add a test case, which has passed unless an outcome is set. seconds: None if not measured."""
    case = ElementTree.SubElement(suite, "testcase", classname=plain(group), name=plain(name))
    if seconds is not None:
        case.set("time", f"{seconds:.3f}")
    return case


def _set_outcome(case: ElementTree.Element, outcome: str, message: str, kind: str = "", text: str = "") -> None:
    """Add an outcome to a test case: "failure", "error" or "skipped"."""
    details = {"type": kind} if kind else {}
    ElementTree.SubElement(case, outcome, details, message=plain(message)).text = plain(text) or None


def _junit_text(root: ElementTree.Element, suites: Iterable[ElementTree.Element]) -> str:
    """Return the XML, with the number of cases of each outcome in each suite."""
    for suite in suites:
        for count, path in (("tests", ""), ("failures", "/failure"), ("errors", "/error"), ("skipped", "/skipped")):
            suite.set(count, str(len(suite.findall(f"testcase{path}"))))
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


Samples = Iterable[tuple[dict[str, str], float]]
"""Further labels beside those of the GPU, and the values."""

GAUGES: tuple[tuple[str, str, Callable[[GpuOutcome], Samples]], ...] = (
    (
        "healthy",
        "1 after a whole check without a mismatch, else 0",
        lambda gpu: [({}, int(gpu.status == "healthy" and gpu.finished))],
    ),
    ("failed", "1 where the GPU could not be checked or stopped", lambda gpu: [({}, int(gpu.status == "failed"))]),
    ("finished", "1 after a whole check, 0 where it was interrupted or stopped", lambda gpu: [({}, int(gpu.finished))]),
    ("check_seconds", "Wall time of the check", lambda gpu: [({}, gpu.seconds)]),
    (
        "results_compared",
        "Results compared, of each unit",
        lambda gpu: (({"unit": each.unit}, each.dots) for each in gpu.units),
    ),
    (
        "results_differing",
        "Results that differ, of each unit",
        lambda gpu: (({"unit": each.unit}, each.wrong) for each in gpu.units),
    ),
    (
        "below_full_load",
        "1 where a unit did not reach full load in a whole check",
        lambda gpu: (({"unit": each.unit}, int(each.unit in gpu.below_full_load)) for each in gpu.units),
    ),
    (
        "sm_results_differing",
        "Results that differ, of each SM that has some",
        lambda gpu: (({"sm": sm}, wrong) for sm, wrong in gpu.wrong_by_sm.items()),
    ),
)
"""Name, help and samples of a GPU."""


def health_prometheus(outcome: HealthOutcome) -> str:
    """Return gauges in the text format (Prometheus, "Exposition formats") for node_exporter's textfile collector."""
    lines: list[str] = []
    for name, what, samples in GAUGES:
        lines += [f"# HELP accprobe_{name} {what}.", f"# TYPE accprobe_{name} gauge"]
        for gpu, place in zip(outcome.gpus, _places(outcome.gpus), strict=True):
            lines += [f"accprobe_{name}{_labels(gpu, place, more)} {value}" for more, value in samples(gpu)]
    return "".join(f"{line}\n" for line in lines)


def _places(gpus: Sequence[GpuOutcome]) -> Iterator[int]:
    """Yield the number of each GPU on its node, from 0: several devices may have one name."""
    counted = Counter[str]()
    for gpu in gpus:
        node = gpu.node.id if gpu.node else ""
        yield counted[node]
        counted[node] += 1


def _labels(gpu: GpuOutcome, place: int, more: dict[str, str]) -> str:
    labels = {"device": gpu.device, "name": gpu.name, "kind": gpu.kind, "uuid": gpu.board.uuid or "", "place": str(place)}
    if gpu.node:
        labels |= {"node": gpu.node.address, "node_id": gpu.node.id, "node_gpu": gpu.node.gpu or ""}
    labels |= more
    escaped = {
        key: plain(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") for key, value in labels.items()
    }
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped.items()) + "}"
