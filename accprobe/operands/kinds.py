"""Operand distributions, on the CPU: random bit patterns of A, B and C for many dot products.

Each is a function of (instruction, generator, n) and draws n dot products: a, b [n, K] and c [n]. After Berkeley TestFloat:
boundary exponents crossed with random significands, then weighted random. `drawing` has the same ones on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.formats import Bits, Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request, joined

Exponents = NDArray[np.int64]


def draw(kind: str, inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw n dot products of one kind (see `kinds`), with block scales if the instruction has some."""
    return _scaled(inst, rng, kinds(inst)[kind](inst, rng, n))


def draw_every_kind(inst: Instruction, rng: np.random.Generator, each: int) -> Request:
    """Draw so many dot products of each kind, one kind after another."""
    return joined([draw(kind, inst, rng, each) for kind in kinds(inst)])


MAX_SCALE_DISTANCE = 24  # Largest exponent, of either sign, around which the product of a block's two scales is drawn.


def _scaled(inst: Instruction, rng: np.random.Generator, operands: Request) -> Request:
    """Add block scales: 1, close together, far from one another, or any patterns, each in a quarter of the cases."""
    if inst.scale is None or inst.scale_block is None:
        return operands
    fmt, shape = inst.scale, (len(operands), inst.k // inst.scale_block)
    way = rng.integers(0, 4, (shape[0], 1))
    spread = np.choose(way, (0, 1, MAX_SCALE_DISTANCE // 2, 0))
    centre = np.where(way == 0, 0, rng.integers(-MAX_SCALE_DISTANCE, MAX_SCALE_DISTANCE + 1, (shape[0], 1)))

    def drawn(sign: int) -> Bits:
        distance = (rng.random(shape) * (2 * spread + 1)).astype(np.int64) - spread
        some = floats(fmt, rng, sign * centre // 2 + distance)
        ones = np.full(shape, fmt.encode(False, 1, 0), fmt.dtype)
        return np.asarray(np.choose(way, (ones, some, some, _patterns(fmt, rng, shape))))

    return replace(operands, scales_a=drawn(1), scales_b=drawn(rng.choice((-1, 1))))


def kinds(inst: Instruction) -> dict[str, Callable[[Instruction, np.random.Generator, int], Request]]:
    """Return the operand distributions of an instruction, by name."""
    return INTEGER_KINDS if inst.is_integer else FLOAT_KINDS


def _patterns(fmt: Format, rng: np.random.Generator, shape: tuple[int, ...]) -> Bits:
    raw = np.frombuffer(rng.bytes(int(np.prod(shape)) * fmt.dtype.itemsize), fmt.dtype).reshape(shape)
    return raw.copy() if fmt.bits >= fmt.storage_bits or fmt.ignored_low_bits else raw & fmt.dtype.type((1 << fmt.bits) - 1)


def floats(fmt: Format, rng: np.random.Generator, exponent: Exponents) -> Bits:
    """Draw finite values of the given exponents with random signs and fractions; subnormals below the smallest normal one."""
    low = fmt.ignored_low_bits
    random = _patterns(fmt, rng, exponent.shape)
    biased = np.clip(exponent + fmt.bias, 0, fmt.max_exponent + fmt.bias).astype(fmt.dtype)
    keep = fmt.dtype.type(fmt.sign_bit | ((1 << (fmt.mantissa_bits + low)) - 1))
    patterns = random & keep | biased << fmt.dtype.type(fmt.mantissa_bits + low)
    magnitude = patterns & fmt.dtype.type(~fmt.sign_bit & ((1 << fmt.storage_bits) - 1))
    special = magnitude > fmt.largest | ((1 << low) - 1)
    return np.asarray(np.where(special, patterns ^ fmt.dtype.type(1 << low), patterns))


def _uniform(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    return Request(_patterns(inst.a, rng, (n, inst.k)), _patterns(inst.b, rng, (n, inst.k)), _patterns(inst.c, rng, (n,)))


def _normal(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw standard-normal values, C too."""
    return Request(*(f.patterns(rng.standard_normal(s, np.float32)) for f, s in _shapes(inst, n)))


def _shapes(inst: Instruction, n: int) -> list[tuple[Format, tuple[int, ...]]]:
    return [(inst.a, (n, inst.k)), (inst.b, (n, inst.k)), (inst.c, (n,))]


def _wide(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw every finite exponent of each format equally often, subnormals and zeros among them."""
    return Request(*(floats(f, rng, rng.integers(f.min_exponent - 1, f.max_exponent + 1, s)) for f, s in _shapes(inst, n)))


def exponent_ranges(inst: Instruction) -> dict[str, tuple[int, int, int]]:
    """Return by kind the lowest and the highest exponent of a dot product, and how far its products' exponents lie from it."""
    a, b, c, d = inst.a, inst.b, inst.c, inst.d
    smallest, largest = a.min_exponent + b.min_exponent, a.max_exponent + b.max_exponent
    lowest, top = max(smallest - 4, d.min_exponent - d.mantissa_bits - 14), min(d.max_exponent, largest)
    below_c, below_normal = (min(max(end - c.mantissa_bits - 1, smallest), largest) for end in (c.max_exponent, c.min_exponent))
    return {
        "clustered": (max(smallest, d.min_exponent - d.mantissa_bits - 12), top, 6),
        "spread exponents": (-6, 6, 15),
        "cancelling": (-4, 4, 8),
        "tiny": (lowest, lowest + 35, 5),
        "huge": (top - 8, top + 1, 4),
        "same sign": (max(smallest, c.min_exponent), min(largest, c.max_exponent), 0),
        "C near largest": (below_c, below_c, 2),
        "C near smallest normal": (below_normal, below_normal, 2),
    }


def _centres(kind: str, inst: Instruction, rng: np.random.Generator, n: int) -> Exponents:
    low, high, _ = exponent_ranges(inst)[kind]
    return rng.integers(low, high + 1, n)


def _around(kind: str, inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw products close to an exponent of the kind's range, and C up to twice as far from it."""
    return _about(kind, inst, rng, _centres(kind, inst, rng, n))


def _about(kind: str, inst: Instruction, rng: np.random.Generator, centre: Exponents) -> Request:
    n, (_, _, spread) = len(centre), exponent_ranges(inst)[kind]
    half = centre[:, None] // 2
    ea = np.clip(half, inst.a.min_exponent, inst.a.max_exponent) + rng.integers(-3, 4, (n, inst.k))
    eb = centre[:, None] - ea + rng.integers(-spread, spread + 1, (n, inst.k))
    ec = centre + rng.integers(-2 * spread, 2 * spread + 1, n)
    return Request(floats(inst.a, rng, ea), floats(inst.b, rng, eb), floats(inst.c, rng, ec))


def _cancelling(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw products in pairs that cancel but for a few, in random places, so that low bits come to the top."""
    around = _around("cancelling", inst, rng, n)
    a, b, c = around.a, around.b, around.c
    half = inst.k // 2
    a[:, half : 2 * half] = a[:, :half] ^ inst.a.dtype.type(inst.a.sign_bit)
    b[:, half : 2 * half] = b[:, :half]
    flip = rng.integers(0, 4 * inst.k, (n, inst.k)) == 0
    a ^= flip.astype(inst.a.dtype) << inst.a.dtype.type(inst.a.ignored_low_bits)
    order = rng.permuted(np.broadcast_to(np.arange(inst.k), (n, inst.k)), axis=1)
    lone = rng.random(n) < 0.5
    c = np.where(lone, c & inst.c.dtype.type(inst.c.sign_bit), c)
    return Request(np.take_along_axis(a, order, 1), np.take_along_axis(b, order, 1), c)


def _tiny(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw subnormals, and products around the smallest exponent at which the result and the alignment end."""
    centre = _centres("tiny", inst, rng, n)
    around = _about("tiny", inst, rng, centre)
    a, b, c = around.a, around.b, around.c
    lone = rng.random(n) < 0.5
    small = np.full((n, inst.k), inst.a.min_exponent - 1)
    other = centre[:, None] - small + rng.integers(-2, 6, small.shape)
    swap = rng.random(small.shape) < 0.5
    a[lone] = floats(inst.a, rng, np.where(swap, small, other))[lone]
    b[lone] = floats(inst.b, rng, np.where(swap, other, small))[lone]
    subnormal = floats(inst.c, rng, np.full(n, inst.c.min_exponent - 1))
    few_bits = subnormal & inst.c.dtype.type(inst.c.sign_bit | 7)
    zero = subnormal & inst.c.dtype.type(inst.c.sign_bit)
    choice = rng.integers(0, 4, n)
    return Request(a, b, np.choose(choice, [c, subnormal, few_bits, zero]))


def _sparse(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw mostly zeros of both signs."""
    wide = _wide(inst, rng, n)
    masks = [rng.random(x.shape) < 0.8 for x in wide.columns]
    formats = (inst.a, inst.b, inst.c)
    return Request(
        *(np.where(m, x & f.dtype.type(f.sign_bit), x) for x, m, f in zip(wide.columns, masks, formats, strict=True))
    )


def _special(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw normal values with a few zeros, largest and smallest normal numbers, infinities and NaNs among them."""
    operands = _normal(inst, rng, n)
    for x, fmt in zip(operands.columns, (inst.a, inst.b, inst.c), strict=True):
        special = [0, fmt.largest, fmt.encode(False, 1, fmt.min_exponent)]
        if fmt.infinity is not None:
            low = fmt.ignored_low_bits
            special += [fmt.infinity, fmt.infinity, fmt.infinity | 1, fmt.infinity | 1 << low]
            special += [fmt.infinity | 1 << (fmt.mantissa_bits + low - 1)]
        elif fmt.specials == "nan only":
            special += [fmt.largest + 1]
        place = rng.random(x.shape) < (1.0 / inst.k if x.ndim == 2 else 0.3)
        chosen = np.array(special, fmt.dtype)[rng.integers(0, len(special), x.shape)]
        signs = _patterns(fmt, rng, x.shape) & fmt.dtype.type(fmt.sign_bit)
        x[place] = (chosen | signs)[place]
    return operands


def _same_sign(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw products of one sign and one exponent, with random low bits, and C with them: sums that carry as far as they can."""
    centre = _centres("same sign", inst, rng, n)
    least = np.maximum(inst.a.min_exponent, centre - inst.b.max_exponent)
    most = np.minimum(inst.a.max_exponent, centre - inst.b.min_exponent)
    of_a = rng.integers(least, most + 1)[:, None]
    columns = (
        floats(inst.a, rng, np.broadcast_to(of_a, (n, inst.k))),
        floats(inst.b, rng, np.broadcast_to(centre[:, None] - of_a, (n, inst.k))),
        floats(inst.c, rng, centre + rng.integers(0, 2, n)),
    )
    negative = rng.integers(0, 2, n).astype(bool)
    a, b, c = (
        x & fmt.dtype.type(~fmt.sign_bit & ((1 << fmt.storage_bits) - 1))
        for x, (fmt, _) in zip(columns, _shapes(inst, n), strict=True)
    )
    a[negative] |= inst.a.dtype.type(inst.a.sign_bit)
    c[negative] |= inst.c.dtype.type(inst.c.sign_bit)
    return Request(a, b, c)


def _c_near_largest(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw C within a few units of the largest number, and a few products about half of its last unit."""
    magnitudes = inst.c.largest - (rng.integers(0, 4, n) << inst.c.ignored_low_bits)
    return _c_beside_small_products("C near largest", inst, rng, magnitudes)


def _c_near_smallest_normal(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw C within a few units of the smallest normal number, and a few products about half of the smallest subnormal one."""
    magnitudes = ((1 << inst.c.mantissa_bits) + rng.integers(-4, 4, n)) << inst.c.ignored_low_bits
    return _c_beside_small_products("C near smallest normal", inst, rng, magnitudes)


def _c_beside_small_products(kind: str, inst: Instruction, rng: np.random.Generator, magnitudes: Exponents) -> Request:
    """Give magnitudes of C either sign, and draw small products beside them, all but about three of them zero."""
    n = len(magnitudes)
    around = _around(kind, inst, rng, n)
    around.a[rng.random((n, inst.k)) < 1.0 - 3.0 / inst.k] &= inst.a.dtype.type(inst.a.sign_bit)
    signs = rng.integers(0, 2, n).astype(inst.c.dtype) * inst.c.dtype.type(inst.c.sign_bit)
    return Request(around.a, around.b, magnitudes.astype(inst.c.dtype) | signs)


def _extreme(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw the largest and smallest integers, 0, 1 and all ones, and C close to 0 or to where a 32-bit sum overflows."""
    a, b = (rng.choice(_ends(f), (n, inst.k)) for f in (inst.a, inst.b))
    edge = rng.choice(np.array([0, 1 << 31], np.int64), n)
    room = np.int64(inst.k << (inst.a.bits + inst.b.bits - 1)) >> rng.integers(0, 12, n)
    c = (edge + rng.integers(-room, room + 1)) & 0xFFFFFFFF
    return Request(a, b, c.astype(inst.c.dtype))


def _repeated_fours(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw one pair of the numbers of `_extreme` for each four products; C is as in `_extreme`, or 0."""
    a, b = (np.repeat(rng.choice(_ends(f), (n, -(-inst.k // 4))), 4, axis=1)[:, : inst.k] for f in (inst.a, inst.b))
    c = _extreme(inst, rng, n).c
    c[rng.random(n) < 0.5] = 0
    return Request(a.copy(), b.copy(), c)


def _ends(fmt: Format) -> Bits:
    lowest = fmt.largest + 1 if fmt.kind == "signed" else 0
    return np.array([lowest, fmt.largest, 0, 1, (1 << fmt.bits) - 1], fmt.dtype)


def _c_near_overflow(inst: Instruction, rng: np.random.Generator, n: int) -> Request:
    """Draw random products, and C as in `_extreme`."""
    uniform = _uniform(inst, rng, n)
    return Request(uniform.a, uniform.b, _extreme(inst, rng, n).c)


FLOAT_KINDS: dict[str, Callable[[Instruction, np.random.Generator, int], Request]] = {
    "uniform": _uniform,
    "normal": _normal,
    "wide": _wide,
    "clustered": partial(_around, "clustered"),
    # Numbers of full width with exponents from -1 to 1, C too; subnormals where a format has no exponent -1.
    "near one": lambda inst, rng, n: Request(*(floats(f, rng, rng.choice((-1, 0, 0, 0, 1), s)) for f, s in _shapes(inst, n))),
    "spread exponents": partial(_around, "spread exponents"),
    "cancelling": _cancelling,
    "tiny": _tiny,
    "huge": partial(_around, "huge"),
    "sparse": _sparse,
    "special": _special,
    "same sign": _same_sign,
    "C near largest": _c_near_largest,
    "C near smallest normal": _c_near_smallest_normal,
}
INTEGER_KINDS: dict[str, Callable[[Instruction, np.random.Generator, int], Request]] = {
    "uniform": _uniform,
    "extreme": _extreme,
    "C near overflow": _c_near_overflow,
    "repeated fours": _repeated_fours,
}
