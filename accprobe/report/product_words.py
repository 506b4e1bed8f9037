"""What a report says of a whole product, in words short enough for a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accprobe.infer.findings import Finding
from accprobe.report.products import ProductRow
from accprobe.report.words import value, word

Findings = Mapping[str, Finding]

PRODUCT_FINDINGS = (
    "each_product_once",
    "split_k",
    "slice_sizes",
    "partial_format",
    "merge_order",
    "promote_every",
    "promotion_format",
    "promotion_rounding",
    "order",
    "products_per_sum",
    "effective_bits",
    "alignment_bits",
    "result_bits",
    "product_bits",
    "sum_rounding",
    "result_rounding",
    "scales",
    "epilogue",
    "instruction",
    "same_everywhere",
    "repeatable",
)
"""Findings of whole products, those first that a reader looks for first."""

NUMBERS = (
    "split_k",
    "promote_every",
    "products_per_sum",
    "effective_bits",
    "alignment_bits",
    "result_bits",
    "product_bits",
)
"""Those whose values are numbers."""


def told(findings: Findings, name: str) -> str:
    """A finding as tables show it, "" where there is none; "RNE?" where a rival has another value, not told which."""
    finding = findings.get(name)
    if finding is None:
        return ""
    if finding.bound == "undetermined" and not finding.left:
        return f"{word(finding.value, name)}?"
    return value(finding, name)


def plan(findings: Findings) -> str:
    """In which order K is added: "4 slices of 1024, partials bf16", "one chain, promoted every 128"; "" where it is not known."""
    return ", ".join(_plan(findings))


def _plan(findings: Findings) -> Iterator[str]:
    split = findings.get("split_k")
    if split is None:
        return
    if split.value == 1:
        yield told(findings, "split_k").replace("1", "one chain")
    else:
        sizes = str(findings["slice_sizes"].value).split(", ") if "slice_sizes" in findings else []
        each = sizes[0] if len(set(sizes)) == 1 else ", ".join(sizes)
        yield f"{told(findings, 'split_k')} slices{f' of {each}' if each else ''}"
        if partials := told(findings, "partial_format"):
            yield f"partials {partials}"
        if (merge := told(findings, "merge_order")) not in ("", "forward"):
            yield f"merged {merge}"
    if "promote_every" in findings and findings["promote_every"].value is not None:
        yield f"promoted every {told(findings, 'promote_every')}"


def miscounted(row: ProductRow) -> Iterator[tuple[str, str]]:
    """Where products are dropped or counted more than once, and which: a plain error of the program that was asked."""
    for region in row.regions:
        once = region.findings.get("each_product_once")
        if once is not None and once.value == "no":
            yield region.where, once.note
