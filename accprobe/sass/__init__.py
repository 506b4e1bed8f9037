"""Machine code of a cubin: its functions, opcodes, control flow, conversions and promotion."""
