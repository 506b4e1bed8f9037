"""Processor instructions that multiply and accumulate narrow formats.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, and Intel Architecture Instruction Set
Extensions. Flags are as Linux names them in /proc/cpuinfo.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mnemonic:
    """One instruction of a processor.

    mnemonic: in capitals; family, shape, types (D A B, C being D) and saturates: parts of its name in accprobe.
    flags: required processor flags.
    llvm: the first LLVM with an assembler that supports it.
    """

    mnemonic: str
    family: str
    shape: str
    types: str
    flags: tuple[str, ...]
    saturates: bool = False
    llvm: int = 14

    @property
    def tiles(self) -> bool:
        """Return whether it takes tiles, each a register of 16 rows of 64 bytes, rather than vectors."""
        return "amx_tile" in self.flags


def _avx512(mnemonic: str, k: int, types: str, flag: str, saturates: bool = False) -> Mnemonic:
    return Mnemonic(mnemonic, "avx512", f"m1n16k{k}", types, ("avx512f", flag), saturates=saturates)


def _amx(mnemonic: str, k: int, types: str, flag: str, llvm: int = 14) -> Mnemonic:
    return Mnemonic(mnemonic, "amx", f"m16n16k{k}", types, ("amx_tile", flag), llvm=llvm)


MNEMONICS = (
    _avx512("VDPBF16PS", 2, "f32 bf16 bf16", "avx512_bf16"),
    _avx512("VPDPBUSD", 4, "s32 u8 s8", "avx512_vnni"),
    _avx512("VPDPBUSDS", 4, "s32 u8 s8", "avx512_vnni", saturates=True),
    _avx512("VPDPWSSD", 2, "s32 s16 s16", "avx512_vnni"),
    _avx512("VPDPWSSDS", 2, "s32 s16 s16", "avx512_vnni", saturates=True),
    _amx("TDPBF16PS", 32, "f32 bf16 bf16", "amx_bf16"),
    _amx("TDPFP16PS", 32, "f32 f16 f16", "amx_fp16", llvm=16),
    _amx("TDPBSSD", 64, "s32 s8 s8", "amx_int8"),
    _amx("TDPBSUD", 64, "s32 s8 u8", "amx_int8"),
    _amx("TDPBUSD", 64, "s32 u8 s8", "amx_int8"),
    _amx("TDPBUUD", 64, "s32 u8 u8", "amx_int8"),
)
BY_MNEMONIC = {each.mnemonic: each for each in MNEMONICS}
