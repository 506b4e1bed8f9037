// One PTX instruction on every 32-bit operand of a range: compared with a model and with float64 values of its function.
// Defined above: Result (unsigned storage type), APPLY(y, x), the statement with its registers, and REFERENCE(x).
// With GIVEN, another program computes the results and those of the model, for operands from `first` on.
// The model is that of accprobe/function/model.py, or the conversion of accprobe/function/reference.py.

#ifdef GIVEN
#define ARRAYS , const Result* given, const Result* wanted, unsigned long long first
#define APPLY(y, x) y = given[(x) - first]
#define WANTED(x) wanted[(x) - first]
#else
#define ARRAYS
#define WANTED(x) 0
#endif

using i64 = long long;
using u32 = unsigned int;
using u64 = unsigned long long;

// infinity: -1 if the format has none.
struct Format {
    i64 is_float, is_signed, bits, sign_bit, ignored, mantissa, min_exponent, largest, infinity;
};

// overflow, infinite, nan: result words of too large values, infinities and NaN. keeps_nan: NaN has the operand's leading bits,
// shifted right by nan_shift.
struct Conversion {
    i64 rounding, overflow, infinite, nan, flushed, relu, flushed_operands, keeps_nan, nan_shift;
};

struct Scaling {
    i64 size, below;
    double limit, factor;
    i64 then;
    double value;
};

// first: the value of argument 0 if has_first. coefficients: the row of the first segment.
struct Table {
    i64 segment_bits, exact_square, unit, has_first, first, ignored, coefficients;
};

// specials: result words by class of input, -1 if a class has none.
struct Tables {
    i64 reduction, period, direction, dropped, quarters, lowest, above, flushed, count, exact_count, scaling_count;
    i64 specials[6], exact[32];
    Scaling scalings[2];
    Table tables[32];
};

struct Model {
    i64 kind, any_nan;
    Format operand, result;
    Conversion conversion;
    Tables tables;
};

// first: the lowest operand whose result differs from the model. at: the operand of the largest error.
struct Counts {
    u64 mismatches, first, digest, count, correct, against, at;
    double total, largest;
};

enum Kind { NONE, CONVERSION, TABLES, ARRAY };
enum Rounding { RNE, RZ, RD, RU, RNA };
enum Reduction { POWER, EXP2, LOG2, TURNS, OCTAVES };
enum Then { TIMES, PLUS, SQUARE };

constexpr i64 FRACTION = 23, BIAS = 127, HIDDEN = 1 << 23, MASK = HIDDEN - 1, INFINITE = 255 << 23, QUIET_NAN = 0x7fffffff;
constexpr i64 WIDEST_SHIFT = 40, LARGEST_POWER = 16, TURN = 0x3e22f983;
constexpr double ZERO = 0.0;

__device__ inline i64 clipped(i64 x, i64 low, i64 high) { return x < low ? low : x > high ? high : x; }

__device__ inline bool is_finite(double x) { return x - x == 0; }

__device__ inline double power_of_two(i64 exponent) { return __longlong_as_double((exponent + 1023) << 52); }

__device__ inline double size_of(double x) { return __longlong_as_double(__double_as_longlong(x) & ~(1ull << 63)); }

__device__ inline bool is_nan(const Format& f, u32 word) {
    return f.is_float && (word & (f.sign_bit - 1)) > (f.infinity >= 0 ? f.infinity : f.largest);
}

__device__ inline double value_of(const Format& f, u32 word) {
    if (!f.is_float) return f.is_signed ? (double)(int)word : (double)word;
    i64 size = (word & (f.sign_bit - 1)) >> f.ignored, infinity = f.infinity >= 0 ? f.infinity >> f.ignored : -1;
    if (size > (infinity >= 0 ? infinity : f.largest >> f.ignored)) return ZERO / ZERO;
    i64 biased = size >> f.mantissa, fraction = size & ((1ll << f.mantissa) - 1);
    i64 significand = biased ? fraction | 1ll << f.mantissa : fraction;
    double value = significand * power_of_two((biased ? biased - 1 : 0) + f.min_exponent - f.mantissa);
    if (size == infinity) value = 1 / ZERO;
    return word & f.sign_bit ? -value : value;
}

// The exponent of the format's numbers next to a size.
__device__ inline i64 exponent_of(const Format& f, double size) {
    i64 exponent = (__double_as_longlong(size) >> 52) - 1023;
    return exponent > f.min_exponent ? exponent : f.min_exponent;
}

__device__ inline i64 rounded(double size, bool negative, i64 rounding) {
    double below = floor(size), rest = size - below;
    i64 whole = (i64)below;
    bool up = rounding == RNE   ? rest > 0.5 || (rest == 0.5 && (whole & 1))
              : rounding == RNA ? rest >= 0.5
              : rounding == RD  ? rest > 0 && negative
              : rounding == RU  ? rest > 0 && !negative
                                : false;
    return whole + up;
}

__device__ inline i64 converted(const Conversion& c, const Format& f, double value) {
    bool negative = __double_as_longlong(value) < 0, nan = value != value;
    if (!f.is_float) {
        i64 lowest = f.is_signed ? -(1ll << (f.bits - 1)) : 0;
        if (nan) return c.nan;
        double low = (double)(lowest - 1), high = (double)(f.largest + 1);
        double bounded = value < low ? low : value > high ? high : value;
        i64 whole = rounded(size_of(bounded), bounded < 0, c.rounding);
        return clipped(bounded < 0 ? -whole : whole, lowest, f.largest) & ((1ll << f.bits) - 1);
    }
    if (nan) return c.nan;
    double size = size_of(value);
    bool infinite = !is_finite(value);
    if (infinite) size = 0;
    i64 exponent = exponent_of(f, size);
    i64 whole = rounded(size * power_of_two(f.mantissa - exponent), negative, c.rounding);
    i64 word = (((exponent - f.min_exponent) << f.mantissa) + whole) << f.ignored;
    if (c.flushed && word < 1ll << (f.mantissa + f.ignored)) word = 0;
    if (word > f.largest) word = c.overflow;
    if (infinite) word = c.infinite;
    if (c.relu && negative) return 0;
    return negative ? word | f.sign_bit : word;
}

__device__ inline i64 converted_operand(const Model& m, u32 x) {
    double value = value_of(m.operand, x);
    bool subnormal = m.operand.is_float && size_of(value) < power_of_two(m.operand.min_exponent);
    if (m.conversion.flushed_operands && subnormal) value = x >> 31 ? -ZERO : ZERO;
    double exact = REFERENCE(value);
    if (m.conversion.keeps_nan && exact != exact) return (i64)x >> m.conversion.nan_shift & ~((1ll << m.result.ignored) - 1);
    return converted(m.conversion, m.result, exact);
}

__device__ inline i64 shifted(i64 value, i64 left) {
    return value << clipped(left, 0, WIDEST_SHIFT) >> clipped(-left, 0, 63);
}

__device__ inline i64 squared(i64 x, bool exact) {
    if (exact) return x * x >> 19;
    u32 total = 0, of = (u32)x;
#pragma unroll
    for (int bit = 0; bit < 17; bit++) total += (of >> bit & 1) * (of >> (18 - bit));
    return total >> 1;
}

__device__ inline i64 table_value(const Table& t, const i64* coefficients, i64 argument) {
    if (t.has_first && argument == 0) return t.first;
    const i64* c = coefficients + 3 * (t.coefficients + (argument >> t.segment_bits));
    i64 x = argument & ((1ll << t.segment_bits) - 1);
    return c[0] + c[1] * x + c[2] * squared(x << (17 - t.segment_bits), t.exact_square);
}

__device__ inline i64 assembled(i64 sign, i64 value, i64 exponent) {
    i64 length = 64 - __clzll(value), biased = value > 0 ? length + exponent + BIAS - 1 : 0;
    i64 word = biased << FRACTION | (shifted(value, 24 - length) & MASK);
    word = biased <= 0 ? 0 : biased >= 255 ? INFINITE : word;
    return word | sign << 31;
}

// The class of an input word that no table has: as in special_classes; -1 if there is none.
__device__ inline int special_class(i64 word, bool flushed) {
    i64 size = word & 0x7fffffff, negative = word >> 31;
    if (size > INFINITE) return 5;
    if (size == INFINITE) return negative ? 4 : 3;
    if (size <= (flushed ? MASK : 0)) return negative ? 2 : 1;
    return negative ? 0 : -1;
}

__device__ inline i64 turns_phase(i64 word) {
    i64 biased = word >> FRACTION & 255, product = ((word & MASK) | HIDDEN) * ((TURN & MASK) | HIDDEN), carry = product >> 47;
    i64 exponent = biased + (TURN >> FRACTION) - 2 * BIAS - FRACTION + carry, left = exponent + FRACTION + 2;
    bool normal = biased > 0 && exponent + FRACTION + BIAS > 0;
    return normal && left < WIDEST_SHIFT ? shifted(product >> (FRACTION + carry), left) : 0;
}

__device__ inline i64 reduced(const Tables& m, const i64* coefficients, i64 word) {
    i64 biased = word >> FRACTION & 255, fraction = word & MASK, sign = word >> 31;
    const Table& only = m.tables[0];
    if (m.reduction == POWER) {
        i64 exponent = biased - BIAS, rest = exponent & (m.period - 1);
        const Table& table = m.tables[rest];
        i64 power = m.direction * (exponent >> (m.period - 1));  // the period is 1 or 2
        return assembled(sign, table_value(table, coefficients, fraction), power + table.unit);
    }
    if (m.reduction == EXP2) {
        i64 fixed = biased ? shifted(fraction | HIDDEN, clipped(biased - BIAS, -WIDEST_SHIFT, LARGEST_POWER)) : 0;
        if (sign) fixed = -fixed - ((fixed & MASK) != 0);
        return assembled(0, table_value(only, coefficients, fixed & MASK), (fixed >> FRACTION) + only.unit);
    }
    if (m.reduction == LOG2) {
        i64 unit = only.unit + m.dropped;
        i64 total = (biased - BIAS) * (1ll << -unit) + (table_value(only, coefficients, fraction) >> m.dropped);
        return assembled(total < 0, total < 0 ? ~total : total, unit);
    }
    if (m.reduction == TURNS) {
        i64 phase = turns_phase(word), quarter = (phase >> FRACTION) + m.quarters, position = phase & MASK;
        i64 argument = quarter & 1 ? MASK ^ position : position;
        i64 of = (quarter >> 1 & 1) ^ (m.quarters ? 0 : sign);
        return assembled(of, table_value(only, coefficients, argument), only.unit);
    }
    i64 number = biased - BIAS - m.lowest;
    if (number < 0) return word;
    if (number >= m.count) return m.above | sign << 31;
    const Table& table = m.tables[number];
    return assembled(sign, table_value(table, coefficients, fraction >> table.ignored), table.unit);
}

__device__ inline i64 table_word(const Tables& m, const i64* coefficients, i64 word) {
    for (i64 i = 0; i < m.exact_count; i++)
        if (m.exact[2 * i] == word) return m.exact[2 * i + 1];
    int special = special_class(word, m.flushed);
    if (special >= 0 && m.specials[special] >= 0) return m.specials[special];
    return reduced(m, coefficients, word) & 0xffffffff;
}

__device__ inline i64 word_of(float x) { return x != x ? QUIET_NAN : (i64)__float_as_uint(x); }

__device__ inline i64 scaled_word(const Tables& m, const i64* coefficients, u32 word) {
    float x = __uint_as_float(word);
    bool applies[2];
    i64 given = word;
    for (int i = 0; i < m.scaling_count; i++) {
        const Scaling& s = m.scalings[i];
        float size = s.size ? __uint_as_float(word & 0x7fffffff) : x;
        applies[i] = s.below ? size < (float)s.limit : size > (float)s.limit;
        if (applies[i]) given = word_of(x * (float)s.factor);
    }
    i64 found = table_word(m, coefficients, given);
    for (int i = 0; i < m.scaling_count; i++)
        if (applies[i]) {
            const Scaling& s = m.scalings[i];
            float y = __uint_as_float((u32)found);
            found = word_of(s.then == SQUARE ? y * y : s.then == TIMES ? y * (float)s.value : y + (float)s.value);
        }
    return found;
}

// splitmix64. Source: Steele et al., OOPSLA 2014.
__device__ inline u64 mixed(u64 x) {
    x += 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// Each thread has `each` consecutive operands from `begin` on, and the one before them as the neighbour of its first.
extern "C" __global__ void verify(const Model* model, const i64* coefficients, Counts* counts, u64 begin, u64 each ARRAYS) {
    const Model& m = *model;
    u64 thread = blockIdx.x * (u64)blockDim.x + threadIdx.x, start = begin + thread * each, before = start ? start - 1 : 0;
    Counts n{};
    n.first = ~0ull;
    double last_value = ZERO / ZERO, last_exact = last_value;
    double smallest = power_of_two(m.result.min_exponent), largest = value_of(m.result, (u32)m.result.largest);
    for (u64 i = before; i < start + each; i++) {
        u32 x = (u32)i;
        Result y;
        APPLY(y, x);
        double exact = last_exact, value = last_value;
        if (m.result.is_float) {
            exact = REFERENCE(value_of(m.operand, x));
            value = value_of(m.result, y);
            n.against += (value - last_value) * (exact > last_exact ? 1 : exact < last_exact ? -1 : 0) < 0;
            last_value = value, last_exact = exact;
        }
        if (i < start) continue;
        n.digest += mixed(i << 32 | y);
        if (m.kind != NONE) {
            i64 expected = m.kind == ARRAY    ? (i64)WANTED(x)
                           : m.kind == TABLES ? scaled_word(m.tables, coefficients, x)
                                              : converted_operand(m, x);
            bool same = (Result)expected == y || (m.any_nan && is_nan(m.result, y) && is_nan(m.result, (Result)expected));
            if (!same && n.mismatches == 0) n.first = i;
            n.mismatches += !same;
        }
        bool normal = is_finite(value) && size_of(value) >= smallest && size_of(exact) >= smallest && size_of(exact) <= largest;
        if (m.result.is_float && normal) {
            double ulps = size_of(value - exact) * power_of_two(m.result.mantissa - exponent_of(m.result, size_of(exact)));
            n.count++, n.correct += ulps <= 0.5, n.total += ulps;
            if (ulps > n.largest) n.largest = ulps, n.at = i;
        }
    }
    counts[thread] = n;
}
