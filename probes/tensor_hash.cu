// The hash of a tensor, as accprobe/trace/hashing.py defines it: two sums of 32-bit words times 64-bit weights, modulo 2^64.

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

constexpr u32 THREADS = 256, EACH = 16, BLOCK = THREADS * EACH, LANES = 2, DIMENSIONS = 6, TENSORS = 32;

// A tensor in its logical order. width: bytes of an element, 1, 2 or 4. dimensions: 0 of a contiguous tensor. Strides are in bytes.
struct TensorView {
    u64 bytes;
    u32 width, dimensions;
    u32 sizes[DIMENSIONS];
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

__device__ inline u32 element(const TensorView& v, const u8* data, u64 i) {
    long long offset = 0;
    if (v.dimensions) {
        u32 rest = (u32)i;  // a tensor with strides has fewer than 2^32 elements
        for (int d = (int)v.dimensions - 1; d >= 0; d--) {
            u32 next = rest / v.sizes[d];
            offset += (long long)(rest - next * v.sizes[d]) * v.strides[d];
            rest = next;
        }
    } else {
        offset = (long long)(i * v.width);
    }
    const u8* place = data + offset;
    return v.width == 4 ? *(const u32*)place : v.width == 2 ? *(const u16*)place : *place;
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
        for (u32 lane = 0; lane < LANES; lane++) weights[lane][n] = weight(lane, thread + n * THREADS);
    bool whole_words = !v.dimensions && (u64)data % 4 == 0;
    for (u64 b = block; b * BLOCK * 4 < v.bytes; b += blocks) {
        u64 first = b * BLOCK + thread;
        u32 words[EACH];
        if (whole_words && (b + 1) * BLOCK * 4 <= v.bytes) {
#pragma unroll
            for (u32 n = 0; n < EACH; n++) words[n] = ((const u32*)data)[first + n * THREADS];
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
extern "C" __global__ void __launch_bounds__(THREADS) hash_tensors(const __grid_constant__ TensorBatch batch) {
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
