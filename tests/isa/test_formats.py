"""Every code of every format of at most 16 bits, against ml_dtypes; random patterns of the wider ones, against numpy."""

from __future__ import annotations

import math

import numpy as np
import pytest

from accprobe.errors import AccprobeError
from accprobe.isa.formats import FORMATS, Format

FLOATS = [f for f in FORMATS.values() if f.is_float]
SMALL = [f for f in FLOATS if f.storage_bits <= 16]
INTEGERS = [f for f in FORMATS.values() if f.is_integer]


def codes(fmt: Format) -> np.ndarray:
    return np.arange(1 << fmt.bits, dtype=fmt.dtype)


def edges(fmt: Format) -> np.ndarray:
    """Patterns around every boundary of a wide format, both signs, and random ones."""
    unit = 1 << fmt.ignored_low_bits
    hidden = 1 << (fmt.mantissa_bits + fmt.ignored_low_bits)
    positive = [0, unit, hidden - unit, hidden, hidden + unit, fmt.largest - unit, fmt.largest]
    positive += [fmt.infinity, fmt.infinity + unit, fmt.infinity + hidden // 2, fmt.sign_bit - 1]
    random = np.random.default_rng(1).integers(0, 1 << fmt.storage_bits, 100_000, fmt.dtype)
    subnormal = random & fmt.dtype.type(fmt.sign_bit | (hidden - 1))
    return np.concatenate(
        [np.array(positive, fmt.dtype), np.array([p | fmt.sign_bit for p in positive], fmt.dtype), random, subnormal]
    )


def reference(fmt: Format, patterns: np.ndarray) -> np.ndarray:
    """The values as float64, from ml_dtypes or numpy."""
    kept = patterns & fmt.dtype.type((1 << fmt.storage_bits) - (1 << fmt.ignored_low_bits))
    with np.errstate(invalid="ignore"):  # a signalling NaN
        return kept.view(fmt.ml_dtype).astype(np.float64)


@pytest.mark.parametrize("fmt", FLOATS, ids=str)
def test_values_are_those_of_ml_dtypes(fmt: Format) -> None:
    patterns = codes(fmt) if fmt in SMALL else edges(fmt)
    got, want = fmt.values(patterns), reference(fmt, patterns)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(np.signbit(got[~np.isnan(got)]), np.signbit(want[~np.isnan(want)]))


@pytest.mark.parametrize("fmt", FLOATS, ids=str)
def test_encode_is_the_inverse_of_values(fmt: Format) -> None:
    unused = fmt.dtype.type((1 << fmt.ignored_low_bits) - 1)
    patterns = codes(fmt) if fmt in SMALL else edges(fmt)[:3000] & ~unused
    values = fmt.values(patterns)
    finite = np.isfinite(values)
    for pattern, value in zip(patterns[finite].tolist(), values[finite].tolist(), strict=True):
        part, exponent = math.frexp(abs(value))
        significand, negative = int(part * 2**53), math.copysign(1, value) < 0
        assert fmt.encode(negative, significand, exponent - 53) == pattern
        assert fmt.encode(negative, significand << 5, exponent - 58) == pattern


@pytest.mark.parametrize("fmt", FLOATS, ids=str)
def test_values_outside_a_format_have_no_pattern(fmt: Format) -> None:
    exponent = fmt.max_exponent - fmt.mantissa_bits
    top = int(math.ldexp(fmt.largest_value, -exponent))
    assert fmt.try_encode(top, exponent) == fmt.largest
    assert fmt.try_encode(top + 1, exponent) is None
    assert fmt.try_encode(2 * top + 1, exponent - 1) is None
    assert fmt.try_encode((1 << (fmt.mantissa_bits + 1)) + 1, fmt.min_exponent) is None
    assert fmt.try_encode(1, fmt.min_exponent - fmt.mantissa_bits - 1) is None
    with pytest.raises(AccprobeError, match=rf"^{top + 1} \* 2\^{exponent} is not a value of {fmt.name}$"):
        fmt.encode(False, top + 1, exponent)


def test_tf32_is_f32_without_its_low_13_bits() -> None:
    tf32, f32 = FORMATS["tf32"], FORMATS["f32"]
    assert (tf32.largest, tf32.infinity, tf32.sign_bit) == (0x7F7FE000, f32.infinity, f32.sign_bit)
    assert (tf32.min_exponent, tf32.max_exponent) == (f32.min_exponent, f32.max_exponent)
    dirty = np.array([0x3F801FFF, 0x7F801FFF, 0x00001FFF], np.uint32)
    assert tf32.values(dirty).tolist() == [1.0, np.inf, 0.0]


@pytest.mark.parametrize("name", ["ue8m0", "ue4m3"])
def test_scales_have_no_sign(name: str) -> None:
    fmt = FORMATS[name]
    assert fmt.sign_bit == 0
    assert not (fmt.values(np.arange(256, dtype=np.uint8)) < 0).any()
    with pytest.raises(AccprobeError, match=rf"^-1 \* 2\^0 is not a value of {name}$"):
        fmt.encode(True, 1, 0)


@pytest.mark.parametrize("fmt", [f for f in SMALL if f.bits < f.storage_bits and f.kind == "float"], ids=str)
def test_bits_above_a_narrow_format_are_ignored(fmt: Format) -> None:
    dirty = codes(fmt) | np.uint8(0xFF << fmt.bits & 0xFF)
    np.testing.assert_array_equal(fmt.values(dirty), fmt.values(codes(fmt)))


@pytest.mark.parametrize("fmt", [f for f in INTEGERS if f.bits <= 8], ids=str)
def test_integers_of_every_code(fmt: Format) -> None:
    want = [c - (1 << fmt.bits) if fmt.kind == "signed" and c >> (fmt.bits - 1) else c for c in range(1 << fmt.bits)]
    assert fmt.integers(codes(fmt)).tolist() == want
    assert fmt.values(codes(fmt)).tolist() == want
    assert fmt.integers(np.array([fmt.largest], fmt.dtype))[0] == max(want)
