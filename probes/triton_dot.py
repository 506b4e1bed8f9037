"""A GEMM whose partial sums lose their low bits: C[M, N] = A[M, K] · B[N, K]ᵀ in steps of BLOCK_K, one tile a program.

Source: "Some Matrix Multiplication Engines Are Not As Accurate As We Thought" (PyTorch blog). Each `tl.dot` starts from zero.
Its result is masked, then added to a separate f32 accumulator by an ordinary addition.
"""

import triton
import triton.language as tl


@triton.jit
def masked_gemm(
    a,
    b,
    c,
    n,
    k,
    mask,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
    PRECISION: tl.constexpr,
    PROMOTE_EVERY: tl.constexpr,
):
    """M, n and k are multiples of the blocks. mask: what each partial sum is and-ed with, of 32 bits.

    PRECISION: of f32 operands, "tf32" or "ieee". PROMOTE_EVERY: products that `tl.dot` adds before it promotes them itself,
    or None.
    """
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    steps = tl.arange(0, BLOCK_K)
    a_tile = a + rows.to(tl.int64)[:, None] * k + steps[None, :]
    b_tile = b + columns.to(tl.int64)[None, :] * k + steps[:, None]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        x, y = tl.load(a_tile + start), tl.load(b_tile + start)
        partial = tl.dot(x, y, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE_EVERY, out_dtype=tl.float32)
        total += (partial.to(tl.int32, bitcast=True) & mask).to(tl.float32, bitcast=True)
    tl.store(c + rows.to(tl.int64)[:, None] * n + columns[None, :], total)
