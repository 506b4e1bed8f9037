"""Recognise operands that a callable quantises by a scale, and f32 operands that it rounds or multiplies in parts.

Sparse random operands are rounded in each way. One is recognised if its exact product is within the rounding of D, which the
others miss by far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.quantised import Sharing, nearest_patterns, quantised_operand
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import layout_of
from accprobe.isa.formats import FORMATS, Format
from accprobe.operands.distributions import random_lines, times_power

# Number of nonzero k, so that the error of quantisation is large beside that of the sums; rows and columns that are nonzero.
NONZERO, PROBED_LINES = 32, 64
# Exponents of lines, and of blocks of so many k, on both sides of 0: numbers far below the largest lose bits.
OF_LINES, OF_BLOCKS, ALIKE = 3, 10, 16
# Tolerance of sums, relative to the sum of absolute products: fp8 units keep 13 fraction bits.
OF_SUMS = 2.0**-11
# Share of the results that must lie within the tolerance: a number may be rounded either way if its scale is.
AGREEING = 0.99
FORMATS_TRIED = ("e4m3", "e5m2", "s8", "s4")
# The elements that share a scale, in words; a line is a row of A or a column of B.
SCALES_OF = {
    Sharing(1, 0): "line",
    Sharing(0, 0): "tensor",
    Sharing(1, 128): "128 k",
    Sharing(1, 64): "64 k",
    Sharing(1, 32): "32 k",
    Sharing(128, 128): "128 x 128",
}
# Scales by their power of two; {}: the largest code.
SCALES: dict[Literal["", "floor", "ceil"], str] = {
    "": "amax/{}",
    "ceil": "2^ceil(log2(amax/{}))",
    "floor": "2^floor(log2 amax) / 2^floor(log2 {})",
}


def _ways() -> Iterator[tuple[str, str, Format, Sharing]]:
    """Yield the words for what shares a scale and for the scale, the format and the sharing."""
    for name, (power, scale) in product(FORMATS_TRIED, SCALES.items()):
        words = scale.format(int(FORMATS[name].largest_value))
        yield from ((of, words, FORMATS[name], replace(each, power_of_two=power)) for each, of in SCALES_OF.items())
    yield "16 k", "e4m3 below one scale of the tensor", FORMATS["e2m1"], Sharing(1, 16, element="e2m1", two_levels=True)


def find_quantisation(subject: RecordedCallable, seed: int) -> str:
    """Return how A and B are quantised, "" if no way explains the results or none is needed."""
    spec, rng = subject.spec, np.random.default_rng((seed, 0x9A))
    if spec.a.is_integer or spec.scale is not None or spec.a_exponent is not None:
        return ""
    there = np.sort(rng.permutation(spec.k)[:NONZERO])
    of_block = rng.integers(-OF_BLOCKS, OF_BLOCKS + 1, -(-spec.k // ALIKE))[there // ALIKE]
    words, values = layout_of(spec).blank(), []
    for operand, fmt, sign in zip(words, (spec.a, spec.b), (1, -1), strict=True):
        lines = min(len(operand), PROBED_LINES)
        exponents = rng.integers(-OF_LINES, OF_LINES + 1, (lines, 1)) + sign * of_block
        operand[:lines, there] = times_power(fmt, random_lines(fmt, (lines, len(there)), "normal", rng), exponents)
        values.append(fmt.values(operand[:PROBED_LINES]).astype(np.float32))
    d = spec.out.values(subject.product(*words, keep=False)[:PROBED_LINES, :PROBED_LINES])

    def explains(a: Floats, b: Floats) -> bool:
        exact = a @ b.T
        tolerance = OF_SUMS * (np.abs(a) @ np.abs(b).T) + np.abs(exact) * 2.0**-spec.out.mantissa_bits
        return bool((np.abs(d - exact) <= tolerance).mean() >= AGREEING)

    x, y = (each.astype(np.float64)[:, there] for each in values)
    if explains(x, y):
        return ""
    kinds: dict[tuple[str, Format], list[tuple[str, Floats, Floats]]] = {}
    for of, scale, fmt, sharing in _ways():
        a, b = (quantised_operand(sharing, fmt, each).values()[:, there] for each in values)
        kinds.setdefault((scale, fmt), []).append((of, a, b))
        if spec.a is spec.b and spec.a.storage_bits == 16:
            a, b = (spec.a.values(nearest_patterns(spec.a, each.astype(np.float32))) for each in (a, b))
            kinds.setdefault((f"{scale}, dequantised to {spec.a}", fmt), []).append((of, a, b))
    for (scale, fmt), several in kinds.items():
        for (of_a, a, _), (of_b, _, b) in product([("", x, x), *several], [("", y, y), *several]):
            if (of_a or of_b) and explains(a, b):
                of_a, of_b = of_a.replace("line", "row"), of_b.replace("line", "column")
                both = f"A per {of_a} and B per {of_b} are quantised to {fmt}"
                one = f"{'A' if of_a else 'B'} is quantised to {fmt} per {of_a or of_b}"
                return f"{both if of_a and of_b else one}, scale {scale}"
    return ""


# Fraction bits of parts of f32 numbers, and the pairs of parts that are multiplied, by their number.
PART_BITS = {"tf32": 10, "bf16": 7}
MULTIPLIED = {1: ((0, 0),), 3: ((0, 0), (0, 1), (1, 0)), 4: ((0, 0), (0, 1), (1, 0), (1, 1))}
# How a part is rounded to whole numbers of its last place.
ROUNDINGS: dict[str, Callable[[Floats], Floats]] = {
    "RZ": np.trunc,
    "RNE": np.rint,
    "RNA": lambda x: np.trunc(x + np.copysign(0.5, x)),
}
# Tolerance of single products in f32, rounded several times.
OF_PRODUCTS = 2.0**-21
SEVERAL_ROUNDINGS = "each product of f32 operands is rounded several times: it seems to be a sum of products of parts"
# Fraction of a number that its second part has at least in each format, so that the product of two second parts is visible.
LARGE_LOW = {10: 2.0**-12, 7: 2.0**-9}


def find_parts(subject: RecordedCallable, seed: int) -> str:
    """Return how f32 operands are rounded before they are multiplied, or split into parts; "" if each product is rounded once.

    One product is probed in each element. The nearer of two explanations counts.
    """
    spec, rng = subject.spec, np.random.default_rng((seed, 0x9B))
    if any(fmt.name != "f32" for fmt in (spec.a, spec.b, spec.out)) or spec.scale is not None or spec.a_exponent is not None:
        return ""
    a, b = (np.zeros((lines, spec.k), np.float32) for lines in (spec.m, spec.n))
    a[:, 0], b[:, 0] = (_with_large_parts(lines, rng) for lines in (spec.m, spec.n))
    d = spec.out.values(subject.product(a.view(np.uint32), b.view(np.uint32), keep=False))
    x, y = (lines[:, 0].astype(np.float64) for lines in (a, b))
    exact = np.outer(x, y)

    def explains(products: Floats) -> bool:
        return bool((np.abs(d - products) <= OF_PRODUCTS * np.abs(exact)).mean() >= AGREEING)

    nearest = exact.astype(np.float32).astype(np.float64)
    truncated = np.where(np.abs(nearest) > np.abs(exact), np.nextafter(nearest.astype(np.float32), np.float32(0)), nearest)
    if max((d == nearest).mean(), (d == truncated).mean()) >= AGREEING:
        return ""
    found, least = "", np.inf
    if explains(exact):
        found, least = SEVERAL_ROUNDINGS, float(np.mean(np.abs(d - exact) / np.abs(exact)))
    for (name, bits), (how, rounding), (count, pairs) in product(PART_BITS.items(), ROUNDINGS.items(), MULTIPLIED.items()):
        highs = [_rounded(each, bits, rounding) for each in (x, y)]
        of_x, of_y = ((high, _rounded(each - high, bits, rounding)) for each, high in zip((x, y), highs, strict=True))
        products = np.sum([np.outer(of_x[i], of_y[j]) for i, j in pairs], axis=0)
        error = float(np.mean(np.abs(d - products) / np.abs(exact)))
        if error < least and explains(products):
            rounded = f"f32 operands are rounded to {name}, {how}{': give --dtype tf32' if name == 'tf32' else ''}"
            several = f"each product of f32 operands is the sum of {count} products of {name} parts"
            found, least = rounded if count == 1 else several, error
    return found


def _with_large_parts(lines: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random numbers that differ enough from their roundings to tf32 and to bf16."""
    x = rng.standard_normal(64 * lines, np.float32)
    large = [np.abs(x - _rounded(x.astype(np.float64), bits, np.rint)) > least * np.abs(x) for bits, least in LARGE_LOW.items()]
    return x[np.all(large, axis=0)][:lines]


def _rounded(x: Floats, bits: int, rounding: Callable[[Floats], Floats]) -> Floats:
    significand, exponent = np.frexp(x)
    return np.asarray(np.ldexp(rounding(significand * 2.0 ** (bits + 1)), exponent - bits - 1))
