"""Plans that libraries have: instructions in chains, promoted or not, K split evenly, and what becomes of partial sums."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise, starmap
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.miscounts import Miscounts
from accprobe.gemm.candidates import integer_step, known_steps, single_steps
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ROUNDINGS, SMALL
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import Merged, Node, Order, ProductModel, addition, in_chunks
from accprobe.model.tree import DotModel, Rounding

PROMOTIONS = (32, 64, 96, 128, 192, 256, 384, 512)
"""Products after which a chain begins anew."""

MOST_SLICES = 16

MULTIPLES = (16, 32, 64, 128)
"""Slices are multiples of one of these."""

WIDTHS = (64, 32, 16, 8, 4, 2)
"""Products of a fused sum, those of newer units first."""

Sizes = int | tuple[int, ...]
"""Products of each slice but the last, which has what is left; or of every slice."""

ORDERS: tuple[Order, ...] = ("forward", "backward", "tree")


@dataclass(frozen=True)
class Merge:
    """How slices are added: the format that each is rounded to (None: as it is), that of their sum, and the order."""

    kept: Format | None = None
    running: Format = FORMATS["f32"]
    order: Order = "forward"

    @property
    def told(self) -> str:
        return self.order if self.running.name in ("f32", "f64", "s32") else "serial"


@dataclass(frozen=True)
class KnownPlan:
    """One plan for K = `k`.

    name: of the instruction, or of the arithmetic. size: products of a slice; the last has what is left; or of each slice.
    """

    name: str
    step: DotModel
    k: int
    size: Sizes
    promote_every: int | None = None
    merge: Merge = Merge()
    result_rounding: Rounding = "RNE"

    @cached_property
    def slices(self) -> list[range]:
        return slices(self.k, self.size)

    @property
    def told(self) -> dict[str, object]:
        """Findings by name, those that the plan has."""
        arithmetic = self.step.root.arithmetic
        told: dict[str, object] = {"each_product_once": "yes", "instruction": self.name, "products_per_sum": self.step.products}
        bits = [getattr(arithmetic, name, None) for name in ("alignment_bits", "result_bits")]
        told["effective_bits"] = min((x for x in bits if x is not None), default=None)
        told |= {"promote_every": self.promote_every, "split_k": len(self.slices)}
        if len(self.slices) > 1:
            told["slice_sizes"] = ", ".join(str(len(ks)) for ks in self.slices)
            told |= {"partial_format": str(self.merge.kept or "f32"), "reduction_order": self.merge.told}
        return told | {"result_rounding": self.result_rounding}

    def model(self, spec: Spec) -> ProductModel:
        pattern = tuple(range(self.step.products))
        inner = inner_sum(self.step)
        parts = [in_chunks(ks, self.promote_every or len(ks), pattern, addition(inner)) for ks in self.slices]
        tree: Node = parts[0] if len(parts) == 1 else node(self.merge, tuple(parts))
        return ProductModel(spec.a, spec.b, spec.k, self.step, tree, spec.out, self.result_rounding)


def inner_sum(step: DotModel) -> Format:
    """The format that chunks are promoted into."""
    result = step.root.arithmetic.result
    return result if result.name in ("f64", "s32") else FORMATS["f32"]


def node(merge: Merge, parts: tuple[Node, ...]) -> Merged:
    return Merged(parts, merge.order, addition(merge.running), merge.kept)


def slices(k: int, size: Sizes) -> list[range]:
    borders = [*range(0, k, size), k] if isinstance(size, int) else [0, *accumulate(size)]
    return list(starmap(range, pairwise(borders)))


def sizes(k: int) -> list[int]:
    """Products of a slice, from the whole K to as many slices as there may be."""
    found = {k: None}
    for count in range(2, MOST_SLICES + 1):
        for whole in MULTIPLES:
            size = -(-k // (count * whole)) * whole
            if size < k:
                found[size] = None
    return list(found)


def promotions(size: Sizes) -> list[int | None]:
    longest = size if isinstance(size, int) else max(size)
    return [None, *(every for every in PROMOTIONS if every < longest)]


def merges(count: int, step: DotModel) -> Iterator[Merge]:
    """Those of so many slices that differ."""
    inner = inner_sum(step)
    if count == 1 or inner.is_integer:
        yield Merge(running=inner)
        return
    orders = ORDERS if count > 3 else ORDERS[:2] if count == 3 else ORDERS[:1]
    for kept in (None, *(FORMATS[name] for name in SMALL)):
        for order in orders:
            yield Merge(kept, inner, order)
    for name in SMALL:
        yield Merge(FORMATS[name], FORMATS[name])


def roundings(spec: Spec, last: Format) -> tuple[Rounding, ...]:
    return ROUNDINGS if spec.out.is_float and spec.out is not last else ROUNDINGS[:1]


def core(step: DotModel) -> tuple[object, ...]:
    """What shows in nearly every sum; arithmetics that agree in it differ where numbers are tiny or no numbers."""
    arithmetic = step.root.arithmetic
    names = ("alignment_bits", "alignment_rounding", "result_bits", "result_rounding", "product_bits")
    return (step.products, arithmetic.result, step.subnormal_operands, *(getattr(arithmetic, name, None) for name in names))


def instruction_steps(spec: Spec) -> Iterator[tuple[str, DotModel]]:
    """Sums of known instructions whose result D can have, each with the instruction's name."""
    if spec.a.is_integer:
        yield "integers", integer_step(1)
        return
    for width in WIDTHS:
        for name, step in known_steps(spec.a, spec.b, width):
            if step.root.arithmetic.result.name == "f32" or step.root.arithmetic.result is spec.out:
                yield name, step


def other_steps(spec: Spec) -> Iterator[tuple[str, DotModel]]:
    """Chains of multiply-adds, into f32 and into a format that the operands or D have; as if no product that is rounded first
    were tiny.
    """
    if spec.a.is_float:
        for step in (each for each in single_steps() if not each.root.children):
            arithmetic = step.root.arithmetic
            if arithmetic.result.name == "f32" or arithmetic.result in (spec.a, spec.out):
                rounded = getattr(arithmetic, "product_bits", None) is not None
                flushed = ", subnormals flushed" if step.subnormal_operands == "flushed" else ""
                yield f"{arithmetic.result} {'multiply, then add' if rounded else 'FMA'}{flushed}", step


OMITTED = -1
"""Stands for a zero in place of an operand."""

MOST_COUNTED = 2
"""Products that are counted more often than this have no plan here."""


class Arrangement(NamedTuple):
    """For each product in turn, the k of A and the k of B, or OMITTED; sizes: of slices to try."""

    a: Ints
    b: Ints
    sizes: list[Sizes]

    def operands(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Of a [M, K] and b [N, K]."""
        x, y = (np.where(ks == OMITTED, 0, words[:, ks]).astype(words.dtype) for ks, words in ((self.a, a), (self.b, b)))
        return x, y


def arrangements(found: Miscounts) -> Iterator[Arrangement]:
    """The ways in which a program comes to count products so, the likeliest first."""
    k = len(found.counts)
    every, missing, twice = np.arange(k), found.counts == -1, found.counts == 1
    if found.is_mispaired:
        a, b = np.where(missing, OMITTED, every), np.where(missing, OMITTED, found.partner)
        yield Arrangement(a, b, list(sizes(k)))
        if len(np.unique(found.partner)) == k:
            order = np.argsort(found.partner)
            yield Arrangement(a[order], b[order], list(sizes(k)))
        return
    if missing.all() or (found.counts < -1).any() or (found.counts >= MOST_COUNTED).any():
        return
    if missing.any() and not twice.any():
        zeroed, left = np.where(missing, OMITTED, every), every[~missing]
        yield Arrangement(zeroed, zeroed, list(sizes(k)))
        yield Arrangement(left, left, list(sizes(len(left))))
    elif missing.sum() == twice.sum():
        read = every.copy()
        read[missing] = every[twice]
        yield Arrangement(read, read, list(sizes(k)))
    elif not missing.any():
        yield from _repeated(every, twice)


def _repeated(every: Ints, twice: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Iterator[Arrangement]:
    """Once more right behind, by slices that overlap or a loop that runs once too often; or at the end."""
    ks, k = every[twice], len(every)
    low, high = int(ks[0]), int(ks[-1]) + 1
    if high - low == len(ks):
        behind = np.concatenate([every[:high], ks, every[high:]])
        overlapping: list[Sizes] = []
        for size in sizes(k)[1:]:
            borders = [part.stop for part in slices(k, size)]
            if low in borders or high in borders:
                moved = [high if border == low else border + len(ks) * (border > high) for border in borders]
                steps = np.diff([0, *moved[:-1], k + len(ks)])
                overlapping += [tuple(steps.tolist())] if steps.all() else []
        yield Arrangement(behind, behind, [*overlapping, *sizes(len(behind))])
    after = np.concatenate([every, ks])
    yield Arrangement(after, after, list(sizes(len(after))))
