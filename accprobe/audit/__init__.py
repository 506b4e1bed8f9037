"""The kernels of any binary: their matrix opcodes and accumulators, and a project's requirements on them."""
