// Chains of one mma.sync on every SM: each warp computes TILES_M by TILES_N tiles, from operands in shared memory.
#include "tile.cuh"
#include "golden.cuh"

// Operands lie as the lanes take them, 16 bytes each at once: of a tile, `registers` of a lane.
__device__ constexpr unsigned at_once(unsigned registers) {
    return registers * sizeof(Word) < 16 ? registers : 16 / sizeof(Word);
}

__device__ unsigned fragment(unsigned tile, unsigned lane, unsigned r, unsigned registers) {
    unsigned together = at_once(registers);
    return ((tile * (registers / together) + r / together) * 32 + lane) * together + r % together;
}

template <unsigned REGISTERS> __device__ void take(Word (&words)[REGISTERS], const Word* shared, unsigned tile, unsigned lane) {
    constexpr unsigned TOGETHER = at_once(REGISTERS);
    struct alignas(TOGETHER * sizeof(Word)) Vector { Word word[TOGETHER]; };
#pragma unroll
    for (unsigned r = 0; r < REGISTERS; r += TOGETHER) {
        Vector v = *(const Vector*)(shared + fragment(tile, lane, r, REGISTERS));
#pragma unroll
        for (unsigned i = 0; i < TOGETHER; i++) words[r + i] = v.word[i];
    }
}

struct Unit {
    const Word *a_shared, *b_shared;

    __device__ Unit(Word* shared, const Word* a, const Word* b) : a_shared(shared), b_shared(shared + STEPS * ROWS * A_WORDS) {
        for (unsigned i = threadIdx.x; i < STEPS * ROWS * A_WORDS; i += THREADS) {
            unsigned tile = i / (32 * A_REGISTERS), lane = i / A_REGISTERS % 32, r = i % A_REGISTERS;
            shared[fragment(tile, lane, r, A_REGISTERS)] = a[(tile * M + a_row(lane, r)) * A_WORDS + a_word(lane, r)];
        }
        for (unsigned i = threadIdx.x; i < STEPS * COLUMNS * K_WORDS; i += THREADS) {
            unsigned tile = i / (32 * B_REGISTERS), lane = i / B_REGISTERS % 32, r = i % B_REGISTERS;
            shared[STEPS * ROWS * A_WORDS + fragment(tile, lane, r, B_REGISTERS)] =
                b[(tile * N + b_column(lane, r)) * K_WORDS + b_word(lane, r)];
        }
    }

    __device__ void begin() const {}
    __device__ void end() const {}

    __device__ __forceinline__ void compute(Word (&d)[HELD], unsigned chain, const unsigned (&codes)[CHAIN]) const {
        unsigned lane = threadIdx.x % 32;
#if !ADDENDS
#pragma unroll
        for (unsigned i = 0; i < HELD; i++) d[i] = 0;
#endif
#pragma unroll
        for (unsigned i = 0; i < CHAIN; i++) {
            Word a[TILES_M][A_REGISTERS], b[TILES_N][B_REGISTERS];
            unsigned a_step = (chain / STEPS + i) % STEPS, b_step = (chain + i) % STEPS;
#pragma unroll
            for (unsigned m = 0; m < TILES_M; m++) take(a[m], a_shared, a_step * TILES_M + m, lane);
#pragma unroll
            for (unsigned n = 0; n < TILES_N; n++) take(b[n], b_shared, b_step * TILES_N + n, lane);
#pragma unroll
            for (unsigned tile = 0; tile < TILES_M * TILES_N; tile++) {
                Word sum[D_REGISTERS];
#pragma unroll
                for (unsigned r = 0; r < D_REGISTERS; r++) sum[r] = d[tile * D_REGISTERS + r];
                EXECUTE(sum, a[tile / TILES_N], b[tile % TILES_N], sum AND_METADATA(codes[i]));
#pragma unroll
                for (unsigned r = 0; r < D_REGISTERS; r++) d[tile * D_REGISTERS + r] = sum[r];
            }
        }
    }
};
#include "golden_kernel.cuh"
