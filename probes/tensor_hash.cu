// The hash of a tensor, as accprobe/trace/hashing.py defines it: two sums of 32-bit words times 64-bit weights, modulo 2^64.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 THREADS = 256, EACH = 16, BLOCK = THREADS * EACH, LANES = 2, DIMENSIONS = 6, TENSORS = 32;

// A tensor in its logical order. width: bytes of an element, 1, 2 or 4. dimensions: 0 of a contiguous tensor. Strides are in bytes.
// reciprocals: for division by the sizes.
struct TensorView {
    u64 bytes;
    u32 width, dimensions;
    u32 sizes[DIMENSIONS], reciprocals[DIMENSIONS];
    long long strides[DIMENSIONS];
};

// Tensors of one launch. sums: LANES of each tensor. ends: for each tensor, the first thread block of the next one.
struct TensorBatch {
    u64* sums;
    const u8* data[TENSORS];
    u32 count, unused;
    u32 ends[TENSORS];
    TensorView views[TENSORS];
};

// The finalizer of splitmix64.
__device__ inline u64 mixed(u64 x) {
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

__device__ inline u64 weight(u32 table, u64 i) {
    return mixed((((u64)table << 40) + i + 1) * 0x9E3779B97F4A7C15ull) | 1;
}

// n / size for n < 2^31 and size > 1 (Granlund and Montgomery, Division by invariant integers using multiplication, PLDI 1994).
__device__ inline u32 quotient(u32 n, u32 size, u32 reciprocal) {
    return ((u32)((u64)n * reciprocal >> 32) + n) >> (32 - __clz((int)size - 1));
}

// The place of element i of a tensor with strides, in bytes.
__device__ inline long long offset_of(const TensorView& v, u32 i) {
    long long offset = 0;
#pragma unroll 1
    for (u32 d = v.dimensions - 1; d; d--) {
        u32 next = quotient(i, v.sizes[d], v.reciprocals[d]);
        offset += (long long)(i - next * v.sizes[d]) * v.strides[d];
        i = next;
    }
    return offset + (long long)i * v.strides[0];
}

__device__ inline u32 element(const TensorView& v, const u8* data, u64 i) {
    const u8* place = data + (v.dimensions ? offset_of(v, (u32)i) : (long long)(i * v.width));
    if (v.width == 1) return *place;
    if (v.width == 2) return *(const u16*)place;
    if ((u64)place % 4 == 0) return *(const u32*)place;
    return place[0] | place[1] << 8 | place[2] << 16 | (u32)place[3] << 24;
}

// Word i, little endian; bytes after the end are 0. Not inlined, as it is called for each of the unrolled words.
__device__ __noinline__ u32 assembled(const TensorView& v, const u8* data, u64 i) {
    u32 word = 0, elements = 4 / v.width;
    for (u32 n = 0; n < elements; n++) {
        u64 which = i * elements + n;
        if (which * v.width < v.bytes) word |= element(v, data, which) << (8 * v.width * n);
    }
    return word;
}

// Adds to `sums` the share of one thread: of every `blocks`-th block of BLOCK words.
__device__ inline void add_words(const TensorView& v, const u8* data, u32 thread, u32 block, u32 blocks, u64 sums[LANES]) {
    u64 weights[LANES][EACH];
#pragma unroll
    for (u32 n = 0; n < EACH; n++)
        for (u32 lane = 0; lane < LANES; lane++) {
            weights[lane][n] = weight(lane, thread + n * THREADS);
#ifdef __CUDACC__
            asm volatile("" : "+l"(weights[lane][n]));  // or else the compiler computes it again for each block
#endif
        }
    bool aligned = (u64)data % 4 == 0;
    for (u64 b = block; b * BLOCK * 4 < v.bytes; b += blocks) {
        u64 first = b * BLOCK + thread;
        u32 words[EACH];
        bool whole = aligned && (b + 1) * BLOCK * 4 <= v.bytes;
        if (whole && !v.dimensions) {
#pragma unroll
            for (u32 n = 0; n < EACH; n++) words[n] = ((const u32*)data)[first + n * THREADS];
        } else if (whole && v.width == 4) {
#pragma unroll
            for (u32 n = 0; n < EACH; n++) words[n] = *(const u32*)(data + offset_of(v, (u32)first + n * THREADS));
        } else {
#pragma unroll
            for (u32 n = 0; n < EACH; n++) words[n] = assembled(v, data, first + n * THREADS);
        }
        u64 of_block[LANES] = {};
#pragma unroll
        for (u32 n = 0; n < EACH; n++)
            for (u32 lane = 0; lane < LANES; lane++) of_block[lane] += (u64)(long long)(int)words[n] * weights[lane][n];
        for (u32 lane = 0; lane < LANES; lane++) sums[lane] += of_block[lane] * (b ? weight(LANES + lane, b) : 1);
    }
}

// Adds to `sums` the share of one thread of one thread block, and returns the sums of the tensor to which it belongs.
__device__ inline u64* add_of_batch(const TensorBatch& batch, u32 thread, u32 block, u64 sums[LANES]) {
    u32 which = 0;
    while (which + 1 < batch.count && block >= batch.ends[which]) which++;
    u32 first = which ? batch.ends[which - 1] : 0;
    add_words(batch.views[which], batch.data[which], thread, block - first, batch.ends[which] - first, sums);
    return batch.sums + which * LANES;
}

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(THREADS, 2) hash_tensors(const __grid_constant__ TensorBatch batch) {
    __shared__ u64 of_warps[LANES][THREADS / 32];
    u64 sums[LANES] = {};
    u64* total_of_tensor = add_of_batch(batch, threadIdx.x, blockIdx.x, sums);
    for (u32 lane = 0; lane < LANES; lane++) {
        for (u32 offset = 16; offset; offset /= 2) sums[lane] += __shfl_down_sync(~0u, sums[lane], offset);
        if (threadIdx.x % 32 == 0) of_warps[lane][threadIdx.x / 32] = sums[lane];
    }
    __syncthreads();
    if (threadIdx.x < LANES) {
        u64 total = 0;
        for (u32 warp = 0; warp < THREADS / 32; warp++) total += of_warps[threadIdx.x][warp];
        atomicAdd(total_of_tensor + threadIdx.x, total);
    }
}
#endif
