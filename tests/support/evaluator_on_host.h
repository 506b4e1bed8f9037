// Runs the evaluator of a model on the CPU, thread after thread, for test_gpu_evaluator.py.
#include <memory>
#include <vector>

extern "C" void one_by_one_on_host(const Job* job, const Differences* differences);

extern "C" void evaluate_on_host(const Job* job, const Differences* differences) {
#if CHAINED
    using S = Shape<TheModel>;
    u64 down = (job->rows + S::ROWS - 1) / S::ROWS, across = (job->columns + S::COLUMNS - 1) / S::COLUMNS;
    std::vector<Taken<TheModel, true>> a(down * job->blocks * TheModel::SUMS);
    std::vector<Taken<TheModel, false>> b(across * job->blocks * TheModel::SUMS);
    std::vector<u32> a_special(down * S::ROWS), b_special(across * S::COLUMNS);
    for (u32 block = 0; block < job->blocks; block++) {
        for (u64 line = 0; line < a_special.size(); line++)
            take_apart_line<TheModel, TheModel::A, true>(job->a, job->rows, job->blocks, line, block, a.data(), a_special.data());
        for (u64 line = 0; line < b_special.size(); line++)
            take_apart_line<TheModel, TheModel::B, false>(job->b, job->columns, job->blocks, line, block, b.data(), b_special.data());
    }
    Prepared<TheModel> prepared{a.data(), b.data(), a_special.data(), b_special.data()};
    auto shared = std::make_unique<InChain<TheModel>>();
    for (u64 tile = 0; tile < down * across; tile++) {
        std::vector<Chain<TheModel>> chains;
        for (int thread = 0; thread < S::THREADS; thread++)
            chains.push_back({*job, prepared, *shared, thread, tile / across, tile % across});
        for (auto& chain : chains) chain.begin();
        for (u32 step = 0; step < chains[0].steps(); step++) {
            for (auto& chain : chains) chain.copy(step);
            for (auto& chain : chains) chain.compute(step);
        }
        for (auto& chain : chains) chain.finish(*differences);
    }
#elif TILED
    using S = Shape<TheModel>;
    auto staged = std::make_unique<Staged<TheModel>>();
    for (u64 top = 0; top < job->rows; top += S::ROWS)
        for (u64 left = 0; left < job->columns; left += S::COLUMNS) {
            std::vector<Worker<TheModel>> workers;
            for (int thread = 0; thread < S::THREADS; thread++) workers.push_back({*job, *staged, thread, top, left});
            for (auto& worker : workers) worker.begin();
            for (u32 block = 0; block < job->blocks; block++) {
                for (auto& worker : workers) worker.stage(block);
                for (auto& worker : workers) worker.compute(block);
            }
            for (auto& worker : workers) worker.finish(*differences);
        }
#else
    one_by_one_on_host(job, differences);
#endif
}

extern "C" void one_by_one_on_host(const Job* job, const Differences* differences) {
    for (u64 row = 0; row < job->rows; row++)
        for (u64 column = 0; column < job->columns; column++)
            hand_over<TheModel>(*job, *differences, row * job->columns + column, one_by_one<TheModel>(*job, row, column));
}
