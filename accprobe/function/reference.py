"""Reference values of scalar functions in float64, and their correct rounding to a format.

A float64 value with an error below 2^-52 rounds correctly to at most 24 bits, except close to the boundary of two numbers.
About 16 of 2^32 results may round wrongly. So shares of correctly rounded f32 results have that uncertainty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeVar

import numpy as np

from accprobe.function.quadratic import module_of
from accprobe.isa.formats import FORMATS, Format

RoundingMode = Literal["RNE", "RNA", "RZ", "RD", "RU"]
Overflow = Literal["infinity", "largest", "NaN"]
ROUNDING_MODES: tuple[RoundingMode, ...] = ("RNE", "RZ", "RD", "RU", "RNA")
OVERFLOWS: tuple[Overflow, ...] = ("infinity", "largest", "NaN")


def _sigmoid(x: Any) -> Any:
    xp = module_of(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1 / (1 + small), small / (1 + small))


def _special(name: str, x: Any) -> Any:
    if module_of(x) is not np:
        from importlib import import_module

        return getattr(import_module("cupyx.scipy.special"), name)(x)
    return np.frompyfunc(getattr(math, name), 1, 1)(x).astype(x.dtype)


def _erfc(x: Any) -> Any:
    return 1 - _special("erf", x) if x.dtype == np.float32 else _special("erfc", x)


def _times(x: Any, factor: Any) -> Any:
    """Return x · factor, where a factor of zero wins over an infinite x."""
    return module_of(x).where(factor == 0, 0 * factor, x * factor)


def _of_library(name: str) -> Callable[[Any], Any]:
    """Return the function of that name of numpy or cupy."""
    return lambda x: getattr(module_of(x), name)(x)


_OF_LIBRARIES = ("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sqrt", "sin", "cos", "tan", "tanh", "absolute")

FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "identity": lambda x: x,
    **{name: _of_library(name) for name in _OF_LIBRARIES},
    "rsqrt": lambda x: 1 / module_of(x).sqrt(x),
    "reciprocal": lambda x: 1 / x,
    "sigmoid": _sigmoid,
    "silu": lambda x: _times(x, _sigmoid(x)),
    "gelu": lambda x: _times(x, 0.5 * _erfc(-x * math.sqrt(0.5))),
    "gelu_tanh": lambda x: _times(x, _sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "relu": lambda x: module_of(x).maximum(x, 0),
    "softplus": lambda x: module_of(x).logaddexp(0, x),
    "erf": lambda x: _special("erf", x),
    "square": lambda x: x * x,
    "negative": lambda x: -x,
}
"""Functions of float64 arrays of numpy or cupy. With float32 arrays, each step rounds to float32."""


@np.errstate(all="ignore")
def reference(name: str, x: Any) -> Any:
    """Return a function's float64 values; NaN where it is not defined."""
    return FUNCTIONS[name](x)


def exact_values(name: str, fmt: Format, flushed: bool = False) -> Callable[[Any], Any]:
    """Return a function from operand words to float64 values of a reference function.

    flushed: subnormal operands become zeros. Values of operands of at most 16 bits come from a table that numpy makes, because
    `exp2` of a whole number is not always exact on a GPU.
    """

    def values(words: Any) -> Any:
        found = values_of_words(words, fmt)
        return flush(found, fmt) if flushed else found

    if fmt.storage_bits > 16:
        return lambda words: reference(name, values(words))
    table = reference(name, values(np.arange(1 << fmt.storage_bits, dtype=fmt.dtype)))
    return lambda words: module_of(words).asarray(table)[words]


def flush(values: Any, fmt: Format) -> Any:
    """Return values with subnormal ones replaced by zeros of their sign."""
    xp = module_of(values)
    return xp.where(xp.abs(values) < 2.0**fmt.min_exponent, xp.copysign(0.0, values), values) if fmt.is_float else values


@dataclass(frozen=True)
class FormatConversion:
    """How float64 values become words of a format.

    overflow: the result of finite values that are too large; "IEEE 754": infinity, or the largest number where the rounding is
    towards it. infinite: the result of infinities. Integers are always saturated. nan: the word of NaN; None: any NaN. flushed:
    subnormal results become zero. relu: negative results become zero.
    """

    rounding: RoundingMode = "RNE"
    overflow: Overflow | Literal["IEEE 754"] = "infinity"
    infinite: Overflow = "infinity"
    nan: int | None = 0
    flushed: bool = False
    relu: bool = False

    def words(self, values: Any, fmt: Format) -> Any:
        """Return the words of values, int64."""
        return self._integers(values, fmt) if fmt.is_integer else self._floats(values, fmt)

    def _floats(self, values: Any, fmt: Format) -> Any:
        xp = module_of(values)
        size = xp.abs(values)
        negative = xp.signbit(values)
        ordinary = xp.isfinite(values)
        size = xp.where(ordinary, size, 0)
        exponent = _exponent(size, fmt)
        whole = _rounded(xp.ldexp(size, (fmt.mantissa_bits - exponent).astype(np.int32)), negative, self.rounding)
        words = (exponent - fmt.min_exponent << fmt.mantissa_bits) + whole << fmt.ignored_low_bits
        if not fmt.mantissa_bits:  # powers of two alone: the word of the smallest one is 0
            words = xp.maximum(words - 1, 0)
        if self.flushed:
            words = xp.where(words < 1 << fmt.mantissa_bits + fmt.ignored_low_bits, 0, words)
        words = xp.where(words > fmt.largest, self._overflowed(negative, fmt), words)
        words = xp.where(xp.isinf(values), self.too_large(fmt, self.infinite), words)
        if self.relu:
            words, negative = xp.where(negative, 0, words), negative & False
        words = words | xp.where(negative, fmt.sign_bit, 0)
        return xp.where(xp.isnan(values), self.nan_word(fmt), words)

    def nan_word(self, fmt: Format) -> int:
        if self.nan is not None:
            return self.nan
        return 0 if fmt.is_integer else _bits_of_size(fmt)

    def _overflowed(self, negative: Any, fmt: Format) -> Any:
        if self.overflow != "IEEE 754":
            return self.too_large(fmt, self.overflow)
        is_largest = {"RZ": negative | True, "RD": ~negative, "RU": negative}.get(self.rounding, negative & False)
        return module_of(negative).where(is_largest, fmt.largest, self.too_large(fmt, "infinity"))

    def too_large(self, fmt: Format, overflow: Overflow) -> int:
        if overflow == "largest":
            return fmt.largest
        return self.nan_word(fmt) if overflow == "NaN" or fmt.infinity is None else fmt.infinity

    def _integers(self, values: Any, fmt: Format) -> Any:
        xp = module_of(values)
        lowest = -(1 << fmt.bits - 1) if fmt.kind == "signed" else 0
        bounded = xp.where(xp.isnan(values), 0, values).clip(lowest - 1, fmt.largest + 1)
        whole = _rounded(xp.abs(bounded), bounded < 0, self.rounding)
        signed = xp.where(bounded < 0, -whole, whole).clip(lowest, fmt.largest)
        return xp.where(xp.isnan(values), self.nan_word(fmt), signed & (1 << fmt.bits) - 1)


Rules = TypeVar("Rules", bound=Any)


def fit_fields(rules: Rules, choices: Mapping[str, tuple[Any, ...]], wrong: Callable[[Rules], int]) -> Rules:
    """Return a dataclass with the choice for each field, one after another, for which the fewest results are wrong."""
    for field, some in choices.items():
        rules = min((replace(rules, **{field: each}) for each in some), key=wrong)
    return rules


def _exponent(size: Any, fmt: Format) -> Any:
    """Return the exponent of the format's numbers near a size. Small sizes have the exponent of subnormal numbers."""
    xp = module_of(size)
    return xp.where(size > 0, xp.maximum(xp.frexp(size)[1] - 1, fmt.min_exponent), fmt.min_exponent).astype(np.int64)


def _rounded(size: Any, negative: Any, rounding: RoundingMode) -> Any:
    """Return sizes rounded to integers; negative: their signs."""
    xp = module_of(size)
    below = xp.floor(size)
    rest = size - below
    whole = below.astype(np.int64)
    up = {
        "RNE": lambda: (rest > 0.5) | (rest == 0.5) & (whole & 1 == 1),
        "RNA": lambda: rest >= 0.5,
        "RZ": lambda: rest > 1,
        "RD": lambda: (rest > 0) & negative,
        "RU": lambda: (rest > 0) & ~negative,
    }[rounding]()
    return whole + up


def errors_in_ulp(words: Any, exact: Any, fmt: Format) -> Any:
    """Return the distance of finite float results from exact float64 values in units in the last place; NaN elsewhere."""
    xp = module_of(exact)
    values = values_of_words(words, fmt)
    exponent = _exponent(xp.abs(exact), fmt)
    with np.errstate(all="ignore"):
        distance = xp.ldexp(xp.abs(values - exact), (fmt.mantissa_bits - exponent).astype(np.int32))
    return xp.where(xp.isfinite(values) & xp.isfinite(exact), distance, xp.nan)


def word_text(word: int, fmt: Format) -> str:
    """Return "0x3f8d (1.1015625)"."""
    return f"0x{word:0{fmt.storage_bits // 4}x} ({float(fmt.values(np.array([word], fmt.dtype))[0]):.{fmt.digits}g})"


def _bits_of_size(fmt: Format) -> int:
    """Return the word of all bits without the sign: a NaN if the format has one."""
    return (fmt.sign_bit or 1 << fmt.bits) - 1


def special_words(fmt: Format) -> dict[str, int]:
    """Return by name the words of zeros, the smallest subnormal, a NaN and infinities, as far as a float format has them."""
    named = {"+0": 0} if fmt.mantissa_bits else {}
    named |= {"-0": fmt.sign_bit} if fmt.sign_bit else {}
    named |= {"subnormal": 1 << fmt.ignored_low_bits} if fmt.mantissa_bits else {}
    named |= {"NaN": _bits_of_size(fmt)} if fmt.specials != "none" else {}
    if fmt.infinity is not None:
        named |= {"+inf": fmt.infinity, "-inf": fmt.infinity | fmt.sign_bit}
    return named


@np.errstate(invalid="ignore")  # a signalling NaN becomes quiet
def values_of_words(words: Any, fmt: Format) -> Any:
    """Return the float64 values of words of numpy or cupy."""
    xp = module_of(words)
    if fmt.is_integer:
        whole = words.astype(np.int64) & (1 << fmt.bits) - 1
        return (whole - ((whole >> fmt.bits - 1 & 1) << fmt.bits if fmt.kind == "signed" else 0)).astype(np.float64)
    if fmt.name == "f64" or (xp is np and fmt.name in ("f32", "f16")):
        return words.astype(fmt.dtype).view(fmt.ml_dtype).astype(np.float64)
    if fmt.storage_bits == 32 or fmt.name == "bf16":
        singles = words.astype(np.uint32) << np.uint32(32 - fmt.storage_bits)
        singles &= np.uint32(~((1 << fmt.ignored_low_bits) - 1) & 0xFFFFFFFF)
        return singles.view(np.float32).astype(np.float64) if xp is np else _cupy_conversions()[0](singles)
    table = xp.asarray(fmt.values(np.arange(1 << fmt.storage_bits, dtype=fmt.dtype)))
    return table[words]


def leading_bits(words: Any, operand: Format, result: Format) -> Any:
    """Return the leading bits of operand words as a result; bits that the result ignores are zero."""
    shift = operand.storage_bits - result.storage_bits
    whole = words.astype(np.int64)
    return (whole >> shift if shift >= 0 else whole << -shift) & ~((1 << result.ignored_low_bits) - 1)


def is_nan(words: Any, fmt: Format) -> Any:
    """Mark the NaNs among words of numpy or cupy."""
    if not fmt.is_float or fmt.specials == "none":
        return words != words
    last = fmt.infinity if fmt.infinity is not None else fmt.largest
    return (words & fmt.dtype.type(_bits_of_size(fmt))) > last


def unlike(results: Any, expected: Any, fmt: Format, any_nan: bool) -> Any:
    """Mark results that differ from the expected ones. any_nan: one NaN is as good as another."""
    expected = expected.astype(results.dtype)
    differ = results != expected
    return differ & ~(is_nan(results, fmt) & is_nan(expected, fmt)) if any_nan else differ


@np.errstate(over="ignore", invalid="ignore")
def words_of_singles(values: Any) -> Any:
    """Return the f32 words of float64 values, rounded to nearest even; every NaN is 0x7fffffff."""
    if module_of(values) is np:
        return np.where(np.isnan(values), np.uint32(0x7FFFFFFF), values.astype(np.float32).view(np.uint32))
    return _cupy_conversions()[1](values)


@cache
def _cupy_conversions() -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """Return conversions of f32 words to float64 values and back that keep subnormal numbers, which cupy's own flush."""
    import cupy

    to_double = 'double v; asm("cvt.f64.f32 %0, %1;" : "=d"(v) : "f"(__uint_as_float(x))); y = v'
    to_single = 'float v; asm("cvt.rn.f32.f64 %0, %1;" : "=f"(v) : "d"(x)); y = x == x ? __float_as_uint(v) : 0x7fffffffu'
    return (
        cupy.ElementwiseKernel("uint32 x", "float64 y", to_double, "values_of_singles"),
        cupy.ElementwiseKernel("float64 x", "uint32 y", to_single, "words_of_singles"),
    )


@np.errstate(over="ignore", invalid="ignore")
def single(values: Any) -> Any:
    """Return float64 values rounded to f32, as float64."""
    if module_of(values) is np:
        return values.astype(np.float32).astype(np.float64)
    return values_of_words(words_of_singles(values), FORMATS["f32"])
