"""The SASS of PTX instructions, as it was recorded for every instruction and compile target."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from accprobe.build.checkout import data_folder
from accprobe.isa.opcodes import MATRIX, MULTIPLIES, stem

OpcodeSource = Literal["nvdisasm", "ncu", "known model", "machine code"]
ATLAS = "lowering"
"""Name of the file beside the recorded reports that has the SASS of each instruction, without its suffix."""


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
    return {name: Lowering(matrix_opcodes(sequence), sequence, "known model") for name, sequence in sequences.items()}


def matrix_opcodes(sequence: Iterable[tuple[str, int]]) -> tuple[str, ...]:
    """Return the opcodes of matrix units in a sequence of (opcode, count)."""
    return tuple(opcode for opcode, _ in sequence if MATRIX.match(opcode))
