// Evaluates a model, one dot product at a time, on bit patterns in integers: every rule of a model, no floating-point unit.
//
// accprobe/evaluate/cuda/source.py writes the model below this file, as types: the formats A, B and C, an arithmetic for each kind of sum,
// and Root, the tree of sums. Products are numbered in the order in which the tree has them. The same text compiles for the host.

#ifdef __CUDACC__
#define FN __device__ __forceinline__
#define COLD __device__ __noinline__
#else
#include <cfenv>
#include <cmath>
#include <cstring>
#define FN inline
#define COLD inline
#define __constant__ static
#endif

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

enum class Specials { NONE, NAN_ONLY, IEEE };

constexpr int NOWHERE = -30000;  // the exponent of a term that takes no part in the alignment, and of no floor
constexpr int EXACT = 30000;     // as alignment bits: all bits are kept

constexpr FN int larger(int x, int y) { return x > y ? x : y; }

FN int bit_length(u64 x) {
#ifdef __CUDA_ARCH__
    return 64 - __clzll((i64)x);
#else
    return x ? 64 - __builtin_clzll(x) : 0;
#endif
}

FN int bits_set(u32 x) {
#ifdef __CUDA_ARCH__
    return __popc(x);
#else
    return __builtin_popcount(x);
#endif
}

// A decoded number: (-1)^negative * significand * 2^low where it is neither NaN nor infinite. `exponent` is the one encoded,
// which subnormals and zeros share with the smallest normal numbers.
struct Number {
    bool negative, nan, inf;
    u64 significand;
    int low, exponent;

    FN bool zero() const { return !significand && !nan && !inf; }
    FN int leading() const { return low + bit_length(significand) - 1; }
};

template <int STORAGE> struct WordOf { using Type = u32; };
template <> struct WordOf<64> { using Type = u64; };

template <int EXPONENT_BITS, int MANTISSA_BITS, int BIAS, int IGNORED_LOW_BITS, int STORAGE_BITS, Specials SPECIALS> struct Float {
    static constexpr bool INTEGER = false;
    static constexpr int STORAGE = STORAGE_BITS, MANTISSA = MANTISSA_BITS, IGNORED = IGNORED_LOW_BITS, MIN_EXPONENT = 1 - BIAS, CODES = 1 << EXPONENT_BITS;
    static constexpr int MAX_EXPONENT = CODES - 1 - BIAS - (SPECIALS == Specials::IEEE);
    static constexpr int SIGN_PLACE = IGNORED_LOW_BITS ? STORAGE_BITS - 1 : EXPONENT_BITS + MANTISSA_BITS;
    static constexpr u64 SIGN = 1ull << SIGN_PLACE;
    static constexpr u64 INF = (u64)(CODES - 1) << (MANTISSA_BITS + IGNORED_LOW_BITS);

    static FN Number number(u64 bits, bool flush) {
        auto pattern = (typename WordOf<STORAGE_BITS>::Type)bits;
        auto fraction = pattern >> IGNORED_LOW_BITS & (((decltype(pattern))1 << MANTISSA_BITS) - 1);
        int biased = (int)(pattern >> (IGNORED_LOW_BITS + MANTISSA_BITS)) & (CODES - 1);
        bool top = biased == CODES - 1;
        Number x;
        x.negative = pattern >> SIGN_PLACE & 1;
        x.nan = top && (SPECIALS == Specials::IEEE ? fraction != 0
                                                   : SPECIALS == Specials::NAN_ONLY && fraction + 1 == (decltype(pattern))1 << MANTISSA_BITS);
        x.inf = top && SPECIALS == Specials::IEEE && fraction == 0;
        x.exponent = larger(biased, 1) - BIAS;
        x.low = x.exponent - MANTISSA_BITS;
        x.significand = x.nan || x.inf || (flush && !biased) ? 0 : fraction | (decltype(pattern))(biased != 0) << MANTISSA_BITS;
        return x;
    }

    // True for a subnormal, flushed or not, or another nonzero number.
    static FN bool any(u64 pattern) { return (pattern & (SIGN - 1)) >> IGNORED_LOW_BITS; }
};

template <int BITS, bool SIGNED, int STORAGE_BITS> struct Integer {
    static constexpr bool INTEGER = true;
    static constexpr int STORAGE = STORAGE_BITS, MANTISSA = BITS;
    static constexpr i64 LARGEST = (1ll << (BITS - SIGNED)) - 1;

    static FN i64 value(u64 pattern) {
        i64 whole = pattern & ((1ull << BITS) - 1);
        return SIGNED ? whole - ((whole >> (BITS - 1)) << BITS) : whole;
    }
};

// Effect of NaN and infinite terms on a sum, and a flag for sums whose terms are all negative.
struct Outcome {
    bool nan = false, positive = false, negative = false, all_negative = true;

    FN void add(bool term_negative, bool term_nan, bool term_inf) {
        nan |= term_nan;
        (term_negative ? negative : positive) |= term_inf;
        all_negative &= term_negative;
    }
    FN void add(const Number& x) { add(x.negative, x.nan, x.inf); }
    FN void add_product(const Number& x, const Number& y) {
        bool invalid = (x.inf && y.zero()) || (y.inf && x.zero());
        add(x.negative != y.negative, x.nan || y.nan || invalid, (x.inf || y.inf) && !invalid);
    }
    FN bool special() const { return nan || positive || negative; }
};

// The pattern of (-1)^negative * magnitude * 2^low, rounded once. magnitude < 2^61; where bits below it were dropped, its last one
// is a sticky one and lies below the rounding position.
template <class Rules> FN u64 encode(bool negative, u64 magnitude, int low) {
    using Result = typename Rules::Result;
    constexpr int bits = Rules::result_bits, step = Result::MANTISSA - bits;
    int base = larger(low + bit_length(magnitude) - 1, Result::MIN_EXPONENT);
    int drop = base - bits - low;
    u64 kept = drop > 62 ? 0 : drop >= 0 ? magnitude >> drop : drop < -62 ? 0 : magnitude << -drop;
    u64 rest = drop > 62 ? magnitude : drop > 0 ? magnitude - (kept << drop) : 0;
    u64 half = drop > 0 && drop <= 62 ? 1ull << (drop - 1) : ~0ull;
    if (Rules::result_rounding == ResultRounding::RU) kept += rest && !negative;
    if (Rules::result_rounding == ResultRounding::RD) kept += rest && negative;
    if (Rules::result_rounding == ResultRounding::RNE) kept += rest > half || (rest == half && (kept & 1));
    if (Rules::subnormal_results == SubnormalResults::flushed && kept < 1ull << bits) kept = 0;
    u64 pattern = 0;
    if (magnitude && kept) {
        pattern = ((u64)(base - Result::MIN_EXPONENT) << Result::MANTISSA) + (kept << step);
        if (base > Result::MAX_EXPONENT || pattern >= Result::INF)
            pattern = Rules::overflow == Overflow::largest ? (Result::INF - 1) >> step << step : Result::INF;
    }
    if (Rules::underflow_sign == UnderflowSign::positive && !pattern) negative = false;
    return negative ? pattern | Result::SIGN : pattern;
}

// An exact sum of numbers of any exponents from LOW up, as a two's complement integer in words of 32 bits.
template <int LOW, int HIGH> struct Wide {
    static constexpr int WORDS = (HIGH - LOW) / 32 + 4;
    u32 word[WORDS] = {};

    COLD void add(bool negative, u64 magnitude, int low) {
        if (!magnitude) return;
        int place = low - LOW, shift = place % 32;
        u32 part[3] = {(u32)(magnitude << shift), (u32)(shift ? magnitude >> (32 - shift) : magnitude >> 32),
                       shift ? (u32)(magnitude >> 32 >> (32 - shift)) : 0};
        u64 carry = negative;
#pragma unroll 1
        for (int i = 0; i < WORDS; i++) {
            int at = i - place / 32;
            u32 x = at >= 0 && at < 3 ? part[at] : 0;
            carry += (u64)word[i] + (negative ? ~x : x);
            word[i] = (u32)carry;
            carry >>= 32;
        }
    }

    FN void add_product(bool negative, u64 x, u64 y, int low) {
        constexpr u64 mask = (1 << 27) - 1;  // the lower part of at most 53 bits
        add(negative, (x & mask) * (y & mask), low);
        add(negative, (x & mask) * (y >> 27), low + 27);
        add(negative, (x >> 27) * (y & mask), low + 27);
        add(negative, (x >> 27) * (y >> 27), low + 54);
    }

    // The magnitude's highest 60 bits at least, the last one sticky; the words become the magnitude.
    COLD u64 top(bool& negative, int& low) {
        negative = word[WORDS - 1] >> 31;
        u64 carry = negative;
#pragma unroll 1
        for (int i = 0; negative && i < WORDS; i++) {
            carry += (u32)~word[i];
            word[i] = (u32)carry;
            carry >>= 32;
        }
        int high = WORDS - 1;
        while (high > 1 && !word[high]) high--;
        u32 lower = high > 1 ? word[high - 2] : 0;
        u64 magnitude = (u64)word[high] << 32 | word[high - 1];
        int room = 60 - bit_length(magnitude);
        bool sticky = false;
#pragma unroll 1
        for (int i = 0; i < high - 2; i++) sticky |= word[i] != 0;
        low = LOW + 32 * (high - 1);
        if (room > 0) {
            room = room < 28 ? room : 28;
            magnitude = magnitude << room | lower >> (32 - room);
            sticky |= (u32)(lower << room) != 0;
        } else {
            sticky |= lower != 0 || (magnitude & ((1ull << -room) - 1));
            magnitude >>= -room;
        }
        low -= room;
        return magnitude | sticky;
    }
};

// Operands of one dot product, in the order of the tree.
struct Dot {
    const void* a;
    const void* b;
    const u16* k;  // where product i lies
    u64 c;

    template <class Format> static FN u64 pattern(const void* operands, int k) {
        if (Format::STORAGE == 8) return ((const u8*)operands)[k];
        if (Format::STORAGE == 16) return ((const u16*)operands)[k];
        if (Format::STORAGE == 32) return ((const u32*)operands)[k];
        return ((const u64*)operands)[k];
    }
};

// A term that is no product: C, or the result of another sum.
struct Term {
    u64 pattern;
    Number number;
};

// One fused sum: COUNT products from FIRST on, then C if ADDEND, then the results of other sums.
template <class Rules, int FIRST, int COUNT, bool ADDEND, class... Children> struct Sum {
    using Arithmetic = Rules;
    static constexpr int OTHERS = sizeof...(Children) + ADDEND, TERMS = COUNT + OTHERS;
    static constexpr bool ALONE = !sizeof...(Children);

    // Model: has the formats A, B and C.
    template <class Model> static FN u64 evaluate(const Dot& dot) {
        if constexpr (Rules::INTEGER) {
            i64 total = 0;
            for (int i = FIRST; i < FIRST + COUNT; i++)
                total += multiplied<Model>(Model::A::value(Dot::pattern<typename Model::A>(dot.a, dot.k[i])),
                                           Model::B::value(Dot::pattern<typename Model::B>(dot.b, dot.k[i])));
            if (ADDEND) total += Model::C::value(dot.c);
            ((total += Children::Arithmetic::Result::value(Children::template evaluate<Model>(dot))), ...);
            return wrap(total);
        } else {
            Term others[OTHERS + 1];
            if (ADDEND) others[0] = {dot.c, Model::C::number(dot.c, Model::subnormal_addend == SubnormalAddend::flushed)};
            int n = ADDEND;
            ((others[n].pattern = Children::template evaluate<Model>(dot),
              others[n].number = Children::Arithmetic::Result::number(others[n].pattern, false), n++), ...);
            Outcome outcome;
            for (int i = 0; i < OTHERS; i++) outcome.add(others[i].number);
            u64 pattern = Rules::alignment_bits == EXACT ? exact<Model>(dot, others, outcome) : aligned<Model>(dot, others, outcome);
            if (!outcome.special()) return pattern;
            if (outcome.nan || (outcome.positive && outcome.negative))
                return Rules::nan_payload == NanPayload::dropped ? Rules::nan : payload<Model>(dot, others);
            return Rules::Result::INF | (outcome.negative ? Rules::Result::SIGN : 0);
        }
    }

    template <class Model> static FN i64 multiplied(i64 x, i64 y) { return Model::XOR ? x ^ y : x * y; }

    static FN u64 wrap(i64 total) {
        using Result = typename Rules::Result;
        if (Rules::overflow == Overflow::saturate && total > Result::LARGEST) total = Result::LARGEST;
        if (Rules::overflow == Overflow::saturate && total < -Result::LARGEST - 1) total = -Result::LARGEST - 1;
        return (u64)total & ((1ull << Result::STORAGE) - 1);
    }

    template <class Model> static FN void operands(const Dot& dot, int i, Number& x, Number& y) {
        constexpr bool flushed = Model::subnormal_operands == SubnormalOperands::flushed;
        x = Model::A::number(Dot::pattern<typename Model::A>(dot.a, dot.k[i]), flushed);
        y = Model::B::number(Dot::pattern<typename Model::B>(dot.b, dot.k[i]), flushed);
    }

    static FN int product_exponent(const Number& x, const Number& y) {
        constexpr bool unnormalised = Rules::product_exponent == ProductExponent::unnormalised;
        if (Rules::zero_terms == ZeroTerms::aligned && unnormalised) return x.exponent + y.exponent;
        if (!x.significand || !y.significand) return NOWHERE;
        if (unnormalised) return x.exponent + y.exponent;
        if (Rules::product_exponent == ProductExponent::normalised_operands) return x.leading() + y.leading();
        return x.low + y.low + bit_length(x.significand * y.significand) - 1;
    }

    // magnitude * 2^shift, made an integer as alignment_rounding says.
    static FN i64 cut(bool negative, u64 magnitude, int shift) {
        if (!magnitude) return 0;
        u64 whole = magnitude;
        if (shift >= 0) {
            whole <<= shift;
        } else {
            whole = shift < -63 ? 0 : magnitude >> -shift;
            u64 rest = shift < -63 ? magnitude : magnitude & ((1ull << -shift) - 1);
            u64 half = shift < -63 ? ~0ull : 1ull << (-shift - 1);
            if (Rules::alignment_rounding == AlignmentRounding::floor) whole += rest && negative;
            if (Rules::alignment_rounding == AlignmentRounding::sticky) whole |= rest != 0;
            if (Rules::alignment_rounding == AlignmentRounding::nearest) whole += rest > half || (rest == half && (whole & 1));
        }
        return negative ? -(i64)whole : (i64)whole;
    }

    template <class Model> static FN u64 aligned(const Dot& dot, const Term* others, Outcome& outcome) {
        int largest = Rules::min_exponent;
        Number x, y;
        for (int i = 0; i < OTHERS; i++)
            if (others[i].number.significand) largest = larger(largest, others[i].number.exponent);
        for (int i = FIRST; i < FIRST + COUNT; i++) {
            operands<Model>(dot, i, x, y);
            outcome.add_product(x, y);
            largest = larger(largest, product_exponent(x, y));
        }
        int last = largest - Rules::alignment_bits;
        i64 total = 0;
        for (int i = 0; i < OTHERS; i++) {
            const Number& z = others[i].number;
            total += cut(z.negative, z.significand, z.low - last);
        }
        for (int i = FIRST; i < FIRST + COUNT; i++) {
            operands<Model>(dot, i, x, y);
            total += cut(x.negative != y.negative, x.significand * y.significand, x.low + y.low - last);
        }
        if (!total) return Rules::zero_sign == ZeroSign::ieee && outcome.all_negative ? Rules::Result::SIGN : 0;
        return encode<Rules>(total < 0, total < 0 ? -total : total, last);
    }

    template <class Model> static COLD u64 exact(const Dot& dot, const Term* others, Outcome& outcome) {
        using A = typename Model::A;
        using B = typename Model::B;
        constexpr int low = A::MIN_EXPONENT - A::MANTISSA + B::MIN_EXPONENT - B::MANTISSA;
        constexpr int high = larger(A::MAX_EXPONENT + B::MAX_EXPONENT, Model::OTHERS_HIGH) + 10;
        Wide<(low < Model::OTHERS_LOW ? low : Model::OTHERS_LOW), high> sum;
        for (int i = 0; i < OTHERS; i++) sum.add(others[i].number.negative, others[i].number.significand, others[i].number.low);
        Number x, y;
        for (int i = FIRST; i < FIRST + COUNT; i++) {
            operands<Model>(dot, i, x, y);
            outcome.add_product(x, y);
            sum.add_product(x.negative != y.negative, x.significand, y.significand, x.low + y.low);
        }
        bool negative;
        int last;
        u64 magnitude = sum.top(negative, last);
        if (!magnitude) return Rules::zero_sign == ZeroSign::ieee && outcome.all_negative ? Rules::Result::SIGN : 0;
        return encode<Rules>(negative, magnitude, last);
    }

    // The first NaN among the operands, made quiet, in the order of nan_payload: 231 is "b c a".
    template <class Model> static FN u64 payload(const Dot& dot, const Term* others) {
        constexpr u64 quiet = 1ull << (Rules::Result::MANTISSA - 1);
        for (int place = 100; place; place /= 10) {
            int letter = (int)Rules::nan_payload / place % 10;
            if (letter == 3)
                for (int i = 0; i < OTHERS; i++)
                    if (others[i].number.nan) return others[i].pattern | quiet;
            for (int i = FIRST; i < FIRST + COUNT && letter != 3; i++) {
                u64 pattern = Dot::pattern<typename Model::A>(letter == 1 ? dot.a : dot.b, dot.k[i]);
                if (Model::A::number(pattern, false).nan) return pattern | quiet;
            }
        }
        return Rules::nan;
    }
};
