// Operands in shared memory, 32 bytes of K a row, not swizzled. PTX ISA, "Shared Memory Matrix Layout": core matrices of eight
// rows by 16 bytes lie whole, the two along K 128 bytes apart (the leading offset), the next eight rows 256 bytes on (the stride
// offset). Every wgmma has 32 bytes of K.
constexpr unsigned LEADING_OFFSET = 128, STRIDE_OFFSET = 256;

__device__ unsigned place(unsigned row, unsigned word) {
    return (row / 8 * STRIDE_OFFSET + word / 4 * LEADING_OFFSET + row % 8 * 16) / 4 + word % 4;
}

// PTX ISA, "Matrix Descriptor Format": start address in bits 0-13, leading offset in 16-29, stride offset in 32-45, each over 16.
__device__ unsigned long long descriptor(const Word* shared) {
    unsigned address = (unsigned)__cvta_generic_to_shared(shared);
    return (address & 0x3FFFF) >> 4 | (unsigned long long)(LEADING_OFFSET >> 4) << 16
         | (unsigned long long)(STRIDE_OFFSET >> 4) << 32;
}
