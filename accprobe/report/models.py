"""Models by name: those of a report, or the published ones of a chip."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accprobe.errors import AccprobeError
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel

if TYPE_CHECKING:
    from accprobe.report.report import Report


def named_models(name: str) -> dict[Instruction, DotModel]:
    """The models of "sim:h100" (published), of "h200" (a recorded report) or of a report's file, by instruction.

    Raises UnknownName, ReportError, and AccprobeError where the report has no model.
    """
    if name.startswith("sim:"):
        from accprobe.model.published import known_models

        return {inst: known.model for inst, known in known_models(name).items()}
    from accprobe.report.report import Report

    return models_of(Report.load(name), name)


def models_of(report: Report, name: str) -> dict[Instruction, DotModel]:
    """The models of a report that the user calls `name`. Raises AccprobeError where it has none."""
    models = {row.instruction: row.model for row in report.instructions if row.model is not None}
    if not models:
        raise AccprobeError(f"{name} has no model of any instruction")
    return models
