// Chains of one fused sum in single precision: operands are taken apart once, in memory; then tile by tile, while a block's products
// are summed, the largest exponents of the next block's are sought, so that multiply-adds and comparisons keep both units busy.
//
// Sums are cut as evaluator_tile.cuh has it.

#include "evaluator_exponents.cuh"

template <bool KEPT, bool LEFT> struct PowerOf { using Type = float; };  // sought from the values themselves
template <> struct PowerOf<true, true> { using Type = u32; };            // in both halves
template <> struct PowerOf<true, false> { using Type = u16; };

// One block of K of a tile's rows of A (LEFT) or columns of B, taken apart.
template <class Model, bool LEFT> struct Taken {
    using S = Shape<Model>;
    using Power = typename PowerOf<Model::POWERS, LEFT>::Type;
    static constexpr int LINES = LEFT ? S::ROWS : S::COLUMNS;
    alignas(16) float value[Model::K][LINES];
    alignas(16) Power power[Model::POWERS && !Model::BASE ? Model::K : 1][LINES];
    alignas(16) PowersOfBase<Model, LEFT> of_base;
    alignas(16) u32 negative[S::WORDS][LINES];

    FN const void* powers(int k) const {
        if constexpr (Model::POWERS) return power[k];
        else return value[k];
    }

    // Returns whether any operand is special.
    template <class Format> FN u32 take(const Packed<Format::STORAGE, Model::K>& operands, int line) {
        int place = LEFT ? line : S::place(line, S::CHUNK), place_of_power = LEFT ? line : S::place(line, S::CHUNK_OF_POWERS);
        u32 negatives[S::WORDS] = {}, special = 0;
#pragma unroll
        for (int k = 0; k < Model::K; k++) {
            Element<float> e = take_apart<Model, Format, LEFT>(operands.pattern(k));
            int i = Model::position(k);
            value[i][place] = e.value;
            if constexpr (Model::BASE) of_base.at(line, i) = power_of_base<Model, LEFT>(e.rest);
            else if constexpr (Model::POWERS && LEFT) power[i][place_of_power] = Staged<Model>::twice(e.rest);
            else if constexpr (Model::POWERS) power[i][place_of_power] = (u16)e.rest;
            special |= e.rest;
#pragma unroll
            for (int w = 0; w < S::WORDS; w++) negatives[w] |= i / 32 == w ? (u32)e.negative << (i % 32) : 0;
        }
#pragma unroll
        for (int w = 0; w < S::WORDS; w++) negative[w][line] = negatives[w];
        return special >> 16 & (HAS_NAN | HAS_INF);
    }
};

// One block of one line of a matrix [count, blocks * K], into the tile where it belongs. Zeros where there is no line.
template <class Model, class Format, bool LEFT>
FN void take_apart_line(const void* lines, u64 count, u32 blocks, u64 line, u32 block, Taken<Model, LEFT>* taken, u32* special) {
    constexpr int of_tile = Taken<Model, LEFT>::LINES;
    Packed<Format::STORAGE, Model::K> operands;
    operands.load(line < count ? (const u8*)lines + (line * blocks + block) * (Model::K * Format::STORAGE / 8) : nullptr);
    u32 found = taken[line / of_tile * blocks + block].template take<Format>(operands, line % of_tile);
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

// Until what this thread copied has arrived.
FN void wait_for_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// A step's operands: some values of the block that is summed, the powers of the next one.
template <class Model> struct Slice {
    using S = Shape<Model>;
    static constexpr int K = Model::K % 16 == 0 ? 16 : Model::K & -Model::K, COUNT = Model::K / K;
    alignas(16) float a[K][S::ROWS], b[K][S::COLUMNS];
    alignas(16) typename Taken<Model, true>::Power a_power[Model::BASE ? 1 : K][S::ROWS];
    alignas(16) typename Taken<Model, false>::Power b_power[Model::BASE ? 1 : K][S::COLUMNS];
    alignas(16) PowersOfBase<Model, true> a_of_base;
    alignas(16) PowersOfBase<Model, false> b_of_base;
    alignas(16) u32 a_negative[S::WORDS][S::ROWS], b_negative[S::WORDS][S::COLUMNS];
};

// A job's operands, taken apart: tile after tile, block after block, and by line what is special.
template <class Model> struct Prepared {
    const Taken<Model, true>* a;
    const Taken<Model, false>* b;
    const u32 *a_special, *b_special;
};

// A thread's part in one tile. Before each step all threads meet, and what was copied for it has arrived.
template <class Model> struct Chain {
    using S = Shape<Model>;
    using Steps = Slice<Model>;
    using Rules = typename Model::Root::Arithmetic;
    static constexpr int M = S::ROWS_OF_THREAD, N = S::COLUMNS_OF_THREAD;
    static constexpr bool TRUNCATE = Rules::alignment_rounding == AlignmentRounding::truncate;
    // Whether the next sum cuts what a result has too many bits for.
    static constexpr bool CUT_LATER = TRUNCATE && Rules::result_bits >= Rules::alignment_bits;
    static constexpr u32 EXPONENTS = 0x7f807f80;
    static constexpr int UNROLLED = Model::BASE ? 8 / (1 + IS_TWICE<Rules>) : 2;  // as was fastest on an H200

    const Job& job;
    const Prepared<Model>& prepared;
    Steps (&slices)[2];
    int thread;
    u64 tile_row, tile_column;  // of tiles
    float s[M][N];
    u64 careful;
    u32 power[M][N / 2];

    struct alignas(16) Words { u32 x[4]; };

    FN Place<M, N> place() const { return {job, tile_row * S::ROWS + S::row(thread), tile_column * S::COLUMNS + S::column(thread)}; }
    FN u32 steps() const { return (job.blocks + 1) * Steps::COUNT; }

    template <int BYTES> FN void copy(void* to, const void* from) const {
#pragma unroll
        for (int round = 0; round * 16 * S::THREADS < BYTES; round++) {
            int at = 16 * (thread + round * S::THREADS);
            if (BYTES % (16 * S::THREADS) == 0 || at < BYTES) copy_16_bytes((u8*)to + at, (const u8*)from + at);
        }
    }

    FN void copy(u32 step) const {
        if (step >= steps()) return;
        Steps& slice = slices[step % 2];
        u32 next = step / Steps::COUNT, part = step % Steps::COUNT;
        int k = part * Steps::K;
        const Taken<Model, true>* a = prepared.a + tile_row * job.blocks;
        const Taken<Model, false>* b = prepared.b + tile_column * job.blocks;
        if (next > 0) {
            copy<sizeof slice.a>(slice.a, a[next - 1].value[k]);
            copy<sizeof slice.b>(slice.b, b[next - 1].value[k]);
        }
        if (next < job.blocks) {
            if (!Model::BASE) {
                copy<sizeof slice.a_power>(slice.a_power, a[next].powers(k));
                copy<sizeof slice.b_power>(slice.b_power, b[next].powers(k));
            }
            if (part == Steps::COUNT - 1) {
                copy<sizeof slice.a_negative>(slice.a_negative, a[next].negative);
                copy<sizeof slice.b_negative>(slice.b_negative, b[next].negative);
                if (Model::BASE) {
                    copy<sizeof slice.a_of_base>(&slice.a_of_base, &a[next].of_base);
                    copy<sizeof slice.b_of_base>(&slice.b_of_base, &b[next].of_base);
                }
            }
        }
    }

    // Addends of a usual size, where they are truncated no longer than that leaves them; the others are careful ones.
    FN void begin() {
        auto place = this->place();
        if (!job.c || job.promote) place.rows = 0;
        careful = 0;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                u32 c = place.exists(i, j) ? ((const u32*)job.c)[place.at(i, j, job)] : 0, exponent = c >> 23 & 255;
                bool usual = exponent >= LEAST_ADDEND && exponent <= 127 + 90;
                if (!usual && c << 1) careful |= 1ull << (i * N + j);
                s[i][j] = bits_as<float>(usual ? c & (TRUNCATE ? ~0u << (23 - Rules::alignment_bits) : ~0u) : 0);
            }
    }

    FN void compute(u32 step) {
        const Steps& slice = slices[step % 2];
        u32 next = step / Steps::COUNT, part = step % Steps::COUNT;
        if (part == 0 && !Model::BASE) {
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < N / 2; j++) power[i][j] = SOUGHT;
        }
        if (next == 0) through<false, !Model::BASE>(slice);
        else if (next < job.blocks) through<true, !Model::BASE>(slice);
        else through<true, false>(slice);
        if (part == Steps::COUNT - 1) {
            if (next > 0) total(next - 1);
            if (next < job.blocks) align(slice);
        }
    }

    template <bool SUM, bool SEEK> FN void through(const Steps& slice) {
        constexpr int chunk = S::CHUNK_OF_POWERS;
        int row = S::row(thread), place = S::place(S::column(thread), S::CHUNK), place_of_power = S::place(S::column(thread), chunk);
#pragma unroll UNROLLED
        for (int k = 0; k < Steps::K; k++) {
            if constexpr (SUM) {
                float a[M], b[N];
                read(slice.a[k], row, 4, a);
                read(slice.b[k], place, 32, b);
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N; j++) s[i][j] = with_term(a[i], b[j], s[i][j]);
            }
            if constexpr (SEEK && Model::POWERS) {
                u32 a[M], b[N / 2];
                read(slice.a_power[k], row, 4, a);
                *(Words*)b = *(const Words*)&slice.b_power[k][place_of_power];
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N / 2; j++) power[i][j] = add_max(a[i], b[j], power[i][j]);
            }
            if constexpr (SEEK && !Model::POWERS) {
                float a[M], b[N];
                read(slice.a_power[k], row, 4, a);
                read(slice.b_power[k], place, 32, b);
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N; j += 2)
                        power[i][j / 2] = add_max(high_halves(absolute(a[i]) * absolute(b[j]), absolute(a[i]) * absolute(b[j + 1])), 0, power[i][j / 2]);
            }
        }
    }

    static FN u32 high_halves(float x, float y) {
#ifdef __CUDA_ARCH__
        return __byte_perm(bits_as<u32>(x), bits_as<u32>(y), 0x7632);
#else
        return bits_as<u32>(x) >> 16 | bits_as<u32>(y) >> 16 << 16;
#endif
    }

    // Eight of a line, a chunk of four after another.
    template <class Of> static FN void read(const Of* line, int first, int stride, Of (&to)[8]) {
        *(Words*)&to[0] = *(const Words*)&line[first];
        *(Words*)&to[4] = *(const Words*)&line[first + stride];
    }

    // Below every term, yet so high that the tilted zeros stay below the last bit kept.
    static constexpr u32 LEAST = ((larger(Rules::min_exponent, -100) + 127) << 7) + LIFT<Model>;
    // The biased exponent that a sum of powers has where every product is zero, below those of all products. Addends below it are
    // careful ones; the others, and every sum after them, have no bit that it cuts.
    static constexpr int NOTHING = Model::BASE ? 127 - (127 + Model::SHIFT) / Model::BASE : 0, LEAST_ADDEND = Model::BASE ? NOTHING : 127 - 90;
    static constexpr u32 SOUGHT = Model::POWERS ? LEAST * 0x10001u : 0, LIFT_BOTH = LIFT<Model> * 0x10001u;

    // The largest exponents of the next block in columns 2 * j and 2 * j + 1, less NOTHING, from sums of powers.
    FN void seek(const Steps& slice, int j, u32 (&largest)[M]) const {
        constexpr int halvings = Model::BASE == 8 ? 3 : 2, together = Model::BASE == 8 ? 16 : 8;
        constexpr u32 kept = (EXPONENTS >> halvings & EXPONENTS & 0x7fff) * 0x10001u;
        int lane = thread % 32;
#pragma unroll
        for (int i = 0; i < M; i += 2) {
            float sums[4] = {}, found[4] = {};
#pragma unroll
            for (int k = 0; k < Model::K; k += together) {
                Fragment of_columns(slice.b_of_base.power[k / 16][thread / 32 % 2][j], lane);
                Fragment of_rows(slice.a_of_base.power[k / 16][thread / 64][i / 4], lane);
                if (together == 16) multiply<0, 16>(of_columns, of_rows, i / 2 % 2, sums);
                else if (k % 16 == 0) multiply<0, 8>(of_columns, of_rows, i / 2 % 2, sums);
                else multiply<8, 8>(of_columns, of_rows, i / 2 % 2, sums);
                if (together == 16 && k + 16 < Model::K) continue;
#pragma unroll
                for (int x = 0; x < 4; x++) found[x] = bits_as<float>(max_of(bits_as<u32>(found[x]), bits_as<u32>(sums[x]))), sums[x] = 0;
            }
#pragma unroll
            for (int x = 0; x < 2; x++) largest[i + x] = high_halves(found[x], found[x + 2]) >> halvings & kept;
        }
    }

    // Makes of sums so far and largest exponents the constants onto which the next block's terms are added, and adds the sums.
    FN void align(const Steps& slice) {
        u32 a[S::WORDS][M], b[S::WORDS][N];
#pragma unroll
        for (int w = 0; w < S::WORDS; w++) {
            read(slice.a_negative[w], S::row(thread), 4, a[w]);
            read(slice.b_negative[w], S::column(thread), 4, b[w]);
        }
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            u32 found[M];
            if constexpr (Model::BASE != 0) seek(slice, j / 2, found);
#pragma unroll
            for (int i = 0; i < M; i++) {
                u32 largest = power[i][j / 2], so_far = high_halves(s[i][j], s[i][j + 1]) & EXPONENTS;
                if (!Model::POWERS) largest = add_max(largest & EXPONENTS, LIFT_BOTH, LEAST * 0x10001u);
                if (Model::BASE) largest = add_max(found[i], (NOTHING << 7) * 0x10001u, so_far);
                else largest = add_max(so_far, LIFT_BOTH, largest);
                constexpr u32 lift = Model::BASE ? (u32)LIFT<Model> << 16 : 0;
                u32 low = (largest << 16) + lift, high = (largest & 0xffff0000) + lift;
                if (TRUNCATE) {
#pragma unroll
                    for (int w = 0; w < S::WORDS; w++) low += bits_set(a[w][i] ^ b[w][j]), high += bits_set(a[w][i] ^ b[w][j + 1]);
                }
                s[i][j] = with_addend(s[i][j], low), s[i][j + 1] = with_addend(s[i][j + 1], high);
            }
        }
    }

    static FN float with_term(float a, float b, float s) {
        return Rules::alignment_rounding == AlignmentRounding::sticky ? sticky_fma(a, b, s) : fma_down(a, b, s);
    }

    static FN float with_addend(float value, u32 constant) {
        if (!TRUNCATE) return with_term(value, 1, bits_as<float>(constant));
        constexpr float tilt = 1 + 1.f / (1 << 23);
        return fma_down(value, tilt, bits_as<float>(constant + (bits_as<u32>(value) >> 31)));
    }

    // Of a block that is summed.
    FN void total(u32 block) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                float binade = bits_as<float>(bits_as<u32>(s[i][j]) & ~0u << 23);
                s[i][j] = fma_near(binade, -1.5f, s[i][j]);
                if (IS_TWICE<Rules>) s[i][j] *= 0.5f;
                if (!CUT_LATER) s[i][j] = cut(s[i][j]);
            }
        if (job.promote && ((block + 1) % job.promote == 0 || block + 1 == job.blocks)) promote(block);
    }

    static FN float cut(float value) { return bits_as<float>(bits_as<u32>(value) & ~0u << (23 - Rules::result_bits)); }

    FN void promote(u32 block) {
        auto place = this->place();
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                if (!place.exists(i, j)) continue;
                u64 at = place.at(i, j, job);
                u32& accumulator = ((u32*)job.d)[at];
                u32 before = block >= job.promote ? accumulator : job.c ? ((const u32*)job.c)[at] : 0;
                accumulator = (u32)promoted<Model>(before, bits_as<u32>(cut(s[i][j])));
                s[i][j] = block + 1 == job.blocks ? bits_as<float>(accumulator) : 0;
            }
    }

    FN void finish(const Differences& differences) {
        u32 of_a[M], of_b[N], results[M][N];
#pragma unroll
        for (int i = 0; i < M; i++) of_a[i] = prepared.a_special[tile_row * S::ROWS + S::row(thread) + i];
#pragma unroll
        for (int j = 0; j < N; j++) of_b[j] = prepared.b_special[tile_column * S::COLUMNS + S::column(thread) + j];
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) results[i][j] = bits_as<u32>(job.promote ? s[i][j] : cut(s[i][j]));
        hand_over_all<Model>(job, differences, place(), of_a, of_b, careful, results);
    }
};
