"""The plans that give the bits of a result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from accprobe.gemm.explain.explanation import Candidate, Explanation, differences, differing_plans
from accprobe.gemm.verification import ElementMismatch
from accprobe.isa.formats import Format
from accprobe.render.document import Element, Heading, List, Paragraph, Phrase, Said, fact_grid

TITLES = {
    "instruction": "inside",
    "products_per_sum": "products per fused sum",
    "rounded": "rounded",
    "lanes": "accumulators",
    "each_product_once": "every k once",
    "effective_bits": "bits",
    "promote_every": "promotion every",
    "split_k": "split K",
    "slice_sizes": "slices",
    "partial_format": "partial sums",
    "reduction_order": "merged",
    "result_rounding": "result",
    "operand_rounding": "operands to tf32",
}


def explanation_blocks(names: Sequence[str], found: Sequence[Explanation], out: Format) -> Iterator[Element]:
    """Yield the plan of each result; first what two of them differ by."""
    yield from (Paragraph(Phrase(sentence, "strong")) for sentence in _of_two(found))
    for name, each in zip(names, found, strict=True):
        yield from _verdict(name, each, out)
        for part in each.regions:
            where = f"{name}, rows {_span(part.rows)}, columns {_span(part.columns)}"
            yield from _verdict(where, part.found, out)


def _verdict(name: str, found: Explanation, out: Format) -> Iterator[Element]:
    part = f"{found.compared:,}" if found.compared == found.words else f"{found.compared:,} of {found.words:,}"
    if not found.nearly:
        yield Heading((Phrase(f"{name}: "), Phrase("NOT explained: no known plan gives these bits", "bad")), 3)
        yield List(tuple(_known(found)))
        return
    plan = found.plans[0]
    if found.mismatches:
        verdict = Phrase(f"{_words(found.mismatches)} no explanation, of {part}; the others have", "bad")
    elif found.regions:
        verdict = Phrase(f"explained: {part} words, bit for bit, by {len(found.regions) + 1} plans; most by", "warning")
    else:
        verdict = Phrase(f"explained: {part} words, bit for bit, by", "good")
    yield Heading((Phrase(f"{name}: "), verdict), 3)
    once = str(plan.findings.get("each_product_once", "yes"))
    if once != "yes":
        yield Paragraph(Phrase(f"WRONG PRODUCTS: {once.removeprefix('no: ')}", "bad"))
    yield fact_grid(_told(plan.findings))
    if remarks := tuple(_remarks(found, plan, out)):
        yield List(remarks)


def _remarks(found: Explanation, plan: Candidate, out: Format) -> Iterator[Said]:
    if found.instructions:
        count = len(found.instructions)
        have = "1 other instruction has" if count == 1 else f"{count} other instructions have"
        yield f"{have} the same arithmetic, such as {found.instructions[0]}"
    if found.alike:
        which = ", ".join(dict.fromkeys(_short(other, plan) for other in found.plans[1:]))
        further = f"; and {found.more} that a sample does not tell from it" if found.more else ""
        plans = "1 other plan gives" if found.alike == 1 else f"{found.alike} other plans give"
        yield f"{plans} the same bits on these operands: {which}{further}"
    if found.stopped:
        yield "plans with other arithmetics may too: the search ends where one explains the words"
    if found.mismatches:
        yield from (_place(place, out) for place in found.places)
        yield "wrong hardware, or another program"


def _known(found: Explanation) -> Iterator[str]:
    """What holds of a result that no plan explains."""
    known = found.unknown
    if known is None:
        return
    if found.plans:
        share = (found.compared - found.mismatches) / found.compared
        yield f"the nearest plan ({_short_plan(found.plans[0])}) gives {share:.1%} of {found.compared:,} words"
        yield f"the others lie in rows {_span(known.rows)}, columns {_span(known.columns)}"
    else:
        yield f"no known plan gives one of {found.compared} words that were tried"
    differing = known.differing_from_exact / known.compared
    yield (
        f"against exact sums, rounded once: {differing:.1%} of the words differ, by {known.median_ulp:,} ulp in the median,"
        f" {known.largest_ulp:,} ulp at most"
    )
    if known.miscounts:
        yield f"likeliest: {'; '.join(known.miscounts)}"
        yield f"(that is {known.miscounts_explain:.1%} of the squared difference; no plan confirms it bit for bit)"
    else:
        yield "no missing, repeated or mispaired k were found in the difference from exact sums"
    yield "where the program is at hand, `accprobe gemm` probes it"


def _short_plan(plan: Candidate) -> str:
    every, split = plan.findings.get("promote_every"), plan.findings.get("split_k", 1)
    parts = [str(plan.findings.get("instruction", plan.name))]
    parts += [f"promoted every {every}"] if every else []
    return ", ".join([*parts, *([f"split K {split}"] if split != 1 else [])])


def _span(ends: tuple[int, int]) -> str:
    return f"{ends[0]}-{ends[1]}"


def _words(count: int) -> str:
    return "1 word has" if count == 1 else f"{count:,} words have"


def _told(told: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in told.items():
        if (name == "effective_bits" and value is None) or (name == "each_product_once" and value != "yes"):
            continue
        yield TITLES.get(name, name), _value(name, value)


def _value(name: str, value: object) -> str:
    if value is None:
        return "never" if name == "promote_every" else "none"
    return f"{value} products" if name == "promote_every" else str(value)


def _short(plan: Candidate, beside: Candidate) -> str:
    """What it has otherwise."""
    told = [f"{TITLES.get(name, name)} {_value(name, mine)}" for name, (mine, _) in differences(plan, beside).items()]
    return " and ".join(told) or plan.name


def _place(place: ElementMismatch, out: Format) -> str:
    digits = out.storage_bits // 4
    return f"row {place.row}, column {place.column}: {place.got:0{digits}x}, expected {place.expected:0{digits}x}"


def _of_two(found: Sequence[Explanation]) -> Iterator[str]:
    if (differ := differing_plans(found)) is None:
        return
    told = [
        f"{TITLES.get(name, name)} {_value(name, mine)} against {_value(name, other)}" for name, (mine, other) in differ.items()
    ]
    if told:
        yield f"the two differ by {', '.join(told)}"
    elif any(each.mismatches for each in found):
        yield "both have the same plan but for the words that it does not explain"
    else:
        yield "both are of the same plan"
