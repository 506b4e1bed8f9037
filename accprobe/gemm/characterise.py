"""The twelve questions to a matrix product, in turn: what it computes, where, how surely.

Each experiment asks the callable itself and knows nothing of whose it is. What comes out is a plan for each region of D, held
against every answer that was kept, against fresh operands and against rivals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from accprobe.errors import AccprobeError
from accprobe.evaluate.any_order import Evaluate, on_cpu
from accprobe.gemm import battery, contract, multiplicity, out_of_range, refit, repeatability
from accprobe.gemm.alternatives import OF_TINY, AlternativePlan, alternative_plans, contradicted, contradicting, telling
from accprobe.gemm.battery import Answered, Sparse
from accprobe.gemm.blackbox import BlackBox, RecordedCallable, TooManyCalls
from accprobe.gemm.candidates import beside, integer_step
from accprobe.gemm.counterexample import of_few_terms
from accprobe.gemm.coverage import probe_chains
from accprobe.gemm.decomposition import (
    FusedGroups,
    Reduction,
    decompose,
    every_chain,
    with_first_sums_swapped,
    with_repeated_products,
)
from accprobe.gemm.dependence import Dependence, find_dependence
from accprobe.gemm.fit import fit, low_bits, within
from accprobe.gemm.outcome import ProductOutcome, RegionOutcome
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import ProductPlan
from accprobe.gemm.prescaled import explain_calls
from accprobe.gemm.regions import Region, find_regions
from accprobe.gemm.scaling import with_scales
from accprobe.gemm.slices import in_slices
from accprobe.gemm.softmax_weights import check_softmax_weights
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree_builder import NoTree, make_tree_builder
from accprobe.gemm.verification import DrawOwn, Predicted, prove
from accprobe.isa.formats import Bits
from accprobe.model.tree import FloatArithmetic

BATTERY_DOTS = 1536
"""Dot products of a battery."""

SUBNORMAL_DOTS = 256
"""Dot products whose sums are subnormal, and of which operands of B are."""

MORE_BATTERIES = 8
"""Batteries that are drawn in search of dot products on which a rival differs."""

MOST_CALLS, SWEEPS = 4000, 6
"""Calls that the order of a region may take: so many, and so often one for each row of columns that K has."""

MOST_SLICES = 8
"""Slices each of which has terms in a battery."""

UNFINISHED = "not everything is measured yet"
"""Why an outcome is not confirmed before the last experiment."""

MOST_REGIONS = 4
LEAST_REGION = 8
"""Elements of a region that is asked on its own."""

REFITS = 3
"""How often rivals are asked about, where the answers contradict the plan itself."""

Tell = Callable[[str, float], None]
"""An experiment's name, and how much of it is done, from 0 to 1."""

OnFound = Callable[[ProductOutcome], None]
"""Receives the outcome as it grows: always the same object."""


def characterise(
    box: BlackBox,
    elements: int = 1 << 18,
    seed: int = 0,
    evaluate: Evaluate = on_cpu,
    tell: Tell = lambda name, part: None,
    before: Sequence[Bits] = (),
    on_found: OnFound = lambda outcome: None,
    own: DrawOwn | None = None,
) -> ProductOutcome:
    """Asks a callable, and proves what it finds on so many fresh elements.

    before: results of calls that were made already, of `repeatability.first_operands`. on_found: called between experiments
    with what is known then. own: draws the user's own operands. Raises AccprobeError where it is no matrix product.
    """
    asked = RecordedCallable(box, calls=len(before))
    spec = box.spec
    tell("contract", 0)
    first = repeatability.repeat_first(asked, before)
    contract.refuse_non_products(asked, seed)
    outcome = ProductOutcome(spec, find_regions(asked, seed, first), first, None, seed=seed, stopped=UNFINISHED)
    outcome.found.append(RegionOutcome(outcome.region_map.regions[0]))

    def experiment(name: str, part: float) -> None:
        outcome.calls, outcome.elements = asked.calls, asked.elements
        on_found(outcome)
        tell(name, part)

    experiment("other rows and columns", 0)
    outcome.depends = None if outcome.region_map.changed else find_dependence(asked, seed)
    experiment("every k once", 0)
    regions = outcome.region_map.regions[:MOST_REGIONS]
    some = [x for x in regions if x is regions[0] or len(x.rows) * len(x.columns) >= LEAST_REGION]
    counted = multiplicity.count_products(asked, some)
    outcome.found[:] = [RegionOutcome(x.region, x.once, reason=x.reason, mispaired=x.mispaired) for x in counted]
    depends = outcome.depends
    if any(found.mispaired for found in outcome.found):  # A sample of changed lines may have missed the ones that are read.
        depends = None
        if outcome.depends is not None and not outcome.depends.is_on_others:
            outcome.depends = None
    for found in outcome.found:
        if not found.reason:
            _find_plan(asked, found, seed, evaluate, experiment, depends)
    parts = [Predicted(x.model, x.region.rows, x.region.columns) for x in outcome.found if x.model is not None]
    if parts and outcome.fits_in_range:

        def verified(count: int) -> None:
            experiment("fresh operands", min(1, count / elements))

        prove(asked, parts, elements, seed, evaluate, verified, outcome.proof, own)
        _explain_scales(outcome)
    for found in outcome.found:
        _ask_too_large(asked, found)
    outcome.stopped = ""
    if not outcome.region_map.changed:
        _repeat(asked, outcome)
    outcome.calls, outcome.elements = asked.calls, asked.elements
    return outcome


def _explain_scales(outcome: ProductOutcome) -> None:
    """No plan, where scales that are applied before the product explain what scales of its sum do not."""
    for found in outcome.found:
        if found.plan is not None and found.plan.scales is not None and outcome.proof.disputed:
            told = explain_calls(found.plan, outcome.proof.disputed, found.region.rows, found.region.columns)
            if told:
                found.plan, found.reason, found.surviving, found.tried = None, told, [], 0


def _repeat(asked: RecordedCallable, outcome: ProductOutcome) -> None:
    """Calls that seemed to settle or to agree, once more and identically: those of a plan that does not hold, many."""
    outcome.first = repeatability.compare_at_end(asked, outcome.first)
    changed = outcome.first.changed
    if not outcome.explained and not outcome.first.other:
        changed += repeatability.count_changed(asked, outcome.proof.disputed)
    if changed:
        outcome.region_map = replace(outcome.region_map, changed=changed, values=2)


def _find_plan(
    asked: RecordedCallable, found: RegionOutcome, seed: int, evaluate: Evaluate, tell: Tell, depends: Dependence | None
) -> None:
    leaves, doubled = np.flatnonzero(found.multiplicity == 1), np.flatnonzero(found.multiplicity == 2)
    if len(leaves) + len(doubled) != np.count_nonzero(found.multiplicity):
        found.reason = f"product {int(np.argmax(found.multiplicity))} is counted {int(found.multiplicity.max())} times"
        return
    if depends is not None and depends.is_on_others:
        found.reason = str(depends)
        return
    for thorough in (False, True):
        try:
            _plan(asked, found, leaves, doubled, seed, thorough, evaluate, tell)
        except (NoTree, TooManyCalls) as e:
            found.reason, asked.most = str(e), None
        if found.fits_in_range:
            break


def _ask_too_large(asked: RecordedCallable, found: RegionOutcome) -> None:
    """What comes of sums beyond the range of D, held against the plan."""
    answers = None if found.model is None else out_of_range.query(asked, found.region, np.flatnonzero(found.multiplicity))
    if found.model is not None and answers is not None:
        wrong = battery.wrong(found.model, answers)
        found.checked += len(answers)
        found.contradicting += wrong
        found.overflowed += wrong
        found.on_overflow = out_of_range.observed_overflow(found.model, answers)


def _plan(
    asked: RecordedCallable,
    found: RegionOutcome,
    leaves: Ints,
    doubled: Ints,
    seed: int,
    thorough: bool,
    evaluate: Evaluate,
    tell: Tell,
) -> None:
    """Finds the region's plan. thorough: without taking anything to be like what was asked before."""
    tell("order", 0)
    asked.most = asked.calls + MOST_CALLS + SWEEPS * -(-asked.spec.k // len(found.region.columns))
    tree = _tree(asked, found.region, leaves, doubled, thorough)
    asked.most = None
    if tree == found.tree:
        return
    found.tree, found.reason, found.counterexample, found.wrong, found.answers = tree, "", "", 0, 0
    if asked.spec.a.is_integer:
        found.plan = ProductPlan(asked.spec, tree, integer_step(1))
        _hold(asked, found, [], evaluate)
        return
    tell("bits and rounding", 0)
    answers = _fit(asked, found, tree, seed)
    if asked.spec.scale is not None and found.plan is not None:
        tell("scales", 0)
        _scale(asked, found, found.plan, seed, evaluate)
    tell("held against all answers", 0)
    _hold(asked, found, answers, evaluate)
    tell("rivals", 0)
    for attempt in range(REFITS):
        _contest(asked, found, answers, seed + attempt)
        if found.plan is None or not found.wrong or not _refit(found, answers):
            break
    if found.plan is not None and not found.wrong:
        tell("every chain", 0)
        _cover(asked, found, found.plan, seed)
    _hold(asked, found, answers, evaluate)


def _cover(asked: RecordedCallable, found: RegionOutcome, plan: ProductPlan, seed: int) -> None:
    """Compare the plan with dot products that reach every chain, or a sample of them."""
    found.coverage = coverage = probe_chains(asked, found.region, plan, seed)
    found.answers += len(coverage.answered)
    found.wrong = battery.wrong_in_range(plan.model(), coverage.answered)
    if found.wrong:
        found.reason = f"{found.wrong} of {len(coverage.answered)} dot products that reach every chain have no explanation"
        found.counterexample = of_few_terms(plan.model(), coverage.answered)


def _tree(asked: RecordedCallable, region: Region, leaves: Ints, doubled: Ints, thorough: bool) -> FusedGroups | Reduction:
    """The tree; where elements change from call to call, slices that are added in any order."""
    if asked.spec.a.is_integer:
        return tuple((int(k),) for k in np.sort(np.concatenate([leaves, doubled])))
    partial = make_tree_builder(asked, region.rows, region.columns, leaves, thorough)
    chains = [groups for chain in partial.chains(leaves) for groups in every_chain(decompose(chain))] if region.changing else []
    if len(chains) > 1:
        tree: FusedGroups | Reduction = in_slices(asked, region.rows, region.columns, chains)
    else:
        tree = decompose(partial.tree(leaves))
    return with_repeated_products(tree, doubled) if len(doubled) else tree


def sampled_sums(tree: FusedGroups | Reduction) -> list[FusedGroups]:
    """k of some sums of some chains, the first of them that of the first chain: of the first few, and one of each slice."""
    chains = list(every_chain(tree))
    parts = [len(list(every_chain(part))) for part in tree.parts] if isinstance(tree, Reduction) else [1]
    of_slices = [sum(parts[:i]) for i in range(len(parts))] if len(parts) <= MOST_SLICES else []
    some = sorted({0, 1, 2, 3, len(chains) // 2, len(chains) - 1, *of_slices} & set(range(len(chains))))
    return [_some_sums(chains[i]) for i in some]


def _some_sums(chain: FusedGroups) -> FusedGroups:
    n = len(chain)
    return tuple(chain[i] for i in sorted({0, 1, 2, 3, n // 2, n - 2, n - 1} & set(range(n))))


def _fit(asked: RecordedCallable, found: RegionOutcome, tree: FusedGroups | Reduction, seed: int) -> list[Answered]:
    spec, region = asked.spec, found.region
    some = sampled_sums(tree)
    inner = battery.query(asked, battery.drawn(spec, some[:1], BATTERY_DOTS, seed + 1), region.rows, region.columns)
    outer = battery.query(asked, battery.drawn(spec, some, BATTERY_DOTS, seed + 2), region.rows, region.columns)
    of_subnormals = [battery.tiny(spec, some, SUBNORMAL_DOTS, seed + 3)] if battery.asks_subnormals(spec) else []
    if spec.a_exponent is None:
        of_subnormals.append(battery.exchanged(spec, some, SUBNORMAL_DOTS, seed + 4))
    more = [battery.query(asked, dots, region.rows, region.columns) for dots in of_subnormals]
    every = _joined([inner, outer, *more])
    taken = low_bits(asked, some[0], region.rows, region.columns) if spec.rounds_operands else None
    of_first = within(every, {k for group in some[0] for k in group})
    rounding = taken.rounding if taken else "RZ"
    fitted = fit(spec, tree, every, of_first, region.changing, rounding)
    if fitted.wrong and (other := with_first_sums_swapped(tree)) != tree:
        fitted = min(fitted, fit(spec, other, every, of_first, region.changing, rounding), key=lambda each: each.wrong)
    found.plan, found.wrong, found.answers = fitted.plan, fitted.wrong, fitted.answers
    if found.wrong:
        found.wrong = battery.wrong_in_range(fitted.plan.model(), every)
    if found.wrong:
        found.counterexample = of_few_terms(fitted.plan.model(), every)
        left = f"{fitted.wrong} of {fitted.answers} dot products of a few terms have no explanation"
        found.reason = "; ".join(filter(None, (left, check_softmax_weights(asked, region.rows, region.columns))))
    return [every] if taken is None else [every, taken.answered]


def _refit(found: RegionOutcome, answers: Sequence[Answered]) -> bool:
    """Whether the plan got other bits for its sums: some results contradict it, and none contradicts the other bits."""
    plan = found.plan
    if plan is None or not isinstance(plan.step.root.arithmetic, FloatArithmetic):
        return False
    mismatches = contradicting(plan, answers)
    if not mismatches:
        return False
    for step in beside(plan.step.root.arithmetic, plan.step.products):
        other = replace(plan, step=step)
        if not contradicted(other, mismatches) and not contradicted(other, answers):
            found.plan, found.wrong, found.reason, found.counterexample = other, 0, "", ""
            return True
    return False


def _scale(asked: RecordedCallable, found: RegionOutcome, plan: ProductPlan, seed: int, evaluate: Evaluate) -> None:
    scaled = with_scales(asked, plan, found.region.rows, found.region.columns, seed, evaluate)
    found.plan, found.scales_left, found.misplaced = scaled.plan, scaled.left, scaled.misplaced
    if scaled.wrong and not found.wrong:
        found.reason = f"{scaled.wrong} of {scaled.elements} scaled elements have no explanation"
    found.reason = scaled.before or "; ".join(filter(None, (scaled.misplaced, found.reason)))
    found.wrong += scaled.wrong
    found.answers += scaled.elements


def _contest(asked: RecordedCallable, found: RegionOutcome, answers: list[Answered], seed: int) -> None:
    """Each rival is contradicted by an answer that is there, or by one to dot products on which it differs."""
    plan = found.plan
    if plan is None or found.wrong:
        return
    some, found.tried, found.surviving = sampled_sums(plan.tree), 0, []
    for number, alternative in enumerate(alternative_plans(plan)):
        found.tried += 1
        if contradicted(alternative.plan, answers):
            continue
        if not _ask_about(asked, found, plan, alternative, some, answers, seed + 100 * (number + 1)):
            found.surviving.append(alternative)


def _ask_about(
    asked: RecordedCallable,
    found: RegionOutcome,
    plan: ProductPlan,
    alternative: AlternativePlan,
    some: Sequence[FusedGroups],
    answers: list[Answered],
    seed: int,
) -> bool:
    """Whether dot products were found and asked that contradict the rival: in all chains, in one, about the first borders."""
    borders = [(chain[0], chain[-1]) for chain in some[:3]]
    for attempt in range(MORE_BATTERIES):
        draw = battery.tiny if alternative.respect in OF_TINY else battery.drawn
        dots = draw(asked.spec, (some, some[:1], borders)[attempt % 3], BATTERY_DOTS, seed + attempt)
        try:
            differing = telling(plan, alternative.plan, dots)
        except AccprobeError:
            return True
        if len(differing):
            new = battery.query(asked, differing, found.region.rows, found.region.columns)
            answers.append(new)
            found.answers += len(new)
            found.wrong += battery.wrong_in_range(plan.model(), new)
            found.counterexample = found.counterexample or of_few_terms(plan.model(), new)
            return True
    return False


def _joined(several: Sequence[Answered]) -> Answered:
    columns = (np.concatenate([getattr(x.dots, name) for x in several]) for name in ("ks", "a", "b"))
    return Answered(Sparse(*columns), np.concatenate([x.d for x in several]))


def _hold(asked: RecordedCallable, found: RegionOutcome, answers: Sequence[Answered], evaluate: Evaluate) -> None:
    """The plan against all that was kept of the region's answers; another step where one explains more."""
    if found.plan is None or found.plan.unordered:
        return
    if found.checked_plan == (found.plan, len(asked.kept)):
        return
    words = list(refit.region_batches(asked.kept, found.region))
    contradicting = [each for each in words if refit.wrong(found.plan.model(), each, evaluate)]
    if contradicting and not found.wrong and (other := refit.refit_to_log(found.plan, answers, contradicting)):
        found.plan = other
        contradicting = [each for each in words if refit.wrong(found.plan.model(), each, evaluate)]
    found.checked = sum(each[2].size for each in words)
    found.contradicting = sum(refit.wrong(found.plan.model(), each) for each in contradicting)
    found.overflowed = sum(refit.beyond(found.plan.model(), each) for each in contradicting)
    found.subnormal = sum(refit.subnormal(found.plan.model(), each) for each in contradicting)
    found.checked_plan = found.plan, len(asked.kept)


def at_shape(spec: Spec, m: int) -> Spec:
    """The same with another M."""
    return replace(spec, m=m)
