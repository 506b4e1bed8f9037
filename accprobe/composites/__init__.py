"""Reductions with scalar functions around a sum: rms_norm, softmax and norm as a summation tree and the steps beside it."""
