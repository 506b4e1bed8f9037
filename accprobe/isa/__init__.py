"""What exists: number formats, architectures, and the matrix instructions that they have."""

from accprobe.isa.instructions import Instruction, catalog, parse

__all__ = ["Instruction", "catalog", "parse"]
