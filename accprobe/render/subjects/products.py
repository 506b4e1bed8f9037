"""Whole products: what is wrong with any, a line each, and all that was found of each."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from math import ceil, floor, log10
from typing import NamedTuple

from accprobe.budget.worst_error import worst_error
from accprobe.isa.formats import FORMATS, Format
from accprobe.model.product import ProductModel, ScaleOf
from accprobe.model.tree import FloatArithmetic
from accprobe.render.document import (
    Column,
    Element,
    Figure,
    Grid,
    Heading,
    List,
    Paragraph,
    Phrase,
    Phrases,
    Section,
    fact_grid,
)
from accprobe.render.subjects.growth import error_growth
from accprobe.render.subjects.product_picture import product_picture
from accprobe.report.product_words import (
    FindingsByName,
    along,
    division,
    found_words,
    is_misplaced,
    miscounted,
    misscaled,
    plan_words,
)
from accprobe.report.products import KernelRecord, ProductRow, RegionRecord
from accprobe.report.rows import Status
from accprobe.report.words import so_many


class ProductLine(NamedTuple):
    """One line of what a product is: "promoted", and what is said of it."""

    label: str
    said: Phrase


COLUMNS = (
    Column("product", least=22),
    Column("status", least=10),
    Column("accumulation order", least=16),
    Column("bits", whole=True),
    Column("result", least=8),
)
"""Of the table with a line a product."""

SHOWN_IN_FULL = 3
"""Products that a terminal shows in full although nobody wants them all."""

SCALED_BY: dict[ScaleOf, str] = {
    "tensor": "one a tensor",
    "row": "one a row of A and one a column of B",
    "1x128": "one a block of 1 x 128",
    "128x128": "one a block of 128 x 128",
}

PROVISOS: dict[Status, str] = {
    "inferred": "What follows is suggested, no fact: no plan is verified that explains every output.",
    "unstable": "What follows is suggested, no fact: the callable gave two answers to one question.",
    "unverified": "What follows is no fact: no plan explains the answers.",
}
"""What has to be known before a row is read that is not confirmed."""

OF_SOME_OUTPUTS = "What follows is verified for the outputs of the plans shown, and for no others."
"""Of a row that is not confirmed, though nothing contradicts its plans."""

SAME_BOUND = ("product_exponent:",)
"""How rivals begin whose results are as near to the exact sum: the bound holds whichever is true."""

ASIDE = "a bound; overflow and tiny numbers aside"
"""What the line in words is, and what it leaves out."""


UP_TO_ORDER = "up to the order of atomics"
"""How far a product is confirmed whose partial sums are added in any order."""


def products_blocks(rows: Sequence[ProductRow], expand: bool = False) -> Iterator[Element]:
    """Yield what is wrong; then a line a product; expand, or where there are few of them: all that was found of each."""
    shown = wrong_first(rows)
    if expand or len(shown) <= SHOWN_IN_FULL:
        for row in shown:
            yield from _in_full(row)
        return
    yield Heading(f"Whole products: {len(shown)}; --all has each in full", 2)
    if loud := [(Phrase(f"{row.title}: ", "strong"), alarm) for row in shown for alarm in alarms(row)]:
        yield List(tuple(loud), "!")
    yield Grid(COLUMNS, tuple(map(summary_line, shown)))
    for row in shown:
        if row.reason:
            yield Paragraph((Phrase(f"{row.title}: "), Phrase(row.status, row.status), Phrase(f": {row.reason}")))


def products_page(rows: Sequence[ProductRow]) -> Iterator[Element]:
    """Yield a table with a line a product, and a section each."""
    shown = wrong_first(rows)
    yield Heading("Whole products", 2, "products")
    lines = ((summary_line(row)[0]._replace(target=f"p{i}"), *summary_line(row)[1:]) for i, row in enumerate(shown))
    yield Grid(COLUMNS, tuple(lines), caption="A line a product; its name links to the details.", filtered=True)
    for i, row in enumerate(shown):
        title = (Phrase(row.title), Phrase("  "), Phrase(row.status, row.status))
        yield Section(title, partial(_body, row), anchor=f"p{i}", name=row.title, open=len(shown) == 1)


def _in_full(row: ProductRow) -> Iterator[Element]:
    if loud := list(alarms(row)):
        yield List(tuple(loud), "!")
    _, _, order, bits, result = (span.text for span in summary_line(row))
    plan = ", ".join(filter(None, (order, f"{bits} fraction bits" if bits else "", result)))
    yield Heading((Phrase(f"{row.title}  ", "strong"), *status_spans(row), Phrase(f": {plan}" if order else "")), 3)
    yield from _body(row)


def _body(row: ProductRow) -> Iterator[Element]:
    if row.reason:
        yield Paragraph(Phrase(f"{row.status}: {row.reason}", row.status))
    if before := proviso(row):
        yield Paragraph(Phrase(before, row.status), boxed=True)
    yield fact_grid((line.label, line.said) for line in lines(row))
    if len(row.regions) == 1:
        yield from _picture(row, row.regions[0])
    for region, told in plans(row):
        yield Heading(f"{region.where}: {so_many(region.elements, 'output')}", 4)
        yield fact_grid((line.label, line.said) for line in told)
        yield from _picture(row, region)


def _picture(row: ProductRow, region: RegionRecord) -> Iterator[Figure]:
    if region.model:
        yield Figure((product_picture(region.model, row.holds),))


def wrong_first(rows: Sequence[ProductRow]) -> list[ProductRow]:
    """Those first that drop or double products, or take scales of another block."""
    return sorted(rows, key=lambda row: not any((*miscounted(row), *misscaled(row))))


def alarms(row: ProductRow) -> Iterator[Phrase]:
    """What nobody may miss: products that are not counted once, wrong results, results that change."""
    for where, which in miscounted(row):
        kinds = {"missing": "DROPPED", "more than once": "DOUBLED", "subtracted": "SUBTRACTED"}
        what = " AND ".join(told for words, told in kinds.items() if words in which)
        at = f", at {where}" if len(row.regions) > 1 else ""
        yield Phrase(f"{what} PRODUCTS: {which}{at}, of {row.k:,}" if what else f"WRONG PRODUCTS: {which}{at}", "bad")
    yield from (Phrase(f"WRONG SCALES: {which}", "bad") for which in misscaled(row))
    if row.verification and row.verification.counterexample:
        yield Phrase(f"one that differs: {row.verification.counterexample}", "bad")
    yield from (Phrase(remark, "warning") for remark in row.remarks)


def status_spans(row: ProductRow) -> Phrases:
    merged = row.findings.get("reduction_order")
    any_order = row.holds and merged is not None and merged.value == "unordered"
    return Phrase(row.status, row.status), Phrase(f" {UP_TO_ORDER}" if any_order else "", row.status)


def proviso(row: ProductRow) -> str:
    """What to know of the findings; "" where there are none."""
    bounds = {finding.bound for region in row.regions if region.model for finding in region.findings.values()}
    if row.status == "inferred" and bounds and "suggested" not in bounds:
        return OF_SOME_OUTPUTS
    return PROVISOS.get(row.status, "") if row.regions else ""


def summary_line(row: ProductRow) -> Phrases:
    """Return the cells of `COLUMNS`."""
    found = row.findings
    others = f" (and {len(row.regions) - 1} other plan{'s' * (len(row.regions) > 2)})" if len(row.regions) > 1 else ""
    order = Phrase("any" if FORMATS[row.a].is_integer else plan_words(found) + others)
    result = Phrase(" to ".join(filter(None, (found_words(found, "result_rounding"), row.out))))
    return Phrase(row.title), Phrase(row.status, row.status), order, _bits(row), result


def _bits(row: ProductRow) -> Phrase:
    bits = row.findings.get("effective_bits")
    whole = FORMATS["f32"].mantissa_bits
    narrow = row.holds and bits is not None and bits.bound == "exact" and isinstance(bits.value, int) and bits.value < whole
    return Phrase(found_words(row.findings, "effective_bits"), "narrow" if narrow else "")


def lines(row: ProductRow) -> Iterator[ProductLine]:
    """What is so of the whole product, and the plan of its outputs where all have the same."""
    if row.probed_part:
        yield ProductLine("asked", Phrase(row.probed_part))
    if row.device:
        yield ProductLine("device", Phrase(row.device))
    versions = ", ".join(f"{name} {version}" for name, version in row.libraries.items())
    if runs := "; ".join(_kernels(row.kernels)):
        yield ProductLine("runs", Phrase(f"{runs} ({versions})" if versions else runs))
    elif versions:
        yield ProductLine("runs", Phrase(f"kernels not recorded; loaded: {versions}"))
    if row.regions:
        first = row.regions[0]
        if len(row.regions) == 1:
            yield from plan_lines(row, first)
        outputs = row.m * row.n
        how = "by the same plan" if first.model else "are computed alike"
        everywhere = f"all {outputs:,} outputs {how}" if outputs > 1 else "the only output"
        yield from _whole("everywhere", everywhere, first, "same_everywhere")
        yield from _dependence(first.findings)
        yield from _whole("repeatable", "yes", first, "repeatable")
    if proof := "; ".join(_proof(row)):
        wrong = row.verification is not None and (row.verification.mismatches or row.verification.contradicting)
        yield ProductLine("proven", Phrase(proof, "bad" if wrong else "good" if row.holds else ""))
    if row.verification and (kinds := row.verification.kinds):
        yield ProductLine("by kind", Phrase(_by_kind(kinds)))
    if len(row.regions) == 1 and (words := in_words(row, row.regions[0])):
        yield ProductLine("in words", Phrase(words))


def plans(row: ProductRow) -> Iterator[tuple[RegionRecord, list[ProductLine]]]:
    """Each region's plan, where there are several."""
    for region in row.regions if len(row.regions) > 1 else ():
        shown = list(plan_lines(row, region))
        if words := in_words(row, region):
            shown.append(ProductLine("in words", Phrase(words)))
        yield region, shown


def plan_lines(row: ProductRow, region: RegionRecord) -> Iterator[ProductLine]:
    """How an output of the region is computed."""
    found = region.findings
    if once := found.get("each_product_once"):
        yes = once.value == "yes"
        counted = f"counted once: {once.note}" if once.note else "counted once"
        yield ProductLine("every k", Phrase(counted if yes else f"NOT a[i, k]·b[k, j] once: {once.note}", "" if yes else "bad"))
    if "products_per_sum" not in found:
        return
    if FORMATS[row.a].is_integer:
        yield ProductLine("inside", Phrase("integer sums, the same bits in any order"))
        return
    yield ProductLine("inside", Phrase(", ".join(_inside(found, region.model)) + _instruction(found)))
    if rounding := found_words(found, "operand_rounding"):
        to = next(name for name in (row.a, row.b) if FORMATS[name].ignored_low_bits)
        yield ProductLine("operands", Phrase(f"{rounding.replace('RZ', 'cut')} to {to}"))
    if parts := division(found):
        members = f": {note}" if (note := found["order"].note) else ""
        yield ProductLine("K", Phrase(f"{parts}{members}"))
    else:
        yield ProductLine("promoted", Phrase(_promoted(found)))
        yield ProductLine("split K", Phrase(_split(found)))
    if row.scale:
        yield ProductLine("scales", _scales(row.scale, found))
    if rounding := found_words(found, "result_rounding"):
        yield ProductLine("result", Phrase(f"{rounding} to {row.out}"))


def _kernels(kernels: Sequence[KernelRecord]) -> Iterator[str]:
    """Those of one function and the same opcodes as one; reports have the whole names."""
    launches: dict[str, int] = {}
    for kernel in kernels:
        name = " ".join((_function(kernel.name), *kernel.opcodes))
        launches[name] = launches.get(name, 0) + kernel.launches
    yield from (f"{name}, {count:,} launches" if count != 1 else name for name, count in launches.items())


def _function(name: str) -> str:
    """Of a kernel of C++, without what it returns and takes: "flash::forward<…>"."""
    function = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    end = re.search(r"[<(]", function)
    if end is None:
        return name
    return f"{function[: end.start()]}<…>" if end[0] == "<" else function[: end.start()]


def _inside(found: FindingsByName, model: ProductModel | None) -> Iterator[str]:
    alone, products = found["products_per_sum"].value == 1, found_words(found, "products_per_sum")
    yield products.replace("1", "one product after the other") if alone else f"sums of {products} products"
    if how := along(found):
        yield how
    if alone and model is not None:
        yield _multiplied(found, model)
    if bits := found_words(found, "effective_bits"):
        yield f"{bits} fraction bits"
    aligned = found.get("alignment_bits")
    if aligned is not None and aligned.value is not None and aligned.value != found["result_bits"].value:
        yield f"aligned at {found_words(found, 'alignment_bits')}"
    if rounding := found_words(found, "sum_rounding"):
        yield rounding.replace("RZ", "cut")
    for name in ("subnormal_operands", "subnormal_results"):
        if name in found and found[name].value != "kept":
            yield f"{name.replace('_', ' ')} {found_words(found, name)}"


def _multiplied(found: FindingsByName, model: ProductModel) -> str:
    """Of one product a sum."""
    rounded = found.get("product_bits")
    if rounded is None:
        return found_words(found, "products_per_sum").replace("1", _multiply_adds(model))
    words = found_words(found, "product_bits")
    return words.replace("none", _multiply_adds(model)) if rounded.value is None else f"each rounded to {words} bits first"


def _multiply_adds(model: ProductModel) -> str:
    """Where a product is exact in the format of the sum, nothing tells whether they are fused."""
    root, a, b = model.step.root, model.a, model.b
    if root.children:
        return "a multiply and then an add"
    assert isinstance(root.arithmetic, FloatArithmetic)
    if a.mantissa_bits + b.mantissa_bits + 1 > root.arithmetic.result_bits:
        return "fused multiply-adds"
    sums = root.arithmetic.result
    in_range = a.max_exponent + b.max_exponent < sums.max_exponent and _last_bit(a) + _last_bit(b) >= _last_bit(sums)
    return f"multiply-adds (fused or not: products are exact in {sums if in_range else f'the range of {sums}'})"


def _last_bit(fmt: Format) -> int:
    """Exponent of the smallest number."""
    return fmt.min_exponent - fmt.mantissa_bits


def _instruction(found: FindingsByName) -> str:
    one = found.get("instruction")
    if one is None or one.value is None:
        return ""
    return f" (as {found_words(found, 'instruction')}{f' {one.note}' if one.note else ''})"


def _promoted(found: FindingsByName) -> str:
    every = found.get("promote_every")
    if every is None:
        return "not known"
    if every.value is None:
        return found_words(found, "promote_every").replace("none", "no")
    into = ", ".join(filter(None, (found_words(found, "promotion_format"), found_words(found, "promotion_rounding"))))
    note = f" ({every.note})" if every.note else ""
    return f"every {found_words(found, 'promote_every')} products{f' into {into}' if into else ''}{note}"


def _split(found: FindingsByName) -> str:
    split = found.get("split_k")
    if split is None:
        return "not known"
    if split.value == 1:
        return found_words(found, "split_k").replace("1", "no")
    sizes = str(found["slice_sizes"].value).split(", ") if "slice_sizes" in found else []
    each = f" of {sizes[0] if len(set(sizes)) == 1 else ', '.join(sizes)}" if sizes else ""
    kept = f"; partial sums in {partials}" if (partials := found_words(found, "partial_format")) else ""
    merged = f", merged {merge}" if (merge := found_words(found, "reduction_order")) else ""
    return f"{found_words(found, 'split_k')} slices{each}{kept}{merged}"


def _scales(of: ScaleOf, found: FindingsByName) -> Phrase:
    how = found_words(found, "scales") or "how they are applied is not known"
    return Phrase(f"{SCALED_BY[of]}: {how}", "bad" if is_misplaced(found) else "")


def _dependence(found: FindingsByName) -> Iterator[ProductLine]:
    """What an output depends on, where that is more than its own row and column."""
    depends = found.get("depends_on")
    if depends is not None and depends.value != "own row and column":
        note = f": {depends.note}" if depends.note else ""
        yield ProductLine("depends on", Phrase(f"{depends.value}{note}", "warning"))


def _whole(label: str, yes: str, region: RegionRecord, name: str) -> Iterator[ProductLine]:
    found = region.findings.get(name)
    if found is not None and found.value == "yes":
        yield ProductLine(label, Phrase(yes if name == "same_everywhere" or not found.note else f"{yes}, {found.note}"))
    elif found is not None:
        yield ProductLine(label, Phrase(f"NO: {found.note}" if found.note else "NO", "warning"))


def _proof(row: ProductRow) -> Iterator[str]:
    done = row.verification
    if done is not None and not done.elements:
        yield (
            "nothing: answers contradict the plan already" if done.contradicting else "nothing: no fresh outputs were compared"
        )
    elif done is not None:
        yield f"{done.elements:,} fresh outputs, {done.mismatches:,} differ"
    if done is not None and done.contradicting:
        yield f"{done.contradicting:,} of {done.results:,} answers have no explanation"
    if (chains := sum(region.chains for region in row.regions)) > 1:
        yield f"{sum(region.chains_probed for region in row.regions):,} of {chains:,} chains probed"
    tried = [region.alternatives for region in row.regions if region.alternatives and region.alternatives.tested]
    if tried:
        count, left = sum(each.tested for each in tried), [alternative for each in tried for alternative in each.surviving]
        yield f"{count - len(left):,} of {count:,} rival plans contradicted"
        if left:
            yield f"left: {', '.join(left)}"


def _by_kind(kinds: Mapping[str, int]) -> str:
    """ "64 each of normal, wide" where all have as many, else "64 normal, 60 wide"."""
    (count, *others) = dict.fromkeys(kinds.values())
    if others or len(kinds) == 1:
        return ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    return f"{count:,} each of {', '.join(kinds)}"


def in_words(row: ProductRow, region: RegionRecord) -> str:
    """What the plan means for the error of every result, "" where no bound follows from what is proved."""
    once = region.findings.get("each_product_once")
    left = region.alternatives.surviving if region.alternatives else ("no rivals were tried",)
    proved = row.holds and all(alternative.startswith(SAME_BOUND) for alternative in left)
    if region.model is None or not proved or once is None or once.value != "yes":
        return ""
    error = worst_error(region.model)
    if not error or error >= 1:
        return ""
    what = "sum |a·b| with its scales" if row.scale else "sum |a·b|"
    return f"{error_growth(region.model, region.findings)}: at this K at most {rounded_up(error)} of {what} ({ASIDE})"


def rounded_up(number: float) -> str:
    """Two digits, no smaller than the number: "6.2e-4" of 0.00061."""
    if not number:
        return "0"
    digit = 10.0 ** (floor(log10(number)) - 1)
    return f"{ceil(number / digit) * digit:.1e}".replace("e-0", "e-")
