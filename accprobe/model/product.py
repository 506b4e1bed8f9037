"""What a whole matrix product computes: which sums of which k, in which order, make one element of D.

A tree of K, written compactly. Its leaves are chains: one accumulator that takes products in turn, so many a fused sum, as a
chain of instructions does. Chains are merged: chunks that are promoted into an f32 sum, slices of K whose partial sums are
added up, in whatever order and format. The result is scaled and rounded once.

Promotion: DeepSeek-V3 (arXiv 2412.19437, section 3.3.2). Trees of whole products: Xie et al., FPRev (ATC'25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import accumulate, pairwise
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.isa.families import FAMILIES
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import (
    Addend,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    IntegerArithmetic,
    Product,
    Rounding,
    Subnormals,
)

Order = Literal["forward", "backward", "tree", "unordered"]
Nested = int | tuple["Nested", ...]
"""Parts by their numbers: ((0, 1), 2) adds 0 and 1 first."""

T = TypeVar("T")

ScaleOf = Literal["tensor", "row", "1x128", "128x128"]
Scaling = Literal["product of scales", "a then b", "b then a"]
"""How two scales are applied: RNE(sa·sb) first, or one after the other."""

OPERAND_ROUNDINGS: tuple[Rounding, ...] = ("RZ", "RNE", "RNA")
"""Of operands to a format that is narrower than their words: cut, or to nearest, ties to even or away from zero."""

NOBODY = -1
"""Stands for k where a fused sum has a product fewer."""


@dataclass(frozen=True)
class Chain:
    """One accumulator that takes the products from `start` to `stop`, in turn.

    Which k come in turn repeats every `period` products: start + shift + i·period + p for each p of `pattern`. What would lie
    before `start` or from `stop` on is left out.
    """

    start: int
    stop: int
    pattern: tuple[int, ...]
    period: int = 0
    shift: int = 0

    @cached_property
    def repeat(self) -> int:
        return self.period or len(self.pattern)

    @property
    def is_plain(self) -> bool:
        """Whether k comes as it is."""
        return not self.shift and not self.period and self.pattern == tuple(range(len(self.pattern)))

    def ks(self) -> NDArray[np.intp]:
        """k in the order in which they are taken, NOBODY where one is left out."""
        first = self.start + self.shift
        turns = -(-(self.stop - first) // self.repeat)
        turn = first + self.repeat * np.arange(turns)
        every: NDArray[np.intp] = np.add.outer(turn, np.array(self.pattern)).reshape(-1)
        every[(every < self.start) | (every >= self.stop)] = NOBODY
        return every


@dataclass(frozen=True)
class Merged:
    """Sums that are added to one another, two at a time.

    kept: the format that each part is rounded to (to nearest, ties to even) before it is added, None: as it is.
    arithmetic: of each addition.
    """

    parts: tuple[Node, ...]
    order: Order | Nested
    arithmetic: Arithmetic
    kept: Format | None = None

    @cached_property
    def nested(self) -> Nested:
        """The order, spelled out; "unordered" as if it were forward."""
        return nested(self.order, len(self.parts)) if isinstance(self.order, str) else self.order


Node = Chain | Merged


def nested(order: Order, parts: int) -> Nested:
    """The order of that name, spelled out: "tree" adds neighbours, then neighbours of those."""
    level: list[Nested] = list(range(parts))
    if order == "tree":
        while len(level) > 1:
            pairs = [level[i] if i + 1 == len(level) else (level[i], level[i + 1]) for i in range(0, len(level), 2)]
            level = pairs
        return level[0]
    if order == "backward":
        level.reverse()
    found = level[0]
    for other in level[1:]:
        found = (found, other)
    return found


def folded(order: Nested, parts: Sequence[T], add: Callable[[T, T], T]) -> T:
    """The parts added in that order, however many nest within the first of others, as all do forward and backward."""
    later: list[tuple[Nested, ...]] = []
    while not isinstance(order, int):
        order, *others = order
        later.append(tuple(others))
    total = parts[order]
    for following in reversed(later):
        for other in following:
            total = add(total, folded(other, parts, add))
    return total


@dataclass(frozen=True)
class Scales:
    """How the result is scaled.

    of: what has a scale of its own: the whole matrix, each row of A and column of B, or each block. fused: by the FMA that adds
    a scaled chunk.
    """

    of: ScaleOf
    how: Scaling = "product of scales"
    fused: bool = False

    @property
    def inside(self) -> bool:
        return "x" in self.of


@dataclass(frozen=True)
class ProductModel:
    """The arithmetic of a matrix product with K = `k`: D = A·B, every element alike.

    a, b: formats of the operands. step: the fused sum of a chain, of one instruction, whose C is the sum before it.
    result: format of D; result_bits of it are kept; result_rounding: of the last sum to it. operand_rounding: of operands whose
    words are wider than their format (tf32) to it, before anything is multiplied; RZ: their last bits are not looked at.
    """

    a: Format
    b: Format
    k: int
    step: DotModel
    tree: Node
    result: Format
    result_rounding: Rounding = "RNE"
    scales: Scales | None = None
    operand_rounding: Rounding = "RZ"

    def __post_init__(self) -> None:
        for chain in self.chains():
            if len(chain.pattern) % self.step.products:
                raise AccprobeError(f"a pattern of {len(chain.pattern)} products is no sums of {self.step.products}")

    @cached_property
    def instruction(self) -> Instruction:
        """What one step is, in the words of the catalog."""
        d = self.step.root.arithmetic.result
        name = f"{self.step.products} products of {self.a} and {self.b} a sum"
        return Instruction(name, FAMILIES[0], 1, 1, self.step.products, d, self.a, self.b, d)

    def chains(self) -> Iterator[Chain]:
        """From the first to the last."""
        return chains_of(self.tree)

    @cached_property
    def block_of(self) -> dict[Chain, int]:
        """Of each chain, the block along K whose scales it has, where blocks have them."""
        return {chain: block for block, chain in enumerate(self.chains())}

    @property
    def scales_inside(self) -> bool:
        return self.scales is not None and self.scales.inside

    @property
    def is_ordered(self) -> bool:
        return all(node.order != "unordered" for node in merged_in(self.tree))


def chains_of(node: Node) -> Iterator[Chain]:
    """From the first to the last."""
    if isinstance(node, Chain):
        yield node
    else:
        for part in node.parts:
            yield from chains_of(part)


def of_chains(node: Node) -> tuple[Chain, ...]:
    """The chains that a node adds up itself; none where some of its parts are sums of several."""
    parts = (node,) if isinstance(node, Chain) else node.parts
    chains = tuple(part for part in parts if isinstance(part, Chain))
    return chains if len(chains) == len(parts) else ()


def merged_in(node: Node) -> Iterator[Merged]:
    if isinstance(node, Merged):
        yield node
        for part in node.parts:
            yield from merged_in(part)


def same_additions(a: ProductModel, b: ProductModel) -> bool:
    """Whether both add the same products to the same sums, in the same formats, whatever these sums are called."""
    numbers: dict[object, int] = {}
    products = a.step.products
    return a.step == b.step and _number(a.tree, products, numbers) == _number(b.tree, products, numbers)


def _number(node: Node, products: int, numbers: dict[object, int]) -> int:
    """The number of a sum; all sums of the same terms have one. products: of each fused sum of a chain."""
    if isinstance(node, Chain):
        sums = (tuple(sorted(k for k in ks if k != NOBODY)) for ks in node.ks().reshape(-1, products).tolist())
        return numbers.setdefault(tuple(filter(None, sums)), len(numbers))
    parts = [_number(part, products, numbers) for part in node.parts]
    if node.kept is not None:
        parts = [numbers.setdefault((node.kept.name, part), len(numbers)) for part in parts]
    if node.order == "unordered":
        return numbers.setdefault((node.order, node.arithmetic, tuple(sorted(parts))), len(numbers))
    return folded(node.nested, parts, lambda x, y: numbers.setdefault((node.arithmetic, frozenset((x, y))), len(numbers)))


@cache
def addition(fmt: Format = FORMATS["f32"], rounding: Rounding = "RNE", subnormals: Subnormals = "kept") -> Arithmetic:
    """Return an ordinary addition into a format: exact, then rounded once; integers wrap around.

    subnormals: "flushed" where subnormal terms and results become zeros of their sign: `add.ftz.f32`, and `red.add.f32` and
    `atom.add.f32` of global memory (PTX ISA, `red` and `atom`).
    """
    if fmt.is_integer:
        return IntegerArithmetic(fmt, "wrap")
    usual = FloatArithmetic(fmt, fmt.mantissa_bits, rounding, None, zero_sign="ieee", nan=fmt.sign_bit - 1)
    return replace(usual, subnormal_results=subnormals)


@cache
def multiply_add(fmt: Format = FORMATS["f32"], product_bits: int | None = None) -> DotModel:
    """One product a sum: a fused multiply-add, or where `product_bits` is given, a product that is rounded first."""
    arithmetic = FloatArithmetic(fmt, fmt.mantissa_bits, "RNE", None, zero_sign="ieee", nan=fmt.sign_bit - 1)
    if product_bits is not None:
        arithmetic = replace(arithmetic, product_bits=product_bits, product_rounding="RNE")
    return DotModel(FusedSum((Addend(), Product(0)), arithmetic))


def in_chunks(ks: range, sizes: int | Sequence[int], pattern: tuple[int, ...], arithmetic: Arithmetic) -> Node:
    """A chain that begins anew after `sizes` products, each chunk added to the sum of those before."""
    parts = _chunks(ks, sizes, pattern)
    return parts[0] if len(parts) == 1 else Merged(parts, "forward", arithmetic)


def _chunks(ks: range, sizes: int | Sequence[int], pattern: tuple[int, ...]) -> tuple[Chain, ...]:
    """At least one."""
    borders = [ks.start, *_within(ks, sizes), ks.stop]
    return tuple(Chain(low, high, pattern) for low, high in pairwise(borders))


def _within(ks: range, sizes: int | Sequence[int]) -> Sequence[int]:
    """The borders between chunks."""
    if isinstance(sizes, int):
        return range(ks.start + sizes, ks.stop, sizes)
    if sum(sizes) != len(ks):
        raise AccprobeError(f"chunks of {sum(sizes)} products in all do not make {len(ks)}")
    return [ks.start + products for products in accumulate(sizes[:-1])]


def chained(
    inst: Instruction, model: DotModel, k: int, promote_every: int | None = None, groups: Sequence[Sequence[int]] | None = None
) -> ProductModel:
    """Chains of an instruction along K, promoted every so many products into f32 (None: never), where K has no more too.

    groups: the k of each instruction in turn, which repeat; without them, as k comes.
    """
    pattern = tuple(range(inst.k)) if groups is None else tuple(i for group in groups for i in group)
    if promote_every is None:
        return ProductModel(inst.a, inst.b, k, model, Chain(0, k, pattern), inst.d)
    promoted = Merged(_chunks(range(k), promote_every, pattern), "forward", addition())
    return ProductModel(inst.a, inst.b, k, model, promoted, FORMATS["f32"])
