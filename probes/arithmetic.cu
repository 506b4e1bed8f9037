// One PTX instruction of two or three scalar operands, applied to every row of three arrays.
// Defined above: Word (unsigned storage type), APPLY(y, a, b, c), the statement; or REDUCE(p, a), an addition to memory at p.

extern "C" __global__ void apply(const Word* a, const Word* b, const Word* c, Word* results, unsigned long long count) {
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < count; i += stride) {
#ifdef REDUCE
        results[i] = b[i];  // one writer: the order of several is unspecified
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
}
