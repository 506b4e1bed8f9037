"""The truncation-mask sweep: the number of bits in a GEMM's partial sums at each block-K.

`sweeper.sweep` is `accprobe sweep`. It runs `configurations` of a Triton kernel on the operands, with the masks and the control
of `masks`; `compilation` compiles them, and `gpu` or the published models (`prediction`) run them.
"""
