"""The plans that give the bits of a result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from accprobe.gemm.known_plans import Candidate, Explanation, differences, differing_plans
from accprobe.gemm.verification import EXPECTED_NAN, got_and_expected, is_nan_pattern
from accprobe.isa.formats import Format
from accprobe.model.fields import title
from accprobe.render.document import Element, Heading, List, Paragraph, Phrase, Said, fact_grid, paragraphs
from accprobe.report.words import percent


def explanation_blocks(
    names: Sequence[str], found: Sequence[Explanation], out: Format, transposed: Sequence[str] = ()
) -> Iterator[Element]:
    """Yield the difference between two results, which operands were transposed, then the plan of each result."""
    yield from paragraphs(_of_two(found), "strong")
    for operand in transposed:
        read, usual = ("[N, K]", "[K, N]") if operand == "B" else ("[K, M]", "[M, K]")
        yield Paragraph(
            Phrase(f"{operand} was read as {read}: with {operand} as {usual}, A·B is far from the result", "warning")
        )
    for name, each in zip(names, found, strict=True):
        yield from _verdict(name, each, out)
        for part in each.regions:
            yield from _verdict(f"{name}, {_area(part.rows, part.columns)}", part.found, out)


def _verdict(name: str, found: Explanation, out: Format) -> Iterator[Element]:
    if not found.nearly:
        yield Heading((Phrase(f"{name}: "), Phrase("NOT explained: no known plan gives these bits", "bad")), 3)
        yield List(tuple(_unknown(found)))
        return
    plan = found.plans[0]
    part = f"{found.compared:,}" if found.compared == found.words else f"{found.compared:,} of {found.words:,}"
    if found.mismatches:
        verdict = Phrase(f"{found.mismatches:,} of {part} results not explained; the others by", "bad")
    elif found.regions:
        wrong_part = ", with WRONG PRODUCTS in a region" if found.adds_wrong_products else ""
        verdict = Phrase(
            f"explained: {part} results, bit for bit, by {len(found.regions) + 1} plans{wrong_part}; the plan of most",
            "warning",
        )
    else:
        verdict = Phrase(f"explained: {part} results, bit for bit, by", "good")
    once = str(plan.findings.get("each_product_once", "yes"))
    wrong = Phrase(f"WRONG PRODUCTS: {once.removeprefix('no: ')}", "bad")
    yield Heading((Phrase(f"{name}: "), verdict if once == "yes" else wrong), 3)
    if once != "yes":
        yield Paragraph(verdict)
    shown = {
        name: value
        for name, value in plan.findings.items()
        if (name, value) != ("effective_bits", None) and (name != "each_product_once" or value == "yes")
    }
    yield fact_grid((title(name, of_product=True), _value(name, value)) for name, value in shown.items())
    if remarks := tuple(_remarks(found, plan, out)):
        yield List(remarks)


def _remarks(found: Explanation, plan: Candidate, out: Format) -> Iterator[Said]:
    if found.alike:
        which = "; or ".join(dict.fromkeys(_differing(other, plan) for other in found.plans[1:]))
        further = f"; and {found.more} that a sample does not distinguish" if found.more else ""
        plans = "1 other plan gives" if found.alike == 1 else f"{found.alike} other plans give"
        yield f"{plans} the same bits on these operands: {which}{further}"
    if found.stopped:
        which = "nearly all results" if found.mismatches else "the results"
        yield f"plans with another arithmetic may match too: the search ends at the first that explains {which}"
    if found.mismatches:
        for x in found.places:
            values = got_and_expected(out, x.got, x.expected, expected_nan=EXPECTED_NAN)
            yield f"row {x.row}, column {x.column}: {values}"
        if more := found.mismatches - len(found.places):
            yield f"{more:,} more {'is' if more == 1 else 'are'} not listed"
        nan = found.places and all(is_nan_pattern(out, x.got) for x in found.places)
        yield f"possible causes: {'a NaN in A or B, ' if nan else ''}other operands, another program, faulty hardware"


def _unknown(found: Explanation) -> Iterator[str]:
    """Yield facts about a result that no plan explains."""
    known = found.unknown
    if known is None:
        return
    if found.plans:
        share = (found.compared - found.mismatches) / found.compared
        yield f"the nearest plan ({_short_plan(found.plans[0])}) gives {percent(share, 3)} of {found.compared:,} results"
        yield f"the others lie in {_area(known.rows, known.columns)}"
    else:
        yield f"no known plan gives any of {found.compared:,} compared results"
    differing = percent(known.differing_from_exact / known.compared, 3)
    yield (
        f"compared with sums in f64, rounded once, {differing} of the results differ:"
        f" median {known.median_ulp:,} ulp, maximum {known.largest_ulp:,} ulp"
    )
    if known.miscounts:
        yield f"likeliest cause: {'; '.join(known.miscounts)}"
        yield f"(it explains {percent(known.miscounts_explain, 3)} of the squared difference; no plan confirms it bit for bit)"
    else:
        yield "the difference from sums in f64 shows no missing, repeated or mispaired k"
    yield "if you have the program, `accprobe gemm` probes it"


def _short_plan(plan: Candidate) -> str:
    every, split = plan.findings.get("promote_every"), plan.findings.get("split_k", 1)
    parts = [str(plan.findings.get("instruction", plan.name))]
    parts += [f"promotion interval {every}"] if every else []
    return ", ".join([*parts, *([f"split-K {split}"] if split != 1 else [])])


def _area(rows: tuple[int, int], columns: tuple[int, int]) -> str:
    lines = (("row", *rows), ("column", *columns))
    return ", ".join(f"{noun} {first}" if first == last else f"{noun}s {first}-{last}" for noun, first, last in lines)


def _value(name: str, value: object) -> str:
    return "none" if value is None or (name, value) == ("split_k", 1) else str(value)


def _differing(plan: Candidate, beside: Candidate) -> str:
    """Return the findings in which a plan differs from another."""
    parts = [f"{title(name, of_product=True)} {_value(name, mine)}" for name, (mine, _) in differences(plan, beside).items()]
    return " and ".join(parts) or plan.name


def _of_two(found: Sequence[Explanation]) -> Iterator[str]:
    if (differ := differing_plans(found)) is None:
        return
    parts = [
        f"{title(name, of_product=True)} {_value(name, mine)} versus {_value(name, other)}"
        for name, (mine, other) in differ.items()
    ]
    if parts:
        yield f"the two differ by {', '.join(parts)}"
    elif any(each.mismatches for each in found):
        yield "both have the same plan, except for the results that it does not explain"
    else:
        yield "both have the same plan"
