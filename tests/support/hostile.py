"""Operands of the judges: sums of one sign, extremes, ties, floors, edges, specials; independent of `accprobe.operands`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request, joined

Rng = np.random.Generator
Whole = NDArray[np.int64]


def hostile(inst: Instruction, seed: int, each: int = 4500) -> Request:
    """Return `each` dot products of every kind, shuffled; for codes of 8 bits also all pairs."""
    rng = np.random.default_rng([seed, 5])
    ways = INTEGERS if inst.is_integer else FLOATS
    parts = [way(inst, rng, each) for way in ways]
    if inst.a.bits == inst.b.bits == 8:
        parts += [_all_pairs(inst, rng)]
    together = joined(parts)
    return together[rng.permutation(len(together))]


def huge_cancelling(inst: Instruction, seed: int, n: int = 2000) -> Request:
    """Return products beyond the largest result that cancel, at any two places; all other operands are zero."""
    rng, rows = np.random.default_rng([seed, 6]), np.arange(n)
    request = Request.zeros(inst, n)
    beyond = rng.integers(_range(inst.d)[1] + 1, _range(inst.a)[1] + _range(inst.b)[1] + 1, (n, 1))
    pair = _terms(
        inst, rng, np.repeat(beyond, inst.k, axis=1), np.zeros(n, np.int64), np.zeros((n, inst.k), np.int64), rows & 1
    )
    one, other = rng.permuted(np.tile(np.arange(inst.k), (n, 1)), axis=1)[:, :2].T
    request.a[rows, one], request.b[rows, one] = pair.a[:, 0], pair.b[:, 0]
    request.a[rows, other], request.b[rows, other] = pair.a[:, 0] ^ inst.a.dtype.type(inst.a.sign_bit), pair.b[:, 0]
    return request


def _made(fmt: Format, exponent: Whole, fraction: Whole, negative: Whole | NDArray[np.bool_]) -> Bits:
    """Return finite numbers; exponents outside the format are clipped, the smallest become subnormals."""
    m, top = fmt.mantissa_bits, (1 << fmt.exponent_bits) - 1 - (fmt.specials == "ieee")
    biased = np.clip(exponent + fmt.bias, 0, top)
    magnitude = (biased << m) | (fraction & ((1 << m) - 1))
    if fmt.specials == "nan only":
        magnitude -= magnitude == (top << m) + (1 << m) - 1
    sign = negative.astype(np.int64) << (m + fmt.exponent_bits)
    return ((sign | magnitude) << fmt.ignored_low_bits).astype(fmt.dtype)


def _any_fraction(fmt: Format, rng: Rng, shape: tuple[int, ...]) -> Whole:
    return rng.integers(0, 1 << fmt.mantissa_bits, shape)


def _range(fmt: Format) -> tuple[int, int]:
    return 1 - fmt.bias, (1 << fmt.exponent_bits) - 1 - fmt.bias - (fmt.specials == "ieee")


def _reach(inst: Instruction) -> tuple[int, int]:
    """Return the range of exponents of products that results may show."""
    (la, ha), (lb, hb), (ld, hd) = (_range(f) for f in (inst.a, inst.b, inst.d))
    return max(la + lb, ld - inst.d.mantissa_bits - 12), min(ha + hb, hd + 1)


def _split(inst: Instruction, rng: Rng, products: Whole) -> tuple[Whole, Whole]:
    """Return exponents of A and B for these exponents of products."""
    (la, ha), (lb, hb) = _range(inst.a), _range(inst.b)
    ea = np.clip(products // 2 + rng.integers(-2, 3, products.shape), la, ha)
    eb = products - ea
    ea = np.clip(ea + np.maximum(eb - hb, 0) - np.maximum(lb - eb, 0), la - 1, ha)
    return ea, np.clip(products - ea, lb - 1, hb)


def _terms(
    inst: Instruction, rng: Rng, products: Whole, addend: Whole, negative: Whole, c_negative: Whole, fraction: str = "any"
) -> Request:
    ea, eb = _split(inst, rng, products)
    fractions = []
    for fmt, shape in ((inst.a, ea.shape), (inst.b, eb.shape), (inst.c, addend.shape)):
        drawn = _any_fraction(fmt, rng, shape)
        if fraction == "full":
            drawn |= (1 << fmt.mantissa_bits) - 1 - rng.integers(0, 2, shape)
        elif fraction == "few":
            drawn = np.where(rng.random(shape) < 0.6, 0, 1 << rng.integers(0, fmt.mantissa_bits, shape))
        fractions.append(drawn)
    flip = rng.integers(0, 2, ea.shape)
    return Request(
        _made(inst.a, ea, fractions[0], flip),
        _made(inst.b, eb, fractions[1], flip ^ negative),
        _made(inst.c, addend, fractions[2], c_negative),
    )


def _signs(rng: Rng, n: int, k: int, other: float = 0.0) -> Whole:
    """Return one sign per dot product, and the other sign for a fraction of the terms."""
    return rng.integers(0, 2, (n, 1)) ^ (rng.random((n, k)) < other)


def _uniform(inst: Instruction, rng: Rng, n: int) -> Request:
    def bits(fmt: Format, shape: tuple[int, ...]) -> Bits:
        return rng.integers(0, 1 << fmt.bits, shape, np.uint64).astype(fmt.dtype) if fmt.bits < 64 else _words(shape)

    def _words(shape: tuple[int, ...]) -> Bits:
        return rng.integers(0, (1 << 64) - 1, shape, np.uint64, endpoint=True)

    def of(fmt: Format, shape: tuple[int, ...]) -> Bits:
        patterns = bits(fmt, shape)
        return patterns << fmt.dtype.type(fmt.ignored_low_bits) if fmt.ignored_low_bits else patterns

    return Request(of(inst.a, (n, inst.k)), of(inst.b, (n, inst.k)), of(inst.c, (n,)))


def _dense(inst: Instruction, rng: Rng, n: int, fraction: str = "any", spread: int = 0, other: float = 0.0) -> Request:
    """Return sums of one sign and one exponent, and C between that exponent and the exponent of the sum."""
    low, high = _reach(inst)
    centre = rng.integers(low, high + 1, n)
    products = centre[:, None] + rng.integers(-spread, 1, (n, inst.k))
    signs = _signs(rng, n, inst.k, other)
    c = centre + rng.integers(-2, inst.k.bit_length() + 3, n)
    return _terms(inst, rng, products, c, signs, signs[:, 0] ^ (rng.random(n) < 0.3), fraction)


def _few_bits(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return terms of one or two bits at many distances: ties, and bits just above and below the truncation."""
    low, high = _reach(inst)
    centre = rng.integers(low, high + 1, n)
    products = centre[:, None] - rng.integers(0, 40, (n, inst.k)) * (rng.random((n, inst.k)) < 0.8)
    request = _terms(
        inst, rng, products, centre - rng.integers(-3, 40, n), _signs(rng, n, inst.k, 0.3), rng.integers(0, 2, n), "few"
    )
    request.a[rng.random((n, inst.k)) < rng.random((n, 1))] = 0
    return request


def _staggered(inst: Instruction, rng: Rng, n: int) -> Request:
    low, high = _reach(inst)
    centre = rng.integers(low, high + 1, n)
    far = rng.integers(1, 45, (n, 1))
    products = centre[:, None] - rng.integers(0, far, (n, inst.k))
    return _terms(
        inst, rng, products, centre - rng.integers(-2, far[:, 0] + 1), rng.integers(0, 2, (n, inst.k)), rng.integers(0, 2, n)
    )


def _lone(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return few nonzero terms of any exponent."""
    (la, ha), (lb, hb), (lc, hc) = (_range(f) for f in (inst.a, inst.b, inst.c))
    shape = (n, inst.k)
    a = _made(inst.a, rng.integers(la - 1, ha + 1, shape), _any_fraction(inst.a, rng, shape), rng.integers(0, 2, shape))
    b = _made(inst.b, rng.integers(lb - 1, hb + 1, shape), _any_fraction(inst.b, rng, shape), rng.integers(0, 2, shape))
    c = _made(inst.c, rng.integers(lc - 1, hc + 1, n), _any_fraction(inst.c, rng, (n,)), rng.integers(0, 2, n))
    none = rng.random(shape) > rng.integers(1, 4, (n, 1)) / inst.k
    a[none] &= inst.a.dtype.type(inst.a.sign_bit)
    c[rng.random(n) < 0.4] = 0
    return Request(a, b, c)


def _one_leads(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return one term far above the others, which are dense and near the truncation."""
    low, high = _reach(inst)
    centre = rng.integers(low, high + 1, n)
    below = centre - rng.integers(5, 34, n)
    products = np.repeat(below[:, None], inst.k, axis=1)
    leader = rng.integers(0, inst.k + 1, n)
    rows = np.flatnonzero(leader < inst.k)
    products[rows, leader[rows]] = centre[rows]
    c = np.where(leader == inst.k, centre, np.where(rng.random(n) < 0.5, below, centre))
    return _terms(inst, rng, products, c, _signs(rng, n, inst.k, 0.2), rng.integers(0, 2, n))


def _floor(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return the smallest products, and C at the smallest results: floors, underflow, subnormals."""
    low, _ = _reach(inst)
    smallest = _range(inst.d)[0]
    near = np.where(rng.random(n) < 0.5, low + rng.integers(0, 30, n), smallest - rng.integers(-4, 30, n))
    products = near[:, None] + rng.integers(-6, 4, (n, inst.k))
    c = smallest - rng.integers(-3, 3, n)
    request = _terms(inst, rng, products, c, _signs(rng, n, inst.k, 0.3), rng.integers(0, 2, n))
    request.c[rng.random(n) < 0.3] &= inst.c.dtype.type(inst.c.sign_bit | 7)
    request.a[rng.random((n, inst.k)) < rng.random((n, 1))] = 0
    return request


def _smallest_normal(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return C near the smallest normal number, beside products that decide the result."""
    request = _floor(inst, rng, n)
    edge = 1 << inst.c.mantissa_bits
    near = edge + rng.integers(-3, 4, n) | rng.integers(0, 2, n) << (inst.c.mantissa_bits + inst.c.exponent_bits)
    return Request(request.a, request.b, near.astype(inst.c.dtype))


def _edge(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return C a few last places from the largest number, and products of about one last place."""
    top = _range(inst.d)[1]
    last = top - inst.d.mantissa_bits
    products = np.minimum(last + rng.integers(-14, 12, (n, 1)), _reach(inst)[1]) + rng.integers(-3, 1, (n, inst.k))
    signs = _signs(rng, n, inst.k, 0.1)
    request = _terms(inst, rng, products, np.full(n, top), signs, signs[:, 0], "few")
    magnitude = int(inst.c.largest) - (rng.integers(0, 4, n) << rng.integers(0, 12, n))
    sign = signs[:, 0].astype(np.int64) << (inst.c.bits - 1)
    request.a[rng.random((n, inst.k)) < rng.random((n, 1))] = 0
    return Request(request.a, request.b, (magnitude | sign).astype(np.uint64).astype(inst.c.dtype))


def _over(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return sums of products near the largest number."""
    _, high = _reach(inst)
    products = high - rng.integers(0, inst.k.bit_length() + 4, (n, 1)) + rng.integers(-1, 1, (n, inst.k))
    signs = _signs(rng, n, inst.k, 0.1)
    c = products[:, 0] + rng.integers(-3, 3, n)
    return _terms(inst, rng, products, c, signs, rng.integers(0, 2, n), "full")


def _cancelling(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return products whose second half cancels the first except for single bits; C is small or zero."""
    low, high = _reach(inst)
    centre = rng.integers(low, high + 1, n)
    request = _staggered(inst, rng, n)
    half = inst.k // 2
    order = rng.permuted(np.tile(np.arange(inst.k), (n, 1)), axis=1)
    a, b = request.a, request.b
    a[:, half : 2 * half] = a[:, :half] ^ inst.a.dtype.type(inst.a.sign_bit)
    b[:, half : 2 * half] = b[:, :half]
    a ^= (rng.random((n, inst.k)) < 0.5 / inst.k).astype(inst.a.dtype) << inst.a.dtype.type(inst.a.ignored_low_bits)
    c = _made(inst.c, centre - rng.integers(0, 40, n), _any_fraction(inst.c, rng, (n,)), rng.integers(0, 2, n))
    c[rng.random(n) < 0.5] = 0
    return Request(np.take_along_axis(a, order, 1), np.take_along_axis(b, order, 1), c)


def _special(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return zeros, subnormals, the largest numbers, infinities and NaNs, mixed with numbers near 1."""
    shape = (n, inst.k)

    def of(fmt: Format, shape: tuple[int, ...], some: float) -> Bits:
        m, top = fmt.mantissa_bits, ((1 << fmt.exponent_bits) - 1) << fmt.mantissa_bits
        usual = (fmt.bias << m) + rng.integers(0, 1 << m, shape)
        odd = np.array([0, 1, (1 << m) - 1, 1 << m, top - 1 if fmt.specials == "ieee" else top + (1 << m) - 2])
        ends = np.array([top, top + 1, top + (1 << m) - 1] if fmt.specials == "ieee" else [top + (1 << m) - 1])
        often = np.concatenate([odd, odd, odd, ends])
        magnitude = np.where(rng.random(shape) < some, often[rng.integers(0, len(often), shape)], usual)
        sign = rng.integers(0, 2, shape) << (m + fmt.exponent_bits)
        return ((magnitude | sign).astype(np.uint64) << np.uint64(fmt.ignored_low_bits)).astype(fmt.dtype)

    few = rng.choice([0.5 / inst.k, 2 / inst.k, 0.3], (n, 1))
    a, b = (np.where(rng.random(shape) < 2 * few, of(f, shape, 0.9), of(f, shape, 0)) for f in (inst.a, inst.b))
    return Request(a.astype(inst.a.dtype), b.astype(inst.b.dtype), of(inst.c, (n,), 0.4))


def _all_pairs(inst: Instruction, rng: Rng) -> Request:
    """Return each pair of codes once, at a random place among zeros."""
    n = 1 << 16
    codes = np.arange(n)
    a, b = np.zeros((2, n, inst.k), np.uint8)
    k = rng.integers(0, inst.k, n)
    a[codes, k], b[codes, k] = codes >> 8, codes & 0xFF
    return Request(a, b, np.zeros(n, inst.c.dtype))


def _extremes(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return the ends of the range in runs of 1, 2, 4, … products, and C near an end of its range."""
    ends = [
        np.array([1 << 7, 0xFF, 0x7F, 1, 0] if f.kind == "signed" else [0xFF, 0xFE, 1, 0], np.uint8) for f in (inst.a, inst.b)
    ]
    run = 1 << rng.integers(0, inst.k.bit_length(), n)
    block = np.arange(inst.k)[None, :] // run[:, None]
    a, b = (np.take_along_axis(rng.choice(end, (n, inst.k)), block, 1) for end in ends)
    return Request(a, b, _near_ends(inst, rng, n))


def _near_ends(inst: Instruction, rng: Rng, n: int) -> Bits:
    room = inst.k << 16 >> rng.integers(0, 16, n)
    return (rng.choice([0, 1 << 31], n) + rng.integers(-room, room + 1) & 0xFFFFFFFF).astype(inst.c.dtype)


def _one_sign(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return large products of one sign."""
    uniform = _uniform(inst, rng, n)
    return Request(uniform.a & 0x7F | 0x40, uniform.b & 0x7F | 0x40, _near_ends(inst, rng, n))


def _odd(inst: Instruction, rng: Rng, n: int) -> Request:
    """Return small, mostly odd products."""
    uniform = _uniform(inst, rng, n)
    even = (rng.random((n, inst.k)) < 0.5).astype(np.uint8)
    return Request(uniform.a & 7 | 1, (uniform.b & 7 | 1) ^ even, uniform.c & 0xFF)


Way = Callable[[Instruction, Rng, int], Request]
FLOATS: tuple[Way, ...] = (
    _uniform,
    _dense,
    partial(_dense, fraction="full"),
    partial(_dense, spread=3, other=0.1),
    _few_bits,
    _staggered,
    _lone,
    _one_leads,
    _floor,
    _smallest_normal,
    _edge,
    _over,
    _cancelling,
    _special,
)
INTEGERS: tuple[Way, ...] = (_uniform, _extremes, _one_sign, _odd)
