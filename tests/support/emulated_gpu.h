// Runs a probe on the CPU, one thread each, for test_probes.py: CUDA's words, and a MULTIPLY that is a matrix product of the bit
// patterns taken as integers, modulo the size of an element of D. Where a register's elements lie in their matrix is told by
// tables, which the test fills from the PTX ISA.
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __shared__ static
#define __launch_bounds__(threads)

using Value = unsigned long long;
struct Index { unsigned x, y; };
struct Operand { int bits, elements; const int* row; const int* column; };  // tables: [threads of a group][elements of a thread]
struct Shape { int m, n, k, group, stored, codes; };  // of a row of A: elements that are stored, and codes of metadata, 0: dense

static thread_local Index threadIdx;
static Index blockIdx, blockDim, gridDim;
static Shape shape;
static Value cell_counts;  // how often the number of its cell is added to an element of D
static Operand operand_a, operand_b, operand_c, operand_d, operand_e;
static std::vector<Value> matrix_a[16], matrix_b[16], matrix_c[16], matrix_e[16];  // a set a group of the block
static std::unique_ptr<std::barrier<>> block_barrier, group_barrier[16];

// The group that a thread holds a tile with, and its number there. PTX ISA, "Matrix Fragments for mma.m8n8k4 with .f16": a group
// of eight is four threads of a warp and the four that are sixteen on.
static int group_of(unsigned thread) { return shape.group == 8 ? thread / 32 * 4 + thread % 16 / 4 : thread / shape.group; }
static int thread_of_group(unsigned thread) { return shape.group == 8 ? thread % 4 + thread % 32 / 16 * 4 : thread % shape.group; }

static void __syncthreads() { block_barrier->arrive_and_wait(); }
static void atomicAdd(Value* target, Value value) { __atomic_fetch_add(target, value, __ATOMIC_RELAXED); }

// Two shared arrays at most of each block: they get the addresses 0x2000 and 0x8000.
static thread_local unsigned rank;  // of a block among those of its cluster
static const void* shared_array[2][2];
static std::size_t __cvta_generic_to_shared(const void* p) {
    const void* none = nullptr;
    auto& array = shared_array[rank];
    bool first = __atomic_compare_exchange_n(&array[0], &none, p, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST) || none == p;
    if (!first) __atomic_store_n(&array[1], p, __ATOMIC_SEQ_CST);
    return first ? 0x2000 : 0x8000;
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
    auto base = (const std::uint8_t*)shared_array[0][start == 0x8000];
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
    scatter(matrix_a[0], shape.stored, operand_a, a);
    scatter(matrix_e[0], shape.codes, operand_e, &e);
    if (threadIdx.x == 0) gather(matrix_b[0], true, shape.n, shape.k, operand_b, b);
    scatter(matrix_c[0], shape.n, operand_d, d);
    product(d, 0);
}

template <class Word> static void multiply(Word* d, Value a, Value b, unsigned e = 0) {
    if (threadIdx.x == 0) {
        gather(matrix_a[0], false, shape.m, shape.stored, operand_a, a), gather(matrix_b[0], true, shape.n, shape.k, operand_b, b);
    }
    scatter(matrix_e[0], shape.codes, operand_e, &e);
    scatter(matrix_c[0], shape.n, operand_d, d);
    product(d, 0);
}

// Clusters of so many blocks, one after the other; the threads of a cluster meet at its barrier.
static void launch(Index grid, const std::function<void()>& kernel, unsigned ranks = 1) {
    blockDim.x = 128, gridDim = grid;
    block_barrier = std::make_unique<std::barrier<>>(128 * ranks);
    for (int g = 0; g < 128 / shape.group; g++) {
        group_barrier[g] = std::make_unique<std::barrier<>>(shape.group);
        matrix_a[g].assign(shape.m * shape.stored, 0), matrix_e[g].assign(shape.m * shape.codes, 0);
        matrix_b[g].assign(shape.k * shape.n, 0), matrix_c[g].assign(shape.m * shape.n, 0);
    }
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x += ranks) {
            std::vector<std::thread> threads;
            for (unsigned t = 0; t < 128 * ranks; t++)
                threads.emplace_back([t, &kernel] { threadIdx.x = t % 128, rank = t / 128, kernel(); });
            for (auto& thread : threads) thread.join();
        }
}
