"""The evaluator on a GPU: CUDA C++ generated from a model."""
