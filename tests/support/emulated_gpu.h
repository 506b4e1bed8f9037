// Runs a probe or a kernel of golden chains on the CPU, one thread each, see emulated_gpu.py: CUDA's words, and a MULTIPLY that is a
// matrix product of the bit patterns taken as integers, modulo the size of an element of D. Tables, which the test fills from the
// PTX ISA, have the places of a register's elements in their matrix.
#include <algorithm>
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(...)
#define __forceinline__ inline

using Value = unsigned long long;
struct Index { unsigned x, y; };
struct Operand { int bits, elements; const int* row; const int* column; };  // tables: [threads of a group][elements of a thread]
struct Shape { int m, n, k, group, stored, codes; };  // of a row of A: elements that are stored, and codes of metadata, 0: dense

static thread_local Index threadIdx;
static Index blockIdx, blockDim, gridDim;
static Shape shape;
static Value cell_counts;  // how often the number of its cell is added to an element of D
static Operand operand_a, operand_b, operand_c, operand_d, operand_e;
static std::vector<Value> matrix_a[32], matrix_b[32], matrix_c[32], matrix_e[32];  // a set a group of the block
static std::unique_ptr<std::barrier<>> block_barrier, group_barrier[32];

// The group that a thread holds a tile with, and its number there. PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16": a group
// of eight is four threads of a warp and the four that are sixteen on.
static int group_of(unsigned thread) { return shape.group == 8 ? thread / 32 * 4 + thread % 16 / 4 : thread / shape.group; }
static int thread_of_group(unsigned thread) { return shape.group == 8 ? thread % 4 + thread % 32 / 16 * 4 : thread % shape.group; }

static void __syncthreads() { block_barrier->arrive_and_wait(); }
static Value atomicAdd(Value* target, Value value) { return __atomic_fetch_add(target, value, __ATOMIC_RELAXED); }
static unsigned __funnelshift_l(unsigned low, unsigned high, unsigned by) { return high << by | low >> (32 - by); }

// Two shared arrays at most of each block: they get these addresses.
static constexpr unsigned FIRST_ARRAY = 0x2000, SECOND_ARRAY = 0x20000;
static thread_local unsigned rank;  // of a block among those of its cluster
static const void* shared_array[2][2];
static std::size_t __cvta_generic_to_shared(const void* p) {
    const void* none = nullptr;
    auto& array = shared_array[rank];
    bool first = __atomic_compare_exchange_n(&array[0], &none, p, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) || none == p;
    if (!first) __atomic_store_n(&array[1], p, __ATOMIC_SEQ_CST);
    return first ? FIRST_ARRAY : SECOND_ARRAY;
}

static Value mask(int bits) { return bits == 64 ? ~0ull : (1ull << bits) - 1; }

template <class Word> static Value element(const Word* registers, int i, int bits) {
    int packed = sizeof(Word) * 8 / bits;
    return registers[i / packed] >> (i % packed * bits) & mask(bits);
}

template <class Word> static void scatter(std::vector<Value>& matrix, int width, const Operand& o, const Word* registers) {
    int lane = thread_of_group(threadIdx.x);
    for (int i = 0; i < o.elements; i++) {
        int at = lane * o.elements + i;
        if (o.row[at] >= 0) matrix[o.row[at] * width + o.column[at]] = element(registers, i, o.bits);
    }
}

// PTX ISA, "Strides" and "Matrix Descriptor Format": a K-major matrix without swizzle is made of core matrices, 8 rows of 16 bytes.
static void gather(std::vector<Value>& matrix, bool transposed, int rows, int width, const Operand& o, Value descriptor) {
    unsigned start = (descriptor & 0x3FFF) << 4, leading = (descriptor >> 16 & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF) << 4;
    unsigned from = start >= SECOND_ARRAY ? SECOND_ARRAY : FIRST_ARRAY;
    auto base = (const std::uint8_t*)shared_array[0][from == SECOND_ARRAY] + start - from;
    for (int row = 0; row < rows; row++)
        for (int k = 0; k < width; k++) {
            unsigned byte = k * o.bits / 8;
            auto at = base + row / 8 * stride + byte / 16 * leading + row % 8 * 16 + byte % 16;
            Value value = 0;
            for (int i = 0; i < (o.bits + 7) / 8; i++) value |= (Value)at[i] << (8 * i);
            matrix[transposed ? k * shape.n + row : row * width + k] = value >> (k * o.bits % 8) & mask(o.bits);
        }
}

// Which row of B a stored element of A meets. PTX ISA, "Sparse matrix storage": of a group of two, of four, or of four pairs.
static int met(int group, int row, int i) {
    if (!shape.codes) return i;
    int half = shape.stored / shape.codes;
    Value code = matrix_e[group][row * shape.codes + i / half];
    if (half == 1) return 2 * i + (code == 0b1110);
    if (half == 2) return i / 2 * 4 + (code >> i % 2 * 2 & 3);
    return i / 4 * 8 + (code >> i % 4 / 2 * 2 & 3) * 2 + i % 2;
}

template <class Word> static void product(Word* d, int group) {
    group_barrier[group]->arrive_and_wait();
    int lane = thread_of_group(threadIdx.x), packed = sizeof(Word) * 8 / operand_d.bits;
    for (int i = 0; i < operand_d.elements; i++) {
        int at = lane * operand_d.elements + i, row = operand_d.row[at], column = operand_d.column[at];
        Value sum = matrix_c[group][row * shape.n + column] + cell_counts * (row * shape.n + column);
        for (int k = 0; k < shape.stored; k++)
            sum += matrix_a[group][row * shape.stored + k] * matrix_b[group][met(group, row, k) * shape.n + column];
        if (i % packed == 0) d[i / packed] = 0;
        d[i / packed] |= (Word)(sum & mask(operand_d.bits)) << (i % packed * operand_d.bits);
    }
    group_barrier[group]->arrive_and_wait();
}

template <class Word> static void multiply(Word* d, const Word* a, const Word* b, const Word* c, unsigned e = 0) {
    int group = group_of(threadIdx.x);
    scatter(matrix_a[group], shape.stored, operand_a, a);
    scatter(matrix_e[group], shape.codes, operand_e, &e);
    scatter(matrix_b[group], shape.n, operand_b, b);
    scatter(matrix_c[group], shape.n, operand_c, c);
    product(d, group);
}

template <class Word> static void multiply(Word* d, const Word* a, Value b, unsigned e = 0) {
    int group = group_of(threadIdx.x);
    if (a) scatter(matrix_a[group], shape.stored, operand_a, a);
    scatter(matrix_e[group], shape.codes, operand_e, &e);
    if (thread_of_group(threadIdx.x) == 0) gather(matrix_b[group], true, shape.n, shape.k, operand_b, b);
    scatter(matrix_c[group], shape.n, operand_d, d);
    product(d, group);
}

template <class Word> static void multiply(Word* d, Value a, Value b, unsigned e = 0) {
    int group = group_of(threadIdx.x);
    if (thread_of_group(threadIdx.x) == 0) gather(matrix_a[group], false, shape.m, shape.stored, operand_a, a);
    multiply(d, (const Word*)nullptr, b, e);
}

// Clusters of so many blocks, one after the other; the threads of a cluster meet at its barrier. only: that block, ~0u: all.
static void launch(Index grid, const std::function<void()>& kernel, unsigned ranks = 1, unsigned size = 128, unsigned only = ~0u) {
    blockDim.x = size, gridDim = grid;
    block_barrier = std::make_unique<std::barrier<>>(size * ranks);
    for (int g = 0; g < (int)size / shape.group; g++) {
        group_barrier[g] = std::make_unique<std::barrier<>>(shape.group);
        matrix_a[g].assign(shape.m * shape.stored, 0), matrix_e[g].assign(shape.m * shape.codes, 0);
        matrix_b[g].assign(shape.k * shape.n, 0), matrix_c[g].assign(shape.m * shape.n, 0);
    }
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x += ranks) {
            if (only != ~0u && blockIdx.x != only) continue;
            std::vector<std::thread> threads;
            for (unsigned t = 0; t < size * ranks; t++)
                threads.emplace_back([=, &kernel] { threadIdx.x = t % size, rank = t / size, kernel(); });
            for (auto& thread : threads) thread.join();
        }
}

// Blackwell: block scales in registers, tensor memory, and an instruction that descriptors tell what to multiply. Their fields are read
// here as the PTX ISA has them, apart from the code that writes them.
static int blocks;          // scales of a row of A
static int kind_bits[8];    // bits of an element of A or B, by its number in the instruction descriptor
static bool densely;        // whether elements of less than a byte fill 16 bytes, or 16 of them have as many
static bool descriptor_has_scales;

static void require(bool holds) { if (!holds) std::abort(); }

static Value scaled(Value product, int k, Value scales_a, Value scales_b) {
    if (!blocks) return product;
    int shift = k / (shape.k / blocks) * 8;
    return product * (scales_a >> shift & 255) * (scales_b >> shift & 255);
}

// PTX ISA, "Block Scaling for mma.sync", selectors {0, 0}: of each four lanes the first two give the scales of rows g and g + 8, the
// first those of column g.
static unsigned scale_of_row[4][16], scale_of_column[4][8];

template <class Word> static void multiply(Word* d, const Word* a, const Word* b, const Word* c, unsigned e, const unsigned* s) {
    int group = threadIdx.x / 32, lane = threadIdx.x % 32;
    scatter(matrix_a[group], shape.stored, operand_a, a);
    scatter(matrix_e[group], shape.codes, operand_e, &e);
    scatter(matrix_b[group], shape.n, operand_b, b);
    scatter(matrix_c[group], shape.n, operand_c, c);
    if (lane % 4 < 2) scale_of_row[group][lane / 4 + lane % 4 * 8] = s[0];
    if (lane % 4 == 0) scale_of_column[group][lane / 4] = s[1];
    group_barrier[group]->arrive_and_wait();
    for (int i = 0; i < operand_d.elements; i++) {
        int at = lane * operand_d.elements + i, row = operand_d.row[at], column = operand_d.column[at];
        Value sum = matrix_c[group][row * shape.n + column] + cell_counts * (row * shape.n + column);
        for (int k = 0; k < shape.stored; k++) {
            int other = met(group, row, k);
            sum += scaled(matrix_a[group][row * shape.stored + k] * matrix_b[group][other * shape.n + column], other,
                          scale_of_row[group][row], scale_of_column[group][column]);
        }
        d[i] = (Word)sum;
    }
    group_barrier[group]->arrive_and_wait();
}

template <class Word> static void multiply(Word* d, const Word* a, const Word* b, const Word* c, const unsigned* s) {
    multiply(d, a, b, c, 0u, s);
}

// Tensor memory of each block: 128 lanes of 512 columns.
static unsigned cells_of_tensor[2][128][512];
static unsigned ranks;  // blocks that hold a tile
static constexpr unsigned FIRST_COLUMN = 64;

static void allocate(unsigned* address) { if (threadIdx.x == 0) *address = FIRST_COLUMN; }
static void deallocate(unsigned address) { require(address == FIRST_COLUMN); }
static unsigned* columns_of_thread(unsigned address) {
    require(address >> 16 == threadIdx.x / 32 * 32);
    return cells_of_tensor[rank][threadIdx.x] + (address & 0xFFFF);
}
static void store_columns(unsigned address, const unsigned (&words)[4]) {
    for (int i = 0; i < 4; i++) columns_of_thread(address)[i] = words[i];
}
static void load_columns(unsigned address, unsigned (&words)[4]) {
    for (int i = 0; i < 4; i++) words[i] = columns_of_thread(address)[i];
}
static unsigned rank_in_tile() { return rank; }
static void meet() { __syncthreads(); }
static void written() { __syncthreads(); }
static void prepare(unsigned long long*) {}
static void commit(unsigned long long*) {}
static void wait(unsigned long long*, unsigned) { __syncthreads(); }
static void read_through() { __syncthreads(); }

// Where the 16 bytes of that number of a row begin. PTX ISA, "Shared memory descriptor": a K-major matrix without swizzle; or "Absolute
// address mode for K dimension being 48B": rows of 128 bytes, the third 16 bytes at an address of their own, and "Swizzling modes", 128B:
// bits 4 to 6 of an address are changed by bits 7 to 9.
static const std::uint8_t* sixteen_bytes(Value descriptor, int of, int row, int number) {
    unsigned start = (descriptor & 0x3FFF) << 4, leading = (descriptor >> 16 & 0x3FFF) << 4, stride = (descriptor >> 32 & 0x3FFF) << 4;
    bool absolute = descriptor >> 52 & 1;
    require((descriptor >> 46 & 7) == 1 && absolute == (shape.k == 96) && descriptor >> 61 == (absolute ? 2 : 0));
    unsigned from = start >= SECOND_ARRAY ? SECOND_ARRAY : FIRST_ARRAY;
    auto base = (const std::uint8_t*)shared_array[of][from == SECOND_ARRAY];
    if (!absolute) return base + start - from + row / 8 * stride + number * leading + row % 8 * 16;
    unsigned address = (number < 2 ? start + number * 16 : leading) + row / 8 * stride + row % 8 * 128;
    return base + (address ^ (address >> 7 & 7) << 4) - from;
}

// PTX ISA, "Packing formats of elements in shared memory".
static Value element_of(Value descriptor, int of, int row, int k, int bits) {
    int together = bits >= 8 || densely ? 128 / bits : 16, bit = k % together * bits;
    auto core = sixteen_bytes(descriptor, of, row, k / together);
    Value found = 0;
    for (int i = 0; i < bits; i++) found |= (Value)(core[(bit + i) / 8] >> (bit + i) % 8 & 1) << i;
    return found;
}

// The scales of a row of A or a column of B: the same in all four quarters of the lanes, or none that any test expects.
// Of more than four, the others are in columns behind those of all `rows`, of 128 at least.
static Value scales_at(unsigned address, int of, int row, int rows) {
    Value found = 0;
    for (int word = 0; word * 4 < blocks; word++) {
        unsigned column = (address & 0xFFFF) + row / 32 + word * std::max(rows, 128) / 32, some = cells_of_tensor[of][row % 32][column];
        for (int quarter = 1; quarter < 4; quarter++)
            if (cells_of_tensor[of][quarter * 32 + row % 32][column] != some) return 0;
        found |= (Value)some << 32 * word;
    }
    return found;
}

// The code of a group of a row of a sparse A. PTX ISA, "Sparsity selector": with eight groups a row, rows 0 to 7 of sixteen are in the
// low half of lanes 0 to 7, rows 8 to 15 in the high half, groups 4 to 7 eight lanes on; with sixteen, eight groups are in a column.
static Value code_at(unsigned address, int of, int row, int group) {
    require(address >> 16 == 0 && address % 4 == 0);
    int lane = row, column = address + group / 8, bit = group % 8 * 4;
    if (shape.codes == 8) lane = (row & ~8) + (group >= 4) * 8, column = address, bit = (row & 8) * 2 + group % 4 * 4;
    return cells_of_tensor[of][lane][column] >> bit & 15;
}

// PTX ISA, "Instruction descriptor" of tcgen05.mma. Of two blocks, "CTA Pair", the first has the upper half of A, D, the scales of A and
// the metadata, and the left half of B; each has all scales of B.
static void multiply(unsigned d, Value a, Value b, unsigned e, unsigned description, const unsigned* s = nullptr) {
    require(rank == 0 && threadIdx.x == 0 && descriptor_has_scales == (s != nullptr));
    int n = (description >> 17 & 63) * 8, m = s ? (description >> 27 & 3) * 128 : (description >> 24 & 31) * 16;
    require(n == shape.n && m == shape.m && description >> 31 == (shape.k == 96) && (description >> 2 & 1) == (shape.codes > 0) && (description & 3) == 0);
    int a_bits = kind_bits[description >> 7 & 7], b_bits = kind_bits[description >> 10 & 7];
    for (int row = 0; row < m; row++) {
        for (int k = 0; k < shape.stored; k++) matrix_a[0][row * shape.stored + k] = element_of(a, row / 128, row % 128, k, a_bits);
        for (int group = 0; group < shape.codes; group++) matrix_e[0][row * shape.codes + group] = code_at(e, row / 128, row % 128, group);
    }
    for (int column = 0, half = n / ranks; column < n; column++)
        for (int k = 0; k < shape.k; k++) matrix_b[0][k * n + column] = element_of(b, column / half, column % half, k, b_bits);
    for (int row = 0; row < m; row++)
        for (int column = 0; column < n; column++) {
            unsigned& cell = cells_of_tensor[row / 128][row % 128][(d & 0xFFFF) + column];
            Value of_a = s ? scales_at(s[0], row / 128, row % 128, 128) : 0, of_b = s ? scales_at(s[1], row / 128, column, n) : 0;
            Value sum = cell + cell_counts * (row * n + column);
            for (int k = 0; k < shape.stored; k++) {
                int other = met(0, row, k);
                sum += scaled(matrix_a[0][row * shape.stored + k] * matrix_b[0][other * n + column], other, of_a, of_b);
            }
            cell = (unsigned)sum;
        }
}

static void multiply(unsigned d, Value a, Value b, unsigned description, const unsigned* s = nullptr) {
    multiply(d, a, b, 0u, description, s);
}
