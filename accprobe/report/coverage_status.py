"""The state of each architecture's instructions: measured, ready to be measured, published, or unknown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Literal, get_args

from accprobe.build.probes import why_no_probe
from accprobe.isa import architectures
from accprobe.isa.architectures import ARCHITECTURES, PROCESSORS
from accprobe.isa.instructions import Instruction, catalog
from accprobe.model.published import CHIPS, known_models
from accprobe.report.recorded import recorded
from accprobe.report.report import Report

State = Literal["measured", "never run", "published", "nothing"]
"""A recorded report has the instruction; its probe never ran; it has only a published model; it has neither."""


@dataclass(frozen=True)
class CoverageStatus:
    """How many instructions of an architecture are in each state. devices: the measured ones."""

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


STATE_WORDS: dict[State, str] = {
    "measured": "measured",
    "never run": "probe never run on hardware",
    "published": "no probe, but a published model",
    "nothing": "no probe, no published model",
}
"""How lists and tables name a state."""


def coverage_statuses() -> Iterator[CoverageStatus]:
    """Yield the status of every architecture, processors last."""
    every = [(known.target, known.generation) for known in ARCHITECTURES]
    for target, generation in (*every, *((name, "processors") for name in PROCESSORS)):
        counts = Counter(states(target).values())
        devices = tuple(dict.fromkeys(report.device.name for report in _reports(target)))
        measured, never_run, published, nothing = (counts[state] for state in get_args(State))
        yield CoverageStatus(target, generation, measured, never_run, published, nothing, devices)


def states(architecture: str) -> dict[Instruction, State]:
    """Return the state of each instruction of an architecture. Raises UnknownName."""
    listed, target = catalog(architecture), _target(architecture)
    measured = {inst for report in _reports(target) for inst in _measured(report)}
    chips = [name for name, chip in CHIPS.items() if chip.architecture == target]
    published = {inst for name in chips for inst in known_models(name)}

    def state(inst: Instruction) -> State:
        if inst in measured:
            return "measured"
        if inst.mnemonic is not None or why_no_probe(inst) is None:
            return "never run"
        return "published" if inst in published else "nothing"

    return {inst: state(inst) for inst in listed}


def measured_on(architecture: str) -> dict[Instruction, list[str]]:
    """Return the devices with a recorded report, by measured instruction. Raises UnknownName."""
    found: dict[Instruction, list[str]] = {}
    for report in _reports(_target(architecture)):
        for inst in _measured(report):
            found.setdefault(inst, []).append(report.device.name)
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


def _measured(report: Report) -> list[Instruction]:
    return [row.instruction for row in report.measured]
