// Chains of fused sums with equal truncation. Operands are decoded once, in memory. Then, tile by tile, the largest exponents
// of the next sum are found while a sum's products are added. So multiply-adds and comparisons keep both units busy.
//
// A block of K has SUMS sums of OF_SUM products each. The first adds C or the sum of the block before, the others add the sum
// before them. With ADDED, each block's last sum is added to C, as float32, and its first one starts from zero.
//
// evaluator_tile.cuh explains the truncation.

#include "evaluator_taken.cuh"

// A thread's part in one tile. Before each step all threads synchronise, and the copies for it are complete.
template <class Model> struct Chain {
    using S = Shape<Model>;
    using Steps = Slice<Model>;
    using Rules = typename Model::Linked;
    using Real = typename Model::Real;
    using L = Layout<Real>;
    static constexpr bool WIDE = L::DIGITS > 23;  // results have fewer bits than sums
    // WATCHED: whether nonzero sums may be no normal float32 numbers.
    static constexpr int LOWEST_BIT = Model::A::MIN_EXPONENT - Model::A::MANTISSA + Model::B::MIN_EXPONENT - Model::B::MANTISSA;
    static constexpr bool WATCHED = WIDE && (!Model::ADDED || LOWEST_BIT < -90 || Model::A::MAX_EXPONENT + Model::B::MAX_EXPONENT > 90);
    static constexpr int M = S::ROWS_OF_THREAD, N = S::COLUMNS_OF_THREAD;
    static constexpr bool TRUNCATE = Rules::alignment_rounding == AlignmentRounding::truncate;
    // True if the next sum truncates bits of a result.
    static constexpr bool CUT_LATER = !WIDE && !Model::ADDED && TRUNCATE && Rules::result_bits >= Rules::alignment_bits;
    static constexpr int PLACE = L::EXPONENT_PLACE - 16;  // of exponents in a half of a word
    static constexpr u32 EXPONENTS = (0x7fff >> PLACE << PLACE) * 0x10001u;
    static constexpr int UNROLLED = Model::BASE ? 16 / (1 + IS_TWICE<Rules>) : 2;  // as was fastest on an H200

    const Job& job;
    const Prepared<Model>& prepared;
    InChain<Model>& shared;
    int thread;
    u64 tile_row, tile_column;  // counted in tiles
    Real s[M][N];
    u64 careful;
    u32 power[M][N / 2];
    bool subnormal;  // whether some of s are

    struct alignas(16) Words { u32 x[4]; };
    struct alignas(2 * N) Pairs { u32 x[N / 2]; };

    FN Place<M, N> place() const { return {job, tile_row * S::ROWS + S::row(thread), tile_column * S::COLUMNS + S::column(thread)}; }
    FN u32 sums() const { return job.blocks * Model::SUMS; }
    FN u32 steps() const { return (sums() + 1) * Steps::COUNT; }
    FN float& added(int i, int j) const { return shared.added[i][j][thread]; }

    template <int BYTES> FN void copy(void* to, const void* from) const {
#pragma unroll
        for (int round = 0; round * 16 * S::THREADS < BYTES; round++) {
            int at = 16 * (thread + round * S::THREADS);
            if (BYTES % (16 * S::THREADS) == 0 || at < BYTES) copy_16_bytes((u8*)to + at, (const u8*)from + at);
        }
    }

    FN void copy(u32 step) const {
        if (step >= steps()) return;
        Steps& slice = shared.slices[step % 2];
        u32 next = step / Steps::COUNT, part = step % Steps::COUNT;
        int k = part * Steps::K;
        const Taken<Model, true>* a = prepared.a + tile_row * sums();
        const Taken<Model, false>* b = prepared.b + tile_column * sums();
        if (next > 0) {
            copy<sizeof slice.a>(slice.a, a[next - 1].value[k]);
            copy<sizeof slice.b>(slice.b, b[next - 1].value[k]);
        }
        if (next < sums()) {
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

    // Loads addends of a usual size, without the bits that the first sum would truncate; the others are careful ones.
    FN void begin() {
        auto place = this->place();
        if (!job.c || job.promote) place.rows = 0;
        careful = 0, subnormal = false;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                u32 c = place.exists(i, j) ? ((const u32*)job.c)[place.at(i, j, job)] : 0, exponent = c >> 23 & 255;
                bool usual = WIDE || Model::ADDED ? exponent < 255 : exponent >= LEAST_ADDEND && exponent <= 127 + 90;
                if (!usual && c << 1) careful |= 1ull << (i * N + j);
                if (WATCHED) subnormal |= !exponent && c << 1;
                if constexpr (Model::ADDED) added(i, j) = bits_as<float>(c);
                if constexpr (!WIDE && TRUNCATE) c &= ~0u << (23 - Rules::alignment_bits);
                s[i][j] = !Model::ADDED && usual && c << 1 ? (Real)bits_as<float>(c) : 0;
            }
    }

    FN void compute(u32 step) {
        const Steps& slice = shared.slices[step % 2];
        u32 next = step / Steps::COUNT, part = step % Steps::COUNT;
        if (part == 0 && !Model::BASE) {
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < N / 2; j++) power[i][j] = SOUGHT;
        }
        if (next == 0) through<false, !Model::BASE>(slice);
        else if (Model::BASE || next == sums()) through<true, false>(slice);
        else through<true, !Model::BASE>(slice);
        if (part == Steps::COUNT - 1) {
            if (next > 0) total(next - 1);
            if (next < sums()) align(slice);
        }
    }

    template <bool SUM, bool SEEK> FN void through(const Steps& slice) {
        constexpr int chunk = S::CHUNK_OF_POWERS;
        int row = S::row(thread), place = S::place(S::column(thread), S::CHUNK), place_of_power = S::place(S::column(thread), chunk);
#pragma unroll UNROLLED
        for (int k = 0; k < Steps::K; k++) {
            if constexpr (SUM) {
                Real a[M], b[N];
                read(slice.a[k], row, S::CHUNK, a);
                read(slice.b[k], place, 8 * S::CHUNK, b);
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N; j++) s[i][j] = with_term(a[i], b[j], s[i][j]);
            }
            if constexpr (SEEK && Model::POWERS) {
                u32 a[M], b[N / 2];
                read(slice.a_power[k], row, 4, a);
                *(Pairs*)b = *(const Pairs*)&slice.b_power[k][place_of_power];
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N / 2; j++) power[i][j] = add_max(a[i], b[j], power[i][j]);
            }
            if constexpr (SEEK && !Model::POWERS) {
                Real a[M], b[N];
                read(slice.a_power[k], row, S::CHUNK, a);
                read(slice.b_power[k], place, 8 * S::CHUNK, b);
                auto product = [&](int i, int j) { return absolute(a[i]) * absolute(b[j]); };
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N; j += 2) power[i][j / 2] = add_max(high_halves(product(i, j), product(i, j + 1)), 0, power[i][j / 2]);
            }
        }
    }

    // The upper halves of two real numbers' high words, in one word.
    template <class Of> static FN u32 high_halves(Of x, Of y) {
        u32 low = Layout<Of>::high(x), high = Layout<Of>::high(y);
#ifdef __CUDA_ARCH__
        return __byte_perm(low, high, 0x7632);
#else
        return low >> 16 | high >> 16 << 16;
#endif
    }

    // Reads a line in chunks of 16 bytes.
    template <class Of, int COUNT> static FN void read(const Of* line, int first, int stride, Of (&to)[COUNT]) {
        constexpr int n = 16 / sizeof(Of);
#pragma unroll
        for (int x = 0; x < COUNT; x += n) *(Words*)&to[x] = *(const Words*)&line[first + x / n * stride];
    }

    // Below every term, yet so high that the tilted zeros stay below the last bit kept.
    static constexpr u32 LEAST = ((larger(Rules::min_exponent, WIDE ? -300 : -100) + L::BIAS) << PLACE) + LIFT<Model>;
    // The biased exponent of a sum of powers if every product is zero. It is below the exponents of all products. Addends below it
    // are careful ones; the others, and every sum after them, lose no bit.
    static constexpr int NOTHING = Model::BASE ? 127 - (127 + Model::SHIFT) / Model::BASE : 0, LEAST_ADDEND = Model::BASE ? NOTHING : 127 - 90;
    static constexpr u32 SOUGHT = Model::POWERS ? LEAST * 0x10001u : 0, LIFT_BOTH = LIFT<Model> * 0x10001u;

    // The largest exponents of the next sum in columns 2 * j and 2 * j + 1, less NOTHING, from sums of powers.
    FN void seek(const Steps& slice, int j, u32 (&largest)[M]) const {
        constexpr int halvings = Model::BASE == 8 ? 3 : 2, together = Model::BASE == 8 ? 16 : 8;
        constexpr u32 kept = (EXPONENTS >> halvings & EXPONENTS & 0x7fff) * 0x10001u;
        int lane = thread % 32;
#pragma unroll
        for (int i = 0; i < M; i += 2) {
            float sums[4] = {}, found[4] = {};
#pragma unroll
            for (int k = 0; k < Model::OF_SUM; k += together) {
                Fragment of_columns(slice.b_of_base.power[k / 16][thread / 32 % 2][j], lane);
                Fragment of_rows(slice.a_of_base.power[k / 16][thread / 64][i / 4], lane);
                if (together == 16) multiply<0, 16>(of_columns, of_rows, i / 2 % 2, sums);
                else if (k % 16 == 0) multiply<0, 8>(of_columns, of_rows, i / 2 % 2, sums);
                else multiply<8, 8>(of_columns, of_rows, i / 2 % 2, sums);
                if (together == 16 && k + 16 < Model::OF_SUM) continue;
#pragma unroll
                for (int x = 0; x < 4; x++) found[x] = bits_as<float>(max_of(bits_as<u32>(found[x]), bits_as<u32>(sums[x]))), sums[x] = 0;
            }
#pragma unroll
            for (int x = 0; x < 2; x++) largest[i + x] = high_halves(found[x], found[x + 2]) >> halvings & kept;
        }
    }

    // Makes the constants onto which the next sum's terms are added, from sums so far and largest exponents; adds the sums.
    FN void align(const Steps& slice) {
        u32 a[S::WORDS_OF_SUM][M], b[S::WORDS_OF_SUM][N];
#pragma unroll
        for (int w = 0; w < S::WORDS_OF_SUM; w++) {
            read(slice.a_negative[w], S::row(thread), 4, a[w]);
            read(slice.b_negative[w], S::column(thread), 4, b[w]);
        }
        if (WATCHED && subnormal) raise();
#pragma unroll
        for (int j = 0; j < N; j += 2) {
            u32 found[M];
            if constexpr (Model::BASE != 0) seek(slice, j / 2, found);
#pragma unroll
            for (int i = 0; i < M; i++) {
                u32 largest = power[i][j / 2], so_far = exponents(i, j);
                if (!Model::POWERS) largest = add_max(largest & EXPONENTS, LIFT_BOTH, LEAST * 0x10001u);
                if (Model::BASE) largest = add_max(found[i], (NOTHING << PLACE) * 0x10001u, so_far);
                else largest = add_max(so_far, LIFT_BOTH, largest);
                constexpr u32 lift = Model::BASE ? (u32)LIFT<Model> << 16 : 0;
                u32 low = (largest << 16) + lift, high = (largest & 0xffff0000) + lift;
                int of_low = 0, of_high = 0;
                if (TRUNCATE) {
#pragma unroll
                    for (int w = 0; w < S::WORDS_OF_SUM; w++) of_low += bits_set(a[w][i] ^ b[w][j]), of_high += bits_set(a[w][i] ^ b[w][j + 1]);
                }
                s[i][j] = with_addend(s[i][j], low, of_low), s[i][j + 1] = with_addend(s[i][j + 1], high, of_high);
            }
        }
    }

    // The exponents of two sums so far, in their places in halves of a word.
    FN u32 exponents(int i, int j) const { return high_halves(s[i][j], s[i][j + 1]) & EXPONENTS; }

    static FN Real with_term(Real a, Real b, Real s) {
        return Rules::alignment_rounding == AlignmentRounding::sticky ? sticky_fma(a, b, s) : fma_down(a, b, s);
    }

    // constant: the high word of one, n: how many products are negative.
    static FN Real with_addend(Real value, u32 constant, int n) {
        if (!TRUNCATE) return with_term(value, 1, L::make(constant, 0));
        constexpr Real tilt = 1 + (Real)1 / (1ull << L::DIGITS);
        return fma_down(value, tilt, L::make(constant, n + (L::high(value) >> 31)));
    }

    // Computes the sum of that number.
    FN void total(u32 sum) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                Real binade = L::make(L::high(s[i][j]) & ~0u << L::EXPONENT_PLACE, 0);
                s[i][j] = fma_near(binade, (Real)-1.5, s[i][j]);
                if (IS_TWICE<Rules>) s[i][j] *= (Real)0.5;
                if (!CUT_LATER && !WIDE) s[i][j] = cut(s[i][j]);
            }
        if constexpr (WIDE) cut_all(sum + 1 == sums() && !Model::ADDED && !job.promote);
        u32 block = sum / Model::SUMS;
        if ((sum + 1) % Model::SUMS) return;
        if constexpr (Model::ADDED) add();
        if (job.promote && ((block + 1) % job.promote == 0 || block + 1 == job.blocks)) promote(block);
    }

    static FN Real cut(Real value) {
        using Word = typename L::Word;
        return bits_as<Real>((Word)(bits_as<Word>(value) & ~(Word)0 << (L::DIGITS - Rules::result_bits)));
    }

    // The lowest exponent of normal results, how many exponents they have, and the lowest one as `power` has it.
    static constexpr u32 LOWEST = (u32)(L::BIAS - 126) << PLACE, NORMAL = 254 << PLACE;
    static constexpr u32 LEAST_OF_SUM = LOWEST + (Model::POWERS ? LIFT<Model> : 0);

    // Truncates sums to float32's fraction bits; those that are no normal float32 numbers, to its last place.
    FN void cut_all(bool last) {
        u32 above = 0;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j += 2) {
                if (WATCHED) above = add_max_unsigned(exponents(i, j), (0x10000 - LOWEST) * 0x10001u, above);
                s[i][j] = cut(s[i][j]), s[i][j + 1] = cut(s[i][j + 1]);
            }
        subnormal = false;
        if (WATCHED && max_of(above & 0xffff, above >> 16) >= NORMAL) cut_others(last);
    }

    // A sum that others are added to makes the result a careful one if it overflows, or if it is -0 where float32s are added.
    FN void cut_others(bool last) {
        bool any = false;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) any |= s[i][j] != 0 && (exponents(i, j / 2 * 2) >> (16 * (j % 2)) & 0xffff) - LOWEST >= NORMAL;
        if (!any) return;
        Real sums[M][N];  // in local memory, so that nothing else has fewer registers
        move(sums, s);
#pragma unroll 1
        for (int x = 0; x < M * N; x++) {
            Real& sum = sums[x / N][x % N];
            u32 exponent = L::high(sum) >> 16 & (EXPONENTS & 0xffff);
            if (sum == 0 || exponent - LOWEST < NORMAL) continue;
            sum = bits_as<float>(converted<Rules>(sum));
            if (last) continue;
            bool lost = exponent > LOWEST || ((job.promote || Model::ADDED) && L::high(sum) == 1u << 31);
            if (lost) careful |= 1ull << x;
            if (lost || sum == 0) sum = 0;
            else subnormal = true;
        }
        move(s, sums);
    }

    // Sums that are subnormal have the exponent of the smallest normal number.
    FN void raise() {
        Real sums[M][N];
        u32 powers[M][N / 2];
        move(sums, s), move(powers, power);
#pragma unroll 1
        for (int x = 0; x < M * N; x++) {
            u32& largest = powers[x / N][x % N / 2];
            if (sums[x / N][x % N] != 0) largest = add_max(LEAST_OF_SUM << (16 * (x % 2)), 0, largest);
        }
        move(power, powers);
    }

    template <class Of, int COUNT> static FN void move(Of (&to)[M][COUNT], const Of (&from)[M][COUNT]) {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < COUNT; j++) to[i][j] = from[i][j];
    }

    FN void add() {
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
#ifdef __CUDA_ARCH__
                added(i, j) = __fadd_rn(added(i, j), (float)s[i][j]);
#else
                added(i, j) += (float)s[i][j];
#endif
                s[i][j] = 0;
            }
    }

    // The pattern of the result so far.
    FN u32 result(int i, int j) const {
        if constexpr (Model::ADDED) return bits_as<u32>(added(i, j));
        else return bits_as<u32>((float)cut(s[i][j]));
    }

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
                accumulator = (u32)promoted<Model>(before, result(i, j));
                Real next = block + 1 == job.blocks ? (Real)bits_as<float>(accumulator) : 0;
                if constexpr (Model::ADDED) added(i, j) = (float)next;
                else s[i][j] = next;
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
            for (int j = 0; j < N; j++) results[i][j] = job.promote && !Model::ADDED ? bits_as<u32>((float)s[i][j]) : result(i, j);
        hand_over_all<Model>(job, differences, place(), of_a, of_b, careful, results);
    }
};
