"""What differs between two products: the findings that do, and for rows of several M, the classes that have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from hashlib import blake2b

import numpy as np

from accprobe.compare.products import REGIONS, STATUS, product_pair
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.blackbox import BlackBox
from accprobe.gemm.distributions import times_power
from accprobe.gemm.regions import same_for_all
from accprobe.gemm.spec import Spec
from accprobe.gemm.verification import drawn
from accprobe.isa.formats import Bits
from accprobe.model.fields import FEATURES
from accprobe.model.product import ProductModel
from accprobe.model.record import Field
from accprobe.model.tree import FloatArithmetic
from accprobe.report.product_words import PRODUCT_FINDINGS
from accprobe.report.products import ProductRow

DERIVED = ("order", "instruction")
"""Findings that follow from others: they are told where nothing else differs."""

KINDS = ("normal", "wide", "cancelling", "same sign")
PRODUCTS_SHARED = 16
"""Products whose rows are compared: of some A is subnormal, or as large as its format has it."""


@dataclass(frozen=True)
class Versus:
    """same: whether nothing differs; sentence: what does, or that nothing does."""

    same: bool
    sentence: str


def versus(one: ProductRow, other: ProductRow) -> Versus:
    """ "use_fast_accum False -> True changed promote every: 128 -> none", or "… changed nothing"."""
    what = _what(one, other)
    of_shape = {"slice_sizes", "order"} if one.k != other.k else set()
    fields = [name for name in PRODUCT_FINDINGS if name not in of_shape]
    pair = product_pair(one, other, [*fields, STATUS, *([REGIONS] if one.shape == other.shape else [])])
    for kind, verb in (("changed", "changed"), ("undecided", "may have changed")):
        found = [each for each in pair.differences if each.verdict == kind]
        if found:
            first = [each for each in found if each.field not in DERIVED] or found
            told = (f"{each.title}: {each.a} -> {each.b}" for each in first)
            return Versus(False, f"{what} {verb} {'; '.join(told)}")
    models = [[region.model for region in row.regions] for row in (one, other)]
    if one.k == other.k and models[0] != models[1]:
        inside = "; ".join(dict.fromkeys(_of_sums(*models)))
        where = f"inside a sum: {inside}" if inside else "in no finding that has a name"
        return Versus(False, f"{what} changed the plan, {where}")
    return Versus(True, f"{what} changed nothing")


def _of_sums(one: Sequence[ProductModel | None], other: Sequence[ProductModel | None]) -> Iterator[str]:
    """ "product bits none -> 23": fields of fused sums that differ; "none" too where one means nothing."""
    for x, y in zip(one, other, strict=False):
        first, second = (None if each is None else each.step.root.arithmetic for each in (x, y))
        if isinstance(first, FloatArithmetic) and isinstance(second, FloatArithmetic):
            for field in fields(FloatArithmetic):
                values = [_meant(each, field.name) for each in (first, second)]
                if values[0] != values[1]:
                    told = ("none" if value is None else str(value) for value in values)
                    yield f"{field.name.replace('_', ' ')} {' -> '.join(told)}"


def _meant(arithmetic: FloatArithmetic, name: str) -> object:
    """A field's value; None where it says nothing, as how products are rounded does where they are not."""
    field = FEATURES.get(name)
    needed = field.only_with if isinstance(field, Field) else ""
    return None if needed and getattr(arithmetic, needed) is None else getattr(arithmetic, name)


def _what(one: ProductRow, other: ProductRow) -> str:
    """In what they were asked differently."""
    if one.callable != other.callable:
        told = [f"{one.callable} -> {other.callable}"]
    else:
        names = dict.fromkeys([*one.options, *other.options])
        pairs = ((name, one.options.get(name), other.options.get(name)) for name in names)
        told = [f"{name} {first} -> {second}" for name, first, second in pairs if first != second]
    told += [f"shape {one.shape} -> {other.shape}"] if one.shape != other.shape else []
    return ", ".join(told) or "asking again"


@dataclass(frozen=True)
class SameRow:
    """Values of M that give the same bits for each row that they share. changing: some of them gave two answers to one
    question.
    """

    ms: tuple[int, ...]
    changing: bool = False

    def __str__(self) -> str:
        bits = "the same bits for the same row" if len(self.ms) > 1 else "other bits in some row"
        return f"m = {', '.join(map(str, self.ms))}: {bits}{', which change from call to call' if self.changing else ''}"


def same_rows(open_: Callable[[int], BlackBox], ms: Sequence[int], seed: int = 0) -> list[SameRow]:
    """Values of M by the bits of the rows that they share: of the same B, and the same row of A at the same place."""
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
        like = (of for of in found if all(_agree(rows[m], rows[other]) for other in of))
        if (of := next(like, None)) is not None:
            of.append(m)
        else:
            found.append([m])
    return [SameRow(tuple(of), bool(changing & set(of))) for of in found]


def _agree(one: Sequence[bytes], other: Sequence[bytes]) -> bool:
    """Whether the rows are the same that both have."""
    return all(x == y for x, y in zip(one, other, strict=False))


def _shared(spec: Spec, most: int, number: int, seed: int) -> tuple[Bits, Bits, ScaleWords | None]:
    """Operands of which the rows of A, and B, are the same whatever M is, up to `most`. Every other time all rows are alike."""
    rng = np.random.default_rng((seed, number))
    a, b, scales = drawn(replace(spec, m=most), KINDS[number // 2 % len(KINDS)], rng)
    if number % 2:
        a, b = same_for_all(replace(spec, m=most), number, rng)
    elif spec.a.is_float and spec.a_exponent is None:
        a = times_power(spec.a, a, (0, spec.a.min_exponent - 2, 0, spec.a.max_exponent - 2)[number // 2 % 4])
    if scales is not None and spec.scale != "tensor":
        scales = ScaleWords(scales.a[: spec.m], scales.b)
    return a[: spec.m], b, scales
