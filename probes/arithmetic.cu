// One PTX instruction of two or three operands, applied to every row of three arrays.
// Defined above: Word (unsigned storage type of an operand), and the statement APPLY(y, a, b, c) or an addition to memory at p.
// The addition is REDUCE(p, a), REDUCE_SHARED(p, a), or BULK(p, a, bytes) of consecutive words in shared memory.
// BULK adds to results, which hold b. Each place has one writer: the order of several is unspecified.

extern "C" __global__ void apply(const Word* a, const Word* b, const Word* c, Word* results, unsigned long long count) {
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
#ifdef BULK
    __shared__ alignas(128) Word sums[256];
    for (unsigned long long start = blockIdx.x * static_cast<unsigned long long>(blockDim.x); start < count; start += stride) {
        const unsigned long long words = count - start < blockDim.x ? count - start : blockDim.x;
        if (threadIdx.x < words) sums[threadIdx.x] = a[start + threadIdx.x];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // before the asynchronous copy reads the words
        __syncthreads();
        if (threadIdx.x == 0) {
            BULK(results + start, sums, static_cast<unsigned>(words * sizeof(Word)));
            asm volatile("cp.async.bulk.commit_group;" ::: "memory");
            asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
        }
        __syncthreads();
    }
#else
    for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < count; i += stride) {
#ifdef REDUCE
        results[i] = b[i];
        __threadfence();
        REDUCE(results + i, a[i]);
#elif defined(REDUCE_SHARED)
        __shared__ Word sums[256];
        sums[threadIdx.x] = b[i];
        __syncwarp();
        REDUCE_SHARED(sums + threadIdx.x, a[i]);
        __syncwarp();
        results[i] = sums[threadIdx.x];
#else
        Word y;
        APPLY(y, a[i], b[i], c[i]);
        results[i] = y;
#endif
    }
#endif
}
