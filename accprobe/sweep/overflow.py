"""Where sums of integers end: operands whose exact sums lie around both ends of 32 bits, and what became of them.

A partial sum of a block cannot overflow: 131,072 products of -128 · -128 are 2^31, and the largest block-K is far from that.
So the sums go on from block to block, once in the matrix unit's own accumulator, once in the register of each thread to which
an ordinary addition adds the blocks' sums.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.report.sweeps import Overflow, OverflowRule
from accprobe.sweep.operands import Operands

K = 135_168
"""Products of a sum: 132 · 1024, enough for 2^31 with products of 127 · -128 too."""

_END = 1 << 31
_LOW, _HIGH = np.int8(-128), np.int8(127)


def wanted_sums(m: int) -> NDArray[np.int64]:
    """The exact sum of each of m rows: half of them around 2^31, half around -2^31, in steps of one."""
    near = np.arange(m // 2) - m // 4
    return np.concatenate([_END + near, -_END - near])


def operands(m: int, n: int) -> Operands:
    """A and B with those sums, the same in every column; all products of a row have one sign, the smallest come last."""
    sums = wanted_sums(m)
    a = np.zeros((m, K), np.int8)
    b = np.full((n, K), _LOW)
    b[:, -1] = 1
    for row, total in zip(a, sums, strict=True):
        sign, factor = (-1, _LOW) if total > 0 else (1, _HIGH)
        count, rest = divmod(abs(int(total)), abs(int(factor)) * 128)
        row[:count] = factor
        row[-2] = sign * (rest // 128)
        row[-1] = -sign * (rest % 128)
    return Operands(a.view(np.uint8), b.view(np.uint8))


def judge(result: NDArray[np.int32]) -> Overflow:
    """The sums of `operands`: [M, N] as the device has them."""
    sums = np.broadcast_to(wanted_sums(len(result))[:, None], result.shape)
    right = sums[result == sums]
    return Overflow(largest=int(right.max(initial=0)), smallest=int(right.min(initial=0)), rule=_rule(result, sums))


def _rule(result: NDArray[np.int32], sums: NDArray[np.int64]) -> OverflowRule:
    if (result == ((sums + _END) % (2 * _END) - _END)).all():
        return "wrap"
    return "saturate" if (result == np.clip(sums, -_END, _END - 1)).all() else "neither"
