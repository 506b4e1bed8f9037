"""PTX of the matrix instructions, as inline assembly of CUDA C++: a macro's parameters, then its text.

The parameters are arrays of registers, or descriptors of matrices in shared memory. The module also has the instruction
descriptor and the tensor memory of tcgen05, which have not run on hardware (PTX ISA, "TensorCore 5th Generation Family
Instructions", "Instruction descriptor").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

from accprobe.errors import AccprobeError

if TYPE_CHECKING:
    from accprobe.isa.instructions import Instruction


def mma_sync(inst: Instruction, registers: Mapping[str, int]) -> str:
    """PTX ISA, "Multiply-and-Accumulate Instruction: mma". Registers are bit-size typed, which PTX accepts for every type.

    Sparse A: "mma.sp / mma.sp::ordered_metadata". Block scales: "Block Scaling for mma.sync", from byte 0 of lane 0 on.
    """
    letter = "l" if inst.register_bits == 64 else "r"
    kind = _kind(inst)
    sparse = ".sp::ordered_metadata" if inst.sparse else ""
    types = f"{inst.d}.{inst.a}.{inst.b}.{inst.c}{_bit_op(inst)}" + (f".{inst.scale}" if inst.scale else "")
    opcode = f"mma{sparse}.sync.aligned.{_shape(inst)}.row.col{kind}{'.satfinite' * inst.satfinite}.{types}"
    number = count()
    groups = ", ".join(_braces(number, registers[operand]) for operand in "dabc")
    outputs = _bind("d", registers["d"], f"={letter}")
    inputs = ", ".join(_bind(operand, registers[operand], letter) for operand in "abc")
    more, groups_of, inputs_of = _metadata(inst, number)
    if inst.scale is not None:
        more, inputs_of = f"{more}, s", f'{inputs_of}, "r"(s[0]), "r"(s[1])'
        groups_of += "".join(f", {{%{next(number)}}}, {{0, 0}}" for _ in "ab")
    return f'd, a, b, c{more}) asm volatile("{opcode} {groups}{groups_of};" : {outputs} : {inputs}{inputs_of})'


def wgmma(inst: Instruction, registers: Mapping[str, int]) -> str:
    """PTX ISA, "wgmma.mma_async": D is also the addend (scale-d is true); operands are neither negated nor transposed.

    Sparse A: "wgmma.mma_async.sp".
    """
    number = count()
    d = _braces(number, registers["d"])
    a = _braces(number, registers["a"]) if inst.a_registers else f"%{next(number)}"
    b = f"%{next(number)}"
    more, metadata, inputs_of = _metadata(inst, number)
    lines = [
        "{ .reg .pred accumulate; setp.eq.u32 accumulate, 0, 0;",
        "wgmma.fence.sync.aligned;",
        _wgmma(inst, d, a, b + metadata, "accumulate"),
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 0; }",
    ]
    inputs = (_bind("a", registers["a"], "r") if inst.a_registers else '"l"(a)') + f', "l"(b){inputs_of}'
    return f'd, a, b{more}) asm volatile("{" ".join(lines)}" : {_bind("d", registers["d"], "+r")} : {inputs} : "memory")'


def tcgen05(inst: Instruction, registers: Mapping[str, int]) -> str:
    """PTX ISA, "tcgen05.mma": D, in tensor memory, is also the addend. One thread of a block, or of two, executes it.

    Sparse A: "tcgen05.mma.sp". The metadata is in tensor memory, as scales are.
    """
    metadata, scales = ["e"] * inst.sparse, ["s[0]", "s[1]"] if inst.scale else []
    names = ["d", "a", "b", *metadata, "shape", *scales]
    operands = [f"%{i}" if name in ("a", "b", "shape") else f"[%{i}]" for i, name in enumerate(names)]
    opcode = f"tcgen05.mma{'.sp' * inst.sparse}.cta_group::{inst.blocks}{_kind(inst)}"
    lines = ["{ .reg .pred accumulate; setp.eq.u32 accumulate, 0, 0;", f"{opcode} {', '.join(operands)}, accumulate; }}"]
    inputs = ", ".join(f'"{"l" if name in ("a", "b") else "r"}"({name})' for name in names)
    parameters = ", ".join(dict.fromkeys(name.partition("[")[0] for name in names))
    return f'{parameters}) asm volatile("{" ".join(lines)}" :: {inputs} : "memory")'


def _kind(inst: Instruction) -> str:
    """Return the `.kind::` and block-scale qualifiers. For K = 96 PTX names the block size, not the number of scales."""
    scaled = ""
    if inst.scale_block:
        vector = f"block{inst.scale_block}" if inst.k == 96 else f"scale_vec::{inst.k // inst.scale_block}X"
        scaled = f".block_scale.{vector}"
    return f".kind::{inst.kind}{scaled}" if inst.kind else ""


def _metadata(inst: Instruction, number: Iterator[int]) -> tuple[str, str, str]:
    """Return the further parameter, operands and input of a sparse A: metadata, supplied by the first lanes."""
    return (", e", f", %{next(number)}, 0", ', "r"(e)') if inst.sparse else ("", "", "")


def wgmma_chain(inst: Instruction, registers: Mapping[str, int], chain: int, threads: int, addends: bool) -> str:
    """Return a chain of wgmma, each adding to D; without `addends` the first makes it (scale-d is false).

    a, b: descriptors, one an instruction; e: registers of metadata, unused by a dense A. turn: the named barrier at which
    `threads` threads arrive, these without waiting, before the last instruction ends: another warpgroup may then start.
    """
    number = count()
    d = _braces(number, registers["d"])
    a, b = ([f"%{next(number)}" for _ in range(chain)] for _ in "ab")
    metadata = [f", %{next(number)}, 0" if inst.sparse else "" for _ in range(chain)]
    each = [_wgmma(inst, d, a[i], b[i] + metadata[i], "added" if i or addends else "made") for i in range(chain)]
    lines = [
        "{ .reg .pred made, added; setp.ne.u32 made, 0, 0; setp.eq.u32 added, 0, 0;",
        "wgmma.fence.sync.aligned;",
        *([*each[:-1], "wgmma.commit_group.sync.aligned;"] if chain > 1 else []),
        each[-1],
        "wgmma.commit_group.sync.aligned;",
        "wgmma.wait_group.sync.aligned 1;",
        f"bar.arrive %{next(number)}, {threads};",
        "wgmma.wait_group.sync.aligned 0; }",
    ]
    codes = [_bind("e", chain, "r")] if inst.sparse else []
    inputs = ", ".join([_bind("a", chain, "l"), _bind("b", chain, "l"), *codes, '"r"(turn)'])
    return f'd, a, b, e, turn) asm volatile("{" ".join(lines)}" : {_bind("d", registers["d"], "+r")} : {inputs} : "memory")'


def _wgmma(inst: Instruction, d: str, a: str, b: str, accumulate: str) -> str:
    modifiers = "" if inst.is_integer else ", 1, 1"
    if inst.a.storage_bits == 16:
        modifiers += ", 0" if inst.a_registers else ", 0, 0"
    sparse = ".sp" if inst.sparse else ""
    types = f"{inst.d}.{inst.a}.{inst.b}{_bit_op(inst)}"
    opcode = f"wgmma.mma_async{sparse}.sync.aligned.{_shape(inst)}{'.satfinite' * inst.satfinite}.{types}"
    return f"{opcode} {d}, {a}, {b}, {accumulate}{modifiers};"


def _shape(inst: Instruction) -> str:
    return f"m{inst.m}n{inst.n}k{inst.k}"


def _bit_op(inst: Instruction) -> str:
    return f".{inst.bit_op}.popc" if inst.bit_op else ""


def _braces(number: Iterator[int], operands: int) -> str:
    return "{" + ", ".join(f"%{next(number)}" for _ in range(operands)) + "}"


def _bind(name: str, operands: int, constraint: str) -> str:
    return ", ".join(f'"{constraint}"({name}[{i}])' for i in range(operands))


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

SCALE_COLUMNS = 4  # Columns of up to four scales of 128 rows of A or columns of B; 32 lanes hold the scales of 32.
METADATA_COLUMNS = 4  # Columns reserved for the metadata of 128 rows of a sparse A: it takes one or two, at a multiple of four.
LEAST_COLUMNS = 32  # Smallest allocation of tensor memory; larger ones are powers of two.


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
