// One wgmma on many independent dot products: a block is one warpgroup, which takes a tile at a time.
#include "tile.cuh"

// Operands in shared memory, 32 bytes of K a row, not swizzled. PTX ISA, "Shared Memory Matrix Layout": core matrices of eight
// rows by 16 bytes lie whole, the two along K 128 bytes apart (the leading offset), the next eight rows 256 bytes on (the stride
// offset). Every wgmma has 32 bytes of K.
constexpr unsigned LEADING_OFFSET = 128, STRIDE_OFFSET = 256;

__device__ unsigned place(unsigned row, unsigned word) {
    return (row / 8 * STRIDE_OFFSET + word / 4 * LEADING_OFFSET + row % 8 * 16) / 4 + word % 4;
}

// PTX ISA, "Matrix Descriptor Format": start address in bits 0-13, leading offset in 16-29, stride offset in 32-45, each over 16.
__device__ unsigned long long descriptor(const Word* shared) {
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    return (address & 0x3FFFF) >> 4 | (unsigned long long)(LEADING_OFFSET >> 4) << 16
         | (unsigned long long)(STRIDE_OFFSET >> 4) << 32;
}

// Arguments: see mma_sync.cu.
extern "C" __global__ void __launch_bounds__(128)
probe(const Word* a_operands, const Word* b_operands, const CElement* c_operands, DElement* results,
      unsigned long long* stored, unsigned long long count, unsigned row_shift, unsigned column_shift) {
    alignas(1024) __shared__ Word a_shared[M * K_WORDS];
    alignas(1024) __shared__ Word b_shared[N * K_WORDS];
    unsigned lane = threadIdx.x % 32, top_row = threadIdx.x / 32 * 16;
    unsigned long long stride = gridDim.x * (unsigned long long)PROBLEMS;
    unsigned long long mine = 0;

#pragma unroll 1
    for (unsigned long long first = blockIdx.x * (unsigned long long)PROBLEMS; first < count; first += stride) {
        Tile tile{a_operands, b_operands, c_operands, results, count, first, row_shift, column_shift};
#if A_REGISTERS
        Word a[A_REGISTERS];
#pragma unroll
        for (unsigned r = 0; r < A_REGISTERS; r++) a[r] = tile.a_word(top_row + a_row(lane, r), a_word(lane, r));
#else
        for (unsigned i = threadIdx.x; i < M * K_WORDS; i += 128)
            a_shared[place(i / K_WORDS, i % K_WORDS)] = tile.a_word(i / K_WORDS, i % K_WORDS);
        unsigned long long a = descriptor(a_shared);
#endif
        for (unsigned i = threadIdx.x; i < N * K_WORDS; i += 128)
            b_shared[place(i / K_WORDS, i % K_WORDS)] = tile.b_word(i / K_WORDS, i % K_WORDS);
        unsigned long long b = descriptor(b_shared);
        Word d[D_REGISTERS];
        load_c(d, tile, top_row, lane);
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        __syncthreads();
        MULTIPLY(d, a, b);
        mine += report_d(d, tile, top_row, lane);
        __syncthreads();
    }
    if (mine) atomicAdd(stored, mine);
}
