"""Does a product leave out the smallest operands of each group, as 2:4 sparsity does? Then values decide which k count."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.whole_numbers import WholeNumbers, result, zeros
from accprobe.isa.formats import Format

KEPT_OF = ((2, 4), (1, 2), (4, 8))
"""Operands that are kept of each group of neighbouring k."""

CALLS = 4

FILLED_GROUPS = 8
"""Groups of a row that are not zero, half of them at most: sums of as many are exact in any format, larger groups show."""


def pruned(asked: RecordedCallable, there: NDArray[np.bool_]) -> str:
    """Name the pruning of an operand that explains these elements, "" where none does."""
    spec = asked.spec
    for operand, fmt in (("A", spec.a), ("B", spec.b)):
        for kept, of in KEPT_OF:
            if spec.k % of or not _holds(fmt, of):
                continue
            rng = np.random.default_rng(of)
            if all(_explains(asked, there, operand == "A", kept, of, rng) for _ in range(CALLS)):
                smallest = "smallest" if of - kept == 1 else f"{of - kept} smallest"
                which = f"of each {of} neighbouring k the {smallest} |{operand.lower()}| are left out"
                return f"{kept}:{of} pruning: {which}, so which k count depends on the values of {operand}"
    return ""


def _holds(fmt: Format, largest: int) -> bool:
    """Whether the format has the whole numbers up to this one."""
    return fmt.largest >= largest if fmt.is_integer else 1 << fmt.mantissa_bits + 1 >= largest


def _explains(
    asked: RecordedCallable, there: NDArray[np.bool_], of_a: bool, kept: int, of: int, rng: np.random.Generator
) -> bool:
    """Whether unlike numbers in some groups of an operand, times ones, give the sums of the largest of each group."""
    spec = asked.spec
    operands = zeros(spec)
    lines, others = operands if of_a else operands[::-1]
    count = spec.k // of
    groups = lines.reshape(len(lines), count, of)
    drawn = rng.permuted(np.broadcast_to(np.arange(1, of + 1), groups.shape), axis=2)
    filled = np.arange(count) < max(1, min(FILLED_GROUPS, count // 2))
    groups[:] = np.where(rng.permuted(np.broadcast_to(filled, groups.shape[:2]), axis=1)[:, :, None], drawn, 0)
    others[:] = 1
    sums: WholeNumbers = np.where(groups > of - kept, groups, 0).sum(axis=(1, 2))
    found = result(asked, *operands)
    return bool((found == (sums[:, None] if of_a else sums))[there].all())
