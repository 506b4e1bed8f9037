"""A report of published models. Nothing in it is measured or evaluated."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from accprobe.infer.findings import Findings, findings_of
from accprobe.isa.instructions import Instruction, catalog
from accprobe.model.published import NO_MODEL, Explained, KnownModel, Left, chip, known_models, title, words_explained
from accprobe.report.claims import NOT_MEASURED
from accprobe.report.report import SCHEMA, DeviceRecord, Report, Run, Tool
from accprobe.report.rows import Row


@cache
def published(name: str) -> Report:
    """Return the models of a chip ("h100" or "sim:h100") as a report; every row is `simulated`, with a reason.

    Raises UnknownName with the known chips.
    """
    known, models, explained = chip(name), known_models(name), words_explained(name)
    return Report(
        schema=SCHEMA,
        tool=Tool.current(),
        environment={},
        seed=0,
        device=DeviceRecord(kind="simulated", name=f"simulated {title(name)}", architecture=known.architecture),
        run=Run(jobs=0, seconds=0.0, selected=len(catalog(known.architecture))),
        claims=tuple(_row(inst, models.get(inst), explained.get(inst.name, ())) for inst in catalog(known.architecture)),
    )


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
    """Return the findings; those that no recorded result settles become undetermined."""
    note = "no public result of the real chip distinguishes these"
    opened = {
        name: replace(findings[name], bound="undetermined", candidates=values, note=note) for name, values in left.items()
    }
    return findings | opened
