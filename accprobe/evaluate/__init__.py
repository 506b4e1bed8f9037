"""The model's numbers: what a `DotModel` makes of operands, bit for bit."""

from accprobe.evaluate.evaluator import evaluate

__all__ = ["evaluate"]
