"""Models of whole matrix products: the sums over k that produce an element of D, and their order.

A summation tree in compact form. Its leaves are chains: accumulators that take products in turn, one or more in each fused sum,
as a chain of instructions does. Inner nodes add the sums of chains: chunks that are promoted into f32, partial sums of split-K,
in any order and format. The total is scaled, unless each block along K was, and rounded to D's format.

Promotion: DeepSeek-V3 (arXiv 2412.19437, section 3.3.2). Trees of whole products: Xie et al., FPRev (ATC'25).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, reduce
from itertools import count
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
)

Order = Literal["forward", "backward", "tree", "unordered"]
# Parts by their numbers: ((0, 1), 2) adds 0 and 1 first.
Nested = int | tuple["Nested", ...]
# The k of each fused sum of a chain, in order.
FusedSums = tuple[tuple[int, ...], ...]

T = TypeVar("T")

SubnormalSums = Literal["kept", "flushed", "flushed to +0"]
ScaleOf = Literal["tensor", "row", "1x128", "128x128"]
# Order in which two scales are applied: RNE(sa·sb) first, or one after the other.
Scaling = Literal["product of scales", "a then b", "b then a"]

OPERAND_ROUNDINGS: tuple[Rounding, ...] = ("RZ", "RNE", "RNA")  # Rounding of operands to a format narrower than their words.

NO_K = -1  # Placeholder for k where a fused sum has one product fewer.


@dataclass(frozen=True)
class Chain:
    """One accumulator that takes the products from `start` to `stop`, in turn.

    Which k come in turn repeats every `period` products: start + shift + i·period + p for each p of `pattern`. Period 0 is the
    length of the pattern. Places before `start` or from `stop` on are left out.
    """

    start: int
    stop: int
    pattern: tuple[int, ...]
    period: int = 0
    shift: int = 0

    @cached_property
    def repeat(self) -> int:
        return self.period or len(self.pattern)

    def ks(self) -> NDArray[np.intp]:
        """Return k in the order in which they are taken, NO_K for each one left out."""
        first = self.start + self.shift
        turns = -(-(self.stop - first) // self.repeat)
        turn = first + self.repeat * np.arange(turns)
        every: NDArray[np.intp] = np.add.outer(turn, np.array(self.pattern)).reshape(-1)
        every[(every < self.start) | (every >= self.stop)] = NO_K
        return every

    @cached_property
    def taken(self) -> NDArray[np.intp]:
        """Return k in the order in which they are taken, without those left out."""
        ks = self.ks()
        found: NDArray[np.intp] = ks[ks != NO_K]
        return found

    def sums(self, products: int) -> FusedSums:
        """Return the k of each fused sum, in order. products: of each sum, those left out included."""
        ks = self.ks().reshape(-1, products).tolist()
        return tuple(found for each in ks if (found := tuple(sorted(k for k in each if k != NO_K))))


@dataclass(frozen=True)
class Merged:
    """Sums that are added in pairs.

    kept: the format that each part is rounded to (to nearest, ties to even) before it is added, None: as it is.
    arithmetic: of each addition.
    """

    parts: tuple[Node, ...]
    order: Order | Nested
    arithmetic: Arithmetic
    kept: Format | None = None

    @cached_property
    def nested(self) -> Nested:
        """Return the order as nested tuples; "unordered" as forward."""
        return nested(self.order, len(self.parts)) if isinstance(self.order, str) else self.order


Node = Chain | Merged


def chain_of_sums(sums: Sequence[Sequence[int]], products: int) -> Chain:
    """Return the chain of these fused sums, of so many products at most, with one pattern for all of K."""
    start, stop = min(map(min, sums)), max(map(max, sums)) + 1
    pattern = (k - start for each in sums for k in (*each, *[stop] * (products - len(each))))
    return Chain(start, stop, tuple(pattern), period=stop - start + 1)


def nested(order: Order | Literal["butterfly"], parts: int | Sequence[Nested]) -> Nested:
    """Return a named order of parts, or of so many, as nested pairs.

    "tree" adds neighbours, then the sums of neighbours. "butterfly" adds the halves of 2^n parts element by element, then the
    halves of the sums, as `shfl_down` and shared memory do.
    """
    level: list[Nested] = list(range(parts) if isinstance(parts, int) else parts)
    while order in ("tree", "butterfly") and len(level) > 1:
        half = len(level) // 2
        pairs: list[Nested] = [
            (level[2 * i], level[2 * i + 1]) if order == "tree" else (level[i], level[half + i]) for i in range(half)
        ]
        level = pairs + level[2 * half :]
    return reduce(lambda x, y: (x, y), reversed(level) if order == "backward" else level)


def folded(order: Nested, parts: Sequence[T], add: Callable[[T, T], T]) -> T:
    """Return the parts added in that order, without recursion along the first operand of each addition."""
    later: list[tuple[Nested, ...]] = []
    while not isinstance(order, int):
        order, *others = order
        later.append(tuple(others))
    total = parts[order]
    for following in reversed(later):
        for other in following:
            total = add(total, folded(other, parts, add))
    return total


def same_order(x: Nested, y: Nested) -> bool:
    """Return whether two orders give the same bits. The sum of two does not depend on which is first."""
    numbers: dict[int | tuple[int, ...], int] = {}
    return _number_of(x, numbers) == _number_of(y, numbers)


def _number_of(order: Nested, numbers: dict[int | tuple[int, ...], int]) -> int:
    """Return one number for all orders with the same bits; without recursion, because a chain is as deep as it is long."""
    nodes, pending = [], [order]
    while pending:
        nodes.append(node := pending.pop())
        pending += () if isinstance(node, int) else node
    done: list[int] = []
    for node in reversed(nodes):  # terms before their sum
        key: int | tuple[int, ...] = node if isinstance(node, int) else tuple(done[-len(node) :])
        if isinstance(key, tuple):
            del done[-len(key) :]
            key = tuple(sorted(key)) if len(key) == 2 else key
        done.append(numbers.setdefault(key, len(numbers)))
    return done[0]


@dataclass(frozen=True)
class Scales:
    """Scaling of the result. of: granularity of the scales: the whole matrix, each row of A and column of B, or each block.
    fused: applied by the FMA that adds a scaled chunk.
    """

    of: ScaleOf
    how: Scaling = "product of scales"
    fused: bool = False

    @property
    def by_block(self) -> bool:
        """Return whether each block along K has its own scale, which is applied before the blocks are added."""
        return "x" in self.of


@dataclass(frozen=True)
class ProductModel:
    """The arithmetic of a matrix product with K = `k`: D = A·B, every element alike.

    a, b: formats of the operands. step: the fused sum of a chain, of one instruction; its C is the sum before it.
    result: format of D; result_rounding: of the last sum to it. operand_rounding: of operands whose words are wider than their
    format (tf32), before the multiplication; RZ: the low bits are ignored.
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
                raise AccprobeError(f"a pattern of {len(chain.pattern)} products does not fill sums of {self.step.products}")

    @cached_property
    def instruction(self) -> Instruction:
        """Return the instruction of one step."""
        d = self.step.root.arithmetic.result
        name = f"{self.step.products} products of {self.a} and {self.b} a sum"
        return Instruction(name, FAMILIES[0], 1, 1, self.step.products, d, self.a, self.b, d)

    def chains(self) -> Iterator[Chain]:
        """Return the chains from the first to the last."""
        return chains_of(self.tree)

    @cached_property
    def taken(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the k of all chains, one chain after the other, and where each chain begins."""
        of_chains = [chain.taken for chain in self.chains()]
        ends = np.cumsum([len(ks) for ks in of_chains])
        return np.concatenate(of_chains), np.append(0, ends[:-1])

    @cached_property
    def block_of(self) -> dict[Chain, int]:
        """Return the number of each chain, which is its block along K if scales are by block."""
        return {chain: block for block, chain in enumerate(self.chains())}

    @property
    def scales_by_block(self) -> bool:
        return self.scales is not None and self.scales.by_block

    @property
    def is_ordered(self) -> bool:
        return all(node.order != "unordered" for node in merged_in(self.tree))


def chains_of(node: Node) -> Iterator[Chain]:
    """Return the chains from the first to the last."""
    left = [node]
    while left:
        node = left.pop()
        if isinstance(node, Chain):
            yield node
        else:
            left += node.parts[::-1]


def of_chains(node: Node) -> tuple[Chain, ...]:
    """Return the chains that a node adds directly; none if a part is itself a sum of several."""
    parts = (node,) if isinstance(node, Chain) else node.parts
    chains = tuple(part for part in parts if isinstance(part, Chain))
    return chains if len(chains) == len(parts) else ()


def merged_in(node: Node) -> Iterator[Merged]:
    if isinstance(node, Merged):
        yield node
        for part in node.parts:
            yield from merged_in(part)


def same_additions(a: ProductModel, b: ProductModel) -> bool:
    """Return whether both trees add the same products in the same sums and formats."""
    numbers: dict[object, int] = {}
    products = a.step.products
    return a.step == b.step and _number(a.tree, products, numbers) == _number(b.tree, products, numbers)


def _number(node: Node, products: int, numbers: dict[object, int]) -> int:
    """Return the number of a sum; equal sums share one. products: products of each fused sum of a chain."""
    if isinstance(node, Chain):
        return numbers.setdefault(node.sums(products), len(numbers))
    parts = [_number(part, products, numbers) for part in node.parts]
    if node.kept is not None:
        parts = [numbers.setdefault((node.kept.name, part), len(numbers)) for part in parts]
    if node.order == "unordered":
        return numbers.setdefault((node.order, node.arithmetic, tuple(sorted(parts))), len(numbers))
    return folded(node.nested, parts, lambda x, y: numbers.setdefault((node.arithmetic, frozenset((x, y))), len(numbers)))


@cache
def addition(fmt: Format = FORMATS["f32"], rounding: Rounding = "RNE", subnormals: SubnormalSums = "kept") -> Arithmetic:
    """Return an ordinary addition into a format: exact, then rounded once; integers wrap around.

    subnormals: "flushed" where subnormal terms and results become zeros of their sign: `add.ftz.f32`, and `red.add.f32` and
    `atom.add.f32` of global memory (PTX ISA, `red` and `atom`). "flushed to +0" where every zero sum becomes +0, too, as in
    sums that are then added to an accumulator +0 (`TDPBF16PS`, Intel SDM).
    """
    if fmt.is_integer:
        return IntegerArithmetic(fmt, "wrap")
    usual = FloatArithmetic(fmt, fmt.mantissa_bits, rounding, None, zero_sign="ieee", nan=fmt.sign_bit - 1)
    if subnormals == "flushed to +0":
        return replace(usual, subnormal_results="flushed", zero_sign="positive", underflow_sign="positive")
    return replace(usual, subnormal_results=subnormals)


def subnormal_sums(arithmetic: Arithmetic) -> SubnormalSums:
    """Return what an addition does with subnormal sums."""
    if not isinstance(arithmetic, FloatArithmetic) or arithmetic.subnormal_results == "kept":
        return "kept"
    return "flushed" if arithmetic.zero_sign == "ieee" else "flushed to +0"


@cache
def multiply_add(fmt: Format = FORMATS["f32"], fused: bool = True) -> DotModel:
    """Return a model of one product per sum, which is rounded to the format before it is added unless they are fused."""
    arithmetic = addition(fmt)
    rounded = FusedSum((Product(0),), arithmetic)
    return DotModel(FusedSum((Addend(), Product(0)) if fused else (rounded, Addend()), arithmetic))


def in_chunks(ks: range, size: int, pattern: tuple[int, ...], arithmetic: Arithmetic) -> Node:
    """Return a chain that restarts after `size` products; each chunk is added to the sum of the earlier chunks."""
    parts = _chunks(ks, size, pattern)
    return parts[0] if len(parts) == 1 else Merged(parts, "forward", arithmetic)


def _chunks(ks: range, size: int, pattern: tuple[int, ...]) -> tuple[Chain, ...]:
    """Return at least one chain, which is empty if there are no products."""
    return tuple(Chain(start, min(start + size, ks.stop), pattern) for start in ks[::size] or (ks.start,))


def chained(
    inst: Instruction, model: DotModel, k: int, promote_every: int | None = None, groups: Sequence[Sequence[int]] | None = None
) -> ProductModel:
    """Return a product by chains of an instruction, promoted into f32 every `promote_every` k and at the end; None: never.

    groups: the k of each instruction, repeated along K; None: in ascending order.
    """
    pattern = tuple(range(inst.k)) if groups is None else tuple(i for group in groups for i in group)
    if promote_every is None:
        return ProductModel(inst.a, inst.b, k, model, Chain(0, k, pattern), inst.d)
    promoted = Merged(_chunks(range(k), promote_every, pattern), "forward", addition())
    return ProductModel(inst.a, inst.b, k, model, promoted, FORMATS["f32"])


def restricted(model: ProductModel, used: NDArray[np.int64]) -> tuple[ProductModel, NDArray[np.int64]]:
    """Return the model with only the fused sums that have a k in `used`, and all k of these sums, in the new order.

    If no sum has one, one sum stays. A sum whose products are all zero changes nothing but the sign of a zero.
    """
    ks: list[int] = []
    wanted = np.zeros(model.k + 1, bool)
    wanted[used] = True
    every, starts = model.taken
    if not wanted[every].any():
        wanted[every[0]] = True
    reached = iter(np.logical_or.reduceat(wanted[every], starts).tolist())
    tree = _restricted_node(model.tree, model.step.products, wanted, reached, ks)
    assert tree is not None
    return replace(model, k=len(ks), tree=tree), np.array(ks, np.int64)


def _restricted_node(node: Node, width: int, wanted: NDArray[np.bool_], reached: Iterator[bool], ks: list[int]) -> Node | None:
    """Return the node with only its wanted sums, None if it has none. reached: whether each of its chains has a wanted k."""
    if isinstance(node, Chain):
        return _restricted_chain(node, width, wanted, ks) if next(reached) else None
    parts = [_restricted_node(part, width, wanted, reached, ks) for part in node.parts]
    kept = tuple(part for part in parts if part is not None)
    if not kept:
        return None
    order = node.order
    if not isinstance(order, str) or order == "tree":
        new = count()
        numbers: list[Nested | None] = [None if part is None else next(new) for part in parts]
        found: Nested | None = folded(node.nested, numbers, lambda x, y: y if x is None else x if y is None else (x, y))
        order = found or 0
    return replace(node, parts=kept, order=order)


def _restricted_chain(chain: Chain, width: int, wanted: NDArray[np.bool_], ks: list[int]) -> Chain:
    sums = chain.ks().reshape(-1, width)
    taken = sums[wanted[sums].any(axis=1)]
    places = np.where(taken == NO_K, NO_K, len(ks) + np.cumsum(taken != NO_K).reshape(taken.shape) - 1)
    ks += taken[taken != NO_K].tolist()
    return chain_of_sums([[k for k in each if k != NO_K] for each in places.tolist()], width)
