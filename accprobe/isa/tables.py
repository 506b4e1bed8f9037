"""The syntax tables of the PTX ISA, and the mnemonics of processors, as tables: the instructions of each family.

`accprobe.isa.instructions` builds names and instructions from them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Literal

from accprobe.isa import architectures, processors
from accprobe.isa.families import FAMILIES, MMA_SYNC, TCGEN05, WGMMA, Family

Kind = Literal["f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4"]
BitOp = Literal["xor", "and"]


@dataclass(frozen=True)
class Table:
    """One line of a PTX ISA syntax table: every shape with every type combination.

    shapes: "m16n8k8 m16n8k16"; types: one "D A B" or "D A B C" for each combination; on: compile targets.
    """

    family: Family
    shapes: str
    types: tuple[str, ...]
    on: frozenset[str]
    satfinite: tuple[bool, ...] = (False,)
    sparse: bool = False
    a_registers: tuple[bool, ...] = (False,)
    kind: Kind | None = None
    scale_vec: int | None = None
    scale: str | None = None
    bit_op: BitOp | None = None
    quad_pairs: bool = False
    mnemonic: str | None = None


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


def _mma_sync() -> Iterator[Table]:
    """PTX ISA, "Warp Level Matrix Instructions", "Multiply-and-Accumulate Instruction: mma"."""
    both = ("f32", "f16")
    sm70, sm75, sm80, sm89, sm90 = map(_since, ("sm_70", "sm_75", "sm_80", "sm_89", "sm_90"))
    yield Table(MMA_SYNC, "m8n8k4", ("f16 f16 f16 f16", "f32 f16 f16 f16", "f32 f16 f16 f32"), sm70, quad_pairs=True)
    yield Table(MMA_SYNC, "m16n8k8", _types(both, ("f16",)), sm75)
    yield Table(MMA_SYNC, "m16n8k16", _types(both, ("f16",)), sm80)
    yield Table(MMA_SYNC, "m16n8k8 m16n8k16", _types(("f32",), ("bf16",)), sm80)
    yield Table(MMA_SYNC, "m16n8k4 m16n8k8", _types(("f32",), ("tf32",)), sm80)
    yield Table(MMA_SYNC, "m8n8k4", _types(("f64",), ("f64",)), sm80)
    yield Table(MMA_SYNC, "m16n8k4 m16n8k8 m16n8k16", _types(("f64",), ("f64",)), sm90)
    yield Table(MMA_SYNC, "m16n8k16 m16n8k32", _types(both, _FP8), sm89)
    yield Table(MMA_SYNC, "m8n8k16", _types(("s32",), _INT8), sm75, _EITHER)
    yield Table(MMA_SYNC, "m16n8k16 m16n8k32", _types(("s32",), _INT8), sm80, _EITHER)
    yield Table(MMA_SYNC, "m8n8k32", _types(("s32",), _INT4), sm75, _EITHER)
    yield Table(MMA_SYNC, "m16n8k32 m16n8k64", _types(("s32",), _INT4), sm80, _EITHER)
    yield Table(MMA_SYNC, "m8n8k128", _types(("s32",), ("b1",)), sm75, bit_op="xor")
    yield Table(MMA_SYNC, "m16n8k128 m16n8k256", _types(("s32",), ("b1",)), sm80, bit_op="xor")
    yield Table(MMA_SYNC, "m8n8k128 m16n8k128 m16n8k256", _types(("s32",), ("b1",)), sm80, bit_op="and")


def _mma_sp() -> Iterator[Table]:
    """PTX ISA, "Warp Level Matrix Instructions", "Multiply-and-Accumulate Instruction: mma.sp / mma.sp::ordered_metadata"."""
    sm80, sm89 = map(_since, ("sm_80", "sm_89"))
    yield Table(MMA_SYNC, "m16n8k16 m16n8k32", _types(("f32", "f16"), ("f16",)), sm80, sparse=True)
    yield Table(MMA_SYNC, "m16n8k16 m16n8k32", _types(("f32",), ("bf16",)), sm80, sparse=True)
    yield Table(MMA_SYNC, "m16n8k8 m16n8k16", _types(("f32",), ("tf32",)), sm80, sparse=True)
    yield Table(MMA_SYNC, "m16n8k64", _types(("f32",), _FP8), sm89, sparse=True)
    yield Table(MMA_SYNC, "m16n8k32 m16n8k64", _types(("s32",), _INT8), sm80, _EITHER, sparse=True)
    yield Table(MMA_SYNC, "m16n8k64 m16n8k128", _types(("s32",), _INT4), sm80, _EITHER, sparse=True)


def _mma_kinds() -> Iterator[Table]:
    """PTX ISA, "Block Scaling for mma.sync", and the `.kind` lines of mma and mma.sp.

    ptxas takes `.kind::f8f6f4` with two fp8 operands for sm_100a … sm_110a too; the PTX ISA does not list it there.
    """
    on = frozenset({"sm_120a", "sm_121a"})
    e2m1 = _types(("f32",), ("e2m1",))
    for sparse, k in ((False, 32), (True, 64)):
        mixed, fp4 = f"m16n8k{k}", f"m16n8k{2 * k}"
        yield Table(MMA_SYNC, mixed, _types(("f32", "f16"), _FP8_6_4), on, sparse=sparse, kind="f8f6f4")
        for kind, scale_vec, scale in _BLOCK_SCALED:
            shape, types = (mixed, _types(("f32",), _FP8_6_4)) if kind == "mxf8f6f4" else (fp4, e2m1)
            yield Table(MMA_SYNC, shape, types, on, sparse=sparse, kind=kind, scale_vec=scale_vec, scale=scale)


def _wgmma() -> Iterator[Table]:
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
            yield Table(WGMMA, shapes, types, on, satfinite, sparse, _EITHER)
    b1 = _types(("s32",), ("b1",), c=False)
    yield Table(WGMMA, "m64n8k256 m64n256k256", b1, on, a_registers=_EITHER, bit_op="and")


def _tcgen05() -> Iterator[Table]:
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
        yield Table(TCGEN05, shapes(16), f16, on, sparse=sparse, kind="f16")
        yield Table(TCGEN05, shapes(8), ("f32 tf32 tf32",), on, sparse=sparse, kind="tf32")
        yield Table(TCGEN05, shapes(32), f8f6f4, on, sparse=sparse, kind="f8f6f4")
        yield Table(TCGEN05, shapes(32), int8, on - {"sm_103a"}, _EITHER, sparse=sparse, kind="i8")
        for kind, scale_vec, scale in _BLOCK_SCALED:
            k, types = (32, _types(("f32",), _FP8_6_4, c=False)) if kind == "mxf8f6f4" else (64, e2m1)
            yield Table(TCGEN05, shapes(k), types, on, sparse=sparse, kind=kind, scale_vec=scale_vec, scale=scale)
    for kind, scale_vec, scale in _BLOCK_SCALED[1:]:
        k96 = "m128n16k96 m256n256k96"
        yield Table(TCGEN05, k96, e2m1, frozenset({"sm_103a"}), kind=kind, scale_vec=scale_vec * 3 // 2, scale=scale)


def _of_processors() -> Iterator[Table]:
    """Yield one table for each mnemonic."""
    families = {family.name: family for family in FAMILIES}
    for each in processors.MNEMONICS:
        on, saturates = frozenset({each.architecture}), (each.saturates,)
        yield Table(families[each.family], each.shape, (each.types,), on, saturates, mnemonic=each.mnemonic)


def every_table() -> tuple[Table, ...]:
    """Return the tables of PTX and of the processors' manuals."""
    return (*_mma_sync(), *_mma_sp(), *_mma_kinds(), *_wgmma(), *_tcgen05(), *_of_processors())
