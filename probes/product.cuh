// Matrices in memory, row after row, and the fragments of tile.cuh.

// A word of a line of A or B; zero below the last one.
__device__ Word operand(const Word* operands, unsigned line, unsigned lines, unsigned word) {
    return line < lines ? operands[(unsigned long long)line * K_WORDS + word] : 0;
}

// The cells of C and D that a lane holds.
struct Cells {
    unsigned rows, columns, top, left, lane;

    __device__ bool exists(unsigned i) const { return top + d_row(lane, i) < rows && left + d_column(lane, i) < columns; }
    __device__ unsigned long long at(unsigned i) const {
        return (top + d_row(lane, i)) * (unsigned long long)columns + left + d_column(lane, i);
    }

    __device__ void load(Word (&c)[C_REGISTERS], const CElement* elements) const {
#pragma unroll
        for (unsigned r = 0; r < C_REGISTERS; r++) {
            c[r] = 0;
#pragma unroll
            for (unsigned part = 0; part < C_PACKED; part++) {
                unsigned i = r * C_PACKED + part;
                if (exists(i)) c[r] |= (Word)elements[at(i)] << (16 * part);
            }
        }
    }

    __device__ void store(DElement* elements, const Word (&d)[D_REGISTERS]) const {
#pragma unroll
        for (unsigned i = 0; i < D_REGISTERS * D_PACKED; i++)
            if (exists(i)) elements[at(i)] = (DElement)(d[i / D_PACKED] >> (16 * (i % D_PACKED)));
    }
};
