"""Operands made for the place where two models differ.

One product leads, most often down to the half of the result's last place, so that the sum is a tie, or to the first bit that
the alignment cuts; another may cancel it, exactly or nearly, so that low bits come to the top; a zero may meet a large number;
and small terms lie about those two places, one of them twice with both signs. They meet in a sum in which the models differ.
Where the leading exponent lies is drawn from where the field is felt. After Berkeley TestFloat's weighted significands.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.formats import Bits, Format
from accprobe.instructions import Instruction
from accprobe.model import SUM_BITS, DotModel, FloatArithmetic, FusedSum, Product, Term
from accprobe.operands import Exponents, Operands, floats

FLOORS = (-126, -133, -149)
"""Smallest alignment exponents that are looked about where neither model has one."""

OF_THE_LAST = 0.4
"""Share of the dot products whose terms meet in the last of the sums: what is lost on the way to the result shows there."""


class Felt(NamedTuple):
    """Where two models' difference is felt: at results of some size (see PLACES), and in which sums, as `nodes` has them.

    levels: exponents about which a floor is looked for. cuts: the alignment bits of the rival's sums, where they are others.
    """

    place: str
    sums: tuple[int, ...]
    levels: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()

    @property
    def seed(self) -> tuple[int, ...]:
        """Another one for every place."""
        return len(self.place), *self.sums, *(level & 0xFFFF for level in self.levels), *self.cuts


PLACES = {
    "min_exponent": "floor",
    "underflow_sign": "underflow",
    "subnormal_results": "underflow",
    "overflow": "overflow",
    "product_exponent": "products",
    "zero_terms": "products",
}
"""Fields that are felt at small or large results, at small terms, or beside odd products; the others, anywhere."""


def felt(model: DotModel, rival: DotModel, field: str, narrow: bool) -> Felt:
    """Where the field is felt in which the two models differ; narrow: in the very sums, and about the rival's cut."""
    place = PLACES.get(field.removeprefix("add_"), "anywhere")
    levels = (_levels(rival) or _levels(model) or FLOORS) if place == "floor" else ()
    if narrow:
        return Felt(place, _sums_that_differ(model, rival), levels, tuple(sorted(_cuts(rival) - _cuts(model))))
    sums = [bool(node.products) != field.startswith("add_") for node in model.root.nodes()]
    return Felt(place, tuple(i for i, alike in enumerate(sums) if alike) or tuple(range(len(sums))), levels)


def _cuts(model: DotModel) -> set[int]:
    sums = (x.alignment_bits for x in model.arithmetics if isinstance(x, FloatArithmetic))
    return {bits for bits in sums if bits is not None}


def _sums_that_differ(model: DotModel, rival: DotModel) -> tuple[int, ...]:
    """Those of the model with another arithmetic than the rival's; all where the trees differ, or nothing else does."""
    ours, theirs = list(model.root.nodes()), list(rival.root.nodes())
    everywhere = tuple(range(len(ours)))
    if len(ours) != len(theirs):
        return everywhere
    return tuple(i for i in everywhere if ours[i].arithmetic != theirs[i].arithmetic) or everywhere


def _levels(model: DotModel) -> tuple[int, ...]:
    floats_of = [x for x in model.arithmetics if isinstance(x, FloatArithmetic)]
    return tuple(x.min_exponent for x in floats_of if x.min_exponent is not None)


def directed(inst: Instruction, model: DotModel, place: Felt, rng: np.random.Generator, n: int) -> Operands:
    """n dot products made for fields that are felt there, of a floating-point model."""
    nodes = list(model.root.nodes())
    which = np.where(rng.random(n) < OF_THE_LAST, place.sums[-1], rng.choice(np.array(place.sums), n))
    kept, reach = _bits(nodes, which, place.cuts, rng)
    centre, aligned = _exponents(inst, place, reach, rng, n)
    half = np.maximum(centre - kept, inst.d.min_exponent - inst.d.mantissa_bits) - 1
    last = [half, aligned - reach - rng.integers(0, 2, n), centre - rng.integers(1, kept + 3)]
    terms = _large(inst, place, centre, np.choose(rng.choice(3, n, p=(0.45, 0.25, 0.3)), last), rng)
    terms.append(_zero_beside_large(inst, centre - reach, rng))
    small = [half + rng.integers(-1, 2, n), centre - rng.integers(kept, np.maximum(reach, kept) + 8)]
    small += [aligned - reach + rng.integers(-2, 3, n) for _ in range(3)]
    few = rng.integers(1, 3, n)
    terms += [_Term(exponent, *_product(inst, exponent, few, rng), 0.4) for exponent in small]
    terms.append(terms[-1]._replace(a=terms[-1].a ^ inst.a.dtype.type(inst.a.sign_bit)))
    return _placed(inst, terms, _leaves(inst, nodes, which, rng), kept, rng)


class _Term(NamedTuple):
    """A product for every dot product, with its exponent, and how often it is there."""

    exponent: Exponents
    a: Bits
    b: Bits
    share: float


def _bits(
    nodes: list[FusedSum], which: Exponents, cuts: tuple[int, ...], rng: np.random.Generator
) -> tuple[Exponents, Exponents]:
    """Fraction bits of the sum's result, and bits down to its cut or the rival's; anywhere below them where it has none."""
    sums = [node.arithmetic for node in nodes if isinstance(node.arithmetic, FloatArithmetic)]
    kept = np.array([x.result_bits for x in sums])[which]
    cut = np.array([-1 if x.alignment_bits is None else x.alignment_bits for x in sums])[which]
    if cuts:
        cut = np.where(rng.random(len(which)) < 0.5, rng.choice(np.array(cuts), len(which)), cut)
    return kept, np.where(cut < 0, rng.integers(kept, np.maximum(kept + 1, SUM_BITS - 6)), cut)


def _large(inst: Instruction, place: Felt, centre: Exponents, last: Exponents, rng: np.random.Generator) -> list[_Term]:
    """The product that leads, most often down to that last bit; those that cancel it, or nearly."""
    a, b = _product(inst, centre, np.maximum(centre - last, 0), rng, odd=place.place == "products")
    beside = b ^ inst.b.dtype.type(1 << inst.b.ignored_low_bits)
    beside = np.where(inst.b.fields(beside).is_nan, b, beside)
    minus = a ^ inst.a.dtype.type(inst.a.sign_bit)
    return [_Term(centre, a, b, 0.9), _Term(centre, minus, b, 0.4), _Term(centre, minus, beside, 0.2)]


def _zero_beside_large(inst: Instruction, exponent: Exponents, rng: np.random.Generator) -> _Term:
    n = len(exponent)
    zero = rng.integers(0, 2, n).astype(inst.a.dtype) * inst.a.dtype.type(inst.a.sign_bit)
    return _Term(exponent, zero, floats(inst.b, rng, np.full(n, inst.b.max_exponent)), 0.3)


def _leaves(inst: Instruction, nodes: list[FusedSum], which: Exponents, rng: np.random.Generator) -> Exponents:
    """Leaves, [n, K + 1], K being C: first, in random order, one of each term of that sum, so that they meet there."""
    keys = rng.random((len(which), inst.k + 1), np.float32)
    for i, node in enumerate(nodes):
        rows = np.flatnonzero(which == i)
        below = [_below(term, inst.k) for term in node.terms]
        keys[np.ix_(rows, np.array([leaves[0] for leaves in below if len(leaves) == 1], np.int64))] -= 1
        for leaves in (leaves for leaves in below if len(leaves) > 1):
            keys[rows, rng.choice(np.array(leaves), len(rows))] -= 1
    return np.argsort(keys, axis=1)


def _below(term: Term, addend: int) -> list[int]:
    if isinstance(term, FusedSum):
        return [leaf for inner in term.terms for leaf in _below(inner, addend)]
    return [term.k if isinstance(term, Product) else addend]


def _there(terms: list[_Term], rng: np.random.Generator, n: int) -> NDArray[np.bool_]:
    """Which terms are in a dot product, [n, terms]: each by its share; or the first with another, or two; or any two."""
    every, lead = np.arange(len(terms)), np.arange(len(terms)) < 1
    one, another = (every == rng.integers(1, len(terms), n)[:, None] for _ in range(2))
    cancelling = every == rng.integers(1, 3, n)[:, None]
    by_share = rng.random((n, len(terms))) < [term.share for term in terms]
    choices = [by_share, one | lead, cancelling | lead, one | cancelling | lead, one | another]
    return np.choose(rng.integers(0, len(choices), n)[:, None], choices)


def _placed(inst: Instruction, terms: list[_Term], leaves: Exponents, kept: Exponents, rng: np.random.Generator) -> Operands:
    """The terms on the first of the leaves: the first term, then those of the others that are there, in random order.

    A term that comes to C's leaf is a C of its exponent. The other products are zeros, of either sign.
    """
    n, places = len(kept), min(len(terms), inst.k + 1)
    there = _there(terms, rng, n)
    rank = np.where(there, rng.random(there.shape, np.float32), 2)
    rank[:, 0] = -1
    turn, leaves = np.argsort(rank, axis=1)[:, :places], leaves[:, :places]
    used = np.take_along_axis(there, turn, 1)
    exponents, factors_a, factors_b = (np.stack(x, axis=1) for x in zip(*(term[:3] for term in terms), strict=True))
    a, b = np.zeros((n, inst.k + 1), inst.a.dtype), np.zeros((n, inst.k + 1), inst.b.dtype)
    a[rng.random(n) < 0.3] = inst.a.sign_bit
    zeros = np.take_along_axis(a, leaves, 1)
    np.put_along_axis(a, leaves, np.where(used, np.take_along_axis(factors_a, turn, 1), zeros), 1)
    np.put_along_axis(b, leaves, np.where(used, np.take_along_axis(factors_b, turn, 1), 0).astype(inst.b.dtype), 1)
    is_c = used & (leaves == inst.k)
    has_c = is_c.any(axis=1)
    own = (np.take_along_axis(exponents, turn, 1) * is_c).sum(axis=1)
    c_exponent = np.where(has_c, own, exponents[:, 0] + rng.integers(-3, 4, n))
    c_bits = np.choose(rng.integers(0, 3, n), [np.full(n, inst.c.mantissa_bits), np.zeros(n, np.int64), kept + 1])
    c = _numbers(inst.c, c_exponent, c_bits, rng)
    c[~has_c & (rng.random(n) < 0.7)] &= inst.c.dtype.type(inst.c.sign_bit)
    return Operands(np.ascontiguousarray(a[:, : inst.k]), np.ascontiguousarray(b[:, : inst.k]), c)


def _product(
    inst: Instruction, exponent: Exponents, bits: Exponents, rng: np.random.Generator, odd: bool = False
) -> tuple[Bits, Bits]:
    """Factors whose exponents sum to that, as far as they can; one of them is subnormal in a third of the cases.

    bits: fraction bits of most products, which one factor has, or both share; the others have full width or none. odd: only
    products whose exponent may be another than the sum of their factors'.
    """
    n, lowest, highest = len(exponent), inst.a.min_exponent, inst.a.max_exponent
    ea = np.where(
        rng.random(n) < (0.6 if odd else 0.35),
        rng.integers(lowest - inst.a.mantissa_bits, lowest, n),
        rng.integers(lowest, highest + 1, n),
    )
    ea = np.clip(ea, exponent - inst.b.max_exponent, exponent - inst.b.min_exponent + inst.b.mantissa_bits)
    if inst.a == inst.b:
        ea = np.where(rng.random(n) < 0.5, exponent - ea, ea)
    share, none = rng.integers(0, bits + 1), np.zeros(n, np.int64)
    rest = np.maximum(bits - share - rng.integers(0, 2, n), 0)
    way = rng.integers(2 if odd else 0, 6, n)
    bits_a = np.choose(way, [np.full(n, inst.a.mantissa_bits), none, bits, none, share, share])
    bits_b = np.choose(way, [np.full(n, inst.b.mantissa_bits), none, none, bits, rest, rest])
    return _numbers(inst.a, ea, bits_a, rng), _numbers(inst.b, exponent - ea, bits_b, rng)


def _numbers(fmt: Format, exponent: Exponents, bits: Exponents, rng: np.random.Generator) -> Bits:
    """Finite numbers 2^exponent * 1.f of random signs, f of so many bits, the last of them 1; of subnormals, what fits."""
    n, m = len(exponent), fmt.mantissa_bits
    bits, exponent = np.clip(bits, 0, m), np.minimum(exponent, fmt.max_exponent)
    fraction = (rng.integers(0, 1 << m, n) >> (m - bits) | (bits > 0)) << (m - bits)
    below = np.clip(fmt.min_exponent - exponent, 0, m + 1)
    magnitude = np.where(below > 0, (1 << m | fraction) >> below, (np.maximum(exponent + fmt.bias, 0) << m) | fraction)
    magnitude = np.minimum(magnitude << fmt.ignored_low_bits, fmt.largest).astype(fmt.dtype)
    return np.asarray(magnitude | rng.integers(0, 2, n).astype(fmt.dtype) * fmt.dtype.type(fmt.sign_bit))


def _exponents(
    inst: Instruction, place: Felt, reach: Exponents, rng: np.random.Generator, n: int
) -> tuple[Exponents, Exponents]:
    """Leading exponents, and the exponents that terms are aligned to: the same, a floor above, or that of a subnormal's format.

    Anywhere, or so that the last bit kept is about that of the smallest products; and where a field is felt elsewhere, most
    about there.
    """
    low, high = inst.a.min_exponent + inst.b.min_exponent, inst.a.max_exponent + inst.b.max_exponent
    lowest = low - inst.a.mantissa_bits - inst.b.mantissa_bits
    above_lowest = np.clip(lowest + reach + rng.integers(-2, 10, n), low, high)
    anywhere = np.where(rng.random(n) < 0.5, rng.integers(low, high + 1, n), above_lowest)
    smallest = inst.d.min_exponent - rng.choice([0, inst.d.mantissa_bits], n)
    there = rng.random(n) < 0.7
    if place.place == "floor":
        level = rng.choice(np.array(place.levels), n)
        below = np.where(rng.random(n) < 0.7, level - rng.integers(0, 6, n), smallest + rng.integers(-3, 4, n))
        centre = np.where(there, below, anywhere)
        return centre, np.maximum(centre, level)
    ends = {"underflow": smallest, "overflow": np.full(n, inst.d.max_exponent)}.get(place.place, anywhere)
    centre = np.where(there, ends + rng.integers(-3, 4, n), anywhere)
    above = rng.integers(0, inst.a.mantissa_bits + 1, n) * (rng.random(n) < 0.5)
    return centre, centre + above * (place.place == "products")
