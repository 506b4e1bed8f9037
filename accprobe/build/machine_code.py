"""One instruction of a processor in a loop over tiles, as machine code that LLVM (llvmlite) assembles and loads.

The loop loads a tile of A, B and C, runs the instruction once, and stores D. The control register of rounding and subnormals
(MXCSR) is set before the loop and restored after it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from accprobe.isa.processors import Mnemonic

CONTROL_WORDS = 2
"""Number of 64-bit words: the control register to set, and as it was before."""

_TRIPLE = "x86_64-unknown-linux-gnu"

# Operands: 0 A, 1 B, 2 C, 3 D, 4 tiles left, 5 control words, 6 AMX's tile configuration, 7 bytes from a row to the next.
_LOOP = """
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
_LANES = """
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
_TILES = """
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
_CLOBBERED = "~{xmm0},~{xmm1},~{xmm2},~{memory},~{flags}"


@dataclass(frozen=True)
class Loop:
    """The loop of one instruction. code: its machine code. run: a function of the addresses of A, B, C and D, the number of
    tiles (at least one), and the address of the control words. Two more arguments are for AMX: the address of its
    configuration, and the bytes per row of its tiles.
    """

    run: Callable[..., None]
    code: bytes


@cache
def load_loop(mnemonic: Mnemonic) -> Loop:
    """Assemble the loop and load it into memory."""
    binding = _llvm()
    engine = binding.create_mcjit_compiler(binding.parse_assembly(_module(mnemonic)), _machine(binding))
    objects: list[bytes] = []
    engine.set_object_cache(lambda module, code: objects.append(bytes(code)))
    engine.finalize_object()
    _engines.append(engine)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 8)(engine.get_function_address("probe"))
    return Loop(call, _text(binding, objects[0]))


_engines: list[Any] = []
"""Owners of the loaded code, kept for the life of the process."""


def explain_unsupported(mnemonic: Mnemonic) -> str | None:
    """Return why the loop cannot be assembled, as a clause, or None if it can."""
    major, needed = _llvm().llvm_version_info[0], mnemonic.llvm
    if major >= needed:
        return None
    return f"llvmlite has LLVM {major}, and {needed} is the first that knows {mnemonic.mnemonic}"


def version() -> str:
    """Return the version of llvmlite's LLVM."""
    return ".".join(map(str, _llvm().llvm_version_info))


@cache
def _llvm() -> Any:
    from llvmlite import binding

    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    binding.initialize_native_asmparser()
    return binding


def _machine(binding: Any) -> Any:
    return binding.Target.from_triple(_TRIPLE).create_target_machine()


def _module(mnemonic: Mnemonic) -> str:
    """Return the loop as a function in LLVM's notation: one piece of inline assembly with integer operands."""
    step = (_TILES if mnemonic.tiles else _LANES).format(mnemonic=mnemonic.mnemonic.lower()).strip()
    first, last = ("ldtilecfg ($6)", "tilerelease") if mnemonic.tiles else ("", "vzeroupper")
    lines = _LOOP.format(first=first, step=step, last=last).splitlines()
    text = "\\0A".join(line for line in lines if line)
    names = [f"i64 %x{i}" for i in range(8)]
    constraints = ",".join([*["=r"] * 5, *["r"] * 3, *map(str, range(5)), _CLOBBERED])
    changed, given = ", ".join(["i64"] * 5), ", ".join([*names[5:], *names[:5]])
    return (
        f'target triple = "{_TRIPLE}"\ndefine void @probe({", ".join(names)}) {{\n'
        f'  %changed = call {{ {changed} }} asm sideeffect "{text}", "{constraints}"({given})\n'
        "  ret void\n}\n"
    )


def _text(binding: Any, code: bytes) -> bytes:
    sections = binding.ObjectFileRef.from_data(code).sections()
    return b"".join(section.data() for section in sections if (section.name() or b"").endswith(b"text"))
