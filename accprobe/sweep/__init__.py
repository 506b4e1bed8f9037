"""The truncation-mask sweep: clear low bits of the partial sums of a Triton GEMM with a mask until a result changes.

This gives the number of bits in the partial sums at each block-K. `sweeper.sweep` is `accprobe sweep`. It runs
`configurations` of the kernel on the operands, with the masks and the control of `masks`. `kernel` compiles them. A GPU or the
published models (`prediction`) run them.
"""
