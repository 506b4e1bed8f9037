// Draws the operands of a batch. A, B: [lines, K], C: [rows, columns]; rows * columns is below 2^32.

#ifdef __CUDACC__
extern "C" __global__ void __launch_bounds__(256)
draw_lines(const Recipe* recipe, u64 key, u32 batch, AElement* a, BElement* b, u32 rows, u32 columns) {
    Recipe r = *recipe;
    u32 i = blockIdx.x * 256 + threadIdx.x, line = i / K, k = i % K;
    if (line < rows) a[i] = (AElement)element<A, true>(r, key, batch, line, k, K);
    else if (line - rows < columns) b[i - rows * K] = (BElement)element<B, false>(r, key, batch, line - rows, k, K);
}

extern "C" __global__ void __launch_bounds__(256)
draw_addends(const Recipe* recipe, u64 key, u32 batch, CElement* c, u32 rows, u32 columns) {
    Recipe r = *recipe;
    u32 step = gridDim.x * 256;
    for (u64 i = blockIdx.x * 256 + threadIdx.x; i < (u64)rows * columns; i += step)
        c[i] = (CElement)addend<C>(r, key, batch, (u32)i / columns, (u32)i % columns, K);
}
#endif
