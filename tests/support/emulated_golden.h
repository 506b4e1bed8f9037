// Runs kernels of golden chains on the CPU, one thread each, for test_golden.py: CUDA's words, and an instruction that is a matrix
// product of the bit patterns taken as integers, modulo the size of a register of D. Stands between golden.cuh and a kernel.

static Word element(const Word* words, unsigned k) {
    constexpr unsigned OF_A_WORD = sizeof(Word) * 8 / ELEMENT_BITS;
    constexpr Word LOW = ELEMENT_BITS == sizeof(Word) * 8 ? ~(Word)0 : ((Word)1 << ELEMENT_BITS) - 1;
    return words[k / OF_A_WORD] >> (k % OF_A_WORD * ELEMENT_BITS) & LOW;
}

static Word dot(const Word* a, const Word* b) {
    Word sum = 0;
    for (unsigned k = 0; k < K_WORDS * sizeof(Word) * 8 / ELEMENT_BITS; k++) sum += element(a, k) * element(b, k);
    return sum;
}

// PTX ISA, "Strides" and "Matrix Descriptor Format": core matrices, 8 rows of 16 bytes, without swizzle.
static void row_of(Word (&words)[K_WORDS], Value descriptor, unsigned row) {
    unsigned start = (descriptor & 0x3FFF) << 4, leading = (descriptor >> 16 & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF) << 4;
    for (unsigned byte = 0; byte < K_WORDS * sizeof(Word); byte += 16)
        memcpy((char*)words + byte, (const char*)shared_base + start + row / 8 * stride + byte / 16 * leading + row % 8 * 16, 16);
}

static void multiply_chain(Word (&d)[HELD], const Value* a, const Value* b) {
    unsigned thread = threadIdx.x % 128;
    for (unsigned i = 0; i < HELD; i++) {
        d[i] = 0;
        for (unsigned step = 0; step < CHAIN; step++) {
            Word of_a[K_WORDS], of_b[K_WORDS];
            row_of(of_a, a[step], thread / 32 * 16 + cell_row(D_PACKED, thread % 32, i));
            row_of(of_b, b[step], cell_column(D_PACKED, thread % 32, i));
            d[i] += dot(of_a, of_b);
        }
    }
}

static Word matrix_a[TEAMS][M][K_WORDS], matrix_b[TEAMS][N][K_WORDS];

template <class D, class A, class B> static void multiply(D& d, const A& a, const B& b) {
    unsigned group = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (unsigned r = 0; r < A_REGISTERS; r++) matrix_a[group][a_row(lane, r)][a_word(lane, r)] = a[r];
    for (unsigned r = 0; r < B_REGISTERS; r++) matrix_b[group][b_column(lane, r)][b_word(lane, r)] = b[r];
    group_barrier[group]->arrive_and_wait();
    for (unsigned r = 0; r < D_REGISTERS; r++) d[r] += dot(matrix_a[group][cell_row(D_PACKED, lane, r)], matrix_b[group][cell_column(D_PACKED, lane, r)]);
    group_barrier[group]->arrive_and_wait();
}
