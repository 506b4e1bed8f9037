"""Assertions for tests of matrix products, reductions and torch programs: properties of sums, errors, and equal bits.

from accprobe.testing import assert_accumulates, assert_every_k_once, assert_matmul_close

def test_my_matmul():
    assert_every_k_once(my_matmul, shape=(64, 64, 1000), dtype="bf16", arrays="torch")
    assert_accumulates(my_matmul, bits=23, shape=(64, 64, 1000), dtype="bf16", arrays="torch")
    assert_matmul_close(my_matmul(a, b), a, b, like="h200:wgmma.m64n8k16.f32.bf16.bf16")
"""

from accprobe.testing.functions import (
    assert_accumulates,
    assert_batch_invariant,
    assert_every_k_once,
    assert_promotes,
    assert_same_bits,
    assert_same_plan,
    assert_same_reduction,
)
from accprobe.testing.results import assert_matmul_close

__all__ = [
    "assert_accumulates",
    "assert_batch_invariant",
    "assert_every_k_once",
    "assert_matmul_close",
    "assert_promotes",
    "assert_same_bits",
    "assert_same_plan",
    "assert_same_reduction",
]
