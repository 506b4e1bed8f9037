"""Processor instructions that multiply and accumulate narrow formats.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, and Intel Architecture Instruction Set
Extensions, for encodings and flags. Flags are as Linux names them in /proc/cpuinfo.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

# The mandatory prefix that an x86 encoding stands for.
Prefix = Literal["", "66", "F3", "F2"]


@dataclass(frozen=True)
class Mnemonic:
    """One instruction of a processor.

    mnemonic: in capitals; family, shape, types (D A B, C being D) and saturates: parts of its name in accprobe.
    flags: required processor flags. prefix, opcode: of its x86 encoding, map 0F38, W0.
    llvm: the first LLVM whose assembler supports it.
    """

    mnemonic: str
    family: str
    shape: str
    types: str
    flags: tuple[str, ...]
    prefix: Prefix = ""
    opcode: int = 0
    saturates: bool = False
    llvm: int = 14

    @property
    def tiles(self) -> bool:
        """Return whether it takes tiles, each a register of 16 rows of 64 bytes, rather than vectors."""
        return "amx_tile" in self.flags


def _avx512(mnemonic: str, k: int, types: str, flag: str, prefix: Prefix, opcode: int, saturates: bool = False) -> Mnemonic:
    return Mnemonic(mnemonic, "avx512", f"m1n16k{k}", types, ("avx512f", flag), prefix, opcode, saturates=saturates)


def _amx(mnemonic: str, k: int, types: str, flag: str, prefix: Prefix, opcode: int, llvm: int = 14) -> Mnemonic:
    return Mnemonic(mnemonic, "amx", f"m16n16k{k}", types, ("amx_tile", flag), prefix, opcode, llvm=llvm)


MNEMONICS = (
    _avx512("VDPBF16PS", 2, "f32 bf16 bf16", "avx512_bf16", "F3", 0x52),
    _avx512("VPDPBUSD", 4, "s32 u8 s8", "avx512_vnni", "66", 0x50),
    _avx512("VPDPBUSDS", 4, "s32 u8 s8", "avx512_vnni", "66", 0x51, saturates=True),
    _avx512("VPDPWSSD", 2, "s32 s16 s16", "avx512_vnni", "66", 0x52),
    _avx512("VPDPWSSDS", 2, "s32 s16 s16", "avx512_vnni", "66", 0x53, saturates=True),
    _amx("TDPBF16PS", 32, "f32 bf16 bf16", "amx_bf16", "F3", 0x5C),
    _amx("TDPFP16PS", 32, "f32 f16 f16", "amx_fp16", "F2", 0x5C, llvm=16),
    _amx("TDPBSSD", 64, "s32 s8 s8", "amx_int8", "F2", 0x5E),
    _amx("TDPBSUD", 64, "s32 s8 u8", "amx_int8", "F3", 0x5E),
    _amx("TDPBUSD", 64, "s32 u8 s8", "amx_int8", "66", 0x5E),
    _amx("TDPBUUD", 64, "s32 u8 u8", "amx_int8", "", 0x5E),
)
BY_MNEMONIC = {each.mnemonic: each for each in MNEMONICS}
