"""Functional coverage: what a model's sums can do, what dot products made them do, and operands for the rest."""

from accprobe.verify.coverage.coverage import Coverage, cover, together

__all__ = ["Coverage", "cover", "together"]
