"""Refinement: a search, on random operands, from the initial model to a model that explains all results.

Crafted probes, which gave the initial model, show one feature each; random operands show all at once. While a neighbour of the
model explains more, it replaces the model. Neighbours differ in one field, in the minimum exponent of the alignment, in related
fields, or in fields that the probes did not determine. A few results rule out most neighbours, so the results that the model
mispredicts and a sample of the others come first.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import islice

import numpy as np

from accprobe.infer.alternatives import variants
from accprobe.infer.alternatives.variants import Variants
from accprobe.infer.distinguishing import Results, spread
from accprobe.infer.experiments.nonstandard import nonstandard_variants
from accprobe.infer.findings import Finding, Findings, feature_values, is_omitted
from accprobe.infer.query_log import Budget
from accprobe.infer.workbench import Workbench
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import of_alignment, parsed
from accprobe.model.record import Value
from accprobe.model.tree import DotModel
from accprobe.operands.kinds import draw_every_kind
from accprobe.operands.request import joined

SEED = 20_25
# Random dot products of each kind for the whole model, round by round; the last round is for models that needed a change.
ROUNDS = (80, 240, 480, 240)
THOROUGH = 2  # The round from which on all neighbours are tried, unless the device contradicts itself.
MOST_OTHERS = 4000  # Neighbours that are compared with the results beside the model that explains them, at most.
STEPS = 12  # Changes to a model, at most.
SCREEN = 60  # Wrong results that every neighbour is compared with first, among four times as many others.
FINALISTS = 24  # Neighbours that explain most of those, which are compared with all results.

NEAR: tuple[Variants, ...] = (
    variants.chain_beginnings,
    variants.one_field,
    variants.every_floor,
    variants.alignments_or_results,
    nonstandard_variants,
)
# The last resort is one sum that differs from the others.
FAR: tuple[Variants, ...] = (
    variants.undetermined_fields,
    variants.alignments_and_exponents,
    variants.all_bit_fields,
    variants.one_field_of_any_sum,
)


# A model, its findings, and other models that explain the random dot products on which it was chosen.
Refined = tuple[DotModel, Findings, list[DotModel]]


def refine(bench: Workbench, model: DotModel, findings: Findings) -> Refined:
    """Return a model that explains every random dot product, or the nearest one; the findings are changed likewise.

    Each round draws new dot products. If the model mispredicts some, they join the pool on which a better one is
    searched. Counterexamples of earlier models are in it from the start.
    """
    inst = bench.inst
    known = [joined([exchange.request(inst) for exchange in bench.counterexamples])] if bench.counterexamples else []
    pool = [(operands, bench.mismatches(operands, model)[0]) for operands in known]
    for turn, each in enumerate(ROUNDS):
        if turn == len(ROUNDS) - 1 and not pool:
            break
        rng = np.random.default_rng([SEED, turn])
        operands = draw_every_kind(inst, rng, each)
        d, wrong = bench.mismatches(operands, model)
        if len(wrong):
            pool.append((operands, d))
        if pool:
            results = Results(inst, joined([o for o, _ in pool]), np.concatenate([d for _, d in pool]))
            thorough = turn >= THOROUGH and not bench.log.unstable
            for better in improvements(inst, model, findings, results, thorough, bench.log.budget):
                model = better
                findings = _settled(findings, model)
    if not pool or bench.log.unstable or not results.explained_by(model):
        return model, findings, []
    others = islice(_neighbours(inst, model, findings, thorough), MOST_OTHERS)
    return model, findings, [other for other in others if other != model and results.explained_by(other)]


def improvements(
    inst: Instruction, model: DotModel, findings: Findings, results: Results, thorough: bool, budget: Budget
) -> Iterator[DotModel]:
    """Yield better and better models, each a neighbour of the one before.

    It ends when all results are explained, no neighbour is better or the budget is spent. thorough: try also the many
    neighbours that differ in several fields, or in only one sum.
    """
    kinds = NEAR + FAR if thorough else NEAR
    for _ in range(STEPS):
        better = next(filter(None, (_best(model, budget.take(n(inst, model, findings)), results) for n in kinds)), None)
        if better is None:
            return
        yield better
        model = better


def _best(model: DotModel, candidates: Iterable[DotModel], results: Results) -> DotModel | None:
    """Return the candidate that explains more results than the model, and most of all; None if there is none."""
    wrong = results.mismatches(model)
    if not len(wrong):
        return None
    few = np.unique(np.concatenate([spread(wrong, SCREEN), spread(np.arange(len(results)), 4 * SCREEN)]))
    known, at_most = results.subset(few), len(np.intersect1d(few, wrong))
    screened = [(len(known.mismatches(candidate)), candidate) for candidate in candidates]
    screened = sorted((pair for pair in screened if pair[0] < at_most), key=lambda pair: pair[0])
    tried = [(len(results.mismatches(candidate)), candidate) for _, candidate in islice(screened, FINALISTS)]
    fewest, best = min(tried, key=lambda pair: pair[0], default=(len(wrong), None))
    return best if best and fewest < len(wrong) else None


def _neighbours(inst: Instruction, model: DotModel, findings: Findings, thorough: bool) -> Iterator[DotModel]:
    """Yield the neighbours in which all sums of one role change together, except those that change only a minimum exponent."""
    far = (variants.undetermined_fields, variants.alignments_and_exponents, variants.all_bit_fields)
    for neighbours in (variants.one_field, variants.alignments_or_results, *(far if thorough else ())):
        yield from neighbours(inst, model, findings)


def _settled(findings: Findings, model: DotModel) -> Findings:
    """Return the findings in line with a model that the search has chosen."""
    changed = dict(findings)
    known = feature_values(model)
    new = of_alignment() if known.get("alignment_bits") is not None else []
    new += [feature for feature in known if (field := parsed(feature).field) and field.tacit and feature not in new]
    note = "settled on random operands"
    changed = {name: Finding(known[name], note=note) for name in new if not is_omitted(name, known[name])} | changed
    for feature, value in known.items():
        finding = changed.get(feature)
        if finding and finding.value != value and not _is_above(finding, value):
            changed[feature] = replace(finding, value=value, bound="exact", candidates=(), note=note)
    return changed


def _is_above(finding: Finding, value: Value) -> bool:
    """Return whether the lower bound allows a value; None stands for all bits."""
    if finding.bound != "at_least" or not isinstance(finding.value, int):
        return False
    return value is None or (isinstance(value, int) and value > finding.value)
