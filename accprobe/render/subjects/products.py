"""Products and reductions: their faults, a table with a line for each, and the details of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from accprobe.isa.formats import FORMATS
from accprobe.model.product import ProductModel, ScaleOf
from accprobe.model.tree import FloatArithmetic
from accprobe.records.findings import Finding
from accprobe.records.products import CompositeRecord, KernelRecord, ProductRow, RegionRecord
from accprobe.render.document import (
    Column,
    Element,
    Heading,
    List,
    Paragraph,
    Phrase,
    Phrases,
    Section,
    fact_grid,
    paragraphs,
    tabulate,
)
from accprobe.render.subjects.instruction import PROVISOS
from accprobe.render.subjects.sass import short_name
from accprobe.report.words import (
    FindingsByName,
    along,
    division,
    found_words,
    is_wrong,
    miscounted,
    misscaled,
    plan_words,
    so_many,
    status_counts,
)

SHOWN_IN_FULL = 3
"""Largest number of products that a terminal shows in full without --all."""

SCALED_BY: dict[ScaleOf, str] = {
    "tensor": "one per tensor",
    "row": "one per row of A and per column of B",
    "1x128": "one per block of 1 x 128",
    "128x128": "one per block of 128 x 128",
}

OF_SOME_OUTPUTS = "The findings are verified for the outputs of the plans shown, and for no others."
"""The proviso of a row that is not confirmed, though nothing contradicts its plans."""

MARKS = {
    "~": "~: suggested: explains most results of a row that is not confirmed; any other value is possible.",
    r"\w\)?\?": "?: undetermined: several values explain every result.",
}
"""Meanings of marks of values, by their pattern."""

ProductLine = tuple[str, Phrase]
"""A label and the text beside it."""


def products_blocks(rows: Sequence[ProductRow], expand: bool = False, where: str = "") -> Iterator[Element]:
    """Yield the faults, then a line for each product; with `expand`, or for few products, all that was found of each.

    where: begins the first line of many products, such as "NVIDIA H200: ".
    """
    shown = wrong_first(rows)
    if expand or len(shown) <= SHOWN_IN_FULL:
        for row in shown:
            if faults := tuple(alarms(row)):
                yield List(faults, "!")
            yield product_section(row)
        every = [line for row in shown for line in (*lines(row), *(each for _, plan in plans(row) for each in plan))]
        yield from _legend([*map(_result, shown), *(said.text for _, said in every)])
        return
    yield Heading(f"{where}{status_counts(rows)}; --all has each in full", 2)
    if of_any := all_alarms(shown):
        yield List(of_any, "!")
    yield tabulate(COLUMNS, shown)
    yield from _legend(words for row in shown for words in (_order(row), _bits(row).text, _result(row)))
    for row in shown:
        if row.reason:
            yield Paragraph((Phrase(f"{row.title}: "), Phrase(row.status, row.status), Phrase(f": {row.reason}")))
        yield from _mismatch(row, f"{row.title}: ")


def _legend(texts: Iterable[str]) -> Iterator[Paragraph]:
    """Yield the meaning of the marks in the texts."""
    shown = "\n".join(texts)
    yield from paragraphs((meaning for mark, meaning in MARKS.items() if re.search(mark, shown)), "quiet")


def products_page(rows: Sequence[ProductRow]) -> Iterator[Element]:
    """Yield a table with a line for each product, and a section for each."""
    shown = wrong_first(rows)
    name, what = ("Reductions", "reduction") if all(row.is_reduction for row in rows) else ("Matrix products", "product")
    yield Heading(name, 2, "products")
    yield tabulate(COLUMNS, shown, links="p", caption=f"The name of a {what} links to its details.", filtered=True)
    yield from (product_section(row, f"p{i}", len(shown) == 1) for i, row in enumerate(shown))


def product_section(row: ProductRow, anchor: str = "", is_open: bool = False) -> Section:
    """Return the status and the plan of a product, and below them all that was found of it."""
    bits = _bits(row).text
    plan = ", ".join(filter(None, (_order(row), f"{bits} fraction bits" if bits else "", _result(row))))
    title = (Phrase(f"{row.title}  ", "strong"), *status_spans(row), Phrase(f": {plan}" if _order(row) else ""))
    return Section(title, partial(_body, row), anchor=anchor, open=is_open)


def _body(row: ProductRow) -> Iterator[Element]:
    if row.reason:
        yield Paragraph(Phrase(row.reason, row.status))
    yield from _mismatch(row)
    if before := proviso(row):
        yield Paragraph(Phrase(before, row.status), boxed=True)
    yield fact_grid(lines(row))
    for region, plan in plans(row):
        yield Heading(f"{region.where}: {so_many(region.elements, 'output')}", 4)
        yield fact_grid(plan)


def wrong_first(rows: Sequence[ProductRow]) -> list[ProductRow]:
    """Sort: first products that drop or double terms or take scales of another block, then those that are not confirmed."""
    return sorted(rows, key=lambda row: (not is_wrong(row), row.holds or row.status == "skipped"))


def all_alarms(rows: Sequence[ProductRow]) -> tuple[Phrases, ...]:
    return tuple((Phrase(f"{row.title}: ", "strong"), alarm) for row in rows for alarm in alarms(row))


def alarms(row: ProductRow) -> Iterator[Phrase]:
    """Yield what a reader must not miss: terms not counted once, wrong scales, and remarks."""
    for where, which in miscounted(row):
        kinds = {"missing": "DROPPED", "more than once": "DOUBLED", "subtracted": "SUBTRACTED"}
        what = " AND ".join(name for words, name in kinds.items() if words in which)
        at = f", at {where}" if len(row.regions) > 1 else ""
        noun = "ELEMENTS" if row.is_reduction else "PRODUCTS"
        yield Phrase(f"{what} {noun}: {which}{at}, of {row.k:,}" if what else f"WRONG {noun}: {which}{at}", "bad")
    yield from (Phrase(f"WRONG SCALES: {which}", "bad") for which in misscaled(row))
    yield from (Phrase(remark, "warning") for remark in row.remarks)


def _mismatch(row: ProductRow, of: str = "") -> Iterator[Paragraph]:
    if row.verification and row.verification.mismatch:
        yield Paragraph(Phrase(f"{of}mismatch: {row.verification.mismatch}", "bad"))


def status_spans(row: ProductRow) -> Phrases:
    reduction = row.findings.get("reduction_order")
    any_order = row.holds and reduction is not None and reduction.value == "unordered"
    if is_wrong(row):
        return Phrase("WRONG RESULT", "bad"), Phrase(f", plan {row.status}", row.status)
    return Phrase(row.status, row.status), Phrase(" up to the order of atomics" if any_order else "", row.status)


def _status(row: ProductRow) -> Phrases:
    return status_spans(row) if is_wrong(row) else (Phrase(row.status, row.status),)


def proviso(row: ProductRow) -> str:
    """Return the sentence to read before the findings; "" where there is none."""
    is_suggested = any(finding.bound == "suggested" for region in row.regions for finding in region.findings.values())
    if row.status == "inferred" and not is_suggested:
        return OF_SOME_OUTPUTS if any(region.model for region in row.regions) else ""
    return PROVISOS.get(row.status, "") if row.regions else ""


def _order(row: ProductRow) -> str:
    others = f" (and {so_many(len(row.regions) - 1, 'other plan')})" if len(row.regions) > 1 else ""
    return "not observable" if FORMATS[row.a].is_integer else plan_words(row.findings, row.is_reduction) + others


def _bits(row: ProductRow) -> Phrase:
    bits = row.findings.get("effective_bits")
    whole = FORMATS["f32"].mantissa_bits
    narrow = row.holds and bits is not None and bits.bound == "exact" and isinstance(bits.value, int) and bits.value < whole
    return Phrase(found_words(row.findings, "effective_bits"), "narrow" if narrow else "")


def _result(row: ProductRow) -> str:
    return " to ".join(filter(None, (found_words(row.findings, "result_rounding"), row.out)))


COLUMNS = (
    Column("callable", lambda row: row.title, least=22),
    Column("status", _status, detail_if_same=True, least=10),
    Column("accumulation order", _order, least=16),
    Column("bits", _bits, detail_if_same=True, whole=True),
    Column("result", _result, detail_if_same=True, least=8),
)


def lines(row: ProductRow) -> Iterator[ProductLine]:
    """Yield the findings of the whole product, and the plan of its outputs where all have the same."""
    if row.probed_part:
        yield "probed", Phrase(row.probed_part)
    if row.composite:
        yield "computes", Phrase(_steps(row.composite))
    if row.device:
        yield "device", Phrase(row.device)
    versions = ", ".join(f"{name} {version}" for name, version in row.libraries.items())
    if kernels := "; ".join(_kernels(row.kernels)):
        yield "kernels", Phrase(f"{kernels} ({versions})" if versions else kernels)
    elif versions:
        yield "kernels", Phrase(f"not recorded; loaded: {versions}")
    if row.regions:
        yield from _of_all_outputs(row, row.regions[0])
    if done := "; ".join(_verified(row)):
        wrong = row.verification is not None and (row.verification.mismatches or row.verification.contradicting)
        yield "verified", Phrase(done, "bad" if wrong else "good" if row.holds else "")
    if row.verification and (kinds := row.verification.kinds):
        yield "tested on", Phrase(", ".join(f"{count:,} {kind}" for kind, count in kinds.items()))


def _steps(record: CompositeRecord) -> str:
    """Return "x · rsqrt(S / K + eps) with rsqrt rounded once; S in 8 lanes of 1, merged in turn"."""
    steps = f"{record.finish} with {record.function}" if record.function else record.finish
    method = f" by {record.moments}" if record.moments else ""
    rows = f"; of the rows {record.rows.finish}, T in {record.rows.order}" if record.rows else ""
    also = f"; the same bits in the rows that decided: {' or '.join(record.same_bits)}" if record.same_bits else ""
    return f"{steps}; S{method} in {record.order}{rows}{also}"


def plans(row: ProductRow) -> Iterator[tuple[RegionRecord, list[ProductLine]]]:
    """Yield the plan of each region where there are several."""
    for region in row.regions if len(row.regions) > 1 else ():
        yield region, list(plan_lines(row, region))


def _of_all_outputs(row: ProductRow, first: RegionRecord) -> Iterator[ProductLine]:
    if len(row.regions) == 1:
        yield from plan_lines(row, first)
    outputs = row.m * row.n
    alike = f"all {outputs:,} outputs {'by the same plan' if first.model else 'are computed alike'}"
    found = first.findings
    if same := found.get("same_everywhere"):
        yield "everywhere", _yes_or_no(same, alike if outputs > 1 else "the only output")
    depends = found.get("depends_on")
    if depends is not None and depends.value != "own row and column":
        yield "depends on", Phrase(": ".join(filter(None, (str(depends.value), depends.note))), "warning")
    if epilogue := found.get("epilogue"):
        yield "epilogue", Phrase(f"{found_words(found, 'epilogue')}; {epilogue.note}")
    if repeats := found.get("repeatable"):
        note = repeats.note.replace("pairs of operands", "operands") if row.is_reduction else repeats.note
        yield "repeatable", _yes_or_no(repeats, ", ".join(filter(None, ("yes", note))))


def _yes_or_no(finding: Finding, yes: str) -> Phrase:
    return Phrase(yes) if finding.value == "yes" else Phrase(finding.note or "no", "warning")


def plan_lines(row: ProductRow, region: RegionRecord) -> Iterator[ProductLine]:
    """Yield how an output of the region is computed."""
    found = region.findings
    if once := found.get("each_product_once"):
        yes = once.value == "yes"
        counted = ": ".join(filter(None, ("counted once", once.note)))
        term = "x[i, k]" if row.is_reduction else "a[i, k]·b[k, j]"
        yield "every k", Phrase(counted if yes else f"NOT {term} once: {once.note}", "" if yes else "bad")
    if "products_per_sum" not in found:
        return
    if FORMATS[row.a].is_integer:
        yield "fused sums", Phrase("integer sums, the same bits in any order")
        return
    if row.is_reduction:
        if precision := ", ".join(_precision(found)):
            yield "additions", Phrase(precision)
    else:
        yield "fused sums", Phrase(", ".join(_fused_sums(found, region.model)) + _instruction(found))
    if rounding := found_words(found, "operand_rounding"):
        to = next(name for name in (row.a, row.b) if FORMATS[name].ignored_low_bits)
        yield "operands", Phrase(f"{rounding} to {to}")
    yield "along K", Phrase("; ".join(_order_of_k(found, row.is_reduction)))
    if row.scale:
        how = found_words(found, "scales") or "how they are applied is not known"
        yield "scales", Phrase(f"{SCALED_BY[row.scale]}: {how}")


def _order_of_k(found: FindingsByName, of_reduction: bool) -> Iterator[str]:
    """Yield the plan, how partial sums are promoted, and notes."""
    plan = plan_words(found, of_reduction) or "order not known"
    yield plan
    if division(found):
        if note := found["order"].note:
            itself = plan.partition(", ")[0] + " or "
            yield f"the same bits as {note.removeprefix(itself)}"
        return
    into = ", ".join(filter(None, (found_words(found, "promotion_format"), found_words(found, "promotion_rounding"))))
    if into:
        yield f"promoted into {into}"
    every = found.get("promote_every")
    if every is not None and every.note:
        yield every.note


def _kernels(kernels: Sequence[KernelRecord]) -> Iterator[str]:
    """Yield kernels of one function and the same opcodes as one; reports have the whole names."""
    launches: dict[str, int] = {}
    for kernel in kernels:
        function, arguments, _ = short_name(kernel.name).partition("<")
        name = " ".join((f"{function}<…>" if arguments else function, *kernel.opcodes))
        launches[name] = launches.get(name, 0) + kernel.launches
    yield from (f"{name}, {count:,} launches" if count != 1 else name for name, count in launches.items())


def _fused_sums(found: FindingsByName, model: ProductModel | None) -> Iterator[str]:
    single = found["products_per_sum"].value == 1
    yield f"{found_words(found, 'products_per_sum')} product{'s' * (not single)}"
    if how := along(found):
        yield how
    if single and model is not None:
        yield _multiplication(found, model)
    yield from _precision(found)


def _precision(found: FindingsByName) -> Iterator[str]:
    """Yield the bits and the roundings of a fused sum, or of an addition."""
    if bits := found_words(found, "effective_bits"):
        yield f"{bits} fraction bits"
    aligned = found.get("alignment_bits")
    if aligned is not None and aligned.value is not None and aligned.value != found["result_bits"].value:
        yield f"aligned at {found_words(found, 'alignment_bits')}"
    if rounding := found_words(found, "sum_rounding"):
        yield rounding
    for name in ("subnormal_operands", "subnormal_results"):
        if name in found and found[name].value != "kept":
            yield f"{name.replace('_', ' ')} {found_words(found, name)}"


def _multiplication(found: FindingsByName, model: ProductModel) -> str:
    """Return how a single product is added; an exact product gives the same bits whether the two steps are fused or not."""
    rounded = found.get("product_bits")
    if rounded is not None and rounded.value is not None:
        return f"each rounded to {found_words(found, 'product_bits')} bits first"
    arithmetic = model.step.root.arithmetic
    assert isinstance(arithmetic, FloatArithmetic)
    exact = model.a.mantissa_bits + model.b.mantissa_bits + 1 <= arithmetic.result_bits
    how = "multiply-adds (fused or not: products are exact)" if exact else "fused multiply-adds"
    finding, single = ("products_per_sum", "1") if rounded is None else ("product_bits", "none")
    return found_words(found, finding).replace(single, how, 1)


def _instruction(found: FindingsByName) -> str:
    one = found.get("instruction")
    if one is None or one.value is None:
        return ""
    return f" (as {found_words(found, 'instruction')}{f' {one.note}' if one.note else ''})"


def _verified(row: ProductRow) -> Iterator[str]:
    done = row.verification
    if done is not None and done.compared:
        yield f"{done.compared:,} fresh outputs, {done.mismatches:,} mismatches"
    elif row.regions:
        contradicted = done is not None and done.contradicting
        yield f"nothing: {'results contradict the plan' if contradicted else 'no fresh outputs were compared'}"
    if done is not None and done.contradicting:
        yield f"{done.contradicting:,} of {done.results:,} results contradict the plan"
    if (chains := sum(region.chains for region in row.regions)) > 1:
        what = "parts" if row.is_reduction and _order(row).startswith(f"{chains} parts") else "chains"
        yield f"{sum(region.chains_probed for region in row.regions):,} of {chains:,} {what} probed"
    tried = [region.alternatives for region in row.regions if region.alternatives and region.alternatives.tested]
    if tried:
        count, surviving = sum(each.tested for each in tried), [change for each in tried for change in each.surviving]
        yield f"{count - len(surviving):,} of {count:,} alternative plans contradicted"
        if surviving:
            yield f"surviving: {', '.join(surviving)}"
