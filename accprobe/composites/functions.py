"""Scalar functions of float32 as libraries compute them, bit for bit: candidates for the steps around a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.product import sum_as_f32
from accprobe.evaluate.tiles import is_there
from accprobe.function.compositions import recorded_unit
from accprobe.function.quadratic import module_of
from accprobe.function.records import model_of
from accprobe.gemm.callables.arrays import ArrayLibrary
from accprobe.isa.formats import FORMATS, Format

SingleValues = NDArray[Any]  # of float32
SingleFunction = Callable[[SingleValues], SingleValues]

SINGLE = FORMATS["f32"]
# The start of the name of a function that only its library computes.
LIBRARY = "torch:"


def fma(a: Any, b: Any, c: Any) -> SingleValues:
    """Return a · b + c of float32 numbers, of numpy or cupy, rounded once."""
    on_cpu = all(module_of(each) is np for each in (a, b, c))
    fused: SingleValues = (_fused_on_cpu if on_cpu else _fused_on_gpu)()(a, b, c)
    return fused


@cache
def _fused_on_cpu() -> Any:
    if not is_there():
        return lambda a, b, c: sum_as_f32(*np.broadcast_arrays(np.multiply(a, b, dtype=np.float64), np.asarray(c, np.float32)))
    from accprobe.evaluate.lanes import multiply_add_singles

    return multiply_add_singles


@cache
def _fused_on_gpu() -> Any:
    import cupy

    return cupy.ElementwiseKernel("float32 a, float32 b, float32 c", "float32 y", "y = fmaf(a, b, c)", "accprobe_fma")


def _polynomial(x: SingleValues, coefficients: Sequence[float]) -> SingleValues:
    """Return the value of a polynomial, the highest power first, by fused multiply-adds."""
    total = np.full_like(x, np.float32(coefficients[0]))
    for coefficient in coefficients[1:]:
        total = fma(total, x, np.float32(coefficient))
    return total


def _cuda_expf(unit: SingleFunction) -> SingleFunction:
    """Return expf of CUDA without fast math, read in SASS of sm_90a: 2^n · ex2.approx(x · log2 e - n)."""

    def function(x: SingleValues) -> SingleValues:
        scaled = np.clip(fma(x, np.float32(0.0057249800302088261), np.float32(0.5)), np.float32(0), np.float32(1))
        shifted = np.floor(np.multiply(scaled, 252, dtype=np.float64) + 12582913).astype(np.float32)
        n = (shifted - np.float32(12583039)).astype(np.float32)
        rest = fma(x, np.float32(1.4426950216293335), -n)
        rest = fma(x, np.float32(1.925963033500011e-08), rest)
        power: SingleValues = (shifted.view(np.uint32) << np.uint32(23)).view(np.float32)
        return power * unit(rest)

    return function


def _cuda_logf(x: SingleValues) -> SingleValues:
    """Return logf of CUDA for positive normal numbers, read in PTX of sm_90: x = m · 2^n with m in [2/3, 4/3)."""
    words = x.view(np.int32)
    power = (words - 0x3F2AAAAB) & -0x800000
    f = (words - power).view(np.float32) - np.float32(1)
    n = power.astype(np.float32) * np.float32(2.0**-23)
    total = _polynomial(f, _CUDA_LOG)
    return fma(n, np.float32(0.693147182464599609), fma(f * total, f, f))


_CUDA_LOG = (
    *(-0.130188569, 0.140846103, -0.121486276, 0.139806107, -0.166842356),
    *(0.200122997, -0.249996692, 0.333331823, -0.5),
)


def _sleef_expf(x: SingleValues) -> SingleValues:
    """Return expf of SLEEF with an error of 1.0 ulp, with fused multiply-adds (src/libm/sleefsimdsp.c, xexpf)."""
    n = np.rint(x * np.float32(1.442695040888963407))
    rest = fma(n, np.float32(-0.693145751953125), x)
    rest = fma(n, np.float32(-1.428606765330187045e-06), rest)
    total = _polynomial(rest, (1.9852762e-4, 1.3930436e-3, 8.3333608e-3, 4.1666485e-2, 0.16666667, 0.5))
    found = np.float32(1) + fma(rest * rest, total, rest)
    scaled = np.ldexp(found.astype(np.float64), np.clip(n, -2000, 2000).astype(np.int32)).astype(np.float32)
    return np.where(x < -104, np.float32(0), scaled)


def _sleef_logf(x: SingleValues) -> SingleValues:
    """Return logf of SLEEF with an error of 1.0 ulp for positive normal numbers (src/libm/sleefsimdsp.c, xlogf_u1).

    x = m · 2^e with m in [3/4, 3/2); q = (m - 1) / (m + 1) and the sum are pairs of float32 numbers.
    """
    one = np.float32(1)
    e = np.frexp(x * np.float32(1 / 0.75))[1] - 1
    m = np.ldexp(x, -e).astype(np.float32)
    e = e.astype(np.float32)
    log2 = np.float32(0.69314718246459960938)
    high = log2 * e
    low = fma(np.float32(-1.904654323148236017e-09), e, fma(log2, e, -high))
    (above, above_low), (below, below_low) = _pair(-one, m), _pair(one, m)
    inverse = one / below
    q = above * inverse
    q_low = fma(q, fma(-below_low, inverse, fma(-below, inverse, one)), fma(above_low, inverse, fma(inverse, above, -q)))
    square = q * q
    t = _polynomial(square, (0.3027294874, 0.3996108174, 0.6666694880))
    total = high + 2 * q
    total_low = ((high - total) + 2 * q) + low + 2 * q_low
    last = (square * q) * t
    found: SingleValues = total + last
    found += ((total - found) + last) + total_low
    return found


def _pair(a: Any, b: SingleValues) -> tuple[SingleValues, SingleValues]:
    """Return a + b and its rounding error."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def _unit(name: str) -> SingleFunction | None:
    """Return the model of a special function unit, None if it is not recorded."""
    record = recorded_unit(name)
    if record is None:
        return None
    model = model_of(record)
    return lambda x: model.words(x.astype(np.float32, order="C", copy=False).view(np.uint32)).view(np.float32)


def _once(exact: Callable[[Any], Any]) -> SingleFunction:
    return lambda x: exact(x.astype(np.float64)).astype(np.float32)


ROUNDED_ONCE = "{} rounded once"
_KNOWN: Mapping[str, tuple[tuple[str, SingleFunction], ...]] = {
    "rsqrt": (("1 / sqrt, both rounded", lambda x: np.float32(1) / np.sqrt(x)),),
    "exp": (("expf of SLEEF", _sleef_expf),),
    "log": (("logf of SLEEF", _sleef_logf), ("logf of CUDA", _cuda_logf)),
    "sqrt": ((ROUNDED_ONCE.format("sqrt"), np.sqrt),),
}
# Exact functions, rounded once. No library's code says that it computes them so; accurate ones differ for few operands.
GUESSES: Mapping[str, tuple[str, SingleFunction]] = {
    name: (ROUNDED_ONCE.format(name), _once(exact))
    for name, exact in (("rsqrt", lambda x: 1 / np.sqrt(x)), ("exp", np.exp), ("log", np.log))
}
# Fresh results that a guess needs. The closest known pair is torch's exp and log with AVX512, and the exact functions. They
# give other bits in 1 of 365 to 2,500 rows of logsumexp (16 to 4,096 elements); torch's log alone in 1 of 30,000 to 130,000.
# In 16 bits, rsqrt.approx and the exact root give other results in 1 of 36,000 rows of rms_norm (1,024 elements), measured on
# an H200.
ENOUGH_FOR_GUESS, ENOUGH_IN_16_BITS = 1 << 18, 1 << 25


def enough_for_guess(out: Format) -> int:
    """Return the number of fresh results that confirm a guess."""
    return ENOUGH_FOR_GUESS if out is SINGLE else ENOUGH_IN_16_BITS


def guesses_in(names: str) -> list[str]:
    """Return the functions of a combination that are guesses."""
    return [name for name, _ in GUESSES.values() if name in names.split(" and ")]


def _of_units(function: str) -> Iterator[tuple[str, SingleFunction]]:
    if function == "exp" and (unit := _unit("ex2.approx.ftz.f32")):
        yield "expf of CUDA", _cuda_expf(unit)
    if function == "rsqrt":
        for name in ("rsqrt.approx.f32", "rsqrt.approx.ftz.f32"):
            if unit := _unit(name):
                yield name, unit


def functions_of(function: str, library: ArrayLibrary | None = None) -> Iterator[tuple[str, SingleFunction]]:
    """Yield ways to compute a scalar function in float32 by name: guesses after known ones, then as the library computes it."""
    yield from _KNOWN[function]
    yield from _of_units(function)
    if function in GUESSES:
        yield GUESSES[function]
    if library is not None:
        yield LIBRARY + function, _of_library(function, library)


def combinations(
    functions: Sequence[str], library: ArrayLibrary | None = None
) -> Iterator[tuple[str, tuple[SingleFunction, ...]]]:
    """Yield ways to compute several scalar functions: their names, and the functions in the same order."""
    for chosen in product(*(tuple(functions_of(function, library)) for function in functions)):
        yield " and ".join(name for name, _ in chosen), tuple(compute for _, compute in chosen)


def _of_library(function: str, library: ArrayLibrary) -> SingleFunction:
    import torch

    called = getattr(torch, function)

    def words(x: SingleValues) -> SingleValues:
        result = called(library.operand("function", np.atleast_2d(x).view(np.uint32), SINGLE))
        found: SingleValues = library.patterns(result, SINGLE).view(np.float32).reshape(x.shape)
        return found

    return words
