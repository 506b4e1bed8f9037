"""Is it the product that was asked for, or one of a transposed matrix? Each row of A has one 1, which picks a row of B."""

from __future__ import annotations

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.gemm.blackbox import Asked
from accprobe.gemm.units import power


def refuse(asked: Asked, seed: int) -> None:
    """Raises AccprobeError where what comes back is another product than A·B, which these operands tell apart."""
    spec = asked.spec
    rng = np.random.default_rng((seed, 0x7A5))
    picked = np.zeros((spec.m, spec.k), np.int64)
    picked[np.arange(spec.m), rng.permutation(max(spec.m, spec.k))[: spec.m] % spec.k] = 1
    numbers = rng.integers(0, 2, (spec.k, spec.n))
    one_a, one_b = (1, 1) if spec.a.is_integer else (power(spec.a, 0), power(spec.b, 0))
    d = asked.product((picked * one_a).astype(spec.a.dtype), (numbers.T * one_b).astype(spec.b.dtype), keep=False)
    got = spec.out.integers(d) if spec.out.is_integer else spec.out.values(d)
    if np.array_equal(got, picked @ numbers):
        return
    others = {
        "(A·B)ᵀ": (picked @ numbers).T,
        "A·Bᵀ": picked @ numbers.T if spec.k == spec.n else None,
        "Aᵀ·B": picked.T @ numbers if spec.k == spec.m else None,
        "Aᵀ·Bᵀ": picked.T @ numbers.T if spec.k == spec.m == spec.n else None,
    }
    for name, expected in others.items():
        if expected is not None and np.array_equal(got, expected):
            raise AccprobeError(f"the result is {name}: this is no product of A [M, K] and B [K, N] (a transposed operand?)")
