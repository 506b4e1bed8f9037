"""Which opcode really ran: SASS of a cubin, read with NVIDIA's disassemblers.

A lowering is exact because of what the probes leave out: they move and compare bit patterns, and count, with opcodes that are
none of the arithmetic ones listed here. So every one found in a probe belongs to the instruction it was compiled for.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from accprobe import toolchain
from accprobe.errors import AccprobeError, ToolMissing
from accprobe.kernels import Cubin, write_by_rename
from accprobe.lowering import Lowering

MATRIX = re.compile(r"(?:UTC)?(?:[BDHIOQ]|HG|QG|IG|BG)MMA(?![A-Z])")
"""Opcodes of matrix units: HMMA … (warp), HGMMA … (warpgroup), UTCHMMA … (fifth generation)."""

_CONVERSIONS = "F2F F2FP F2I F2IP I2F I2FP I2I I2IP FRND"
_FLOATING = "FADD FADD2 FFMA FFMA2 FMUL FMUL2 HADD2 HFMA2 HMUL2 DADD DFMA DMUL"
ARITHMETIC = frozenset(f"{_CONVERSIONS} {_FLOATING}".split())
"""Opcodes, without modifiers, that convert or that add and multiply floating-point numbers."""

_INSTRUCTION = re.compile(r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:\{\s*)?(?:@!?U?P\w+\s+)?([A-Z][A-Za-z0-9_.]*)\s*([^;]*);", re.MULTILINE)
_CONSTANT_MOVE = re.compile(r"-RZ, RZ,")
_SCHEMA = 1


@dataclass(frozen=True)
class Function:
    """One function of a binary. architecture: "sm_90a", or "" where the disassembler does not say; opcodes in order."""

    name: str
    architecture: str
    opcodes: tuple[str, ...]

    @property
    def matrix(self) -> tuple[str, ...]:
        """The different matrix opcodes, with their modifiers, in order of first appearance."""
        return tuple(dict.fromkeys(opcode for opcode in self.opcodes if MATRIX.match(opcode)))

    @property
    def arithmetic(self) -> tuple[tuple[str, int], ...]:
        """(opcode, count) of matrix opcodes, conversions and floating-point arithmetic, in order of first appearance."""
        kept = (o for o in self.opcodes if MATRIX.match(o) or o.split(".")[0] in ARITHMETIC)
        return tuple(Counter(kept).items())


def lowering(cubin: Cubin) -> Lowering:
    """What the instruction of a probe became. Kept beside the cubin. Raises ToolMissing without a disassembler."""
    kept = cubin.path.with_suffix(".sass.json")
    sequence = _read(kept)
    if sequence is None:
        (function,) = functions(cubin.path)
        sequence = function.arithmetic
        write_by_rename(kept, json.dumps({"schema": _SCHEMA, "sequence": sequence}).encode())
    matrix = tuple(opcode for opcode, _ in sequence if MATRIX.match(opcode))
    return Lowering(matrix, sequence, "nvdisasm", cubin.sha256)


def prepare(cubins: Iterable[Cubin]) -> None:
    """Disassembles many probes at once, so that `lowering` finds them; without a disassembler, does nothing."""
    with ThreadPoolExecutor(os.cpu_count()) as pool, suppress(ToolMissing):
        list(pool.map(lowering, cubins))


def _read(path: Path) -> tuple[tuple[str, int], ...] | None:
    try:
        kept = json.loads(path.read_bytes())
        if kept["schema"] != _SCHEMA:
            return None
        return tuple((str(opcode), int(count)) for opcode, count in kept["sequence"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def functions(path: Path) -> list[Function]:
    """Every function of a cubin, fatbin, object, library or executable.

    Raises ToolMissing where nvdisasm (cubins) or cuobjdump (the rest) is absent, AccprobeError where the file has no SASS.
    """
    try:
        with path.open("rb") as file:
            magic = file.read(20)
    except OSError as e:
        raise AccprobeError(f"{path} cannot be read: {e.strerror}") from None
    em_cuda = 190
    if magic[:4] == b"\x7fELF" and int.from_bytes(magic[18:20], "little") == em_cuda:
        found = parse_nvdisasm(toolchain.run("nvdisasm", "--print-code", str(path)))
    else:
        found = parse_cuobjdump(_cuobjdump(path))
    if not found:
        raise AccprobeError(f"{path} holds no SASS: it is not a cubin, nor a fatbin, object or library with one inside")
    return found


def _cuobjdump(path: Path) -> str:
    try:
        return toolchain.run("cuobjdump", "--dump-sass", str(path))
    except toolchain.ToolFailed:
        return ""


def parse_nvdisasm(text: str) -> list[Function]:
    """Functions in the output of `nvdisasm --print-code`."""
    target = re.search(r"^\s*\.target\s+(sm_\w+)", text, re.MULTILINE)
    architecture = target[1] if target else ""
    parts = re.split(r"^\.text\.([^\s:]+):", text, flags=re.MULTILINE)
    return [_function(name, architecture, body) for name, body in zip(parts[1::2], parts[2::2], strict=True)]


def parse_cuobjdump(text: str) -> list[Function]:
    """Functions in the output of `cuobjdump --dump-sass`."""
    found = []
    for code in re.split(r"^\s*code for ", text, flags=re.MULTILINE)[1:]:
        architecture = code.split(maxsplit=1)[0]
        parts = re.split(r"^\s*Function : (\S+)", code, flags=re.MULTILINE)
        found += [_function(name, architecture, body) for name, body in zip(parts[1::2], parts[2::2], strict=True)]
    return found


def _function(name: str, architecture: str, body: str) -> Function:
    found = _INSTRUCTION.findall(body)
    return Function(name, architecture, tuple(opcode for opcode, operands in found if not _moves_constant(opcode, operands)))


def _moves_constant(opcode: str, operands: str) -> bool:
    """HFMA2 R0, -RZ, RZ, …: how the compiler loads a constant where other units are busy."""
    return opcode.startswith("HFMA2") and _CONSTANT_MOVE.search(operands) is not None
