// Sums that are scaled and added to a total, each step rounded to nearest. HOW 0: times the product of both scales. HOW 1: times a's
// scale, then b's. HOW 2: times b's scale, then a's. If FUSED is 1, a fused multiply-add applies the last factor and adds.
// sums, total: [rows, columns]; a: [rows]; b: [columns].

extern "C" __global__ void __launch_bounds__(256)
scaled_sums(const float* sums, float* total, const float* a, const float* b, unsigned rows, unsigned columns) {
    size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= (size_t)rows * columns) return;
    float of_a = a[i / columns], of_b = b[i % columns];
#if HOW == 0
    float value = sums[i], factor = __fmul_rn(of_a, of_b);
#elif HOW == 1
    float value = __fmul_rn(sums[i], of_a), factor = of_b;
#else
    float value = __fmul_rn(sums[i], of_b), factor = of_a;
#endif
#if FUSED
    total[i] = __fmaf_rn(value, factor, total[i]);
#else
    total[i] = __fadd_rn(total[i], __fmul_rn(value, factor));
#endif
}
