"""Arithmetic instructions whose results numpy computes: rounding, flushing, signs of zeros and NaN are found."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import accprobe
from accprobe.function import rules
from accprobe.function.arithmetic import ARITHMETIC_UNITS, ArithmeticUnit, operands_of
from accprobe.function.rules import measure_arithmetic
from accprobe.isa.formats import Bits

UNITS = {unit.name: unit for unit in ARITHMETIC_UNITS}
TYPES: dict[str, Any] = {"f64": np.float64, "f32": np.float32, "f16": np.float16}


class Planted:
    """A unit on numpy, whose NaN results become one word unless `keeps` is set."""

    device, cubin = "cpu", None

    def __init__(self, unit: ArithmeticUnit, function: Callable[..., Any], keeps: bool) -> None:
        self.unit, self._function, self._keeps = unit, function, keeps

    def words(self, a: Bits, b: Bits, c: Bits) -> Bits:
        fmt = self.unit.fmt
        with np.errstate(all="ignore"):
            given = (a, b, c)[: operands_of(self.unit.operation)]
            values = self._function(*(each.view(TYPES[fmt.name]) for each in given))
        found: Bits = np.ascontiguousarray(values).view(fmt.dtype).copy()
        if not self._keeps:
            found[np.isnan(values)] = fmt.dtype.type(fmt.sign_bit - 1)
        return found


def smaller(a: Any, b: Any) -> Any:
    """Return IEEE 754-2019's minimumNumber: -0 below +0, a number rather than NaN."""
    return np.where(a == b, np.where(np.signbit(a), a, b), np.fmin(a, b))


def flushed(a: Any, b: Any) -> Any:
    tiny = np.finfo(a.dtype).tiny
    a, b = (np.where(np.abs(each) < tiny, np.copysign(each.dtype.type(0), each), each) for each in (a, b))
    total = a + b
    return np.where(np.abs(total) < tiny, np.copysign(total.dtype.type(0), total), total)


def fast_quotient(a: Any, b: Any) -> Any:
    """Return a times the special function unit's reciprocal of b, as `div.approx.f32` is compiled for sm_90a."""
    factor = np.where(np.abs(b) < 2.0**-126, 2.0**24, 1).astype(np.float32)
    return a * factor * accprobe.predict("functions-h200:rcp.approx.ftz.f32", b * factor)


def fused(a: Any, b: Any, c: Any) -> Any:
    """Return C's fma, which rounds once."""
    fma = ctypes.CDLL("libm.so.6").fma
    fma.argtypes, fma.restype = [ctypes.c_double] * 3, ctypes.c_double
    return np.array([fma(*row) for row in zip(a.tolist(), b.tolist(), c.tolist(), strict=True)])


def flushed_below(limit: float) -> Callable[[Any, Any], Any]:
    """Return a product of f16 numbers that is zero below a limit of the exact value."""

    def product(a: Any, b: Any) -> Any:
        exact = a.astype(np.float64) * b.astype(np.float64)
        return np.where(np.abs(exact) < limit, np.copysign(0.0, exact), exact).astype(np.float16)

    return product


def last_nan(a: Any, b: Any) -> Any:
    """Return sums that keep a NaN of memory as it is, as an H200's `red.global.add.f64` does."""
    return np.where(np.isnan(b), b, np.where(np.isnan(a), a, a + b))


def nan_of_b(a: Any, b: Any, c: Any) -> Any:
    """Return fused sums whose NaN is that of b, else that of c, else that of a."""
    return np.where(np.isnan(b), b, np.where(np.isnan(c), c, np.where(np.isnan(a), a, fused(a, b, c))))


@pytest.mark.parametrize(
    ("name", "function", "keeps", "computes"),
    [
        ("add.rn.f64", np.add, True, "a + b, rounded once (RNE), subnormal numbers kept, NaN of the first operand"),
        ("mul.rn.f64", np.multiply, False, "a · b, rounded once (RNE), subnormal numbers kept, NaN 0x7fffffffffffffff"),
        ("fma.rn.f64", fused, False, "a · b + c, rounded once (RNE), subnormal numbers kept, NaN 0x7fffffffffffffff"),
        ("fma.rn.f64", nan_of_b, True, "subnormal numbers kept, NaN of b before c before a"),
        ("div.rn.f32", np.divide, False, "a / b, rounded once (RNE), subnormal numbers kept, NaN 0x7fffffff"),
        (
            "div.approx.f32",
            fast_quotient,
            False,
            "a · rcp.approx.ftz(b), rounded once (RNE), a and b · 2^24 for |b| < 2^-126, sub",
        ),
        ("red.global.add.f64", last_nan, True, "subnormal numbers kept, NaN of the second operand, not quieted, one writer"),
        ("mul.rn.f16x2", flushed_below(2.0**-14), False, "subnormal results flushed before rounding, NaN 0x7fff"),
        ("mul.rn.ftz.f16", flushed_below(2.0**-14 - 2.0**-26), False, "subnormal results flushed, NaN 0x7fff"),
        ("min.f64", smaller, False, "minimum of a and b, the number if one is NaN, subnormal numbers kept, NaN 0x7fffff"),
        (
            "max.NaN.f16x2",
            lambda a, b: -np.where((a == b) & np.signbit(-a), -a, np.minimum(-b, -a)),
            False,
            "NaN if one is NaN",
        ),
        (
            "red.global.add.v4.f32",
            flushed,
            False,
            "subnormal operands and results flushed, NaN 0x7fffffff, one writer; the order",
        ),
    ],
)
def test_the_rules_of_an_instruction_are_found(
    name: str, function: Callable[..., Any], keeps: bool, computes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "RANDOM_ROWS", 1 << 18 if "16" in name else 1 << 14)
    monkeypatch.setattr(rules, "opcodes_of", lambda cubin: ())
    row = measure_arithmetic(Planted(UNITS[name], function, keeps))
    assert (row.status, row.verification.mismatches) == ("confirmed", 0), row.verification.mismatch
    assert computes in row.computes


def test_a_wrong_word_is_a_counterexample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RANDOM_ROWS", 1 << 14)
    monkeypatch.setattr(rules, "opcodes_of", lambda cubin: ())
    row = measure_arithmetic(
        Planted(UNITS["min.f32"], lambda a, b: np.where((a == 2.0**-149) & (b == 2.0**-148), b, smaller(a, b)), False)
    )
    done = row.verification
    assert (row.status, row.reason) == ("inferred", f"{done.mismatches} of {done.compared:,} results differ from the model")
    assert done.mismatch.startswith("a = 0x00000001, b = 0x00000002: 0x00000002, expected 0x00000001")
