"""Sums of block-scaled products in integers: an evaluator that shares no code with accprobe, with departures of a device.

One fused sum of all products and C in f32, each term truncated toward zero, the result rounded toward zero.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Codes = NDArray[np.unsignedinteger]

ELEMENTS = {"e5m2": (5, 2, True), "e4m3": (4, 3, False), "e3m2": (3, 2, None), "e2m3": (2, 3, None), "e2m1": (2, 1, None)}
"""Bits of exponents and of fractions; whether all ones in the exponent are infinities and NaNs, one NaN, or numbers."""


@dataclass(frozen=True)
class Rules:
    """at_once: products that are added before they are scaled. The other fields are departures of a device.

    scale_bits: fraction bits of scales that are read. last_scale_of_a: what the last block takes for it. group_bits: low bits
    that sums of products lose. groups_cut: bits by which groups are truncated earlier than C.
    """

    bits: int
    at_once: int = 1
    floor: int = -139
    scale_bits: int = 8
    nan_scales: str = "NaN"
    subnormal_scales: str = "kept"
    last_scale_of_a: str = "its own"
    group_bits: int = 0
    groups_cut: int = 0
    zero_groups_lead: bool = False
    largest_exponent_of_scales: int = 1 << 10
    zero_times_infinity: str = "NaN"


def evaluated(rules: Rules, a: Codes, b: Codes, c: Codes, scales: tuple[Codes, Codes], names: tuple[str, str, str]) -> Codes:
    """Return words of f32, [n]; names: formats of A, B and the scales."""
    of_a, of_b = (_element(x, name) for x, name in zip((a, b), names[:2], strict=True))
    n, k = a.shape
    per = k // scales[0].shape[1]
    both = [_scale(x.astype(np.int64), names[2], rules) for x in scales]
    if rules.last_scale_of_a == "that of B":
        for mine, other in zip(both[0], both[1], strict=True):
            mine[:, -1] = other[:, -1]
    scale = both[0][0] * both[1][0]
    at = np.minimum(both[0][1] + both[1][1], rules.largest_exponent_of_scales)
    scale_fraction = 0 if names[2] == "ue8m0" else 6
    blocks = np.arange(0, k, rules.at_once) // per
    significand = of_a[0] * of_b[0] * (of_a[3] * of_b[3])
    exponent = of_a[1] + of_b[1]
    fraction = sum(ELEMENTS[name][1] for name in names[:2])
    nan = ((of_a[2] == 2) | (of_b[2] == 2)).any(axis=1)
    zero_infinite = ((of_a[2] == 1) & (of_b[0] == 0) & (of_b[2] == 0)) | ((of_b[2] == 1) & (of_a[0] == 0) & (of_a[2] == 0))
    infinite = ((of_a[2] == 1) | (of_b[2] == 1)) & ~zero_infinite
    of_block = np.repeat(scale, per, axis=1)
    nan |= (zero_infinite | (infinite & (of_block == 0))).any(axis=1) & (rules.zero_times_infinity == "NaN")
    nan |= (both[0][2] | both[1][2]).any(axis=1)
    sign = of_a[3] * of_b[3]
    up, down = ((infinite & (of_block > 0) & (sign == s)).any(axis=1) for s in (1, -1))
    if rules.at_once == 1:
        busy, terms, aligned = significand != 0, significand * of_block, exponent + np.repeat(at, per, axis=1)
        last = aligned - fraction - scale_fraction
    else:
        low = int(exponent.min())
        whole = (significand << (exponent - low)).reshape(n, -1, rules.at_once)
        summed = whole.sum(axis=2)
        summed = np.sign(summed) * (np.abs(summed) >> rules.group_bits << rules.group_bits)
        terms, aligned = summed * scale[:, blocks], at[:, blocks]
        busy, last = (whole != 0).any(axis=2), aligned + low - fraction - scale_fraction
        busy |= rules.zero_groups_lead
    busy &= scale[:, blocks] != 0
    c_sign, c_significand, c_exponent, c_kind = _f32(c.astype(np.int64))
    nan |= c_kind == 2
    up, down = up | ((c_kind == 1) & (c_sign > 0)), down | ((c_kind == 1) & (c_sign < 0))
    nowhere = np.int64(-(1 << 20))
    top = np.maximum(np.where(busy, aligned, nowhere).max(axis=1), np.where(c_significand > 0, c_exponent, nowhere))
    top = np.where(top == nowhere, 0, np.maximum(top, rules.floor))
    unit = top - rules.bits
    cut = rules.groups_cut
    total = (_moved(terms, last - unit[:, None] - cut) << cut).sum(axis=1)
    total += _moved(c_sign * c_significand, c_exponent - 23 - unit)
    d = _packed(total, unit)
    d = np.where(up, 0x7F800000, np.where(down, 0xFF800000, d))
    return np.where(nan | (up & down), 0x7FFFFFFF, d).astype(np.uint32)


def _element(codes: Codes, name: str) -> tuple[Ints, Ints, Ints, Ints]:
    """Return significand, exponent, kind (1 infinity, 2 NaN) and sign."""
    e, m, specials = ELEMENTS[name]
    code = codes.astype(np.int64)
    biased, low = (code >> m) & ((1 << e) - 1), code & ((1 << m) - 1)
    exponent = np.maximum(biased, 1) - ((1 << (e - 1)) - 1)
    ones = biased == (1 << e) - 1
    kind = np.zeros_like(code)
    if specials is not None:
        kind = np.where(ones & (low == 0) & specials, 1, np.where(ones & (low != 0 if specials else low == (1 << m) - 1), 2, 0))
    significand = np.where(kind > 0, 0, low + ((biased > 0).astype(np.int64) << m))
    return significand, exponent, kind, np.where(code >> (e + m) & 1, -1, 1)


def _scale(code: Ints, name: str, rules: Rules) -> tuple[Ints, Ints, NDArray[np.bool_]]:
    """Return significand (ue4m3: in eighths), exponent and a mask of NaNs."""
    if name == "ue8m0":
        nan = code == 255
        significand, exponent = np.ones_like(code), code - 127
    else:
        code = code & 0x7F
        nan, biased, low = code == 127, code >> 3, code & 7
        exponent = np.maximum(biased, 1) - 7
        kept = low >> max(3 - rules.scale_bits, 0) << max(3 - rules.scale_bits, 0)
        significand = np.where(biased > 0, kept + 8, 0 if rules.subnormal_scales == "zero" else low)
    return significand, exponent, nan & (rules.nan_scales == "NaN")


def _f32(code: Ints) -> tuple[Ints, Ints, Ints, Ints]:
    biased, low = code >> 23 & 0xFF, code & 0x7FFFFF
    kind = np.where(biased < 255, 0, np.where(low == 0, 1, 2))
    significand = np.where(kind > 0, 0, low + ((biased > 0).astype(np.int64) << 23))
    return np.where(code >> 31, -1, 1), significand, np.maximum(biased, 1) - 127, kind


def _moved(values: Ints, left: Ints) -> Ints:
    """Return values * 2^left, truncated toward zero."""
    size = np.abs(values)
    size = np.where(left >= 0, size << np.clip(left, 0, 62), size >> np.clip(-left, 0, 63))
    return np.sign(values) * size


def _packed(total: Ints, unit: Ints) -> Ints:
    """Return total * 2^unit in f32, rounded toward zero; zeros are positive."""
    size, lead = np.abs(total), np.zeros_like(total)
    for step in (32, 16, 8, 4, 2, 1):
        more = size >> lead >= np.int64(1) << step
        lead = np.where(more, lead + step, lead)
    exponent = np.maximum(lead + unit, -126)
    last = exponent - 23 - unit
    kept = np.where(last >= 0, size >> np.clip(last, 0, 63), size << np.clip(-last, 0, 62))
    word = kept + np.where(kept >> 23, (exponent + 126) << 23, 0)
    word = np.where(exponent > 127, 0x7F800000, word)
    return np.where(kept == 0, 0, word | np.where(total < 0, np.int64(1) << 31, 0))
