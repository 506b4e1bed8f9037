"""The instructions of each architecture that a recorded report measured on hardware."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import NamedTuple

from accprobe.isa import architectures
from accprobe.isa.architectures import ARCHITECTURES, PROCESSORS
from accprobe.isa.instructions import Instruction, catalog
from accprobe.report.recorded import recorded
from accprobe.report.report import Report

NEVER_RUN = "probe never run on hardware"


class MeasuredCount(NamedTuple):
    """How many instructions of an architecture there are and were measured, and the devices that did."""

    target: str
    generation: str
    instructions: int
    measured: int
    devices: tuple[str, ...]


def measured_counts() -> Iterator[MeasuredCount]:
    """Yield the counts of every architecture, processors last."""
    every = [(known.target, known.generation) for known in ARCHITECTURES]
    for target, generation in (*every, *((name, "processors") for name in PROCESSORS)):
        found = measured_on(target)
        devices = dict.fromkeys(device for names in found.values() for device in names)
        yield MeasuredCount(target, generation, len(catalog(target)), len(found), tuple(devices))


@cache
def measured_on(architecture: str) -> dict[Instruction, list[str]]:
    """Return the devices with a recorded report, by measured instruction. Raises UnknownName."""
    target = architecture if architecture in PROCESSORS else architectures.get(architecture).target
    found: dict[Instruction, list[str]] = {}
    for report in map(Report.load, recorded()):
        if report.device.kind in ("cuda", "cpu") and report.device.architecture == target:
            for row in report.measured:
                found.setdefault(row.instruction, []).append(report.device.name)
    return found
