"""What a device answered, for model after model to be held against."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluator import Trial
from accprobe.formats import Bits
from accprobe.instructions import Instruction
from accprobe.model import DotModel
from accprobe.operands import Operands

FEW = 60
"""Answers that are enough to refute most models."""

Which = NDArray[np.intp]


class Answers:
    """Dot products of an instruction, and the device's answers [N]."""

    def __init__(self, inst: Instruction, operands: Operands, d: Bits) -> None:
        self._inst, self._operands, self._d = inst, operands, d
        self._trial = Trial(inst, *operands)

    def __len__(self) -> int:
        return len(self._d)

    def wrong(self, model: DotModel) -> Which:
        """Which of the answers are not the model's."""
        return np.flatnonzero(self._trial.of(model) != self._d)

    def explained_by(self, model: DotModel) -> bool:
        """Whether all answers are the model's; a few are compared first."""
        return not len(self._few.wrong(model)) and not len(self.wrong(model))

    def some(self, which: Which) -> Answers:
        """Those alone."""
        a, b, c = self._operands
        return Answers(self._inst, Operands(a[which], b[which], c[which]), self._d[which])

    @cached_property
    def _few(self) -> Answers:
        return self.some(spread(np.arange(len(self._d)), FEW))


def spread(which: Which, most: int) -> Which:
    """At most so many of them, evenly spread."""
    return which[:: -(-len(which) // most)]
