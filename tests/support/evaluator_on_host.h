// Runs the evaluator of a model on the CPU, thread after thread, for test_gpu_evaluator.py.
#include <memory>
#include <vector>

extern "C" void one_by_one_on_host(const Job* job, const Differences* differences);

extern "C" void evaluate_on_host(const Job* job, const Differences* differences) {
#if TILED
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
            hand_over<TheModel>(*job, *differences, row, column, one_by_one<TheModel>(*job, row, column));
}
