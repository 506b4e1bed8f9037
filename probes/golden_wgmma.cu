// Chains of one wgmma on every SM: while one warpgroup compares what it has, the other one multiplies.
#include "tile.cuh"
#include "core_matrices.cuh"
#include "golden.cuh"

static_assert(TEAMS == 2, "two warpgroups take turns");

struct Unit {
    unsigned long long a_first, b_first;
    unsigned mine, other;  // named barriers

    __device__ Unit(Word* shared, const Word* a, const Word* b)
        : a_first(descriptor<A_WORDS>(shared)), b_first(descriptor<K_WORDS>(shared + STEPS * M * A_WORDS)),
          mine(1 + threadIdx.x / GROUP_THREADS), other(2 - threadIdx.x / GROUP_THREADS) {
        for (unsigned i = threadIdx.x; i < STEPS * M * A_WORDS; i += THREADS)
            shared[i / (M * A_WORDS) * (M * A_WORDS) + place<A_WORDS>(i / A_WORDS % M, i % A_WORDS)] = a[i];
        for (unsigned i = threadIdx.x; i < STEPS * N * K_WORDS; i += THREADS)
            shared[STEPS * M * A_WORDS + i / (N * K_WORDS) * (N * K_WORDS) + place<K_WORDS>(i / K_WORDS % N, i % K_WORDS)] = b[i];
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }

    __device__ void begin() const {
        if (other == 1) asm volatile("bar.arrive %0, %1;" :: "r"(other), "n"(THREADS) : "memory");
    }
    __device__ void end() const {
        if (other == 2) asm volatile("bar.sync %0, %1;" :: "r"(mine), "n"(THREADS) : "memory");
    }

    __device__ __forceinline__ void compute(Word (&d)[HELD], unsigned chain, const unsigned (&codes)[CHAIN]) const {
        constexpr unsigned A_STEP = M * A_WORDS * 4 / 16, B_STEP = N * K_WORDS * 4 / 16;
        unsigned long long a[CHAIN], b[CHAIN];
#pragma unroll
        for (unsigned i = 0; i < CHAIN; i++) {
            a[i] = a_first + (chain / STEPS + i) % STEPS * A_STEP;
            b[i] = b_first + (chain + i) % STEPS * B_STEP;
        }
        asm volatile("bar.sync %0, %1;" :: "r"(mine), "n"(THREADS) : "memory");
        MULTIPLY_CHAIN(d, a, b, codes, other);
    }
};
#include "golden_kernel.cuh"
