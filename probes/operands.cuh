// Random operands of a matrix product, drawn where they are needed: every element from a counter (Philox) that follows from its
// place, so that any of them can be drawn again. A line is a row of A or a column of B; a slot is a place along K, which all lines share.
//
// accprobe/operands/drawing.py writes the types A, B and C below this file. The same text compiles for the host.

#ifdef __CUDACC__
#define DRAWN __device__ __forceinline__
#else
#include <cmath>
#define DRAWN inline
#endif

using u32 = unsigned int;
using u64 = unsigned long long;

struct Random {
    u32 word[4];

    DRAWN u64 bits() const { return (u64)word[1] << 32 | word[0]; }
    // Any integer from low to high, by one of the words.
    DRAWN int between(int low, int high, u32 x) const { return low + (int)((u64)x * (u32)(high - low + 1) >> 32); }
};

// Philox4x32-10: J. K. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
DRAWN Random philox(u64 key, u32 stream, u32 x, u32 y, u32 z) {
    u32 counter[4] = {x, y, z, stream}, k0 = (u32)key, k1 = (u32)(key >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        u64 p = (u64)0xD2511F53u * counter[0], q = (u64)0xCD9E8D57u * counter[2];
        u32 a = (u32)(q >> 32) ^ counter[1] ^ k0, c = (u32)(p >> 32) ^ counter[3] ^ k1;
        counter[0] = a, counter[1] = (u32)q, counter[2] = c, counter[3] = (u32)p;
        k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
    }
    return {{counter[0], counter[1], counter[2], counter[3]}};
}

// The exponent of a standard-normal number (Box and Muller), by two words.
DRAWN int normal_exponent(u32 x, u32 y) {
    float radius = sqrtf(-2.0f * logf((x + 1.0f) * 2.3283064e-10f)), value = fabsf(radius * cosf(y * 1.4629181e-9f));
    return value > 1e-30f ? (int)floorf(log2f(value)) : -100;
}

enum Way { UNIFORM, NORMAL, WIDE, CENTRED, ENDS };

// How operands are drawn. CENTRED: a line of A has an exponent between a_low and a_high, a line of B between b_low and b_high. Each
// slot moves A's up and B's down by at most `slots`, each element by at most `spread`. C's exponent is at most c_spread away from
// the sum of the two lines'. zeros, specials, c_zeros, c_specials, c_small: how many of 256 elements become that (c_small: subnormal
// or zero). cancelling: pairs of slots have one product but for its sign, and but for one in 64 the same significand.
// ENDS: the smallest and largest integers, 0, 1 and all ones. c_edge: for integers, C is close to 0 or to 2^31. For floats, 1: C is
// within a few units of the largest number, 2: of the smallest normal one. one_sign: all products of two lines have one, and C has
// it too. fours: each four slots of a line have the same number.
struct Recipe {
    int way, a_low, a_high, b_low, b_high, slots, spread, c_spread;
    int zeros, specials, c_zeros, c_specials, c_small, cancelling, c_edge, one_sign, fours;
};

template <int EXPONENT_BITS, int MANTISSA_BITS, int BIAS, int LOW_BITS, int BITS, u64 LARGEST, bool INFINITE, bool NANS> struct Drawn {
    static constexpr bool FLOAT = true;
    static constexpr int FRACTION = MANTISSA_BITS + LOW_BITS, MIN = 1 - BIAS, MAX = (int)(LARGEST >> FRACTION) - BIAS;
    static constexpr u64 SIGN = 1ull << (EXPONENT_BITS + FRACTION), ALL = BITS == 64 ? ~0ull : (1ull << (BITS % 64)) - 1;

    static DRAWN u64 finite(u64 random, int exponent) {
        int biased = exponent + BIAS, most = MAX + BIAS;
        biased = biased < 0 ? 0 : biased > most ? most : biased;
        u64 pattern = (random & (SIGN | ((1ull << FRACTION) - 1))) | (u64)biased << FRACTION;
        return (pattern & (SIGN - 1)) > (LARGEST | ((1ull << LOW_BITS) - 1)) ? pattern ^ 1ull << LOW_BITS : pattern;
    }

    // Within a few units of the largest number (1), or of the smallest normal one (2).
    static DRAWN u64 edge(u64 random, int which) {
        u64 some = random >> 8 & 3, pattern = which == 1 ? LARGEST - (some << LOW_BITS) : (1ull << FRACTION) + (some << LOW_BITS);
        if (which == 2 && (random >> 10 & 1)) pattern -= 4ull << LOW_BITS;
        return pattern | (random & SIGN);
    }

    // A zero, the largest or smallest number, an infinity or a NaN, as the format has them.
    static DRAWN u64 special(u64 random, u32 choice) {
        u64 infinity = (u64)((1 << EXPONENT_BITS) - 1) << FRACTION, pattern;
        if (INFINITE && choice % 8 < 5) {
            u64 nan = choice % 8 == 2 ? 1 : choice % 8 == 3 ? 1ull << LOW_BITS : choice % 8 == 4 ? 1ull << (FRACTION - 1) : 0;
            pattern = infinity | nan;
        } else if (NANS && !INFINITE && choice % 8 < 2) {
            pattern = LARGEST + 1;
        } else {
            pattern = choice % 8 == 5 ? 0 : choice % 8 == 6 ? LARGEST : 1ull << LOW_BITS;
        }
        return pattern | (random & SIGN);
    }
};

template <int BITS, bool SIGNED> struct DrawnInteger {
    static constexpr bool FLOAT = false;
    static constexpr u64 ALL = (1ull << BITS) - 1;

    static DRAWN u64 end(u32 choice) {
        constexpr u64 largest = SIGNED ? ALL >> 1 : ALL;
        u64 ends[5] = {SIGNED ? largest + 1 : 0, largest, 0, 1, ALL};
        return ends[choice % 5];
    }
};

constexpr u32 LINES_OF_A = 1, LINES_OF_B = 2, SLOTS = 3, ELEMENTS_OF_A = 4, ELEMENTS_OF_B = 5, ADDENDS = 6;

// The sign of all numbers of a line where products have one sign.
DRAWN u64 sign_of_line(u64 key, u32 batch, bool left, u32 line) {
    return philox(key, left ? LINES_OF_A : LINES_OF_B, line, batch, 0).word[1] & 1;
}

DRAWN int centre(const Recipe& r, u64 key, u32 batch, bool left, u32 line) {
    Random random = philox(key, left ? LINES_OF_A : LINES_OF_B, line, batch, 0);
    return left ? random.between(r.a_low, r.a_high, random.word[0]) : random.between(r.b_low, r.b_high, random.word[0]);
}

// The pattern at slot k of a line; `products` slots in all.
template <class Format, bool LEFT> DRAWN u64 element(const Recipe& r, u64 key, u32 batch, u32 line, u32 k, u32 products) {
    bool twin = r.cancelling && k >= products / 2 && k < products / 2 * 2;
    u32 from = twin ? k - products / 2 : r.fours ? k / 4 : k;
    Random random = philox(key, LEFT ? ELEMENTS_OF_A : ELEMENTS_OF_B, line, batch, from);
    if constexpr (!Format::FLOAT) {
        return r.way == ENDS ? Format::end(random.word[0]) : random.bits() & Format::ALL;
    } else {
        if (r.way == UNIFORM) return random.bits() & Format::ALL;
        int exponent;
        if (r.way == NORMAL) exponent = normal_exponent(random.word[2], random.word[3]);
        else if (r.way == WIDE) exponent = random.between(Format::MIN - 1, Format::MAX, random.word[2]);
        else {
            Random slot = philox(key, SLOTS, from, batch, 0);
            int shift = slot.between(-r.slots, r.slots, slot.word[0]);
            exponent = centre(r, key, batch, LEFT, line) + (LEFT ? shift : -shift) + random.between(-r.spread, r.spread, random.word[2]);
        }
        u64 pattern = Format::finite(random.bits(), exponent);
        Random more = philox(key, LEFT ? ELEMENTS_OF_A : ELEMENTS_OF_B, line, batch, k + 0x10000);
        if (twin && LEFT) pattern ^= Format::SIGN | (u64)(more.word[3] % 64 == 0) << (Format::FRACTION - 1);
        if ((int)(more.word[0] & 255) < r.zeros) pattern &= Format::SIGN;
        if ((int)(more.word[0] >> 8 & 255) < r.specials) pattern = Format::special(random.bits(), more.word[1]);
        if (r.one_sign) pattern = (pattern & (Format::SIGN - 1)) | (sign_of_line(key, batch, LEFT, line) ? Format::SIGN : 0);
        return pattern;
    }
}

template <class Format> DRAWN u64 addend(const Recipe& r, u64 key, u32 batch, u32 row, u32 column, u32 products) {
    Random random = philox(key, ADDENDS, row, column, batch);
    if constexpr (!Format::FLOAT) {
        if (!r.c_edge) return random.bits() & Format::ALL;
        if ((int)(random.word[3] >> 8 & 255) < r.c_zeros) return 0;
        u64 room = ((u64)products << 15) >> random.word[2] % 12;
        return ((random.word[3] & 1 ? 1ull << 31 : 0) + random.bits() % (2 * room + 1) - room) & Format::ALL;
    } else {
        if (r.way == UNIFORM) return random.bits() & Format::ALL;
        if (r.c_edge) return Format::edge(random.bits(), r.c_edge);
        u32 x = random.word[3];
        int exponent;
        if (r.way == NORMAL) exponent = normal_exponent(random.word[2], random.word[3]);
        else if (r.way == WIDE) exponent = random.between(Format::MIN - 1, Format::MAX, random.word[2]);
        else
            exponent = centre(r, key, batch, true, row) + centre(r, key, batch, false, column) +
                       random.between(-r.c_spread, r.c_spread, random.word[2]);
        u64 pattern = Format::finite(random.bits(), exponent);
        if ((int)(x & 255) < r.c_zeros) pattern &= Format::SIGN;
        if ((int)(x >> 8 & 255) < r.c_small) pattern &= Format::SIGN | (x >> 16 & 1 ? (1ull << Format::FRACTION) - 1 : 7);
        if ((int)(x >> 16 & 255) < r.c_specials) pattern = Format::special(random.bits(), x >> 24);
        if (r.one_sign) {
            u64 negative = sign_of_line(key, batch, true, row) ^ sign_of_line(key, batch, false, column);
            pattern = (pattern & (Format::SIGN - 1)) | (negative ? Format::SIGN : 0);
        }
        return pattern;
    }
}
