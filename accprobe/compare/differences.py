"""Differences between findings of two reports: possible values, verdicts, and their consequence for a kernel.

Numbers are ordered: "at least 24" is every number from 24 on. A sum that keeps every bit has infinitely many alignment bits.
The smallest exponent is minus infinity if there is no alignment floor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Literal

from accprobe.model.fields import FEATURES, parsed, title
from accprobe.model.record import Numbers, Value
from accprobe.records.findings import Finding
from accprobe.records.rows import Row

Word = str
Verdict = Literal["changed", "only in A", "only in B", "undecided", "same"]
# A verdict in tables: "status changed" if the status is the only change.
VerdictWord = Verdict | Literal["status changed"]
FieldVerdict = Literal["changed", "undecided"]

UNDECIDED = "Not known well enough on both sides to distinguish them."
UNKNOWN = "A and B have different values."

# Interval at which kernels promote partial sums: N_C of DeepSeek-V3 (arXiv 2412.19437, section 3.3.2).
PROMOTION = 128


@dataclass(frozen=True)
class Span:
    """All numbers from `low` to `high`."""

    low: float
    high: float


# Possible values of a finding that rules none out.
ANYTHING: tuple[Span | Word, ...] = ()

# Return whether every number of a span satisfies the comparison.
OPERATORS: dict[str, Callable[[Span, float], bool]] = {
    ">=": lambda span, wanted: span.low >= wanted,
    "<=": lambda span, wanted: span.high <= wanted,
    ">": lambda span, wanted: span.low > wanted,
    "<": lambda span, wanted: span.high < wanted,
    "==": lambda span, wanted: span.low == span.high == wanted,
    "!=": lambda span, wanted: not span.low <= wanted <= span.high,
}


def possible(finding: Finding, feature: str) -> tuple[Span | Word, ...]:
    """Return the values that the finding does not rule out, ANYTHING if it rules out none, as a suggestion does."""
    if finding.bound == "suggested":
        return ANYTHING
    if finding.bound == "at_least" and isinstance(finding.value, int):
        return (Span(finding.value, inf),)
    if finding.bound in ("undetermined", "equivalent"):
        return ANYTHING if "any" in finding.candidates else tuple(_one(value, feature) for value in finding.candidates)
    return (_one(finding.value, feature),)


def overlap(a: tuple[Span | Word, ...], b: tuple[Span | Word, ...]) -> bool:
    """Return whether some value is possible in both."""
    return ANYTHING in (a, b) or any(
        x.low <= y.high and y.low <= x.high if isinstance(x, Span) and isinstance(y, Span) else x == y for x in a for y in b
    )


def holds(known: tuple[Span | Word, ...], operator: str, wanted: float | Word) -> bool:
    """Return whether every possible value satisfies the comparison; words support `==` and `!=` only."""
    return known != ANYTHING and all(_holds(one, operator, wanted) for one in known)


def _holds(one: Span | Word, operator: str, wanted: float | Word) -> bool:
    if isinstance(one, Span):
        return OPERATORS[operator](one, wanted) if not isinstance(wanted, Word) else operator == "!="
    return {"==": one == wanted, "!=": one != wanted}.get(operator, False)


def _one(value: Value, feature: str) -> Span | Word:
    """Return a value, also one of candidates in words: "none", "at most -126", "at least 24"."""
    if isinstance(value, int):
        return Span(value, value)
    text = str(value).lower()
    if text == "none":
        field = parsed(feature).field
        none = field.values.none if field and isinstance(field.values, Numbers) else None
        return "none" if none is None else Span(none, none)
    if text.startswith("at most "):
        return Span(-inf, int(text.removeprefix("at most ")))
    if text.startswith("at least "):
        return Span(int(text.removeprefix("at least ")), inf)
    return str(value)


@dataclass(frozen=True)
class Difference:
    """A field that differs, with its values as in tables. means: consequence for a kernel. where: elements of the region, ""
    for the largest one.
    """

    field: str
    verdict: FieldVerdict
    a: str
    b: str
    means: str = ""
    where: str = ""

    @property
    def title(self) -> str:
        return self._name + (f" at {self.where}" if self.where else "")

    @property
    def _name(self) -> str:
        return title(self.field)


@dataclass(frozen=True)
class ProductDifference(Difference):
    @property
    def _name(self) -> str:
        return title(self.field, of_product=True)


def finding_verdict(a: Finding, b: Finding, field: str) -> FieldVerdict | None:
    """Return whether two findings differ; None if they are the same."""
    if (a.value, a.bound, a.candidates) == (b.value, b.bound, b.candidates):
        return None
    return "undecided" if overlap(possible(a, field), possible(b, field)) else "changed"


def meaning(field: str, a: Row, b: Row) -> str:
    """Return the consequence for a kernel if B differs from A in a field."""
    if field == "effective_bits":
        return _meaning_of_bits(a, b)
    what = parsed(field)
    sentence = what.record.differs if what.record else UNKNOWN
    return f"In the separate add: {sentence[:1].lower()}{sentence[1:]}" if what.role == "add" else sentence


def _meaning_of_bits(a: Row, b: Row) -> str:
    before, after = (row.findings["effective_bits"].value for row in (a, b))
    d = b.instruction.d
    if not isinstance(before, int) or not isinstance(after, int):
        return FEATURES["effective_bits"].differs
    if before < after >= d.mantissa_bits:
        rounding = b.findings.get("result_rounding")
        truncated = ", though each sum is still truncated" if rounding and rounding.value == "RZ" else ""
        return f"The running sum keeps every fraction bit of {d}: promoting partial sums no longer adds bits{truncated}."
    if before < after:
        return f"The running sum keeps {after - before} bits more, of the {d.mantissa_bits} of {d}: promote less often."
    return (
        f"The running sum loses {before - after} bits: promote partial sums to a separate {d} register about every"
        f" {PROMOTION} products, or long sums become biased."
    )
