// Words of a scalar function, computed over and over on every SM and compared with expected ones there.
// Defined above: Operand, Result (unsigned storage types), APPLY(y, x), the statement with its registers.

constexpr unsigned EACH = 8, MOST_SMS = 4096, NOWHERE = 0xFFFFFFFF, STRIDE = 37;

// Mismatches: [0] their number, then of each SM, warp, lane, index of the operand, result.
constexpr unsigned FIELDS = 5;

// mask: the number of operands, a power of two, less one. A division would use the special function unit.
// tally: results by SM, then mismatches by SM. only, thread: NOWHERE for all, otherwise the one SM and thread that compute.
extern "C" __global__ void compare(const Operand* operands, const Result* expected, unsigned mask, unsigned rounds,
                                   unsigned repeats, unsigned only, unsigned thread, unsigned long long* tally,
                                   unsigned* records, unsigned most) {
    unsigned sm;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    if ((only != NOWHERE && sm != only) || (thread != NOWHERE && threadIdx.x != thread)) return;
    unsigned long long wrong = 0;
    for (unsigned round = 0; round < rounds; round++) {
        unsigned start = (blockIdx.x * STRIDE + round) * EACH * blockDim.x + threadIdx.x;
        Operand x[EACH];
        Result wanted[EACH];
#pragma unroll
        for (unsigned n = 0; n < EACH; n++) {
            x[n] = operands[start + n * blockDim.x & mask];
            wanted[n] = expected[start + n * blockDim.x & mask];
        }
        for (unsigned again = 0; again < repeats; again++) {
#pragma unroll
            for (unsigned n = 0; n < EACH; n++) {
                Result y;
                APPLY(y, x[n]);
                if (y == wanted[n]) continue;
                wrong++;
                unsigned slot = atomicAdd(records, 1u);
                if (slot >= most) continue;
                unsigned* record = records + 1 + FIELDS * slot;
                record[0] = sm;
                record[1] = threadIdx.x / 32;
                record[2] = threadIdx.x % 32;
                record[3] = start + n * blockDim.x & mask;
                record[4] = y;
            }
        }
    }
    atomicAdd(tally + sm, static_cast<unsigned long long>(rounds) * repeats * EACH);
    if (wrong) atomicAdd(tally + MOST_SMS + sm, wrong);
}
