"""Number formats, architectures, matrix instructions and their SASS opcodes."""

from accprobe.isa.instructions import Instruction, catalog, parse

__all__ = ["Instruction", "catalog", "parse"]
