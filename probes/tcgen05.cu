// One tcgen05.mma on many independent dot products: a block takes a tile of 128 rows at a time, a thread a row of D.
#include "tile.cuh"
#include "core_matrices.cuh"
#include "tensor_memory.cuh"

constexpr unsigned SCALE_COLUMNS_OF_B = (N + 127) / 128 * 4;
static_assert(M == 128 && (A_WORDS == 8 || A_WORDS == K_96) && N % 4 == 0, "a tile of 128 rows with 32 or 48 bytes of K");

// Arguments: see mma_sync.cu. D, and C before it, is in the first N columns: row r in lane r, a column of 32 bits for each of its
// elements. Metadata comes behind, then the scales of A: those of row r in lane r % 32, column r / 32, and in the same lane of every
// other quarter, the next four of each row behind; then likewise those of B, column for row (PTX ISA, "Block Scaling", "Scale factor A
// ID" and "Scale factor B ID", the layouts).
extern "C" __global__ void __launch_bounds__(128)
probe(const Word* a_operands, const Word* b_operands, const CElement* c_operands METADATA BLOCK_SCALES, DElement* results,
      unsigned long long* stored, unsigned long long count, unsigned placement CLAIMS) {
    SHARE_WORK(block, blocks)
    alignas(1024) __shared__ Word a_shared[M * ROOM<A_WORDS>];
    alignas(1024) __shared__ Word b_shared[N * ROOM<K_WORDS>];
    alignas(8) __shared__ unsigned long long finished;
    __shared__ unsigned tensor;
    unsigned row = threadIdx.x, lanes = row / 32 * 32 << 16;
    unsigned long long stride = blocks * (unsigned long long)PROBLEMS, mine = 0;
    unsigned phase = 0;

    if (row < 32) allocate(&tensor);
    if (row == 0) prepare(&finished);
    read_through();
    unsigned d = tensor;

#pragma unroll 1
    for (unsigned long long first = block * (unsigned long long)PROBLEMS; first < count; first += stride) {
        Tile tile{a_operands, b_operands, c_operands, results, count, first, placement};
        lay_out<M, A_WORDS>(a_shared, [&](unsigned of, unsigned word) {
            return shared_word<A_BITS, A_WORDS>(a_operands, tile.line(of), word);
        });
        lay_out<N, K_WORDS>(b_shared, [&](unsigned of, unsigned word) {
            return shared_word<B_BITS, K_WORDS>(b_operands, tile.line_of_column(of), word);
        });
        unsigned problem = tile.problem_in_row(row), words[4];
        Word element = tile.c_element(row);
        for (unsigned column = 0; column < N; column += 4) {
#pragma unroll
            for (unsigned i = 0; i < 4; i++) words[i] = tile.problem_in_column(column + i) == problem ? element : 0;
            store_columns(d + lanes + column, words);
        }
#ifdef GROUPS
        unsigned e = d + N;
#pragma unroll
        for (unsigned i = 0; i < METADATA_COLUMNS; i++)
            words[i] = metadata_word(metadata, row, i, [&](unsigned of) { return tile.line(of); });
        store_columns(e + lanes, words);
#endif
#ifdef SCALES
        unsigned s[2] = {d + N + METADATA_COLUMNS, d + N + METADATA_COLUMNS + (SCALES + 3) / 4 * 4};
        for (unsigned scale = 0; scale < SCALES; scale += 4) {
#pragma unroll
            for (unsigned i = 0; i < 4; i++) words[i] = scale_register(scales_of_a, tile.line(i * 32 + row % 32), scale);
            store_columns(s[0] + lanes + scale, words);
            for (unsigned column = 0; column < N; column += 128) {
#pragma unroll
                for (unsigned i = 0; i < 4; i++) {
                    unsigned of = column + i * 32 + row % 32;
                    words[i] = of < N ? scale_register(scales_of_b, tile.line_of_column(of), scale) : 0;
                }
                store_columns(s[1] + lanes + scale / 4 * SCALE_COLUMNS_OF_B + column / 32, words);
            }
        }
#endif
        written();
        if (row == 0) {
            unsigned long long a = descriptor<A_WORDS>(a_shared) | FIFTH_GENERATION, b = descriptor<K_WORDS>(b_shared) | FIFTH_GENERATION;
            EXECUTE(d, a, b AND_METADATA(e), (unsigned)DESCRIPTOR AND_SCALES(s));
            commit(&finished);
        }
        wait(&finished, phase);
        phase ^= 1;
        unsigned reported = tile.reported_column(row);
        for (unsigned column = 0; column < N; column += 4) {
            load_columns(d + lanes + column, words);
            if (reported / 4 == column / 4 && reported < N) {
                tile.d[tile.first + problem] = (DElement)words[reported % 4];
                mine++;
            }
        }
        read_through();
    }
    if (row < 32) deallocate(d);
    if (mine) atomicAdd(stored, mine);
}
