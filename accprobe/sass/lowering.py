"""The SASS of a PTX instruction.

It is exact because probes contain no other arithmetic: they move and compare bit patterns, and count, with opcodes that are not
among the arithmetic ones of `accprobe.sass.reading`. So every arithmetic opcode in a probe belongs to its instruction.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from accprobe.build import cache
from accprobe.build.cache import Cubin
from accprobe.build.checkout import data_folder
from accprobe.errors import ToolFailed, ToolMissing
from accprobe.sass.opcodes import MATRIX, stem
from accprobe.sass.reading import MULTIPLIES, functions

OpcodeSource = Literal["nvdisasm", "ncu", "known model", "machine code"]

ATLAS = "lowering"
"""Name of the file beside the recorded reports that has the SASS of each instruction, without its suffix."""

_SCHEMA = 2
"""Format of the file beside a cubin."""


@dataclass(frozen=True)
class Lowering:
    """The SASS of an instruction, and its source. sequence: (opcode, count) in order of first appearance: matrix opcodes,
    conversions and adds of C; no data movement. matrix: the matrix opcodes alone, e.g. ("HMMA.16816.F32",); empty if there are
    none.
    """

    matrix: tuple[str, ...]
    sequence: tuple[tuple[str, int], ...]
    source: OpcodeSource
    cubin_sha256: str | None = None


def is_ordinary(sequence: Iterable[tuple[str, int]]) -> bool:
    """Return whether ordinary instructions multiply instead of a matrix unit."""
    stems = {stem(opcode) for opcode, _ in sequence}
    return bool(stems & MULTIPLIES) and not any(map(MATRIX.match, stems))


def lowering(cubin: Cubin) -> Lowering:
    """Return the lowering of a probe's instruction, cached beside the cubin. Raises ToolMissing without a disassembler."""
    kept = cubin.path.with_suffix(".sass.json")
    sequence = _read(kept)
    if sequence is None:
        (function,) = functions(cubin.path, targets=False)
        sequence = function.arithmetic
        cache.write_entry(kept, json.dumps({"schema": _SCHEMA, "sequence": sequence}).encode())
    return Lowering(_matrix(sequence), sequence, "nvdisasm", cubin.sha256)


@lru_cache
def compiled(architecture: str) -> dict[str, Lowering]:
    """Return by name the lowering of each instruction of a compile target, as the recorded atlas has it."""
    atlas = json.loads((data_folder("reports") / f"{ATLAS}.json").read_text(encoding="utf-8"))
    sequences = {
        name: tuple((opcode, count) for opcode, count in each["lowering"])
        for name, became in atlas["lowerings"].items()
        for each in became
        if architecture in each["on"]
    }
    return {name: Lowering(_matrix(sequence), sequence, "known model") for name, sequence in sequences.items()}


def _matrix(sequence: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    return tuple(opcode for opcode, _ in sequence if MATRIX.match(opcode))


def prepare(cubins: Iterable[Cubin]) -> None:
    """Disassemble many probes at once, so that `lowering` finds them. Does nothing without a disassembler."""
    with ThreadPoolExecutor(os.cpu_count()) as pool, suppress(ToolMissing, ToolFailed):
        list(pool.map(lowering, cubins))


def _read(path: Path) -> tuple[tuple[str, int], ...] | None:
    try:
        kept = json.loads(cache.read_entry(path))
        if kept["schema"] != _SCHEMA:
            return None
        return tuple((str(opcode), int(count)) for opcode, count in kept["sequence"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
