"""Every pair of codes of two formats that have few, packed into dot products: one wrong entry of a product table shows.

Pairs with products of one exponent share a dot product, so that the alignment truncates no bit. Their number is limited, so
that a result holds every bit. They have about one size and both signs, so that their sum stays in range. A pair of magnitudes
lies in four dot products, one for each of its signs, since a wrong product must not cancel itself.

Block scales: every pair of codes too, or every code if they are powers of two.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log2

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.decoding import exponents_of
from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel, FloatArithmetic
from accprobe.operands.request import Request

FEW_BITS = 8  # Bits of a format to probe all codes of.

# The sum of p products of both signs seldom has more than USUAL_SIZE + log4(p) bits beyond the fraction bits of two factors.
USUAL_SIZE = log2(7)

Pairs = NDArray[np.int64]  # Codes of A and of B, [2, dot products, products of each] or [2, pairs].


def every_pair(inst: Instruction, model: DotModel) -> Request | None:
    """Return all pairs of codes, those with an infinity or a NaN alone, with C zero; None if there are too many."""
    if inst.a.bits > FEW_BITS or inst.b.bits > FEW_BITS:
        return None
    parts = list(_packed(inst, min(inst.k, _together(inst, model))))
    request = Request.zeros(inst, sum(pairs.shape[1] for pairs in parts))
    start = 0
    for pairs in parts:
        rows, places = np.arange(start, start + pairs.shape[1])[:, None], np.arange(pairs.shape[2])
        request.a[rows, (rows + places) % inst.k], request.b[rows, (rows + places) % inst.k] = pairs
        start += pairs.shape[1]
    return request


def every_scale(inst: Instruction) -> Request | None:
    """Return all pairs of codes of scales, or all codes of scales without fraction bits in each block; None without scales.

    Each scales one product, 1 × 1. Pairs of about one size share a dot product, each in a separate block.
    """
    if inst.scale is None or inst.scale_block is None:
        return None
    fmt, blocks = inst.scale, inst.k // inst.scale_block
    pairs = _pairs_of_scales(fmt, blocks) if fmt.mantissa_bits else _codes_of_scales(fmt, blocks)
    n = pairs.shape[1]
    request = Request.zeros(inst, n)
    rows, columns = np.arange(n)[:, None], np.arange(blocks)
    ks = columns * inst.scale_block + rows % inst.scale_block
    there = (pairs >= 0).all(axis=0)
    for of_operand, of_scale, operand, codes in (
        (request.a, request.scales_a, inst.a, pairs[0]),
        (request.b, request.scales_b, inst.b, pairs[1]),
    ):
        assert of_scale is not None
        of_operand[rows, ks] = np.where(there, operand.encode(False, 1, 0), 0)
        of_scale[:] = np.where(there, codes, of_scale)
    return request


def _pairs_of_scales(fmt: Format, blocks: int) -> Pairs:
    """Return all pairs by size; those with a NaN alone."""
    pairs = _crossed(fmt.largest + 2, fmt.largest + 2)
    nan = (pairs[0] > fmt.largest) | (pairs[1] > fmt.largest)
    values = fmt.values(pairs.astype(fmt.dtype))
    order = np.argsort(values[0] * values[1], kind="stable")
    finite = pairs[:, order][:, ~nan[order]]
    alone = np.full((2, nan.sum(), blocks), -1)
    alone[:, np.arange(nan.sum()), np.arange(nan.sum()) % blocks] = pairs[:, nan]
    return np.concatenate([_rows(finite, blocks), alone], axis=1)


def _codes_of_scales(fmt: Format, blocks: int) -> Pairs:
    """Return each code of A and of B, beside one and beside its inverse, in each block."""
    codes = np.arange(fmt.largest + 2)
    one = fmt.encode(False, 1, 0)
    inverse = np.clip(2 * one - codes, 0, fmt.largest)
    beside = np.concatenate([np.full_like(codes, one), inverse])
    both = np.stack([np.tile(codes, 2), beside])
    pairs = np.concatenate([both, both[::-1]], axis=1)
    found = np.full((2, pairs.shape[1] * blocks, blocks), -1)
    for block in range(blocks):
        found[:, block * pairs.shape[1] : (block + 1) * pairs.shape[1], block] = pairs
    return found


def _together(inst: Instruction, model: DotModel) -> int:
    """Return how many products of one exponent the model's sums nearly always add without losing a bit."""
    sums = [x for x in model.arithmetics if isinstance(x, FloatArithmetic)]
    kept = min((x.result_bits if x.alignment_bits is None else min(x.alignment_bits, x.result_bits) for x in sums), default=64)
    return max(1, int(4 ** (kept + 1 - inst.a.mantissa_bits - inst.b.mantissa_bits - USUAL_SIZE)))


def _packed(inst: Instruction, together: int) -> Iterator[Pairs]:
    if inst.is_integer:
        yield _rows(_crossed(1 << inst.a.bits, 1 << inst.b.bits), together)
        return
    pairs = _crossed(1 << inst.a.bits, 1 << inst.b.bits)
    a, b = (fmt.values(codes.astype(fmt.dtype)) for fmt, codes in zip((inst.a, inst.b), pairs, strict=True))
    special = ~(np.isfinite(a) & np.isfinite(b))
    yield _rows(pairs[:, special], 1)
    positive = ~special & ~np.signbit(a) & ~np.signbit(b)
    magnitudes, products = pairs[:, positive], a[positive] * b[positive]
    of_a, of_b = (
        exponents_of(codes.astype(fmt.dtype), fmt, "kept", counted=True)
        for fmt, codes in zip((inst.a, inst.b), magnitudes, strict=True)
    )
    exponents = of_a + of_b
    for exponent in np.unique(exponents):
        here = exponents == exponent
        some = magnitudes[:, here][:, np.argsort(products[here], kind="stable")]
        for first in range(4):
            signs = (first + np.arange(some.shape[1])) % 4
            yield _rows(some | np.stack([signs // 2 * inst.a.sign_bit, signs % 2 * inst.b.sign_bit]), together)


def _crossed(a: int, b: int) -> Pairs:
    return np.stack([codes.ravel() for codes in np.indices((a, b))])


def _rows(pairs: Pairs, together: int) -> Pairs:
    """Return so many pairs a row; zeros fill the last."""
    rows = -(-pairs.shape[1] // together)
    return np.pad(pairs, ((0, 0), (0, rows * together - pairs.shape[1]))).reshape(2, rows, together)
