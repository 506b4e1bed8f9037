"""What a PTX instruction became: the SASS that runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OpcodeSource = Literal["nvdisasm", "ncu", "known model"]


@dataclass(frozen=True)
class Lowering:
    """The SASS that an instruction became, and where that was read.

    sequence: (opcode, count) in order of first appearance, matrix opcodes, conversions and adds of C; no data movement.
    matrix: the matrix opcodes alone, e.g. ("HMMA.16816.F32",); empty where nothing of the kind was found.
    """

    matrix: tuple[str, ...]
    sequence: tuple[tuple[str, int], ...]
    source: OpcodeSource
    cubin_sha256: str | None = None
