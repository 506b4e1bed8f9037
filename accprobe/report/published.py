"""Reports of published models, where nothing is measured; and the instructions that recorded reports measured on hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from accprobe.isa import architectures
from accprobe.isa.architectures import ARCHITECTURES, PROCESSORS
from accprobe.isa.instructions import Instruction, catalog
from accprobe.model.published import NO_MODEL, Explained, KnownModel, Left, chip, known_models, title, words_explained
from accprobe.records.claims import NOT_MEASURED
from accprobe.records.findings import Findings, findings_of
from accprobe.records.rows import Row
from accprobe.report.recorded import recorded
from accprobe.report.report import DeviceRecord, Report, Run


@cache
def published(name: str) -> Report:
    """Return the models of a chip ("h100" or "sim:h100") as a report; rows with a model are `simulated`, others skipped.

    Raises UnknownName with the known chips.
    """
    known, models, explained = chip(name), known_models(name), words_explained(name)
    device = DeviceRecord(kind="simulated", name=f"simulated {title(name)}", architecture=known.architecture)
    claims = [_row(inst, models.get(inst), explained.get(inst.name, ())) for inst in catalog(known.architecture)]
    return Report.of(device, {}, 0, claims, Run(jobs=0, seconds=0.0, selected=len(claims)))


def _row(inst: Instruction, known: KnownModel | None, explains: tuple[Explained, ...]) -> Row:
    if known is None:
        return Row(name=inst.name, status="skipped", reason=NO_MODEL)
    return Row(
        name=inst.name,
        status="simulated",
        reason=NOT_MEASURED,
        opcodes=known.lowering.matrix,
        lowering=known.lowering.sequence,
        opcode_source=known.lowering.source,
        findings=with_open(findings_of(inst, known.model), known.candidates),
        model=known.model,
        explains=explains,
    )


def with_open(findings: Findings, left: Left) -> Findings:
    """Return the findings; those in `left`, which no recorded result settles, become undetermined."""
    note = "no public result of the real chip distinguishes these"
    opened = {
        name: replace(findings[name], bound="undetermined", candidates=values, note=note) for name, values in left.items()
    }
    return findings | opened


NEVER_RUN = "probe never run on hardware"


class MeasuredCount(NamedTuple):
    """How many instructions of an architecture there are and were measured, in all and by device."""

    target: str
    generation: str
    instructions: int
    measured: int
    by_device: dict[str, int]


def measured_counts() -> Iterator[MeasuredCount]:
    """Yield the counts of every architecture, processors last."""
    every = [(known.target, known.generation) for known in ARCHITECTURES]
    for target, generation in (*every, *((name, "processors") for name in PROCESSORS)):
        found = measured_on(target)
        by_device = Counter(device for names in found.values() for device in dict.fromkeys(names))
        yield MeasuredCount(target, generation, len(catalog(target)), len(found), by_device)


@cache
def measured_on(architecture: str) -> dict[Instruction, list[str]]:
    """Return the devices with a recorded report, by measured instruction. Raises UnknownName."""
    target = architecture if architecture in PROCESSORS else architectures.get(architecture).target
    found: dict[Instruction, list[str]] = {}
    for report in recorded_of(target).values():
        for row in report.measured:
            found.setdefault(row.instruction, []).append(report.device.name)
    return found


def recorded_of(target: str) -> dict[str, Report]:
    """Return the recorded reports of devices of a compile target or processor architecture, by name."""
    of_hardware = {name: report for name in recorded() if (report := Report.load(name)).device.kind in ("cuda", "cpu")}
    return {name: report for name, report in of_hardware.items() if report.device.architecture == target}
