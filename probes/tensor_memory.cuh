// Tensor memory: 128 lanes of 32-bit columns; an address is lane << 16 | column. A warp reaches a quarter of the lanes, its own.
//
// PTX ISA, "TensorCore 5th Generation Family Instructions". The same names stand for an emulated memory where no GPU is.
#ifdef __CUDACC__
// Allocates columns; where they begin is written to shared memory. One warp executes it.
__device__ void allocate(unsigned* address) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(address);
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" :: "r"(shared), "n"(COLUMNS) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
}

__device__ void deallocate(unsigned address) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" :: "r"(address), "n"(COLUMNS));
}

// Four columns of each of the warp's lanes, of the lane that has the thread's number.
__device__ void store_columns(unsigned address, const unsigned (&words)[4]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

__device__ void load_columns(unsigned address, unsigned (&words)[4]) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(address) : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// What the block wrote, to tensor memory and to shared memory, is there for the instruction that comes after.
__device__ void written() {
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

__device__ void prepare(unsigned long long* barrier) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// The barrier is told when the instructions that this thread began have ended.
__device__ void commit(unsigned long long* barrier) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(shared) : "memory");
}

__device__ void wait(unsigned long long* barrier, unsigned phase) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(barrier), done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared), "r"(phase) : "memory");
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// Before tensor memory that was read is written again.
__device__ void read_through() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    __syncthreads();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
#endif

// Operands in shared memory, 32 bytes of K a row, without swizzle: core matrices of eight rows by 16 bytes lie whole, the two along
// K 128 bytes apart (the leading offset), the next eight rows behind them (the stride offset).
constexpr unsigned LEADING_OFFSET = 128, STRIDE_OFFSET = 256, ROW_WORDS = 8;

__device__ unsigned place(unsigned row, unsigned word) {
    return (row / 8 * STRIDE_OFFSET + word / 4 * LEADING_OFFSET + row % 8 * 16) / 4 + word % 4;
}

// PTX ISA, "Shared memory descriptor" of tcgen05: start address in bits 0-13, leading offset in 16-29, stride offset in 32-45, each
// over 16; 1 in bits 46-48; no swizzle in 61-63.
__device__ unsigned long long descriptor(const Word* shared) {
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    return (address & 0x3FFFF) >> 4 | (unsigned long long)(LEADING_OFFSET >> 4) << 16
         | (unsigned long long)(STRIDE_OFFSET >> 4) << 32 | 1ull << 46;
}

// A word of a row in shared memory. Where elements of 6 or 4 bits are not packed by the instruction's kind, PTX ISA, "Packing
// formats of elements in shared memory", has 16 of them in each 16 bytes: their bits one after another, then padding.
template <unsigned BITS> __device__ Word shared_word(const Word* operands, unsigned long long line, unsigned word) {
    if (line == NO_LINE) return 0;
    if (BITS >= 8 || PACKED > 1) return packed<ROW_WORDS>(operands, line, word);
    const unsigned char* elements = (const unsigned char*)operands + line * (4 * ROW_WORDS) + word / 4 * 16;
    Word found = 0;
#pragma unroll
    for (unsigned i = 0; i < 16; i++) {
        int up = (int)(i * BITS) - (int)(word % 4 * 32);
        Word element = elements[i] & ((1u << BITS) - 1);
        if (up > -(int)BITS && up < 32) found |= up >= 0 ? element << up : element >> -up;
    }
    return found;
}
