"""Evidence beside a report: `h200.json` has its exchanges in `h200.evidence.json.gz`, so that it stays small and quick to read.

`accprobe run -o FILE` writes one file, evidence included. `python -m accprobe.report.evidence FILE` splits it in two, as the
recorded reports are.
"""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from accprobe.build import atomic
from accprobe.errors import ReportError
from accprobe.operands.exchange import Exchange
from accprobe.records.rows import Row
from accprobe.report.recorded import find
from accprobe.report.report import MOST_BYTES, SCHEMA, AnyClaim, Report
from accprobe.report.text import reason, written

EvidenceByRow = dict[str, dict[str, tuple[Exchange, ...]]]
"""Instruction -> feature -> the exchanges that decided it."""

_FORM = TypeAdapter(EvidenceByRow)


def load_with_evidence(name: str | Path) -> Report:
    """Read a report, and the evidence beside it for rows that have none. Raises ReportError."""
    report, file = Report.load(name), _beside(name)
    if not file.is_file():
        return report
    try:
        with file.open("rb") as stream, gzip.open(stream) as content:
            beside = _FORM.validate_json(content.read(MOST_BYTES), strict=True)
        return report.with_claims(_with(claim, beside) for claim in report.claims)
    except ValidationError as e:
        raise ReportError(f"{file.name}: {reason(e, SCHEMA)}") from None
    except (OSError, EOFError, zlib.error) as e:
        raise ReportError(f"{file.name} cannot be read: {e}") from None


def split(path: Path) -> None:
    """Move the evidence of a report's rows to the file beside it. Raises ReportError, OSError."""
    report = load_with_evidence(path)
    evidence = {row.name: row.evidence for row in report.instructions if row.evidence}
    text = written(_FORM.dump_python(evidence, mode="json")).encode()
    atomic.save(_beside(path), gzip.compress(text, mtime=0))
    report.with_claims(
        claim.model_copy(update={"evidence": {}}) if isinstance(claim, Row) else claim for claim in report.claims
    ).save(path)


def _beside(name: str | Path) -> Path:
    report = find(name)
    return report.with_name(f"{report.name.removesuffix('.json')}.evidence.json.gz")


def _with(claim: AnyClaim, beside: EvidenceByRow) -> AnyClaim:
    if not isinstance(claim, Row) or claim.evidence or claim.name not in beside:
        return claim
    return Row.model_validate(dict(claim) | {"evidence": beside[claim.name]})


if __name__ == "__main__":
    split(Path(sys.argv[1]))
