// Matrices in memory, row after row, and the fragments of tile.cuh.

// A word of a line of A or B; zero below the last one.
template <unsigned WORDS> __device__ Word operand(const Word* operands, unsigned line, unsigned lines, unsigned word) {
    return line < lines ? packed<WORDS>(operands, line, word) : 0;
}

// The elements of C and D that a lane holds.
struct Cells {
    unsigned rows, columns, top, left, lane;

    // The line of A of a row of the tile; NO_LINE below the last one.
    __device__ unsigned long long line(unsigned row) const { return top + row < rows ? top + row : NO_LINE; }
    __device__ bool exists(unsigned packed, unsigned i) const {
        return top + cell_row(packed, lane, i) < rows && left + cell_column(packed, lane, i) < columns;
    }
    __device__ unsigned long long at(unsigned packed, unsigned i) const {
        return (top + cell_row(packed, lane, i)) * (unsigned long long)columns + left + cell_column(packed, lane, i);
    }

    __device__ void load(Word (&c)[C_REGISTERS], const CElement* elements) const {
#pragma unroll
        for (unsigned r = 0; r < C_REGISTERS; r++) {
            c[r] = 0;
#pragma unroll
            for (unsigned part = 0; part < C_PACKED; part++) {
                unsigned i = r * C_PACKED + part;
                if (exists(C_PACKED, i)) c[r] |= (Word)elements[at(C_PACKED, i)] << (16 * part);
            }
        }
    }

    __device__ void store(DElement* elements, const Word (&d)[D_REGISTERS]) const {
#pragma unroll
        for (unsigned i = 0; i < D_REGISTERS * D_PACKED; i++)
            if (exists(D_PACKED, i)) elements[at(D_PACKED, i)] = (DElement)(d[i / D_PACKED] >> (16 * (i % D_PACKED)));
    }
};
