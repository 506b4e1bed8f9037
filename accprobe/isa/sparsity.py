"""Which elements of a sparse A are stored: half of each group along K, selected by a 4-bit code for each group.

A code is two numbers of 2 bits, the lower one first: which two quarters of the group are stored. PTX ISA, "Sparse matrix
storage" of `mma.sp` and of `wgmma.mma_async.sp`: 2:4 of elements of 16 and 8 bits; 4:8 in pairs of those of 4 bits, a quarter
being two elements; 1:2 of tf32, each element being two quarters.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

QUARTERS_OF_GROUP = 4
CODE_BITS = 4
# Four neighbouring lanes hold two rows of A; one of them gives 8 codes of metadata.
GROUPS_OF_LANE = 4

# Places along K, ascending.
Places = NDArray[np.intp]


@dataclass(frozen=True)
class Sparsity:
    """group: elements of A of which half are stored. rows: that the register of metadata of a lane has codes of."""

    group: int
    rows: int

    @cached_property
    def places(self) -> dict[int, tuple[int, ...]]:
        """Stored elements of a group, ascending, by valid code."""
        quarters = {low | high << 2: (low, high) for low, high in combinations(range(QUARTERS_OF_GROUP), 2)}
        elements = {code: self._whole(stored) for code, stored in quarters.items()}
        return {code: places for code, places in elements.items() if len(places) == self.group // 2}

    @cached_property
    def codes(self) -> tuple[int, ...]:
        """Valid codes: two different quarters, the lower one first, that hold whole elements."""
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

    def _whole(self, quarters: tuple[int, ...]) -> tuple[int, ...]:
        """Return the elements whose bits all lie in these quarters."""
        every = range(self.group)
        return tuple(e for e in every if {q for q in range(QUARTERS_OF_GROUP) if self._meet(e, q)} <= set(quarters))

    def _meet(self, element: int, quarter: int) -> bool:
        return (
            element * QUARTERS_OF_GROUP < (quarter + 1) * self.group
            and quarter * self.group < (element + 1) * QUARTERS_OF_GROUP
        )


# Sparsity by the bits of an element of A in registers.
BY_BITS = {4: Sparsity(8, 1), 8: Sparsity(4, 1), 16: Sparsity(4, 2), 32: Sparsity(2, 2)}
