"""Models by name: those of a report, or the published ones of a chip."""

from __future__ import annotations

from accprobe.errors import AccprobeError
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel


def named_models(name: str) -> dict[Instruction, DotModel]:
    """The models of "sim:h100" (published), of "h200" (a recorded report) or of a report's file, by instruction.

    Raises UnknownName, ReportError, and AccprobeError where the report has no model.
    """
    if name.startswith("sim:"):
        from accprobe.model.published import known_models

        return {inst: known.model for inst, known in known_models(name).items()}
    from accprobe.report.report import Report

    models = {row.instruction: row.model for row in Report.load(name).instructions if row.model is not None}
    if not models:
        raise AccprobeError(f"{name} has no model of any instruction")
    return models
