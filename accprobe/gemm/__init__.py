"""Whole matrix products: infer the arithmetic of any matmul callable by probing it as a black box."""
