"""Is it the product that was asked for, or one of a transposed matrix? Each row of A has one 1, which picks a row of B."""

from __future__ import annotations

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.units import power


def refuse(asked: RecordedCallable, seed: int) -> None:
    """Raises AccprobeError where what comes back is another product than A·B, which these operands tell apart."""
    spec = asked.spec
    if spec.a_exponent is not None:
        return
    rng = np.random.default_rng((seed, 0x7A5))
    which = rng.permutation(max(spec.m, spec.k))[: spec.m] % spec.k
    picked = np.zeros((spec.m, spec.k), np.float32)
    picked[np.arange(spec.m), which] = 1
    numbers = rng.integers(0, 2, (spec.k, spec.n)).astype(np.float32)
    one_a, one_b = (1, 1) if spec.a.is_integer else (power(spec.a, 0), power(spec.b, 0))
    a, b = (picked != 0) * spec.a.dtype.type(one_a), (numbers.T != 0) * spec.b.dtype.type(one_b)
    d = asked.product(a, np.ascontiguousarray(b), keep=False)
    got = spec.out.integers(d) if spec.out.is_integer else spec.out.values(d)
    if np.array_equal(got, numbers[which]):
        return
    others = {
        "(A·B)ᵀ": numbers[which].T,
        "A·Bᵀ": numbers.T[which] if spec.k == spec.n else None,
        "Aᵀ·B": picked.T @ numbers if spec.k == spec.m else None,
        "Aᵀ·Bᵀ": picked.T @ numbers.T if spec.k == spec.m == spec.n else None,
    }
    for name, expected in others.items():
        if expected is not None and np.array_equal(got, expected):
            raise AccprobeError(f"the result is {name}: this is no product of A [M, K] and B [K, N] (a transposed operand?)")
