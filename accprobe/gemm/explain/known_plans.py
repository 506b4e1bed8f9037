"""Plans of libraries: chains of instructions, promoted or not, an even split of K, and the reduction of partial sums."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby, pairwise, starmap
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.miscounts import Miscounts
from accprobe.evaluate.product import SumWords, added, merged, product, rounded_to, rounded_words
from accprobe.gemm.explain.explanation import Candidate
from accprobe.gemm.layout import Ints
from accprobe.gemm.plans import PARTIAL_FORMATS
from accprobe.gemm.spec import Spec
from accprobe.gemm.steps import integer_step, known_steps, single_steps
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import Chain, Merged, Node, Order, ProductModel, addition, in_chunks
from accprobe.model.tree import DotModel, Rounding

# Promotion intervals.
PROMOTIONS = (32, 64, 96, 128, 192, 256, 384, 512)

MOST_SLICES = 16

# Slices are multiples of one of these.
MULTIPLES = (16, 32, 64, 128)

# Products per fused sum, newer units first.
WIDTHS = (64, 32, 16, 8, 4, 2)

# Products of each slice except the last, which has the remainder; or of every slice.
Sizes = int | tuple[int, ...]

ORDERS: tuple[Order, ...] = ("forward", "backward", "tree")


@dataclass(frozen=True)
class Merge:
    """The reduction of slices: the format that each sum is rounded to (None: not rounded), that of their sum, and the order."""

    kept: Format | None = None
    running: Format = FORMATS["f32"]
    order: Order = "forward"

    @property
    def order_name(self) -> str:
        return self.order if self.running.name in ("f32", "f64", "s32") else "serial"


class KnownStep(NamedTuple):
    """A named fused sum. spec: how operands are read; operand_rounding: of words wider than their format."""

    spec: Spec
    operand_rounding: Rounding
    name: str
    model: DotModel

    @property
    def inner_sum(self) -> Format:
        """Return the format that chunks are promoted to."""
        result = self.model.root.arithmetic.result
        return result if result.name in ("f64", "s32") else FORMATS["f32"]

    @property
    def core(self) -> tuple[object, ...]:
        """Return the properties that show in nearly every sum. Others show only for tiny or special numbers."""
        return (self.spec.a, self.operand_rounding, *arithmetic_core(self.model))


@dataclass(frozen=True)
class KnownPlan:
    """One plan. size: of its slices."""

    step: KnownStep
    size: Sizes
    promote_every: int | None = None
    merge: Merge = Merge()
    result_rounding: Rounding = "RNE"

    @cached_property
    def slices(self) -> list[range]:
        return slices(self.step.spec.k, self.size)

    @property
    def findings(self) -> dict[str, object]:
        """Return the findings of the plan by name."""
        spec, arithmetic = self.step.spec, self.step.model.root.arithmetic
        bits = [getattr(arithmetic, name, None) for name in ("alignment_bits", "result_bits")]
        found: dict[str, object] = {
            "each_product_once": "yes",
            "instruction": self.step.name,
            "products_per_sum": self.step.model.products,
            "effective_bits": min((x for x in bits if x is not None), default=None),
            "promote_every": self.promote_every,
            "split_k": len(self.slices),
        }
        if len(self.slices) > 1:
            found["slice_sizes"] = ", ".join(str(len(ks)) for ks in self.slices)
            found |= {"partial_format": str(self.merge.kept or "f32"), "reduction_order": self.merge.order_name}
        if spec.rounds_operands:
            found["operand_rounding"] = self.step.operand_rounding
        return found | {"result_rounding": self.result_rounding}

    def model(self) -> ProductModel:
        spec, step, how, inner = self.step.spec, self.step.model, self.step.operand_rounding, self.step.inner_sum
        pattern = tuple(range(step.products))
        parts = [in_chunks(ks, self.promote_every or len(ks), pattern, addition(inner)) for ks in self.slices]
        tree: Node = parts[0] if len(parts) == 1 else node(self.merge, tuple(parts))
        return ProductModel(spec.a, spec.b, spec.k, step, tree, spec.out, self.result_rounding, operand_rounding=how)

    def candidate(self) -> Candidate:
        return Candidate(self.step.name, self.findings, self.model())


def node(merge: Merge, parts: tuple[Node, ...]) -> Merged:
    return Merged(parts, merge.order, addition(merge.running), merge.kept)


def slices(k: int, size: Sizes) -> list[range]:
    borders = [*range(0, k, size), k] if isinstance(size, int) else [0, *accumulate(size)]
    return list(starmap(range, pairwise(borders)))


def sizes(k: int) -> list[int]:
    """Return the sizes of slices to try, the whole K first."""
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


def merges(count: int, inner: Format) -> Iterator[Merge]:
    """Yield the distinct reductions of this number of slices of this format."""
    if count == 1 or inner.is_integer:
        yield Merge(running=inner)
        return
    orders = ORDERS if count > 3 else ORDERS[:2] if count == 3 else ORDERS[:1]
    for kept in (None, *(FORMATS[name] for name in PARTIAL_FORMATS)):
        for order in orders:
            yield Merge(kept, inner, order)
    for name in PARTIAL_FORMATS:
        yield Merge(FORMATS[name], FORMATS[name])


def roundings(spec: Spec, last: Format) -> tuple[Rounding, ...]:
    return ("RNE", "RZ") if spec.out.is_float and spec.out is not last else ("RNE",)


def arithmetic_core(step: DotModel) -> tuple[object, ...]:
    """Return the fields that show in nearly every sum. Arithmetics that agree in them differ for tiny or special numbers."""
    arithmetic = step.root.arithmetic
    names = ("alignment_bits", "alignment_rounding", "result_bits", "result_rounding", "product_bits")
    return (step.products, arithmetic.result, step.subnormal_operands, *(getattr(arithmetic, name, None) for name in names))


def instruction_steps(spec: Spec, operand_rounding: Rounding = "RZ") -> Iterator[KnownStep]:
    """Yield the fused sums of known instructions that can give D, each with the instruction's name."""
    if spec.a.is_integer:
        yield KnownStep(spec, operand_rounding, "integers", integer_step(1))
        return
    for width in WIDTHS:
        for name, step in known_steps(spec.a, spec.b, width):
            if step.root.arithmetic.result.name == "f32" or step.root.arithmetic.result is spec.out:
                yield KnownStep(spec, operand_rounding, name, step)


def other_steps(spec: Spec, operand_rounding: Rounding = "RZ") -> Iterator[KnownStep]:
    """Yield chains of multiply-adds in f32 and in the formats of the operands and D. Products rounded first are never tiny."""
    if spec.a.is_float:
        for step in (each for each in single_steps() if not each.root.children):
            arithmetic = step.root.arithmetic
            if arithmetic.result.name == "f32" or arithmetic.result in (spec.a, spec.out):
                rounded = getattr(arithmetic, "product_bits", None) is not None
                flushed = ", subnormals flushed" if step.subnormal_operands == "flushed" else ""
                name = f"{arithmetic.result} {'multiply, then add' if rounded else 'FMA'}{flushed}"
                yield KnownStep(spec, operand_rounding, name, step)


def _merged(merge: Merge, parts: Sequence[SumWords]) -> SumWords:
    whole = node(merge, tuple(Chain(i, i + 1, (0,)) for i in range(len(parts))))
    return merged(whole, parts, whole.nested)


class SampledPlans:
    """Results of sampled elements under all plans with one fused sum. Each chain is computed once.

    a, b [E, K]: the row and the column of each element.
    """

    def __init__(self, step: KnownStep, a: Bits, b: Bits) -> None:
        self._step = step
        self._a, self._b = (rounded_words(step.spec.a, x, step.operand_rounding) for x in (a, b))
        self._known: dict[range, Bits] = {}

    def results(self, sizes: Sequence[Sizes]) -> Iterator[tuple[KnownPlan, Bits]]:
        """Yield the plans with slices of these sizes, each with its results [E]."""
        spec, inner = self._step.spec, self._step.inner_sum
        for size in sizes:
            every = promotions(size) if inner.name == "f32" else [None]
            parts = self._slices(slices(spec.k, size), every)
            for merge in merges(len(parts), inner):
                total = parts[0] if len(parts) == 1 else _merged(merge, parts)
                for rounding in roundings(spec, total.fmt):
                    found = rounded_to(total, spec.out, rounding)
                    for promoted, d in zip(every, found, strict=True):
                        yield KnownPlan(self._step, size, promoted, merge, rounding), d

    def _slices(self, parts: Sequence[range], every: Sequence[int | None]) -> list[SumWords]:
        """Return the sum of each part, [len(every), E], for each promotion interval (None: no promotion)."""
        result, inner = self._step.model.root.arithmetic.result, self._step.inner_sum
        self._compute([chunk for ks in parts for size in every for chunk in _chunks(ks, size)])
        found = []
        for ks in parts:
            sums = []
            for size in every:
                first, *others = (SumWords(self._known[chunk], result) for chunk in _chunks(ks, size))
                total = first
                for other in others:
                    total = added(total, other, addition(inner))
                sums.append(rounded_to(total, inner) if len(every) > 1 else total.patterns)
            found.append(SumWords(np.stack(sums), inner if len(every) > 1 else result))
        return found

    def _compute(self, chunks: Sequence[range]) -> None:
        """Compute the chunks that are not known yet, those of one length together."""
        new = sorted({chunk for chunk in chunks if chunk not in self._known}, key=lambda ks: (len(ks), ks.start))
        spec, step = self._step.spec, self._step.model
        pattern = tuple(range(step.products))
        for length, some in groupby(new, len):
            alike = list(some)
            ks = np.array([chunk.start for chunk in alike])[:, None] + np.arange(length)
            model = ProductModel(spec.a, spec.b, length, step, Chain(0, length, pattern), step.root.arithmetic.result)
            a, b = (np.moveaxis(lines[:, ks], 0, 1)[:, :, None, :] for lines in (self._a, self._b))
            for chunk, d in zip(alike, product(model, a, b)[..., 0, 0], strict=True):
                self._known[chunk] = d


def _chunks(ks: range, size: int | None) -> list[range]:
    every = len(ks) if size is None else size
    return [ks[start : start + every] for start in range(0, len(ks), every)]


# A zero in place of an operand.
OMITTED = -1

# Maximum number of times that a product may be counted.
MOST_COUNTED = 2


class Arrangement(NamedTuple):
    """The k of A and the k of B of each product in turn, or OMITTED. sizes: of slices to try."""

    a: Ints
    b: Ints
    sizes: list[Sizes]

    def operands(self, a: Bits, b: Bits) -> tuple[Bits, Bits]:
        """Return the operands of a [M, K] and b [N, K] in this arrangement."""
        x, y = (np.where(ks == OMITTED, 0, words[:, ks]).astype(words.dtype) for ks, words in ((self.a, a), (self.b, b)))
        return x, y


def arrangements(found: Miscounts) -> Iterator[Arrangement]:
    """Yield arrangements of operands that explain the miscounts, the likeliest first."""
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
    """Yield repeated products directly after the first ones (overlapping slices, one loop pass too many), or at the end."""
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
