"""What a finding leaves possible: the values that a feature may have, as far as it is known.

Numbers are ordered: "at least 24" is every number from 24 on, a sum that keeps every bit has infinitely many alignment bits,
and one that aligns to no floor has a smallest exponent of minus infinity.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

from accprobe.infer.findings import Finding
from accprobe.model.features import parsed
from accprobe.model.record import Numbers, Value

Word = str


@dataclass(frozen=True)
class Span:
    """All numbers from `low` to `high`."""

    low: float
    high: float


ANYTHING: tuple[Span | Word, ...] = ()
"""No value is ruled out."""

OPERATORS: dict[str, Callable[[Span, float], bool]] = {
    ">=": lambda span, wanted: span.low >= wanted,
    "<=": lambda span, wanted: span.high <= wanted,
    ">": lambda span, wanted: span.low > wanted,
    "<": lambda span, wanted: span.high < wanted,
    "==": lambda span, wanted: span.low == span.high == wanted,
    "!=": lambda span, wanted: not span.low <= wanted <= span.high,
}
"""Whether every number of a span is so."""


def possible(finding: Finding, feature: str) -> tuple[Span | Word, ...]:
    """Every value that the finding leaves, ANYTHING where it rules none out: what is suggested rules out nothing."""
    if finding.bound == "suggested":
        return ANYTHING
    if finding.bound == "at_least" and isinstance(finding.value, int):
        return (Span(finding.value, inf),)
    if finding.bound in ("undetermined", "equivalent"):
        return ANYTHING if "any" in finding.candidates else tuple(_one(value, feature) for value in finding.candidates)
    return (_one(finding.value, feature),)


def overlap(a: tuple[Span | Word, ...], b: tuple[Span | Word, ...]) -> bool:
    """Whether some value is possible in both."""
    if ANYTHING in (a, b):
        return True
    return any(_meet(x, y) for x in a for y in b)


def holds(known: tuple[Span | Word, ...], operator: str, wanted: float | Word) -> bool:
    """Whether every value possible is as the operator wants it; words know `==` and `!=` alone."""
    return known != ANYTHING and all(_holds(one, operator, wanted) for one in known)


def _holds(one: Span | Word, operator: str, wanted: float | Word) -> bool:
    if isinstance(one, Span):
        return OPERATORS[operator](one, wanted) if not isinstance(wanted, Word) else operator == "!="
    return {"==": one == wanted, "!=": one != wanted}.get(operator, False)


def _meet(x: Span | Word, y: Span | Word) -> bool:
    if isinstance(x, Span) and isinstance(y, Span):
        return x.low <= y.high and y.low <= x.high
    return x == y


def _one(value: Value, feature: str) -> Span | Word:
    """A value, or what `left` has in words: "none", "at most -126"."""
    if isinstance(value, int):
        return Span(value, value)
    text = str(value).lower()
    if text == "none":
        field = parsed(feature).field
        none = field.values.none if field and isinstance(field.values, Numbers) else None
        return "none" if none is None else Span(none, none)
    if text.startswith("at most "):
        return Span(-inf, int(text.removeprefix("at most ")))
    return str(value)
