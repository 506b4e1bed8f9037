"""Numerical cost of a matrix product: errors, promotion intervals, error bounds and test tolerances."""
