"""The tile of an instruction: where independent dot products lie in it, and which lane and register hold an element of D.

One instruction computes M x N dot products of M rows of A and N columns of B. gcd(M, N) of them can be independent; all, if
each lane of a register has its own operands. One request fills tile after tile, each laid out one placement further. Every
element is read once over all placements; with lanes, once by each of a tile's dot products.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import gcd

import numpy as np
from numpy.typing import NDArray

from accprobe.isa.instructions import Instruction

# Rows or columns of elements.
Places = NDArray[np.intp]

# Elements of a tile, [M, N].
Marks = NDArray[np.bool_]


def problems(inst: Instruction) -> int:
    """Return the number of independent dot products in one tile."""
    return inst.m * inst.n if inst.family.lanes else gcd(inst.m, inst.n)


def placements(inst: Instruction) -> int:
    """Return the number of ways to lay out the dot products."""
    return inst.m * inst.n // (1 if inst.family.lanes else problems(inst))


def tiles(inst: Instruction, count: int) -> int:
    """Return how many tiles `count` dot products fill."""
    return -(-count // problems(inst))


def cells_of(inst: Instruction, count: int, placement: int = 0) -> tuple[Places, Places]:
    """Return rows and columns [count] of the elements that hold the dot products; `placement`: of the first tile.

    Matches `Tile` of probes/tile.cuh.
    """
    at, few = np.arange(count), problems(inst)
    placed, problem = placement + at // few, at % few
    if inst.family.lanes:
        rows, columns = np.divmod((problem + placed) % few, inst.n)
        return rows, columns
    return (problem + placed // inst.n % (inst.m // few) * few) % inst.m, (problem + placed) % inst.n


def smallest_part(inst: Instruction, wrong: Marks) -> str:
    """Describe the smallest part of the tile with all marked elements; "" if that is the whole tile or none is marked.

    If one half differs from the other, either can be wrong. Lanes and registers follow D's fragment (PTX ISA, "Matrix
    Fragments for mma.m16n8k16", "wgmma Register Fragment").
    """
    if not wrong.any():
        return ""
    found: list[tuple[int, str]] = []
    for what in _parts(inst):
        first = {name: int(of_cell[wrong][0]) for name, of_cell in what.items()}
        part = np.logical_and.reduce([of_cell == first[name] for name, of_cell in what.items()])
        if not (wrong & ~part).any() and not part.all():
            found.append((int(part.sum()), ", ".join(f"{name} {value}" for name, value in first.items())))
    size, name = min(found, key=lambda part: part[0], default=(0, ""))
    return f"{name} or all else" if name and 2 * size == wrong.size == 2 * wrong.sum() else name


def _parts(inst: Instruction) -> Iterator[dict[str, Places]]:
    """Yield ways to divide the tile: the name of each part and its number for each element, [M, N]."""
    row, column = np.indices((inst.m, inst.n))
    if inst.family.lanes:
        yield {"lane": row * inst.n + column}
        return
    halves = 1 if inst.m < 16 else 2
    element = column // 8 * 2 * halves + row // 8 % halves * 2 + column % 2
    register = element * inst.d.storage_bits // inst.register_bits
    lane, warp = row % 8 * 4 + column % 8 // 2, row // 16
    yield {"row": row, "column": column}
    yield {"row": row}
    yield {"column": column}
    yield {"warp": warp, "lane": lane}
    yield {"warp": warp, "register": register}
    yield {"lane": lane}
    yield {"register": register}
    yield {"warp": warp}
    yield {"half of the rows": row * 2 // inst.m}
    yield {"half of the columns": column * 2 // inst.n}
