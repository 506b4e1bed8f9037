"""Block scales that experiments ask with."""

from __future__ import annotations

from typing import NamedTuple

from accprobe.isa.formats import Format
from accprobe.isa.instructions import Instruction
from accprobe.operands.request import Request, joined

# Powers of two below the smallest result that are asked about.
TINY = 40


def halves(fmt: Format, exponent: int) -> tuple[int, ...]:
    """Scales of A and of B whose product is that power of two; none where there are none."""
    high = exponent // 2
    found = tuple(fmt.try_encode(1, part) for part in (exponent - high, high))
    return tuple(code for code in found if code is not None) if None not in found else ()


class _Power(NamedTuple):
    """The product k, of A and of B, times the scales of its block is (-1)^negative * 2^exponent."""

    k: int
    negative: bool
    factors: int
    scales: int


def small_blocks(inst: Instruction, q: int, lowest: int) -> tuple[list[int], Request]:
    """2^(q + 1), and smaller powers of two of the other sign down to the lowest, as block scales make them; none without.

    Where 2^q is the smallest result and results are rounded toward zero, the sum is 2^q unless the other is cut. The first is
    C, a product of another block, or one of the same block. Exponents of the others, and the dot products.
    """
    if inst.scale is None or inst.scale_block is None:
        return [], Request.zeros(inst, 0)
    least = inst.a.min_exponent + inst.b.min_exponent
    exponents, made = list[int](), list[Request]()
    for e in range(q, lowest, -1):
        for sign in (False, True):
            alone, beside = _Power(0, not sign, 0, e), _Power(inst.k - 1, sign, 0, q + 1)
            of_block = [_Power(0, not sign, least, e - least), _Power(1, sign, least + q + 1 - e, e - least)]
            rows = [_put(inst, [alone], (sign, q + 1)), _put(inst, of_block)]
            rows += [_put(inst, [alone, beside])] if inst.k > inst.scale_block else []
            there = [row for row in rows if row is not None]
            made += there
            exponents += [e] * len(there)
    return exponents, joined([Request.zeros(inst, 0), *made])


def tiny_blocks(inst: Instruction, lowest: int) -> Request:
    """Where there are block scales: one product of either sign, from 2^lowest down, beside zeros of C of either sign."""
    if inst.scale is None:
        return Request.zeros(inst, 0)
    signs = [(negative, of_c) for negative in (False, True) for of_c in (False, True)]
    rows = [
        (_put(inst, [_Power(0, negative, 0, e)]), of_c) for e in range(lowest, lowest - TINY, -1) for negative, of_c in signs
    ]
    there = [(row, of_c) for row, of_c in rows if row is not None]
    for row, of_c in there:
        row.c[0] = of_c * inst.c.sign_bit
    return joined([Request.zeros(inst, 0), *(row for row, _ in there)])


def subnormal_scales(inst: Instruction, f: int) -> Request:
    """Products that cancel, of a subnormal scale, and C about the last bit that f bits below the scales' exponents leave.

    Those are the smallest normal scale's, or the subnormal ones' own.
    """
    fmt = inst.scale
    if fmt is None or not fmt.mantissa_bits:
        return Request.zeros(inst, 0)
    rows = [Request.zeros(inst, 0)]
    smallest, most = fmt.min_exponent - fmt.mantissa_bits, min(fmt.max_exponent, 0)
    for below in range(smallest, fmt.min_exponent):
        codes = fmt.encode(False, 1, below), fmt.encode(False, 1, most)
        for swapped in (False, True):
            for last in range(below + most - f - 1, fmt.min_exponent + most - f + 2):
                row = _put(inst, [_Power(0, False, 0, 0), _Power(1, True, 0, 0)], (swapped, last))
                for scales, code in zip(
                    (row.scales_a, row.scales_b) if row else (), codes[:: -1 if swapped else 1], strict=False
                ):
                    assert scales is not None
                    scales[0, 0] = code
                rows += [row] if row else []
    return joined(rows)


def _put(inst: Instruction, powers: list[_Power], c: tuple[bool, int] | None = None) -> Request | None:
    """One dot product of these, and (-1)^negative * 2^exponent as C; None where formats do not hold one of them."""
    assert inst.scale is not None
    assert inst.scale_block is not None
    asked = Request.zeros(inst, 1)
    for power in powers:
        factors, pair = _factors(inst, power.factors), halves(inst.scale, power.scales)
        if not factors or not pair:
            return None
        asked.a[0, power.k] = factors[0] | power.negative * inst.a.sign_bit
        asked.b[0, power.k] = factors[1]
        for scales, code in zip((asked.scales_a, asked.scales_b), pair, strict=True):
            assert scales is not None
            scales[0, power.k // inst.scale_block] = code
    if c is not None:
        pattern = inst.c.try_encode(1, c[1])
        if pattern is None:
            return None
        asked.c[0] = pattern | c[0] * inst.c.sign_bit
    return asked


def _factors(inst: Instruction, exponent: int) -> tuple[int, ...]:
    """Codes of A and of B whose product is that power of two; none where there are none."""
    of_a = min(max(exponent - inst.b.min_exponent, inst.a.min_exponent), inst.a.max_exponent)
    found = inst.a.try_encode(1, of_a), inst.b.try_encode(1, exponent - of_a)
    return tuple(code for code in found if code is not None) if None not in found else ()
