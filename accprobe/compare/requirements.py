"""Requirements on a report: "wgmma.*.e4m3.*: effective_bits >= 13", checked on every measured instruction that matches.

Where a colon is in the glob, it means whole products: "torch:_scaled_mm 4096x4096x4096: promote_every <= 128" is checked on
every product of that callable and shape, in each of its regions; `ProductRow.matches` says what words may stand there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from accprobe.compare.possible import Span, holds, possible
from accprobe.errors import RequirementError, nearest
from accprobe.infer.findings import Finding
from accprobe.model.features import finding_names
from accprobe.report.columns import Scalar, is_number, record
from accprobe.report.product_words import PRODUCT_FINDINGS, is_product_number, product_record, product_record_fields
from accprobe.report.products import ProductRow
from accprobe.report.report import Report
from accprobe.report.rows import Row
from accprobe.report.words import value

_LINE = re.compile(
    r"(?P<glob>\S+?(?::\S+?(?:\s+\S+?)*)?)\s*:\s*(?P<field>\w+)\s*(?P<operator>>=|<=|==|!=|>|<)\s*(?P<wanted>[^\s<>=!].*)"
)
_FORM = "write it as 'GLOB: FIELD OPERATOR VALUE', such as 'wgmma.*.e4m3.*: effective_bits >= 13'"

_N = re.compile(r"n\d+(?=k)")

NO_MATCH = "no measured instruction matches"
NO_PRODUCT = "no product matches"
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

    @property
    def is_of_products(self) -> bool:
        return ":" in self.glob


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
    of_products = ":" in match["glob"]
    known = [*product_record_fields()] if of_products else _fields()
    if field not in known:
        raise RequirementError(f"requirement '{line}': there is no field '{field}'; {nearest(field, known)}")
    number, ordering = re.fullmatch(r"-?\d+", text), operator not in ("==", "!=")
    if ordering and not (is_product_number(field) if of_products else is_number(field)):
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
    return [
        _of_products(report.products, requirement) if requirement.is_of_products else _outcome(report.measured, requirement)
        for requirement in requirements
    ]


def _of_products(rows: Sequence[ProductRow], requirement: Requirement) -> Outcome:
    matched = [row for row in rows if row.matches(requirement.glob)]
    breaches = ((row.title, found) for row in matched for found in _product_breaches(row, requirement))
    return Outcome(requirement, len(matched), tuple(Breach(name, found) for name, found in breaches))


def _product_breaches(row: ProductRow, requirement: Requirement) -> Iterator[str]:
    """What the product has that is not as required; one with several plans has to have it in each."""
    field = requirement.field
    if field not in PRODUCT_FINDINGS:
        yield from filter(None, [_plain_breach(product_record(row)[field], requirement)])
        return
    found: dict[str, list[str]] = {}
    for region in row.regions:
        found.setdefault(_finding_breach(region.findings.get(field), requirement, row), []).append(region.where)
    for told, where in found.items():
        if told:
            yield told if len(found) == 1 else f"{told} at {'; '.join(where)}"
    if not row.regions:
        yield NO_VALUE


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
    if requirement.field not in finding_names():
        return _plain_breach(record(row)[requirement.field], requirement)
    return _finding_breach(row.findings.get(requirement.field), requirement, row)


def _plain_breach(plain: Scalar, requirement: Requirement) -> str:
    known = Span(plain, plain) if isinstance(plain, int | float) and not isinstance(plain, bool) else str(plain)
    is_so = plain is not None and holds((known,), requirement.operator, requirement.wanted)
    return "" if is_so else NO_VALUE if plain is None else str(plain)


def _finding_breach(finding: Finding | None, requirement: Requirement, row: Row | ProductRow) -> str:
    field = requirement.field
    if finding is None:
        return NO_VALUE
    known = possible(finding, field)
    # Structures of one class give the same bits: a requirement that one of them passes, the arithmetic passes.
    several = [(one,) for one in known] if finding.bound == "equivalent" else [known]
    if not any(holds(each, requirement.operator, requirement.wanted) for each in several):
        left = (
            f", left: {' or '.join(map(str, finding.candidates))}"
            if finding.candidates and finding.bound != "equivalent"
            else ""
        )
        note = f" ({finding.note})" if finding.note and requirement.is_of_products else ""
        return value(finding, field) + left + note
    return "" if row.holds else f"{value(finding, field)}, {row.status}: {row.reason}"


def _fields() -> list[str]:
    """Every column of the flat form that an instruction has, but for how far findings are known."""
    aside = {f"{name}_{what}" for name in finding_names() for what in ("bound", "left")}
    return [key for key in record(Row(name="mma.sync.m8n8k4.f64.f64.f64.f64", status="skipped")) if key not in aside]
