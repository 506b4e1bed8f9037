"""Requirements on a report: "wgmma.*.e4m3.*: effective_bits >= 13" is checked on every measured claim that matches.

Globs of other words may follow. "torch:_scaled_mm 4096x4096x4096: promote_every <= 128" is checked on every product of that
callable and shape, in each region; see `Claim.matches`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accprobe.compare.differences import Span, holds, possible
from accprobe.errors import RequirementError, nearest, unreadable
from accprobe.records.findings import Finding
from accprobe.report.columns import CLAIM_FIELDS, Scalar, field_names
from accprobe.report.names import claims_meant, suggest_names
from accprobe.report.report import AnyClaim, Report
from accprobe.report.words import value

_LINE = re.compile(
    r"(?P<glob>\S+?(?::\S+?(?:\s+\S+?)*)?)\s*:\s*(?P<field>\w+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<wanted>[^\s<>=!].*)"
)
_FORM = "write it as 'GLOB: FIELD OPERATOR VALUE', such as 'wgmma.*.e4m3.*: effective_bits >= 13'"

NO_VALUE = "no value"


@dataclass(frozen=True)
class Requirement:
    """A comparison that every row matching the glob must pass. wanted: a number, or a word for == and !=."""

    text: str
    glob: str
    field: str
    operator: str
    wanted: float | str


@dataclass(frozen=True)
class Outcome:
    """A requirement, how many rows match it, and by the value found the names of those that fail.

    meant: "did you mean …" if none matches and one is near.
    """

    requirement: Requirement
    matched: int
    failures: Mapping[str, Sequence[str]]
    meant: str = ""

    @property
    def passed(self) -> bool:
        """Return whether it passed; a requirement without any matching row fails, because it is probably outdated."""
        return self.matched > 0 and not self.failures


def parse_requirement(line: str) -> Requirement:
    """Parse a requirement. Raises RequirementError with the reason."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise RequirementError(f"requirement '{line}': a field, an operator or a value is missing; {_FORM}")
    field, operator, text = match["field"], match["operator"], match["wanted"]
    if field not in field_names():
        raise RequirementError(f"requirement '{line}': there is no field '{field}'; {nearest(field, field_names())}")
    number = re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text)
    if not number and operator not in ("==", "!="):
        raise RequirementError(f"requirement '{line}': '{operator}' needs a number, not '{text}'")
    wanted = (float(text) if number[1] or number[2] else int(text)) if number else text.strip("\"'")
    return Requirement(line.strip(), match["glob"], field, operator, wanted)


def read_file(path: Path) -> list[Requirement]:
    """Return the requirements of a text file, one a line, except empty lines and comments (#). Raises RequirementError."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except OSError as e:
        raise RequirementError(unreadable(path, e)) from None
    except UnicodeDecodeError:
        raise RequirementError(f"{path} is not text in UTF-8: save it as UTF-8") from None
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip() and not line.lstrip().startswith("#"):
            try:
                found.append(parse_requirement(line))
            except RequirementError as e:
                raise RequirementError(f"{path}, line {number}: {e}") from None
    if not found:
        raise RequirementError(f"{path} has no requirement: write one a line, such as 'wgmma.*: effective_bits >= 13'")
    return found


def check_requirement(report: Report, requirement: Requirement) -> Outcome:
    """Check a requirement. Every possible value must pass, but of equivalent ones only one: "at least 13" fails == 13."""
    measured = [claim for claim in report.claims if claim.status != "skipped"]
    matched = claims_meant(measured, requirement.glob)
    failures: dict[str, list[str]] = {}
    for claim in matched:
        for found in _failures(claim, requirement):
            failures.setdefault(found, []).append(claim.title)
    name = requirement.glob.partition(" ")[0]
    known = {claim.name: claim.opcodes for claim in measured}
    near = "" if matched or claims_meant(measured, name) else suggest_names(name, known)
    return Outcome(requirement, len(matched), failures, near if near.startswith("did you mean") else "")


def _failures(claim: AnyClaim, requirement: Requirement) -> Iterator[str]:
    """Yield the values that fail; every region of a product must pass."""
    if requirement.field in CLAIM_FIELDS:
        plain = CLAIM_FIELDS[requirement.field](claim)
        if requirement.field == "computes" and not claim.holds:  # the words of a model that is not confirmed pass nothing
            yield f"{plain or NO_VALUE}, {claim.status}: {claim.reason}"
        else:
            yield from filter(None, [_plain_failure(plain, requirement)])
        return
    found: dict[str, list[str]] = {}
    for part in claim.parts:
        found.setdefault(_finding_failure(part.findings.get(requirement.field), requirement, claim), []).append(part.where)
    for failure, where in found.items():
        if failure:
            yield failure if len(found) == 1 else f"{failure} at {'; '.join(where)}"
    if not claim.parts:
        yield NO_VALUE


def _plain_failure(plain: Scalar, requirement: Requirement) -> str:
    known = Span(plain, plain) if isinstance(plain, int | float) else str(plain)
    is_so = plain is not None and holds((known,), requirement.operator, requirement.wanted)
    return "" if is_so else NO_VALUE if plain is None else str(plain)


def _finding_failure(finding: Finding | None, requirement: Requirement, claim: AnyClaim) -> str:
    field = requirement.field
    if finding is None:
        return NO_VALUE
    known = possible(finding, field)
    # Equivalent structures give the same bits, so the arithmetic passes if one of them does.
    several = [(one,) for one in known] if finding.bound == "equivalent" else [known]
    if not any(holds(each, requirement.operator, requirement.wanted) for each in several):
        shown = value(finding, field)
        if finding.candidates and finding.bound != "equivalent":
            shown += f", candidates: {' or '.join(map(str, finding.candidates))}"
        note = finding.note if finding.candidates else finding.note.replace("these give", "other values give")
        return f"{shown} ({note})" if note else shown
    return "" if claim.holds else f"{value(finding, field)}, {claim.status}: {claim.reason}"
