"""Operands for the search where two models differ.

Random operands of the usual kinds reach a rule seldom that shows in one exponent of hundreds, beside a sum that cancels. So
they are made for it (`accprobe.operands.directed`); for integers, random ones are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from accprobe.infer.answers import Answers
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel
from accprobe.operands.directed import directed
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import Request, joined
from accprobe.operands.target import Target, target

Batch = tuple[Target | None, int]
"""For what operands were made, and how many of them."""


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
