"""Error reports: the recommendation, a table of errors for each accumulation, and how to read it. The recommended test of a
product, and the mistakes that tests catch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from accprobe.budget.data import DATA_KINDS
from accprobe.budget.error_check import FALSE_ALARMS
from accprobe.budget.error_report import ErrorReport, ErrorRow, is_simulated
from accprobe.budget.errors import CONFIDENCE, Interval
from accprobe.budget.tolerance import CALC_DIFF, OwnTest, ToleranceReport
from accprobe.isa.formats import FORMATS
from accprobe.render.document import (
    Column,
    Element,
    Grid,
    Heading,
    List,
    Paragraph,
    Phrase,
    Said,
    fact_grid,
    on_one_line,
    paragraphs,
    tabulate,
    text_of,
)
from accprobe.report.words import percent

SIMULATED = "Simulated: the published model of the chip is evaluated; nothing was measured."

LOUD = 0.01
"""Relative errors and biases of at least so much are highlighted."""

MEANS = {
    "relative error": "relative error: |d - x| / |x|, Euclidean norms",
    "bias": "bias: the mean of d - x divided by the mean of |x|",
    "worst case / sum |a·b|": "worst case: the largest |d - x| over all operands, as a share of sum |a·b|",
    "95 %": f"{percent(CONFIDENCE)}: interval of the relative error, by bootstrap over the draws",
    "operands alone": "operands alone: the error of rounding A and B",
}
"""Explanations of columns, by header."""


def _share(value: float | None, loud: bool = True) -> Phrase:
    if value is None:
        return Phrase("")
    return Phrase(percent(value) if value else "0", "narrow" if loud and value >= LOUD else "")


def _bias(entry: ErrorRow) -> Phrase:
    """Return the bias, "~0" where the draws leave its sign open."""
    bias, interval = entry.errors.bias, entry.errors.bias_interval
    if bias is None:
        return Phrase("")
    if interval is not None and interval[0] <= 0 <= interval[1]:
        return Phrase("~0", "quiet")
    return Phrase(f"{'-' if bias < 0 else '+'}{percent(abs(bias))}", "narrow" if abs(bias) >= LOUD else "")


def _bound(entry: ErrorRow) -> Phrase:
    value = entry.errors.bound_over_sum
    if value is None:
        return Phrase("")
    return Phrase("none", "quiet") if value >= 1 else Phrase(percent(value) if value else "0")


def _interval(found: Interval | None) -> Phrase:
    low, high = found or (0.0, 0.0)
    if not high:
        return Phrase("")
    differing = (digits for digits in range(2, 5) if percent(low, digits) != percent(high, digits))
    if (digits := next(differing, None)) is None:
        return Phrase("")
    return Phrase(f"{percent(low, digits).removesuffix(' %')} to {percent(high, digits)}", "quiet")


def _snr(entry: ErrorRow) -> str:
    return ", ".join("" if one.snr is None else f"{one.snr:.1f}" for one in (entry.a, entry.b))


def _lost(entry: ErrorRow) -> str:
    return ", ".join(percent(share) if share else "0" for share in (entry.a.saturated, entry.a.flushed))


def _of_scaled(cell: Callable[[ErrorRow], Said]) -> Callable[[ErrorRow], Said]:
    return lambda entry: cell(entry) if entry.scale != "none" else ""


COLUMNS = (
    Column("operands", lambda entry: entry.data, least=max(map(len, DATA_KINDS))),
    Column("scale", _of_scaled(lambda entry: f"{entry.scale}{'' if entry.is_scaled else ' *'}"), whole=True),
    Column("K", lambda entry: f"{entry.k:,}", number=True),
    Column("split-K", lambda entry: str(entry.split_k) if entry.split_k > 1 else "", number=True),
    Column("promotion\ninterval", lambda entry: str(entry.promote_every or "never"), number=True),
    Column("relative\nerror", lambda entry: _share(entry.errors.relative_error), number=True),
    Column("bias", _bias, number=True),
    Column("worst case\n/ sum |a·b|", _bound, "context", number=True),
    Column("95 %", lambda entry: _interval(entry.errors.relative_error_interval), "detail", number=True),
    Column("operands\nalone", lambda entry: _share(entry.quantisation_error, loud=False), "detail", number=True),
    Column("SNR of A, B\ndB", _of_scaled(_snr), "detail", number=True),
    Column("saturated,\nflushed", _of_scaled(_lost), "detail", number=True),
    Column("bytes of\nscales", _of_scaled(lambda entry: f"{entry.a.scale_bytes:.2g}"), "detail", number=True),
)


def budget_blocks(account: ErrorReport) -> Iterator[Element]:
    """Yield the recommendation, the errors of each accumulation, their reading, and the meaning of the columns."""
    if account.simulated:
        which = f" {', '.join(account.simulated)}." if len(account.simulated) < len(account.accumulations) else ""
        yield Paragraph(Phrase(f"{SIMULATED}{which}", "bad"), boxed=True)
    if account.interrupted:
        yield Paragraph(Phrase("Interrupted: some of the errors are missing.", "warning"), boxed=True)
    first, *others = account.words or ("Error budget",)
    yield Heading(first, 1)
    for accumulation in account.accumulations:
        if entries := [entry for entry in account.entries if entry.accumulation == accumulation.name]:
            both = dict.fromkeys((accumulation.a.name, accumulation.b.name))
            name = f"{accumulation.name}: {' x '.join(both)}"
            yield Heading(f"{name}, {accumulation.step.products} products per fused sum", 2)
            yield tabulate(COLUMNS, by_data(entries), group=lambda entry: (entry.data, entry.scale))
    if others:
        yield List(tuple(others), "-")
    yield from paragraphs(budget_notes(account), "quiet")


def by_data(entries: Sequence[ErrorRow]) -> list[ErrorRow]:
    """Return the entries grouped by kind of data and scale."""
    kinds, scales = (list(dict.fromkeys(each)) for each in zip(*((entry.data, entry.scale) for entry in entries), strict=True))
    return sorted(entries, key=lambda entry: (kinds.index(entry.data), scales.index(entry.scale)))


def budget_notes(account: ErrorReport) -> Iterator[Said]:
    """Yield how to read the tables."""
    if not account.entries:
        return
    shown = {on_one_line(column.header) for column in tabulate(COLUMNS, account.entries).columns}
    means = [Phrase(f"; {text}", about=frozenset((header,))) for header, text in MEANS.items() if header in shown]
    if any((entry.errors.bound_over_sum or 0) >= 1 for entry in account.entries):
        means.append(Phrase("; none: no bound below 1", about=frozenset(("worst case / sum |a·b|",))))
    if any(text_of(_bias(entry)) == "~0" for entry in account.entries):
        means.append(Phrase("; ~0: its 95 % interval contains 0"))
    first = account.entries[0].errors
    out = " and ".join(dict.fromkeys(entry.out for entry in account.entries))
    compared = (
        f"D in {out} is compared with exact sums x; {first.outputs + first.overflowed:,} outputs per row, of {first.seeds}"
        f" draws of operands, seed {account.request.seed}"
    )
    opening = means[0].text.removeprefix("; ")
    means[0] = means[0]._replace(text=f". {opening[:1].upper()}{opening[1:]}")
    yield (Phrase(compared), *means, Phrase("."))
    if overflowed := max(entry.errors.overflowed for entry in account.entries):
        yield f"Up to {overflowed:,} outputs of a row are not finite, and no error counts them."
    if any(entry.scale != "none" and not entry.is_scaled for entry in account.entries):
        yield "*: the error of the sum of scaled operands; scales of blocks along K need promotion within each block."
    if any(entry.scale == "nv16" for entry in account.entries):
        yield "nv16: e2m1 numbers, exact in the format of the operands, are summed by the named instruction."


ALWAYS = 0.995
"""Share of trials from which a test detects a mistake or passes correct results; up to one minus it, it misses a mistake."""


def tolerance_blocks(found: ToleranceReport) -> Iterator[Element]:
    """Yield the recommended test, its basis, and the table of mistakes that tests catch."""
    if is_simulated(found.request.accumulation):
        yield Paragraph(Phrase(SIMULATED, "bad"), boxed=True)
    yield Heading(f"use {_assert(found)}: {_detects(found, 'elements')}", 1)
    yield Paragraph(f"or |got - f64 reference| <= {_formula(found.allclose)}: {_detects(found, 'allclose')}")
    yield Paragraph(Phrase(tolerance_title(found), "quiet"))
    yield fact_grid(tolerance_facts(found))
    columns = (Column("mistake", least=24), *(Column(title) for title in test_titles(found).values()))
    yield Grid(columns, tuple(kill_rows(found)))
    if missed := tuple(tolerance_words(found)):
        yield List(missed, "-")


def _detects(found: ToleranceReport, test: str) -> str:
    """Return "detects 4 of 6 mistakes" in every trial, or that the test rejects correct results."""
    if (share := found.passed[test]) < ALWAYS:
        return f"rejects correct results in {percent(1 - share)} of the trials"
    detected = sum(row.by[test] >= ALWAYS for row in found.kill_table)
    return f"detects {detected} of {len(found.kill_table)} mistakes"


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
    """Yield the basis of the recommended test."""
    request = found.request
    rate = f"{request.rate:g} false alarms per element, extrapolated from {found.tail.elements:,} emulated elements"
    if found.tail.at(request.rate) < 1:
        yield "allows", f"sums within {found.over_sum:.2g} of sum |a·b| before D is rounded: {rate}"
    else:
        yield "allows", "the worst case: emulated errors bound no tail below it"
    if (worst := found.over_any_sum) is None or worst >= 1:
        yield "at worst", "no useful bound: sums may lose all of sum |a·b|"
    else:
        yield "at worst", f"{worst:.2g} of sum |a·b|, over all operands and orders of K"
    tests, m, n = request.shape
    yield "trials", f"{tests} of {m} x {n} elements, {request.data!s} operands, from seed {request.seed} on"
    if request.own:
        yield "own", f"|got - f64 reference| <= {_formula(request.own)}"


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
    passed = (Phrase("pass", "good") if share >= ALWAYS else Phrase(f"{percent(1 - share)} FAIL", "bad") for share in shares)
    yield Phrase("(correct results)", "quiet"), *passed
    for row in found.kill_table:
        yield Phrase(row.mistake), *(_detected(row.by[name]) for name in found.passed)


def _detected(share: float) -> Phrase:
    if share >= ALWAYS:
        return Phrase("detected", "good")
    return Phrase("missed" if share <= 1 - ALWAYS else percent(share), "bad" if share <= 0.5 else "")


def tolerance_words(found: ToleranceReport) -> Iterator[str]:
    """Yield how often the recommended test detects the mistakes that it misses, and their size against the allowed error."""
    for row in found.kill_table:
        if row.by["elements"] < ALWAYS:
            size = f"its RMS error is {row.size:.2g} times the allowed RMS error" if row.size else "it changes no result"
            yield f"The recommended test detects '{row.mistake}' in {percent(row.by['elements'])} of the trials: {size}."
