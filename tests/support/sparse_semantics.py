"""A sparse A expanded to a dense one, independent of accprobe: PTX ISA, "Sparse matrix storage"."""

from __future__ import annotations

import numpy as np

from accprobe.isa.instructions import Instruction

TWO_OF_FOUR = {0b0100: (0, 1), 0b1000: (0, 2), 0b1001: (1, 2), 0b1100: (0, 3), 0b1101: (1, 3), 0b1110: (2, 3)}
ONE_OF_TWO = {0b0100: (0,), 0b1110: (1,)}
PAIRS_OF_EIGHT = {code: (2 * i, 2 * i + 1, 2 * j, 2 * j + 1) for code, (i, j) in TWO_OF_FOUR.items()}


PACKED = ("mxf4", "mxf4nvf4")
"""Kinds whose elements of four bits are packed like integers."""


def patterns_of(inst: Instruction) -> dict[int, tuple[int, ...]]:
    """Return the elements of a group that each code stores."""
    if inst.a.name == "tf32":
        return ONE_OF_TWO
    return PAIRS_OF_EIGHT if group_of(inst) == 8 else TWO_OF_FOUR


def group_of(inst: Instruction) -> int:
    return 8 if inst.kind in PACKED else {"tf32": 2, "s4": 8, "u4": 8}.get(inst.a.name, 4)


def codes_drawn(inst: Instruction, rng: np.random.Generator, rows: int) -> np.ndarray:
    """Draw metadata of rows of A, [rows, K / group]."""
    return rng.choice(np.array(list(patterns_of(inst)), np.uint8), (rows, inst.k // group_of(inst)))


def kept(inst: Instruction, metadata: np.ndarray) -> np.ndarray:
    """Return the k of the stored elements of each row, [rows, K / 2]; undefined codes read as 0b0100."""
    patterns = patterns_of(inst)
    table = np.array([patterns.get(code, patterns[0b0100]) for code in range(16)])
    first = np.arange(metadata.shape[1])[:, None] * group_of(inst)
    return (table[metadata & 15] + first).reshape(len(metadata), -1)


def of_stored(inst: Instruction, b: np.ndarray, metadata: np.ndarray) -> np.ndarray:
    """Return the factors of the stored elements in B [N, K], [N, K / 2]."""
    return np.take_along_axis(b, kept(inst, metadata), axis=1)


def written_out(inst: Instruction, stored: np.ndarray, metadata: np.ndarray) -> np.ndarray:
    """Return rows of A with zeros for the elements that are not stored, [rows, K]."""
    whole = np.zeros((len(stored), inst.k), stored.dtype)
    np.put_along_axis(whole, kept(inst, metadata), stored, axis=1)
    return whole
