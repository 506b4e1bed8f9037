"""Comparison of a model with a device, or with recorded results, bit for bit."""

from accprobe.verify.bulk import verify

__all__ = ["verify"]
