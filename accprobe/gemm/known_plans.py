"""Plans of libraries: chains of instructions, promoted or not, an even split of K, and the reduction of partial sums.

References are f64 sums that are rounded to D, once or by way of f32. An explanation names the plans that give the bits of a
result, or facts about a result that no plan explains.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import groupby
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.spec import Spec
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import SumWords, added, merged, product, rounded_to, rounded_words
from accprobe.gemm.plans import PARTIAL_FORMATS, ROUNDINGS, added_in, integer_step, known_steps, single_steps
from accprobe.gemm.tree.decomposition import ORDERS
from accprobe.gemm.verification import ElementMismatch
from accprobe.isa.formats import FORMATS, Bits, Format
from accprobe.model.product import OPERAND_ROUNDINGS, Chain, Merged, Node, ProductModel, addition, in_chunks, multiply_add
from accprobe.model.tree import DotModel, Rounding
from accprobe.report.words import listed_sizes

# A plan that explains this share of the results is the product's plan; the rest has another cause.
_NEARLY = 0.9


@dataclass(frozen=True)
class Candidate:
    """A plan that may explain a result. findings: by name."""

    name: str
    findings: Mapping[str, object]
    model: ProductModel


@dataclass(frozen=True)
class Explanation:
    """The plans that explain one result.

    plans: the first, and others with as few mismatches; more: the number of further plans that a sample did not distinguish.
    compared: of `words`; mismatches: of the compared ones. stopped: the search ended at an arithmetic that explains the result,
    so some others were not tried. rows: the numbers [R] of the compared rows, and the first plan's results there, [R, N].
    regions: parts of the result with another plan, whose words are not among the mismatches. unknown: facts about a result that
    no plan explains.
    """

    words: int
    compared: int
    mismatches: int
    plans: tuple[Candidate, ...]
    more: int = 0
    places: tuple[ElementMismatch, ...] = ()
    stopped: bool = False
    rows: tuple[NDArray[np.int64], Bits] | None = field(default=None, compare=False, repr=False)
    regions: tuple[ExplainedRegion, ...] = ()
    unknown: Unknown | None = None

    @property
    def alike(self) -> int:
        """Return the number of other plans that were not distinguished from the first."""
        return len(self.plans) - 1 + self.more

    @property
    def adds_wrong_products(self) -> bool:
        """Return whether products are missing from the result or count twice."""
        own = any(plan.findings.get("each_product_once", "yes") != "yes" for plan in self.plans[:1])
        return own or any(part.found.adds_wrong_products for part in self.regions)

    @property
    def nearly(self) -> bool:
        """Return whether the plan explains nearly all words."""
        return bool(self.plans) and self.mismatches <= (1 - _NEARLY) * self.compared


@dataclass(frozen=True)
class ExplainedRegion:
    """rows, columns: the first and the last; found: the explanation of these elements alone."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    found: Explanation

    def holds(self, row: int, column: int) -> bool:
        return self.rows[0] <= row <= self.rows[1] and self.columns[0] <= column <= self.columns[1]


@dataclass(frozen=True)
class Unknown:
    """A result that no plan explains, compared with sums in f64 that are rounded once.

    differing_from_exact: of `compared` words; median_ulp, largest_ulp: difference in units in the last place. rows, columns:
    the first and the last with mismatches of the nearest plan. miscounts: missing, repeated or mispaired products by least
    squares; miscounts_explain: their share of the squared difference.
    """

    compared: int
    differing_from_exact: int
    median_ulp: int
    largest_ulp: int
    rows: tuple[int, int]
    columns: tuple[int, int]
    miscounts: tuple[str, ...] = ()
    miscounts_explain: float = 0.0


def differences(x: Candidate, y: Candidate) -> dict[str, tuple[object, object]]:
    """Return the findings in which two plans differ. Plans of one model differ at most in the products that they add."""
    names = x.findings if x.model != y.model else x.findings.keys() & {"each_product_once"}
    both = {name: (x.findings[name], y.findings.get(name, x.findings[name])) for name in names}
    return {name: (mine, other) for name, (mine, other) in both.items() if mine != other}


def differing_plans(found: Sequence[Explanation]) -> dict[str, tuple[object, object]] | None:
    """Return the findings in which the plans of two results differ; None without two explained results."""
    if len(found) != 2 or not all(each.nearly for each in found):
        return None
    return differences(found[0].plans[0], found[1].plans[0])


F32, F64 = FORMATS["f32"], FORMATS["f64"]
# Promotion intervals.
PROMOTIONS = (32, 64, 96, 128, 192, 256, 384, 512)
MOST_SLICES = 16
# Slices are multiples of one of these.
MULTIPLES = (16, 32, 64, 128)
# Products per fused sum, newer units first.
WIDTHS = (64, 32, 16, 8, 4, 2)

FORWARD = Merged((), "forward", addition())


class KnownStep(NamedTuple):
    """The named fused sum that a plan repeats.

    spec: how operands are read; operand_rounding: of words wider than their format.
    """

    spec: Spec
    operand_rounding: Rounding
    name: str
    model: DotModel

    @property
    def is_chain(self) -> bool:
        """Return whether one product is added at a time."""
        return self.model.products == 1 and self.spec.a.is_float

    @property
    def is_chain_in_other_format(self) -> bool:
        """Return whether the accumulator has another format than the operands."""
        return self.is_chain and self.model.root.arithmetic.result is not self.spec.a


@dataclass(frozen=True)
class KnownPlan:
    """One plan. size: of its slices, and the last may be smaller; merge: how their sums are added, without the slices."""

    step: KnownStep
    size: int
    promote_every: int | None = None
    merge: Merged = FORWARD
    result_rounding: Rounding = "RNE"

    @cached_property
    def slices(self) -> list[range]:
        return _chunks(range(self.step.spec.k), self.size)

    @property
    def findings(self) -> dict[str, object]:
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
            found["slice_sizes"] = listed_sizes([len(ks) for ks in self.slices])
            is_serial = self.merge.arithmetic.result.name in PARTIAL_FORMATS  # the running sum is rounded each time
            order = "serial" if is_serial else self.merge.order
            found |= {"partial_format": str(self.merge.kept or added_in(self.step.model)), "reduction_order": order}
        if spec.rounds_operands:
            found["operand_rounding"] = self.step.operand_rounding
        return found | {"result_rounding": self.result_rounding}

    def model(self) -> ProductModel:
        spec, step, how = self.step.spec, self.step.model, self.step.operand_rounding
        pattern = tuple(range(step.products))
        parts = [in_chunks(ks, self.promote_every or len(ks), pattern, addition(added_in(step))) for ks in self.slices]
        tree: Node = parts[0] if len(parts) == 1 else replace(self.merge, parts=tuple(parts))
        return ProductModel(spec.a, spec.b, spec.k, step, tree, spec.out, self.result_rounding, operand_rounding=how)


def sizes(k: int) -> list[int]:
    """Return the sizes of slices to try, the whole K first."""
    found = {k: None}
    for count in range(2, MOST_SLICES + 1):
        for whole in MULTIPLES:
            size = -(-k // (count * whole)) * whole
            if size < k:
                found[size] = None
    return list(found)


def merges(count: int, inner: Format) -> Iterator[Merged]:
    """Yield the distinct reductions of this number of slices of this format, without the slices."""
    if count == 1 or inner.is_integer:
        yield Merged((), "forward", addition(inner))
        return
    orders = ORDERS if count > 3 else ORDERS[:2] if count == 3 else ORDERS[:1]
    partial = [FORMATS[name] for name in PARTIAL_FORMATS]
    yield from (Merged((), order, addition(inner), kept) for kept in (None, *partial) for order in orders)
    yield from (Merged((), "forward", addition(fmt), fmt) for fmt in partial)


def steps_to_try(specs: Sequence[Spec]) -> list[KnownStep]:
    """Return fused sums that can give D: chains in the operands' format, then sums of instructions, then other chains."""
    found: list[KnownStep] = []
    for spec in specs:
        named = [("integers", integer_step(1))] if spec.a.is_integer else [*_instruction_steps(spec), *_chains(spec)]
        for how in OPERAND_ROUNDINGS if spec.rounds_operands else ("RZ",):
            found += [KnownStep(spec, how, *each) for each in named]
    return sorted(found, key=lambda step: (step.is_chain_in_other_format, not step.is_chain))


def _instruction_steps(spec: Spec) -> Iterator[tuple[str, DotModel]]:
    for width in WIDTHS:
        for name, step in known_steps(spec.a, spec.b, width):
            if step.root.arithmetic.result.name == "f32" or step.root.arithmetic.result is spec.out:
                yield name, step


def _chains(spec: Spec) -> Iterator[tuple[str, DotModel]]:
    """Yield chains of multiply-adds in f32 and in the formats of the operands and D."""
    for step in dict.fromkeys(single_steps()):
        arithmetic = step.root.arithmetic
        rounded = step == multiply_add(arithmetic.result, fused=False)
        if (rounded or not step.root.children) and (arithmetic.result.name == "f32" or arithmetic.result in (spec.a, spec.out)):
            form = "multiply, then add" if rounded else "FMA"
            operands = f" of {spec.a}" if spec.rounds_operands else ""
            yield f"{arithmetic.result} {form}{operands}{_FLUSHED[step.subnormal_operands, step.subnormal_addend]}", step


_FLUSHED = {
    ("kept", "kept"): "",
    ("kept", "flushed"): ", subnormal results flushed",
    ("flushed", "kept"): ", subnormal operands flushed",
    ("flushed", "flushed"): ", subnormals flushed",
}
"""The part of a chain's name for the subnormals of its operands and of its results."""


class SampledPlans:
    """Results of sampled elements under all plans with one fused sum. Each chain is computed once.

    a, b [E, K]: the row and the column of each element.
    """

    def __init__(self, step: KnownStep, a: Bits, b: Bits) -> None:
        self._step = step
        self._a, self._b = (rounded_words(step.spec.a, x, step.operand_rounding) for x in (a, b))
        self._known: dict[range, Bits] = {}

    def results(self, sizes: Sequence[int]) -> Iterator[tuple[KnownPlan, Bits]]:
        """Yield the plans with slices of these sizes, each with its results [E]."""
        spec, inner = self._step.spec, added_in(self._step.model)
        for size in sizes:
            every = [None, *(x for x in PROMOTIONS if x < size and inner.name == "f32")]
            parts = self._slices(_chunks(range(spec.k), size), every)
            for merge in merges(len(parts), inner):
                whole = replace(merge, parts=tuple(Chain(i, i + 1, (0,)) for i in range(len(parts))))
                total = parts[0] if len(parts) == 1 else merged(whole, parts, whole.nested)
                is_rounded = spec.out.is_float and spec.out is not total.fmt
                for rounding in ROUNDINGS[::-1] if is_rounded else ("RNE",):
                    found = rounded_to(total, spec.out, rounding)
                    for promoted, d in zip(every, found, strict=True):
                        yield KnownPlan(self._step, size, promoted, merge, rounding), d

    def _slices(self, parts: Sequence[range], every: Sequence[int | None]) -> list[SumWords]:
        """Return the sum of each part, [len(every), E], for each promotion interval (None: no promotion)."""
        result, inner = self._step.model.root.arithmetic.result, added_in(self._step.model)
        self._compute([chunk for ks in parts for size in every for chunk in _chunks(ks, size)])
        found = []
        for ks in parts:
            sums = []
            for size in every:
                chunks = (SumWords(self._known[chunk], result) for chunk in _chunks(ks, size))
                total = reduce(lambda x, y: added(x, y, addition(inner)), chunks)
                sums.append(rounded_to(total, inner) if len(every) > 1 else total.patterns)
            found.append(SumWords(np.stack(sums), inner if len(every) > 1 else result))
        return found

    def _compute(self, chunks: Sequence[range]) -> None:
        """Compute the chunks that are not known yet, all of one length together."""
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


def f64_references(spec: Spec) -> Iterator[Candidate]:
    """Yield an f64 sum rounded once to the result, and rounded to f32 first if that is wider than the result."""
    if not spec.a.is_float or F64 in (spec.a, spec.b, spec.out):
        return
    sums = Chain(0, spec.k, (0,))
    trees: dict[str, Node] = {f"once, to {spec.out}": sums}
    if spec.out is not F32:
        trees[f"to f32, then to {spec.out}"] = Merged((sums,), "forward", addition(), F32)
    for rounded, tree in trees.items():
        name = "f64 sum, in any order"
        found = {"each_product_once": "yes", "instruction": name, "effective_bits": F64.mantissa_bits, "rounded": rounded}
        yield Candidate(name, found, ProductModel(spec.a, spec.b, spec.k, multiply_add(F64), tree, spec.out))


def is_f64_reference(model: ProductModel) -> bool:
    """Return whether a model stands for an f64 sum in any order."""
    return model.step == multiply_add(F64) and F64 not in (model.a, model.b)


def predicted(model: ProductModel, a: Bits, b: Bits, got: Bits) -> Bits:
    """Return the results of a [..., M, K] and b [..., N, K]. The order of an f64 reference is unknown: return `got` if some
    order can give it.
    """
    if not is_f64_reference(model):
        return product(model, a, b)
    x, y = model.a.values(a), model.b.values(b)
    with np.errstate(all="ignore"):
        sums = x @ np.swapaxes(y, -1, -2)
        off = (np.abs(x) @ np.abs(np.swapaxes(y, -1, -2))) * (model.k * 2.0**-F64.mantissa_bits)
        kept = model.tree.kept if isinstance(model.tree, Merged) else None
        low, middle, high = (_rounded(each, kept, model.result) for each in (sums - off, sums, sums + off))
    return np.where((got == low) | (got == high), got, middle)


def rounded_once(spec: Spec, a: Bits, b: Bits) -> Bits:
    """Return the sums in f64 of a [M, K] and b [N, K], rounded once to the result's format."""
    with np.errstate(all="ignore"):
        sums = spec.a.values(a) @ spec.b.values(b).T
    return sums.astype(np.int64).astype(spec.out.dtype) if spec.out.is_integer else _rounded(sums, None, spec.out)


def _rounded(sums: Floats, kept: Format | None, out: Format) -> Bits:
    words = SumWords(np.ascontiguousarray(sums).view(np.uint64), F64)
    return rounded_to(words if kept is None else SumWords(rounded_to(words, kept), kept), out)
