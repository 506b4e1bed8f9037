// What a model computes for a tile of ROWS x COLUMNS dot products that share their operands: row r's with column c's, many at once.
//
// A thread has ROWS_OF_THREAD x COLUMNS_OF_THREAD of them. Operands are taken apart once a row and once a column, into shared
// memory; what is left for each product is one fused multiply-add and half an instruction for the largest exponent.
//
// The sum of cut terms is a chain of fused multiply-adds that round down, onto a constant M = 1.5 * 2^x whose last bit is the last
// bit kept: while the sum stays within M's binade, each step adds one product's floor, exactly. To cut toward zero, every product
// is made larger in magnitude by less than the distance to any multiple of the last bit kept ("tilted": one operand, or both, have
// their lowest bit set, a zero becomes the smallest subnormal). Then the floor of a positive product is still its truncation, and that of a
// negative one is always its truncation less one: so the number of negative products, two instructions for 32 of them, is added.

template <class To, class From> FN To bits_as(From x) {
    static_assert(sizeof(To) == sizeof(From), "");
    To y;
#ifdef __CUDACC__
    y = *reinterpret_cast<To*>(&x);
#else
    std::memcpy(&y, &x, sizeof y);
#endif
    return y;
}

// Two exponents in one word: max(a + b, c) in each half. One instruction on Hopper (DPX).
FN u32 add_max(u32 a, u32 b, u32 c) {
#ifdef __CUDA_ARCH__
    return __viaddmax_s16x2(a, b, c);
#else
    auto half = [](u32 x, u32 y, u32 z) { return (u32)(u16)larger((short)(x + y), (short)z); };
    return half(a, b, c) | half(a >> 16, b >> 16, c >> 16) << 16;
#endif
}

#ifndef __CUDA_ARCH__
template <class Real> inline Real fma_on_host(int rounding, Real a, Real b, Real c) {
    volatile Real x = a, y = b, z = c;
    std::fesetround(rounding);
    volatile Real sum = std::fma(x, y, z);
    std::fesetround(FE_TONEAREST);
    return sum;
}
FN float fma_down(float a, float b, float c) { return fma_on_host(FE_DOWNWARD, a, b, c); }
FN float fma_up(float a, float b, float c) { return fma_on_host(FE_UPWARD, a, b, c); }
FN float fma_near(float a, float b, float c) { return fma_on_host(FE_TONEAREST, a, b, c); }
FN double fma_down(double a, double b, double c) { return fma_on_host(FE_DOWNWARD, a, b, c); }
FN double fma_up(double a, double b, double c) { return fma_on_host(FE_UPWARD, a, b, c); }
FN double fma_near(double a, double b, double c) { return fma_on_host(FE_TONEAREST, a, b, c); }
#else
FN float fma_down(float a, float b, float c) { return __fmaf_rd(a, b, c); }
FN float fma_up(float a, float b, float c) { return __fmaf_ru(a, b, c); }
FN float fma_near(float a, float b, float c) { return __fmaf_rn(a, b, c); }
FN double fma_down(double a, double b, double c) { return __fma_rd(a, b, c); }
FN double fma_up(double a, double b, double c) { return __fma_ru(a, b, c); }
FN double fma_near(double a, double b, double c) { return __fma_rn(a, b, c); }
#endif

// A real number's word, and the word of 32 bits that has its exponent. EXPONENT_PLACE: where the exponent begins in that word.
template <class Real> struct Layout;
template <> struct Layout<float> {
    using Word = u32;
    static constexpr int DIGITS = 23, BIAS = 127, EXPONENT_PLACE = 23;
    static FN u32 high(float x) { return bits_as<u32>(x); }
    static FN float make(u32 high, u32 add) { return bits_as<float>(high + add); }
};
template <> struct Layout<double> {
    using Word = u64;
    static constexpr int DIGITS = 52, BIAS = 1023, EXPONENT_PLACE = 20;
    static FN u32 high(double x) { return (u32)(bits_as<u64>(x) >> 32); }
    static FN double make(u32 high, u32 add) { return bits_as<double>((u64)high << 32 | add); }
};

template <class Real> FN Real two_to(int exponent) {
    return Layout<Real>::make((u32)(exponent + Layout<Real>::BIAS) << Layout<Real>::EXPONENT_PLACE, 0);
}

// A finite number of at most 24 bits as a real one, exactly.
template <class Real> FN Real real(const Number& x) {
    Real magnitude = (Real)(i64)x.significand * two_to<Real>(x.low);
    return x.negative ? -magnitude : magnitude;
}

FN u32 max_of(u32 x, u32 y) { return x > y ? x : y; }

template <class Real> FN Real absolute(Real x) {
    using Word = typename Layout<Real>::Word;
    return bits_as<Real>((Word)(bits_as<Word>(x) & ~(Word)0 >> 1));
}

template <class Real> FN Real untilted(Real x) {
    using Word = typename Layout<Real>::Word;
    return bits_as<Real>((Word)(bits_as<Word>(x) & ~(Word)1));
}

// Rounds to odd: a sum that is not exact has its last bit set, so that rounding it again rounds the exact sum.
template <class Real> FN Real odd_fma(Real a, Real b, Real c) {
    using Word = typename Layout<Real>::Word;
    Real down = fma_down(a, b, c), up = fma_up(a, b, c);
    return bits_as<Word>(down) & 1 ? down : up;
}

// encode() of a real number, not NaN, not infinite. `negative`: the sign, also of a zero.
template <class Rules, class Real> FN u64 encode_real(Real value, bool negative) {
    using Result = typename Rules::Result;
    using Word = typename Layout<Real>::Word;
    constexpr int place = Layout<Real>::EXPONENT_PLACE, digits = Layout<Real>::DIGITS;
    // In single precision every sum is of a usual size, and cut to fewer bits than a float has.
    if constexpr (sizeof(Real) == 4) return bits_as<u32>(value) & ~0u << (digits - Rules::result_bits);
    Real magnitude = absolute(value);
    int base = larger((int)(Layout<Real>::high(magnitude) >> place) - Layout<Real>::BIAS, Result::MIN_EXPONENT);
    Real unit = two_to<Real>(base - Rules::result_bits + digits);
    constexpr ResultRounding r = Rules::result_rounding;
    Real sum = r == ResultRounding::RNE ? fma_near(magnitude, (Real)1, unit)
               : (r == ResultRounding::RU && !negative) || (r == ResultRounding::RD && negative) ? fma_up(magnitude, (Real)1, unit)
                                                                              : fma_down(magnitude, (Real)1, unit);
    u32 kept = (u32)bits_as<Word>(sum) & ((2u << Rules::result_bits << 1) - 1);
    if (Rules::subnormal_results == SubnormalResults::flushed && kept < 1u << Rules::result_bits) kept = 0;
    constexpr int step = Result::MANTISSA - Rules::result_bits;
    u32 pattern = ((u32)(base - Result::MIN_EXPONENT) << Result::MANTISSA) + (kept << step);
    constexpr u32 most = Rules::overflow == Overflow::largest ? (u32)(Result::INF - 1) >> step << step : (u32)Result::INF;
    if (base > Result::MAX_EXPONENT || pattern >= (u32)Result::INF) pattern = most;
    if (Rules::underflow_sign == UnderflowSign::positive && !pattern && value != 0) negative = false;
    return negative ? pattern | (u32)Result::SIGN : pattern;
}

// How the tile is laid out among threads: warps of 4 x 8 lanes, two side by side. Lines (rows of A, columns of B) are taken apart
// in PARTS, so that all threads have as much to do.
template <class Model> struct Shape {
    using Real = typename Model::Real;
    static constexpr int THREADS = sizeof(Real) == 4 ? 128 : 256, ROWS_OF_THREAD = 8, COLUMNS_OF_THREAD = sizeof(Real) == 4 ? 8 : 4;
    static constexpr int ROWS = THREADS / 64 * 4 * ROWS_OF_THREAD, COLUMNS = 2 * 8 * COLUMNS_OF_THREAD;
    static constexpr int LEAST_BITS = Model::K * (Model::A::STORAGE < Model::B::STORAGE ? Model::A::STORAGE : Model::B::STORAGE);
    static constexpr int MOST_PARTS = sizeof(Real) == 4 ? 2 : 4, PARTS = LEAST_BITS / MOST_PARTS >= 32 ? MOST_PARTS : 1;
    static constexpr int OF_PART = Model::K / PARTS;
    static constexpr int ROUNDS_OF_A = (ROWS * PARTS + THREADS - 1) / THREADS, ROUNDS_OF_B = (COLUMNS * PARTS + THREADS - 1) / THREADS;
    static constexpr int CHUNK = 16 / sizeof(Real), CHUNK_OF_POWERS = COLUMNS_OF_THREAD < 8 ? COLUMNS_OF_THREAD : 8;
    static constexpr int WORDS = (Model::K + 31) / 32;
    static constexpr bool ONE_WORD = WORDS == 1 && Model::IN_ORDER;  // product k is bit k

    static FN int row(int thread) { return (thread / 64 * 4 + thread % 32 / 8) * ROWS_OF_THREAD; }
    static FN int column(int thread) { return (thread / 32 % 2 * 8 + thread % 8) * COLUMNS_OF_THREAD; }

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

// From the power of the largest term to that of the constant onto which terms are added, as B's powers have it in single precision,
// where all sums are cut alike.
template <class Model> constexpr int LIFT =
    sizeof(typename Model::Real) == 4 ? (2 * (Layout<float>::DIGITS - Model::ADDEND_BITS) + 1) << (Layout<float>::EXPONENT_PLACE - 17) : 0;

// One operand taken apart. `rest`: in its lower half the power, the exponent as it stands in the upper half of a real number's high
// word, B's with the bias; above it whether it is special, and perhaps more.
template <class Real> struct Element {
    Real value;
    u32 rest;
    bool negative;
};

// An element of 8 bits as a table has it. In single precision it is one word: the value's upper half has all of its bits, the last
// two of which are free in a float.
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
        constexpr int none = LEFT ? -(1 << 14) : 0;  // below `lowest` of largest_powers(), whatever it is added to
        int exponent = Model::product_exponent == ProductExponent::normalised_operands ? x.leading() : x.exponent;
        constexpr bool aligned = Model::zero_terms == ZeroTerms::aligned;
        bool ignored = !x.significand && !(aligned && Model::product_exponent == ProductExponent::unnormalised);
        u16 power = (u16)((ignored ? none : (exponent + bias) * (1 << shift)) + (LEFT ? 0 : LIFT<Model>));
        e.rest = power | (x.nan ? HAS_NAN : x.inf ? HAS_INF : 0) << 16;
        Real magnitude;
        if constexpr (Format::MANTISSA > 24) {
            magnitude = bits_as<Real>((Word)(x.significand ? pattern & (Format::SIGN - 1) : 0));
        } else {
            magnitude = (Real)(i64)x.significand * two_to<Real>(x.low);
            if (Model::TILTED && (LEFT || !x.significand)) magnitude = bits_as<Real>((Word)(bits_as<Word>(magnitude) + 1));
        }
        e.value = x.negative ? -magnitude : magnitude;
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

    // Takes apart a part of one row (LEFT) or column, whose values lie at that place. Specials add up over the blocks of a chain.
    template <class Format, bool LEFT> FN void stage(int at, int place, int part, const Packed<Format::STORAGE, S::OF_PART>& operands, bool first) {
        u32 negative[S::WORDS] = {}, special = 0;
        int place_of_power = LEFT ? place : S::place(at, S::CHUNK_OF_POWERS);
#pragma unroll
        for (int k = 0; k < S::OF_PART; k++) {
            u64 pattern = operands.pattern(k);
            Element<Real> e;
            if constexpr (Format::STORAGE == 8) {
                e = codes[!LEFT][pattern].template element<Model>();
                e.negative = pattern >> 7;
                if (S::ONE_WORD && k % 4 == 0) negative[0] |= signs(operands.word[k / 4]) << k;
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

template <class Model> using Pattern = typename Model::Pattern;

// The results of one sum for all dot products of a thread.
template <class Model> struct Results {
    Pattern<Model> at[Shape<Model>::ROWS_OF_THREAD][Shape<Model>::COLUMNS_OF_THREAD];
};

// One thread's share of a tile. careful: by row, a bit a column: results that only evaluate() has right.
template <class Model> struct Share {
    using Real = typename Model::Real;
    using S = Shape<Model>;
    static constexpr int M = S::ROWS_OF_THREAD, N = S::COLUMNS_OF_THREAD;

    const Staged<Model>& staged;
    int row, column;
    const Results<Model>& c;
    u32 (&careful)[M];

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
        FN u32 below_zero(Real value) const {
            u32 high = Layout<Real>::high(value);
            return high << 1 || sizeof(Real) == 4 ? high >> 31 : 0;  // in single precision there is no -0
        }
        FN bool special(int i, int j) const { return (pattern(i, j) & Format::INF) == Format::INF; }
        FN Real value(int i, int j) const {
            if constexpr (Format::STORAGE == 64) return bits_as<Real>((typename Layout<Real>::Word)pattern(i, j));
            else if constexpr (Format::MANTISSA == 23 && !FLUSH) return (Real)bits_as<float>((u32)pattern(i, j));
            else return real<Real>(Format::number(pattern(i, j), FLUSH));
        }
        // Upper halves of two columns' power(), without fractions.
        FN u32 powers(int i, int j) const {
            u32 low = Layout<Real>::high(value(i, j)), high = Layout<Real>::high(value(i, j + 1));
#ifdef __CUDA_ARCH__
            return __byte_perm(low, high, 0x7632) & 0x7f807f80;
#else
            return (low >> 16 | high >> 16 << 16) & 0x7f807f80;
#endif
        }
        // The high word of 2^exponent as encoded, 0 of a zero; its fraction is to be ignored.
        FN u32 power(Real value) const {
            u32 leading = Layout<Real>::high(value) & ~0u >> 1;
            if (sizeof(Real) == 4) return leading;
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
#pragma unroll
            for (int i = 0; i < M && sizeof(Real) == 8; i++)
#pragma unroll
                for (int j = 0; j < N; j++)
                    if ((others.special(i, j) || ... || false)) careful[i] |= 1u << j;
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

    // Of each line, which products from FIRST on have a negative operand, zeros among them.
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

    // The high words of 2^largest exponent of the products, a pair of columns in a word, upper halves only. In single precision
    // the others' exponents are among them, for they have no bits below, and each is lifted.
    template <class Rules, int FIRST, int COUNT, class... Others> FN void largest_powers(u32 (&power)[M][N / 2], Others... others) const {
        constexpr int shift = Layout<Real>::EXPONENT_PLACE - 16, bias = Layout<Real>::BIAS;
        // Below every term, yet so high that the tilted zeros stay below the last bit kept.
        constexpr int lowest = sizeof(Real) == 4 ? -100 : -300;
        constexpr u32 least = ((larger(Rules::min_exponent, lowest) + bias) << shift) + LIFT<Model>, lift_both = LIFT<Model> * 0x10001u;
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N / 2; j++) {
                power[i][j] = least * 0x10001u;
                if constexpr (sizeof(Real) == 4) ((power[i][j] = add_max(others.powers(i, 2 * j), lift_both, power[i][j])), ...);
            }
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
                        power[i][j / 2] = add_max(high << (16 * (j % 2)), lift_both, power[i][j / 2]);
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

    // 2^x of the constant 1.5 * 2^x onto which terms are added, of a sum that is within its binade.
    static FN Real binade(Real s) { return Layout<Real>::make(Layout<Real>::high(s) & (~0u << Layout<Real>::EXPONENT_PLACE), 0); }

    template <class Rules> static FN Real with_term(Real a, Real b, Real s) {
        using Word = typename Layout<Real>::Word;
        if (Rules::alignment_rounding == AlignmentRounding::truncate) return fma_down(a, b, s);
        if (Model::TILTED) a = untilted(a), b = untilted(b);
        if (Rules::alignment_rounding == AlignmentRounding::floor) return fma_down(a, b, s);
        Real m = (Real)1.5 * binade(s);
        if (Rules::alignment_rounding == AlignmentRounding::nearest) return s + (fma_near(a, b, m) - m);
        Real down = fma_down(a, b, m), up = fma_up(a, b, m);
        return s + ((bits_as<Word>(down) & 1 ? down : up) - m);
    }

    // As with_term, for a term that is not tilted.
    template <class Rules> static FN Real with_other(Real value, Real s) {
        constexpr Real tilt = (Real)1 + (Real)1 / ((Real)(1ll << Layout<Real>::DIGITS));
        if (Rules::alignment_rounding == AlignmentRounding::truncate) return fma_down(value, tilt, s);
        return with_term<Rules>(value, (Real)1, s);
    }

    template <class Rules, int FIRST, int COUNT, class... Others> FN void aligned_sum(Results<Model>& d, Others... others) {
        constexpr int place = Layout<Real>::EXPONENT_PLACE, digits = Layout<Real>::DIGITS;
        constexpr bool truncate = Rules::alignment_rounding == AlignmentRounding::truncate;
        u32 power[M][N / 2];
        largest_powers<Rules, FIRST, COUNT>(power, others...);
        Negatives<FIRST, COUNT> negatives(*this);
        Real s[M][N];
#pragma unroll
        for (int i = 0; i < M; i++)
#pragma unroll
            for (int j = 0; j < N; j++) {
                u32 largest = j % 2 ? power[i][j / 2] & 0xffff0000u : power[i][j / 2] << 16;
                int n = truncate ? negatives.count(i, j) : 0;
                if (sizeof(Real) == 8) {
                    ((largest = max_of(largest, others.power(others.value(i, j)))), ...);
                    largest = (largest & ~0u << place) + ((u32)(digits - Rules::alignment_bits) << place) + (1u << (place - 1));
                }
                if (truncate) ((n += others.below_zero(others.value(i, j))), ...);
                s[i][j] = Layout<Real>::make(largest, n);
                ((s[i][j] = with_other<Rules>(others.value(i, j), s[i][j])), ...);
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
                Real total = fma_near(binade(s[i][j]), (Real)-1.5, s[i][j]);
                bool negative = total < 0;
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
