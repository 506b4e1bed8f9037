"""Bit-exact evaluation of models."""

from accprobe.evaluate.evaluator import evaluate

__all__ = ["evaluate"]
