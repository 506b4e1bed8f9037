"""Refinement: a search, on random operands, from the initial model to a model that explains all results.

Crafted probes, which gave the initial model, show one feature each; random operands show all at once. While a neighbour of the
model explains more, it replaces the model. Neighbours differ in one field, in the minimum exponent of the alignment, or in
related fields. A few results rule out most neighbours, so the mispredicted results and a sample of the others come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, product
from typing import get_args

import numpy as np

from accprobe.infer.alternative import (
    FieldValues,
    alternatives_with,
    combinations_of,
    float_arithmetics,
    with_features,
)
from accprobe.infer.distinguishing import Results, spread
from accprobe.infer.neighbours import alternatives, floors, unusual_alternatives
from accprobe.infer.query_log import Budget
from accprobe.infer.workbench import Workbench
from accprobe.isa.instructions import Instruction
from accprobe.model.fields import of_alignment, parsed, with_values
from accprobe.model.record import Value
from accprobe.model.tree import (
    SUM_BITS,
    AlignmentRounding,
    Arithmetic,
    DotModel,
    FloatArithmetic,
    FusedSum,
    NanPayload,
    Overflow,
    Product,
    ProductExponent,
    Rounding,
    ZeroSign,
)
from accprobe.operands.kinds import draw_every_kind
from accprobe.operands.request import joined
from accprobe.records.findings import Finding, Findings, feature_values, is_omitted

Variants = Callable[[Instruction, DotModel, Findings], Iterable[DotModel]]


def one_field(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models that differ in one field of all sums of a role, or in the order."""
    return (alternative.model for alternative in alternatives(model, findings, of_one_sum=False))


def one_field_of_any_sum(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models that differ in one field of all sums of a role or of only one sum, or in the order."""
    return (alternative.model for alternative in alternatives(model, findings))


def every_floor(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with every lowest exponent of the alignment that may show."""
    for levels in floors(inst, model):
        yield from (alternative.model for alternative in (levels.none, *levels.above, *levels.below) if alternative)


def alignments_or_results(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with other alignment bits and roundings; with other result bits, roundings and overflow."""
    yield from _alignments(model)
    yield from _results(model)


def _results(model: DotModel) -> Iterator[DotModel]:
    for arithmetic, _ in float_arithmetics(model):
        widths = range(arithmetic.result.mantissa_bits + 1)
        results = {"result_bits": widths, "result_rounding": get_args(Rounding), "overflow": get_args(Overflow)}
        yield from (other.model for other in alternatives_with(model, arithmetic, combinations_of(results)))


def _alignments(model: DotModel) -> Iterator[DotModel]:
    ways = {"alignment_bits": (*range(SUM_BITS), None), "alignment_rounding": get_args(AlignmentRounding)}
    for arithmetic, _ in float_arithmetics(model):
        yield from (other.model for other in alternatives_with(model, arithmetic, combinations_of(ways)))


def alignments_and_exponents(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with other alignment bits and roundings, and other exponents at which terms are truncated, also of zeros."""
    rules = [{"product_exponent": word, "zero_terms": "ignored"} for word in get_args(ProductExponent)]
    rules.append({"product_exponent": "unnormalised", "zero_terms": "aligned"})
    for aligned in _alignments(model):
        yield from (with_features(aligned, rule) for rule in rules)


def unusual_fields(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models with other values of the tacit fields, and of the alignment bits of products that are scaled at once."""
    return (alternative.model for alternative in unusual_alternatives(inst, model, ALIGNMENTS))


@dataclass(frozen=True)
class _Beginning:
    """How a chain begins from zero.

    parts: the products of a first sum that are rounded on their own. first, others: fields of single products and of other
    sums. turned: of two chains, the second is read first.
    """

    parts: tuple[int, ...]
    first: FieldValues
    others: FieldValues
    turned: bool = False

    def of(self, node: FusedSum) -> FusedSum:
        arithmetic, single = (with_values(node.arithmetic, fields) for fields in (self.others, self.first))
        if not _may_begin(node):
            turned = self.turned and len(node.terms) == 2 == len(node.children)
            return FusedSum(node.terms[::-1] if turned else node.terms, arithmetic)
        if len(node.terms) == 1:
            return FusedSum(node.terms, single)
        split = [FusedSum((leaf,), single) if i in self.parts else leaf for i, leaf in enumerate(node.terms)]
        return FusedSum(tuple(sorted(split, key=lambda term: isinstance(term, Product))), arithmetic)


def chain_beginnings(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield models of chains that round their first product before another joins it (AMX), if a sum has at most two products.

    Such a chain looks like one with two products in the first sum if the result can represent the first of them. A product too
    small or too large for that, and the choice of NaN that passes through, distinguish them. A chain that adds its first
    product to +0 never begins with -0, whatever sign its other sums of zeros have. Signs of zeros and NaNs show in different
    results, so they do not change together.
    """
    nodes = list(model.root.nodes())
    first = [node for node in nodes if _may_begin(node)]
    if not first or not all(_is_exact(node.arithmetic) for node in nodes):
        return
    signs = [{"zero_sign": sign} for sign in get_args(ZeroSign)]
    ways = [(one, other, False) for one, other in product(signs, signs)]
    if all(fmt.widens_to(inst.d) for fmt in (inst.a, inst.b, inst.c)):
        payloads = [{"nan_payload": payload} for payload in get_args(NanPayload)]
        ways += [(payload, payload, turned) for payload, turned in product(payloads, (False, True))]
    splits = ((), (0,), (1,), (0, 1)) if any(len(node.terms) == 2 for node in first) else ((),)
    for parts, way in product(splits, ways):
        yield replace(model, root=model.root.map(_Beginning(parts, *way).of))


def _may_begin(node: FusedSum) -> bool:
    return len(node.terms) <= 2 and all(isinstance(term, Product) for term in node.terms)


def _is_exact(arithmetic: Arithmetic) -> bool:
    return isinstance(arithmetic, FloatArithmetic) and arithmetic.alignment_bits is None


ALIGNMENTS = range(40, 12, -1)  # Alignment bits of sums of products that are scaled at once.

SEED = 20_25
# Random dot products of each kind for the whole model, round by round; the last round is for models that needed a change.
ROUNDS = (80, 240, 480, 240)
THOROUGH = 2  # Index of the round from which on all neighbours are tried, unless the device contradicts itself.
MOST_OTHERS = 4000  # Neighbours of a model that are tested after it was chosen, at most.
STEPS = 12  # Changes to a model, at most.
SCREEN = 60  # Wrong results that every neighbour is compared with first, among four times as many others.
FINALISTS = 24  # Neighbours that explain most of those, which are compared with all results.

# Beginnings come first: a field that stands in for one leads away from it. The kind with most neighbours comes last.
NEAR: tuple[Variants, ...] = (chain_beginnings, one_field, every_floor, unusual_fields, alignments_or_results)


# A model, its findings, and the results on which it was chosen; None if the first model explained all, or the last does not.
Refined = tuple[DotModel, Findings, Results | None]


def refine(bench: Workbench, model: DotModel, findings: Findings) -> Refined:
    """Return a model that explains every random dot product, or the best one found; the findings are changed likewise.

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
    return model, findings, results if pool and results.explained_by(model) else None


def improvements(
    inst: Instruction, model: DotModel, findings: Findings, results: Results, thorough: bool, budget: Budget
) -> Iterator[DotModel]:
    """Yield better and better models, each a neighbour of the one before.

    It ends when all results are explained, no neighbour is better or the budget is spent. thorough: try also the many
    neighbours that differ in several fields, or in only one sum.
    """
    kinds = (*NEAR, alignments_and_exponents, one_field_of_any_sum) if thorough else NEAR
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
    screened, perfect = [], 0
    for candidate in candidates:
        count = len(known.mismatches(candidate))
        if count < at_most:
            screened.append((count, candidate))
        if not count:
            perfect += 1
            if perfect <= FINALISTS and results.explained_by(candidate):
                return candidate  # no other is better
    screened.sort(key=lambda pair: pair[0])
    tried = [(len(results.mismatches(candidate)), candidate) for _, candidate in islice(screened, FINALISTS)]
    fewest, best = min(tried, key=lambda pair: pair[0], default=(len(wrong), None))
    return best if best and fewest < len(wrong) else None


def several_fields(inst: Instruction, model: DotModel, findings: Findings) -> Iterator[DotModel]:
    """Yield neighbours in which all sums of one role change together, except those that change only a minimum exponent.

    Sums that all keep every bit are not aligned: with enough bits that is the same function.
    """
    others = [one_field(inst, model, findings)]
    if all(_is_exact(arithmetic) for arithmetic in model.arithmetics):
        others += [_results(model)]
    else:
        others += [some(inst, model, findings) for some in (alignments_or_results, alignments_and_exponents)]
    return islice(chain.from_iterable(others), MOST_OTHERS)


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
