"""The recommended test of a product, and the mistakes that tests catch."""

from __future__ import annotations

from collections.abc import Iterator

from accprobe.budget.error_report import is_simulated
from accprobe.budget.tail import FALSE_ALARMS
from accprobe.budget.tolerance import CALC_DIFF, CaughtMistake, OwnTest, ToleranceReport
from accprobe.isa.formats import FORMATS
from accprobe.render.document import Column, Element, Grid, Heading, List, Paragraph, Phrase, fact_grid
from accprobe.render.subjects.budget import SIMULATED

ALWAYS = 0.995
"""Shares of tests from here on print as all, and below one minus it as none."""


def tolerance_blocks(found: ToleranceReport) -> Iterator[Element]:
    """Yield the recommended test, its basis, and the table of mistakes that tests catch."""
    if is_simulated(found.request.accumulation):
        yield Paragraph(Phrase(SIMULATED, "bad"), boxed=True)
    yield Heading(f"use {_assert(found)}", 1)
    yield Paragraph(Phrase(tolerance_title(found), "quiet"))
    yield fact_grid(tolerance_facts(found))
    columns = (Column("mistake", least=24), *(Column(title) for title in test_titles(found).values()))
    yield Grid(columns, tuple(kill_rows(found)))
    yield List(tuple(tolerance_words(found)), "-")


def tolerance_title(found: ToleranceReport) -> str:
    request = found.request
    promoted = f"promotion interval {request.promote_every}" if request.promote_every else "never promoted"
    split = f", split K {request.split_k}" if request.split_k > 1 else ""
    return f"{request.accumulation.name}: K = {request.k}, {promoted}{split}, result {request.model.result}"


def test_titles(found: ToleranceReport) -> dict[str, str]:
    """Return the columns by test."""
    titles = {
        "elements": "assert_\nmatmul_close",
        "allclose": "allclose\nas above",
        "calc_diff": f"calc_diff\n< {CALC_DIFF:g}",
        "own": "own\ntest",
    }
    return {name: titles[name] for name in found.passed}


def tolerance_facts(found: ToleranceReport) -> Iterator[tuple[str, str]]:
    """Yield the same test as a formula, then its basis."""
    request, test = found.request, found.recommended
    yield "or", f"|got - f64 reference| <= {_formula(test)}"
    rate = f"{request.rate:g} false alarms per element, extrapolated from {found.tail.elements:,} emulated elements"
    if found.tail.at(request.rate) < 1:
        yield "allows", f"sums within {found.over_sum:.2g} of sum |a·b| before D is rounded: {rate}"
    else:
        yield "allows", "the worst case: emulated errors bound no tail below it"
    yield "at worst", _of_any(found)
    tests, m, n = request.shape
    yield "trials", f"{tests} of {m} x {n} elements, {request.data!s} data, from seed {request.seed} on"
    if request.own:
        yield "own", f"|got - f64 reference| <= {_formula(request.own)}"


def _of_any(found: ToleranceReport) -> str:
    """Return the bound over all operands."""
    if found.over_any_sum is None or found.over_any_sum >= 1:
        return "no useful bound: sums may lose all of sum |a·b|"
    return f"{found.over_any_sum:.2g} of sum |a·b|, over all operands and orders of K"


def _formula(test: OwnTest) -> str:
    parts = [f"{test.atol:.3g}"] if test.atol or not test.rtol else []
    return " + ".join([*parts, f"{test.rtol:.3g}·|reference|"] if test.rtol else parts)


def _assert(found: ToleranceReport) -> str:
    request = found.request
    every = f", promote_every={request.promote_every}" if request.promote_every else ""
    split = f", split_k={request.split_k}" if request.split_k > 1 else ""
    rounded = f', out="{request.model.result}"' if request.model.result is not FORMATS["f32"] else ""
    like = f'like="{request.accumulation.name}"{every}{split}{rounded}'
    rate = f", false_alarms={request.rate:g}" if request.rate != FALSE_ALARMS else ""
    return f"assert_matmul_close(got, a, b, {like}{rate})"


def kill_rows(found: ToleranceReport) -> Iterator[tuple[Phrase, ...]]:
    """Yield each mistake, and the share of trials in which each test detects it."""
    shares = found.passed.values()
    passed = (Phrase("pass", "good") if share >= ALWAYS else Phrase(f"{1 - share:.0%} FAIL", "bad") for share in shares)
    yield Phrase("(correct results)", "quiet"), *passed
    for row in found.kill_table:
        yield Phrase(row.mistake), *(_detected(row.by[name]) for name in found.passed)


def _detected(share: float) -> Phrase:
    if share >= ALWAYS:
        return Phrase("detected", "good")
    return Phrase("missed" if share <= 1 - ALWAYS else f"{share:.0%}", "bad" if share <= 0.5 else "")


def tolerance_words(found: ToleranceReport) -> Iterator[str]:
    """Yield conclusions."""
    titles = {name: " ".join(title.replace("_\n", "_").split()) for name, title in test_titles(found).items()}
    missed = [row for row in found.kill_table if row.by["elements"] < ALWAYS]
    if not missed:
        yield f"The recommended test detects every mistake of the table on {found.request.data!s} data."
    yield from map(_why_missed, missed)
    for name, share in found.passed.items():
        if share < ALWAYS:
            title = titles[name].capitalize()
            yield f"{title} rejects correct results in {1 - share:.0%} of the tests, so its detections mean nothing."
    first = [row for row in found.kill_table if row.by.get("own", 1.0) < ALWAYS]
    if first:
        shares = ", ".join(f"'{row.mistake}' ({row.by['own']:.0%})" for row in first)
        yield f"Your own test does not always detect {shares}."


def _why_missed(row: CaughtMistake) -> str:
    """Return why a mistake is missed: it changes results by less than correct sums may lose."""
    size = f"its RMS error is {row.size:.2g} times the allowed RMS error" if row.size else "it changes no result"
    return f"The recommended test detects '{row.mistake}' in {row.by['elements']:.0%} of the tests: {size}."
