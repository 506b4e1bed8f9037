"""Scalar functions: the result bits of instructions and elementwise callables for each operand, and models of them."""
