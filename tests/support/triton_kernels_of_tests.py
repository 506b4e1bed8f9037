"""Triton kernels that tests compile: the product of two fp8 tiles, once and in a loop."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def tile(a_ptr, b_ptr, c_ptr, N: tl.constexpr, K: tl.constexpr, IMPRECISE: tl.constexpr):
    rows, columns, ks = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a = tl.load(a_ptr + rows * K + ks[None, :])
    b = tl.load(b_ptr + ks[:, None] + columns * K)
    tl.store(c_ptr + rows * N + columns, tl.dot(a, b, max_num_imprecise_acc=IMPRECISE))


@triton.jit
def gemm(a_ptr, b_ptr, c_ptr, length, N: tl.constexpr, K: tl.constexpr, IMPRECISE: tl.constexpr):
    rows, columns, ks = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :], tl.arange(0, K)
    a_ptrs = a_ptr + rows * length + ks[None, :]
    b_ptrs = b_ptr + ks[:, None] + columns * length
    total = tl.zeros((N, N), dtype=tl.float32)
    for _ in range(0, length, K):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total, max_num_imprecise_acc=IMPRECISE)
        a_ptrs += K
        b_ptrs += K
    tl.store(c_ptr + rows * N + columns, total)
