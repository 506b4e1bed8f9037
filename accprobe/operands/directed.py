"""Operands of dot products in which two models differ: with results of a given size, in given sums, near floors or truncated
bits.

A leading product has an exponent at which half of the result's last place, or the first truncated bit of the alignment,
decides. Another product may cancel it, exactly or nearly, so that lower bits decide. A zero may be multiplied by a large
number. Small terms lie near those two bits; the last of them also occurs with the opposite sign. The terms are added in a sum
in which the models differ. The loss of the smallest terms may show only in the sign of a zero. So some dot products have terms
of one sign in all sums. The differing field determines the range of the leading exponent. After Berkeley TestFloat's weighted
significands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.model.record import Place
from accprobe.model.tree import SUM_BITS, DotModel, FloatArithmetic, FusedSum, Product, Term
from accprobe.operands.kinds import Exponents, floats
from accprobe.operands.request import Request

FLOORS = (-126, -133, -149)  # Floors that are probed if neither model has one.

OF_ONE_SIGN = {"floor": 16, "underflow": 16}  # Places where one in so many dot products starts with terms of one sign.

OF_LOST_TERMS = 32  # One in so many dot products about a floor has two terms whose loss shows in the sign of a zero.

# Share of the dot products with terms that meet in the last sum, after which the least is lost; the others take any sum.
SHARE_OF_THE_LAST = 0.4

# Terms: the leading product, one that cancels it, one that nearly does, and a zero times a large number.
LEAD, OPPOSITE, NEARLY_OPPOSITE, ZERO = range(4)

SMALL_TERMS = range(4, 9)  # Small products. Term 9, after them, is the last of them with the opposite sign.

# How often each term is present, where each is drawn independently (see `_present`).
SHARES = np.array([0.9, 0.4, 0.2, 0.3, *(0.4 for _ in SMALL_TERMS), 0.4], np.float32)

BY_SHARE = 0.2  # Share of such dot products; the others have one to three terms.

FACTORS_FROM = np.array([LEAD, LEAD, LEAD, ZERO, *SMALL_TERMS, SMALL_TERMS[-1]])  # Which term each has its factors from.


class Target(NamedTuple):
    """The place where two models differ: results of some size, in some sums, numbered as `FusedSum.nodes` yields them.

    levels: floors to probe. alignments: alignment bits of the alternative's sums, if they differ.
    """

    place: Place
    sums: tuple[int, ...]
    levels: tuple[int, ...] = ()
    alignments: tuple[int, ...] = ()

    @property
    def seed(self) -> tuple[int, ...]:
        """Return a seed that depends on every field."""
        return int.from_bytes(self.place.encode()), *self.sums, *(level & 0xFFFF for level in self.levels), *self.alignments


def directed(inst: Instruction, model: DotModel, target: Target, rng: np.random.Generator, n: int) -> Request:
    """Return n dot products of a floating-point model, made for that target."""
    nodes = list(model.root.nodes())
    which = np.where(rng.random(n) < SHARE_OF_THE_LAST, target.sums[-1], rng.choice(np.array(target.sums), n))
    kept, reach = _bits(nodes, which, target.alignments, rng)
    centre, aligned = _exponents(inst, target, reach, rng, n)
    half = np.maximum(centre - kept, inst.d.min_exponent - inst.d.mantissa_bits) - 1
    exponents = np.empty((len(FACTORS_FROM), n), np.int64)
    exponents[:ZERO], exponents[ZERO] = centre, centre - reach
    exponents[SMALL_TERMS[0]] = half + rng.integers(-1, 2, n)
    exponents[SMALL_TERMS[1]] = centre - kept - _under(np.maximum(reach - kept, 0) + 8, rng)
    exponents[SMALL_TERMS[2:]] = aligned - reach + rng.integers(-2, 3, (3, n))
    exponents[-1] = exponents[SMALL_TERMS[-1]]
    meet = _meeting(inst, nodes, which, rng)
    leaves = _shuffled(meet, rng)
    _put_c_first(leaves, meet[:, inst.k] & (rng.random(n) < 0.4))
    row, term, leaf = _places(leaves, rng)
    bits = np.where(
        term < ZERO, centre[row] - _last_bits(centre, aligned, kept, reach, half, rng)[row], rng.integers(1, 3, len(row))
    )
    odd = (term < ZERO) & (target.place == "products")
    factors = _factors(inst, row, term, exponents[term, row], np.maximum(bits, 0), odd, rng)
    a, b = (np.zeros((n, inst.k + 1), fmt.dtype) for fmt in (inst.a, inst.b))
    a[rng.random(n) < 0.3] = inst.a.sign_bit
    a[row, leaf], b[row, leaf] = factors
    c_exponent = centre + rng.integers(-3, 4, n)
    of_c, has_c = leaf == inst.k, np.zeros(n, bool)
    has_c[row[of_c]] = True
    c_exponent[row[of_c]] = exponents[term[of_c], row[of_c]]
    c = _addends(inst.c, c_exponent, kept, aligned - reach, rng)
    c[~has_c & (rng.random(n) < 0.7)] &= inst.c.dtype.type(inst.c.sign_bit)
    a, b = np.ascontiguousarray(a[:, : inst.k]), np.ascontiguousarray(b[:, : inst.k])
    if target.place in OF_ONE_SIGN:
        last = slice(n - n // OF_ONE_SIGN[target.place], n)
        ends = np.stack([aligned[last] - reach[last], half[last], aligned[last] - 1])
        of_one_sign = _of_one_sign(inst, ends, meet[last, : inst.k], rng)
        a[last], b[last], c[last] = of_one_sign.columns
        _cancel(inst, a[last], b[last], leaves[last], centre[last], rng)
    if target.place == "floor":
        few = slice(n - n // OF_LOST_TERMS, n)
        _lose(inst, Request(a[few], b[few], c[few]), leaves[few], aligned[few] - reach[few], rng)
    return replace(Request.zeros(inst, n), a=a, b=b, c=c)


def _of_one_sign(inst: Instruction, ends: Exponents, meet: NDArray[np.bool_], rng: np.random.Generator) -> Request:
    """Return dot products with terms of one sign about one of the exponents `ends` [3, n], and zeros; C is a zero.

    In a quarter of them only terms outside `meet` may differ from zero, in another quarter only those in it.
    """
    n, shape = len(meet), meet.shape
    which = rng.choice(3, n, p=(0.5, 0.2, 0.3))
    together = ends[which, np.arange(n)] + np.where(which == 2, 0, rng.integers(-2, 3, n))
    exponent = (together[:, None] - rng.integers(0, 3 - (which == 2)[:, None], shape)).ravel()
    bits = np.where(which == 2, rng.integers(0, inst.b.mantissa_bits + 1, n), rng.integers(0, 2, n))
    factors = _product(inst, exponent, np.repeat(bits, inst.k), np.zeros(n * inst.k, bool), rng)
    a, b = ((x & x.dtype.type(fmt.sign_bit - 1)).reshape(shape) for x, fmt in zip(factors, (inst.a, inst.b), strict=True))
    present, way = rng.random(shape) >= rng.choice((0.0, 0.5), n)[:, None], rng.random((n, 1))
    a[~present | (meet & (way < 0.25)) | (~meet & (way > 0.75))] = 0
    negative = rng.random(n) < 0.8
    a[negative] |= a.dtype.type(inst.a.sign_bit)
    return Request(a, b, negative * inst.c.dtype.type(inst.c.sign_bit))


def _cancel(inst: Instruction, a: Bits, b: Bits, leaves: Exponents, centre: Exponents, rng: np.random.Generator) -> None:
    """Make the first two leaves cancel, some nearly, in half of the dot products where both are products (in place)."""
    first, second = leaves[:, 0], leaves[:, 1]
    rows = np.flatnonzero((first < inst.k) & (second < inst.k) & (rng.random(len(centre)) < 0.5))
    n, first, second = len(rows), first[rows], second[rows]
    x, y = _product(inst, centre[rows], rng.integers(0, inst.b.mantissa_bits + 1, n), np.zeros(n, bool), rng)
    a[rows, first], b[rows, first] = x, y
    a[rows, second], b[rows, second] = x ^ x.dtype.type(inst.a.sign_bit), np.where(rng.random(n) < 0.5, y, _beside(inst, y))


def _lose(inst: Instruction, request: Request, leaves: Exponents, last_bit: Exponents, rng: np.random.Generator) -> None:
    """Make all products negative and at or above the last kept bit, and C a negative zero (in place). If the first two leaves
    are products, these have opposite signs and lie below that bit.

    If these two are truncated alike, their sum is zero, and its sign shows among results that underflow to negative zeros.
    """
    n = len(last_bit)
    exponent = np.repeat(last_bit[:, None] + rng.integers(0, 3, (n, 1)), inst.k, axis=1)
    pair = np.flatnonzero((leaves[:, :2] < inst.k).all(axis=1))[:, None]
    exponent[pair, leaves[pair[:, 0], :2]] = last_bit[pair] - rng.integers(3, 6, (len(pair), 2))
    positive = np.zeros(exponent.shape, bool)
    positive[pair[:, 0], leaves[pair[:, 0], 0]] = True
    of_a = np.clip(exponent // 2, inst.a.min_exponent, inst.a.max_exponent)
    a, b = floats(inst.a, rng, of_a), floats(inst.b, rng, exponent - of_a)
    request.a[:] = np.where(positive, a & inst.a.dtype.type(inst.a.sign_bit - 1), a | inst.a.dtype.type(inst.a.sign_bit))
    request.b[:], request.c[:] = b & inst.b.dtype.type(inst.b.sign_bit - 1), inst.c.sign_bit


def _beside(inst: Instruction, b: Bits) -> Bits:
    """Return the numbers with the last bit flipped, or unchanged if that makes a NaN."""
    changed = b ^ inst.b.dtype.type(1 << inst.b.ignored_low_bits)
    return np.asarray(np.where(np.isnan(inst.b.values(changed)), b, changed))


def _under(bound: Exponents, rng: np.random.Generator) -> Exponents:
    """Draw numbers from 0 to below the bounds, which are small."""
    return (rng.random(len(bound)) * bound).astype(np.int64)


def _bits(
    nodes: list[FusedSum], which: Exponents, alignments: tuple[int, ...], rng: np.random.Generator
) -> tuple[Exponents, Exponents]:
    """Return fraction bits of the sum's result, and its alignment bits or the alternative's; random ones if it is exact."""
    sums = [node.arithmetic for node in nodes if isinstance(node.arithmetic, FloatArithmetic)]
    kept = np.array([x.result_bits for x in sums])[which]
    aligned = np.array([-1 if x.alignment_bits is None else x.alignment_bits for x in sums])[which]
    if alignments:
        aligned = np.where(rng.random(len(which)) < 0.5, rng.choice(np.array(alignments), len(which)), aligned)
    anywhere = kept + _under(np.maximum(1, SUM_BITS - 6 - kept), rng)
    return kept, np.where(aligned < 0, anywhere, aligned)


def _last_bits(
    centre: Exponents, aligned: Exponents, kept: Exponents, reach: Exponents, half: Exponents, rng: np.random.Generator
) -> Exponents:
    """Return the last bit's exponent of leading products: half the result's last place, the last kept, the next or any."""
    n, way = len(centre), rng.random(len(centre))
    truncated, any_bit = aligned - reach - rng.integers(0, 2, n), centre - 1 - _under(kept + 2, rng)
    return np.where(way < 0.45, half, np.where(way < 0.7, truncated, any_bit))


def _meeting(inst: Instruction, nodes: list[FusedSum], which: Exponents, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Mark the leaves that meet in that sum, [n, K + 1], column K being C: one leaf of each of its terms."""
    own = np.zeros((len(nodes), inst.k + 1), bool)
    inner = []
    for i, node in enumerate(nodes):
        below = [_below(term, inst.k) for term in node.terms]
        own[i, [leaves[0] for leaves in below if len(leaves) == 1]] = True
        inner += [(i, leaves) for leaves in below if len(leaves) > 1]
    meet: NDArray[np.bool_] = own[which]
    for i, leaves in inner:
        rows = np.flatnonzero(which == i)
        meet[rows, rng.choice(np.array(leaves), len(rows))] = True
    return meet


def _shuffled(first: NDArray[np.bool_], rng: np.random.Generator) -> Exponents:
    """Return the numbers of the columns in random order for each row, the marked ones first."""
    width = first.shape[1]
    bits = width.bit_length()
    keys = np.frombuffer(rng.bytes(4 * first.size), np.uint32).reshape(first.shape) >> np.uint32(bits + 1) << np.uint32(bits)
    keys |= np.arange(width, dtype=np.uint32)
    keys |= (~first).astype(np.uint32) << np.uint32(31)
    keys.sort(axis=1)
    return (keys & np.uint32((1 << bits) - 1)).astype(np.int64)


def _put_c_first(leaves: Exponents, which: NDArray[np.bool_]) -> None:
    """Put C first in these dot products, as it may have more bits than a product (in place)."""
    rows = np.flatnonzero(which)
    place = np.argmax(leaves[rows] == leaves.shape[1] - 1, axis=1)
    leaves[rows, 0], leaves[rows, place] = leaves[rows, place], leaves[rows, 0]


def _below(term: Term, addend: int) -> list[int]:
    if isinstance(term, FusedSum):
        return [leaf for inner in term.terms for leaf in _below(inner, addend)]
    return [term.k if isinstance(term, Product) else addend]


def _present(n: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Return which terms are in a dot product, [n, terms]: each with its share, or one or two, with or without the first."""
    one, another = 1 << rng.integers(1, len(SHARES), (2, n), np.int8).astype(np.int16)
    cancelling = 1 << rng.integers(1, 3, n, np.int8).astype(np.int16)
    way = rng.integers(0, 4, n, np.int8)
    terms = np.choose(way, [1 | one, 1 | cancelling, 1 | one | cancelling, one | another])
    present: NDArray[np.bool_] = terms[:, None] >> np.arange(len(SHARES), dtype=np.int16) & 1 != 0
    share = np.flatnonzero(rng.random(n) < BY_SHARE)
    present[share] = rng.random((len(share), len(SHARES)), np.float32) < SHARES
    return present


def _places(leaves: Exponents, rng: np.random.Generator) -> tuple[Exponents, Exponents, Exponents]:
    """Return dot product, term and leaf of present terms: the first on the first leaf, others at random, as leaves suffice."""
    present = _present(len(leaves), rng)
    others = 1 + _shuffled(present[:, 1:], rng)[:, : leaves.shape[1] - 1]
    count = np.minimum(present[:, 1:].sum(axis=1), others.shape[1])
    led = np.flatnonzero(present[:, LEAD])
    row = np.repeat(np.arange(len(leaves)), count)
    place = np.arange(len(row)) - np.repeat(np.cumsum(count) - count, count)
    row_or_led = np.concatenate([row, led])
    term = np.concatenate([others[row, place], np.full(len(led), LEAD)])
    return row_or_led, term, leaves[row_or_led, np.concatenate([place + 1, np.zeros(len(led), np.int64)])]


def _factors(
    inst: Instruction,
    row: Exponents,
    term: Exponents,
    exponent: Exponents,
    bits: Exponents,
    odd: NDArray[np.bool_],
    rng: np.random.Generator,
) -> tuple[Bits, Bits]:
    """Return factors of the terms, each from the term in `FACTORS_FROM` if present, but for the sign or the last bit."""
    a, b = _product(inst, exponent, bits, odd, rng)
    place = np.arange(len(row))
    first = np.full((row.max(initial=-1) + 1, len(FACTORS_FROM)), -1)
    first[row, term] = place
    like = first[row, FACTORS_FROM[term]]
    like = np.where(like < 0, place, like)
    a, b = a[like], b[like]
    a[(term == OPPOSITE) | (term == NEARLY_OPPOSITE) | (term > SMALL_TERMS[-1])] ^= inst.a.dtype.type(inst.a.sign_bit)
    b = np.where(term == NEARLY_OPPOSITE, _beside(inst, b), b)
    zero = np.flatnonzero(term == ZERO)
    a[zero] = rng.integers(0, 2, len(zero)).astype(inst.a.dtype) * inst.a.dtype.type(inst.a.sign_bit)
    b[zero] = floats(inst.b, rng, np.full(len(zero), inst.b.max_exponent))
    return a, b


def _product(
    inst: Instruction, exponent: Exponents, bits: Exponents, odd: NDArray[np.bool_], rng: np.random.Generator
) -> tuple[Bits, Bits]:
    """Return factors with exponents that add up to `exponent`, if possible; a third have a factor drawn as a subnormal.

    bits: fraction bits of most products, which one factor has, or both share; the others have full width or none. odd: products
    with only those bits, 60 % of them with a subnormal factor, so that normalisation may change their exponents.
    """
    n, lowest, highest = len(exponent), inst.a.min_exponent, inst.a.max_exponent
    ea = np.where(
        rng.random(n) < np.where(odd, 0.6, 0.35),
        rng.integers(lowest - inst.a.mantissa_bits, lowest, n),
        rng.integers(lowest, highest + 1, n),
    )
    most = exponent - inst.b.min_exponent + np.where(rng.random(n) < 0.5, inst.b.mantissa_bits, 0)
    ea = np.minimum(np.maximum(ea, exponent - inst.b.max_exponent), most)
    if inst.a == inst.b:
        ea = np.where(rng.random(n) < 0.5, exponent - ea, ea)
    share = _under(bits + 1, rng)
    rest = np.maximum(bits - share - rng.integers(0, 2, n), 0)
    way = rng.integers(0, 6, n)
    way[odd & (way < 2)] += 2
    bits_a = np.where(way > 3, share, np.where(way == 2, bits, np.where(way == 0, inst.a.mantissa_bits, 0)))
    bits_b = np.where(way > 3, rest, np.where(way == 3, bits, np.where(way == 0, inst.b.mantissa_bits, 0)))
    return _numbers(inst.a, ea, bits_a, rng), _numbers(inst.b, exponent - ea, bits_b, rng)


def _numbers(fmt: Format, exponent: Exponents, bits: Exponents, rng: np.random.Generator) -> Bits:
    """Return finite numbers 2^exponent * 1.f of random signs, with so many bits in f, the last of them 1; of subnormals, as
    many as fit.
    """
    n, m = len(exponent), fmt.mantissa_bits
    bits, exponent = np.minimum(np.maximum(bits, 0), m), np.minimum(exponent, fmt.max_exponent)
    random = rng.integers(0, 1 << (m + 1), n)
    fraction = (random >> 1 >> (m - bits) | (bits > 0)) << (m - bits)
    below = np.minimum(np.maximum(fmt.min_exponent - exponent, 0), m + 1)
    magnitude = np.where(below > 0, (1 << m | fraction) >> below, (np.maximum(exponent + fmt.bias, 0) << m) | fraction)
    magnitude = np.minimum(magnitude << fmt.ignored_low_bits, fmt.largest).astype(fmt.dtype)
    return np.asarray(magnitude | (random & 1).astype(fmt.dtype) * fmt.dtype.type(fmt.sign_bit))


def _addends(fmt: Format, exponent: Exponents, kept: Exponents, last_bit: Exponents, rng: np.random.Generator) -> Bits:
    """Return numbers of full width, powers of two, numbers with one bit more than is kept, or with the last bit about
    2^last_bit.
    """
    way = rng.integers(0, 4, len(exponent))
    numbers = _numbers(fmt, exponent, np.choose(way, [fmt.mantissa_bits, 0, kept + 1, fmt.mantissa_bits]), rng)
    gap = way == 3
    last = last_bit[gap] + rng.integers(-2, 2, gap.sum())
    numbers[gap] = _with_gap(fmt, numbers[gap], exponent[gap], kept[gap], last)
    return numbers


def _with_gap(fmt: Format, numbers: Bits, exponent: Exponents, kept: Exponents, last: Exponents) -> Bits:
    """Return the numbers of these exponents with zeros between their first fraction bits and the bit 2^last, if it exists."""
    m, exponent = fmt.mantissa_bits, np.maximum(exponent, fmt.min_exponent)
    below = m - np.minimum(kept, m)
    place = last - exponent + m
    bit = np.where((place >= 0) & (place < below), 1 << np.clip(place, 0, m), 0)
    below = below.astype(fmt.dtype)
    return np.asarray(numbers >> below << below | bit.astype(fmt.dtype))


def _exponents(
    inst: Instruction, target: Target, reach: Exponents, rng: np.random.Generator, n: int
) -> tuple[Exponents, Exponents]:
    """Return the leading exponents of terms, and the exponents to which terms are aligned, which are equal or larger.

    Exponents lie anywhere, or where the last kept bit is about the last bit of the smallest products. If a difference shows
    at another place, most exponents lie about there.
    """
    low, high = inst.a.min_exponent + inst.b.min_exponent, inst.a.max_exponent + inst.b.max_exponent
    lowest = low - inst.a.mantissa_bits - inst.b.mantissa_bits
    above_lowest = np.clip(lowest + reach + rng.integers(-2, 10, n), low, high)
    anywhere = np.where(rng.random(n) < 0.5, rng.integers(low, high + 1, n), above_lowest)
    smallest = inst.d.min_exponent - rng.choice([0, inst.d.mantissa_bits], n)
    aimed = rng.random(n) < 0.7
    if target.place == "floor":
        level = rng.choice(np.array(target.levels), n)
        below = np.where(rng.random(n) < 0.7, level - rng.integers(0, 6, n), smallest + rng.integers(-3, 4, n))
        centre = np.where(aimed, below, anywhere)
        return centre, np.maximum(centre, level)
    ends = {"underflow": smallest, "overflow": np.full(n, inst.d.max_exponent)}.get(target.place, anywhere)
    centre = np.where(aimed, ends + rng.integers(-3, 4, n), anywhere)
    above = rng.integers(0, inst.a.mantissa_bits + 1, n) * (rng.random(n) < 0.5)
    return centre, centre + above * (target.place == "products")
