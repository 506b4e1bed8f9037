"""Models by name: those of a report, or the published ones of a chip."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from accprobe.errors import AccprobeError, UnknownName, nearest
from accprobe.isa.instructions import Instruction, parse
from accprobe.model.tree import DotModel
from accprobe.report.nearest_measured import nearest_measured
from accprobe.report.recorded import no_report, recorded

if TYPE_CHECKING:
    from accprobe.report.report import Report

EXAMPLE = "such as h200:wgmma.m64n8k32.f32.e4m3.e4m3"


class NamedModel(NamedTuple):
    """An instruction and its model; remark: who answers instead, where that one was not measured."""

    inst: Instruction
    model: DotModel
    remark: str


_LAST_COLON = re.compile(r"(?s)(.+)(?<!:):(?!:)(.*)")
"""Names of instructions have colons too, two at a time: "kind::f16"."""


@cache
def named_model(like: str) -> NamedModel:
    """The model of "h200:wgmma.m64n8k32.f32.e4m3.e4m3": a name of `named_models`, a colon and an instruction. Where it was
    measured with another n alone, the nearest answers.

    Raises UnknownName, ReportError, and AccprobeError where the report has no model.
    """
    found = _LAST_COLON.fullmatch(like)
    if found is None:
        raise UnknownName(f"like='{like}' is no report and instruction, {EXAMPLE}")
    source, name = found.groups()
    models, inst = named_models(source), parse(name)
    if inst in models:
        return NamedModel(inst, models[inst], "")
    if other := nearest_measured(inst, models):
        return NamedModel(inst, models[other.nearest], other.sentence(source))
    raise UnknownName(f"{source} has no model of {inst.name}; {nearest(inst.name, [known.name for known in models])}")


def named_models(name: str) -> dict[Instruction, DotModel]:
    """The models of "sim:h100" (published), of "h200" (a recorded report) or of a report's file, by instruction.

    Raises UnknownName, ReportError, and AccprobeError where the report has no model.
    """
    if name.startswith("sim:"):
        from accprobe.model.published import known_models

        return {inst: known.model for inst, known in known_models(name).items()}
    from accprobe.report.report import Report

    known = recorded()
    if name not in known and not Path(name).exists():
        raise no_report(name, [each for each in known if Report.load(each).instructions])
    return models_of(Report.load(name), name)


def models_of(report: Report, name: str) -> dict[Instruction, DotModel]:
    """The models of a report that the user calls `name`. Raises AccprobeError where it has none."""
    models = {inst: row.model for row in report.instructions if row.model is not None for inst in row.instructions}
    if not models:
        raise AccprobeError(f"{name} has no model of any instruction; name a report that has instructions, or sim:NAME")
    return models
