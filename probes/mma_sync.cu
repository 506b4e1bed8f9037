// One mma.sync on many independent dot products: a warp takes a tile at a time, or four.
#include "tile.cuh"

// a, b: [count, K] and c: [count], the operands' bit patterns; d: [count], written once each. `stored` grows by the number of
// results written, which tells the host that none is missing. placement: of the first tile, below PLACEMENTS.
extern "C" __global__ void __launch_bounds__(128)
probe(const Word* a_operands, const Word* b_operands, const CElement* c_operands METADATA BLOCK_SCALES, DElement* results,
      unsigned long long* stored, unsigned long long count, unsigned placement) {
    unsigned block = blockIdx.x, blocks = gridDim.x;
    unsigned lane = threadIdx.x % 32;
    unsigned long long warp = (block * (unsigned long long)blockDim.x + threadIdx.x) / 32;
    unsigned long long stride = blocks * (unsigned long long)blockDim.x / 32 * TILES_OF_WARP * PROBLEMS;
    unsigned long long mine = 0;

#pragma unroll 1
    for (unsigned long long first = warp * TILES_OF_WARP * PROBLEMS; first < count; first += stride) {
        Tile tile{a_operands, b_operands, c_operands, results, count, first + tile_of_lane(lane) * PROBLEMS, placement};
        Word a[A_REGISTERS], b[B_REGISTERS], c[C_REGISTERS], d[D_REGISTERS];
#pragma unroll
        for (unsigned r = 0; r < A_REGISTERS; r++) a[r] = tile.a_word(a_row(lane, r), a_word(lane, r));
#pragma unroll
        for (unsigned r = 0; r < B_REGISTERS; r++) b[r] = tile.b_word(b_column(lane, r), b_word(lane, r));
        load_c(c, tile, 0, lane);
#ifdef GROUPS
        unsigned e = metadata_register(metadata, lane, [&](unsigned row) { return tile.line(row); });
#endif
#ifdef SCALES
        unsigned s[2] = {scale_register(scales_of_a, tile.line(scale_row(lane))),
                         scale_register(scales_of_b, tile.line_of_column(scale_column(lane)))};
#endif
        EXECUTE(d, a, b, c AND_METADATA(e) AND_SCALES(s));
        mine += report_d(d, tile, 0, lane);
    }
    if (mine) atomicAdd(stored, mine);
}
