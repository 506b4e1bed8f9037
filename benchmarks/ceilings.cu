// What the units reach that the evaluators live on: each kernel does `rounds` * 128 instructions of one kind a thread.
constexpr int CHAINS = 8;

template <class Step> __device__ void chains(float* out, int rounds, Step step) {
    float x[CHAINS];
    for (int i = 0; i < CHAINS; i++) x[i] = threadIdx.x + i;
#pragma unroll 1
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int repeat = 0; repeat < 16; repeat++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++) x[i] = step(x[i]);
    float sum = 0;
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    if (sum == 123.0f) out[0] = sum;
}

extern "C" __global__ void __launch_bounds__(256) ffma(float* out, int rounds, float a, float b) {
    chains(out, rounds, [=](float x) { return __fmaf_rd(x, a, b); });
}

extern "C" __global__ void __launch_bounds__(256) integer(float* out, int rounds, float a, float b) {
    unsigned p = __float_as_uint(a), q = __float_as_uint(b);
    chains(out, rounds, [=](float x) {
        unsigned word = __float_as_uint(x);
        asm volatile("lop3.b32 %0, %0, %1, %2, 0x1e;" : "+r"(word) : "r"(p), "r"(q));
        return __uint_as_float(word);
    });
}

extern "C" __global__ void __launch_bounds__(256) dfma(float* out, int rounds, float a, float b) {
    double x[CHAINS], p = a, q = b;
    for (int i = 0; i < CHAINS; i++) x[i] = threadIdx.x + i;
#pragma unroll 1
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int repeat = 0; repeat < 16; repeat++)
#pragma unroll
            for (int i = 0; i < CHAINS; i++) x[i] = __fma_rd(x[i], p, q);
    double sum = 0;
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    if (sum == 123.0) out[0] = sum;
}
