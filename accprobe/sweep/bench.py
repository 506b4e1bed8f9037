"""Where the sweep's kernel runs, and what comes back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from accprobe.sweep.compilation import Compiled
from accprobe.sweep.operands import Operands

Sample = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Rows and columns of the elements whose bits are asked for."""


class Measured(NamedTuple):
    """The results of a run. For each mask: the elements that it changes, |C - exact| / |exact|, and the bits of the sampled
    elements, [masks, rows, columns]. Where a GPU ran it: TFLOP/s without a mask, registers and spills a thread.
    """

    changed: list[int]
    errors: list[float]
    sampled: NDArray[np.uint32]
    tflops: float | None = None
    registers: int | None = None
    spills: int | None = None


class Bench(Protocol):
    """A GPU (`accprobe.sweep.gpu`)."""

    def measure(self, compiled: Compiled, operands: Operands, cuts: Sequence[int], sample: Sample) -> Measured:
        """Run the kernel once with each mask."""

    def product(self, compiled: Compiled, operands: Operands) -> NDArray[np.int32]:
        """The kernel's result for integers, [M, N]."""
