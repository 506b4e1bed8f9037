"""Families of matrix instructions; the record of a family holds everything that distinguishes it.

To add a family, add a record here and its lines in `accprobe.isa.instructions`; with device code, also the record's `Probe`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from accprobe.isa import processors, ptx

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction


@dataclass(frozen=True)
class Probe:
    """The device code that runs a family's instructions. file: code for independent dot products; that for matrix products is
    "product_" and this name. product_tiles: tiles of a matrix product, side by side, that the threads of one tile compute; 0
    without such code. takes: whether the device code lays out the operands of that instruction. multiply: the macro MULTIPLY,
    from its parameters on, given the registers that a lane holds of each operand. constants: further macros of this device
    code. golden: whether "golden_" and this name is device code for chains with known results.
    """

    file: str
    product_tiles: int
    takes: Callable[[Instruction], bool]
    multiply: Callable[[Instruction, Mapping[str, int]], str]
    constants: Callable[[Instruction], Mapping[str, int]] = lambda _: {}
    golden: bool = False


@dataclass(frozen=True, eq=False)
class Family:
    """One family of matrix instructions.

    name: prefix of its instructions' names; sparse_name: prefix of those with a sparse A.
    since: the first compute capability that has it; of several families for one role, the latest is the one offered.
    threads: number of threads that share a tile.
    in_registers: operands of "abcd" that lanes hold in registers, besides A where an instruction's name says so.
    adds_to_d: D is the addend too; in PTX, a flag of the instruction leaves it out.
    converts: where an architecture has no unit for the operand formats, it becomes conversions and opcodes of another unit.
    promoted_by_triton: `max_num_imprecise_acc` of `tl.dot` has an effect on its 8-bit floats.
    opcode: the stem of its SASS, {} being the letter of the unit; units: the letters. For a processor, the units are the
        mnemonics.
    lanes: each element of the tile has its own operands, as a lane of a vector register has.
    typed_opcode: the opcode's name says its shape and types; otherwise they are in a descriptor that is made at run time.
    """

    name: str
    units: Sequence[str]
    opcode: str = "{}"
    sparse_name: str = ""
    since: tuple[int, int] = (0, 0)
    threads: int = 1
    in_registers: str = ""
    adds_to_d: bool = True
    converts: bool = False
    promoted_by_triton: bool = False
    typed_opcode: bool = False
    probe: Probe | None = None
    lanes: bool = False

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> str:
        """Pickle the name of the constant, so that another process has the same record."""
        return self.name.upper().replace(".", "_")

    @property
    def warps(self) -> int:
        return self.threads // 32

    def stem(self, unit: str) -> str:
        """Return the opcode without modifiers of the unit with that letter: "QGMMA"."""
        return self.opcode.format(unit)


def registers(inst: Instruction) -> dict[str, int]:
    """Return how many registers of `inst.register_bits` a lane holds of A, B, C and D; 0 for operands in memory."""
    in_lanes = inst.family.in_registers + "a" * inst.a_registers
    bits = {
        "a": inst.m * inst.stored.k * inst.held_bits,
        "b": inst.n * inst.k * inst.held_bits,
        "c": inst.m * inst.n * inst.c.storage_bits,
        "d": inst.m * inst.n * inst.d.storage_bits,
    }
    lanes_bits = inst.threads * inst.register_bits
    return {operand: of_tile // lanes_bits if operand in in_lanes else 0 for operand, of_tile in bits.items()}


def _fragments_of_a_warp(inst: Instruction) -> bool:
    """Return whether mma_sync.cu lays out the fragments: of one tile of a warp, or of the four of quad pairs."""
    words = inst.stored.k * inst.held_bits // inst.register_bits
    return inst.m in (8, 16) and inst.n == 8 and (inst.quad_pairs or words % 4 == 0)


def _core_matrices(inst: Instruction) -> bool:
    """Return whether rows of 32 bytes of K fit, without swizzle."""
    return inst.m == 64 and inst.n % 8 == 0 and inst.stored.k * inst.held_bits == 256


def _rows_in_lanes(inst: Instruction) -> bool:
    """Return whether each thread block has 128 rows, and rows of A with 32 or 48 bytes of K in shared memory."""
    whole = inst.m == 128 * inst.blocks and inst.n % (16 * inst.blocks) == 0
    return whole and inst.stored.k * inst.held_bits in (256, 384)


def _tensor_memory(inst: Instruction) -> dict[str, int]:
    bits = {"A_BITS": inst.a.bits, "B_BITS": inst.b.bits, "BLOCKS_OF_TILE": inst.blocks}
    return bits | {"DESCRIPTOR": ptx.instruction_descriptor(inst), "COLUMNS": ptx.columns(inst)}


MMA_SYNC = Family(
    "mma.sync",
    "BDHIOQ",
    "{}MMA",
    sparse_name="mma.sp",
    since=(7, 0),
    threads=32,
    in_registers="abcd",
    typed_opcode=True,
    adds_to_d=False,
    converts=True,
    probe=Probe("mma_sync.cu", 8, _fragments_of_a_warp, ptx.mma_sync, golden=True),
)
WGMMA = Family(
    "wgmma",
    "BHIQ",
    "{}GMMA",
    sparse_name="wgmma.sp",
    since=(9, 0),
    threads=128,
    in_registers="cd",
    typed_opcode=True,
    promoted_by_triton=True,
    probe=Probe("wgmma.cu", 1, _core_matrices, ptx.wgmma, golden=True),
)
TCGEN05 = Family(
    "tcgen05",
    "HIOQ",
    "UTC{}MMA",
    sparse_name="tcgen05.sp",
    since=(10, 0),
    threads=128,
    probe=Probe("tcgen05.cu", 0, _rows_in_lanes, ptx.tcgen05, _tensor_memory),
)


def _of_processor(name: str, lanes: bool = False) -> Family:
    """Return a family with the mnemonics as units. `converts` is false: an assembler makes no other opcode of a mnemonic."""
    return Family(name, [each.mnemonic for each in processors.MNEMONICS if each.family == name], lanes=lanes)


AVX512, AMX = _of_processor("avx512", lanes=True), _of_processor("amx")
FAMILIES = (MMA_SYNC, WGMMA, TCGEN05, AVX512, AMX)
