// Chains of one wgmma on every SM: while one warpgroup compares what it has, the other one multiplies.
#include "tile.cuh"
#include "wgmma_memory.cuh"
#include "golden.cuh"

constexpr unsigned GROUP_THREADS = 128, THREADS = TEAMS * GROUP_THREADS;
static_assert(TEAMS == 2, "two warpgroups take turns");

// a: [STEPS * M, K], b: [STEPS * N, K], bit patterns; folded: [CHAINS, 128], words: see golden.cuh. A block an SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
golden(const Word* a_operands, const Word* b_operands, const unsigned* folded, const DElement* words, Tally* tally, Record* records,
       DElement* peek, JOB) {
    Job job{JOB_VALUES};
    extern __shared__ __align__(1024) Word shared[];
    Word *a_shared = shared, *b_shared = shared + STEPS * M * K_WORDS;
    unsigned sm = this_sm();
    if (job.only != NOWHERE && sm != job.only) return;
    for (unsigned i = threadIdx.x; i < STEPS * M * K_WORDS; i += THREADS)
        a_shared[i / (M * K_WORDS) * (M * K_WORDS) + place<K_WORDS>(i / K_WORDS % M, i % K_WORDS)] = a_operands[i];
    for (unsigned i = threadIdx.x; i < STEPS * N * K_WORDS; i += THREADS)
        b_shared[i / (N * K_WORDS) * (N * K_WORDS) + place<K_WORDS>(i / K_WORDS % N, i % K_WORDS)] = b_operands[i];
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();

    unsigned long long a_first = descriptor<K_WORDS>(a_shared), b_first = descriptor<K_WORDS>(b_shared);
    constexpr unsigned A_STEP = M * K_WORDS * 4 / 16, B_STEP = N * K_WORDS * 4 / 16;
    unsigned group = threadIdx.x / GROUP_THREADS, thread = threadIdx.x % GROUP_THREADS, mine = 1 + group, other = 2 - group;
    unsigned chain = job.first + (blockIdx.x * TEAMS + group) * job.spread;
    if (group) asm volatile("bar.arrive %0, %1;" :: "r"(other), "n"(THREADS) : "memory");

#pragma unroll 1
    for (unsigned round = 0; round < job.rounds; round++, chain += job.stride) {
        chain %= CHAINS;
        unsigned expected = folded[chain * GROUP_THREADS + thread];
        unsigned long long a[CHAIN], b[CHAIN];
#pragma unroll
        for (unsigned i = 0; i < CHAIN; i++) {
            a[i] = a_first + (chain / STEPS + i) % STEPS * A_STEP;
            b[i] = b_first + (chain + i) % STEPS * B_STEP;
        }
        Word d[HELD];
        asm volatile("bar.sync %0, %1;" :: "r"(mine), "n"(THREADS) : "memory");
        MULTIPLY_CHAIN(d, a, b, other);
#ifdef PLANTED_SM
        unsigned row = thread / 32 * 16 + cell_row(D_PACKED, thread % 32, PLANTED_REGISTER);
        unsigned column = cell_column(D_PACKED, thread % 32, PLANTED_REGISTER);
        plant(d, a_shared[(chain / STEPS + CHAIN - 1) % STEPS * M * K_WORDS + place<K_WORDS>(row, PLANTED_WORD)],
              b_shared[(chain + CHAIN - 1) % STEPS * N * K_WORDS + place<K_WORDS>(column, PLANTED_WORD)]);
#endif
        compare(d, expected, words, chain, thread, round, tally, records, peek, job);
    }
    if (!group) asm volatile("bar.sync %0, %1;" :: "r"(mine), "n"(THREADS) : "memory");
    if (!thread) atomicAdd(&tally->done[sm], job.rounds);
}
