"""Recognise how operands and results are rounded: dynamic quantisation, f32 operands in parts, two roundings, clamps.

Sparse random operands are rounded in each way. A way is recognised if its exact product is within the rounding of D, which the
others miss by far. A plan describes one rounding to the format of D; other conversions of single products are named, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import layout_of
from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import Singles
from accprobe.evaluate.quantised import Sharing, nearest_patterns, quantised_operand
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.isa.formats import FORMATS, Format
from accprobe.operands.distributions import random_lines, times_power

# Number of nonzero k, few so that the quantisation error is large beside the error of the sums. Number of nonzero lines.
NONZERO, PROBED_LINES = 32, 64
# Exponents of lines, and of blocks of ALIKE k, on both sides of 0: numbers far below the largest lose bits.
OF_LINES, OF_BLOCKS, ALIKE = 3, 10, 16
# Tolerance of sums, relative to the sum of absolute products: fp8 units keep 13 fraction bits.
OF_SUMS = 2.0**-11
# Share of the results that must agree: some scales and f32 products lie near a tie and may be rounded either way.
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
# Scales in words, by how they are rounded to a power of two ("": not); {}: the largest code.
SCALES: dict[Literal["", "floor", "ceil"], str] = {
    "": "amax/{}",
    "ceil": "2^ceil(log2(amax/{}))",
    "floor": "2^floor(log2 amax) / 2^floor(log2 {})",
}


# NVFP4. Libraries differ in blocks whose scale is zero in e4m3, so numbers of like size are drawn for it.
NVFP4 = "16 k", "scale e4m3 below one scale of the tensor", Sharing(1, 16, element="e2m1", two_levels=True)
ALIKE_IN_SIZE = (1, 2)
# One code of 4 bits that is rounded the other way changes all results of its line.
AGREEING_CODES = 0.8

# Yields the format of the codes, how they are scaled, what shares a scale, and the values in each way.
Ways = Callable[[Singles], Iterator[tuple[str, str, str, Floats]]]


def find_quantisation(subject: RecordedCallable) -> str:
    """Return how A and B are quantised, "" if no way explains the results or none is needed."""
    spec = subject.spec
    if spec.a.is_integer or spec.scale is not None or spec.a_exponent is not None:
        return ""
    found = _find_quantisation(subject, (OF_LINES, OF_BLOCKS), _ways, AGREEING)
    return found or _find_quantisation(subject, ALIKE_IN_SIZE, _nvfp4, AGREEING_CODES)


def _find_quantisation(subject: RecordedCallable, reach: tuple[int, int], ways: Ways, least: float) -> str:
    """reach: exponents of lines and of blocks; least: share of the results that must agree."""
    spec, rng = subject.spec, subject.rng(0x9A)
    there = np.sort(rng.permutation(spec.k)[:NONZERO])
    of_lines, of_blocks = reach
    of_block = rng.integers(-of_blocks, of_blocks + 1, -(-spec.k // ALIKE))[there // ALIKE]
    words, values = layout_of(spec).blank(), []
    for operand, fmt, sign in zip(words, (spec.a, spec.b), (1, -1), strict=True):
        lines = min(len(operand), PROBED_LINES)
        exponents = rng.integers(-of_lines, of_lines + 1, (lines, 1)) + sign * of_block
        operand[:lines, there] = times_power(fmt, random_lines(fmt, (lines, len(there)), "normal", rng), exponents)
        values.append(fmt.values(operand[:PROBED_LINES]).astype(np.float32))
    d = spec.out.values(subject.product(*words, keep=False)[:PROBED_LINES, :PROBED_LINES])

    def agreeing(a: Floats, b: Floats) -> float:
        exact = a @ b.T
        tolerance = OF_SUMS * (np.abs(a) @ np.abs(b).T) + np.abs(exact) * 2.0**-spec.out.mantissa_bits
        return float((np.abs(d - exact) <= tolerance).mean())

    x, y = (each.astype(np.float64)[:, there] for each in values)
    if agreeing(x, y) >= AGREEING:
        return ""
    kinds: dict[tuple[str, str], list[tuple[str, Floats, Floats]]] = {}
    for (name, how, of, a), (*_, b) in zip(*map(ways, values), strict=True):
        a, b = a[:, there], b[:, there]
        kinds.setdefault((name, how), []).append((of, a, b))
        if spec.a is spec.b and spec.a.storage_bits == 16:
            a, b = (spec.a.values(nearest_patterns(spec.a, each.astype(np.float32))) for each in (a, b))
            kinds.setdefault((name, f"{how}, dequantised to {spec.a}"), []).append((of, a, b))
    found = ""
    for (name, how), several in kinds.items():
        for (of_a, a, _), (of_b, _, b) in product([("", x, x), *several], [("", y, y), *several]):
            if (of_a or of_b) and (share := agreeing(a, b)) >= least:
                found, least = f"{_in_words(name, of_a, of_b)}, {how}", np.nextafter(share, 2)
    return found


def _in_words(fmt: str, of_a: str, of_b: str) -> str:
    of_a, of_b = of_a.replace("line", "row"), of_b.replace("line", "column")
    if of_a and of_b:
        return f"A per {of_a} and B per {of_b} are quantised to {fmt}"
    return f"{'A' if of_a else 'B'} is quantised to {fmt} per {of_a or of_b}"


def _ways(values: Singles) -> Iterator[tuple[str, str, str, Floats]]:
    for name, (power, scale) in product(FORMATS_TRIED, SCALES.items()):
        how = f"scale {scale.format(int(FORMATS[name].largest_value))}"
        for sharing, of in SCALES_OF.items():
            yield name, how, of, quantised_operand(replace(sharing, power_of_two=power), FORMATS[name], values).values()
    yield from _nvfp4(values)


def _nvfp4(values: Singles) -> Iterator[tuple[str, str, str, Floats]]:
    of, how, sharing = NVFP4
    yield "e2m1", how, of, quantised_operand(sharing, FORMATS["e2m1"], values).values()


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
# Fraction of a number that its second part has at least, by fraction bits, so that the product of two second parts is visible.
LARGE_LOW = {10: 2.0**-12, 7: 2.0**-9}


def find_parts(subject: RecordedCallable) -> str:
    """Return how f32 operands are rounded before they are multiplied, or split into parts; "" if nothing shows it.

    One product is probed in each element. The nearer of two explanations counts.
    """
    spec, rng = subject.spec, subject.rng(0x9B)
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
        return _separate_parts(subject, rng)
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
    return (_separate_parts(subject, rng) or found) if found == SEVERAL_ROUNDINGS else found


def _separate_parts(subject: RecordedCallable, rng: np.random.Generator) -> str:
    """Return the parts of f32 operands if their products have separate sums, as in bf16x9; "" if no result shows any.

    A number between X and -X survives whole or not at all in one sum; in several sums its low parts survive alone. In a
    second probe, X has two parts: the sums that survive are those with the third part of y, or all but the first.
    """
    spec = subject.spec
    n = min(spec.m, spec.n)
    if spec.k < 3:
        return ""

    def remainders(x: float, y: tuple[float, float]) -> set[float]:
        a, b = (np.zeros((lines, spec.k), np.float32) for lines in (spec.m, spec.n))
        for i in range(n):
            places = np.sort(rng.permutation(spec.k)[:3])
            a[i, places], b[i, places] = (x, y[0], -x), (x, y[1], x)
        d = spec.out.values(subject.product(a.view(np.uint32), b.view(np.uint32), keep=False))
        return set(np.diag(d[:n, :n]).tolist())

    for name, bits in reversed(PART_BITS.items()):
        low, large = 2.0 ** -(bits + 2), 2.0**24
        if low in (found := remainders(large, (1 + low, 1))) and found <= {0, low, 1 + low}:
            square = remainders(large * (1 + low), (1 + low + low**2,) * 2)
            sums = {6: 2 * low**2, 8: 2 * low**2 + 2 * low**3, 9: 2 * low**2 + 2 * low**3 + low**4}
            count = next((count for count, rest in sums.items() if rest in square), "several")
            return f"each product of f32 operands is the sum of {count} products of {name} parts, added in sums of their own"
    return ""


def _with_large_parts(lines: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random numbers that differ enough from their roundings to tf32 and to bf16."""
    x = rng.standard_normal(64 * lines, np.float32)
    large = [np.abs(x - _rounded(x.astype(np.float64), bits, np.rint)) > least * np.abs(x) for bits, least in LARGE_LOW.items()]
    return x[np.all(large, axis=0)][:lines]


def _rounded(x: Floats, bits: int, rounding: Callable[[Floats], Floats]) -> Floats:
    significand, exponent = np.frexp(x)
    return np.asarray(np.ldexp(rounding(significand * 2.0 ** (bits + 1)), exponent - bits - 1))


# Formats to which sums may be rounded before they are rounded to D.
FIRST_FORMATS = ("f16", "bf16", "e4m3", "e5m2")
# Exponents of f32 products, so that none is subnormal, or infinite before it is converted.
EXPONENTS = (-120, 120)


def find_conversion(subject: RecordedCallable) -> str:
    """Return how single products become results, "" if one rounding explains them or nothing does."""
    spec, rng = subject.spec, subject.rng(0xC0)
    if not spec.out.is_float or spec.out.ml_dtype is None or spec.scale is not None or spec.a_exponent is not None:
        return ""
    a, b = layout_of(spec).blank()
    for fmt, operand in ((spec.a, a), (spec.b, b)):
        operand[:, :1] = random_lines(fmt, (len(operand), 1), "normal", rng)
        operand[::2, :1] = random_lines(fmt, operand[::2, :1].shape, "wide", rng)
    d = spec.out.values(subject.product(a, b, keep=False))
    with np.errstate(all="ignore"):
        exact = np.outer(spec.a.values(a[:, 0]), spec.b.values(b[:, 0]))
        there = (np.abs(exact) > 2.0 ** EXPONENTS[0]) & (np.abs(exact) < 2.0 ** EXPONENTS[1])
        products, d = exact[there].astype(np.float32), d[there]

        def explains(values: Singles) -> bool:
            """Round as a plan does: a format without infinity saturates."""
            largest = np.float32(np.inf if spec.out.infinity is not None else spec.out.largest_value)
            expected = spec.out.values(spec.out.patterns(np.clip(values, -largest, largest)))
            return bool(((d == expected) | np.isnan(d) & np.isnan(expected)).mean() >= AGREEING)

        if not len(d) or explains(products):
            return ""
        return next((words for words, values in _conversions(products, d, spec.out) if explains(values)), "")


def _conversions(products: Singles, d: Floats, out: Format) -> Iterator[tuple[str, Singles]]:
    for name in FIRST_FORMATS:
        first = FORMATS[name]
        most = np.float32(first.largest_value)
        words = f"results are rounded to {name}, then to {out}"
        if first is not out:
            for end, values in ("", products), (f", and saturate at ±{most:g}", np.clip(products, -most, most)):
                yield f"{words}{end}", first.values(first.patterns(values)).astype(np.float32)
    largest = np.float32(np.max(np.abs(d), where=np.isfinite(d), initial=0))
    yield f"results beyond ±{largest:g} become ±{largest:g}: a clamp", np.clip(products, -largest, largest)
