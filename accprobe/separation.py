"""The search for operands on which two models differ: first where the field in which they differ matters, then anywhere.

Random operands of the usual kinds reach a rule seldom that shows in one exponent of hundreds, beside a sum that cancels. Here
every dot product is made for it: one product leads, most often with a subnormal factor; another may cancel it exactly, so that
the lowest bits come to the top; a zero may meet a large number; and small terms lie about the last bit that is kept. Where the
leading exponent lies is drawn from where the field is felt.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from accprobe.formats import Bits, Format
from accprobe.instructions import Instruction
from accprobe.model import SUM_BITS, DotModel, FloatArithmetic, FusedSum, Product, Term
from accprobe.operands import Exponents, Operands, draw, floats, joined, kinds

FEW, MANY = 1024, 12288
"""Dot products made for each field, and random ones of every kind together, tried first; and those made for it then."""

MOST = 32
"""Dot products that are given back: few, as each is a question to a device."""

FLOORS = (-126, -133, -149)
"""Smallest alignment exponents that are looked about where neither model has one."""


class Felt(NamedTuple):
    """Where two models' difference is felt: at results of some size (see PLACES), and in which sums, as `nodes` counts them.

    levels: the exponents about which a floor is looked for.
    """

    place: str
    sums: tuple[int, ...]
    levels: tuple[int, ...] = ()

    @property
    def seed(self) -> tuple[int, ...]:
        """Another one for every place."""
        return len(self.place), *self.sums, *(level & 0xFFFF for level in self.levels)


PLACES = {
    "min_exponent": "floor",
    "underflow_sign": "underflow",
    "subnormal_results": "underflow",
    "overflow": "overflow",
    "product_exponent": "products",
    "zero_terms": "products",
}
"""Fields that are felt at small or large results, at small terms, or beside odd products; the others, anywhere."""


class Search:
    """Looks for operands on which rivals differ from one model; what one rival was tried on, the next one is too."""

    def __init__(self, inst: Instruction, model: DotModel, seed: int = 0) -> None:
        self._inst, self._model, self._seed = inst, model, seed
        self._tried: dict[tuple[Felt | None, int], tuple[Operands, Bits]] = {}

    def separating(self, rival: DotModel, fields: Iterable[str], thorough: bool = True) -> Operands | None:
        """Dot products on which the rival, which differs in those fields, is not the model; None where none is found."""
        places = [] if self._inst.is_integer else list(dict.fromkeys(felt(self._model, rival, field) for field in fields))
        sets = [*((place, FEW) for place in places), (None, FEW), *((place, MANY) for place in places)]
        for place, n in sets if thorough else sets[: len(places) or 1]:
            operands, d = self._set(place, n)
            differ = np.flatnonzero(d != rival.evaluate(self._inst, *operands))
            if len(differ):
                return Operands(*(x[differ[:MOST]] for x in operands))
        return None

    def _set(self, place: Felt | None, n: int) -> tuple[Operands, Bits]:
        if (place, n) not in self._tried:
            rng = np.random.default_rng([self._seed, n, *(place.seed if place else ())])
            operands = directed(self._inst, self._model, place, rng, n) if place else self._random(rng, n)
            self._tried[place, n] = operands, self._model.evaluate(self._inst, *operands)
        return self._tried[place, n]

    def _random(self, rng: np.random.Generator, n: int) -> Operands:
        names = list(kinds(self._inst))
        return joined([draw(kind, self._inst, rng, -(-n // len(names))) for kind in names])


def felt(model: DotModel, rival: DotModel, field: str) -> Felt:
    """Where the field is felt in which the two models differ."""
    place = PLACES.get(field.removeprefix("add_"), "anywhere")
    levels = _levels(rival) or _levels(model) or FLOORS
    return Felt(place, _sums_that_differ(model, rival), levels if place == "floor" else ())


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
    which = np.where(rng.random(n) < 0.4, place.sums[-1], rng.choice(np.array(place.sums), n))
    kept, reach = (bits[which] for bits in _bits(nodes, rng))
    centre, aligned = _exponents(inst, place, reach, rng, n)
    half = np.maximum(centre - kept, inst.d.min_exponent - inst.d.mantissa_bits) - 1
    bits = np.where(rng.random(n) < 0.5, np.maximum(centre - half, 0), rng.integers(1, kept + 3))
    lead_a, lead_b = _product(inst, centre, bits, rng, odd=place.place == "products")
    sign = inst.a.dtype.type(inst.a.sign_bit)
    zero = rng.integers(0, 2, n).astype(inst.a.dtype) * sign
    large = floats(inst.b, rng, np.full(n, inst.b.max_exponent))
    beside_b = lead_b ^ inst.b.dtype.type(1 << inst.b.ignored_low_bits)
    beside_b = np.where(inst.b.fields(beside_b).is_nan, lead_b, beside_b)
    others = [half + rng.integers(-1, 2, n), centre - rng.integers(kept, np.maximum(reach, kept) + 8)]
    others += [aligned - reach + rng.integers(-2, 3, n) for _ in range(3)]
    few = rng.integers(1, 3, n)
    terms = [
        _Term(centre, lead_a, lead_b, 0.9),
        _Term(centre, lead_a ^ sign, lead_b, 0.4),
        _Term(centre, lead_a ^ sign, beside_b, 0.2),
        _Term(centre - reach, zero, large, 0.3),
    ]
    terms += [_Term(e, *_product(inst, e, few, rng), 0.4) for e in others]
    return _placed(inst, terms, _leaves(inst, nodes, which, rng), kept, rng)


class _Term(NamedTuple):
    """A product for every dot product, with its exponent, and how often it is there."""

    exponent: Exponents
    a: Bits
    b: Bits
    share: float


def _bits(nodes: list[FusedSum], rng: np.random.Generator) -> tuple[Exponents, Exponents]:
    """Of each sum: fraction bits of its result, and bits down to its cut; somewhere below where it has none."""
    sums = [node.arithmetic for node in nodes if isinstance(node.arithmetic, FloatArithmetic)]
    kept = [x.result_bits for x in sums]
    reach = [int(rng.integers(x.result_bits, SUM_BITS - 6)) if x.alignment_bits is None else x.alignment_bits for x in sums]
    return np.array(kept, np.int64), np.array(reach, np.int64)


def _leaves(inst: Instruction, nodes: list[FusedSum], which: Exponents, rng: np.random.Generator) -> Exponents:
    """Leaves, [n, K + 1], K being C: first, in random order, one of each term of that sum, so that they meet there."""
    keys = 1 + rng.random((len(which), inst.k + 1))
    for i, node in enumerate(nodes):
        rows = np.flatnonzero(which == i)
        for term in node.terms:
            below = np.array(_below(term, inst.k))
            keys[rows, below[rng.integers(0, len(below), len(rows))]] -= 1
    return np.argsort(keys, axis=1)


def _below(term: Term, addend: int) -> list[int]:
    if isinstance(term, FusedSum):
        return [leaf for inner in term.terms for leaf in _below(inner, addend)]
    return [term.k if isinstance(term, Product) else addend]


def _placed(inst: Instruction, terms: list[_Term], leaves: Exponents, kept: Exponents, rng: np.random.Generator) -> Operands:
    """The terms on the first of the leaves: the first term, then those of the others that are there, in random order."""
    n = len(kept)
    there = rng.random((n, len(terms))) < [term.share for term in terms]
    one, another = (np.arange(len(terms)) == rng.integers(1, len(terms), n)[:, None] for _ in range(2))
    lead, pair = np.arange(len(terms)) < 1, np.arange(len(terms)) < 2
    there = np.choose(rng.integers(0, 4, n)[:, None], [there, one | lead, one | pair, one | another])
    turn = np.argsort(np.where(there, rng.random((n, len(terms))), 2) - 2 * (np.arange(len(terms)) == 0), axis=1)
    a, b = np.zeros((n, inst.k + 1), inst.a.dtype), np.zeros((n, inst.k + 1), inst.b.dtype)
    a[rng.random(n) < 0.3] = inst.a.sign_bit
    exponents = np.stack([term.exponent for term in terms])
    every_a, every_b = np.stack([term.a for term in terms]), np.stack([term.b for term in terms])
    rows = np.arange(n)
    c_exponent, is_c = exponents[0] + rng.integers(-3, 4, n), np.zeros(n, bool)
    for place in range(min(len(terms), inst.k + 1)):
        term, leaf = turn[:, place], leaves[:, place]
        used = there[rows, term]
        a[rows, leaf] = np.where(used, every_a[term, rows], a[rows, leaf])
        b[rows, leaf] = np.where(used, every_b[term, rows], 0)
        here = used & (leaf == inst.k)
        c_exponent = np.where(here, exponents[term, rows], c_exponent)
        is_c |= here
    c_bits = np.choose(rng.integers(0, 3, n), [0 * kept + inst.c.mantissa_bits, 0 * kept, kept + 1])
    c = _numbers(inst.c, c_exponent, c_bits, rng)
    c[~is_c & (rng.random(n) < 0.7)] &= inst.c.dtype.type(inst.c.sign_bit)
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
    rest = bits - share + rng.integers(0, 2, n)
    way = rng.integers(2 if odd else 0, 6, n)
    bits_a = np.choose(way, [none + inst.a.mantissa_bits, none, bits, none, share, share])
    bits_b = np.choose(way, [none + inst.b.mantissa_bits, none, none, bits, rest, rest])
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
    """Leading exponents, and the exponents that terms are aligned to: the same, or a floor above.

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
    return centre, centre
