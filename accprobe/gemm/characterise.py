"""Characterise a matmul callable: run every experiment in turn.

Each experiment probes the callable as a black box. The result is a plan for each region of D, compared with every kept result,
with fresh operands and with alternative plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from accprobe.callables.operands import DrawOwn, shows_subnormals
from accprobe.callables.spec import BlackBox
from accprobe.errors import AccprobeError
from accprobe.evaluate.any_order import Evaluate, on_cpu
from accprobe.gemm import dots
from accprobe.gemm.blackbox import RecordedCallable, TooManyCalls
from accprobe.gemm.checks import contract
from accprobe.gemm.checks.contract import Dependence
from accprobe.gemm.checks.quantisation import SEVERAL_ROUNDINGS, find_conversion, find_parts
from accprobe.gemm.checks.regions import compare_at_end, count_changed, find_regions, repeat_first
from accprobe.gemm.dots import SparseDots
from accprobe.gemm.findings import ProductOutcome, RegionOutcome
from accprobe.gemm.fit import KeptResults, compare_kept, fit, is_contradicted, other_bits, refit
from accprobe.gemm.plans import ONLY_SUBNORMAL, AlternativePlan, added_in, alternative_plans, draft
from accprobe.gemm.scaling import infer_scales
from accprobe.gemm.tree.decomposition import (
    chain_of,
    decompose,
    products_per_sum,
    with_first_sums_swapped,
    with_repeated_products,
)
from accprobe.gemm.tree.pairs import make_tree_builder
from accprobe.gemm.tree.slices import in_slices
from accprobe.gemm.verification import verify_plans
from accprobe.infer.tree_builder import NoTree
from accprobe.isa.formats import Bits
from accprobe.model.product import Chain, FusedSums, Merged, Node, ProductModel, chains_of

# Dot products of one set of sparse probes, of a set with subnormal sums or subnormal operands in B, and of one near ties of D.
SPARSE_DOTS, SUBNORMAL_DOTS, TIE_DOTS = 1536, 256, 768
# Sets that are drawn in search of dot products that distinguish a plan from an alternative.
MORE_SETS = 8
# Call limit for the order of a region: MOST_CALLS, plus SWEEPS calls per ceil(K / columns).
MOST_CALLS, SWEEPS = 4000, 12
# Maximum number of slices that each have terms in a set of sparse probes.
MOST_SLICES = 8
# Maximum number of regions, and minimum number of elements of one, that are characterised separately.
MOST_REGIONS, LEAST_REGION = 4, 8
# Number of terms up to which MOST_REGIONS does not apply: a ring of n ranks has n regions of n terms.
SHORT_SUM = 64
# Attempts to find another fused sum if a result contradicts the plan while alternatives are tested.
REFITS = 3
UNFINISHED = "the measurement is not finished"
CHANGING_ORDER = "atomics, random numbers or uninitialised memory may be the cause"

# Receives the name of an experiment and the share of it that is done, 0 to 1.
Progress = Callable[[str, float], None]

# Receives the outcome as it grows, always the same object.
OnFound = Callable[[ProductOutcome], None]


def characterise(
    box: BlackBox,
    elements: int = 1 << 18,
    seed: int = 0,
    evaluate: Evaluate = on_cpu,
    progress: Progress = lambda name, part: None,
    before: Sequence[Bits] = (),
    on_found: OnFound = lambda outcome: None,
    own: DrawOwn | None = None,
) -> ProductOutcome:
    """Infer the plan of a callable and verify it on this number of fresh elements.

    before: results of earlier calls with `first_operands`. on_found: called between experiments. own: draws the user's own
    operands. Raises AccprobeError if the callable is not a matrix product.
    """
    subject = RecordedCallable(box, seed, evaluate, calls=len(before))
    progress("is it a matrix product", 0)
    first = repeat_first(subject, before)
    contract.refuse_non_products(subject)
    regions, first = find_regions(subject, first)
    outcome = ProductOutcome(box.spec, regions, first, None, [RegionOutcome(regions[0])], seed=seed, stopped=UNFINISHED)

    def experiment(name: str, part: float) -> None:
        outcome.calls, outcome.elements = subject.calls, subject.elements
        on_found(outcome)
        progress(name, part)

    experiment("other rows and columns", 0)
    outcome.depends = None if first.changed else contract.find_dependence(subject)
    experiment("products counted once", 0)
    depends = _count_products(subject, outcome)
    for found in outcome.found:
        if not found.reason:
            _PlanSearch(subject, found, experiment).find(depends)
    parts = [(found.region, found.plan) for found in outcome.found if found.plan is not None]
    if parts and outcome.kept.only_range_errors:
        verify_plans(
            subject, parts, elements, outcome.verification, lambda n: experiment("fresh operands", min(1, n / elements)), own
        )
    for found in outcome.found:
        _probe_overflow(subject, found)
    outcome.stopped = ""
    if not first.changed:
        _repeat(subject, outcome)
    outcome.calls, outcome.elements = subject.calls, subject.elements
    return outcome


def _count_products(subject: RecordedCallable, outcome: ProductOutcome) -> Dependence | None:
    """Count the products of each region. Return what outputs depend on, None if mispaired products explain it."""
    most = MOST_REGIONS if subject.spec.k > SHORT_SUM else None
    regions = outcome.regions[:most]
    some = [x for x in regions if x is regions[0] or len(x.rows) * len(x.columns) >= LEAST_REGION]
    try:
        counted = contract.count_products(subject, some)
    except AccprobeError as e:
        if outcome.first.changed:
            raise AccprobeError(f"identical calls give other bits ({CHANGING_ORDER}), and {e}") from None
        raise
    outcome.found[:] = [RegionOutcome(*each) for each in counted]
    if not any(found.mispaired for found in outcome.found):
        return outcome.depends
    if outcome.depends is not None and not outcome.depends.is_on_others:
        outcome.depends = None  # a sample of changed lines may have missed the ones that are read
    return None


def _probe_overflow(subject: RecordedCallable, found: RegionOutcome) -> None:
    """Compare the plan with the results of sums beyond the range of D."""
    overflowing = dots.overflow_probes(subject.spec, np.flatnonzero(found.multiplicity))
    if found.plan is not None and overflowing is not None:
        probed, kept = dots.probe(subject, overflowing, found.region.rows, found.region.columns), found.kept
        wrong = dots.count_mismatches(found.plan, probed)
        counts = kept.results + len(probed), kept.contradicting + wrong, kept.overflowed + wrong
        found.kept = KeptResults(*counts, kept.subnormal)
        found.overflow = dots.observed_overflow(found.plan, probed)


def _repeat(subject: RecordedCallable, outcome: ProductOutcome) -> None:
    """Repeat the first call, and many calls if the plans do not explain everything."""
    outcome.first = compare_at_end(subject, outcome.first)
    changed = outcome.first.changed
    if not outcome.explained and not outcome.first.other:
        changed += count_changed(subject, outcome.verification.disputed)
    if changed:
        outcome.first = replace(outcome.first, changed=changed, values=2)


@dataclass
class _PlanSearch:
    """The search for the plan of one region. parts: how f32 operands are rounded or split, "" if they are not."""

    subject: RecordedCallable
    found: RegionOutcome
    progress: Progress
    parts: str = ""

    def find(self, depends: Dependence | None) -> None:
        """Find the plan, or the reason why there is none."""
        found, counts = self.found, self.found.multiplicity
        if not np.isin(counts, (0, 1, 2)).all():
            found.reason = f"product {int(np.argmax(counts))} is counted {int(counts.max())} times"
            return
        if depends is not None and (depends.is_on_others or depends.quantised):  # no plan of one row and column
            found.reason = str(depends)
            return
        if self.subject.spec.out.name in ("e4m3", "e5m2"):
            found.reason = "results of 8 bits show too little of their sums: return bf16 or f32 (--out)"
            return
        self.parts = find_parts(self.subject)
        if self.parts not in ("", SEVERAL_ROUNDINGS):
            found.reason = self.parts
            return
        try:
            self.run()
        except (NoTree, TooManyCalls) as e:
            found.reason = CHANGING_ORDER if found.region.changing else str(e)
            self.subject.call_limit = None
        except RecursionError:
            found.reason = "its sums are nested more deeply than accprobe can describe"
        if found.fits_in_range:
            return
        if depends is not None and depends.is_on_zeros:  # no tree of sums has that
            found.order, found.plan, found.counterexample, found.reason = None, None, "", str(depends)
        found.reason = "; ".join(filter(None, (find_conversion(self.subject), found.reason)))

    def run(self) -> None:
        """Find the plan. Raises NoTree, TooManyCalls."""
        found, subject = self.found, self.subject
        self.progress("accumulation order", 0)
        subject.call_limit = subject.calls + MOST_CALLS + SWEEPS * -(-subject.spec.k // len(found.region.columns))
        found.order = order = self._order()
        subject.call_limit = None
        if subject.spec.a.is_integer:
            found.plan = order
            self._compare_kept([])
            return
        self.progress("bits and rounding", 0)
        probed = self._fit(order)
        if subject.spec.scale is not None and found.plan is not None:
            self.progress("scales", 0)
            self._scale(found.plan)
        self.progress("comparison with all results", 0)
        self._compare_kept(probed)
        self.progress("alternative plans", 0)
        for attempt in range(REFITS):
            self._falsify(probed, self.subject.seed + attempt)
            before = found.plan
            if before is not None and found.mismatches and (other := refit(before, other_bits(before), probed)):
                found.plan, found.mismatches, found.reason, found.counterexample = other, 0, "", ""
            else:
                self._compare_kept(probed)
            if found.plan == before:
                break
        if found.plan is not None and not found.mismatches:
            self.progress("every chain", 0)
            self._cover(found.plan)
        self._compare_kept(probed)

    def _order(self) -> ProductModel:
        """Return a plan with the tree, or with slices that are added in any order if elements change from call to call."""
        region, times, spec = self.found.region, self.found.multiplicity, self.subject.spec
        if spec.a.is_integer:
            return draft(spec, chain_of(tuple((int(k),) for k in np.flatnonzero(times)), 1), 1)
        once, twice = np.flatnonzero(times == 1), np.flatnonzero(times == 2)
        builder = make_tree_builder(self.subject, region.rows, region.columns, once)
        separate = builder.chains(once) if region.changing else []
        partials = separate if len(separate) > 1 else [builder.tree(once)]
        products = products_per_sum(partials)
        parts = [decompose(each, products) for each in partials]
        tree: Node = parts[0]
        if len(parts) > 1:
            tree = in_slices(self.subject, region.rows, region.columns, [chain for part in parts for chain in chains_of(part)])
        if region.changing and isinstance(tree, Merged):
            tree = replace(tree, order="unordered")
        return draft(spec, with_repeated_products(tree, products, twice) if len(twice) else tree, products)

    def _probe(self, wanted: SparseDots) -> SparseDots:
        return dots.probe(self.subject, wanted, self.found.region.rows, self.found.region.columns)

    def _fit(self, order: ProductModel) -> list[SparseDots]:
        spec, seed, found = self.subject.spec, self.subject.seed, self.found
        some = sampled_sums(order)
        drawn = [
            dots.sparse_probes(spec, some[:1], SPARSE_DOTS, seed + 1),
            dots.sparse_probes(spec, some, SPARSE_DOTS, seed + 2),
        ]
        if shows_subnormals(spec):
            drawn.append(dots.underflow_probes(spec, some, SUBNORMAL_DOTS, seed + 3))
        if spec.a_exponent is None:
            drawn.append(dots.exchanged_probes(spec, some, SUBNORMAL_DOTS, seed + 4))
        every = dots.joined_dots(list(map(self._probe, drawn)))
        found.plan, wrong = self._fitted(order, every, some[0])
        if not wrong and order.step.products > 1 and spec.out.mantissa_bits < added_in(found.plan.step).mantissa_bits:
            ties = self._probe(dots.tie_probes(spec, found.plan, some, TIE_DOTS, seed + 5))
            every = dots.joined_dots([every, ties])
            if dots.count_mismatches(found.plan, ties):
                found.plan, wrong = self._fitted(order, every, some[0])
        found.results, found.mismatches = len(every), wrong and dots.count_in_range(found.plan, every)
        if found.mismatches:
            found.counterexample = dots.counterexamples(found.plan, every)
            reason = f"{wrong} of {found.results} sparse dot products contradict every plan"
            found.reason = "; ".join(filter(None, (self.parts, reason)))
        return [every]

    def _fitted(self, order: ProductModel, every: SparseDots, first: FusedSums) -> tuple[ProductModel, int]:
        """Return the plan with the fewest mismatches, and their number. first: the sums of one chain."""
        spec, inner = self.subject.spec, every.within({k for group in first for k in group})
        fitted = fit(spec, order, every, inner)
        if fitted[1] and (swapped := with_first_sums_swapped(order.tree, order.step.products)) != order.tree:
            fitted = min(fitted, fit(spec, replace(order, tree=swapped), every, inner), key=lambda fitted: fitted[1])
        return fitted

    def _scale(self, plan: ProductModel) -> None:
        found = self.found
        scaled = infer_scales(self.subject, plan, found.region.rows, found.region.columns)
        found.plan, found.other_scalings, found.misplaced = scaled.plan, scaled.others, scaled.misplaced
        if scaled.mismatches and not found.mismatches:
            found.reason = f"{scaled.mismatches} of {scaled.elements} scaled elements contradict every way to scale"
        found.reason = scaled.before or "; ".join(filter(None, (scaled.misplaced, found.reason)))
        found.mismatches += scaled.mismatches
        found.results += scaled.elements

    def _falsify(self, probed: list[SparseDots], seed: int) -> None:
        """Contradict each alternative plan by a result, old or new."""
        found, plan = self.found, self.found.plan
        if plan is None or found.mismatches:
            return
        found.alternatives, found.surviving = 0, []
        for number, alternative in enumerate(alternative_plans(self.subject.spec, plan)):
            found.alternatives += 1
            if is_contradicted(alternative.plan, probed):
                continue
            if not self._distinguish(plan, alternative, probed, seed + 100 * (number + 1)):
                found.surviving.append(alternative)

    def _distinguish(self, plan: ProductModel, other: AlternativePlan, probed: list[SparseDots], seed: int) -> bool:
        """Probe dot products on which the plans differ, in the sampled chains, in the first, or at borders.

        Return whether such dot products were found, or one of the plans cannot be evaluated.
        """
        found, some = self.found, sampled_sums(plan)
        if self.subject.takes_windows:  # queries of products are recorded, so these stay as they are
            every = list(plan.chains())
            own = set(every)
            changed = [chain for chain in other.plan.chains() if chain not in own][:MOST_SLICES]
            places = np.random.default_rng(seed).permutation(len(every))[:MOST_SLICES]
            some += [_some_sums(chain, plan.step.products) for chain in changed or [every[i] for i in places]]
        borders = [(chain[0], chain[-1]) for chain in some[:3]]
        draw = dots.underflow_probes if other.property in ONLY_SUBNORMAL else dots.sparse_probes
        for attempt in range(MORE_SETS):
            drawn = draw(self.subject.spec, (some, some[:1], borders)[attempt % 3], SPARSE_DOTS, seed + attempt)
            try:
                mine, others = (dots.predicted(each, drawn) for each in (plan, other.plan))
            except AccprobeError:
                return True
            differing = np.flatnonzero(mine != others)
            if len(differing):
                new = self._probe(drawn[differing])
                probed.append(new)
                found.results += len(new)
                found.mismatches += dots.count_in_range(plan, new)
                found.counterexample = found.counterexample or dots.counterexamples(plan, new)
                return True
        return False

    def _cover(self, plan: ProductModel) -> None:
        """Compare the plan with dot products that reach every chain, or a sample of them."""
        found = self.found
        probed, found.chains, found.chains_reached = dots.probe_chains(self.subject, found.region, plan)
        found.results += len(probed)
        found.mismatches = dots.count_in_range(plan, probed)
        if found.mismatches:
            found.reason = f"{found.mismatches} of {len(probed)} dot products that reach every chain contradict the plan"
            found.counterexample = dots.counterexamples(plan, probed)

    def _compare_kept(self, probed: Sequence[SparseDots]) -> None:
        """Compare the plan with the kept results of the region, and if none contradicted it before, try similar plans too.

        Results that the plan was compared with before are not compared again.
        """
        found, kept = self.found, self.subject.kept
        if found.plan is None or not found.plan.is_ordered:
            return
        plan, count = found.compared or (None, 0)
        if plan != found.plan:
            found.kept, count = KeptResults(), 0
        similar = not found.mismatches
        plan, new = compare_kept(self.subject, found.plan, found.region, probed, similar, count)
        if count and plan != found.plan:
            found.kept, (_, new) = KeptResults(), compare_kept(self.subject, plan, found.region, probed, False)
        if plan != found.plan:
            found.counterexample = ""
        found.plan, found.kept = plan, KeptResults(*map(sum, zip(found.kept, new, strict=True)))
        found.compared = plan, len(kept)


def sampled_sums(plan: ProductModel) -> list[FusedSums]:
    """Return some sums of some chains: of the first four, the middle, the last, and the first of each slice if few."""
    chains = list(plan.chains())
    parts = [len(list(chains_of(part))) for part in plan.tree.parts] if isinstance(plan.tree, Merged) else [1]
    of_slices = [sum(parts[:i]) for i in range(len(parts))] if len(parts) <= MOST_SLICES else []
    some = sorted({0, 1, 2, 3, len(chains) // 2, len(chains) - 1, *of_slices} & set(range(len(chains))))
    return [_some_sums(chains[i], plan.step.products) for i in some]


def _some_sums(chain: Chain, products: int) -> FusedSums:
    sums = chain.sums(products)
    n = len(sums)
    return tuple(sums[i] for i in sorted({0, 1, 2, 3, n // 2, n - 2, n - 1} & set(range(n))))
