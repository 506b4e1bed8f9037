// Block scales: a byte a block in memory, the first block in the lowest byte of a register.
//
// PTX ISA, "Block Scaling for mma.sync": four neighbouring lanes hold two rows of A and a column of B. The selector {0, 0} takes
// the scales of the two rows from the first two lanes, and the scales of the column from the first. Here all four lanes have them.
#ifdef SCALES
#define BLOCK_SCALES , const unsigned char* scales_of_a, const unsigned char* scales_of_b
#define AND_SCALES(s) , s

__device__ unsigned scale_row(unsigned lane) { return lane / 4 + 8 * (lane % 2); }
__device__ unsigned scale_column(unsigned lane) { return lane / 4; }

// Four scales of a line from `first` on, or as many as there are.
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
