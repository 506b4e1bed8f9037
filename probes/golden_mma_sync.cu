// Chains of one mma.sync on every SM: each warp computes TILES_M by TILES_N tiles, from operands in shared memory.
#include "tile.cuh"
#include "golden.cuh"

constexpr unsigned GROUP_THREADS = 32, THREADS = TEAMS * GROUP_THREADS;

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

// Arguments: as those of golden_wgmma.cu; a: [STEPS * ROWS, K], b: [STEPS * COLUMNS, K], folded: [CHAINS, 32].
extern "C" __global__ void __launch_bounds__(THREADS, 1)
golden(const Word* a_operands, const Word* b_operands, const unsigned* folded, const DElement* words, Tally* tally, Record* records,
       DElement* peek, JOB) {
    Job job{JOB_VALUES};
    extern __shared__ __align__(1024) Word shared[];
    Word *a_shared = shared, *b_shared = shared + STEPS * ROWS * K_WORDS;
    unsigned sm = this_sm();
    if (job.only != NOWHERE && sm != job.only) return;
    for (unsigned i = threadIdx.x; i < STEPS * ROWS * K_WORDS; i += THREADS) {
        unsigned tile = i / (32 * A_REGISTERS), lane = i / A_REGISTERS % 32, r = i % A_REGISTERS;
        a_shared[fragment(tile, lane, r, A_REGISTERS)] = a_operands[(tile * M + a_row(lane, r)) * K_WORDS + a_word(lane, r)];
    }
    for (unsigned i = threadIdx.x; i < STEPS * COLUMNS * K_WORDS; i += THREADS) {
        unsigned tile = i / (32 * B_REGISTERS), lane = i / B_REGISTERS % 32, r = i % B_REGISTERS;
        b_shared[fragment(tile, lane, r, B_REGISTERS)] = b_operands[(tile * N + b_column(lane, r)) * K_WORDS + b_word(lane, r)];
    }
    __syncthreads();

    unsigned group = threadIdx.x / GROUP_THREADS, lane = threadIdx.x % GROUP_THREADS;
    unsigned chain = job.first + (blockIdx.x * TEAMS + group) * job.spread;
#pragma unroll 1
    for (unsigned round = 0; round < job.rounds; round++, chain += job.stride) {
        chain %= CHAINS;
        unsigned expected = folded[chain * GROUP_THREADS + lane];
        Word d[HELD];
#pragma unroll
        for (unsigned i = 0; i < HELD; i++) d[i] = 0;
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
                MULTIPLY(sum, a[tile / TILES_N], b[tile % TILES_N], sum);
#pragma unroll
                for (unsigned r = 0; r < D_REGISTERS; r++) d[tile * D_REGISTERS + r] = sum[r];
            }
        }
#ifdef PLANTED_SM
        constexpr unsigned TILE = PLANTED_REGISTER / D_REGISTERS, REGISTER = PLANTED_REGISTER % D_REGISTERS;
        unsigned row = TILE / TILES_N * M + cell_row(D_PACKED, lane, REGISTER);
        unsigned column = TILE % TILES_N * N + cell_column(D_PACKED, lane, REGISTER);
        unsigned a_line = (chain / STEPS + CHAIN - 1) % STEPS * ROWS + row, b_line = (chain + CHAIN - 1) % STEPS * COLUMNS + column;
        plant(d, a_operands[a_line * K_WORDS + PLANTED_WORD], b_operands[b_line * K_WORDS + PLANTED_WORD]);
#endif
        compare(d, expected, words, chain, lane, round, tally, records, peek, job);
    }
    if (!lane) atomicAdd(&tally->done[sm], job.rounds);
}
