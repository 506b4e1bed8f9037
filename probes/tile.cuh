// Where independent dot products lie in the tile of one matrix instruction D = A B + C, and how they get there.
//
// The names below come from accprobe/build/probes.py, which writes them above this file, one set an instruction:
//   Word                            one register of operands: 32 bits, or 64 for f64
//   CElement, DElement              storage of one element of C and of D
//   M, N, PROBLEMS                  the tile, and how many dot products it holds: the greatest common divisor of M and N
//   PLACEMENTS                      ways to lay them out
//   K_WORDS, A_WORDS                words of one column of B, and of what is stored of one row of A, as the instruction has them
//   PACKED                          words in memory that one of these is packed from: there every element has a byte or more
//   GROUPS                          of a sparse A: codes of metadata of one row; METADATA_LANES, METADATA_ROWS: see metadata.cuh
//   A_SHIFT, B_SHIFT                bits by which an element is moved up in what holds it: e2m1 lies in bits 2 to 5 of a byte
//   SCALES                          block scales of one row of A, and of one column of B; only where there are some
//   QUAD_PAIRS                      1 where eight lanes hold a tile, four tiles a warp; otherwise 0
//   A_REGISTERS … D_REGISTERS       registers that a lane holds of each operand
//   C_PACKED, D_PACKED              elements of C and of D in one register: 2 for f16, otherwise 1
//   TILES                           of a matrix product: tiles that the threads of one compute, side by side
//   MULTIPLY(d, a, b[, c][, e][, s]) the instruction; e: metadata; s: block scales of A and of B
//
// A tile of M x N elements holds PROBLEMS dot products. The A of problem p is in every row that is p + row_shift (modulo
// PROBLEMS), its B in every column that is p + column_shift. Its C is in every element where the two meet; C is zero in the
// others. The result of one of those elements is reported. Each tile is laid out one placement further than the one before:
// over all of them every element is reported once. Only bit patterns move: no register here is ever a float.

template <unsigned WORDS> __device__ Word packed(const Word* operands, unsigned long long line, unsigned word) {
    const Word* from = operands + (line * WORDS + word) * PACKED;
#if PACKED == 1
    return *from;
#else
    constexpr unsigned BITS = 8 / PACKED;
    Word elements = 0;
#pragma unroll
    for (unsigned i = 0; i < 4 * PACKED; i++) elements |= (from[i / 4] >> (i % 4 * 8) & ((1u << BITS) - 1)) << (i * BITS);
    return elements;
#endif
}

constexpr unsigned long long NO_LINE = ~0ull;

struct Tile {
    const Word* a;
    const Word* b;
    const CElement* c;
    DElement* d;
    unsigned long long count;  // problems in all
    unsigned long long first;  // the first problem of this tile
    unsigned row_shift;        // below M
    unsigned column_shift;     // below N

    __device__ Tile(const Word* a, const Word* b, const CElement* c, DElement* d, unsigned long long count,
                    unsigned long long first, unsigned placement)
        : a(a), b(b), c(c), d(d), count(count), first(first) {
        unsigned placed = (placement + first / PROBLEMS) % PLACEMENTS;
        row_shift = placed / N * PROBLEMS;
        column_shift = placed % N;
    }

    __device__ unsigned problem_in_row(unsigned row) const { return (row + M - row_shift) % PROBLEMS; }
    __device__ unsigned problem_in_column(unsigned column) const { return (column + N - column_shift) % PROBLEMS; }
    __device__ bool exists(unsigned problem) const { return first + problem < count; }

    __device__ Word a_word(unsigned row, unsigned word) const {
        unsigned p = problem_in_row(row);
        return exists(p) ? packed<A_WORDS>(a, first + p, word) << A_SHIFT : 0;
    }

    __device__ Word b_word(unsigned column, unsigned word) const {
        unsigned p = problem_in_column(column);
        return exists(p) ? packed<K_WORDS>(b, first + p, word) << B_SHIFT : 0;
    }

    // Where the problem of a row stands among all; NO_LINE where there is none.
    __device__ unsigned long long line(unsigned row) const {
        unsigned p = problem_in_row(row);
        return exists(p) ? first + p : NO_LINE;
    }

    __device__ unsigned long long line_of_column(unsigned column) const {
        unsigned p = problem_in_column(column);
        return exists(p) ? first + p : NO_LINE;
    }

    // The C of a row: its problem's, in every cell that the problem has in this row.
    __device__ Word c_element(unsigned row) const {
        unsigned p = problem_in_row(row);
        return exists(p) ? c[first + p] : 0;
    }

    // The column of this row whose result is reported; N where none is.
    __device__ unsigned reported_column(unsigned row) const {
        unsigned p = problem_in_row(row);
        return exists(p) && (p + row_shift) % M == row ? (p + column_shift) % N : N;
    }
};

// Which cell a register holds. `packed`: of C and of D, elements in a register. Element i lies in a row of its own for each value
// of i / 2 % rows_of_lane.

#if QUAD_PAIRS
// PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16 floating point type". Four lanes, and the four that are sixteen on, hold a
// tile. Each lane holds a row of A and a column of B.
constexpr unsigned TILES_OF_WARP = 4;

__device__ unsigned tile_of_lane(unsigned lane) { return lane % 16 / 4; }
__device__ unsigned a_row(unsigned lane, unsigned) { return lane % 4 + lane / 16 * 4; }
__device__ unsigned a_word(unsigned, unsigned r) { return r; }
__device__ unsigned b_column(unsigned lane, unsigned) { return lane % 4 + lane / 16 * 4; }
__device__ unsigned b_word(unsigned, unsigned r) { return r; }
__device__ constexpr unsigned rows_of_lane(unsigned packed) { return packed == 2 ? 1 : 2; }
__device__ unsigned cell_row(unsigned packed, unsigned lane, unsigned i) {
    return lane / 16 * 4 + (packed == 2 ? lane % 4 : lane % 2 + i / 2 % 2 * 2);
}
__device__ unsigned cell_column(unsigned packed, unsigned lane, unsigned i) {
    return packed == 2 ? i : i / 4 * 4 + lane / 2 % 2 * 2 + i % 2;
}
#else
// PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f64" … "mma.m16n8k256" and, for wgmma, "Register Fragments": one rule covers
// all of them. A group of four lanes holds one row of A (one column of B), a lane every fourth word of it. The second of two
// registers is eight rows below. A lane holds two neighbours in a row of C and D.
constexpr unsigned TILES_OF_WARP = 1, ROWS_OF_LANE = M < 16 ? M / 8 : 2;

__device__ unsigned tile_of_lane(unsigned) { return 0; }
__device__ unsigned a_row(unsigned lane, unsigned r) { return lane / 4 + 8 * (r % ROWS_OF_LANE); }
__device__ unsigned a_word(unsigned lane, unsigned r) { return lane % 4 + 4 * (r / ROWS_OF_LANE); }
__device__ unsigned b_column(unsigned lane, unsigned) { return lane / 4; }
__device__ unsigned b_word(unsigned lane, unsigned r) { return lane % 4 + 4 * r; }
__device__ constexpr unsigned rows_of_lane(unsigned) { return ROWS_OF_LANE; }
__device__ unsigned cell_row(unsigned, unsigned lane, unsigned i) { return lane / 4 + 8 * (i / 2 % ROWS_OF_LANE); }
__device__ unsigned cell_column(unsigned, unsigned lane, unsigned i) {
    return lane % 4 * 2 + i % 2 + 8 * (i / (2 * ROWS_OF_LANE));
}
#endif

#include "metadata.cuh"
#include "block_scales.cuh"

#if C_REGISTERS
__device__ void load_c(Word (&c)[C_REGISTERS], const Tile& tile, unsigned top_row, unsigned lane) {
    constexpr unsigned ROWS = rows_of_lane(C_PACKED);
    unsigned problem[ROWS];
    Word element[ROWS];
#pragma unroll
    for (unsigned h = 0; h < ROWS; h++) {
        problem[h] = tile.problem_in_row(top_row + cell_row(C_PACKED, lane, 2 * h));
        element[h] = tile.c_element(top_row + cell_row(C_PACKED, lane, 2 * h));
    }
#pragma unroll
    for (unsigned r = 0; r < C_REGISTERS; r++) {
        c[r] = 0;
#pragma unroll
        for (unsigned part = 0; part < C_PACKED; part++) {
            unsigned i = r * C_PACKED + part, h = i / 2 % ROWS;
            if (tile.problem_in_column(cell_column(C_PACKED, lane, i)) == problem[h]) c[r] |= element[h] << (16 * part);
        }
    }
}

// Stores the results that this lane holds and that are reported. Returns how many.
__device__ unsigned report_d(const Word (&d)[D_REGISTERS], const Tile& tile, unsigned top_row, unsigned lane) {
    constexpr unsigned ROWS = rows_of_lane(D_PACKED);
    unsigned stored = 0;
#pragma unroll
    for (unsigned h = 0; h < ROWS; h++) {
        unsigned row = top_row + cell_row(D_PACKED, lane, 2 * h), column = tile.reported_column(row);
        bool here = false;
        Word result = 0;
#pragma unroll
        for (unsigned i = 0; i < D_REGISTERS * D_PACKED; i++) {
            if (i / 2 % ROWS == h && cell_column(D_PACKED, lane, i) == column) {
                here = true;
                result = d[i / D_PACKED] >> (16 * (i % D_PACKED));
            }
        }
        if (here) tile.d[tile.first + tile.problem_in_row(row)] = (DElement)result;
        stored += here;
    }
    return stored;
}
#endif
