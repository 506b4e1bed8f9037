"""Requirements: which are kept, and what breaks the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.text import Text

from accprobe.compare.requirements import NO_MATCH, NO_PRODUCT, Outcome
from accprobe.render.content.patterns import brace_patterns
from accprobe.render.terminal.console import Hanging


def outcome_text(outcomes: Sequence[Outcome]) -> Hanging:
    """A line a requirement; below a broken one each value found, with the instructions that have it."""
    return Hanging([line for outcome in outcomes for line in _lines(outcome)], 0)


def _lines(outcome: Outcome) -> Iterator[Text]:
    verdict = Text("kept  ", "green") if outcome.passed else Text("BROKEN", "bold red")
    yield verdict.append(f"  {outcome.requirement.text}", "default").append(f"  ({_count(outcome)})", "dim")
    if outcome.hint:
        yield Text(f"  {outcome.hint}")
    found: dict[str, list[str]] = {}
    for failure in outcome.failures:
        found.setdefault(failure.found, []).append(failure.name)
    for value, names in found.items():
        told = "; ".join(names) if outcome.requirement.is_of_products else ", ".join(brace_patterns(names))
        yield Text(f"  found {value}: {told}")


def _count(outcome: Outcome) -> str:
    if not outcome.matched:
        return NO_PRODUCT if outcome.requirement.is_of_products else NO_MATCH
    what = "products" if outcome.requirement.is_of_products else "instructions"
    broken = len({failure.name for failure in outcome.failures})
    return f"{outcome.matched - broken} of {outcome.matched} {what} are so"
