"""What differs between two products: the findings that do, and for rows of several M, the classes that have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.blackbox import BlackBox
from accprobe.gemm.fresh import drawn
from accprobe.gemm.spec import Spec
from accprobe.infer.findings import Finding
from accprobe.isa.formats import Bits
from accprobe.report.products import ProductRow

TOLD = {
    "each_product_once": "whether every product counts once",
    "repeatable": "whether results repeat",
    "same_everywhere": "whether all outputs have one plan",
    "products_per_sum": "products of a sum",
    "effective_bits": "bits of a sum",
    "sum_rounding": "rounding of a sum",
    "promote_every": "promotion",
    "split_k": "split K",
    "partial_format": "format of partial sums",
    "merge_order": "order of the merge",
    "scales": "scales",
    "result_rounding": "rounding of the result",
    "order": "order",
}
"""Findings that are compared, and what they are in words."""

KINDS = ("normal", "wide", "cancelling", "one sign")
DRAWS = 12
"""Products whose first row is compared."""


def differences(one: ProductRow, other: ProductRow) -> Iterator[str]:
    """ "promotion: 128 -> none", for each finding that is not the same."""
    for name, words in TOLD.items():
        first, second = (_value(row.findings.get(name)) for row in (one, other))
        if first != second and not (name == "order" and _of_other_k(one, other)):
            yield f"{words}: {first} -> {second}"
    if one.status != other.status:
        yield f"status: {one.status} -> {other.status}"


def verdict(one: ProductRow, other: ProductRow) -> str:
    """One sentence: what changed from the one to the other, or nothing."""
    found = list(differences(one, other))
    what = _what(one, other)
    if found:
        return f"{what} changed {'; '.join(found)}"
    models = [[region.model for region in row.regions] for row in (one, other)]
    if not _of_other_k(one, other) and models[0] != models[1]:
        return f"{what} changed the plan, in no finding that has a name"
    return f"{what} changed nothing"


def same(one: ProductRow, other: ProductRow) -> bool:
    return verdict(one, other).endswith("changed nothing")


def _value(finding: Finding | None) -> str:
    return "none" if finding is None or finding.value is None else str(finding.value)


def _of_other_k(one: ProductRow, other: ProductRow) -> bool:
    return one.k != other.k


def _what(one: ProductRow, other: ProductRow) -> str:
    """In what they were asked differently."""
    told = [f"{one.callable} -> {other.callable}"] if one.callable != other.callable else []
    if one.callable == other.callable:
        names = dict.fromkeys([*one.options, *other.options])
        pairs = ((name, one.options.get(name), other.options.get(name)) for name in names)
        told += [f"{name} {first} -> {second}" for name, first, second in pairs if first != second]
    told += [f"shape {one.shape} -> {other.shape}"] if one.shape != other.shape else []
    return ", ".join(told) or "asking again"


@dataclass(frozen=True)
class SameRow:
    """Values of M that give the same bits for the same row. changing: some of them gave two answers to one question."""

    ms: tuple[int, ...]
    changing: bool = False

    def __str__(self) -> str:
        bits = "the same bits for the same row" if len(self.ms) > 1 else "bits of its own"
        return f"m = {', '.join(map(str, self.ms))}: {bits}{', which change from call to call' if self.changing else ''}"


def classes(open_: Callable[[int], BlackBox], ms: Sequence[int], seed: int = 0) -> list[SameRow]:
    """Values of M by the bits of row 0: the same row of A and the same B, the other rows drawn anew."""
    rows: dict[int, list[bytes]] = {}
    changing = set()
    for m in ms:
        box, rows[m] = open_(m), []
        for number in range(DRAWS):
            a, b, scales = _with_first_row(box.spec, KINDS[number % len(KINDS)], (seed, number))
            answers = [box.product(a, b, scales)[0].tobytes() for _ in range(2)]
            rows[m].append(answers[0])
            if answers[0] != answers[1]:
                changing.add(m)
    found: dict[tuple[bytes, ...], list[int]] = {}
    for m in ms:
        found.setdefault(tuple(rows[m]), []).append(m)
    return [SameRow(tuple(of), bool(changing & set(of))) for of in found.values()]


def _with_first_row(spec: Spec, kind: str, seed: tuple[int, int]) -> tuple[Bits, Bits, ScaleWords | None]:
    """Operands whose first row of A, and B, are the same whatever M is."""
    row, b, scales = drawn(replace(spec, m=1), kind, np.random.default_rng(seed))
    a = np.concatenate([row, drawn(spec, kind, np.random.default_rng((*seed, spec.m)))[0][1:]])
    if scales is not None and spec.scale != "tensor":
        scales = ScaleWords(np.repeat(scales.a, spec.m, axis=0), scales.b)
    return a, b, scales
