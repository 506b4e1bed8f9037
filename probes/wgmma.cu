// One wgmma on many independent dot products: a block is one warpgroup, which takes a tile at a time.
#include "tile.cuh"
#include "core_matrices.cuh"

// Arguments: see mma_sync.cu.
extern "C" __global__ void __launch_bounds__(128)
probe(const Word* a_operands, const Word* b_operands, const CElement* c_operands METADATA, DElement* results,
      unsigned long long* stored, unsigned long long count, unsigned placement) {
    unsigned block = blockIdx.x, blocks = gridDim.x;
    alignas(1024) __shared__ Word a_shared[M * A_WORDS];
    alignas(1024) __shared__ Word b_shared[N * K_WORDS];
    unsigned lane = threadIdx.x % 32, top_row = threadIdx.x / 32 * 16;
    unsigned long long stride = blocks * (unsigned long long)PROBLEMS;
    unsigned long long mine = 0;

#pragma unroll 1
    for (unsigned long long first = block * (unsigned long long)PROBLEMS; first < count; first += stride) {
        Tile tile{a_operands, b_operands, c_operands, results, count, first, placement};
#if A_REGISTERS
        Word a[A_REGISTERS];
#pragma unroll
        for (unsigned r = 0; r < A_REGISTERS; r++) a[r] = tile.a_word(top_row + a_row(lane, r), a_word(lane, r));
#else
        lay_out<M, A_WORDS>(a_shared, [&](unsigned row, unsigned word) { return tile.a_word(row, word); });
        unsigned long long a = descriptor<A_WORDS>(a_shared);
#endif
        lay_out<N, K_WORDS>(b_shared, [&](unsigned column, unsigned word) { return tile.b_word(column, word); });
        unsigned long long b = descriptor<K_WORDS>(b_shared);
        Word d[D_REGISTERS];
        load_c(d, tile, top_row, lane);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
#ifdef GROUPS
        unsigned e = metadata_register(metadata, lane, [&](unsigned row) { return tile.line(top_row + row); });
#endif
        EXECUTE(d, a, b AND_METADATA(e));
        mine += report_d(d, tile, top_row, lane);
        __syncthreads();
    }
    if (mine) atomicAdd(stored, mine);
}
