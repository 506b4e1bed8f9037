// Which half of each group of a sparse A is stored: a code of 4 bits a group, in a byte each in memory, eight in a register.
//
// PTX ISA, "Matrix Fragments for mma.sp.…" and "Register Fragments" of wgmma.mma_async.sp, the figures of metadata. Of four
// neighbouring lanes, which hold two rows of A, the first METADATA_LANES give metadata, as the selector 0 says. METADATA_ROWS 2:
// a lane has four codes of the one row, then of the other; 1: eight codes of one row, the next lane those of the other.
#ifdef GROUPS
#define METADATA , const unsigned char* metadata
#define AND_METADATA(e) , e

// line_of(row): the line of the metadata in memory, or NO_LINE.
constexpr unsigned SOME_CODE = 4;

template <class LineOf> __device__ unsigned metadata_register(const unsigned char* metadata, unsigned lane, LineOf line_of) {
    unsigned giving = lane % 4, codes = 0;
    if (giving >= METADATA_LANES) return 0;
#pragma unroll
    for (unsigned i = 0; i < 8; i++) {
        unsigned lower = METADATA_ROWS == 2 ? i / 4 : giving % 2;
        unsigned group = METADATA_ROWS == 2 ? giving * 4 + i % 4 : giving / 2 * 8 + i;
        unsigned long long line = line_of(lane / 4 + 8 * lower);
        codes |= (line == NO_LINE ? SOME_CODE : metadata[line * GROUPS + group]) << (4 * i);
    }
    return codes;
}
#else
#define METADATA
#define AND_METADATA(e)
#endif

// MULTIPLY, whose arguments are macros.
#define EXECUTE(...) MULTIPLY(__VA_ARGS__)
