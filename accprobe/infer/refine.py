"""Refinement: what the crafted rows left open, settled on random operands.

Crafted rows ask one question each; random ones ask all at once. A draft that fails on them is not thrown away: among its
neighbours, the models that differ in one field or in the order, the one that explains more takes its place.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import NamedTuple

import numpy as np

from accprobe.evaluate.evaluator import evaluate
from accprobe.infer.distinguishing import Answers
from accprobe.infer.findings import Finding, Findings, unsaid, values
from accprobe.infer.search import improvements, neighbours
from accprobe.infer.workbench import Workbench
from accprobe.model.features import of_alignment, parsed
from accprobe.model.record import Value
from accprobe.model.tree import DotModel
from accprobe.operands.kinds import draw, kinds
from accprobe.operands.request import joined

SEED = 20_25
# Random dot products of each kind for the whole model, round by round; the last is for models that needed a change.
POOL = (80, 240, 480, 240)
# The round from which on no neighbour is spared, unless the device changes its mind.
THOROUGH = 2
# Neighbours that are held against the answers beside the model that explains them, at most.
MOST_OTHERS = 4000
SETTLED = "settled on random operands"


class Refined(NamedTuple):
    """A model, its findings, and other models that explain the random dot products on which it was chosen as well."""

    model: DotModel
    findings: Findings
    others: list[DotModel]


def refine(bench: Workbench, model: DotModel, findings: Findings) -> Refined:
    """A model that explains every random dot product that was asked, or the one nearest to it; the findings changed likewise.

    Each round asks fresh ones; where the model gets some wrong, they join the pool on which a better one is looked for. Those
    that are known to contradict other models are in it from the beginning.
    """
    inst = bench.inst
    pool = [(operands, bench.query(operands, model)) for operands in bench.known_operands()]
    for turn, each in enumerate(POOL):
        if turn == len(POOL) - 1 and not pool:
            break
        rng = np.random.default_rng([SEED, turn])
        operands = joined([draw(kind, inst, rng, each) for kind in kinds(inst)])
        d = bench.query(operands, model)
        if (evaluate(model, inst, operands) != d).any():
            pool.append((operands, d))
        if pool:
            answers = Answers(inst, joined([o for o, _ in pool]), np.concatenate([d for _, d in pool]))
            thorough = turn >= THOROUGH and not bench.log.unstable
            for better in improvements(inst, model, findings, answers, thorough, bench.log.budget):
                model = better
                findings = _settled(findings, model)
    if not pool or bench.log.unstable or not answers.explained_by(model):
        return Refined(model, findings, [])
    others = islice(neighbours(inst, model, findings, thorough), MOST_OTHERS)
    return Refined(model, findings, [other for other in others if other != model and answers.explained_by(other)])


def _settled(findings: Findings, model: DotModel) -> Findings:
    """The findings brought in line with a model that the search has chosen."""
    changed = dict(findings)
    known = values(model)
    new = of_alignment() if known.get("alignment_bits") is not None else []
    new += [feature for feature in known if (field := parsed(feature).field) and field.tacit and feature not in new]
    changed = {name: Finding(known[name], note=SETTLED) for name in new if not unsaid(name, known[name])} | changed
    for feature, value in known.items():
        finding = changed.get(feature)
        if finding and finding.value != value and not _above(finding, value):
            changed[feature] = replace(finding, value=value, bound="exact", candidates=(), note=SETTLED)
    return changed


def _above(finding: Finding, value: Value) -> bool:
    """Whether a value is one that the lower bound allows for; None stands for all bits."""
    if finding.bound != "at_least" or not isinstance(finding.value, int):
        return False
    return value is None or (isinstance(value, int) and value > finding.value)
