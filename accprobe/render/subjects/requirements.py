"""Requirements on a report: which pass, and what each other found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accprobe.compare.requirements import NO_MATCH, NO_PRODUCT, Outcome
from accprobe.render.document import Element, Heading, List, Phrase
from accprobe.render.subjects.patterns import brace_patterns
from accprobe.report.words import so_many


def requirement_blocks(outcomes: Sequence[Outcome]) -> Iterator[Element]:
    """Yield how many passed, then a line each; below one that failed, each value found with the names that have it."""
    failed = sum(not outcome.passed for outcome in outcomes)
    verdict = Phrase(f"{failed} of {so_many(len(outcomes), 'requirement')} failed", "bad")
    yield Heading(verdict if failed else Phrase(f"{so_many(len(outcomes), 'requirement')} passed", "good"), 1)
    yield List(tuple(item for outcome in outcomes for item in _items(outcome)))


def _items(outcome: Outcome) -> Iterator[tuple[Phrase, ...] | List]:
    verdict = Phrase("passed", "good") if outcome.passed else Phrase("FAILED", "bad")
    yield verdict, Phrase(f"  {outcome.requirement.text}"), Phrase(f"  ({_count(outcome)})", "quiet")
    found: dict[str, list[str]] = {}
    for failure in outcome.failures:
        found.setdefault(failure.found, []).append(failure.name)
    below = [outcome.hint] if outcome.hint else []
    for value, names in found.items():
        told = "; ".join(names) if outcome.requirement.is_of_products else ", ".join(brace_patterns(names))
        below.append(f"found {value}: {told}")
    if below:
        yield List(tuple(below))


def _count(outcome: Outcome) -> str:
    if not outcome.matched:
        return NO_PRODUCT if outcome.requirement.is_of_products else NO_MATCH
    what = "products" if outcome.requirement.is_of_products else "instructions"
    broken = len({failure.name for failure in outcome.failures})
    return f"{outcome.matched - broken} of {outcome.matched} {what} meet it"
