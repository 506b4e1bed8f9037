// Peak rates of the units that the evaluators use. Each kernel executes `rounds` * 128 instructions of one kind in each thread.
// `products` executes as many multiply-adds of 8 rows and 8 columns, and half as many comparisons of exponents, in registers.
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

extern "C" __global__ void __launch_bounds__(256) products(float* out, int rounds, float a, float b) {
    float rows[8], columns[8], sums[8][8];
    unsigned of_rows[8], of_columns[4], largest[8][4];
    for (int i = 0; i < 8; i++) rows[i] = a * (threadIdx.x + i), of_rows[i] = __float_as_uint(rows[i]) >> 16;
    for (int j = 0; j < 8; j++) columns[j] = b * (threadIdx.x + j), of_columns[j / 2] = __float_as_uint(columns[j]) >> 16;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) sums[i][j] = i + a * j, largest[i][j / 2] = i + j;
#pragma unroll 1
    for (int round = 0; round < rounds; round++)
#pragma unroll
        for (int repeat = 0; repeat < 2; repeat++)
#pragma unroll
            for (int i = 0; i < 8; i++)
#pragma unroll
                for (int j = 0; j < 8; j++) {
                    sums[i][j] = __fmaf_rd(rows[i], columns[j], sums[i][j]);
                    if (j % 2) largest[i][j / 2] = __viaddmax_s16x2(of_rows[i], of_columns[j / 2], largest[i][j / 2]);
                }
    float sum = 0;
    for (int i = 0; i < 8; i++)
        for (int j = 0; j < 8; j++) sum += sums[i][j] + largest[i][j / 2];
    if (sum == 123.0f) out[0] = sum;
}
