// Evaluates a model on matrices: d[m, n] = the dot product of row m of A, column n of B and c[m, n], chained over `blocks` of K.

// A and B: [rows, blocks * K] and [columns, blocks * K] bit patterns, C and D: [rows, columns]; `c` may be null, then C is zero.
// promote: after so many blocks the sum is added to a separate f32 accumulator and starts again from zero; 0: never.
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

FN u64 promoted(u64 accumulator, u64 sum) {
#ifdef __CUDA_ARCH__
    return bits_as<u32>(__fadd_rn(bits_as<float>((u32)accumulator), bits_as<float>((u32)sum)));
#else
    float total = bits_as<float>((u32)accumulator) + bits_as<float>((u32)sum);
    return total != total ? 0x7fffffff : bits_as<u32>(total);
#endif
}

template <class Model> FN const void* operands(const void* matrix, u64 line, u32 block, const Job& job, int storage) {
    return (const u8*)matrix + (line * job.blocks + block) * (Model::K * storage / 8);
}

// One dot product of the job, by the rules themselves.
template <class Model> COLD u64 one_by_one(Job job, u64 row, u64 column) {
    u64 sum = job.c ? read<typename Model::C>(job.c, row * job.columns + column) : 0, accumulator = 0;
    for (u32 block = 0; block < job.blocks; block++) {
        Dot dot = {operands<Model>(job.a, row, block, job, Model::A::STORAGE),
                   operands<Model>(job.b, column, block, job, Model::B::STORAGE), Model::order(), sum};
        sum = Model::Root::template evaluate<Model>(dot);
        if (job.promote && ((block + 1) % job.promote == 0 || block + 1 == job.blocks)) {
            accumulator = promoted(accumulator, sum);
            sum = 0;
        }
    }
    return job.promote ? accumulator : sum;
}

// What became of the results: stored, or compared with those of the device, `found` of which are kept.
struct Differences {
    const void* expected;  // D of the device, or null: store
    u64* count;
    u64 (*found)[4];  // row, column, what the device gave, what the model gives
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

template <class Model> FN void hand_over(const Job& job, const Differences& differences, u64 row, u64 column, u64 pattern) {
    using D = typename Model::D;
    u64 at = row * job.columns + column;
    if (!differences.expected) {
        write<D>(job.d, at, pattern);
        return;
    }
    u64 got = read<D>(differences.expected, at);
    if (got != pattern) keep(differences, row, column, got, pattern);
}

// A thread's part in one tile of a job. Between begin, each stage and each compute, all threads of the block meet.
template <class Model> struct Worker {
    using S = Shape<Model>;
    using A = typename Model::A;
    using B = typename Model::B;
    using C = typename Model::C;
    static constexpr bool SINGLE = sizeof(typename Model::Real) == 4 && !A::INTEGER;

    const Job& job;
    Staged<Model>& staged;
    int thread;
    u64 top, left;
    Packed<A::STORAGE, Model::K> next;
    Results<Model> sum;
    u32 careful[S::ROWS_OF_THREAD];

    FN u64 row(int i) const { return top + S::row(thread) + i; }
    FN u64 column(int j) const { return left + S::column(thread) + j; }
    FN bool exists(int i, int j) const { return row(i) < job.rows && column(j) < job.columns; }

    FN void load(u32 block) {
        if (thread < S::ROWS) {
            u64 line = top + thread;
            next.load(line < job.rows ? operands<Model>(job.a, line, block, job, A::STORAGE) : nullptr);
        } else if (thread < S::ROWS + S::COLUMNS) {
            u64 line = left + thread - S::ROWS;
            next.load(line < job.columns ? operands<Model>(job.b, line, block, job, B::STORAGE) : nullptr);
        }
    }

    FN void begin() {
        staged.fill_tables(thread);
        load(0);
#pragma unroll
        for (int i = 0; i < S::ROWS_OF_THREAD; i++) {
            careful[i] = 0;
#pragma unroll
            for (int j = 0; j < S::COLUMNS_OF_THREAD; j++) {
                sum.at[i][j] = job.c && exists(i, j) ? (Pattern<Model>)read<C>(job.c, row(i) * job.columns + column(j)) : 0;
                if (SINGLE && job.c) limit(sum.at[i][j], careful[i], j);
            }
        }
    }

    // In single precision, an addend of a usual size, no longer than it is cut to anyway.
    static FN void limit(Pattern<Model>& pattern, u32& careful, int j) {
        u32 exponent = (u32)pattern >> 23 & 255;
        bool usual = exponent >= 127 - 90 && exponent <= 127 + 90;
        if (!usual && pattern << 1) careful |= 1u << j;
        pattern = usual ? pattern & ~0u << (23 - Model::ADDEND_BITS) : 0;
    }

    FN void stage(u32 block) {
        if (thread < S::ROWS) staged.template stage<A, true>(thread, next, block == 0);
        else if (thread < S::ROWS + S::COLUMNS) staged.template stage<B, false>(thread - S::ROWS, next, block == 0);
    }

    FN void compute(u32 block) {
        if (block + 1 < job.blocks) load(block + 1);
        Results<Model> d;
        Share<Model>{staged, S::row(thread), S::column(thread), sum, careful}.sum(typename Model::Root(), d);
        sum = d;
        if (job.promote && ((block + 1) % job.promote == 0 || block + 1 == job.blocks)) promote(block);
    }

    FN void promote(u32 block) {
#pragma unroll
        for (int i = 0; i < S::ROWS_OF_THREAD; i++)
#pragma unroll
            for (int j = 0; j < S::COLUMNS_OF_THREAD; j++) {
                if (!exists(i, j)) continue;
                u32& accumulator = ((u32*)job.d)[row(i) * job.columns + column(j)];
                accumulator = (u32)promoted(block < job.promote ? 0 : accumulator, sum.at[i][j]);
                if (block + 1 == job.blocks) sum.at[i][j] = accumulator;
                else sum.at[i][j] = 0;
            }
    }

    FN void finish(const Differences& differences) {
        u64 again = 0;
#pragma unroll
        for (int i = 0; i < S::ROWS_OF_THREAD; i++)
#pragma unroll
            for (int j = 0; j < S::COLUMNS_OF_THREAD; j++) {
                u32 special = staged.a_special[S::row(thread) + i] | staged.b_special[S::column(thread) + j];
                bool nan = Model::NAN_WINS && special & HAS_NAN;
                if (!exists(i, j)) continue;
                if (!nan && (special || careful[i] >> j & 1)) again |= 1ull << (i * S::COLUMNS_OF_THREAD + j);
                else hand_over<Model>(job, differences, row(i), column(j), nan ? Model::NOT_A_NUMBER : sum.at[i][j]);
            }
#pragma unroll 1
        for (; again; again &= again - 1) {
            int place = bit_length(again & (~again + 1)) - 1;
            u64 r = row(place / S::COLUMNS_OF_THREAD), c = column(place % S::COLUMNS_OF_THREAD);
            hand_over<Model>(job, differences, r, c, one_by_one<Model>(job, r, c));
        }
    }
};

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(256, BLOCKS_AT_ONCE) 
evaluate(const void* a, const void* b, const void* c, void* d, u64 rows, u64 columns, u32 blocks, u32 promote,
         const void* expected, u64* count, u64 (*found)[4], u32 most) {
    Job job{a, b, c, d, rows, columns, blocks, promote};
    Differences differences{expected, count, found, most};
#if TILED
    using S = Shape<TheModel>;
    extern __shared__ __align__(16) unsigned char shared[];
    Worker<TheModel> worker{job, *reinterpret_cast<Staged<TheModel>*>(shared), (int)threadIdx.x,
                            blockIdx.y * (u64)S::ROWS, blockIdx.x * (u64)S::COLUMNS};
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
    u64 at = blockIdx.x * 256ull + threadIdx.x, row = at / job.columns, column = at % job.columns;
    if (row < job.rows) hand_over<TheModel>(job, differences, row, column, one_by_one<TheModel>(job, row, column));
#endif
}
#endif
