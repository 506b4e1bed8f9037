// Evaluates a model on matrices: d[m, n] = the dot product of row m of A, column n of B and c[m, n], chained over `blocks` of K.

// A and B: [rows, blocks * K] and [columns, blocks * K] bit patterns, C and D: [rows, columns]; `c` may be null, then C is zero.
// promote: after so many blocks the sum is added to a separate f32 accumulator, and starts again from zero; 0: never. The
// accumulator starts from C and ends in D, both f32.
struct Job {
    const void* a;
    const void* b;
    const void* c;
    void* d;
    u64 rows, columns;
    u32 blocks, promote;
};

template <class Format> FN u64 read(const void* patterns, u64 at) {
    if (Format::STORAGE == 16) return ((const u16*)patterns)[at];
    if (Format::STORAGE == 32) return ((const u32*)patterns)[at];
    return ((const u64*)patterns)[at];
}

template <class Format> FN void write(void* patterns, u64 at, u64 pattern) {
    if (Format::STORAGE == 16) ((u16*)patterns)[at] = (u16)pattern;
    else if (Format::STORAGE == 32) ((u32*)patterns)[at] = (u32)pattern;
    else ((u64*)patterns)[at] = pattern;
}

// The NaN result of a float32 add.
constexpr u32 F32_NAN = 0x7fffffff;

// A result of up to 32 bits, as f32.
template <class Format> FN float single(u64 pattern) {
    if constexpr (Format::STORAGE == 32) return bits_as<float>((u32)pattern);
    Number x = Format::number(pattern, false);
    if (x.nan || x.inf) return bits_as<float>(x.nan ? F32_NAN : 0x7f800000 | (u32)x.negative << 31);
    float value = real<float>(x);
    return x.zero() && x.negative ? -0.0f : value;
}

template <class Model> FN u64 promoted(u64 accumulator, u64 sum) {
    if constexpr (!Model::CAN_PROMOTE) {
        return 0;
    } else {
#ifdef __CUDA_ARCH__
        return bits_as<u32>(__fadd_rn(bits_as<float>((u32)accumulator), single<typename Model::D>(sum)));
#else
        float total = bits_as<float>((u32)accumulator) + single<typename Model::D>(sum);
        return total != total ? F32_NAN : bits_as<u32>(total);
#endif
    }
}

template <class Model> FN const void* operands(const void* matrix, u64 line, u32 block, const Job& job, int storage) {
    return (const u8*)matrix + (line * job.blocks + block) * (Model::K * storage / 8);
}

// One dot product of the job, by the rules themselves.
template <class Model> COLD u64 one_by_one(Job job, u64 row, u64 column) {
    u64 at = row * job.columns + column, sum = job.c && !job.promote ? read<typename Model::C>(job.c, at) : 0;
    u64 accumulator = job.c && job.promote ? ((const u32*)job.c)[at] : 0;
    for (u32 block = 0; block < job.blocks; block++) {
        Dot dot = {operands<Model>(job.a, row, block, job, Model::A::STORAGE),
                   operands<Model>(job.b, column, block, job, Model::B::STORAGE), Model::order(), sum};
        sum = Model::Root::template evaluate<Model>(dot);
        if (job.promote && ((block + 1) % job.promote == 0 || block + 1 == job.blocks)) {
            accumulator = promoted<Model>(accumulator, sum);
            sum = 0;
        }
    }
    return job.promote ? accumulator : sum;
}

// The destination of the results: stored, or compared with the device's results; up to `most` mismatches are kept.
struct Differences {
    const void* expected;  // D of the device, or null: store
    u64* count;
    u64 (*found)[4];  // row, column, the device's word, the model's word
    u32 most;
};

COLD void keep(Differences differences, u64 row, u64 column, u64 got, u64 pattern) {
#ifdef __CUDA_ARCH__
    u64 index = atomicAdd(differences.count, 1ull);
#else
    u64 index = (*differences.count)++;
#endif
    if (index >= differences.most) return;
    u64* found = differences.found[index];
    found[0] = row, found[1] = column, found[2] = got, found[3] = pattern;
}

template <class Model> FN void hand_over(const Job& job, const Differences& differences, u64 at, u64 pattern) {
    using D = typename Model::D;
    if (!differences.expected) {
        if (job.promote) ((u32*)job.d)[at] = (u32)pattern;
        else write<D>(job.d, at, pattern);
        return;
    }
    u64 got = read<D>(differences.expected, at);
    if (got != pattern) keep(differences, at / job.columns, at % job.columns, got, pattern);
}

// Where a thread's results, M rows of N columns at most, lie in C and D.
template <int M, int N> struct Place {
    u64 row, column, first;
    int rows, columns;

    FN Place(const Job& job, u64 row, u64 column)
        : row(row), column(column), first(row * job.columns + column), rows(left(job.rows, row, M)), columns(left(job.columns, column, N)) {
#ifdef __CUDA_ARCH__
        asm volatile("" : "+l"(first));  // it is computed where it is used, so that no address is kept through a chain
#endif
    }
    static FN int left(u64 all, u64 from, int most) { return from >= all ? 0 : all - from < (u64)most ? (int)(all - from) : most; }

    FN bool exists(int i, int j) const { return i < rows && j < columns; }
    FN u64 at(int i, int j, const Job& job) const { return first + i * job.columns + j; }
};

// Hands over a thread's results. Those of a row or a column with specials, and `careful` ones, are computed one by one.
template <class Model, class Result, int M, int N>
FN void hand_over_all(const Job& job, const Differences& differences, const Place<M, N>& place, const u32 (&a_special)[M],
                      const u32 (&b_special)[N], u64 careful, const Result (&results)[M][N]) {
    Result not_a_number = job.promote ? F32_NAN : (Result)Model::NOT_A_NUMBER;
#pragma unroll
    for (int i = 0; i < M; i++)
#pragma unroll
        for (int j = 0; j < N; j++) {
            u32 special = a_special[i] | b_special[j];
            bool nan = Model::NAN_WINS && special & HAS_NAN;
            u64 bit = 1ull << (i * N + j);
            if (special) careful |= bit;
            if (nan || !place.exists(i, j)) careful &= ~bit;
            if (place.exists(i, j) && !(careful & bit)) hand_over<Model>(job, differences, place.at(i, j, job), nan ? not_a_number : results[i][j]);
        }
#pragma unroll 1
    for (; careful; careful &= careful - 1) {
        int which = bit_length(careful & (~careful + 1)) - 1;
        u64 row = place.row + which / N, column = place.column + which % N;
        hand_over<Model>(job, differences, row * job.columns + column, one_by_one<Model>(job, row, column));
    }
}

// A thread's part in one tile of a job. Between begin, each stage and each compute, all threads of the block meet.
template <class Model> struct Worker {
    using S = Shape<Model>;
    using A = typename Model::A;
    using B = typename Model::B;
    using C = typename Model::C;
    using D = typename Model::D;

    const Job& job;
    Staged<Model>& staged;
    int thread;
    u64 top, left;
    Packed<A::STORAGE, S::OF_PART> next_a[S::ROUNDS_OF_A];
    Packed<B::STORAGE, S::OF_PART> next_b[S::ROUNDS_OF_B];
    Results<Model> sum;
    u64 careful;

    FN Place<S::ROWS_OF_THREAD, S::COLUMNS_OF_THREAD> place() const {
        return {job, top + S::row(thread), left + S::column(thread)};
    }

    // Line and part of the thread's share in a round; parts from PARTS on do not exist.
    static FN int line(int thread, int round, int lines) { return (thread + round * S::THREADS) % lines; }
    static FN int part(int thread, int round, int lines) { return (thread + round * S::THREADS) / lines; }

    // Neighbouring threads get columns with values side by side.
    static FN int column(int thread, int round) { return S::column_at(line(thread, round, S::COLUMNS), S::CHUNK); }

    template <class Format> FN void load(Packed<Format::STORAGE, S::OF_PART>& operands, const void* matrix, u64 line, int part, bool exists,
                                         u32 block) {
        u64 bits = ((line * job.blocks + block) * S::PARTS + part) * (S::OF_PART * Format::STORAGE);
        operands.load(exists ? (const u8*)matrix + bits / 8 : nullptr);
    }

    FN void load(u32 block) {
#pragma unroll
        for (int r = 0; r < S::ROUNDS_OF_A; r++) {
            int at = line(thread, r, S::ROWS), p = part(thread, r, S::ROWS);
            load<A>(next_a[r], job.a, top + at, p, p < S::PARTS && top + at < job.rows, block);
        }
#pragma unroll
        for (int r = 0; r < S::ROUNDS_OF_B; r++) {
            int at = column(thread, r), p = part(thread, r, S::COLUMNS);
            load<B>(next_b[r], job.b, left + at, p, p < S::PARTS && left + at < job.columns, block);
        }
    }

    FN void stage(u32 block) {
#pragma unroll
        for (int r = 0; r < S::ROUNDS_OF_A; r++) {
            int p = part(thread, r, S::ROWS);
            int at = line(thread, r, S::ROWS);
            if (p < S::PARTS) staged.template stage<A, true>(at, at, p, next_a[r], block == 0);
        }
#pragma unroll
        for (int r = 0; r < S::ROUNDS_OF_B; r++) {
            int p = part(thread, r, S::COLUMNS);
            int place = line(thread, r, S::COLUMNS);
            if (p < S::PARTS) staged.template stage<B, false>(column(thread, r), place, p, next_b[r], block == 0);
        }
    }

    FN void begin() {
        staged.fill_tables(thread);
        load(0);
        auto place = this->place();
        if (!job.c || job.promote) place.rows = 0;
        careful = 0;
#pragma unroll
        for (int i = 0; i < S::ROWS_OF_THREAD; i++)
#pragma unroll
            for (int j = 0; j < S::COLUMNS_OF_THREAD; j++) {
                sum.at[i][j] = place.exists(i, j) ? (Pattern<Model>)read<C>(job.c, place.at(i, j, job)) : 0;
                note<C>(i, j);
            }
    }

    // An infinite or NaN C or sum stays special to the end of the chain, but not with the pattern that the rules give.
    template <class Format> FN void note(int i, int j) {
        if constexpr (!Format::INTEGER)
            if ((sum.at[i][j] & Format::INF) == Format::INF) careful |= 1ull << (i * S::COLUMNS_OF_THREAD + j);
    }

    FN void compute(u32 block) {
        if (block + 1 < job.blocks) load(block + 1);
        Share<Model> share{staged, S::row(thread), S::column(thread), sum};
        if constexpr (Model::Root::ALONE) {
            share.sum(typename Model::Root(), sum);
        } else {
            Results<Model> d;
            share.sum(typename Model::Root(), d);
            sum = d;
        }
        if (job.promote && ((block + 1) % job.promote == 0 || block + 1 == job.blocks)) promote(block);
    }

    FN void promote(u32 block) {
        auto place = this->place();
#pragma unroll
        for (int i = 0; i < S::ROWS_OF_THREAD; i++)
#pragma unroll
            for (int j = 0; j < S::COLUMNS_OF_THREAD; j++) {
                if (!place.exists(i, j)) continue;
                u64 at = place.at(i, j, job);
                u32& accumulator = ((u32*)job.d)[at];
                u32 before = block >= job.promote ? accumulator : job.c ? ((const u32*)job.c)[at] : 0;
                note<D>(i, j);
                accumulator = (u32)promoted<Model>(before, sum.at[i][j]);
                if (block + 1 == job.blocks) sum.at[i][j] = accumulator;
                else sum.at[i][j] = 0;
            }
    }

    FN void finish(const Differences& differences) {
        bool one_sum = Model::Root::ALONE && job.blocks == 1;
#pragma unroll
        for (int i = 0; i < S::ROWS_OF_THREAD && !one_sum && !job.promote; i++)
#pragma unroll
            for (int j = 0; j < S::COLUMNS_OF_THREAD; j++) note<D>(i, j);
        u32 of_a[S::ROWS_OF_THREAD], of_b[S::COLUMNS_OF_THREAD];
#pragma unroll
        for (int i = 0; i < S::ROWS_OF_THREAD; i++) of_a[i] = staged.all(staged.a_special, S::row(thread) + i);
#pragma unroll
        for (int j = 0; j < S::COLUMNS_OF_THREAD; j++) of_b[j] = staged.all(staged.b_special, S::column(thread) + j);
        hand_over_all<Model>(job, differences, place(), of_a, of_b, careful, sum.at);
    }
};

#include "evaluator_chain.cuh"

#ifdef __CUDACC__
#if CHAINED
constexpr int SHARED = sizeof(InChain<TheModel>);
constexpr int TAKEN[] = {TheModel::SUMS * sizeof(Taken<TheModel, true>), TheModel::SUMS * sizeof(Taken<TheModel, false>)};
#else
constexpr int SHARED = TILED ? sizeof(Staged<TheModel>) : 0, TAKEN[] = {0, 0};
#endif
#if TILED
constexpr int THREADS = Shape<TheModel>::THREADS, ROWS = Shape<TheModel>::ROWS, COLUMNS = Shape<TheModel>::COLUMNS;
#else
constexpr int THREADS = 256, ROWS = 1, COLUMNS = THREADS;
#endif

// Launch parameters of `evaluate`: threads of a block, its bytes of shared memory, its rows and its columns; bytes of decoded
// operands in memory, if any.
extern "C" __global__ void describe(u32* launch) {
    launch[0] = THREADS, launch[1] = SHARED, launch[2] = ROWS, launch[3] = COLUMNS, launch[4] = TAKEN[0], launch[5] = TAKEN[1];
}

#if CHAINED
// A thread for a line of a tile; blockIdx: block of K and tile.
extern "C" __global__ void take_rows(const void* a, u64 rows, u32 blocks, Taken<TheModel, true>* taken, u32* special) {
    take_apart_line<TheModel, TheModel::A, true>(a, rows, blocks, blockIdx.y * (u64)ROWS + threadIdx.x, blockIdx.x, taken, special);
}
extern "C" __global__ void take_columns(const void* b, u64 columns, u32 blocks, Taken<TheModel, false>* taken, u32* special) {
    take_apart_line<TheModel, TheModel::B, false>(b, columns, blocks, blockIdx.y * (u64)COLUMNS + threadIdx.x, blockIdx.x, taken, special);
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS_AT_ONCE)
evaluate(const void* a, const void* b, const void* c, void* d, u64 rows, u64 columns, u32 blocks, u32 promote,
         const void* expected, u64* count, u64 (*found)[4], u32 most
#if CHAINED
         , const Taken<TheModel, true>* taken_a, const Taken<TheModel, false>* taken_b, const u32* a_special, const u32* b_special
#endif
) {
    Job job{a, b, c, d, rows, columns, blocks, promote};
    Differences differences{expected, count, found, most};
#if TILED
    extern __shared__ __align__(16) unsigned char shared[];
    int thread = (int)threadIdx.x % THREADS;
#endif
#if CHAINED
    Prepared<TheModel> prepared{taken_a, taken_b, a_special, b_special};
    Chain<TheModel> chain{job, prepared, *reinterpret_cast<InChain<TheModel>*>(shared), thread, blockIdx.y, blockIdx.x};
    chain.copy(0);
    chain.begin();
#pragma unroll 1
    for (u32 step = 0; step < chain.steps(); step++) {
        wait_for_copies();
        __syncthreads();
        chain.copy(step + 1);
        chain.compute(step);
    }
    chain.finish(differences);
#elif TILED
    Worker<TheModel> worker{job, *reinterpret_cast<Staged<TheModel>*>(shared), thread, blockIdx.y * (u64)ROWS, blockIdx.x * (u64)COLUMNS};
    worker.begin();
#pragma unroll 1
    for (u32 block = 0; block < job.blocks; block++) {
        __syncthreads();
        worker.stage(block);
        __syncthreads();
        worker.compute(block);
    }
    worker.finish(differences);
#else
    u64 row = blockIdx.y * (u64)ROWS, column = blockIdx.x * (u64)COLUMNS + threadIdx.x;
    if (row < job.rows && column < job.columns) hand_over<TheModel>(job, differences, row * columns + column, one_by_one<TheModel>(job, row, column));
#endif
}
#endif
