// One tcgen05.mma on many independent dot products: a block takes 128 rows of a tile at a time, a thread a row of D. Two blocks
// share a tile with 256 rows: each has half of the rows, and half of B's columns.
#include "tile.cuh"
#include "core_matrices.cuh"
#include "tensor_memory.cuh"

constexpr unsigned ROWS = M / BLOCKS_OF_TILE, COLUMNS_OF_B = N / BLOCKS_OF_TILE, SCALE_COLUMNS_OF_B = (N + 127) / 128 * 4;
static_assert(ROWS == 128 && (A_WORDS == 8 || A_WORDS == K_96) && N % 8 == 0, "128 rows with 32 or 48 bytes of K");

// Arguments: see mma_sync.cu. D, and C before it, is in the first N columns: row r in lane r, a column of 32 bits for each of its
// elements. Metadata comes behind, then the scales of A, then likewise the scales of all columns of B. The scales of row r are in
// lane r % 32, column r / 32, and in the same lane of every other quarter. The next four scales of each row come behind.
// Sources: PTX ISA, "Data Path Layout Organization", A and D; "Block Scaling", the layouts "Scale factor A ID" and "… B ID".
extern "C" __global__ void CLUSTER __launch_bounds__(128)
probe(const Word* a_operands, const Word* b_operands, const CElement* c_operands METADATA BLOCK_SCALES, DElement* results,
      unsigned long long* stored, unsigned long long count, unsigned placement) {
    unsigned block = blockIdx.x, blocks = gridDim.x;
    alignas(1024) __shared__ Word a_shared[ROWS * ROOM<A_WORDS>];
    alignas(1024) __shared__ Word b_shared[COLUMNS_OF_B * ROOM<K_WORDS>];
    alignas(8) __shared__ unsigned long long finished;
    __shared__ unsigned tensor;
    unsigned lane = threadIdx.x, lanes = lane / 32 * 32 << 16, rank = rank_in_tile(), top = rank * ROWS, left = rank * COLUMNS_OF_B;
    unsigned long long a = descriptor<A_WORDS>(a_shared) | FIFTH_GENERATION, b = descriptor<K_WORDS>(b_shared) | FIFTH_GENERATION;
    unsigned long long stride = blocks / BLOCKS_OF_TILE * (unsigned long long)PROBLEMS, mine = 0;
    unsigned phase = 0;

    meet();
    if (lane < 32) allocate(&tensor);
    if (lane == 0) prepare(&finished);
    read_through();
    unsigned d = tensor;

#pragma unroll 1
    for (unsigned long long first = block / BLOCKS_OF_TILE * (unsigned long long)PROBLEMS; first < count; first += stride) {
        Tile tile{a_operands, b_operands, c_operands, results, count, first, placement};
        lay_out<ROWS, A_WORDS>(a_shared, [&](unsigned row, unsigned word) {
            return shared_word<A_BITS, A_WORDS>(a_operands, tile.line(top + row), word);
        });
        lay_out<COLUMNS_OF_B, K_WORDS>(b_shared, [&](unsigned column, unsigned word) {
            return shared_word<B_BITS, K_WORDS>(b_operands, tile.line_of_column(left + column), word);
        });
        unsigned row = top + lane, problem = tile.problem_in_row(row), words[4];
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
            words[i] = metadata_word(metadata, lane, i, [&](unsigned of) { return tile.line(top + of); });
        store_columns(e + lanes, words);
#endif
#ifdef SCALES
        unsigned s[2] = {d + N + METADATA_COLUMNS, d + N + METADATA_COLUMNS + (SCALES + 3) / 4 * 4};
        for (unsigned scale = 0; scale < SCALES; scale += 4) {
#pragma unroll
            for (unsigned i = 0; i < 4; i++) words[i] = scale_register(scales_of_a, tile.line(top + i * 32 + lane % 32), scale);
            store_columns(s[0] + lanes + scale, words);
            for (unsigned column = 0; column < N; column += 128) {
#pragma unroll
                for (unsigned i = 0; i < 4; i++) {
                    unsigned of = column + i * 32 + lane % 32;
                    words[i] = of < N ? scale_register(scales_of_b, tile.line_of_column(of), scale) : 0;
                }
                store_columns(s[1] + lanes + scale / 4 * SCALE_COLUMNS_OF_B + column / 32, words);
            }
        }
#endif
        written();
        if (rank == 0 && lane == 0) {
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
    if (lane < 32) deallocate(d);
    if (mine) atomicAdd(stored, mine);
}
