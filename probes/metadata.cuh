// The stored half of each group of a sparse A: a code of 4 bits a group, in a byte each in memory, eight in 32 bits.
//
// METADATA_ROWS: of how many rows such eight codes are. 2: four of one row, then the same four groups' of the row eight below;
// 1: eight of one row.
#ifdef GROUPS
#define METADATA , const unsigned char* metadata
#define AND_METADATA(e) , e

constexpr unsigned SOME_CODE = 4;  // a valid one, for rows without a line

// Returns eight codes from this row and group on. line_of(row): the line of the metadata in memory, or NO_LINE.
template <class LineOf> __device__ unsigned eight_codes(const unsigned char* metadata, unsigned row, unsigned group, LineOf line_of) {
    constexpr unsigned OF_A_ROW = 8 / METADATA_ROWS;
    unsigned codes = 0;
#pragma unroll
    for (unsigned i = 0; i < 8; i++) {
        unsigned long long line = line_of(row + i / OF_A_ROW * 8);
        codes |= (line == NO_LINE ? SOME_CODE : metadata[line * GROUPS + group + i % OF_A_ROW]) << (4 * i);
    }
    return codes;
}

// PTX ISA, "Matrix Fragments for mma.sp.…" and "Register Fragments" of wgmma.mma_async.sp, the figures of metadata. Four
// neighbouring lanes hold two rows of A. With the selector 0, the first METADATA_LANES of them give metadata. A lane gives the codes
// of both rows, or the next lane gives the codes of the lower row.
template <class LineOf> __device__ unsigned metadata_register(const unsigned char* metadata, unsigned lane, LineOf line_of) {
    unsigned giving = lane % 4;
    if (giving >= METADATA_LANES) return 0;
    if (METADATA_ROWS == 2) return eight_codes(metadata, lane / 4, giving * 4, line_of);
    return eight_codes(metadata, lane / 4 + giving % 2 * 8, giving / 2 * 8, line_of);
}
#else
#define METADATA
#define AND_METADATA(e)
#endif

// MULTIPLY, with the macros in its arguments expanded first.
#define EXECUTE(...) MULTIPLY(__VA_ARGS__)
