"""Scalar functions of float32 as libraries compute them, bit for bit: candidates for the steps around a sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.product import sum_as_f32
from accprobe.evaluate.tiles import is_there
from accprobe.function.quadratic import module_of
from accprobe.function.records import recorded_models
from accprobe.isa.formats import FORMATS

SingleValues = NDArray[Any]  # of float32
SingleFunction = Callable[[SingleValues], SingleValues]

SINGLE = FORMATS["f32"]


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


def _unit(name: str, x: SingleValues) -> SingleValues:
    """Return the results of a recorded instruction of the special function unit."""
    words = recorded_models()[name].words(x.astype(np.float32, order="C", copy=False).view(np.uint32))
    found: SingleValues = words.view(np.float32)
    return found


def _cuda_expf(x: SingleValues) -> SingleValues:
    """Return expf of CUDA without fast math, read in SASS of sm_90a: 2^n · ex2.approx(x · log2 e - n)."""
    scaled = np.clip(fma(x, np.float32(0.0057249800302088261), np.float32(0.5)), np.float32(0), np.float32(1))
    shifted = np.floor(np.multiply(scaled, 252, dtype=np.float64) + 12582913).astype(np.float32)
    n = (shifted - np.float32(12583039)).astype(np.float32)
    rest = fma(x, np.float32(1.4426950216293335), -n)
    rest = fma(x, np.float32(1.925963033500011e-08), rest)
    power: SingleValues = (shifted.view(np.uint32) << np.uint32(23)).view(np.float32)
    return power * _unit("ex2.approx.ftz.f32", rest)


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


FUNCTION_VARIANTS: Mapping[str, Mapping[str, SingleFunction]] = {
    "exp": {"expf of CUDA": _cuda_expf},
    "log": {"logf of CUDA": _cuda_logf},
    "sqrt": {"sqrt rounded once": np.sqrt},
    "rsqrt": {
        "1 / sqrt, both rounded": lambda x: np.float32(1) / np.sqrt(x),
        **{name: partial(_unit, name) for name in ("rsqrt.approx.f32", "rsqrt.approx.ftz.f32")},
    },
}
"""Ways to compute a scalar function in float32, by name."""

# Fresh 16-bit results that confirm a function. rsqrt.approx and the exact root differ in 1 of 36,000 rows of rms_norm (1,024
# elements) on an H200.
ENOUGH_IN_16_BITS = 1 << 25


def combinations(functions: Sequence[str]) -> Iterator[tuple[str, tuple[SingleFunction, ...]]]:
    """Yield ways to compute several scalar functions: their names, and the functions in the same order."""
    for chosen in product(*(FUNCTION_VARIANTS[function].items() for function in functions)):
        yield " and ".join(name for name, _ in chosen), tuple(compute for _, compute in chosen)
