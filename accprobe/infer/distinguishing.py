"""Operands that distinguish models, and the comparison of models with results.

Random operands of the usual kinds seldom reach a rule that shows at one exponent of hundreds, beside a sum that cancels. So
operands are made for it (`accprobe.operands.directed`); for integers, random ones are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.evaluator import evaluation_of
from accprobe.evaluate.reference import Evaluation
from accprobe.isa.formats import Bits
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import parsed
from accprobe.model.tree import DotModel, FloatArithmetic, FusedSum
from accprobe.operands.directed import FLOORS, Target, directed
from accprobe.operands.kinds import draw_every_kind, kinds
from accprobe.operands.request import Request

# The target that operands were made for (None: random ones), and their number.
Batch = tuple[Target | None, int]

RowIndices = NDArray[np.intp]

SOME = 60  # Results that are enough to contradict most models.
WHOLE = 256  # Results that are compared in little more time than a few of them.


class Results:
    """Dot products of an instruction, and the results `d` [N] of a device or of a model."""

    def __init__(self, inst: Instruction, operands: Request, d: Bits | DotModel) -> None:
        self.operands, self._inst = operands, inst
        self.d: Bits = self._evaluation.of(d) if isinstance(d, DotModel) else d

    def __len__(self) -> int:
        return len(self.d)

    def mismatches(self, model: DotModel) -> RowIndices:
        return np.flatnonzero(self._evaluation.of(model) != self.d)

    def explained_by(self, model: DotModel) -> bool:
        """Return whether all results are the model's; of very many, a few are compared first."""
        return (len(self) <= WHOLE or not len(self._some.mismatches(model))) and not len(self.mismatches(model))

    def subset(self, rows: RowIndices) -> Results:
        return Results(self._inst, self.operands[rows], self.d[rows])

    @cached_property
    def _evaluation(self) -> Evaluation:
        return evaluation_of(self._inst, self.operands)

    @cached_property
    def _some(self) -> Results:
        return self.subset(spread(np.arange(len(self.d)), SOME))


def spread(rows: RowIndices, most: int) -> RowIndices:
    """Return at most so many of the rows, evenly spread."""
    return rows[:: -(-len(rows) // most)]


class Search:
    """Makes operands on which alternatives may differ from one model; operands of one alternative serve the next ones too."""

    def __init__(self, inst: Instruction, model: DotModel, seed: int = 0) -> None:
        self._inst, self._model, self._seed = inst, model, seed
        self._batches: dict[Batch, Results] = {}

    def made_for(self, alternative: DotModel, features: Sequence[str], n: int, narrow: bool = True) -> dict[Batch, Results]:
        """Return n dot products for each place of the features in which the alternative differs, with the model's results.

        For integers, return about n of every kind of operands together. narrow: made for this alternative, not for all that
        differ in the feature.
        """
        targets = [None] if self._inst.is_integer else [target(self._model, alternative, name, narrow) for name in features]
        return {(aim, n): self._batch(aim, n) for aim in targets}

    def _batch(self, aim: Target | None, n: int) -> Results:
        if (aim, n) not in self._batches:
            rng = np.random.default_rng([self._seed, n, *(aim.seed if aim else ())])
            each = -(-n // len(kinds(self._inst)))
            made = directed(self._inst, self._model, aim, rng, n) if aim else draw_every_kind(self._inst, rng, each)
            self._batches[aim, n] = Results(self._inst, made, self._model)
        return self._batches[aim, n]


last_search = lru_cache(maxsize=1)(Search)
"""Return the last search if it had this instruction, model and seed; else a new one."""


def target(model: DotModel, alternative: DotModel, feature: str, narrow: bool) -> Target:
    """Return where the two models differ in that feature; narrow: in the sums that differ, about the alternative's last bit.

    If results of normal size keep all bits of the alignment, their rounding shows only at small results.
    """
    what = parsed(feature)
    place = what.field.place if what.field else "anywhere"
    floors = _numbers_in(alternative, "min_exponent") or _numbers_in(model, "min_exponent") or FLOORS
    if narrow:
        ours, theirs = (set(_numbers_in(x, "alignment_bits")) for x in (model, alternative))
        sums, bits = _sums_that_differ(model, alternative), tuple(sorted(theirs - ours))
    else:
        of_role = [node.role == what.role for node in model.root.nodes()]
        sums, bits = tuple(i for i, alike in enumerate(of_role) if alike) or tuple(range(len(of_role))), ()
    nodes = [node for x in (model, alternative) for i, node in enumerate(x.root.nodes()) if i in sums]
    if what.field and what.field.decides == "results" and not any(map(_rounds, nodes)):
        place = "underflow"
    return Target(place, sums, floors if place == "floor" else (), bits)


def _rounds(node: FusedSum) -> bool:
    """Return whether a result of normal size may keep fewer bits than the alignment; products are below 4 * 2^exponent."""
    x = node.arithmetic
    if not isinstance(x, FloatArithmetic) or x.alignment_bits is None:
        return True
    return x.alignment_bits + 2 + len(node.terms).bit_length() > x.result_bits


def _numbers_in(model: DotModel, field: str) -> tuple[int, ...]:
    """Return the numbers that the arithmetics have in that field."""
    values = (getattr(x, field, None) for x in model.arithmetics)
    return tuple(value for value in values if value is not None)


def _sums_that_differ(model: DotModel, alternative: DotModel) -> tuple[int, ...]:
    """Return the sums of the model with another arithmetic than the alternative's; all if the trees differ, or none does."""
    ours, theirs = list(model.root.nodes()), list(alternative.root.nodes())
    everywhere = tuple(range(len(ours)))
    if len(ours) != len(theirs):
        return everywhere
    return tuple(i for i in everywhere if ours[i].arithmetic != theirs[i].arithmetic) or everywhere
