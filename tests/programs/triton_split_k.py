"""A Triton kernel of four slices of K whose partial sums are added with atomics, in an order that changes."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

SLICES, ROWS, COLUMNS, KS = 4, 128, 128, 64


@triton.jit
def slice_of_tile(a_ptr, b_ptr, d_ptr, N, K, each, ROWS: tl.constexpr, COLUMNS: tl.constexpr, KS: tl.constexpr):
    """Programs of one tile have adjacent ids, so that they run at the same time."""
    tile, across = tl.program_id(1), N // COLUMNS
    rows = (tile // across * ROWS + tl.arange(0, ROWS))[:, None]
    columns = (tile % across * COLUMNS + tl.arange(0, COLUMNS))[None, :]
    ks = tl.program_id(0) * each + tl.arange(0, KS)
    a_ptrs, b_ptrs = a_ptr + rows * K + ks[None, :], b_ptr + ks[:, None] * N + columns
    total = tl.zeros((ROWS, COLUMNS), dtype=tl.float32)
    for _ in range(0, each, KS):
        total = tl.dot(tl.load(a_ptrs), tl.load(b_ptrs), total)
        a_ptrs += KS
        b_ptrs += KS * N
    tl.atomic_add(d_ptr + rows * N + columns, total)


def split_k(a: Any, b: Any) -> Any:
    """Multiply a [M, K] and b [K, N]: M and N are multiples of a tile, K of four -> f32 [M, N]."""
    (m, k), n = a.shape, b.shape[1]
    d = torch.zeros(m, n, dtype=torch.float32, device=a.device)
    grid = SLICES, m // ROWS * (n // COLUMNS)
    slice_of_tile[grid](a, b, d, n, k, k // SLICES, ROWS=ROWS, COLUMNS=COLUMNS, KS=KS)
    return d
