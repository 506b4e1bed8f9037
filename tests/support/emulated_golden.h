// Runs kernels of golden chains on the CPU, one thread each, for test_golden.py: CUDA's words, and an instruction that is a matrix
// product of the bit patterns taken as integers, modulo the size of a register of D. Stands between golden.cuh and a kernel.

constexpr unsigned OF_A_WORD = sizeof(Word) * 8 / ELEMENT_BITS;

static Word element(const Word* words, unsigned k) {
    constexpr Word LOW = ELEMENT_BITS == sizeof(Word) * 8 ? ~(Word)0 : ((Word)1 << ELEMENT_BITS) - 1;
    return words[k / OF_A_WORD] >> (k % OF_A_WORD * ELEMENT_BITS) & LOW;
}

#ifdef GROUPS
// PTX ISA, the figures of metadata of mma.sp and of wgmma.mma_async.sp: what the lanes of each warp hold of one instruction, and
// the code of a group of four elements of a row in it.
static unsigned held[32][32];

static unsigned code_of(unsigned row, unsigned group) {
    unsigned lane = row % 8 * 4 + (METADATA_ROWS == 2 ? group / 4 : group / 8 * 2 + row % 16 / 8);
    return held[threadIdx.x / 32][lane] >> 4 * (METADATA_ROWS == 2 ? row % 16 / 8 * 4 + group % 4 : group % 8) & 15;
}

static void exchange(unsigned e) {
    group_barrier[threadIdx.x / 32]->arrive_and_wait();
    held[threadIdx.x / 32][threadIdx.x % 32] = e;
    group_barrier[threadIdx.x / 32]->arrive_and_wait();
}

static unsigned met(unsigned row, unsigned k) { return k / 2 * 4 + (code_of(row, k / 2) >> k % 2 * 2 & 3); }
#else
static void exchange(unsigned) {}
static unsigned met(unsigned, unsigned k) { return k; }
#endif

static Word dot(const Word* a, const Word* b, unsigned row) {
    Word sum = 0;
    for (unsigned k = 0; k < A_WORDS * OF_A_WORD; k++) sum += element(a, k) * element(b, met(row, k));
    return sum;
}

// PTX ISA, "Strides" and "Matrix Descriptor Format": core matrices, 8 rows of 16 bytes, without swizzle.
template <unsigned WORDS> static void line_of(Word (&words)[WORDS], Value descriptor, unsigned line) {
    unsigned start = (descriptor & 0x3FFF) << 4, leading = (descriptor >> 16 & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF) << 4;
    for (unsigned byte = 0; byte < WORDS * sizeof(Word); byte += 16)
        memcpy((char*)words + byte, (const char*)shared_base + start + line / 8 * stride + byte / 16 * leading + line % 8 * 16, 16);
}

static void multiply_chain(Word (&d)[HELD], const Value* a, const Value* b, const unsigned* e) {
    unsigned thread = threadIdx.x % 128;
    for (unsigned step = 0; step < CHAIN; step++) {
        exchange(e[step]);
        for (unsigned i = 0; i < HELD; i++) {
            unsigned row = cell_row(D_PACKED, thread % 32, i);
            Word of_a[A_WORDS], of_b[K_WORDS];
            line_of(of_a, a[step], thread / 32 * 16 + row);
            line_of(of_b, b[step], cell_column(D_PACKED, thread % 32, i));
            d[i] = (step || ADDENDS ? d[i] : 0) + dot(of_a, of_b, row);
        }
    }
}

static Word matrix_a[TEAMS][M][A_WORDS], matrix_b[TEAMS][N][K_WORDS];

template <class D, class A, class B> static void multiply(D& d, const A& a, const B& b, unsigned e) {
    unsigned group = threadIdx.x / 32, lane = threadIdx.x % 32;
    exchange(e);
    for (unsigned r = 0; r < A_REGISTERS; r++) matrix_a[group][a_row(lane, r)][a_word(lane, r)] = a[r];
    for (unsigned r = 0; r < B_REGISTERS; r++) matrix_b[group][b_column(lane, r)][b_word(lane, r)] = b[r];
    group_barrier[group]->arrive_and_wait();
    for (unsigned r = 0; r < D_REGISTERS; r++) {
        unsigned row = cell_row(D_PACKED, lane, r);
        d[r] += dot(matrix_a[group][row], matrix_b[group][cell_column(D_PACKED, lane, r)], row);
    }
    group_barrier[group]->arrive_and_wait();
}
