"""What differs between two products: the findings that do, and for rows of several M, the classes that have the same bits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from accprobe.compare.products import REGIONS, STATUS, product_pair
from accprobe.evaluate.product import ScaleWords
from accprobe.gemm.blackbox import BlackBox
from accprobe.gemm.fresh import drawn
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits
from accprobe.model.fields import FEATURES
from accprobe.model.product import ProductModel
from accprobe.model.record import Field
from accprobe.model.tree import FloatArithmetic
from accprobe.report.product_words import PRODUCT_FINDINGS
from accprobe.report.products import ProductRow

DERIVED = ("order", "instruction")
"""Findings that follow from others: they are told where nothing else differs."""

KINDS = ("normal", "wide", "cancelling", "one sign")
FIRST_ROWS = 12
"""Products whose first row is compared."""


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
    """Values of M that give the same bits for the same row. changing: some of them gave two answers to one question."""

    ms: tuple[int, ...]
    changing: bool = False

    def __str__(self) -> str:
        bits = "the same bits for the same row" if len(self.ms) > 1 else "bits of its own"
        return f"m = {', '.join(map(str, self.ms))}: {bits}{', which change from call to call' if self.changing else ''}"


def same_rows(open_: Callable[[int], BlackBox], ms: Sequence[int], seed: int = 0) -> list[SameRow]:
    """Values of M by the bits of row 0: the same row of A and the same B, the other rows drawn anew."""
    rows: dict[int, list[bytes]] = {}
    changing = set()
    for m in ms:
        box, rows[m] = open_(m), []
        for number in range(FIRST_ROWS):
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
