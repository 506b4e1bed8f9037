"""Model of an instruction: a summation tree with fused sums as inner nodes.

A `DotModel` is a pure description; `accprobe.evaluate` computes it, bit for bit. Every quirk of a chip is the value of a field
here.

Sources of the fields:
- Khattak & Mikaitis, "Accurate Models of NVIDIA Tensor Cores"
- Xie et al., MMA-Sim (arXiv 2511.10909)
- Fasi et al., "Numerical Behavior of the NVIDIA Tensor Cores" (PeerJ CS 2021)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import groupby
from typing import Literal

from accprobe.errors import AccprobeError
from accprobe.isa.formats import Format

Rounding = Literal["RZ", "RNE", "RU", "RD", "RNA"]
AlignmentRounding = Literal["truncate", "floor", "nearest", "sticky", "nearest away", "away", "ceiling"]
ProductExponent = Literal["unnormalised", "normalised operands", "normalised product"]
ZeroTerms = Literal["ignored", "aligned"]
ZeroSign = Literal["positive", "ieee"]
UnderflowSign = Literal["kept", "positive"]
NanPayload = Literal["dropped", "a b c", "a c b", "b a c", "b c a", "c a b", "c b a"]
Overflow = Literal["infinity", "largest"]
Subnormals = Literal["kept", "flushed"]
Tininess = Literal["after rounding", "before rounding", "after rounding to full precision"]
IntegerOverflow = Literal["wrap", "saturate"]
AddendPlace = Literal["first", "last", "separate add"]
# Role of a sum: "sum" adds products (and more), "add" only results of other sums and C.
Role = Literal["sum", "add"]

# A fused sum must fit in this many bits, so that it is exact in float64 (see `most_alignment_bits`).
SUM_BITS = 53


@dataclass(frozen=True)
class FloatArithmetic:
    """How one floating-point fused sum is computed. `accprobe.model.fields` describes each field; more precisely:

    alignment_rounding: "truncate", "sticky" (the dropped bits are or-ed into the last one) and "away" act on magnitudes.
        "floor" and "ceiling" act on two's complement. "nearest" rounds ties to even, "nearest away" away from zero.
    product_exponent: the sum of the operands' exponents as encoded (a subnormal has the smallest normal exponent), the same
        after normalising the operands, or the exponent of the product's leading bit.
    zero_terms: "aligned": a zero operand has the exponent of the smallest normal number.
    zero_sign: always positive, or negative where every term is negative (IEEE 754).
    tininess_detected: of sums without subnormal results. "after rounding" is to the last place of the smallest normal number.
        "to full precision" is to the result's bits as if exponents had no limit (IEEE 754-2019, 7.5).
    scaled_products: so many consecutive products are added exactly. Their sum times its two scales is one term. The term has
        the exponent of the scales if product_exponent is the sum of the operands' exponents.
    nan_payload: "dropped" if every NaN result is `nan`. Otherwise a NaN operand passes through, made quiet, and an invalid
        operation returns `nan`. The first of several NaN operands counts. "b c a" looks for NaN operands in B, then in C,
        then in the results of inner sums, then in A.
    """

    result: Format
    result_bits: int
    result_rounding: Rounding
    alignment_bits: int | None
    alignment_rounding: AlignmentRounding = "truncate"
    product_exponent: ProductExponent = "unnormalised"
    min_exponent: int | None = None
    zero_terms: ZeroTerms = "ignored"
    zero_sign: ZeroSign = "positive"
    underflow_sign: UnderflowSign = "kept"
    overflow: Overflow = "infinity"
    subnormal_results: Subnormals = "kept"
    nan: int = 0x7FFFFFFF
    nan_payload: NanPayload = "dropped"
    tininess_detected: Tininess = "after rounding"
    scaled_products: int | None = None

    @property
    def aligns_to_zeros(self) -> bool:
        """Return whether a zero product takes part in the alignment."""
        return self.zero_terms != "ignored" and self.product_exponent == "unnormalised" and self.alignment_bits is not None


@dataclass(frozen=True)
class IntegerArithmetic:
    """The arithmetic of one integer fused sum: exact, then wrapped or saturated to the signed result format."""

    result: Format
    overflow: IntegerOverflow


Arithmetic = FloatArithmetic | IntegerArithmetic


@dataclass(frozen=True)
class Product:
    """The leaf a[k] * b[k]."""

    k: int


@dataclass(frozen=True)
class Addend:
    """The leaf C."""


@dataclass(frozen=True)
class FusedSum:
    """One hardware addition of many terms: leaves and the results of other fused sums."""

    terms: tuple[Term, ...]
    arithmetic: Arithmetic

    @cached_property
    def products(self) -> tuple[int, ...]:
        """Return k of the products that this sum adds itself."""
        return tuple(t.k for t in self.terms if isinstance(t, Product))

    @cached_property
    def role(self) -> Role:
        return "sum" if self.products else "add"

    @cached_property
    def children(self) -> tuple[FusedSum, ...]:
        return tuple(t for t in self.terms if isinstance(t, FusedSum))

    @cached_property
    def has_addend(self) -> bool:
        return any(isinstance(t, Addend) for t in self.terms)

    @cached_property
    def ks(self) -> tuple[int, ...]:
        """Return k of all products of this sum and those below it, ascending."""
        return tuple(sorted(k for node in self.nodes() for k in node.products))

    @cached_property
    def adds_c(self) -> bool:
        """Return whether C is a term of this sum or of one below it."""
        return any(node.has_addend for node in self.nodes())

    def nodes(self) -> Iterator[FusedSum]:
        """Yield this sum and all below it, children first."""
        return iter(self._nodes)

    @cached_property
    def _nodes(self) -> tuple[FusedSum, ...]:
        found, left = list[FusedSum](), [self]
        while left:
            found.append(left.pop())
            left += found[-1].children
        return tuple(reversed(found))

    def map(self, change: Callable[[FusedSum], FusedSum]) -> FusedSum:
        """Return the tree with `change` applied to every node, children first."""
        terms = tuple(t.map(change) if isinstance(t, FusedSum) else t for t in self.terms)
        return change(FusedSum(terms, self.arithmetic))


Term = Product | Addend | FusedSum


@dataclass(frozen=True)
class DotModel:
    """The arithmetic of one dot product: d = root(products of a and b, c).

    subnormal_operands, subnormal_addend: whether subnormals of A and B, and of C, are read as they are or as zero.
    """

    root: FusedSum
    subnormal_operands: Subnormals = "kept"
    subnormal_addend: Subnormals = "kept"

    def __post_init__(self) -> None:
        for node in self.root.nodes():
            _check(node)

    @cached_property
    def arithmetics(self) -> tuple[Arithmetic, ...]:
        """Return the distinct arithmetics, numbered as in `order`."""
        return tuple(dict.fromkeys(node.arithmetic for node in self.root.nodes()))

    def role(self, arithmetic: Arithmetic) -> Role:
        """Return the role of the sums with this arithmetic: "sum" if any of them adds products."""
        return "sum" if any(node.products for node in self.root.nodes() if node.arithmetic == arithmetic) else "add"

    @cached_property
    def order(self) -> str:
        """Return the summation tree, compact: "[c 0-15]" is one fused sum of C and 16 products.

        Inner sums are nested brackets; where the sums differ in arithmetic, "@i" after a bracket says which it has.
        """
        return _write(self.root, self.arithmetics)

    @cached_property
    def ks(self) -> tuple[int, ...]:
        """Return k of all products, ascending."""
        return self.root.ks

    @cached_property
    def products(self) -> int:
        return sum(len(node.products) for node in self.root.nodes())

    def with_arithmetic(self, change: Callable[[Arithmetic], Arithmetic]) -> DotModel:
        """Return the same tree with `change` applied to each node's arithmetic."""
        root = self.root.map(lambda node: FusedSum(node.terms, change(node.arithmetic)))
        return replace(self, root=root)


def fits(arithmetic: FloatArithmetic, terms: int) -> bool:
    """Return whether a sum of that many aligned terms is exact in SUM_BITS bits."""
    bits = arithmetic.alignment_bits
    return bits is None or 0 <= bits <= most_alignment_bits(arithmetic, terms)


def are_whole(products: Sequence[int], arithmetic: Arithmetic) -> bool:
    """Return whether these products are whole groups of those that the arithmetic scales at once."""
    some = getattr(arithmetic, "scaled_products", None)
    if some is None:
        return True
    groups = [products[i : i + some] for i in range(0, len(products), some)]
    return all(list(group) == list(range(group[0], group[0] + some)) and group[0] % some == 0 for group in groups)


def most_alignment_bits(arithmetic: FloatArithmetic, terms: int) -> int:
    """Return the most alignment bits of a sum of that many terms.

    A term lies below 4 times the power of two of its exponent. A product of e2m1 that is scaled with others is 36 at most.
    Times two scales, whose significands are 1.875 at most, it is 126.5625 times the power of two of theirs.
    """
    if arithmetic.scaled_products is None:
        return SUM_BITS - 2 - terms.bit_length()
    return SUM_BITS - int(126.5625 * (terms - 1) + 4).bit_length()


def _check(node: FusedSum) -> None:
    arithmetic = node.arithmetic
    if not node.terms:
        raise AccprobeError("a fused sum needs at least one term")
    if isinstance(arithmetic, IntegerArithmetic):
        return
    if not 0 <= arithmetic.result_bits <= arithmetic.result.mantissa_bits:
        raise AccprobeError(
            f"result_bits is {arithmetic.result_bits}; {arithmetic.result} holds 0 to {arithmetic.result.mantissa_bits}"
        )
    if not fits(arithmetic, len(node.terms)):
        most = most_alignment_bits(arithmetic, len(node.terms))
        raise AccprobeError(
            f"alignment_bits is {arithmetic.alignment_bits}; "
            f"a fused sum of {len(node.terms)} terms takes 0 to {most}, or None for exact"
        )
    if not are_whole(node.products, arithmetic):
        raise AccprobeError(
            f"a fused sum scales {arithmetic.scaled_products} products at once, and has others than whole groups"
        )


def chain(
    groups: list[list[int]] | list[range],
    arithmetic: Arithmetic,
    addend: AddendPlace = "first",
    add: Arithmetic | None = None,
) -> FusedSum:
    """Return a chain of fused sums, each taking the one before as a term.

    groups: the k of each sum's products, first sum first. addend: C is a term of the first sum, of the last sum, or of a
    separate two-term sum after all others, with the arithmetic `add` (None: that of the others).
    """
    node: FusedSum | None = None
    for i, group in enumerate(groups):
        terms: list[Term] = [node] if node else []
        if (addend == "first" and i == 0) or (addend == "last" and i == len(groups) - 1):
            terms.append(Addend())
        terms.extend(Product(k) for k in group)
        node = FusedSum(tuple(terms), arithmetic)
    if node is None:
        raise AccprobeError("a chain needs at least one group of products")
    return FusedSum((node, Addend()), add or arithmetic) if addend == "separate add" else node


def _write(node: FusedSum, arithmetics: tuple[Arithmetic, ...]) -> str:
    parts = [_write(child, arithmetics) for child in node.children]
    if node.has_addend:
        parts.append("c")
    parts += number_ranges(sorted(node.products))
    mark = f"@{arithmetics.index(node.arithmetic)}" if len(arithmetics) > 1 else ""
    return f"[{' '.join(parts)}]{mark}"


def number_ranges(numbers: Iterable[int]) -> Iterator[str]:
    """Yield ascending numbers as "0-15", "20"."""
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        members = [number for _, number in run]
        yield str(members[0]) if len(members) == 1 else f"{members[0]}-{members[-1]}"
