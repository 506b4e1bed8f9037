// Tensor memory: 128 lanes of 32-bit columns; an address is lane << 16 | column. A warp reaches a quarter of the lanes, its own.
//
// PTX ISA, "TensorCore 5th Generation Family Instructions"; where two blocks hold a tile, "CTA Pair": the same addresses mean the
// same places in the memories of both. The same names stand for an emulated memory where no GPU is.
//
// Beside the names of tile.cuh, accprobe/isa/families.py writes A_BITS and B_BITS of an element, BLOCKS_OF_TILE, COLUMNS to allocate,
// and the DESCRIPTOR of the instruction.
#if BLOCKS_OF_TILE == 2
#define CLUSTER __cluster_dims__(2, 1, 1)
#else
#define CLUSTER
#endif

#ifdef __CUDACC__
#define DIGIT(number) #number
#define GROUP(blocks) "cta_group::" DIGIT(blocks)

// The number of this block among the blocks that hold a tile.
__device__ unsigned rank_in_tile() {
    unsigned rank = 0;
    if (BLOCKS_OF_TILE == 2) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

// Waits for all threads that hold a tile.
__device__ void meet() {
    if (BLOCKS_OF_TILE == 1) return __syncthreads();
    asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

// Allocates columns; where they begin is written to shared memory. One warp of each block executes it.
__device__ void allocate(unsigned* address) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(address);
    asm volatile("tcgen05.alloc." GROUP(BLOCKS_OF_TILE) ".sync.aligned.shared::cta.b32 [%0], %1;"
                 :: "r"(shared), "n"(COLUMNS) : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit." GROUP(BLOCKS_OF_TILE) ".sync.aligned;");
}

__device__ void deallocate(unsigned address) {
    asm volatile("tcgen05.dealloc." GROUP(BLOCKS_OF_TILE) ".sync.aligned.b32 %0, %1;" :: "r"(address), "n"(COLUMNS));
}

// Stores four columns of one lane of the warp's, the one with the thread's number.
__device__ void store_columns(unsigned address, const unsigned (&words)[4]) {
    asm volatile("tcgen05.st.sync.aligned.32x32b.x4.b32 [%0], {%1, %2, %3, %4};"
                 :: "r"(address), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]) : "memory");
}

__device__ void load_columns(unsigned address, unsigned (&words)[4]) {
    asm volatile("tcgen05.ld.sync.aligned.32x32b.x4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3]) : "r"(address) : "memory");
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
}

// Makes the threads' writes to tensor memory and shared memory visible to the next instruction.
__device__ void written() {
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    meet();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

__device__ void prepare(unsigned long long* barrier) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(barrier);
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(shared) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Signals the barrier of each block when the instructions that this thread began have ended.
__device__ void commit(unsigned long long* barrier) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(barrier);
    if (BLOCKS_OF_TILE == 1)
        asm volatile("tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" :: "r"(shared) : "memory");
    else
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64 [%0], %1;"
                     :: "r"(shared), "h"((unsigned short)3) : "memory");
}

__device__ void wait(unsigned long long* barrier, unsigned phase) {
    unsigned shared = (unsigned)__cvta_generic_to_shared(barrier), done = 0;
    while (!done)
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                     : "=r"(done) : "r"(shared), "r"(phase) : "memory");
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

// Waits until all threads have read tensor memory, before it is written again.
__device__ void read_through() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
    meet();
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}
#endif

// PTX ISA, "Shared memory descriptor" of tcgen05: 1 in bits 46-48; no swizzle in 61-63.
constexpr unsigned long long FIFTH_GENERATION = 1ull << 46;

// 48 bytes of K: PTX ISA, "Absolute address mode for K dimension being 48B". It needs the swizzle of 128 bytes ("Swizzling modes"):
// rows of 128 bytes, the 16 bytes of number i in place i ^ row % 8. The descriptor has the address of the third 16 bytes in
// bits 16-29, 1 in bit 52, which says so, and 2 in bits 61-63.
constexpr unsigned K_96 = 12, SWIZZLED_ROW = 128;
template <> constexpr unsigned STRIDE_OFFSET<K_96> = 8 * SWIZZLED_ROW;
template <> constexpr unsigned ROOM<K_96> = SWIZZLED_ROW / 4;

template <> __device__ unsigned place<K_96>(unsigned row, unsigned word) { return row * ROOM<K_96> + (word / 4 ^ row % 8) * 4 + word % 4; }

template <> __device__ unsigned long long descriptor<K_96>(const Word* shared) {
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    return (address & 0x3FFFF) >> 4 | (unsigned long long)((address + 32 & 0x3FFFF) >> 4) << 16
         | (unsigned long long)(STRIDE_OFFSET<K_96> >> 4) << 32 | 1ull << 52 | 2ull << 61;
}

// A word of a row in shared memory. If the instruction's kind does not pack elements of 6 or 4 bits, 16 of them take 16 bytes: their
// bits one after another, then padding. Source: PTX ISA, "Packing formats of elements in shared memory".
template <unsigned BITS, unsigned WORDS> __device__ Word shared_word(const Word* operands, unsigned long long line, unsigned word) {
    if (line == NO_LINE) return 0;
    if (BITS >= 8 || PACKED > 1) return packed<WORDS>(operands, line, word);
    const unsigned char* elements = (const unsigned char*)operands + line * (4 * WORDS) + word / 4 * 16;
    Word found = 0;
#pragma unroll
    for (unsigned i = 0; i < 16; i++) {
        int up = (int)(i * BITS) - (int)(word % 4 * 32);
        Word element = elements[i] & ((1u << BITS) - 1);
        if (up > -(int)BITS && up < 32) found |= up >= 0 ? element << up : element >> -up;
    }
    return found;
}

#ifdef GROUPS
// Columns of metadata, as the selector 0 says; addresses are multiples of four columns.
constexpr unsigned METADATA_COLUMNS = 4;

// The word of a lane in a column of metadata. With eight groups a row, a lane has the codes of four groups of a row and of the
// row eight below. The next four groups are eight lanes on. With sixteen groups, a lane has the codes of its row, eight a
// column. Sources: PTX ISA, "Sparsity selector", the figures for M = 128 and 256; CUTLASS (tmem_e_frg); JAX
// (format_tcgen05_sparse_metadata).
template <class LineOf> __device__ unsigned metadata_word(const unsigned char* metadata, unsigned lane, unsigned column, LineOf line_of) {
    if (column >= GROUPS / 8) return 0;
    if (METADATA_ROWS == 2) return eight_codes(metadata, lane / 16 * 16 + lane % 8, lane / 8 % 2 * 4, line_of);
    return eight_codes(metadata, lane, column * 8, line_of);
}
#else
constexpr unsigned METADATA_COLUMNS = 0;
#endif
