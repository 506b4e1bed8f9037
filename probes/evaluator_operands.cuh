// A tile's operands, decoded into shared memory: each row of A and each column of B once.

// How the tile is laid out among threads: warps of 4 x 8 lanes, two side by side. Lines (rows of A, columns of B) are decoded
// in PARTS, so that all threads have equal work.
template <class Model> struct Shape {
    using Real = typename Model::Real;
    static constexpr int THREADS = sizeof(Real) == 4 || Model::OF_SUM ? 128 : 256, ROWS_OF_THREAD = 8, COLUMNS_OF_THREAD = sizeof(Real) == 4 ? 8 : 4;
    static constexpr int ROWS = THREADS / 64 * 4 * ROWS_OF_THREAD, COLUMNS = 2 * 8 * COLUMNS_OF_THREAD;
    static constexpr int LEAST_BITS = Model::K * (Model::A::STORAGE < Model::B::STORAGE ? Model::A::STORAGE : Model::B::STORAGE);
    static constexpr int MOST_PARTS = sizeof(Real) == 4 ? 2 : 4, PARTS = LEAST_BITS / MOST_PARTS >= 32 ? MOST_PARTS : 1;
    static constexpr int OF_PART = Model::K / PARTS;
    static constexpr int ROUNDS_OF_A = (ROWS * PARTS + THREADS - 1) / THREADS, ROUNDS_OF_B = (COLUMNS * PARTS + THREADS - 1) / THREADS;
    static constexpr int CHUNK = 16 / sizeof(Real), CHUNK_OF_POWERS = COLUMNS_OF_THREAD < 8 ? COLUMNS_OF_THREAD : 8;
    static constexpr int WORDS = (Model::K + 31) / 32, WORDS_OF_SUM = (Model::OF_SUM + 31) / 32;
    static constexpr bool ONE_WORD = WORDS == 1 && Model::IN_ORDER;  // product k is bit k

    // Neighbours in a row, and neighbours in a column, differ in different lane bits, so that wide loads of both coalesce. With
    // matrix units, the lanes follow the units' layout, with columns as rows.
    static FN int row_of_lane(int lane) { return Model::BASE ? lane % 4 : lane / 16 * 2 + lane % 2; }
    static FN int column_of_lane(int lane) { return Model::BASE ? lane / 4 : lane % 16 / 2; }
    static FN int row(int thread) { return (thread / 64 * 4 + row_of_lane(thread % 32)) * ROWS_OF_THREAD; }
    static FN int column(int thread) { return (thread / 32 % 2 * 8 + column_of_lane(thread % 32)) * COLUMNS_OF_THREAD; }

    // Where a column lies in a row of them: in chunks, those that eight lanes read together side by side.
    static FN int place(int column, int chunk) {
        int of_warp = column % (8 * COLUMNS_OF_THREAD), x = of_warp % COLUMNS_OF_THREAD;
        return column - of_warp + x / chunk * 8 * chunk + of_warp / COLUMNS_OF_THREAD * chunk + x % chunk;
    }
    // The column that lies there.
    static FN int column_at(int place, int chunk) {
        int of_warp = place % (8 * COLUMNS_OF_THREAD), x = of_warp / (8 * chunk) * chunk + of_warp % chunk;
        return place - of_warp + of_warp / chunk % 8 * COLUMNS_OF_THREAD + x;
    }
};

constexpr u32 HAS_NAN = 1, HAS_INF = 2;

// Difference between the power of the constant onto which terms are added and the power of the largest term. B's powers include it
// in chains, where all sums have equal truncation.
template <class Model, class L = Layout<typename Model::Real>>
constexpr int LIFT = Model::OF_SUM ? (2 * (L::DIGITS - Model::CUT_BITS) + 1) << (L::EXPONENT_PLACE - 17) : 0;

// One decoded operand. `rest` has the power in its lower half: the exponent as in the upper half of a real number's high word, for
// B with the bias. The upper half has a flag for special values, and perhaps more.
template <class Real> struct Element {
    Real value;
    u32 rest;
    bool negative;
};

// An element of 8 bits as a table has it. In single precision it is one word: the value's upper half has all of its bits. The last
// two bits of that half are free.
template <class Real> struct alignas(16) Code {
    Real value;
    u32 rest;

    FN void set(const Element<Real>& e) { value = e.value, rest = e.rest; }
    template <class Model> FN Element<Real> element() const { return {value, rest, false}; }
};
template <> struct Code<float> {
    u32 word;

    FN void set(const Element<float>& e) { word = (bits_as<u32>(e.value) & 0xffff0000) | e.rest; }
    template <class Model> FN Element<float> element() const {
        return {bits_as<float>((word & 0xffff0000) | (Model::TILTED ? 1 : 0)), word, false};
    }
};

template <class Model, class Format, bool LEFT> FN Element<typename Model::Real> take_apart(u64 pattern) {
    using Real = typename Model::Real;
    using Word = typename Layout<Real>::Word;
    constexpr int shift = Layout<Real>::EXPONENT_PLACE - 16, bias = LEFT ? 0 : Layout<Real>::BIAS;
    Element<Real> e = {0, 0, false};
    if constexpr (Format::INTEGER) {
        e.value = (Real)Format::value(pattern);
    } else {
        Number x = Format::number(pattern, Model::subnormal_operands == SubnormalOperands::flushed);
        e.negative = x.negative;
        constexpr int none = LEFT ? -(1 << 14) : 0;  // below `least` of largest_powers(), in any sum
        int exponent = Model::product_exponent == ProductExponent::normalised_operands ? x.leading() : x.exponent;
        constexpr bool aligned = Model::zero_terms == ZeroTerms::aligned;
        bool ignored = !x.significand && !(aligned && Model::product_exponent == ProductExponent::unnormalised);
        u16 power = (u16)((ignored ? none : (exponent + bias) * (1 << shift)) + (LEFT ? 0 : LIFT<Model>));
        e.rest = power | (x.nan ? HAS_NAN : x.inf ? HAS_INF : 0) << 16;
        Real magnitude;
        if constexpr (Format::MANTISSA > 24) {
            magnitude = bits_as<Real>((Word)(x.significand ? pattern & (Format::SIGN - 1) : 0));
        } else {
            magnitude = magnitude_of<Real, Format>(pattern, x);
            if (Model::TILTED) magnitude = bits_as<Real>((Word)(bits_as<Word>(magnitude) | (Word)(LEFT || !x.significand)));
        }
        e.value = bits_as<Real>((Word)(bits_as<Word>(magnitude) | (Word)x.negative << (8 * sizeof(Real) - 1)));
    }
    return e;
}

// Operands of one line as they lie in memory; zeros where there is none.
template <int STORAGE, int COUNT> struct Packed {
    static constexpr int BITS = COUNT * STORAGE, WORDS = (BITS + 31) / 32, TOGETHER = BITS % 128 == 0 ? 4 : BITS % 64 == 0 ? 2 : 1;
    struct alignas(4 * TOGETHER) Group { u32 word[TOGETHER]; };
    u32 word[WORDS];

    FN void load(const void* operands) {
#pragma unroll
        for (int w = 0; w < WORDS; w++) word[w] = 0;
        if (!operands) return;
#pragma unroll
        for (int g = 0; g < WORDS / TOGETHER; g++) {
            Group group = ((const Group*)operands)[g];
#pragma unroll
            for (int w = 0; w < TOGETHER; w++) word[TOGETHER * g + w] = group.word[w];
        }
    }
    FN u64 pattern(int k) const {
        if constexpr (STORAGE == 64) return (u64)word[2 * k + 1] << 32 | word[2 * k];
        else return word[k * STORAGE / 32] >> (k * STORAGE % 32) & (~0u >> (32 - STORAGE));
    }
};

template <class Model> struct Staged {
    using Real = typename Model::Real;
    using S = Shape<Model>;
    static constexpr int POWERS = Model::POWERS ? Model::K : 1;
    alignas(16) Real a[Model::K][S::ROWS];
    alignas(16) Real b[Model::K][S::COLUMNS];
    alignas(16) u32 a_power[POWERS][S::ROWS];  // in both halves
    alignas(16) u16 b_power[POWERS][S::COLUMNS];
    alignas(16) u32 a_negative[S::PARTS][S::WORDS][S::ROWS];
    alignas(16) u32 b_negative[S::PARTS][S::WORDS][S::COLUMNS];
    u32 a_special[S::PARTS][S::ROWS];
    u32 b_special[S::PARTS][S::COLUMNS];
    static constexpr int CODES = Model::A::STORAGE == 8 || Model::B::STORAGE == 8 ? 256 : 1;
    Code<Real> codes[2][CODES];

    FN void fill_tables(int thread) {
#pragma unroll 1
        for (int code = thread; code < CODES; code += S::THREADS) {
            if constexpr (Model::A::STORAGE == 8) enter(0, code, take_apart<Model, typename Model::A, true>(code));
            if constexpr (Model::B::STORAGE == 8) enter(1, code, take_apart<Model, typename Model::B, false>(code));
        }
    }
    FN void enter(int side, int code, const Element<Real>& e) {
        codes[side][code].set(e);
    }

    // Decodes a part of one row (LEFT) or column, whose values are at that place. Specials accumulate over the blocks of a chain.
    template <class Format, bool LEFT> FN void stage(int at, int place, int part, const Packed<Format::STORAGE, S::OF_PART>& operands, bool first) {
        u32 negative[S::WORDS] = {}, special = 0;
        int place_of_power = LEFT ? place : S::place(at, S::CHUNK_OF_POWERS);
#pragma unroll
        for (int k = 0; k < S::OF_PART; k++) {
            u64 pattern = operands.pattern(k);
            Element<Real> e;
            if constexpr (Format::STORAGE == 8) {
                e = codes[!LEFT][pattern].template element<Model>();
                if constexpr (!Format::INTEGER) e.negative = pattern >> Format::SIGN_PLACE & 1;
                if constexpr (!Format::INTEGER)
                    if (S::ONE_WORD && k % 4 == 0) negative[0] |= signs(operands.word[k / 4] << (7 - Format::SIGN_PLACE)) << k;
            } else {
                e = take_apart<Model, Format, LEFT>(pattern);
                if (S::ONE_WORD) negative[0] |= (u32)e.negative << k;
            }
            int i = Model::position(part * S::OF_PART + k);
            (LEFT ? a[i][place] : b[i][place]) = e.value;
            if (Model::POWERS && LEFT) a_power[i % POWERS][place_of_power] = twice(e.rest);
            if (Model::POWERS && !LEFT) b_power[i % POWERS][place_of_power] = (u16)e.rest;
            special |= e.rest;
#pragma unroll
            for (int w = 0; w < S::WORDS && !S::ONE_WORD; w++) negative[w] |= i / 32 == w ? (u32)e.negative << (i % 32) : 0;
        }
        if constexpr (S::ONE_WORD) negative[0] <<= part * S::OF_PART;
#pragma unroll
        for (int w = 0; w < S::WORDS; w++) (LEFT ? a_negative[part][w][at] : b_negative[part][w][at]) = negative[w];
        u32& flags = LEFT ? a_special[part][at] : b_special[part][at];
        flags = (first ? 0 : flags) | (Format::INTEGER ? 0 : special >> 16 & (HAS_NAN | HAS_INF));
    }

    // The highest bits of four bytes, side by side.
    static FN u32 signs(u32 bytes) { return (bytes & 0x80808080) * 0x204081u >> 28; }

    // The lower half of a word in both.
    static FN u32 twice(u32 word) {
#ifdef __CUDA_ARCH__
        return __byte_perm(word, 0, 0x1010);
#else
        return (word & 0xffff) * 0x10001u;
#endif
    }

    template <int LINES> static FN u32 all(const u32 (&parts)[S::PARTS][LINES], int at) {
        u32 word = 0;
#pragma unroll
        for (int p = 0; p < S::PARTS; p++) word |= parts[p][at];
        return word;
    }
    template <int LINES> static FN u32 all(const u32 (&parts)[S::PARTS][S::WORDS][LINES], int w, int at) {
        u32 word = 0;
#pragma unroll
        for (int p = 0; p < S::PARTS; p++) word |= parts[p][w][at];
        return word;
    }
};
