"""Tensor memory of the fifth generation: the instruction descriptor and the columns of a tile.

PTX ISA, "TensorCore 5th Generation Family Instructions", "Instruction descriptor". Nothing here has run on hardware;
`accprobe.verify.onehot` checks every probe before its first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction

# Code of each format of A and B, by kind.
OPERAND_CODES: dict[str, dict[str, int]] = {
    "f16": {"f16": 0, "bf16": 1},
    "tf32": {"tf32": 2},
    "i8": {"u8": 0, "s8": 1},
    "f8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "mxf8f6f4": {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5},
    "mxf4": {"e2m1": 1},
    "mxf4nvf4": {"e2m1": 1},
}

RESULT_CODES = {"f16": 0, "f32": 1, "s32": 2}
SCALE_CODES = {"ue4m3": 0, "ue8m0": 1}

# Columns of up to four scales of 128 rows of A or columns of B; 32 lanes hold the scales of 32.
SCALE_COLUMNS = 4

# Columns reserved for the metadata of 128 rows of a sparse A: it takes one or two, at a multiple of four.
METADATA_COLUMNS = 4

# Smallest allocation of tensor memory; larger ones are powers of two.
LEAST_COLUMNS = 32


def instruction_descriptor(inst: Instruction) -> int:
    """Return the 32-bit descriptor of shape and types; operands are not negated or transposed, the sparsity selector is 0.

    Raises AccprobeError if the instruction has no descriptor.
    """
    codes = OPERAND_CODES.get(inst.kind or "", {})
    if inst.a.name not in codes or inst.b.name not in codes:
        raise AccprobeError(f"{inst.name} has no instruction descriptor")
    shape = inst.n // 8 << 17 | inst.sparse << 2
    operands = codes[inst.a.name] << 7 | codes[inst.b.name] << 10
    if inst.scale is not None:
        return shape | operands | SCALE_CODES[inst.scale.name] << 23 | inst.m // 128 << 27 | (inst.k == 96) << 31
    return shape | operands | RESULT_CODES[inst.d.name] << 4 | inst.satfinite << 3 | inst.m // 16 << 24


def columns(inst: Instruction) -> int:
    """Return the columns of tensor memory for D and, behind it, for metadata and for the scales of A and of B."""
    scales = -(-inst.k // inst.scale_block // 4) * SCALE_COLUMNS * (1 - -inst.n // 128) if inst.scale_block else 0
    needed = inst.n + METADATA_COLUMNS * inst.sparse + scales
    return max(LEAST_COLUMNS, 1 << (needed - 1).bit_length())
