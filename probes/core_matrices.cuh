// Operands in shared memory, not swizzled. PTX ISA, "Shared Memory Matrix Layout" of wgmma and "Canonical layouts" of tcgen05.
// A core matrix of eight rows by 16 bytes is contiguous. The next one along K is 128 bytes behind it (the leading offset). The next
// eight rows follow (the stride offset). An instruction has 32 bytes of K of A, and as many of B, or twice as many if A is sparse.
constexpr unsigned LEADING_OFFSET = 128;

template <unsigned WORDS> constexpr unsigned STRIDE_OFFSET = WORDS / 4 * LEADING_OFFSET;

// Words of shared memory that a row takes.
template <unsigned WORDS> constexpr unsigned ROOM = WORDS;

template <unsigned WORDS> __device__ unsigned place(unsigned row, unsigned word) {
    return (row / 8 * STRIDE_OFFSET<WORDS> + word / 4 * LEADING_OFFSET + row % 8 * 16) / 4 + word % 4;
}

// PTX ISA, "Matrix Descriptor Format" and "Shared memory descriptor": start address in bits 0-13, leading offset in 16-29, stride
// offset in 32-45, each over 16.
template <unsigned WORDS> __device__ unsigned long long descriptor(const Word* shared) {
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    return (address & 0x3FFFF) >> 4 | (unsigned long long)(LEADING_OFFSET >> 4) << 16
         | (unsigned long long)(STRIDE_OFFSET<WORDS> >> 4) << 32;
}

// 128 threads write rows of so many words: word_of(row, word).
template <unsigned ROWS, unsigned WORDS, class WordOf> __device__ void lay_out(Word* shared, WordOf word_of) {
    for (unsigned i = threadIdx.x; i < ROWS * WORDS; i += 128) shared[place<WORDS>(i / WORDS, i % WORDS)] = word_of(i / WORDS, i % WORDS);
}
