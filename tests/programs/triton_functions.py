"""Elementwise functions as a user writes them in Triton, and quantisers of Triton and torch."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

BLOCK = 1 << 14


@triton.jit
def exp_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.exp(tl.load(x_ptr + i, i < n)), i < n)


@triton.jit
def tanh_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n)
    y = tl.inline_asm_elementwise("tanh.approx.f32 $0, $1;", "=r,r", [x], tl.float32, is_pure=True, pack=1)
    tl.store(y_ptr + i, y, i < n)


@triton.jit
def quantise_kernel(x_ptr, scale_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    """One row of x and its scale a program."""
    row = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + i, i < columns).to(tl.float32)
    y = tl.clamp(x / tl.load(scale_ptr + row), -448.0, 448.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + row * columns + i, y.to(tl.float8e4nv), i < columns)


def exp(x: Any) -> Any:
    y = torch.empty_like(x)
    exp_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


def tanh(x: Any) -> Any:
    y = torch.empty_like(x)
    tanh_kernel[(triton.cdiv(x.numel(), BLOCK),)](x, y, x.numel(), BLOCK=BLOCK)
    return y


def quantise(x: Any, scale: Any) -> Any:
    """Return fp8 numbers of x [rows, K] and its scales [rows, 1]."""
    rows, columns = x.shape
    y = torch.empty_like(x, dtype=torch.float8_e4m3fn)
    quantise_kernel[(rows, triton.cdiv(columns, BLOCK))](x, scale, y, columns, BLOCK=BLOCK)
    return y


def torch_quantise(x: Any, scale: Any) -> Any:
    return (x.float() / scale).clamp(-448, 448).to(torch.float8_e4m3fn)
