// One mma.sync on a matrix product: a warp computes tiles of M rows, side by side. Four tiles at once are one below the other.
#include "tile.cuh"
#include "product.cuh"

// a: [rows, K], b: [columns, K], c: [rows, columns], the operands' bit patterns. d: [rows, columns]; each element is one dot product
// of one instruction. A warp has TILES tiles; blocks: (groups of columns, the rows of four warps).
extern "C" __global__ void __launch_bounds__(128)
product(const Word* a_operands, const Word* b_operands, const CElement* c_operands METADATA, DElement* results, unsigned rows, unsigned columns) {
    unsigned lane = threadIdx.x % 32;
    unsigned top = ((blockIdx.y * 4 + threadIdx.x / 32) * TILES_OF_WARP + tile_of_lane(lane)) * M, left = blockIdx.x * TILES * N;
    Word a[A_REGISTERS], b[B_REGISTERS], c[C_REGISTERS], d[D_REGISTERS];
#pragma unroll
    for (unsigned r = 0; r < A_REGISTERS; r++) a[r] = operand<A_WORDS>(a_operands, top + a_row(lane, r), rows, a_word(lane, r)) << A_SHIFT;
#ifdef GROUPS
    Cells lines{rows, columns, top, left, lane};
    unsigned e = metadata_register(metadata, lane, [&](unsigned row) { return lines.line(row); });
#endif
#pragma unroll 2
    for (unsigned tile = 0; tile < TILES; tile++, left += N) {
#pragma unroll
        for (unsigned r = 0; r < B_REGISTERS; r++) b[r] = operand<K_WORDS>(b_operands, left + b_column(lane, r), columns, b_word(lane, r)) << B_SHIFT;
        Cells cells{rows, columns, top, left, lane};
        cells.load(c, c_operands);
        EXECUTE(d, a, b, c AND_METADATA(e));
        cells.store(results, d);
    }
}
