"""Reports as a command line names them: a file, a recorded report, sim:NAME for published models, - for standard input."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from accprobe.cli.output import tell
from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.report.report import Report

STANDARD_INPUT = "-"


def read_report(name: str, evidence: bool = False) -> Report:
    """Read a report; evidence: with the exchanges in the file beside it. Warns where a file has a recorded report's name.

    Raises AccprobeError.
    """
    if not name:
        raise AccprobeError("no report is named: give a file, the name of a recorded one, sim:NAME, or - for standard input")
    if name.startswith("sim:"):
        from accprobe.report.published import published

        return published(name)
    from accprobe.report.recorded import recorded
    from accprobe.report.report import Report

    if name in recorded() and Path(name).exists():
        tell(f"{name} is the recorded report; ./{name} is what has that name here")
    if name == STANDARD_INPUT:
        return Report.read_from(sys.stdin.buffer, "standard input")
    if not evidence:
        return Report.load(name)
    from accprobe.report.evidence import load_with_evidence

    return load_with_evidence(name)
