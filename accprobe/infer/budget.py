"""How much a search may cost: where no model explains the answers, it ends within seconds all the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TypeVar

CANDIDATES = 15_000
"""Models that are held against the answers of one instruction, at most.

An H200's instructions need none, planted ones hundreds, seldom thousands.
"""

T = TypeVar("T")


class Budget:
    """What is left of `CANDIDATES`."""

    def __init__(self, left: int = CANDIDATES) -> None:
        self.left = left

    def take(self, candidates: Iterable[T]) -> Iterator[T]:
        """As many of them as may still be tried."""
        for candidate in candidates:
            if not self.left:
                return
            self.left -= 1
            yield candidate
