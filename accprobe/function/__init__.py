"""Scalar functions: instructions and elementwise callables, from words to words; sums as functions of one array."""
