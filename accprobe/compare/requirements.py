"""Requirements on a report: "wgmma.*.e4m3.*: effective_bits >= 13", checked on every measured instruction that matches."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from accprobe.compare.possible import Span, holds, possible
from accprobe.errors import RequirementError, nearest
from accprobe.model.features import finding_names
from accprobe.report.columns import is_number, record
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import value

_LINE = re.compile(r"(?P<glob>\S+)\s*:\s*(?P<field>\w+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<wanted>[^\s<>=!].*)")
_FORM = "write it as 'GLOB: FIELD OPERATOR VALUE', such as 'wgmma.*.e4m3.*: effective_bits >= 13'"

_N = re.compile(r"n\d+(?=k)")

NO_MATCH = "no measured instruction matches"
NO_VALUE = "no value"
KEY = "require"
"""The list of requirements in a TOML file."""


@dataclass(frozen=True)
class Requirement:
    """A field that every instruction which the glob matches must have so. wanted: a number, or a word for == and !=."""

    text: str
    glob: str
    field: str
    operator: str
    wanted: int | str


@dataclass(frozen=True)
class Breach:
    """An instruction that is not as required, and what it has instead."""

    name: str
    found: str


@dataclass(frozen=True)
class Outcome:
    """A requirement with the instructions that break it; `matched` have it or break it. hint: why none matches, if known."""

    requirement: Requirement
    matched: int
    breaches: tuple[Breach, ...]
    hint: str = ""

    @property
    def kept(self) -> bool:
        """A requirement that matches nothing is not kept: nobody would see that it has gone stale."""
        return self.matched > 0 and not self.breaches


def parse_requirement(line: str) -> Requirement:
    """The requirement that a line states. Raises RequirementError that says what is wrong with it."""
    match = _LINE.fullmatch(line.strip())
    if match is None:
        raise RequirementError(f"requirement '{line}': {_FORM}")
    field, operator, text = match["field"], match["operator"], match["wanted"]
    known = _fields()
    if field not in known:
        raise RequirementError(f"requirement '{line}': there is no field '{field}'; {nearest(field, known)}")
    number, ordering = re.fullmatch(r"-?\d+", text), operator not in ("==", "!=")
    if ordering and not is_number(field):
        raise RequirementError(f"requirement '{line}': the values of '{field}' are words, which know == and != alone")
    if ordering and not number:
        raise RequirementError(f"requirement '{line}': '{operator}' needs a whole number, not '{text}'")
    wanted = int(text) if number else text.strip("\"'")
    return Requirement(line.strip(), match["glob"], field, operator, wanted)


def read_file(path: Path) -> list[Requirement]:
    """The requirements of a TOML file: `require = ["GLOB: FIELD OPERATOR VALUE", …]`. Raises RequirementError."""
    import tomllib

    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise RequirementError(f"{path} cannot be read: {e.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as e:
        raise RequirementError(f"{path}: it is not TOML ({e})") from None
    if unknown := sorted(data.keys() - {KEY}):
        raise RequirementError(f"{path}: there is no key '{unknown[0]}'; the list is called {KEY}")
    lines = data.get(KEY)
    if not isinstance(lines, list) or not lines or not all(isinstance(line, str) for line in lines):
        raise RequirementError(f'{path}: {KEY} must be a list of lines, such as {KEY} = ["wgmma.*: effective_bits >= 13"]')
    return [parse_requirement(line) for line in lines]


def check_requirements(report: Report, requirements: Iterable[Requirement]) -> list[Outcome]:
    """Each requirement with what breaks it. A finding counts as it is known: of "at least 13" nobody can say that it is 13."""
    return [_outcome(report.measured, requirement) for requirement in requirements]


def _outcome(rows: Sequence[Row], requirement: Requirement) -> Outcome:
    matched = [row for row in rows if fnmatchcase(row.name, requirement.glob)]
    breaches = ((row.name, _breach(row, requirement)) for row in matched)
    hint = "" if matched else _other_n(rows, requirement.glob)
    return Outcome(requirement, len(matched), tuple(Breach(name, found) for name, found in breaches if found), hint)


def _other_n(rows: Sequence[Row], glob: str) -> str:
    """Of a glob whose n alone was not measured: at which n its instructions were, and the glob of the nearest."""
    asked = _N.search(glob)
    measured = {row.instruction.n for row in rows if fnmatchcase(row.name, _N.sub("n*", glob))}
    if asked is None or not measured:
        return ""
    n = int(asked[0][1:])
    nearest_n = min(measured, key=lambda other: abs(other - n))
    known = " and ".join(map(str, sorted(measured)))
    return f"measured at n = {known}, not at {n}; the nearest: {_N.sub(f'n{nearest_n}', glob)}"


def _breach(row: Row, requirement: Requirement) -> str:
    """What the row has that is not as required, "" where it is."""
    field, operator, wanted = requirement.field, requirement.operator, requirement.wanted
    if field not in finding_names():
        plain = record(row)[field]
        known = Span(plain, plain) if isinstance(plain, int | float) and not isinstance(plain, bool) else str(plain)
        return "" if plain is not None and holds((known,), operator, wanted) else NO_VALUE if plain is None else str(plain)
    finding = row.findings.get(field)
    if finding is None:
        return NO_VALUE
    if not holds(possible(finding, field), operator, wanted):
        left = f", left: {' or '.join(map(str, finding.left))}" if finding.left else ""
        return value(finding, field) + left
    return "" if row.holds else f"{value(finding, field)}, {row.status}: {row.reason}"


def _fields() -> list[str]:
    """Every column of the flat form that an instruction has, but for how far findings are known."""
    aside = {f"{name}_{what}" for name in finding_names() for what in ("bound", "left")}
    return [key for key in record(Row(name="mma.sync.m8n8k4.f64.f64.f64.f64", status="skipped")) if key not in aside]
