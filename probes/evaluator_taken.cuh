// Operands of chains, decoded in memory once; tiles of them are copied into shared memory, a step at a time.

#include "evaluator_exponents.cuh"

template <bool KEPT, bool LEFT, class Real> struct PowerOf { using Type = Real; };  // found from the values themselves
template <class Real> struct PowerOf<true, true, Real> { using Type = u32; };       // in both halves
template <class Real> struct PowerOf<true, false, Real> { using Type = u16; };

// One sum's decoded operands of a tile's rows of A (LEFT) or columns of B.
template <class Model, bool LEFT> struct Taken {
    using S = Shape<Model>;
    using Real = typename Model::Real;
    using Power = typename PowerOf<Model::POWERS, LEFT, Real>::Type;
    static constexpr int LINES = LEFT ? S::ROWS : S::COLUMNS;
    alignas(16) Real value[Model::OF_SUM][LINES];
    alignas(16) Power power[Model::POWERS && !Model::BASE ? Model::OF_SUM : 1][LINES];
    alignas(16) PowersOfBase<Model, LEFT> of_base;
    alignas(16) u32 negative[S::WORDS_OF_SUM][LINES];

    FN const void* powers(int k) const {
        if constexpr (Model::POWERS) return power[k];
        else return value[k];
    }

    FN void enter(int k, int line, const Element<Real>& e) {
        value[k][LEFT ? line : S::place(line, S::CHUNK)] = e.value;
        int place_of_power = LEFT ? line : S::place(line, S::CHUNK_OF_POWERS);
        if constexpr (Model::BASE) of_base.at(line, k) = power_of_base<Model, LEFT>(e.rest);
        else if constexpr (Model::POWERS && LEFT) power[k][place_of_power] = Staged<Model>::twice(e.rest);
        else if constexpr (Model::POWERS) power[k][place_of_power] = (u16)e.rest;
    }
};

// Writes one block of one line of a matrix [count, blocks * K] into its tile; zeros if there is no line.
template <class Model, class Format, bool LEFT>
FN void take_apart_line(const void* lines, u64 count, u32 blocks, u64 line, u32 block, Taken<Model, LEFT>* taken, u32* special) {
    using Tile = Taken<Model, LEFT>;
    constexpr int words = Shape<Model>::WORDS_OF_SUM;
    Packed<Format::STORAGE, Model::K> operands;
    operands.load(line < count ? (const u8*)lines + (line * blocks + block) * (Model::K * Format::STORAGE / 8) : nullptr);
    Tile* of_block = taken + (line / Tile::LINES * blocks + block) * Model::SUMS;
    int at = (int)(line % Tile::LINES);
    u32 negative[Model::SUMS * words] = {}, found = 0;
#pragma unroll
    for (int k = 0; k < Model::K; k++) {
        auto e = take_apart<Model, Format, LEFT>(operands.pattern(k));
        int sum = Model::position(k) / Model::OF_SUM, i = Model::position(k) % Model::OF_SUM;
        of_block[sum].enter(i, at, e);
        found |= e.rest >> 16 & (HAS_NAN | HAS_INF);
#pragma unroll
        for (int w = 0; w < Model::SUMS * words; w++) negative[w] |= sum * words + i / 32 == w ? (u32)e.negative << (i % 32) : 0;
    }
#pragma unroll
    for (int w = 0; w < Model::SUMS * words; w++) of_block[w / words].negative[w % words][at] = negative[w];
#ifdef __CUDA_ARCH__
    if (found) atomicOr(&special[line], found);
#else
    special[line] |= found;
#endif
}

FN void copy_16_bytes(void* shared, const void* memory) {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((u32)__cvta_generic_to_shared(shared)), "l"(memory) : "memory");
#else
    struct alignas(16) Bytes { u8 x[16]; };
    *(Bytes*)shared = *(const Bytes*)memory;
#endif
}

// Waits until the copies of this thread are complete.
FN void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// A step's operands: some values of the current sum's products, and the powers of the next sum's.
template <class Model> struct Slice {
    using S = Shape<Model>;
    static constexpr int MOST = Model::BASE ? 32 : 16, K = Model::OF_SUM % MOST ? Model::OF_SUM & -Model::OF_SUM : MOST;
    static constexpr int COUNT = Model::OF_SUM / K;
    alignas(16) typename Model::Real a[K][S::ROWS], b[K][S::COLUMNS];
    alignas(16) typename Taken<Model, true>::Power a_power[Model::BASE ? 1 : K][S::ROWS];
    alignas(16) typename Taken<Model, false>::Power b_power[Model::BASE ? 1 : K][S::COLUMNS];
    alignas(16) PowersOfBase<Model, true> a_of_base;
    alignas(16) PowersOfBase<Model, false> b_of_base;
    alignas(16) u32 a_negative[S::WORDS_OF_SUM][S::ROWS], b_negative[S::WORDS_OF_SUM][S::COLUMNS];
};

// Shared memory of a tile: this step's slice, the next one's, and each thread's totals if sums are added to C.
template <class Model, bool ADDED = Model::ADDED> struct InChain {
    Slice<Model> slices[2];
};
template <class Model> struct InChain<Model, true> {
    using S = Shape<Model>;
    Slice<Model> slices[2];
    float added[S::ROWS_OF_THREAD][S::COLUMNS_OF_THREAD][S::THREADS];
};

// A job's decoded operands: tile after tile, block after block, sum after sum; and the special values by line.
template <class Model> struct Prepared {
    const Taken<Model, true>* a;
    const Taken<Model, false>* b;
    const u32 *a_special, *b_special;
};
