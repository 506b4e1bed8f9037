"""The results for a matrix product, in words short enough for a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from accprobe.report.products import ProductRow
from accprobe.report.words import FindingsByName, found_words

PLAN_FINDINGS = (
    "split_k",
    "slice_sizes",
    "partial_format",
    "reduction_order",
    "promote_every",
    "promotion_format",
    "promotion_rounding",
    "order",
)
"""Findings in which structures that give the same bits for all operands may differ."""

MOST_SIZES = 8
"""Sizes that are listed one by one."""

PRODUCT_FINDINGS = (
    "each_product_once",
    *PLAN_FINDINGS,
    "products_per_sum",
    "effective_bits",
    "alignment_bits",
    "result_bits",
    "product_bits",
    "sum_rounding",
    "operand_rounding",
    "subnormal_operands",
    "subnormal_results",
    "result_rounding",
    "scales",
    "epilogue",
    "instruction",
    "same_everywhere",
    "depends_on",
    "repeatable",
    "first_calls",
)
"""Names of the findings of products, in the order of tables."""

BACKWARD = "from the last k to the first"
BLOCKS_BACKWARD = "by blocks of {} from the last to the first"
IN_DISORDER = "in another order"
SHARE = "{} of every {} k"
"""How the finding `order` ends where a chain does not take K in turn; SHARE: where other k lie between a chain's."""


def plan_words(findings: FindingsByName, of_reduction: bool = False) -> str:
    """Return the order of K: "4 slices of 1024, partials bf16", "one chain, promotion interval 128"; "" if it is unknown.

    of_reduction: slices that are added in f32 are called parts, as are parts of which several structures are possible.
    """
    return ", ".join(_plan(findings, of_reduction))


def _plan(findings: FindingsByName, of_reduction: bool) -> Iterator[str]:
    split = findings.get("split_k")
    if split is None:
        return
    if parts := division(findings):
        yield parts
        if how := along(findings):
            yield f"each {how}"
        return
    if split.value == 1:
        yield found_words(findings, "split_k").replace("1", f"one chain {along(findings)}".rstrip())
    else:
        sizes = parsed_sizes(str(findings["slice_sizes"].value)) if "slice_sizes" in findings else []
        partials, merge = found_words(findings, "partial_format"), found_words(findings, "reduction_order")
        in_f32 = of_reduction and partials == "f32"
        yield f"{found_words(findings, 'split_k')} {'parts' if in_f32 else 'slices'}{f' of {each_of(sizes)}' if sizes else ''}"
        if in_f32:
            yield f"added in f32{f' as a {merge}' if merge in ('tree', 'butterfly') else ''}"
        if how := along(findings):
            yield f"each {how}"
        if partials and not in_f32:
            yield f"partials {partials}"
        if merge not in ("", "forward") and not (in_f32 and merge in ("tree", "butterfly")):
            yield f"reduction {merge}"
    if "promote_every" in findings and findings["promote_every"].value is not None:
        yield f"promotion interval {found_words(findings, 'promote_every')}"


def listed_sizes(sizes: Sequence[int]) -> str:
    """Return "288, 288, 160"; more than MOST_SIZES as run lengths, "15 x 288, 160"."""
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    if len(sizes) <= MOST_SIZES:
        return ", ".join(map(str, sizes))
    return ", ".join(f"{count} x {size}" if count > 1 else str(size) for size, count in runs)


def parsed_sizes(listed: str) -> list[int]:
    """Return the sizes that `listed_sizes` lists."""
    runs = (run.rpartition(" x ") for run in listed.split(", "))
    return [int(size) for count, _, size in runs for _ in range(int(count or 1))]


def each_of(sizes: Sequence[int]) -> str:
    """Return "1024" of equal sizes, "1408, the last 1280", "72, 96", "160 (2 times), 39 (120 times)", or "4 to 12"."""
    if len(set(sizes)) == 1:
        return str(sizes[0])
    all_but_one = len(sizes) > 2 and len(set(sizes[:-1])) == 1
    if all_but_one:
        return f"{sizes[0]}, the last {sizes[-1]}"
    if len(sizes) <= MOST_SIZES:
        return ", ".join(map(str, sizes))
    runs = [(size, len(list(run))) for size, run in groupby(sizes)]
    if len(runs) > MOST_SIZES:
        return f"{min(sizes)} to {max(sizes)}"
    return ", ".join(f"{size} ({count} times)" if count > 1 else str(size) for size, count in runs)


def division(findings: FindingsByName) -> str:
    """Return "2 parts of 256, added in f32" where several structures give the same bits, "" where K has one structure."""
    several = any(name in findings and findings[name].bound == "equivalent" for name in PLAN_FINDINGS)
    return str(findings["order"].value).rpartition(": ")[0] if several and "order" in findings else ""


def along(findings: FindingsByName) -> str:
    """Return how each chain takes K, "" if in turn."""
    return str(findings["order"].value).partition("], ")[2] if "order" in findings else ""


def miscounted(row: ProductRow) -> Iterator[tuple[str, str]]:
    """Yield (region, k) where products are dropped or counted more than once: an error of the callable."""
    for region in row.regions:
        once = region.findings.get("each_product_once")
        if once is not None and once.value == "no":
            yield region.where, once.note


def misscaled(row: ProductRow) -> Iterator[str]:
    """Yield which blocks have the scales of others."""
    yield from dict.fromkeys(str(region.findings["scales"].value) for region in row.regions if is_misplaced(region.findings))


def is_misplaced(findings: FindingsByName) -> bool:
    """Return whether a block has the scales of another: "block 3 has the scales of block 2"."""
    return "scales" in findings and str(findings["scales"].value).startswith("block ")
