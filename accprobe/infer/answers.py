"""What a device, or a model, answered, for model after model to be held against."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.evaluator import Trial
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.request import Request

FEW = 60
"""Answers that are enough to refute most models."""

WHOLE = 256
"""Answers that are compared in little more time than a few of them."""

Which = NDArray[np.intp]


class Answers:
    """Dot products of an instruction, and the answers `d` [N] of a device, or of a model."""

    def __init__(self, inst: Instruction, operands: Request, d: Bits | DotModel) -> None:
        self.operands, self._inst = operands, inst
        self.d: Bits = self._trial.of(d) if isinstance(d, DotModel) else d

    def __len__(self) -> int:
        return len(self.d)

    def wrong(self, model: DotModel) -> Which:
        """Which of the answers are not the model's."""
        return np.flatnonzero(self._trial.of(model) != self.d)

    def explained_by(self, model: DotModel) -> bool:
        """Whether all answers are the model's; of very many, a few are compared first."""
        return (len(self) <= WHOLE or not len(self._few.wrong(model))) and not len(self.wrong(model))

    def subset(self, which: Which) -> Answers:
        """Those alone."""
        return Answers(self._inst, self.operands[which], self.d[which])

    @cached_property
    def _trial(self) -> Trial:
        return Trial(self._inst, self.operands)

    @cached_property
    def _few(self) -> Answers:
        return self.subset(spread(np.arange(len(self.d)), FEW))


def spread(which: Which, most: int) -> Which:
    """At most so many of them, evenly spread."""
    return which[:: -(-len(which) // most)]
