// Chains of matrix instructions with known results: each thread's words are folded into one of 32 bits, which is compared.
//
// Beside the names of tile.cuh, accprobe/build/golden.py writes above this file
//   STEPS          operands that lie in shared memory: so many tiles of A, and so many of B; a power of two
//   CHAIN          instructions of a chain: D = A[i] B[j], then D += A[i + 1] B[j + 1], … (modulo STEPS)
//   TEAMS          groups of threads in a block that compute a chain each; GROUP_THREADS: threads of one
//   TILES_M, TILES_N  tiles of the instruction that a group computes side by side
//   ADDENDS        1 where a chain begins with C, one of each row and the same in all columns; 0 where it begins with zero
//   PLANTED_…      where a kernel errs on purpose, from tests and benchmarks; see `plant`
//
// Chain i * STEPS + j computes a matrix product with CHAIN * K products per element. Its results [ROWS, COLUMNS] are at (i * ROWS,
// j * COLUMNS) of the results of all chains, [STEPS * ROWS, STEPS * COLUMNS].

constexpr unsigned ROWS = TILES_M * M, COLUMNS = TILES_N * N, CHAINS = STEPS * STEPS, HELD = TILES_M * TILES_N * D_REGISTERS;
constexpr unsigned THREADS = TEAMS * GROUP_THREADS, NOWHERE = 0xFFFFFFFF, MOST_SMS = 4096;

// The counts of a launch. done: chains of each SM (PTX ISA, "%smid"); wrong: their words that differ; kept: records, also those for which there was no room.
struct Tally {
    unsigned long long done[MOST_SMS];
    unsigned long long wrong[MOST_SMS];
    unsigned long long kept;
};

// A word that differs, or where no word does a fold that does: then its register is NOWHERE.
struct Record {
    unsigned sm, thread, chain, reg;
    unsigned long long got, expected;
};

// Which chains are computed, by whom, and how often. The chain of a group in a round is first + group * spread + round * stride.
// only: the one SM that computes; NOWHERE: all. peek_thread, peek_register: whose word is kept of every round in `peek`, without a comparison.
struct Job {
    unsigned rounds, first, spread, stride, only, peek_thread, peek_register, most_records;
};
#define JOB unsigned rounds, unsigned first, unsigned spread, unsigned stride, unsigned only, unsigned peek_thread, \
            unsigned peek_register, unsigned most_records
#define JOB_VALUES rounds, first, spread, stride, only, peek_thread, peek_register, most_records

__device__ unsigned this_sm() {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    return sm;
}

__device__ unsigned half(const Word (&d)[HELD], unsigned i) {
    constexpr unsigned HALVES = sizeof(Word) / 4;
    return (unsigned)(d[i / HALVES] >> (32 * (i % HALVES)));
}

// One number of 32 bits for all words that a thread holds. If one word differs, in any bits, the number differs too: each step can
// be undone. The first of the two words of a step is rotated by five bits and multiplied by an odd number. So two differences of
// one bit, even of the same bit of both words, do not cancel: 32 C + 1 and 32 C - 1 are odd. Four run side by side, and the
// instructions are spread over two pipes of the SM.
__device__ unsigned fold(const Word (&d)[HELD]) {
    constexpr unsigned SIDE_BY_SIDE = 4, WORDS = HELD * (sizeof(Word) / 4), C = 0x9E3779B1;
    unsigned folded[SIDE_BY_SIDE] = {1, 2, 3, 4};
#pragma unroll
    for (unsigned i = 0; i < WORDS; i += 2) {
        unsigned& x = folded[i / 2 % SIDE_BY_SIDE];
        unsigned turned = x ^ half(d, i);
        x = __funnelshift_l(turned, turned, 5) * C + half(d, i + 1);
    }
    unsigned all = folded[0];
#pragma unroll
    for (unsigned i = 1; i < SIDE_BY_SIDE; i++) all = __funnelshift_l(all, all, 5) * C + folded[i];
    return all;
}

// Which cell of a chain's results word i of a thread is. thread: within its group.
__device__ unsigned row_of(unsigned thread, unsigned i) {
    return i / D_REGISTERS / TILES_N * M + thread / 32 * 16 + cell_row(D_PACKED, thread % 32, i % D_REGISTERS);
}
__device__ unsigned column_of(unsigned thread, unsigned i) {
    return i / D_REGISTERS % TILES_N * N + cell_column(D_PACKED, thread % 32, i % D_REGISTERS);
}

// Where that word lies among the results of all chains.
__device__ unsigned long long cell(unsigned chain, unsigned thread, unsigned i) {
    unsigned long long row = chain / STEPS * ROWS + row_of(thread, i);
    return row * (STEPS * COLUMNS) + chain % STEPS * COLUMNS + column_of(thread, i);
}

__device__ __forceinline__ void keep(Tally* tally, Record* records, const Job& job, const Record& found) {
    unsigned long long at = atomicAdd(&tally->kept, 1ull);
    if (at < job.most_records) records[at] = found;
}

// Reports every word that differs of a thread with another fold.
__device__ __forceinline__ void report(const Word (&d)[HELD], unsigned folded, unsigned expected, const DElement* words, unsigned chain,
                                       unsigned thread, Tally* tally, Record* records, const Job& job) {
    unsigned sm = this_sm(), wrong = 0;
#pragma unroll
    for (unsigned i = 0; i < HELD; i++) {
        Word right = words[cell(chain, thread, i)];
        if (d[i] != right) {
            wrong++;
            keep(tally, records, job, {sm, threadIdx.x, chain, i, d[i], right});
        }
    }
    if (!wrong) keep(tally, records, job, {sm, threadIdx.x, chain, NOWHERE, folded, expected});
    atomicAdd(&tally->wrong[sm], wrong ? wrong : 1);
}

// After each chain: keeps the word that `peek` asks for, or else compares the results with the expected ones.
__device__ __forceinline__ void compare(const Word (&d)[HELD], unsigned expected, const DElement* words, unsigned chain, unsigned thread,
                                        unsigned round, Tally* tally, Record* records, DElement* peek, const Job& job) {
    if (job.peek_thread != NOWHERE) {
        Word asked = 0;
#pragma unroll
        for (unsigned i = 0; i < HELD; i++) asked |= d[i] & -(Word)(i == job.peek_register);
        if (threadIdx.x == job.peek_thread) peek[round] = (DElement)asked;
        return;
    }
    unsigned folded = fold(d);
    if (folded != expected) report(d, folded, expected, words, chain, thread, tally, records, job);
}

// The fold of what every thread of a group must hold: a block a chain.
extern "C" __global__ void fold_words(const DElement* words, unsigned* folded) {
    Word d[HELD];
#pragma unroll
    for (unsigned i = 0; i < HELD; i++) d[i] = words[cell(blockIdx.x, threadIdx.x, i)];
    folded[blockIdx.x * blockDim.x + threadIdx.x] = fold(d);
}
