"""Reports as a command line names them, whole or some rows of them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from accprobe.cli.output import tell
from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.report.report import Report


def read_report(name: str, row: str = "", dtype: str = "", evidence: bool = False) -> Report:
    """Read "h200", "sim:h100", a file or "-", or only the rows of "h200:QGMMA"; a warning says where a file has a recorded
    report's name. row, dtype: as a user types them. evidence: with the exchanges in the file beside it. Raises AccprobeError.
    """
    if not name:
        raise AccprobeError("no report is named: give a file, a recorded report, sim:NAME, or - for standard input")
    from accprobe.report.names import rows_named, split_row

    source, rows = split_row(name)
    report = _read(source or name, evidence)
    if row and rows:
        raise AccprobeError(f"{name} names rows already: leave out '{row}'")
    if not (row or rows or dtype):
        return report
    chosen, remark = rows_named(report, source, row or rows, dtype)
    if remark:
        tell(remark)
    return chosen


def _read(name: str, evidence: bool) -> Report:
    if name.startswith("sim:"):
        from accprobe.report.published import published

        return published(name)
    from accprobe.report.recorded import STANDARD_INPUT, recorded
    from accprobe.report.report import Report

    if name == STANDARD_INPUT:
        return Report.read_from(sys.stdin.buffer, "standard input")
    if name in recorded() and Path(name).exists():
        tell(f"{name} is the recorded report; ./{name} is the file of that name")
    if not evidence:
        return Report.load(name)
    from accprobe.report.evidence import load_with_evidence

    return load_with_evidence(name)
