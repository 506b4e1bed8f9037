// One PTX instruction of a scalar function, applied to every word of an array.
// Defined above: Operand, Result (unsigned storage types), APPLY(y, x), the statement with its registers.

extern "C" __global__ void apply(const Operand* operands, Result* results, unsigned long long count) {
    const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
    for (unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x; i < count; i += stride) {
        Result y;
        APPLY(y, operands[i]);
        results[i] = y;
    }
}
