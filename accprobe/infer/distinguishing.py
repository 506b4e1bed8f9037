"""Operands for the search where two models differ.

Random operands of the usual kinds reach a rule seldom that shows in one exponent of hundreds, beside a sum that cancels. So
they are made for it (`accprobe.operands.directed`); for integers, random ones are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.evaluator import Trial
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.directed import directed
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.operands.target import Target, target

# For what operands were made, and how many of them.
Batch = tuple[Target | None, int]


class Search:
    """Makes operands on which rivals may differ from one model; what one rival was tried on, the next one is too."""

    def __init__(self, inst: Instruction, model: DotModel, seed: int = 0) -> None:
        self._inst, self._model, self._seed = inst, model, seed
        self._batches: dict[Batch, Answers] = {}

    def made_for(self, alternative: DotModel, features: Sequence[str], n: int, narrow: bool = True) -> dict[Batch, Answers]:
        """Dot products, n for each of the features in which the rival differs, and what the model answers.

        narrow: made for that rival, and not for all that differ in the field.
        """
        aims = [None] if self._inst.is_integer else [target(self._model, alternative, name, narrow) for name in features]
        return {(aim, n): self._batch(aim, n) for aim in aims}

    def _batch(self, aim: Target | None, n: int) -> Answers:
        if (aim, n) not in self._batches:
            rng = np.random.default_rng([self._seed, n, *(aim.seed if aim else ())])
            operands = directed(self._inst, self._model, aim, rng, n) if aim else self._random(rng, n)
            self._batches[aim, n] = Answers(self._inst, operands, self._model)
        return self._batches[aim, n]

    def _random(self, rng: np.random.Generator, n: int) -> Request:
        names = list(kinds(self._inst))
        return joined([draw(kind, self._inst, rng, -(-n // len(names))) for kind in names])


def search_for(inst: Instruction, model: DotModel, seed: int) -> Search:
    """The last search, for all that it found, where the instruction differs from that one's in its name and place alone."""
    return _last_search(replace(inst, name="any", m=0, n=0, a_registers=False, satfinite=False), model, seed)


@lru_cache(maxsize=1)
def _last_search(inst: Instruction, model: DotModel, seed: int) -> Search:
    return Search(inst, model, seed)


# Answers that are enough to refute most models.
FEW = 60

# Answers that are compared in little more time than a few of them.
WHOLE = 256

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
