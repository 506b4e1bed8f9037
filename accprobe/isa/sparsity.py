"""The stored elements of a sparse A: half of each group along K, selected by a 4-bit code for each group.

A code is two numbers of 2 bits, the lower one first, which name the two stored quarters of the group. Elements of 16 and 8
bits are 2:4 sparse. Elements of 4 bits are 4:8 sparse in pairs: a quarter is two elements. tf32 is 1:2 sparse: an element is
two quarters. Source: PTX ISA, "Sparse matrix storage" of `mma.sp` and of `wgmma.mma_async.sp`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

CODE_BITS = 4
GROUPS_OF_LANE = 4  # Four neighbouring lanes hold two rows of A; one of them gives 8 codes of metadata.

# Places along K, ascending.
Places = NDArray[np.intp]


@dataclass(frozen=True)
class Sparsity:
    """group: number of elements; half of them are stored. rows: number of rows of A with codes in one metadata register."""

    group: int
    rows: int

    @cached_property
    def places(self) -> dict[int, tuple[int, ...]]:
        """Return by valid code the stored elements of a group, ascending."""
        if self.group == 2:
            return {0b0100: (0,), 0b1110: (1,)}
        each = self.group // 4
        pairs = combinations(range(4), 2)
        return {low | high << 2: tuple(q * each + i for q in (low, high) for i in range(each)) for low, high in pairs}

    @property
    def codes(self) -> tuple[int, ...]:
        """Return the valid codes: two different quarters, the lower one first, that hold whole elements."""
        return tuple(self.places)

    def stored(self, metadata: NDArray[np.unsignedinteger]) -> Places:
        """Return the stored elements [N, K / 2] of codes [N, K / group]. Invalid codes count as 0b0100."""
        table = np.array([self.places.get(code, self.places[self.codes[0]]) for code in range(1 << CODE_BITS)], np.intp)
        first = np.arange(metadata.shape[1])[:, None] * self.group
        places: Places = (table[metadata & (1 << CODE_BITS) - 1] + first).reshape(
            len(metadata), metadata.shape[1] * self.group // 2
        )
        return places

    def lanes(self, k: int) -> int:
        """Return how many lanes of four neighbours supply metadata for a K; a selector chooses them."""
        return k // self.group // GROUPS_OF_LANE


# Sparsity by the bits of an element of A in registers.
BY_BITS = {4: Sparsity(8, 1), 8: Sparsity(4, 1), 16: Sparsity(4, 2), 32: Sparsity(2, 2)}
