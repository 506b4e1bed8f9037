"""Search: from a model that explains most answers of the device to one that explains all of them.

The neighbours of a model are those that differ from it in one field, in its lowest alignment, in two related fields at once, or
in several fields that the crafted rows left open. As long as a neighbour explains more, it takes the model's place. Most
neighbours are ruled out by a few answers, so those that the model gets wrong and a sample of the others come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np

from accprobe.infer.alternatives.beginnings import in_beginnings
from accprobe.infer.alternatives.far import (
    Neighbours,
    in_a_floor_of_exact_sums,
    in_alignments,
    in_cuts_or_results,
    in_everything_about_bits,
    in_one_respect,
    in_one_respect_of_any_sum,
    in_open_fields,
    in_the_floor,
    in_the_smallest_results,
)
from accprobe.infer.alternatives.nonstandard import nonstandard_variants
from accprobe.infer.distinguishing import Answers, spread
from accprobe.infer.findings import Findings
from accprobe.infer.query_log import Budget
from accprobe.isa.instructions import Instruction
from accprobe.model.tree import DotModel

# Changes to a model, at most.
STEPS = 12
# Wrong answers that every neighbour is held against first, among four times as many others.
SCREEN = 60
# Neighbours that explain most of those, held against all answers.
FINALISTS = 24

NEAR: tuple[Neighbours, ...] = (in_beginnings, in_one_respect, in_the_floor, in_cuts_or_results, nonstandard_variants)
# The last resort is one sum that differs from the others.
FAR: tuple[Neighbours, ...] = (
    in_a_floor_of_exact_sums,
    in_open_fields,
    in_alignments,
    in_the_smallest_results,
    in_everything_about_bits,
    in_one_respect_of_any_sum,
)


def improvements(
    inst: Instruction, model: DotModel, findings: Findings, answers: Answers, thorough: bool, budget: Budget
) -> Iterator[DotModel]:
    """Better and better models, each a neighbour of the one before, until all answers are explained, none is better, or the
    budget is spent.

    thorough: among the many neighbours that differ in several fields, or in one sum alone, too.
    """
    kinds = NEAR + FAR if thorough else NEAR
    for _ in range(STEPS):
        better = next(filter(None, (_best(model, budget.take(n(inst, model, findings)), answers) for n in kinds)), None)
        if better is None:
            return
        yield better
        model = better


def neighbours(inst: Instruction, model: DotModel, findings: Findings, thorough: bool) -> Iterator[DotModel]:
    """The neighbours whose sums of a role are all alike, but for other floors."""
    far = (in_open_fields, in_alignments, in_everything_about_bits)
    for some in (in_one_respect, in_cuts_or_results, *(far if thorough else ())):
        yield from some(inst, model, findings)


def _best(model: DotModel, candidates: Iterable[DotModel], answers: Answers) -> DotModel | None:
    wrong = answers.wrong(model)
    if not len(wrong):
        return None
    few = np.unique(np.concatenate([spread(wrong, SCREEN), spread(np.arange(len(answers)), 4 * SCREEN)]))
    known, at_most = answers.subset(few), len(np.intersect1d(few, wrong))
    screened = [(len(known.wrong(candidate)), candidate) for candidate in candidates]
    screened = sorted((pair for pair in screened if pair[0] < at_most), key=lambda pair: pair[0])
    tried = [(len(answers.wrong(candidate)), candidate) for _, candidate in islice(screened, FINALISTS)]
    left, best = min(tried, key=lambda pair: pair[0], default=(len(wrong), None))
    return best if best and left < len(wrong) else None
