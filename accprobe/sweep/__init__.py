"""The truncation-mask sweep: the number of bits in a GEMM's partial sums at each block-K.

`sweeper.sweep` is `accprobe sweep`. It runs `configurations` of a Triton kernel on the operands, with the masks and the control
of `masks`. `kernel` compiles them. A GPU or the published models (`prediction`) run them.
"""
