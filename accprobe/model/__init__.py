"""Models of instructions: summation trees, the fields of their arithmetic, and published models."""

from accprobe.model.tree import DotModel, FusedSum

__all__ = ["DotModel", "FusedSum"]
