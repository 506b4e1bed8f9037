"""Number formats of matrix units: bit patterns and their values.

A `Format` says how a bit pattern is read. Arrays of bit patterns are unsigned numpy arrays (`Format.dtype`). `bits` and
`storage_bits` differ where a format is narrower than its storage: 7, 6, 4 and 1 bits in a byte, tf32 in 32 bits.

Sources: IEEE 754-2019; OCP 8-bit Floating Point Specification (OFP8); OCP Microscaling Formats (MX) v1.0; PTX ISA,
"Alternate floating point data formats" and "Matrix data-types".
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError, UnknownName, nearest

Bits = NDArray[np.unsignedinteger]

Specials = Literal["ieee", "nan only", "none"]
Kind = Literal["float", "scale", "signed", "unsigned", "bit"]


@dataclass(frozen=True)
class Format:
    """One number format. `mantissa_bits` are fraction bits: 23 for f32, 3 for e4m3."""

    name: str
    kind: Kind
    bits: int
    storage_bits: int
    exponent_bits: int = 0
    mantissa_bits: int = 0
    bias: int = 0
    specials: Specials = "none"
    ignored_low_bits: int = 0
    ml_dtype: type | None = None

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @cached_property
    def dtype(self) -> np.dtype[np.unsignedinteger]:
        """Return the unsigned numpy type that holds one bit pattern."""
        return np.dtype(f"uint{self.storage_bits}")

    @cached_property
    def is_float(self) -> bool:
        return self.kind in ("float", "scale")

    @cached_property
    def is_integer(self) -> bool:
        return self.kind in ("signed", "unsigned", "bit")

    @property
    def family(self) -> str:
        """Return "FP8" of e4m3 and e5m2, "INT4" of s4 and u4, "BF16" of bf16."""
        if self.bits > 8 or self.kind == "bit":
            return self.name.upper()
        return f"{'FP' if self.is_float else 'INT'}{self.bits}"

    @cached_property
    def digits(self) -> int:
        """Return the decimal digits that distinguish each number; narrow formats take f32's digits."""
        return 17 if self.mantissa_bits > 23 else 9

    @cached_property
    def signed(self) -> bool:
        return self.kind in ("float", "signed")

    @cached_property
    def min_exponent(self) -> int:
        """Return the exponent of the smallest normal number, and of every subnormal."""
        return 1 - self.bias if self.mantissa_bits else -self.bias

    @cached_property
    def max_exponent(self) -> int:
        """Return the exponent of the largest finite number."""
        top = (1 << self.exponent_bits) - 1
        return top - self.bias - (1 if self.specials == "ieee" or not self.mantissa_bits else 0)

    def widens_to(self, other: Format) -> bool:
        """Return whether both formats follow IEEE 754, and the other one holds every number and NaN payload of this one."""
        plain = self.specials == other.specials == "ieee" and not self.ignored_low_bits
        return plain and self.exponent_bits <= other.exponent_bits and self.mantissa_bits <= other.mantissa_bits

    @cached_property
    def sign_bit(self) -> int:
        return 1 << (self.storage_bits - 1 if self.ignored_low_bits else self.bits - 1) if self.signed else 0

    @cached_property
    def infinity(self) -> int | None:
        """Return the bit pattern of +Inf, where the format has one."""
        if self.specials != "ieee":
            return None
        return ((1 << self.exponent_bits) - 1) << (self.mantissa_bits + self.ignored_low_bits)

    @cached_property
    def largest(self) -> int:
        """Return the bit pattern of the largest finite number."""
        if self.is_integer:
            return (1 << (self.bits - (self.kind == "signed"))) - 1
        codes = (1 << (self.exponent_bits + self.mantissa_bits)) - 1
        if self.specials == "ieee":
            codes -= 1 << self.mantissa_bits
        elif self.specials == "nan only":
            codes -= 1
        return codes << self.ignored_low_bits

    @cached_property
    def largest_value(self) -> float:
        return float(self.values(np.array([self.largest], self.dtype))[0])

    def is_subnormal(self, patterns: Bits) -> NDArray[np.bool_]:
        """Mark the patterns of a float format that are subnormal or zero; any shape."""
        unsigned = patterns & self.dtype.type(self.sign_bit - 1)
        return np.asarray(unsigned < 1 << (self.mantissa_bits + self.ignored_low_bits)) & self.is_float

    def encode(self, negative: bool, significand: int, exponent: int) -> int:
        """Return the bit pattern of (-1)^negative * significand * 2^exponent. Raises AccprobeError if the format has none."""
        pattern = self.try_encode(significand, exponent)
        if pattern is None or (negative and not self.sign_bit):
            sign = "-" if negative else ""
            raise AccprobeError(f"{sign}{significand} * 2^{exponent} is not a value of {self.name}")
        return pattern | (self.sign_bit if negative else 0)

    def try_encode(self, significand: int, exponent: int) -> int | None:
        """Return the bit pattern of significand * 2^exponent (significand >= 0), or None if the format does not hold it."""
        if significand == 0:
            return 0 if self.mantissa_bits else None
        low = significand & -significand
        significand //= low
        exponent += low.bit_length() - 1
        top = exponent + significand.bit_length() - 1
        if top > self.max_exponent:
            return None
        quantum = max(top, self.min_exponent) - self.mantissa_bits
        if exponent < quantum:
            return None
        whole = significand << (exponent - quantum)
        biased = max(top, self.min_exponent) + self.bias if whole >> self.mantissa_bits else 0
        pattern = ((biased << self.mantissa_bits) | (whole & ((1 << self.mantissa_bits) - 1))) << self.ignored_low_bits
        return pattern if pattern <= self.largest else None

    def whole(self, value: int) -> int:
        """Return the bit pattern of a non-negative integer; 0 if the format does not hold it."""
        if self.is_integer:
            return value if value <= self.largest else 0
        return self.try_encode(value, 0) or 0

    def values(self, patterns: Bits) -> NDArray[np.float64]:
        """Return the values as float64, exact for every format here. Bits of a float above `bits` are ignored."""
        if self.kind == "bit":
            return patterns.astype(np.float64)
        if self.ml_dtype is None:
            raise AccprobeError(f"{self.name} has no value type")
        usable = patterns
        if self.ignored_low_bits:
            usable = patterns & self.dtype.type(~((1 << self.ignored_low_bits) - 1) & 0xFFFFFFFF)
        elif self.is_float and self.bits < self.storage_bits:
            usable = patterns & self.dtype.type((1 << self.bits) - 1)
        with np.errstate(invalid="ignore"):
            return usable.view(self.ml_dtype).astype(np.float64)

    def patterns(self, values: NDArray[Any]) -> Bits:
        """Return the bit patterns of numbers, rounded to nearest, ties to even. Integers wrap; a tf32's low 13 bits stay."""
        if not self.is_float:
            whole: Bits = (np.rint(values).astype(np.int64) & ((1 << self.bits) - 1)).astype(self.dtype)
            return whole
        if self.ml_dtype is None:
            raise AccprobeError(f"{self.name} has no value type")
        with np.errstate(over="ignore", invalid="ignore"):
            found: Bits = values.astype(self.ml_dtype).view(self.dtype)
        return found

    def refuse_wider(self, words: Bits, name: str) -> None:
        """Raise AccprobeError if a word has bits above `bits`, which an evaluation ignores."""
        if self.bits < self.storage_bits and not self.ignored_low_bits and words.size and words.max() >> self.bits:
            top = (1 << self.bits) - 1
            raise AccprobeError(f"{name} has the bit pattern {words.max()}; bit patterns of {self.name} are 0 to {top}")

    def integers(self, patterns: Bits) -> NDArray[np.int64]:
        """Return integer bit patterns as int64: sign-extended from `bits` where signed."""
        whole = (patterns & self.dtype.type((1 << self.bits) - 1)).astype(np.int64)
        if self.kind == "signed":
            whole -= (whole >> (self.bits - 1)) << self.bits
        return whole


def _float(name: str, e: int, m: int, specials: Specials, ml: type, storage: int | None = None, ignored: int = 0) -> Format:
    bits = 1 + e + m
    bias = (1 << (e - 1)) - 1
    return Format(name, "float", bits, storage or max(8, bits), e, m, bias, specials, ignored, ml)


FORMATS: dict[str, Format] = {
    f.name: f
    for f in [
        _float("f64", 11, 52, "ieee", np.float64),
        _float("f32", 8, 23, "ieee", np.float32),
        _float("tf32", 8, 10, "ieee", np.float32, storage=32, ignored=13),
        _float("f16", 5, 10, "ieee", np.float16),
        _float("bf16", 8, 7, "ieee", ml_dtypes.bfloat16),
        _float("e5m2", 5, 2, "ieee", ml_dtypes.float8_e5m2),
        _float("e4m3", 4, 3, "nan only", ml_dtypes.float8_e4m3fn),
        _float("e3m2", 3, 2, "none", ml_dtypes.float6_e3m2fn),
        _float("e2m3", 2, 3, "none", ml_dtypes.float6_e2m3fn),
        _float("e2m1", 2, 1, "none", ml_dtypes.float4_e2m1fn),
        Format("ue8m0", "scale", 8, 8, 8, 0, 127, "nan only", 0, ml_dtypes.float8_e8m0fnu),
        Format("ue4m3", "scale", 7, 8, 4, 3, 7, "nan only", 0, ml_dtypes.float8_e4m3fn),
        Format("s32", "signed", 32, 32, ml_dtype=np.int32),
        Format("u32", "unsigned", 32, 32, ml_dtype=np.uint32),
        Format("s16", "signed", 16, 16, ml_dtype=np.int16),
        Format("s8", "signed", 8, 8, ml_dtype=np.int8),
        Format("u8", "unsigned", 8, 8, ml_dtype=np.uint8),
        Format("s4", "signed", 4, 8, ml_dtype=ml_dtypes.int4),
        Format("u4", "unsigned", 4, 8, ml_dtype=ml_dtypes.uint4),
        Format("b1", "bit", 1, 8),
    ]
}


# Names of formats in other tools that resemble none of the names here.
CALLED = {
    "fp8": "e4m3 or e5m2",
    "float8": "e4m3 or e5m2",
    "f8": "e4m3 or e5m2",
    "fp4": "e2m1",
    "fp6": "e2m3 or e3m2",
    "fp16": "f16",
    "half": "f16",
    "bfloat16": "bf16",
    "fp32": "f32",
    "float": "f32",
    "double": "f64",
    "i8": "s8",
}


def get(name: str) -> Format:
    """Return the format of that name. Raises UnknownName with the nearest names."""
    if name not in FORMATS:
        meant = CALLED.get(name.lower())
        raise UnknownName(f"unknown format '{name}'; {f'did you mean {meant}?' if meant else nearest(name, FORMATS)}")
    return FORMATS[name]


def ordered(fmt: Format, words: Bits) -> NDArray[np.int64]:
    """Return integers with differences that count the steps from one number of the format to the next."""
    if fmt.is_integer:
        return fmt.integers(words)
    size = (words & fmt.dtype.type(fmt.sign_bit - 1)).astype(np.int64)
    return np.where(words & fmt.dtype.type(fmt.sign_bit), -size, size)
