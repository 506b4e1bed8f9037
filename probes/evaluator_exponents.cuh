// The largest exponents of products from matrix units. Each operand is replaced by B^exponent in bf16, with B = 2^BASE. The sum of
// their products is between the largest product and B times that, for any order and truncation of the unit.
//
// mma.sync m16n8 gives lane l rows l / 4 and l / 4 + 8, columns l % 4 * 2 and the next. Its rows are columns of the tile, eight of a
// lane in four pairs; its columns are rows of the tile, likewise.

// The powers of lines (rows of A, LEFT, or columns of B) in the order in which lanes take them, 16 bytes each at once.
template <class Model, bool LEFT, bool ANY = Model::BASE != 0> struct PowersOfBase {
    using S = Shape<Model>;
    static constexpr int OF_WARP = LEFT ? 32 : 64, WARPS = (LEFT ? S::ROWS : S::COLUMNS) / OF_WARP, TAKEN = OF_WARP / 16;
    u16 power[Model::OF_SUM / 16][WARPS][TAKEN][32][8];

    FN u16& at(int line, int k) {
        int x = line % 8, of_lane = line % OF_WARP / 8, pair = x / 2, high = k % 16 / 8;
        int lane = (LEFT ? 2 * of_lane + x % 2 : of_lane) * 4 + k % 8 / 2;
        int word = LEFT ? pair % 2 * 2 + high : x % 2 + 2 * high;
        return power[k / 16][line / OF_WARP][LEFT ? pair / 2 : pair][lane][2 * word + k % 2];
    }
};

template <class Model, bool LEFT> struct PowersOfBase<Model, LEFT, false> {};

// rest: of an Element.
template <class Model, bool LEFT> FN u16 power_of_base(u32 rest) {
    constexpr int bias = LEFT ? 0 : Layout<float>::BIAS, shift = Layout<float>::EXPONENT_PLACE - 16;
    int power = (short)(u16)(rest - (LEFT ? 0 : LIFT<Model>));
    if (LEFT ? power == (short)(u16)(-(1 << 14)) : !power) return 0;
    int exponent = ((power >> shift) - bias) * Model::BASE + (LEFT ? 0 : Model::SHIFT);
    return (u16)((exponent + Layout<float>::BIAS) << 7);
}

// 16 bytes of each lane. On the GPU a lane holds its own.
struct Fragment {
#ifdef __CUDA_ARCH__
    struct alignas(16) Words { u32 x[4]; } own;
    FN Fragment(const u16 (&lanes)[32][8], int lane) : own(*(const Words*)lanes[lane]) {}
#else
    const u16 (&lanes)[32][8];
    int lane;
    FN Fragment(const u16 (&lanes)[32][8], int lane) : lanes(lanes), lane(lane) {}
    static float value(u16 pattern) { return bits_as<float>((u32)pattern << 16); }
#endif
};

// sums += rows of `a` times columns of `b`, which are its lower or its upper half, over COUNT of K from FIRST on.
template <int FIRST, int COUNT> FN void multiply(const Fragment& a, const Fragment& b, int half, float (&sums)[4]) {
    static_assert(COUNT == 16 || COUNT == 8, "");
#ifndef __CUDA_ARCH__
    for (int i = 0; i < 4; i++)
        for (int k = FIRST; k < FIRST + COUNT; k++) {
            int row = a.lane / 4, column = a.lane % 4 * 2 + i % 2, of_four = k % 8 / 2;
            u16 x = a.lanes[row * 4 + of_four][2 * (i / 2 + k / 8 * 2) + k % 2];
            u16 y = b.lanes[column * 4 + of_four][2 * (half * 2 + k / 8) + k % 2];
            sums[i] += Fragment::value(x) * Fragment::value(y);
        }
#elif __CUDA_ARCH__ >= 800
    const u32 *x = a.own.x + FIRST / 8 * 2, *y = b.own.x + half * 2 + FIRST / 8;
    if constexpr (COUNT == 16)
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    else
        asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
            : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
            : "r"(x[0]), "r"(x[1]), "r"(y[0]));
#endif
}
