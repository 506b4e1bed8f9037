"""Compare two products by their findings, and the rows of products with several M by their bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b

import numpy as np

from accprobe.compare.pairs import REGIONS, STATUS, paired
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.blackbox import BlackBox
from accprobe.gemm.checks.regions import same_for_all
from accprobe.gemm.operands import draw_operands
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits
from accprobe.operands.distributions import times_power
from accprobe.report.product_words import PRODUCT_FINDINGS
from accprobe.report.products import ProductRow

# Findings that follow from others, reported only if nothing else differs.
DERIVED = ("order", "instruction")
KINDS = ("normal", "wide", "cancelling", "same sign")
# Products whose rows are compared. In some of them A is subnormal, or as large as its format allows.
PRODUCTS_SHARED = 16


def versus(one: ProductRow, other: ProductRow) -> tuple[bool, str]:
    """Return whether nothing differs, and "use_fast_accum False -> True changed promote every: 128 -> none", or "… nothing"."""
    what = _setting(one, other)
    of_shape = {"slice_sizes", "order"} if one.k != other.k else set()
    fields = [name for name in PRODUCT_FINDINGS if name not in of_shape]
    pair = paired(one, other, [*fields, STATUS, *([REGIONS] if one.shape == other.shape else [])])
    for kind, verb in (("changed", "changed"), ("undecided", "may have changed")):
        found = [each for each in pair.differences if each.verdict == kind]
        if found:
            first = [each for each in found if each.field not in DERIVED] or found
            changes = (f"{each.title}: {each.a} -> {each.b}" for each in first)
            return False, f"{what} {verb} {'; '.join(changes)}"
    if steps := list(_step_changes(one, other)):
        has_other = any(row.composite is not None and row.composite.same_bits for row in (one, other))
        given = any(each.startswith("eps: ") for each in steps)  # other steps with the same bits have the same eps
        is_certain = one.holds and other.holds and (given or not has_other)
        return False, f"{what} {'changed' if is_certain else 'may have changed'} {'; '.join(steps)}"
    models = [[region.model for region in row.regions] for row in (one, other)]
    if one.k == other.k and models[0] != models[1]:
        return False, f"{what} changed the plan, in no named finding"
    return True, f"{what} changed nothing"


def _step_changes(one: ProductRow, other: ProductRow) -> Iterator[str]:
    """Yield "eps: 1e-06 -> 0.1" for each step around the sums that differs, or that only one of the rows has."""
    steps, others = (_steps(row) for row in (one, other))
    for name in dict.fromkeys((*steps, *others)):
        if (first := steps.get(name, "none")) != (second := others.get(name, "none")):
            yield f"{name}: {first} -> {second}"


def _steps(row: ProductRow) -> dict[str, str]:
    """Return the steps around the sums by name: those of a composite, and the epilogue of a product."""
    found = {"epilogue": str(row.findings["epilogue"].value)} if "epilogue" in row.findings else {}
    if (composite := row.composite) is not None:
        steps = {"result": composite.finish, "functions": composite.function, "moments": composite.moments}
        steps |= {"eps": "" if composite.eps is None else f"{composite.eps:g}"}
        steps |= {"rows": f"{composite.rows.finish} of {composite.rows.order}" if composite.rows else ""}
        found |= {name: text for name, text in steps.items() if text}
    return found


def _setting(one: ProductRow, other: ProductRow) -> str:
    if one.name != other.name:
        changes = [f"{one.name} -> {other.name}"]
    else:
        names = dict.fromkeys([*one.options, *other.options])
        pairs = ((name, one.options.get(name), other.options.get(name)) for name in names)
        changes = [f"{name} {first} -> {second}" for name, first, second in pairs if first != second]
    changes += [f"shape {one.shape} -> {other.shape}"] if one.shape != other.shape else []
    return ", ".join(changes) or "a repeated run"


@dataclass(frozen=True)
class SameRow:
    """Values of M that give the same bits for each shared row. changing: identical calls of some gave other bits.

    of: the name of M in sentences.
    """

    ms: tuple[int, ...]
    changing: bool = False
    of: str = "m"

    def __str__(self) -> str:
        bits = "the same bits for the same row" if len(self.ms) > 1 else "other bits in some row"
        return (
            f"{self.of} = {', '.join(map(str, self.ms))}: {bits}{', which change from call to call' if self.changing else ''}"
        )


def same_rows(open_: Callable[[int], BlackBox], ms: Sequence[int], seed: int = 0) -> list[SameRow]:
    """Group values of M by the bits of their shared rows: the same B, and the same row of A at the same place."""
    rows: dict[int, list[bytes]] = {}
    changing = set()
    for m in ms:
        box, seen = open_(m), [blake2b(digest_size=16) for _ in range(m)]
        for number in range(PRODUCTS_SHARED):
            a, b, scales = _shared(box.spec, max(ms), number, seed)
            d, again = (box.product(a, b, scales) for _ in range(2))
            for row, bits in zip(seen, d, strict=True):
                row.update(bits.tobytes())
            if (d != again).any():
                changing.add(m)
        rows[m] = [row.digest() for row in seen]
    found: list[list[int]] = []
    for m in ms:
        like = (of for of in found if all(x == y for other in of for x, y in zip(rows[m], rows[other], strict=False)))
        if (of := next(like, None)) is not None:
            of.append(m)
        else:
            found.append([m])
    return [SameRow(tuple(of), bool(changing & set(of))) for of in found]


def _shared(spec: Spec, most: int, number: int, seed: int) -> tuple[Bits, Bits, ScaleWords | None]:
    """Return operands with the same B and rows of A for every M up to `most`. In every other product all rows are equal."""
    rng = np.random.default_rng((seed, number))
    a, b, scales = draw_operands(replace(spec, m=most), KINDS[number // 2 % len(KINDS)], rng)
    if number % 2:
        a, b = same_for_all(replace(spec, m=most), number, rng)
    elif spec.a.is_float and spec.a_exponent is None:
        a = times_power(spec.a, a, (0, spec.a.min_exponent - 2, 0, spec.a.max_exponent - 2)[number // 2 % 4])
    if scales is not None and spec.scale != "tensor":
        scales = ScaleWords(scales.a[: spec.m], scales.b)
    return a[: spec.m], b, scales
