// Evaluates a model on a tile of ROWS x COLUMNS dot products that share their operands: each row with each column.
//
// A thread has ROWS_OF_THREAD x COLUMNS_OF_THREAD of them. Operands are decoded once for each row and column, into shared memory.
// Each product then costs one fused multiply-add and half an instruction for the largest exponent.
//
// The sum of aligned terms is a chain of fused multiply-adds that round down, onto a constant M = 1.5 * 2^x. M's last bit is the last
// bit kept. While the sum stays within M's binade, each step adds one product's floor, exactly.
//
// To truncate, every product is "tilted": made larger in magnitude by less than the distance to any multiple of the last bit kept.
// One operand, or both, have their lowest bit set; a zero becomes the smallest subnormal. Then the floor of a positive product is
// still its truncation. The floor of a negative product is always its truncation less one. So the number of negative products is
// added, with two instructions for 32 products.

#include "evaluator_reals.cuh"
#include "evaluator_operands.cuh"

template <class Model> using Pattern = typename Model::Pattern;

// The results of one sum for all dot products of a thread.
template <class Model> struct Results {
    Pattern<Model> at[Shape<Model>::ROWS_OF_THREAD][Shape<Model>::COLUMNS_OF_THREAD];
};

// One thread's share of a tile.
template <class Model> struct Share {
    using Real = typename Model::Real;
    using S = Shape<Model>;
    static constexpr int M = S::ROWS_OF_THREAD, N = S::COLUMNS_OF_THREAD;

    const Staged<Model>& staged;
    int row, column;
    const Results<Model>& c;

    struct alignas(16) Chunk { Real x[S::CHUNK]; };
    struct alignas(16) Powers { u32 x[4]; };
    struct alignas(2 * S::CHUNK_OF_POWERS) Halves { u32 x[S::CHUNK_OF_POWERS / 2]; };

    FN void values(int k, Real (&a)[M], Real (&b)[N]) const {
#pragma unroll
        for (int i = 0; i < M; i += S::CHUNK) {
            Chunk chunk = *(const Chunk*)&staged.a[k][row + i];
#pragma unroll
            for (int x = 0; x < S::CHUNK; x++) a[i + x] = chunk.x[x];
        }
        int place = S::place(column, S::CHUNK);
#pragma unroll
        for (int j = 0; j < N; j += S::CHUNK) {
            Chunk chunk = *(const Chunk*)&staged.b[k][place + 8 * j];
#pragma unroll
            for (int x = 0; x < S::CHUNK; x++) b[j + x] = chunk.x[x];
        }
    }

    // A term of every dot product that is no product of operands: C, or the results of another sum.
    template <class Format, bool FLUSH> struct Other {
        const Results<Model>& results;

        FN Pattern<Model> pattern(int i, int j) const { return results.at[i][j]; }
        FN bool negative(int i, int j) const { return pattern(i, j) & Format::SIGN; }
        // With a bit below all of its own, so that its floor is its truncation less one if it is negative, -0 too.
        FN Real tilted(int i, int j) const {
            static_assert(Format::STORAGE < 64, "");
            return bits_as<Real>(bits_as<u64>(value(i, j)) | 1);
        }
        FN Real value(int i, int j) const {
            if constexpr (Format::STORAGE == 64) return bits_as<Real>((typename Layout<Real>::Word)pattern(i, j));
            else if constexpr (Format::MANTISSA == 23 && !FLUSH) return (Real)bits_as<float>((u32)pattern(i, j));
            else if constexpr (IS_HALF<Format> && !FLUSH) return (Real)from_half((u32)pattern(i, j));
            else return real<Real>(Format::number(pattern(i, j), FLUSH));
        }
        // The high word of 2^exponent as encoded, 0 for a zero; its fraction is ignored.
        FN u32 power(Real value) const {
            u32 leading = Layout<Real>::high(value) & ~0u >> 1;
            constexpr u32 least = (u32)(Format::MIN_EXPONENT + Layout<Real>::BIAS) << Layout<Real>::EXPONENT_PLACE;
            return leading == 0 ? 0 : max_of(leading, least);
        }
    };
    using Addend = Other<typename Model::C, Model::subnormal_addend == SubnormalAddend::flushed>;
    template <class Child> using Inner = Other<typename Child::Arithmetic::Result, false>;

    // d may be where C or the results of one child are: each is read before it is written.
    template <class Rules, int FIRST, int COUNT, bool ADDEND>
    FN void sum(Sum<Rules, FIRST, COUNT, ADDEND>, Results<Model>& d) {
        if constexpr (ADDEND) add<Rules, FIRST, COUNT>(d, Addend{c});
        else add<Rules, FIRST, COUNT>(d);
    }
    template <class Rules, int FIRST, int COUNT, bool ADDEND, class Child>
    FN void sum(Sum<Rules, FIRST, COUNT, ADDEND, Child>, Results<Model>& d) {
        sum(Child(), d);
        if constexpr (ADDEND) add<Rules, FIRST, COUNT>(d, Inner<Child>{d}, Addend{c});
        else add<Rules, FIRST, COUNT>(d, Inner<Child>{d});
    }
    template <class Rules, int FIRST, int COUNT, bool ADDEND, class Child, class Second>
    FN void sum(Sum<Rules, FIRST, COUNT, ADDEND, Child, Second>, Results<Model>& d) {
        Results<Model> second;
        sum(Child(), d);
        sum(Second(), second);
        if constexpr (ADDEND) add<Rules, FIRST, COUNT>(d, Inner<Child>{d}, Inner<Second>{second}, Addend{c});
        else add<Rules, FIRST, COUNT>(d, Inner<Child>{d}, Inner<Second>{second});
    }

    template <class Rules, int FIRST, int COUNT, class... Others> FN void add(Results<Model>& d, Others... others) {
        if constexpr (Rules::INTEGER) {
            integer_sum<Rules, FIRST, COUNT>(d, others...);
        } else {
            if constexpr (Rules::alignment_bits == EXACT) exact_sum<Rules, FIRST, COUNT>(d, others...);
            else aligned_sum<Rules, FIRST, COUNT>(d, others...);
        }
    }

    template <class Rules, int FIRST, int COUNT, class... Others> FN void integer_sum(Results<Model>& d, Others... others) {
        Real s[M][N] = {};
#pragma unroll 4
        for (int k = FIRST; k < FIRST + COUNT; k++) {
            Real a[M], b[N];
            values(k, a, b);
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < N; j++) s[i][j] = fma_near(a[i], b[j], s[i][j]);
        }
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                i64 total = (i64)(int)s[i][j];
                ((total += (i64)(int)others.pattern(i, j)), ...);
                d.at[i][j] = (Pattern<Model>)Sum<Rules, 0, 0, false>::wrap(total);
            }
    }

    // For each line, the products from FIRST on that have a negative operand, also -0.
    template <int FIRST, int COUNT> struct Negatives {
        static constexpr int FROM = FIRST / 32, WORDS = COUNT ? (FIRST + COUNT - 1) / 32 - FROM + 1 : 0;
        u32 a[WORDS + 1][M], b[WORDS + 1][N];

        FN Negatives(const Share& of) {
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                read(of.staged.a_negative, FROM + w, of.row, a[w]);
                read(of.staged.b_negative, FROM + w, of.column, b[w]);
            }
        }
        template <int LINES, int COUNTED> static FN void read(const u32 (&parts)[S::PARTS][S::WORDS][LINES], int w, int first, u32 (&lines)[COUNTED]) {
#pragma unroll
            for (int at = 0; at < COUNTED; at += 4) {
                Powers word = {};
#pragma unroll
                for (int p = 0; p < S::PARTS; p++) {
                    Powers part = *(const Powers*)&parts[p][w][first + at];
#pragma unroll
                    for (int x = 0; x < 4; x++) word.x[x] |= part.x[x];
                }
#pragma unroll
                for (int x = 0; x < 4; x++) lines[at + x] = word.x[x];
            }
        }
        // How many products are negative.
        FN int count(int i, int j) const {
            int n = 0;
#pragma unroll
            for (int w = 0; w < WORDS; w++) {
                int from = larger(FIRST - 32 * (FROM + w), 0), to = 32 - larger(32 * (FROM + w + 1) - FIRST - COUNT, 0);
                u32 mask = (~0u >> (32 - (to - from))) << from;
                n += bits_set((a[w][i] ^ b[w][j]) & mask);
            }
            return n;
        }
    };

    // The high words of 2^largest exponent of the products, a pair of columns in a word, upper halves only.
    template <class Rules, int FIRST, int COUNT> FN void largest_powers(u32 (&power)[M][N / 2]) const {
        constexpr int shift = Layout<Real>::EXPONENT_PLACE - 16, bias = Layout<Real>::BIAS;
        // Below every term, yet so high that the tilted zeros stay below the last bit kept.
        constexpr u32 least = (larger(Rules::min_exponent, -300) + bias) << shift;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N / 2; j++) power[i][j] = least * 0x10001u;
        if constexpr (Rules::product_exponent == ProductExponent::normalised_product) {
#pragma unroll 2
            for (int k = FIRST; k < FIRST + COUNT; k++) {
                Real a[M], b[N];
                values(k, a, b);
#pragma unroll
                for (int i = 0; i < M; i++)
#pragma unroll
                    for (int j = 0; j < N; j++) {
                        u32 high = Layout<Real>::high(a[i] * b[j]) >> 16 & (0x7fff >> shift << shift);
                        power[i][j / 2] = add_max(high << (16 * (j % 2)), 0, power[i][j / 2]);
                    }
            }
        } else {
#pragma unroll 8
            for (int k = FIRST; k < FIRST + COUNT; k++) {
                Powers a[M / 4];
#pragma unroll
                for (int i = 0; i < M / 4; i++) a[i] = *(const Powers*)&staged.a_power[k][row + 4 * i];
                constexpr int chunk = S::CHUNK_OF_POWERS;
                int place = S::place(column, chunk);
#pragma unroll
                for (int h = 0; h < N / chunk; h++) {
                    Halves b = *(const Halves*)&staged.b_power[k][place + 8 * chunk * h];
#pragma unroll
                    for (int i = 0; i < M; i++)
#pragma unroll
                        for (int j = 0; j < chunk / 2; j++) {
                            u32& largest = power[i][h * chunk / 2 + j];
                            largest = add_max(a[i / 4].x[i % 4], b.x[j], largest);
                        }
                }
            }
        }
    }

    // The constant 1.5 * 2^x onto which terms are added, given a sum within its binade.
    static FN Real constant(Real s) {
        constexpr int place = Layout<Real>::EXPONENT_PLACE;
        return Layout<Real>::make((Layout<Real>::high(s) & ~0u << place) | 1u << (place - 1), 0);
    }

    template <class Rules> static FN Real with_term(Real a, Real b, Real s) {
        if (Rules::alignment_rounding == AlignmentRounding::truncate) return fma_down(a, b, s);
        if (Model::TILTED) a = untilted(a), b = untilted(b);
        if (Rules::alignment_rounding == AlignmentRounding::floor) return fma_down(a, b, s);
        if (Rules::alignment_rounding == AlignmentRounding::nearest) {
            Real m = constant(s);
            return s + (fma_near(a, b, m) - m);
        }
        return sticky_fma(a, b, s);
    }

    // As with_term, for a term that is no product.
    template <class Rules, class Term> static FN Real with_other(const Term& term, int i, int j, Real s) {
        if constexpr (Rules::alignment_rounding == AlignmentRounding::truncate) return fma_down(term.tilted(i, j), (Real)1, s);
        else return with_term<Rules>(term.value(i, j), (Real)1, s);
    }

    template <class Rules, int FIRST, int COUNT, class... Others> FN void aligned_sum(Results<Model>& d, Others... others) {
        constexpr int place = Layout<Real>::EXPONENT_PLACE, digits = Layout<Real>::DIGITS;
        constexpr bool truncate = Rules::alignment_rounding == AlignmentRounding::truncate, twice = IS_TWICE<Rules>;
        u32 power[M][N / 2];
        largest_powers<Rules, FIRST, COUNT>(power);
        Negatives<FIRST, COUNT> negatives(*this);
        Real s[M][N];
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                u32 largest = j % 2 ? power[i][j / 2] & 0xffff0000u : power[i][j / 2] << 16;
                int n = truncate ? negatives.count(i, j) : 0;
                ((largest = max_of(largest, others.power(others.value(i, j)))), ...);
                largest = (largest & ~0u << place) + ((u32)(digits - Rules::alignment_bits + twice) << place) + (1u << (place - 1));
                if (truncate) ((n += Layout<Real>::high(others.value(i, j)) >> 31), ...);
                s[i][j] = Layout<Real>::make(largest, n);
                ((s[i][j] = with_other<Rules>(others, i, j, s[i][j])), ...);
            }
#pragma unroll 8
        for (int k = FIRST; k < FIRST + COUNT; k++) {
            Real a[M], b[N];
            values(k, a, b);
#pragma unroll
            for (int i = 0; i < M; i++)
#pragma unroll
                for (int j = 0; j < N; j++) s[i][j] = with_term<Rules>(a[i], b[j], s[i][j]);
        }
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                Real total = s[i][j] - constant(s[i][j]);
                if (twice) total *= (Real)0.5;
                bool negative = Layout<Real>::high(total) >> 31;  // not of a zero
                if (Rules::zero_sign == ZeroSign::ieee) {
                    bool all = negatives.count(i, j) == COUNT && (others.negative(i, j) && ... && true);
                    negative |= total == 0 && all;
                }
                d.at[i][j] = (Pattern<Model>)encode_real<Rules>(total, negative);
            }
    }

    // Two terms at most.
    template <class Rules, int FIRST, int COUNT, class... Others> FN void exact_sum(Results<Model>& d, Others... others) {
        static_assert(COUNT + sizeof...(Others) <= 2, "");
        Real a[COUNT + 1][M], b[COUNT + 1][N];
#pragma unroll
        for (int k = 0; k < COUNT; k++) values(FIRST + k, a[k], b[k]);
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                Real x[2] = {0, 0}, y[2] = {1, 1};
                int n = 0;
                bool negative = true;
#pragma unroll
                for (int k = 0; k < COUNT; k++) {
                    x[n] = Model::TILTED ? untilted(a[k][i]) : a[k][i];
                    y[n] = Model::TILTED ? untilted(b[k][j]) : b[k][j];
                    negative &= (Layout<Real>::high(x[n]) ^ Layout<Real>::high(y[n])) >> 31;
                    n++;
                }
                ((x[n++] = others.value(i, j), negative &= others.negative(i, j)), ...);
                if constexpr (Rules::Result::STORAGE == 64) {
                    d.at[i][j] = bits_as<u64>(fma_near(x[0], y[0], x[1]));
                } else {
                    Real total = odd_fma(x[0], y[0], x[1] * y[1]);
                    constexpr bool ieee = Rules::zero_sign == ZeroSign::ieee;
                    d.at[i][j] = (Pattern<Model>)encode_real<Rules>(total, total < 0 || (total == 0 && ieee && negative));
                }
            }
    }
};
