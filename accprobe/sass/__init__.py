"""Machine code of a cubin: its functions, opcodes, control flow and promotion."""
