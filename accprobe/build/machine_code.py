"""A processor's instruction in a loop over tiles, as machine code: written as assembly, made and loaded by LLVM (llvmlite).

The loop loads a tile of A, B and C, runs the instruction once, and stores D. Around it the register that controls rounding and
subnormals (x86 MXCSR, A64 FPCR) is set, and put back as it was: whoever called never sees it changed. Opcodes are read back
from the code that was loaded, by their encodings.
"""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from accprobe.build import install
from accprobe.errors import ToolMissing
from accprobe.isa.processors import MNEMONICS, Mnemonic

CONTROL_WORDS = 2
"""64 bits: the control register as set, and as it was before."""

_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
_FEATURES = {"x86_64": "", "aarch64": "+bf16"}

# Operands: 0 A, 1 B, 2 C, 3 D, 4 tiles left, 5 control words, 6 AMX's tile configuration, 7 bytes from a row to the next.
_X86 = """
stmxcsr 8($5)
ldmxcsr ($5)
{first}
1:
{step}
dec $4
jnz 1b
{last}
ldmxcsr 8($5)
"""
_LANES_OF_X86 = """
vmovdqu32 ($2), %zmm0
vmovdqu32 ($0), %zmm1
vmovdqu32 ($1), %zmm2
{mnemonic} %zmm2, %zmm1, %zmm0
vmovdqu32 %zmm0, ($3)
add $$64, $0
add $$64, $1
add $$64, $2
add $$64, $3
"""
_TILES_OF_X86 = """
tileloadd ($2,$7,1), %tmm0
tileloadd ($0,$7,1), %tmm1
tileloadd ($1,$7,1), %tmm2
{mnemonic} %tmm2, %tmm1, %tmm0
tilestored %tmm0, ($3,$7,1)
add $$1024, $0
add $$1024, $1
add $$1024, $2
add $$1024, $3
"""
_A64 = """
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
declare <4 x float> @{intrinsic}(<4 x float>, <8 x bfloat>, <8 x bfloat>)
define void @probe({parameters}) {{
entry:
  %wanted = inttoptr i64 %x5 to {pointer_to_word}
  %saved = getelementptr i64, {pointer_to_word} %wanted, i64 1
  %before = call i64 @llvm.aarch64.get.fpcr()
  store i64 %before, {pointer_to_word} %saved
  %setting = load i64, {pointer_to_word} %wanted
  call void @llvm.aarch64.set.fpcr(i64 %setting)
  br label %step
step:
  %i = phi i64 [ 0, %entry ], [ %next, %step ]
  %bytes = shl i64 %i, 4
  %at_a = add i64 %x0, %bytes
  %at_b = add i64 %x1, %bytes
  %at_c = add i64 %x2, %bytes
  %at_d = add i64 %x3, %bytes
  %of_a = inttoptr i64 %at_a to {pointer_to_narrow}
  %of_b = inttoptr i64 %at_b to {pointer_to_narrow}
  %of_c = inttoptr i64 %at_c to {pointer_to_float}
  %of_d = inttoptr i64 %at_d to {pointer_to_float}
  %a = load <8 x bfloat>, {pointer_to_narrow} %of_a, align 1
  %b = load <8 x bfloat>, {pointer_to_narrow} %of_b, align 1
  %c = load <4 x float>, {pointer_to_float} %of_c, align 1
  %d = call <4 x float> @{intrinsic}(<4 x float> %c, <8 x bfloat> %a, <8 x bfloat> %b)
  store volatile <4 x float> %d, {pointer_to_float} %of_d, align 1
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %x4
  br i1 %more, label %step, label %done
done:
  call void @llvm.aarch64.set.fpcr(i64 %before)
  ret void
}}
"""
_INTRINSICS = {"BFDOT": "llvm.aarch64.neon.bfdot.v4f32.v8bf16", "BFMMLA": "llvm.aarch64.neon.bfmmla"}
_POINTERS = {"word": "i64*", "narrow": "<8 x bfloat>*", "float": "<4 x float>*"}
_FIRST_OPAQUE = 17
"""The LLVM from which on pointers have no types."""

_CLOBBERED = "~{xmm0},~{xmm1},~{xmm2},~{memory},~{flags}"


@dataclass(frozen=True)
class Loop:
    """The loop of one instruction. code: its machine code.

    run: called with the addresses of A, B, C and D, how many tiles there are, at least one, and the addresses of the control
    words, of AMX's configuration, and the bytes of a row of its tiles.
    """

    run: Callable[..., None]
    code: bytes


def assembly(mnemonic: Mnemonic) -> str:
    """The loop of an x86 instruction, in the syntax of LLVM's inline assembly."""
    tiles = mnemonic.tiles
    step = (_TILES_OF_X86 if tiles else _LANES_OF_X86).format(mnemonic=mnemonic.mnemonic.lower()).strip()
    first, last = ("ldtilecfg ($6)", "tilerelease") if tiles else ("", "vzeroupper")
    text = _X86.format(first=first, step=step, last=last)
    return "\n".join(line for line in text.splitlines() if line)


def compiled(mnemonic: Mnemonic) -> bytes:
    """The machine code of the loop, for its own architecture, whatever this one is. Raises ToolMissing without llvmlite."""
    binding = _llvm()
    machine = _machine(binding, mnemonic)
    return _text(binding, machine.emit_object(_parsed(binding, mnemonic)))


@cache
def loaded(mnemonic: Mnemonic) -> Loop:
    """The loop in memory, ready to run here. Raises ToolMissing without llvmlite."""
    binding = _llvm()
    engine = binding.create_mcjit_compiler(_parsed(binding, mnemonic), _machine(binding, mnemonic))
    objects: list[bytes] = []
    engine.set_object_cache(lambda module, code: objects.append(bytes(code)))
    engine.finalize_object()
    _engines.append(engine)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 8)(engine.get_function_address("probe"))
    return Loop(call, _text(binding, objects[0]))


_engines: list[Any] = []
"""Owners of loaded code, for as long as the process lives."""


def opcodes(code: bytes, architecture: str) -> tuple[tuple[str, int], ...]:
    """The dot products in machine code, and how often each is there."""
    step = 4 if architecture == "aarch64" else 1
    known = [each for each in MNEMONICS if each.architecture == architecture]
    counts = {each.mnemonic: sum(_is_at(each, code, at) for at in range(0, len(code), step)) for each in known}
    return tuple((mnemonic, count) for mnemonic, count in counts.items() if count)


def why_no_llvm() -> str | None:
    """Why no code can be made here, as a clause, or None where it can."""
    return None if importlib.util.find_spec("llvmlite") else f"llvmlite is not installed: {install.LLVM}"


def why_not(mnemonic: Mnemonic) -> str | None:
    """Why no code can be made of it, as a clause, or None where it can. Raises ToolMissing without llvmlite."""
    major, needed = _llvm().llvm_version_info[0], mnemonic.llvm
    if major >= needed:
        return None
    return f"llvmlite has LLVM {major}, and {needed} is the first that knows {mnemonic.mnemonic}"


def version() -> str:
    """Return the version of llvmlite's LLVM. Raises ToolMissing."""
    return ".".join(map(str, _llvm().llvm_version_info))


@cache
def _llvm() -> Any:
    try:
        import llvmlite.binding
    except ImportError as e:
        raise ToolMissing(f"llvmlite cannot be imported ({e}): {install.LLVM}") from e
    binding = llvmlite.binding
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    return binding


def _machine(binding: Any, mnemonic: Mnemonic) -> Any:
    target = binding.Target.from_triple(_TRIPLES[mnemonic.architecture])
    return target.create_target_machine(features=_FEATURES[mnemonic.architecture])


def _parsed(binding: Any, mnemonic: Mnemonic) -> Any:
    return binding.parse_assembly(_module(mnemonic, binding.llvm_version_info[0] >= _FIRST_OPAQUE))


def _module(mnemonic: Mnemonic, opaque: bool) -> str:
    """The loop as a function in LLVM's notation, all of whose arguments are integers. opaque: whether pointers have no types.

    That of x86 is one piece of assembly; A64's is of LLVM's own words, as llvmlite parses assembly of its own host alone.
    """
    names = [f"i64 %x{i}" for i in range(8)]
    triple = f'target triple = "{_TRIPLES[mnemonic.architecture]}"\n'
    if mnemonic.architecture == "aarch64":
        pointers = {f"pointer_to_{what}": "ptr" if opaque else pointer for what, pointer in _POINTERS.items()}
        return triple + _A64.format(intrinsic=_INTRINSICS[mnemonic.mnemonic], parameters=", ".join(names), **pointers)
    text = assembly(mnemonic).replace("\n", "\\0A")
    constraints = ",".join([*["=r"] * 5, *["r"] * 3, *map(str, range(5)), _CLOBBERED])
    changed, given = ", ".join(["i64"] * 5), ", ".join([*names[5:], *names[:5]])
    return (
        f"{triple}define void @probe({', '.join(names)}) {{\n"
        f'  %changed = call {{ {changed} }} asm sideeffect "{text}", "{constraints}"({given})\n'
        "  ret void\n}\n"
    )


def _text(binding: Any, code: bytes) -> bytes:
    sections = binding.ObjectFileRef.from_data(code).sections()
    return b"".join(section.data() for section in sections if (section.name() or b"").endswith(b"text"))


_MANDATORY = {"": 0, "66": 1, "F3": 2, "F2": 3}


def _is_at(mnemonic: Mnemonic, code: bytes, at: int) -> bool:
    """Return whether the instruction's encoding is there (Intel SDM volume 2, "VEX prefix", "EVEX prefix")."""
    if mnemonic.architecture == "aarch64":
        return int.from_bytes(code[at : at + 4], "little") & mnemonic.mask == mnemonic.word
    prefix = _MANDATORY[mnemonic.prefix]
    if mnemonic.tiles:
        first, second, third, opcode = (*code[at : at + 4], 0, 0, 0, 0)[:4]
        return (first, second & 0x1F, third & 0x87, opcode) == (0xC4, 2, prefix, mnemonic.opcode)
    first, second, third, fourth, opcode = (*code[at : at + 5], 0, 0, 0, 0, 0)[:5]
    masked = (first, second & 0x0F, third & 0x87, fourth & 0xE7, opcode)
    return masked == (0x62, 2, 4 | prefix, 0x40, mnemonic.opcode)
