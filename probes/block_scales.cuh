// Block scales: a byte a block in memory, the first block in the lowest byte of a register.
//
// PTX ISA, "Block Scaling for mma.sync": of four neighbouring lanes the selector {0, 0} takes from the first two the scales of the
// two rows of A that the four hold, from the first those of their column of B. Here all four give theirs.
#ifdef SCALES
#define BLOCK_SCALES , const unsigned char* scales_of_a, const unsigned char* scales_of_b
#define AND_SCALES(s) , s

__device__ unsigned scale_row(unsigned lane) { return lane / 4 + 8 * (lane % 2); }
__device__ unsigned scale_column(unsigned lane) { return lane / 4; }

// Four scales of a line, or as many as there are from the first of these on.
__device__ unsigned scale_register(const unsigned char* scales, unsigned long long line, unsigned first = 0) {
    unsigned some = 0;
#pragma unroll
    for (unsigned i = 0; i < 4; i++)
        if (line != NO_LINE && first + i < SCALES) some |= (unsigned)scales[line * SCALES + first + i] << (8 * i);
    return some;
}
#else
#define BLOCK_SCALES
#define AND_SCALES(s)
#endif
