"""Matrix instructions, keyed by their PTX qualifier string, and the architectures that have them.

A name is the PTX opcode without the qualifiers that do not change the arithmetic (`.sync.aligned` where implied, `.row.col`,
`.block_scale` next to a block-scaled kind), in this order:

    FAMILY .SHAPE [.satfinite] [.kind::KIND] [.scale_vec::NX] .D.A.B[.C] [.SCALE] [.OP.popc] [.rs]

    mma.sync.m16n8k16.f32.f16.f16.f32                                      D, A, B, C
    mma.sync.m16n8k32.satfinite.s32.s8.u8.s32                              integer, saturating
    mma.sync.m16n8k256.s32.b1.b1.s32.xor.popc                              single-bit
    mma.sync.m16n8k32.kind::f8f6f4.f32.e4m3.e2m1.f32                       mixed 8-, 6- and 4-bit
    mma.sync.m16n8k64.kind::mxf4nvf4.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3 block-scaled
    mma.sp.m16n8k32.f32.f16.f16.f32                                        2:4 sparse A; k counts logical products
    wgmma.m64n8k32.f32.e4m3.e4m3, wgmma.sp.m64n8k64.f32.e4m3.e4m3          D, A, B; C is D
    wgmma.m64n8k16.f32.f16.f16.rs                                          A from registers
    tcgen05.m128n16k32.kind::f8f6f4.f32.e4m3.e5m2                          D, A, B; C is D
    avx512.m1n16k2.f32.bf16.bf16, amx.m16n16k64.s32.u8.s8                  a processor's own; D, A, B; C is D

tcgen05 takes shape and types from its instruction descriptor, not from qualifiers; accprobe writes them where the other
families have them. m256 is `.cta_group::2`, a smaller m `.cta_group::1`. A processor's instruction is known by its mnemonic
too: `parse("vdpbf16ps")`. Its shape is that of a register: a row of A with 16 columns of B, of which each lane has its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import UnknownName, nearest
from accprobe.isa import architectures
from accprobe.isa.families import Family
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.sparsity import BY_BITS, Sparsity
from accprobe.isa.tables import BitOp, Kind, Table, every_table

# Integers.
Factor = TypeVar("Factor", int, NDArray[np.int64])


@dataclass(frozen=True)
class Instruction:
    """One PTX matrix multiply-accumulate, D = A·B + C, of shape m x n x k.

    name: the qualifier string, e.g. "mma.sync.m16n8k16.f32.f16.f16.f32" (D, A, B, C) or
    "wgmma.m64n8k32.f32.e4m3.e4m3" (D, A, B; C is D). ".satfinite" follows the shape, as in PTX. A wgmma that takes A from
    registers ends in ".rs" (in PTX the operand shows it, not a qualifier; the word is CUTLASS's).
    k: products a dot product, of the logical (uncompressed) operands.
    kind: the `.kind::` qualifier, where PTX has one.
    mnemonic: the disassembler's name of a processor's instruction: "VDPBF16PS".
    scale, scale_block: the format of the block scales, and how many of the k products share one.
    bit_op: the product of single bits; the sum counts the ones.
    quad_pairs: eight threads of a warp hold a tile, which thus has four (Volta's).
    """

    name: str
    family: Family
    m: int
    n: int
    k: int
    d: Format
    a: Format
    b: Format
    c: Format
    satfinite: bool = False
    sparse: bool = False
    a_registers: bool = False
    scale: Format | None = None
    scale_block: int | None = None
    bit_op: BitOp | None = None
    kind: Kind | None = None
    quad_pairs: bool = False
    mnemonic: str | None = None

    def __str__(self) -> str:
        return self.name

    def __hash__(self) -> int:
        return hash(self.name)

    @property
    def is_integer(self) -> bool:
        return self.d.is_integer

    @property
    def register_bits(self) -> int:
        """Bits of a register that holds elements of A and B: PTX has f64 in registers of 64."""
        return max(32, self.a.storage_bits)

    @property
    def held_bits(self) -> int:
        """Return the bits of an element of A or B in registers or memory, where only integers and FP4 are packed."""
        packed = self.is_integer or self.kind in ("mxf4", "mxf4nvf4")
        return self.a.bits if packed else self.a.storage_bits

    @property
    def blocks(self) -> int:
        """Thread blocks of a cluster that hold a tile together: two where it has 256 rows."""
        return 2 if self.m == 256 else 1

    @property
    def threads(self) -> int:
        """Number of threads that share a tile."""
        return 8 if self.quad_pairs else self.family.threads * self.blocks

    def multiplied(self, a: Factor, b: Factor) -> Factor:
        """Return the products of integers; for single bits, the result of `bit_op`."""
        return a ^ b if self.bit_op == "xor" else a * b

    @property
    def sparsity(self) -> Sparsity | None:
        """Which elements of A are stored; None if A is dense."""
        return BY_BITS[self.held_bits] if self.sparse else None

    @property
    def stored(self) -> Instruction:
        """Return the dense instruction of the stored products, under the same name; itself if A is dense."""
        if not self.sparse:
            return self
        return replace(self, k=self.k // 2, sparse=False, scale_block=self.scale_block and self.scale_block // 2)


def _of_table(table: Table) -> Iterator[Instruction]:
    """Yield every shape of a table with every type combination."""
    for shape, types, saturate, registers in product(table.shapes.split(), table.types, table.satfinite, table.a_registers):
        yield _instruction(table, shape, types, saturate, registers)


def _instruction(table: Table, shape: str, types: str, saturate: bool, registers: bool) -> Instruction:
    formats = types.split()
    d, a, b, c = (FORMATS[name] for name in (*formats, formats[0])[:4])
    words = [
        table.family.sparse_name if table.sparse else table.family.name,
        shape,
        "satfinite" * saturate,
        f"kind::{table.kind}" if table.kind else "",
        f"scale_vec::{table.scale_vec}X" if table.scale_vec else "",
        *formats,
        table.scale or "",
        f"{table.bit_op}.popc" if table.bit_op else "",
        "rs" * registers,
    ]
    m, n, k = _shape(shape)
    return replace(
        Instruction(".".join(filter(None, words)), table.family, m, n, k, d, a, b, c),
        satfinite=saturate,
        sparse=table.sparse,
        a_registers=registers,
        scale=FORMATS[table.scale] if table.scale else None,
        scale_block=k // table.scale_vec if table.scale_vec else None,
        bit_op=table.bit_op,
        kind=table.kind,
        quad_pairs=table.quad_pairs,
        mnemonic=table.mnemonic,
    )


@cache
def _known() -> dict[Instruction, frozenset[str]]:
    """Return every listed instruction with the compile targets or processors that have it."""
    return {instruction: table.on for table in every_table() for instruction in _of_table(table)}


@cache
def _by_name() -> dict[str, Instruction]:
    return {instruction.name: instruction for instruction in _known()}


@cache
def _by_mnemonic() -> dict[str, Instruction]:
    return {instruction.mnemonic: instruction for instruction in _known() if instruction.mnemonic}


@cache
def catalog(architecture: str) -> tuple[Instruction, ...]:
    """Return every matrix instruction of a compile target ("sm_90a" has wgmma, "sm_90" not) or processor architecture.
    Raises UnknownName.

    wgmma (n from 8 to 256) and tcgen05 are listed with two values of n; `parse` accepts the others of wgmma too.
    """
    known = (*architectures.PROCESSORS, *architectures.targets())
    if architecture not in known:
        raise architectures.unknown(architecture, known)
    return tuple(instruction for instruction, on in _known().items() if architecture in on)


def architectures_with(inst: Instruction) -> tuple[str, ...]:
    """Return the compile targets or processors that have `inst`, in order: ("sm_90a",)."""
    on = _known()[_listed(inst.name) or inst]
    return tuple(target for target in (*architectures.targets(), *architectures.PROCESSORS) if target in on)


def in_a_row(inst: Instruction, chain: int) -> Instruction:
    """Return one instruction for a chain of `inst`, each adding to the one before; k is numbered through the chain."""
    return replace(inst, k=chain * inst.k)


def alike_but_n(inst: Instruction, among: Iterable[Instruction]) -> list[Instruction]:
    """Return the instructions that differ from `inst` in n only, the nearest first."""
    alike = [other for other in among if other == replace(inst, name=other.name, n=other.n)]
    return sorted(alike, key=lambda other: abs(other.n - inst.n))


@cache
def parse(name: str) -> Instruction:
    """Return the instruction of that name: accprobe's own, the full PTX opcode or a processor's mnemonic.

    Raises UnknownName that names the nearest.

    For wgmma every n of PTX parses, not only the two listed ones.
    """
    if name.strip().upper() in _by_mnemonic():
        return _by_mnemonic()[name.strip().upper()]
    canonical = _canonical(name)
    if canonical in _by_name():
        return _by_name()[canonical]
    listed = _listed(canonical)
    if listed is None:
        raise UnknownName(f"unknown instruction '{name}'; {nearest(canonical, _by_name())}")
    n = _shape(canonical)[1]
    return replace(listed, name=listed.name.replace(f"n{listed.n}k", f"n{n}k"), n=n)


def _canonical(name: str) -> str:
    """Return `name` without the qualifiers that accprobe omits, the rest in accprobe's order."""
    head, *words = name.strip().replace("sp::ordered_metadata", "sp").split(".")
    shape = next(filter(_SHAPE.fullmatch, words), "")
    if head == "mma" and "sync" in words and "sp" not in words:
        head = "mma.sync"
    layouts = [word for word in words if word in ("row", "col")]
    if layouts == ["row", "col"] or shape == "m8n8k4":
        words = [word for word in words if word not in layouts]
    kind = next((word for word in words if word.startswith("kind::")), "")
    scale_vec = next((word for word in words if word.startswith("scale_vec::")), _DEFAULT_SCALE_VEC.get(kind, ""))
    in_order = ("sp" * ("sp" in words), shape, "satfinite" * ("satfinite" in words), kind, scale_vec)
    first = [word for word in in_order if word]
    rest = [word for word in words if word not in ("sync", "aligned", "mma_async", "block_scale", *first)]
    return ".".join([head, *first, *rest])


def _listed(name: str) -> Instruction | None:
    """Return the listed wgmma that differs from `name` in n only, if PTX has that n."""
    if not name.startswith("wgmma.") or not _SHAPE.search(name):
        return None
    m, n, k = _shape(name)
    listed = _by_name().get(name.replace(f"m{m}n{n}k{k}", f"m{m}n8k{k}"))
    return listed if listed and n in (_INTEGER_N if listed.is_integer else _FLOAT_N) else None


# Default of `.scale_vec_size` (PTX ISA, "Block Scaling for mma.sync").
_DEFAULT_SCALE_VEC = {"kind::mxf8f6f4": "scale_vec::1X", "kind::mxf4": "scale_vec::2X"}
_FLOAT_N, _INTEGER_N = range(8, 257, 8), (8, 16, 24, *range(32, 257, 16))  # Each n of wgmma.
_SHAPE = re.compile(r"\bm([1-9]\d*)n([1-9]\d*)k([1-9]\d*)\b")


def _shape(name: str) -> tuple[int, int, int]:
    m, n, k = _SHAPE.findall(name)[0]
    return int(m), int(n), int(k)
