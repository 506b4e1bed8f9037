// The kernel of golden chains, of any `Unit`: what computes one chain.
//
//   Unit(shared, a, b)        brings the operands to where the instruction finds them; all threads of a block then synchronise
//   begin(), end()            before the first chain, and behind the last
//   compute(d, chain, codes)  d: of ADDENDS C, otherwise nothing yet. codes: the register of metadata of each instruction

// Rows of A that have metadata of their own: below them it is the same again, as it is in all tiles.
constexpr unsigned METADATA_LINES = 16;

// Plants an error in kernels that test accprobe itself. It flips a bit in one register of one thread of one SM. It does so if, in the
// last instruction of a chain, a word of A has certain bits, and its partner of B has certain bits.
__device__ __forceinline__ void plant(Word (&d)[HELD], const Word* a, const Word* b, const unsigned char* metadata, unsigned chain,
                                      unsigned thread) {
#ifdef PLANTED_SM
    if (this_sm() != PLANTED_SM || threadIdx.x != PLANTED_THREAD) return;
    unsigned row = row_of(thread, PLANTED_REGISTER), column = column_of(thread, PLANTED_REGISTER);
    Word of_a = a[((chain / STEPS + CHAIN - 1) % STEPS * ROWS + row) * A_WORDS + PLANTED_WORD], of_b = 0;
    const Word* line = b + ((chain + CHAIN - 1) % STEPS * COLUMNS + column) * K_WORDS;
#ifdef GROUPS
    // Two elements of each four are stored: of 8 or of 16 bits.
    constexpr unsigned STORED = 2 * GROUPS / A_WORDS, BITS = 32 / STORED;
#pragma unroll
    for (unsigned i = 0; i < STORED; i++) {
        unsigned stored = PLANTED_WORD * STORED + i, group = stored / 2;
        unsigned code = metadata[(row % METADATA_LINES * CHAIN + CHAIN - 1) * GROUPS + group];
        unsigned k = group * 4 + (code >> (stored % 2 * 2) & 3);
        of_b |= (line[k / STORED] >> (k % STORED * BITS) & ((1ull << BITS) - 1)) << (i * BITS);
    }
#else
    of_b = line[PLANTED_WORD];
#endif
    if ((of_a & PLANTED_MASK) == PLANTED_A && (of_b & PLANTED_MASK) == PLANTED_B) d[PLANTED_REGISTER] ^= (Word)1 << PLANTED_BIT;
#endif
}

// a: [STEPS * ROWS, A_WORDS], b: [STEPS * COLUMNS, K_WORDS], bit patterns; metadata: [METADATA_LINES, CHAIN, GROUPS] of a sparse A;
// addends: [STEPS * ROWS] of ADDENDS; folded: [CHAINS, GROUP_THREADS]; words: see `cell`. A block an SM.
extern "C" __global__ void __launch_bounds__(THREADS, 1)
golden(const Word* a, const Word* b, const unsigned char* metadata, const CElement* addends, const unsigned* folded,
       const DElement* words, Tally* tally, Record* records, DElement* peek, JOB) {
    Job job{JOB_VALUES};
    extern __shared__ __align__(1024) Word shared[];
    unsigned sm = this_sm();
    if (job.only != NOWHERE && sm != job.only) return;
    Unit unit(shared, a, b);
    __syncthreads();

    unsigned group = threadIdx.x / GROUP_THREADS, thread = threadIdx.x % GROUP_THREADS, codes[CHAIN] = {};
#ifdef GROUPS
#pragma unroll
    for (unsigned i = 0; i < CHAIN; i++)
        codes[i] = metadata_register(metadata, thread % 32, [=](unsigned row) { return (unsigned long long)(row * CHAIN + i); });
#endif
    unsigned chain = job.first + (blockIdx.x * TEAMS + group) * job.spread;
    unit.begin();
#pragma unroll 1
    for (unsigned round = 0; round < job.rounds; round++, chain += job.stride) {
        chain %= CHAINS;
        unsigned expected = folded[chain * GROUP_THREADS + thread];
        Word d[HELD];
#if ADDENDS
#pragma unroll
        for (unsigned i = 0; i < HELD; i++) d[i] = addends[chain / STEPS * ROWS + row_of(thread, i)];
#endif
        unit.compute(d, chain, codes);
        plant(d, a, b, metadata, chain, thread);
        compare(d, expected, words, chain, thread, round, tally, records, peek, job);
    }
    unit.end();
    if (!thread) atomicAdd(&tally->done[sm], job.rounds);
}
