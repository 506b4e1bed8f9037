"""Requests to a device or a model: independent dot products of one instruction, as bit patterns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from accprobe.errors import AccprobeError
from accprobe.isa.families import FAMILIES
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction

# Some of the dot products: their places, or a flag for each.
Rows = slice | list[int] | NDArray[np.intp] | NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Request:
    """N dot products d = a · b + c, unsigned bit patterns of the instruction's formats.

    a, b: [N, K]; c: [N]. A sparse A has only the stored elements: a is [N, K / 2].
    metadata: the stored elements of each group of A, [N, K / group], a code of 4 bits in a byte (see `sparsity`); None: all.
    scales_a, scales_b: the block scales, [N, K / scale_block] each; None if there are none.
    """

    a: Bits
    b: Bits
    c: Bits
    metadata: Bits | None = None
    scales_a: Bits | None = None
    scales_b: Bits | None = None

    @classmethod
    def zeros(cls, inst: Instruction, n: int) -> Request:
        """Return n dot products of all-zero patterns, except block scales, which are 1, and metadata, which are valid."""
        request = cls(**{name: np.zeros((n, *width), dtype) for name, (dtype, width) in shapes(inst).items()})
        for scales in (request.scales_a, request.scales_b):
            if scales is not None and inst.scale is not None:
                scales[:] = inst.scale.encode(False, 1, 0)
        if request.metadata is not None and inst.sparsity is not None:
            request.metadata[:] = inst.sparsity.codes[0]
        return request

    def __len__(self) -> int:
        return len(self.c)

    def __getitem__(self, rows: Rows) -> Request:
        return replace(self, **{name: column[rows] for name, column in self._named().items()})

    @property
    def columns(self) -> tuple[Bits, ...]:
        """Return the arrays that exist: a, b, c, then metadata and scales."""
        return tuple(self._named().values())

    def check(self, inst: Instruction) -> None:
        """Raise AccprobeError if types or shapes are not the instruction's."""
        wanted = shapes(inst)
        known = self._named()
        for name in dict.fromkeys((*wanted, *known)):
            if name not in known:
                raise AccprobeError(f"{inst.name}: {name} is missing")
            if name not in wanted:
                raise AccprobeError(f"{inst.name}: {name} is given, and the instruction has none")
            column, (dtype, width) = known[name], wanted[name]
            shape = (len(self), *width)
            if column.dtype != dtype or column.shape != shape:
                raise AccprobeError(f"{inst.name}: {name} is {column.dtype}{list(column.shape)}, expected {dtype}{list(shape)}")

    def _named(self) -> dict[str, Bits]:
        return {field.name: column for field in fields(self) if (column := getattr(self, field.name)) is not None}


def shapes(inst: Instruction) -> dict[str, tuple[np.dtype[np.unsignedinteger], tuple[int, ...]]]:
    """Return the types of the arrays of a request, and their shapes for one dot product."""
    stored = inst.k // 2 if inst.sparse else inst.k
    wanted = {"a": (inst.a.dtype, (stored,)), "b": (inst.b.dtype, (inst.k,)), "c": (inst.c.dtype, tuple[int, ...]())}
    if inst.sparsity is not None:
        wanted["metadata"] = np.dtype(np.uint8), (inst.k // inst.sparsity.group,)
    if inst.scale is not None and inst.scale_block is not None:
        wanted |= dict.fromkeys(("scales_a", "scales_b"), (inst.scale.dtype, (inst.k // inst.scale_block,)))
    return wanted


def joined(parts: Sequence[Request]) -> Request:
    """Join several requests of one instruction."""
    each = [part._named() for part in parts]
    return replace(parts[0], **{name: np.concatenate([columns[name] for columns in each]) for name in each[0]})


def alike(inst: Instruction) -> Instruction:
    """Return the instruction without fields that do not affect dot products, so that equal dot products share results."""
    plain = replace(inst, name="dot product", family=FAMILIES[0], m=1, n=1, satfinite=False, a_registers=False)
    return replace(plain, kind=None, mnemonic=None)
