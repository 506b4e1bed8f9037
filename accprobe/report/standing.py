"""What is known of each architecture's instructions: measured, ready to be measured, published, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from accprobe.build.probes import why_no_probe
from accprobe.isa import architectures
from accprobe.isa.architectures import ARCHITECTURES, PROCESSORS
from accprobe.isa.instructions import Instruction, catalog
from accprobe.model.published import CHIPS, known_models
from accprobe.report.recorded import recorded
from accprobe.report.report import Report


@dataclass(frozen=True)
class Standing:
    """Of an architecture: how many of its instructions a recorded report has measured, have a probe that never ran there, have
    a published model alone, or nothing. devices: those that were measured.
    """

    target: str
    generation: str
    measured: int
    never_run: int
    published: int
    nothing: int
    devices: tuple[str, ...]

    @property
    def instructions(self) -> int:
        return self.measured + self.never_run + self.published + self.nothing


NEVER_RUN = "its probe has never run on hardware"
"""As lists of instructions say it."""


def standings() -> Iterator[Standing]:
    """Of every architecture, in order; of processors last."""
    reports = _reports()
    every = [(known.target, known.generation) for known in ARCHITECTURES]
    for target, generation in (*every, *((name, "processors") for name in PROCESSORS)):
        here = [report for report in reports if report.device.architecture == target]
        measured = _measured(here)
        chips = [name for name, chip in CHIPS.items() if chip.architecture == target]
        published = {inst for name in chips for inst in known_models(name)}
        counts = Counter(_standing(inst, measured, published) for inst in catalog(target))
        devices = tuple(dict.fromkeys(report.device.name for report in here))
        measured_here, ready, modelled, nothing = (counts[i] for i in range(4))
        yield Standing(target, generation, measured_here, ready, modelled, nothing, devices)


def never_run(architecture: str) -> frozenset[Instruction]:
    """What of an architecture has a probe, and was measured by no recorded report. Raises UnknownName."""
    target = architecture if architecture in PROCESSORS else architectures.get(architecture).target
    measured = _measured(report for report in _reports() if report.device.architecture == target)
    return frozenset(inst for inst in catalog(architecture) if inst not in measured and _is_ready(inst))


def _is_ready(inst: Instruction) -> bool:
    """Whether it could be measured on hardware that has it."""
    return inst.mnemonic is not None or why_no_probe(inst) is None


@cache
def was_measured(architecture: str) -> bool:
    """Whether a recorded report is of that architecture. Raises UnknownName."""
    target = architectures.get(architecture).target
    return any(report.device.architecture == target for report in _reports())


def _reports() -> list[Report]:
    return [report for report in map(Report.load, recorded()) if report.device.kind in ("cuda", "cpu") and report.instructions]


def _measured(reports: Iterable[Report]) -> set[Instruction]:
    return {row.instruction for report in reports for row in report.measured}


def _standing(inst: Instruction, measured: set[Instruction], published: set[Instruction]) -> int:
    if inst in measured:
        return 0
    if _is_ready(inst):
        return 1
    return 2 if inst in published else 3
