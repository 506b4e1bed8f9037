"""A model against a device, or against recorded results, bit for bit."""

from accprobe.verify.random import verify

__all__ = ["verify"]
