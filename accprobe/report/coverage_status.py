"""The state of each architecture's instructions: measured, ready to be measured, published, or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from accprobe.build.probes import why_no_probe
from accprobe.isa import architectures
from accprobe.isa.architectures import ARCHITECTURES, PROCESSORS
from accprobe.isa.instructions import Instruction, catalog
from accprobe.model.published import CHIPS, known_models
from accprobe.report.recorded import recorded
from accprobe.report.report import Report

MEASURED, NEVER_RUN = "measured", "probe never run on hardware"
STATES = (MEASURED, NEVER_RUN, "no probe, but a published model", "no probe, no published model")
"""The states of an instruction. A measured one is in a recorded report."""


@dataclass(frozen=True)
class CoverageStatus:
    """How many instructions of an architecture are in each state. devices: the measured ones."""

    target: str
    generation: str
    counts: Counter[str]
    devices: tuple[str, ...]


def coverage_statuses() -> Iterator[CoverageStatus]:
    """Yield the status of every architecture, processors last."""
    every = [(known.target, known.generation) for known in ARCHITECTURES]
    for target, generation in (*every, *((name, "processors") for name in PROCESSORS)):
        devices = tuple(dict.fromkeys(report.device.name for report in _reports(target)))
        yield CoverageStatus(target, generation, Counter(states(target).values()), devices)


def states(architecture: str) -> dict[Instruction, str]:
    """Return the state of each instruction of an architecture. Raises UnknownName."""
    measured, target = measured_on(architecture), _target(architecture)
    chips = [name for name, chip in CHIPS.items() if chip.architecture == target]
    published = {inst for name in chips for inst in known_models(name)}

    def state(inst: Instruction) -> str:
        if inst in measured:
            return MEASURED
        if inst.mnemonic is not None or why_no_probe(inst) is None:
            return NEVER_RUN
        return STATES[2] if inst in published else STATES[3]

    return {inst: state(inst) for inst in catalog(architecture)}


def measured_on(architecture: str) -> dict[Instruction, list[str]]:
    """Return the devices with a recorded report, by measured instruction. Raises UnknownName."""
    found: dict[Instruction, list[str]] = {}
    for report in _reports(_target(architecture)):
        for row in report.measured:
            found.setdefault(row.instruction, []).append(report.device.name)
    return found


@cache
def was_measured(architecture: str) -> bool:
    """Return whether a recorded report is of that architecture. Raises UnknownName."""
    return bool(_reports(_target(architecture)))


def _target(architecture: str) -> str:
    return architecture if architecture in PROCESSORS else architectures.get(architecture).target


def _reports(target: str) -> list[Report]:
    return [report for report in _measuring() if report.device.architecture == target]


@cache
def _measuring() -> list[Report]:
    """Return the recorded reports of instructions that hardware computed."""
    return [report for report in map(Report.load, recorded()) if report.device.kind in ("cuda", "cpu") and report.instructions]
