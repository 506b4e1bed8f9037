"""Quantised operands: codes and scales of different granularity.

A value is its code times its scale. A scale is amax divided by the largest code, in float32. A scale of an MX block is a power
of two (OCP Microscaling Formats v1.0, section 6.3). A scale of an NVFP4 block is an e4m3 number, times one scale of the tensor.
DeepSeek-V3 (arXiv 2412.19437, section 3.3.2) uses 1 x 128 for activations and 128 x 128 for weights.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Floats
from accprobe.evaluate.product import Singles, rounded_words
from accprobe.isa.formats import FORMATS, Bits, Format

# Smallest scale: quotients by subnormal numbers would be inexact.
_LEAST = np.finfo(np.float32).tiny


@dataclass(frozen=True)
class Sharing:
    """Block of an operand that shares one scale: rows and ks, 0 for all; bits: of a scale in memory.

    element: format of the codes if it is not the instruction's. power_of_two: scales are powers of two: "floor": amax gets the
    exponent of the largest code (MX); "ceil": amax does not exceed the largest code. two_levels: scales are e4m3 numbers times
    one scale of the tensor.
    """

    rows: int
    ks: int
    bits: int = 32
    element: str | None = None
    power_of_two: Literal["", "floor", "ceil"] = ""
    two_levels: bool = False


_ROWS, _BLOCKS = Sharing(1, 0), Sharing(1, 128)
_MX, _NV = Sharing(1, 32, 8, power_of_two="floor"), Sharing(1, 16, 8, "e2m1", two_levels=True)

# By name: of A and of B. The rows of B are the columns of the product.
SHARINGS: dict[str, tuple[Sharing, Sharing] | None] = {
    "none": None,
    "tensor": (Sharing(0, 0), Sharing(0, 0)),
    "row": (_ROWS, _ROWS),
    "1x128": (_BLOCKS, _BLOCKS),
    "128x128": (_BLOCKS, Sharing(128, 128)),
    "mx32": (_MX, _MX),
    "nv16": (_NV, _NV),
}


@dataclass(frozen=True)
class Fidelity:
    """Quantisation error of one operand.

    snr: in dB, None if it is exact. saturated: share of numbers beyond the largest code by more than half a step.
    flushed: share of numbers that became zero. scale_bytes: scale memory for each number.
    """

    snr: float | None
    saturated: float
    flushed: float
    scale_bytes: float


class Quantised(NamedTuple):
    """One quantised operand. codes: [rows, K] in the instruction's format, restricted to values of `element`. scales: [rows,
    blocks], each shared by ks products; [rows, 1] or [1, 1] if K is not divided. scale_bytes: scale memory for each number.
    """

    fmt: Format
    element: Format
    codes: Bits
    scales: Singles
    ks: int
    scale_bytes: float

    def values(self, scaled: bool = True) -> Floats:
        """Return float64 values, with or without the scales."""
        values = self.fmt.values(self.codes)
        return values * _spread(self.scales, self.ks, values.shape) if scaled else values

    def fidelity(self, values: Singles) -> Fidelity:
        """Compare with the values that were quantised."""
        kept, exact = self.values(), values.astype(np.float64)
        lost, there = kept - exact, exact != 0
        noise, signal = float(np.square(lost).sum()), float(np.square(exact).sum())
        rounds_to_largest = self.element.largest_value + 2.0 ** (self.element.max_exponent - self.element.mantissa_bits - 1)
        most = rounds_to_largest * _spread(self.scales, self.ks, values.shape).astype(np.float64)
        return Fidelity(
            snr=float(10 * np.log10(signal / noise)) if noise and signal else None,
            saturated=float((np.abs(values) > most).mean()),
            flushed=float((there & (kept == 0)).mean()),
            scale_bytes=self.scale_bytes,
        )


def nearest_patterns(fmt: Format, values: NDArray[np.floating]) -> Bits:
    """Round float32 values to nearest, ties to even; values that are too large saturate."""
    most = min(fmt.largest_value, FORMATS["f32"].largest_value)
    clipped = np.ascontiguousarray(np.clip(values, -most, most))
    return rounded_words(fmt, fmt.patterns(clipped), "RNE")


def quantised_operand(sharing: Sharing | None, fmt: Format, values: Singles) -> Quantised:
    """Quantise values [rows, K]; without a sharing there is no scale. Codes are rounded to nearest and saturate."""
    if sharing is None:
        return Quantised(fmt, fmt, nearest_patterns(fmt, values), np.ones((1, 1), np.float32), values.shape[1], 0.0)
    element = FORMATS[sharing.element] if sharing.element else fmt
    scales, ks, scale_bytes = _scales(sharing, element, values)
    codes = nearest_patterns(element, values / _spread(scales, ks, values.shape))
    if element is not fmt:
        codes = nearest_patterns(fmt, element.values(codes).astype(np.float32))
    return Quantised(fmt, element, codes, scales, ks, scale_bytes)


def _scales(sharing: Sharing, element: Format, values: Singles) -> tuple[Singles, int, float]:
    """Return scales [rows, blocks] ([1, 1] or [rows, 1] if K is not divided), the ks sharing each, and bytes a number."""
    rows, k = values.shape
    of_rows, ks = sharing.rows or rows, sharing.ks or k
    largest = np.abs(values)
    starts = np.arange(0, rows, of_rows)
    amax = np.maximum.reduceat(np.maximum.reduceat(largest, np.arange(0, k, ks), axis=1), starts, axis=0)
    bytes_of_all = amax.size * sharing.bits / 8
    most = element.largest_value
    if sharing.power_of_two:
        above = amax / np.float32(most) if sharing.power_of_two == "ceil" else np.ldexp(amax, -element.max_exponent)
        significands, exponents = np.frexp(np.where(amax > 0, above, 1))
        exponents -= 1 - ((sharing.power_of_two == "ceil") & (significands > 0.5))
        scales = np.ldexp(np.float32(1), np.clip(exponents, -126, 127)).astype(np.float32)
    elif sharing.two_levels:
        e4m3 = FORMATS["e4m3"]
        of_tensor = np.maximum(amax.max() / np.float32(most * e4m3.largest_value), _LEAST)
        below = e4m3.values(nearest_patterns(e4m3, amax / (np.float32(most) * of_tensor))).astype(np.float32)
        scales = np.where(below > 0, below, np.float32(2.0**-9)) * of_tensor
        bytes_of_all += 4
    else:
        scales = np.where(amax > 0, np.maximum(amax / np.float32(most), _LEAST), np.float32(1))
    scales = scales.astype(np.float32)
    if len(scales) > 1 or sharing.ks:
        scales = np.repeat(scales, of_rows, axis=0)[:rows]
    return scales, ks, bytes_of_all / values.size


def _spread(scales: Singles, ks: int, shape: tuple[int, ...]) -> Singles:
    """Expand the scales to one for each number."""
    wide = scales if scales.shape[1] == 1 else np.repeat(scales, ks, axis=1)[:, : shape[1]]
    return np.broadcast_to(wide, shape)
