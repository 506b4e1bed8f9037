"""Functional coverage: the events of a model's sums, those that dot products reached, and operands for the others."""

from accprobe.verify.coverage.coverage import Coverage, cover

__all__ = ["Coverage", "cover"]
