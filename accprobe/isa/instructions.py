"""Matrix instructions, keyed by their PTX qualifier string, and the architectures that have them.

A name is the PTX opcode without qualifiers that do not change the arithmetic (implied `.sync.aligned`, `.row.col`,
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

tcgen05 takes shape and types from its instruction descriptor, not from qualifiers. accprobe writes them where the other
families have them. m256 is `.cta_group::2`, a smaller m `.cta_group::1`. A processor's instruction is known by its mnemonic
too: `parse("vdpbf16ps")`. A vector instruction has the shape of a register: a row of A with 16 columns of B. Each lane has its
own row and column.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import UnknownName, nearest
from accprobe.isa import architectures, processors
from accprobe.isa.families import FAMILIES, MMA_SYNC, TCGEN05, WGMMA, Family
from accprobe.isa.formats import FORMATS, Format
from accprobe.isa.sparsity import BY_BITS, Sparsity

Kind = Literal["f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"]
BitOp = Literal["xor", "and"]

# Integers.
Factor = TypeVar("Factor", int, NDArray[np.int64])


@dataclass(frozen=True)
class Instruction:
    """One matrix multiply-accumulate of PTX or a processor, D = A·B + C, of shape m x n x k.

    name: the qualifier string, e.g. "mma.sync.m16n8k16.f32.f16.f16.f32" (D, A, B, C) or
    "wgmma.m64n8k32.f32.e4m3.e4m3" (D, A, B; C is D). ".satfinite" follows the shape, as in PTX. A wgmma that takes A from
    registers ends in ".rs" (in PTX the operand shows it, not a qualifier; the word is CUTLASS's).
    k: products a dot product, of the logical (uncompressed) operands.
    kind: the `.kind::` qualifier, where PTX has one.
    mnemonic: the disassembler's name of a processor's instruction: "VDPBF16PS".
    scale, scale_block: the format of the block scales, and how many of the k products share one.
    bit_op: the product of single bits; the sum counts the ones.
    quad_pairs: eight threads hold a tile, so a warp has four tiles (Volta's).
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
        """Return the bits of a register that holds elements of A and B: PTX has f64 in registers of 64."""
        return max(32, self.a.storage_bits)

    @property
    def held_bits(self) -> int:
        """Return the bits of an element of A or B in registers or memory; integers and FP4 of `.kind::mxf4…` are packed."""
        packed = self.is_integer or self.kind in ("mxf4", "mxf4nvf4")
        return self.a.bits if packed else self.a.storage_bits

    @property
    def blocks(self) -> int:
        """Return the thread blocks of a cluster that hold a tile together: two where it has 256 rows."""
        return 2 if self.m == 256 else 1

    @property
    def threads(self) -> int:
        """Return the number of threads that share a tile."""
        return 8 if self.quad_pairs else self.family.threads * self.blocks

    def multiplied(self, a: Factor, b: Factor) -> Factor:
        """Return the products of integers; for single bits, the result of `bit_op`."""
        return a ^ b if self.bit_op == "xor" else a * b

    @property
    def sparsity(self) -> Sparsity | None:
        """Return the pattern of stored elements of A; None if A is dense."""
        return BY_BITS[self.held_bits] if self.sparse else None

    @property
    def stored(self) -> Instruction:
        """Return the dense instruction of the stored products, under the same name; itself if A is dense."""
        if not self.sparse:
            return self
        return replace(self, k=self.k // 2, sparse=False, scale_block=self.scale_block and self.scale_block // 2)


# Instructions, each with the compile targets or processors that have it.
_Listed = Iterator[tuple[Instruction, frozenset[str]]]


def _each(
    family: Family,
    shapes: str,
    types: Iterable[str],
    on: frozenset[str],
    satfinite: Iterable[bool] = (False,),
    sparse: bool = False,
    a_registers: Iterable[bool] = (False,),
    scale_vec: int | None = None,
    scale: str | None = None,
    **facts: Any,
) -> _Listed:
    """Yield the instructions of one line of a PTX ISA syntax table: every shape with every type combination.

    shapes: "m16n8k8 m16n8k16"; types: one "D A B" or "D A B C" for each combination; facts: further fields.
    """
    kind, bit_op = facts.get("kind"), facts.get("bit_op")
    for shape, formats, saturate, registers in product(shapes.split(), map(str.split, types), satfinite, a_registers):
        d, a, b, c = (FORMATS[name] for name in (*formats, formats[0])[:4])
        words = [
            family.sparse_name if sparse else family.name,
            shape,
            "satfinite" * saturate,
            f"kind::{kind}" if kind else "",
            f"scale_vec::{scale_vec}X" if scale_vec else "",
            *formats,
            scale or "",
            f"{bit_op}.popc" if bit_op else "",
            "rs" * registers,
        ]
        m, n, k = _shape(shape)
        facts |= {"scale": FORMATS[scale], "scale_block": k // scale_vec} if scale and scale_vec else {}
        name = ".".join(filter(None, words))
        yield Instruction(name, family, m, n, k, d, a, b, c, saturate, sparse, registers, **facts), on


_FP8 = ("e4m3", "e5m2")
_FP8_6_4 = (*_FP8, "e3m2", "e2m3", "e2m1")
_INT8 = ("s8", "u8")
_INT4 = ("s4", "u4")
_EITHER = (False, True)
_BLOCK_SCALED: tuple[tuple[Kind, int, str], ...] = (
    ("mxf8f6f4", 1, "ue8m0"),
    ("mxf4", 2, "ue8m0"),
    ("mxf4nvf4", 2, "ue8m0"),
    ("mxf4nvf4", 4, "ue8m0"),
    ("mxf4nvf4", 4, "ue4m3"),
)


def _types(
    accumulators: tuple[str, ...], multiplicands: tuple[str, ...], *, mixed: bool = True, c: bool = True
) -> tuple[str, ...]:
    """Return each accumulator with each pair of multiplicands. mixed: A and B may differ; c: append C, which equals D."""
    pairs = product(multiplicands, repeat=2) if mixed else [(t, t) for t in multiplicands]
    return tuple(f"{d} {a} {b}" + f" {d}" * c for (a, b), d in product(pairs, accumulators))


def _since(first: str) -> frozenset[str]:
    every = architectures.targets()
    return frozenset(every[every.index(first) :])


def _mma_sync() -> _Listed:
    """PTX ISA, "Warp Level Matrix Instructions", "Multiply-and-Accumulate Instruction: mma"."""
    both = ("f32", "f16")
    sm70, sm75, sm80, sm89, sm90 = map(_since, ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90"))
    yield from _each(MMA_SYNC, "m8n8k4", ("f16 f16 f16 f16", "f32 f16 f16 f16", "f32 f16 f16 f32"), sm70, quad_pairs=True)
    yield from _each(MMA_SYNC, "m16n8k8", _types(both, ("f16",)), sm75)
    yield from _each(MMA_SYNC, "m16n8k16", _types(both, ("f16",)), sm80)
    yield from _each(MMA_SYNC, "m16n8k8 m16n8k16", _types(("f32",), ("bf16",)), sm80)
    yield from _each(MMA_SYNC, "m16n8k4 m16n8k8", _types(("f32",), ("tf32",)), sm80)
    yield from _each(MMA_SYNC, "m8n8k4", _types(("f64",), ("f64",)), sm80)
    yield from _each(MMA_SYNC, "m16n8k4 m16n8k8 m16n8k16", _types(("f64",), ("f64",)), sm90)
    yield from _each(MMA_SYNC, "m16n8k16 m16n8k32", _types(both, _FP8), sm89)
    yield from _each(MMA_SYNC, "m8n8k16", _types(("s32",), _INT8), sm75, _EITHER)
    yield from _each(MMA_SYNC, "m16n8k16 m16n8k32", _types(("s32",), _INT8), sm80, _EITHER)
    yield from _each(MMA_SYNC, "m8n8k32", _types(("s32",), _INT4), sm75, _EITHER)
    yield from _each(MMA_SYNC, "m16n8k32 m16n8k64", _types(("s32",), _INT4), sm80, _EITHER)
    yield from _each(MMA_SYNC, "m8n8k128", _types(("s32",), ("b1",)), sm75, bit_op="xor")
    yield from _each(MMA_SYNC, "m16n8k128 m16n8k256", _types(("s32",), ("b1",)), sm80, bit_op="xor")
    yield from _each(MMA_SYNC, "m8n8k128 m16n8k128 m16n8k256", _types(("s32",), ("b1",)), sm80, bit_op="and")


def _mma_sp() -> _Listed:
    """PTX ISA, "Warp Level Matrix Instructions", "Multiply-and-Accumulate Instruction: mma.sp / mma.sp::ordered_metadata"."""
    sm80, sm89 = map(_since, ("sm_80", "sm_89"))
    yield from _each(MMA_SYNC, "m16n8k16 m16n8k32", _types(("f32", "f16"), ("f16",)), sm80, sparse=True)
    yield from _each(MMA_SYNC, "m16n8k16 m16n8k32", _types(("f32",), ("bf16",)), sm80, sparse=True)
    yield from _each(MMA_SYNC, "m16n8k8 m16n8k16", _types(("f32",), ("tf32",)), sm80, sparse=True)
    yield from _each(MMA_SYNC, "m16n8k64", _types(("f32",), _FP8), sm89, sparse=True)
    yield from _each(MMA_SYNC, "m16n8k32 m16n8k64", _types(("s32",), _INT8), sm80, _EITHER, sparse=True)
    yield from _each(MMA_SYNC, "m16n8k64 m16n8k128", _types(("s32",), _INT4), sm80, _EITHER, sparse=True)


def _mma_kinds() -> _Listed:
    """PTX ISA, "Block Scaling for mma.sync", and the `.kind` lines of mma and mma.sp.

    ptxas takes `.kind::f8f6f4` with two fp8 operands for sm_100a … sm_110a too; the PTX ISA does not list it there.
    """
    on = frozenset({"sm_120a", "sm_121a"})
    e2m1 = _types(("f32",), ("e2m1",))
    for sparse, k in ((False, 32), (True, 64)):
        mixed, fp4 = f"m16n8k{k}", f"m16n8k{2 * k}"
        yield from _each(MMA_SYNC, mixed, _types(("f32", "f16"), _FP8_6_4), on, sparse=sparse, kind="f8f6f4")
        for kind, scale_vec, scale in _BLOCK_SCALED:
            shape, types = (mixed, _types(("f32",), _FP8_6_4)) if kind == "mxf8f6f4" else (fp4, e2m1)
            yield from _each(MMA_SYNC, shape, types, on, sparse=sparse, kind=kind, scale_vec=scale_vec, scale=scale)


def _wgmma() -> _Listed:
    """PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions", "wgmma.mma_async" and "wgmma.mma_async.sp"."""
    on = frozenset({"sm_90a"})
    for sparse, factor in ((False, 1), (True, 2)):
        for k, accumulators, multiplicands, mixed, satfinite in (
            (16, ("f32", "f16"), ("f16",), False, (False,)),
            (16, ("f32",), ("bf16",), False, (False,)),
            (8, ("f32",), ("tf32",), False, (False,)),
            (32, ("f32", "f16"), _FP8, True, (False,)),
            (32, ("s32",), _INT8, True, _EITHER),
        ):
            shapes = f"m64n8k{k * factor} m64n256k{k * factor}"
            types = _types(accumulators, multiplicands, mixed=mixed, c=False)
            yield from _each(WGMMA, shapes, types, on, satfinite, sparse, _EITHER)
    b1 = _types(("s32",), ("b1",), c=False)
    yield from _each(WGMMA, "m64n8k256 m64n256k256", b1, on, a_registers=_EITHER, bit_op="and")


def _tcgen05() -> _Listed:
    """PTX ISA, "TensorCore 5th Generation Family Instructions", "Matrix Shape" and "Block Scaling".

    K = 96 is listed there with M = 256 alone; CUTLASS has it with M = 128 too (SM103_MXF4_ULTRA_SS_VS).
    """
    on = frozenset({"sm_100a", "sm_101a", "sm_103a", "sm_110a"})
    e2m1 = _types(("f32",), ("e2m1",), c=False)
    f8f6f4 = _types(("f32", "f16"), _FP8_6_4, c=False)
    for sparse, factor in ((False, 1), (True, 2)):

        def shapes(k: int, factor: int = factor) -> str:
            return f"m128n16k{k * factor} m256n256k{k * factor}"

        f16 = ("f32 f16 f16", "f16 f16 f16", "f32 bf16 bf16")
        int8 = _types(("s32",), _INT8, c=False)
        yield from _each(TCGEN05, shapes(16), f16, on, sparse=sparse, kind="f16")
        yield from _each(TCGEN05, shapes(8), ("f32 tf32 tf32",), on, sparse=sparse, kind="tf32")
        yield from _each(TCGEN05, shapes(32), f8f6f4, on, sparse=sparse, kind="f8f6f4")
        yield from _each(TCGEN05, shapes(32), int8, on - {"sm_103a"}, _EITHER, sparse=sparse, kind="i8")
        for kind, scale_vec, scale in _BLOCK_SCALED:
            k, types = (32, _types(("f32",), _FP8_6_4, c=False)) if kind == "mxf8f6f4" else (64, e2m1)
            yield from _each(TCGEN05, shapes(k), types, on, sparse=sparse, kind=kind, scale_vec=scale_vec, scale=scale)
    for kind, scale_vec, scale in _BLOCK_SCALED[1:]:
        k96 = "m128n16k96 m256n256k96"
        yield from _each(TCGEN05, k96, e2m1, frozenset({"sm_103a"}), kind=kind, scale_vec=scale_vec * 3 // 2, scale=scale)


def _of_processors() -> _Listed:
    families = {family.name: family for family in FAMILIES}
    for each in processors.MNEMONICS:
        on, saturates = frozenset(architectures.PROCESSORS), (each.saturates,)
        yield from _each(families[each.family], each.shape, (each.types,), on, saturates, mnemonic=each.mnemonic)


@cache
def _known() -> dict[Instruction, frozenset[str]]:
    """Return every listed instruction with the compile targets or processors that have it."""
    return dict((*_mma_sync(), *_mma_sp(), *_mma_kinds(), *_wgmma(), *_tcgen05(), *_of_processors()))


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
    if not isinstance(name, str):
        raise UnknownName(f"{name!r:.40} is not a string; give the name of an instruction")
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
