"""Matrix opcodes of SASS: the shape, types and sparsity in their names, and the unit that executes them.

NVIDIA does not document the names. They follow from the SASS that ptxas emits for PTX instructions of known shape and types.
The tests compare them with every probe's disassembly.

    HMMA.16816.F32.BF16           m16n8k16, D f32, A and B bf16 (f16 where no format is named)
    HMMA.SP.16832.F32             2:4 sparse, k counts logical products
    IMMA.16832.S8.U8.SAT          D s32, saturating
    HMMA.884.F32.F16.STEP2        Volta's m8n8k4 in steps: D f32, C f16
    BMMA.168256.XOR.POPC          single bits
    QGMMA.64x128x32.F32.E4M3.E5M2 executed by a warpgroup
    DMMA.8x8x4, DMMA.884          D, A and B f64
    QMMA.SF.16832.F32.E4M3.E2M1.E8, OMMA.SF.16864.F32.E2M1.E2M1.UE4M3.4X   block-scaled
    UTCQMMA                       fifth generation: shape, types and sparsity are in a descriptor that is made at run time
    UTCQMMA.2CTA                  two thread blocks hold the tile

An opcode's stem is [UTC] LETTER [G] MMA, as in HMMA, QGMMA, UTCQMMA. The letter is the unit, G marks a warpgroup's instruction
and UTC the fifth generation. Operands of other formats are converted first, and then added like the unit's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Literal

from accprobe.isa.families import FAMILIES, Family
from accprobe.isa.formats import FORMATS
from accprobe.isa.instructions import Instruction

MULTIPLIES = frozenset({"FFMA", "FFMA2", "FMUL", "FMUL2", "HFMA2", "HMUL2", "DFMA", "DMUL"})


_UNITS = {family.stem(unit): (family, unit) for family in FAMILIES for unit in family.units}

STEMS = tuple(_UNITS)
"""The opcodes without modifiers."""

MATRIX = re.compile(f"(?:{'|'.join(STEMS)})(?![A-Z])")
"""Opcodes of matrix units, HMMA … (warp), HGMMA … (warpgroup), UTCHMMA … (fifth generation), and processors' mnemonics."""

Kind = tuple[str, str, str, str, bool]
"""The parts of an opcode that decide its arithmetic, for any shape: stem, D, A, B, sparsity."""

_SHAPE = re.compile(r"(\d+)x(\d+)x(\d+)|(8|16)8(\d+)")


@dataclass(frozen=True)
class MatrixOpcode:
    """One matrix opcode. m, n, k: its shape, 0 if the name does not have it; d, a, b: names of formats, "" likewise."""

    stem: str
    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    sparse: bool
    scaled: bool
    saturates: bool

    @property
    def family(self) -> Family:
        return _UNITS[self.stem][0]

    @property
    def is_integer(self) -> bool:
        return self.d == "s32" or self.stem == "UTCIMMA"

    @property
    def kind(self) -> Kind:
        return (self.stem, self.d, self.a, self.b, self.sparse)

    @property
    def accumulator_registers(self) -> int:
        """Return the 32-bit registers per thread of D and of C; 0 if the sum is in tensor memory."""
        bits = self.m * self.n * FORMATS[self.d].storage_bits if self.d else 0
        return max(1, bits // (32 * self.family.threads)) if bits else 0


@cache
def parse(text: str) -> MatrixOpcode:
    """Parse the name of a matrix opcode; `text` matches MATRIX."""
    stem, *words = text.split(".")
    shape = next(filter(None, map(_SHAPE.fullmatch, words)), None)
    m, n, k = _shape(shape) if shape else (0, 0, 0)
    named = [word.lower() for word in words if word.lower() in FORMATS]
    d, a, b = _formats(stem, shape[0], named) if shape else ("", "", "")
    return MatrixOpcode(stem, m, n, k, d, a, b, "SP" in words, "SF" in words, "SAT" in words)


@cache
def is_matrix(opcode: str) -> bool:
    """Return whether the opcode matches MATRIX."""
    return MATRIX.match(opcode) is not None


def kind_of(inst: Instruction) -> Kind:
    """Return the kind of opcode that the unit of the instruction's own operand formats has, as far as its name shows."""
    if inst.mnemonic:
        return (inst.mnemonic, inst.d.name, inst.a.name, inst.b.name, False)
    unit = "Q" if inst.kind in ("f8f6f4", "mxf8f6f4") else letter({inst.a.name, inst.b.name})
    if not inst.family.typed_opcode:
        return (inst.family.stem(unit), "", "", "", False)
    return (inst.family.stem(unit), inst.d.name, inst.a.name, inst.b.name, inst.sparse)


def _shape(found: re.Match[str]) -> tuple[int, int, int]:
    if found[1]:
        return int(found[1]), int(found[2]), int(found[3])
    return int(found[4]), 8, int(found[5])


def _formats(stem: str, shape: str, named: list[str]) -> tuple[str, str, str]:
    """Return D, A and B. Names leave out the only or usual format of a unit; Volta's steps name D and C."""
    _, letter = _UNITS[stem]
    if letter == "D":
        return "f64", "f64", "f64"
    if letter == "H" and shape == "884":
        return named[0], "f16", "f16"
    if letter in "BI":
        a, b = (*named, "b1", "b1")[:2] if letter == "B" else (*named, "s8", "s8")[:2]
        return "s32", a, b
    d, *rest = named or ["f32"]
    a, b = (*rest, *rest, "f16", "f16")[:2] if len(rest) < 2 else rest[:2]
    return d, a, b


_NATIVE: dict[str, frozenset[str]] = {
    "B": frozenset({"b1"}),
    "D": frozenset({"f64"}),
    "H": frozenset({"f16", "bf16", "tf32"}),
    "I": frozenset({"s8", "u8", "s4", "u4"}),
    "O": frozenset({"e2m1"}),
    "Q": frozenset({"e4m3", "e5m2", "e3m2", "e2m3", "e2m1"}),
}


def letter(formats: set[str]) -> str:
    """Return the letter of the first unit that takes all of these operand formats without conversion."""
    return next(letter for letter, native in _NATIVE.items() if formats <= native)


def stem(opcode: str) -> str:
    """Return the opcode without modifiers: "HMMA" of "HMMA.16816.F32"."""
    return opcode.partition(".")[0]


def relation(inst: Instruction, opcode: str) -> Literal["native", "converted", "foreign"]:
    """Return the relation of a matrix opcode's unit to the PTX instruction.

    "native": the unit takes the operand formats. "converted": a unit of the instruction's family takes other formats, or
    operands that were widened for it. "foreign": a unit of another family, another mnemonic of a
    processor, or no matrix unit.
    """
    found, unit = _UNITS.get(stem(opcode), (None, ""))
    if found is not inst.family or (inst.mnemonic and unit != inst.mnemonic):
        return "foreign"
    if inst.mnemonic:
        return "native"
    named = FORMATS.get(parse(opcode).a)
    same = named is None or named.bits == inst.a.bits
    return "native" if same and {inst.a.name, inst.b.name} <= _NATIVE[unit] else "converted"
