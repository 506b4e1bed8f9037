// Real numbers, float or double, that represent sums: directed rounding on the GPU and on the host, and conversion to results.

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

// The same of unsigned numbers.
FN u32 add_max_unsigned(u32 a, u32 b, u32 c) {
#ifdef __CUDA_ARCH__
    return __viaddmax_u16x2(a, b, c);
#else
    auto half = [](u32 x, u32 y, u32 z) { return (u32)larger((u16)(x + y), (u16)z); };
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

// A number of at most 24 bits as a real one, exactly; NaN as an infinity.
template <class Real> FN Real real(const Number& x) {
    Real magnitude = x.nan || x.inf ? two_to<Real>(Layout<Real>::BIAS + 1) : (Real)(int)x.significand * two_to<Real>(x.low);
    return x.negative ? -magnitude : magnitude;
}

template <class Format>
constexpr bool IS_HALF = Format::STORAGE == 16 && Format::MANTISSA == 10 && Format::CODES == 32 && Format::MIN_EXPONENT == -14;

FN float from_half(u32 pattern) {
#ifdef __CUDA_ARCH__
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"((u16)pattern));
    return value;
#else
    return real<float>(Float<5, 10, 15, 0, 16, Specials::IEEE>::number(pattern, false));
#endif
}

// The magnitude of x, which has this pattern.
template <class Real, class Format> FN Real magnitude_of(u64 pattern, const Number& x) {
    if constexpr (Format::CODES == 256 && Format::MIN_EXPONENT == -126 && Format::MANTISSA <= 23) {
        u32 single = ((u32)pattern & ~0u << Format::IGNORED) << (31 - Format::SIGN_PLACE) & ~0u >> 1;
        return x.significand ? (Real)bits_as<float>(single) : 0;
    } else {
        return (Real)(int)x.significand * two_to<Real>(x.low);
    }
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

#ifdef __CUDA_ARCH__
FN float cut_to_single(double x) { return __double2float_rz(x); }
#else
inline float cut_to_single(double x) {
    volatile double value = x;
    std::fesetround(FE_TOWARDZERO);
    volatile float cut = (float)value;
    std::fesetround(FE_TONEAREST);
    return cut;
}
#endif

// True if encoding equals the conversion of a double to a float, except for the sign of underflow and for overflow.
template <class Rules>
constexpr bool IS_CONVERSION = Rules::Result::MANTISSA == 23 && Rules::Result::MIN_EXPONENT == -126 && Rules::result_bits == 23 &&
                               Rules::result_rounding == ResultRounding::RZ && Rules::subnormal_results == SubnormalResults::kept &&
                               Rules::zero_sign == ZeroSign::positive;

template <class Rules> FN u32 converted(double value) {
    u32 pattern = bits_as<u32>(cut_to_single(value)), high = Layout<double>::high(value);
    if (Rules::underflow_sign == UnderflowSign::positive && pattern == 1u << 31) pattern = 0;
    if (Rules::overflow == Overflow::infinity && (high & ~0u >> 1) >= (1023u + 128) << 20) pattern = (high & 1u << 31) | 0x7f800000;
    return pattern;
}

// Adds a product with sticky truncation to a sum s in units of two last bits. Floor and ceiling of its half add up to an even number
// if it is exact, otherwise to the odd number between. The sum is twice the actual one.
template <class Rules> constexpr bool IS_TWICE = Rules::alignment_rounding == AlignmentRounding::sticky;
template <class Real> FN Real sticky_fma(Real a, Real b, Real s) { return fma_up(a, b, fma_down(a, b, s)); }

// encode() of a real number, not NaN, not infinite. `negative`: the sign, also of a zero.
template <class Rules, class Real> FN u64 encode_real(Real value, bool negative) {
    using Result = typename Rules::Result;
    using Word = typename Layout<Real>::Word;
    constexpr int place = Layout<Real>::EXPONENT_PLACE, digits = Layout<Real>::DIGITS;
    if constexpr (IS_CONVERSION<Rules>) return converted<Rules>(value);
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
