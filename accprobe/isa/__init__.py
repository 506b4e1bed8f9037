"""Number formats, architectures and matrix instructions."""

from accprobe.isa.instructions import Instruction, catalog, parse

__all__ = ["Instruction", "catalog", "parse"]
