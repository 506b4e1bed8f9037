"""A check of GPUs, for what watches machines: JUnit's XML and Prometheus' text format."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from xml.etree import ElementTree

from accprobe.health.outcome import GpuOutcome, HealthOutcome
from accprobe.render.plain import plain
from accprobe.render.subjects.health import gpu_verdict, word_lines


def health_junit(outcome: HealthOutcome) -> str:
    """A test suite a GPU and a test case a unit; a GPU that could not be checked is a case with an error."""
    suites = ElementTree.Element("testsuites", name="accprobe health")
    for gpu in outcome.gpus:
        suite = ElementTree.SubElement(suites, "testsuite", name=plain(f"{gpu.where} {gpu.name}"))
        for unit in gpu.units:
            case = _case(suite, gpu, unit.unit, unit.seconds)
            if unit.wrong:
                message = f"{unit.wrong:,} of {unit.dots:,} results differ"
                words = [line for word in gpu.mismatches if word.instruction == unit.instruction for line in word_lines(word)]
                ElementTree.SubElement(case, "failure", type="differs", message=message).text = plain("\n".join(words))
        if gpu.status == "healthy" and not gpu.finished:
            message = "interrupted: what was not asked by then is not known"
            ElementTree.SubElement(_case(suite, gpu, "the rest", 0.0), "skipped", message=message)
        elif gpu.status == "failed" or gpu.reason or not gpu.units:
            ElementTree.SubElement(
                _case(suite, gpu, "check", gpu.seconds), "error", type="failed", message=plain(gpu_verdict(gpu))
            )
        suite.set("tests", str(len(suite.findall("testcase"))))
        for count, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            suite.set(count, str(len(suite.findall(f"testcase/{tag}"))))
    ElementTree.indent(suites)
    return ElementTree.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: ElementTree.Element, gpu: GpuOutcome, name: str, seconds: float) -> ElementTree.Element:
    return ElementTree.SubElement(suite, "testcase", classname=plain(gpu.where), name=name, time=f"{seconds:.3f}")


def health_prometheus(outcome: HealthOutcome) -> str:
    """The text format (Prometheus' documentation, "Exposition formats"), for node_exporter's textfile collector.

    All are gauges: a check begins anew each time.
    """
    return "".join(f"{line}\n" for line in _metrics(outcome))


def _metrics(outcome: HealthOutcome) -> Iterator[str]:
    gpus = [(partial(_labels, gpu, place), gpu) for gpu, place in zip(outcome.gpus, _places(outcome.gpus), strict=True)]
    yield from _metric("healthy", "1 where nothing differs in a whole check, 0 where something does or the check was not whole")
    yield from (f"accprobe_healthy{labels()} {int(gpu.status == 'healthy' and gpu.finished)}" for labels, gpu in gpus)
    yield from _metric("failed", "1 where the GPU could not be checked or stopped")
    yield from (f"accprobe_failed{labels()} {int(gpu.status == 'failed')}" for labels, gpu in gpus)
    yield from _metric("finished", "1 where all that was to be asked was, 0 where the check was interrupted or stopped")
    yield from (f"accprobe_finished{labels()} {int(gpu.finished)}" for labels, gpu in gpus)
    yield from _metric("check_seconds", "Wall time of the check")
    yield from (f"accprobe_check_seconds{labels()} {gpu.seconds}" for labels, gpu in gpus)
    for name, key, what in (
        ("results_compared", "dots", "Results compared"),
        ("results_differing", "wrong", "Results that differ"),
    ):
        yield from _metric(name, f"{what}, of each matrix unit")
        for labels, gpu in gpus:
            yield from (f"accprobe_{name}{labels(unit=unit.unit)} {getattr(unit, key)}" for unit in gpu.units)
    yield from _metric("below_full_load", "1 where a matrix unit did not reach full load in a whole check")
    for labels, gpu in gpus:
        yield from (
            f"accprobe_below_full_load{labels(unit=unit.unit)} {int(unit.unit in gpu.below_full_load)}" for unit in gpu.units
        )
    yield from _metric("sm_results_differing", "Results that differ, of each SM that has some")
    for labels, gpu in gpus:
        yield from (f"accprobe_sm_results_differing{labels(sm=sm)} {wrong}" for sm, wrong in gpu.wrong_by_sm.items())


def _metric(name: str, what: str) -> Iterator[str]:
    yield f"# HELP accprobe_{name} {what}."
    yield f"# TYPE accprobe_{name} gauge"


def _places(gpus: Sequence[GpuOutcome]) -> Iterator[int]:
    """Of each GPU among those of its node, from 0: devices of one name may stand in for several."""
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
