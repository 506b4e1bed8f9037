"""The truncation-mask sweep: how many bits a GEMM's partial sums have, at each block-K, and what limits the result.

`sweeper.sweep` is `accprobe sweep`. Noun by noun: what is swept (`configurations`), on what (`operands`), with which masks and
against which control (`masks`), compiled by Triton (`compilation`), run on a GPU (`gpu`) or by published models (`prediction`).
"""
