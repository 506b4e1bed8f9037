"""What an instruction computes: summation trees, the fields of their arithmetic, and the models that are published."""

from accprobe.model.tree import DotModel, FusedSum

__all__ = ["DotModel", "FusedSum"]
