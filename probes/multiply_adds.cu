// Chains of float32 multiply-adds: d[row, column] = ((c + a0 b0) + a1 b1) + …, each step rounded to nearest. Where FUSED is 0,
// each product is rounded before it is added. A [rows, K] and B [columns, K] row after row; ks: [steps], the k of each step.

constexpr int TILE = 64, DEPTH = 16, EACH = 4;

extern "C" __global__ void __launch_bounds__(256)
multiply_adds(const float* a, const float* b, float* d, unsigned rows, unsigned columns, unsigned k, const int* ks, unsigned steps) {
    __shared__ float left[DEPTH][TILE + 1], right[DEPTH][TILE + 1];
    unsigned top = blockIdx.y * TILE, start = blockIdx.x * TILE, y = threadIdx.x / 16, x = threadIdx.x % 16;
    float sum[EACH][EACH] = {};
    for (unsigned first = 0; first < steps; first += DEPTH) {
        __syncthreads();
        for (unsigned i = threadIdx.x; i < TILE * DEPTH; i += 256) {
            unsigned line = i / DEPTH, step = first + i % DEPTH;
            unsigned place = step < steps ? (unsigned)ks[step] : 0;
            bool row = step < steps && top + line < rows, column = step < steps && start + line < columns;
            left[i % DEPTH][line] = row ? a[(size_t)(top + line) * k + place] : 0.0f;
            right[i % DEPTH][line] = column ? b[(size_t)(start + line) * k + place] : 0.0f;
        }
        __syncthreads();
        unsigned depth = steps - first < DEPTH ? steps - first : DEPTH;
        for (unsigned step = 0; step < depth; step++)
#pragma unroll
            for (int i = 0; i < EACH; i++)
#pragma unroll
                for (int j = 0; j < EACH; j++) {
                    float p = left[step][y + 16 * i], q = right[step][x + 16 * j];
#if FUSED
                    sum[i][j] = __fmaf_rn(p, q, sum[i][j]);
#else
                    sum[i][j] = __fadd_rn(sum[i][j], __fmul_rn(p, q));
#endif
                }
    }
#pragma unroll
    for (int i = 0; i < EACH; i++)
#pragma unroll
        for (int j = 0; j < EACH; j++) {
            unsigned row = top + y + 16 * i, column = start + x + 16 * j;
            if (row < rows && column < columns) d[(size_t)row * columns + column] = sum[i][j];
        }
}
