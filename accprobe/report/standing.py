"""What is known of each architecture's instructions: measured, ready to be measured, published, or nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from accprobe.build.probes import why_no_probe
from accprobe.isa.architectures import ARCHITECTURES
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


def standings() -> Iterator[Standing]:
    """Of every architecture, in order."""
    reports = [report for report in map(Report.load, recorded()) if report.device.kind == "cuda" and report.instructions]
    for known in ARCHITECTURES:
        here = [report for report in reports if report.device.architecture == known.target]
        measured = {row.instruction for report in here for row in report.measured}
        chips = [name for name, chip in CHIPS.items() if chip.architecture == known.target]
        published = {inst for name in chips for inst in known_models(name)}
        counts = Counter(_standing(inst, measured, published) for inst in catalog(known.target))
        devices = tuple(dict.fromkeys(report.device.name for report in here))
        measured_here, ready, modelled, nothing = (counts[i] for i in range(4))
        yield Standing(known.target, known.generation, measured_here, ready, modelled, nothing, devices)


def _standing(inst: Instruction, measured: set[Instruction], published: set[Instruction]) -> int:
    if inst in measured:
        return 0
    if why_no_probe(inst) is None:
        return 1
    return 2 if inst in published else 3
