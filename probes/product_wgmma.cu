// One wgmma on a matrix product: a block is one warpgroup, which computes one tile of M rows and N columns.
#include "tile.cuh"
#include "core_matrices.cuh"
#include "product.cuh"

// Arguments: see product_mma_sync.cu. Blocks: (tiles of columns, tiles of rows).
extern "C" __global__ void __launch_bounds__(128)
product(const Word* a_operands, const Word* b_operands, const CElement* c_operands METADATA, DElement* results, unsigned rows, unsigned columns) {
    alignas(1024) __shared__ Word a_shared[M * A_WORDS];
    alignas(1024) __shared__ Word b_shared[N * K_WORDS];
    unsigned lane = threadIdx.x % 32, top_row = threadIdx.x / 32 * 16, top = blockIdx.y * M, left = blockIdx.x * N;
#if A_REGISTERS
    Word a[A_REGISTERS];
#pragma unroll
    for (unsigned r = 0; r < A_REGISTERS; r++) a[r] = operand<A_WORDS>(a_operands, top + top_row + a_row(lane, r), rows, a_word(lane, r));
#else
    lay_out<M, A_WORDS>(a_shared, [&](unsigned row, unsigned word) { return operand<A_WORDS>(a_operands, top + row, rows, word); });
    unsigned long long a = descriptor<A_WORDS>(a_shared);
#endif
    lay_out<N, K_WORDS>(b_shared, [&](unsigned column, unsigned word) {
        return operand<K_WORDS>(b_operands, left + column, columns, word);
    });
    unsigned long long b = descriptor<K_WORDS>(b_shared);
    Word d[D_REGISTERS];
    Cells cells{rows, columns, top + top_row, left, lane};
    cells.load(d, c_operands);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
#ifdef GROUPS
    unsigned e = metadata_register(metadata, lane, [&](unsigned row) { return cells.line(row); });
#endif
    EXECUTE(d, a, b AND_METADATA(e));
    cells.store(results, d);
}
