"""Explain recorded results of recorded operands, without the callable.

Known plans are tried on a few elements. Half are random; half have sums near ties or numbers of D's format, where
differences far below D's last bit show. Plans that explain them are compared with more elements, of a large result with a
sample. Missing, repeated and mispaired k show in the difference from the exact product (`accprobe.evaluate.miscounts`); a plan
must confirm them bit for bit. If the best plan fails only in some rows and columns, these are explained separately.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from accprobe.callables.operands import Ints
from accprobe.callables.spec import Spec
from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.miscounts import ENOUGH, Miscounts, fit_miscounts
from accprobe.gemm.blackbox import one_nan
from accprobe.gemm.characterise import Progress
from accprobe.gemm.known_plans import (
    Candidate,
    ExplainedRegion,
    Explanation,
    KnownPlan,
    SampledPlans,
    Unknown,
    differences,
    f64_references,
    predicted,
    rounded_once,
    sizes,
    steps_to_try,
)
from accprobe.gemm.verification import ElementMismatch
from accprobe.isa.formats import Bits, ordered
from accprobe.model.product import ProductModel

# Elements on which every plan is tried. Long sums have fewer, down to a quarter, to keep the sample within SAMPLE_PRODUCTS.
SAMPLE = 64
SAMPLE_PRODUCTS = 1 << 18
# Elements that are compared with the best plans of the sample.
LARGER_SAMPLE = 1 << 10
# Plans that are compared with the larger sample, and with all elements.
SURVIVORS, FINALISTS = 256, 4
# Unexplained elements that are listed.
MOST_SHOWN = 8
# The search ends at a plan that leaves at most one of so many elements unexplained.
HARDLY_ANY = 1 << 10
# Maximum number of operands of each matrix for which sums in f64 are computed.
EXACT_OPERANDS = 1 << 24


AnyPlan = KnownPlan | Candidate


class _Elements(NamedTuple):
    """Some elements: their rows [E] and columns [E], and their rows of A and of B [E, K]."""

    rows: Ints
    columns: Ints
    a: Bits
    b: Bits

    def predicted(self, model: ProductModel, got: Bits) -> Bits:
        return predicted(model, self.a[:, None], self.b[:, None], got[:, None, None])[:, 0, 0]


class _Best:
    """The plans with the fewest mismatches in some elements so far."""

    def __init__(self, got: Bits) -> None:
        self.got = got
        self.mismatches = len(got)
        self.found: list[AnyPlan] = []

    def offer(self, found: AnyPlan, d: Bits) -> None:
        mismatches = int(np.count_nonzero(d != self.got))
        if mismatches < self.mismatches:
            self.mismatches, self.found = mismatches, []
        if mismatches == self.mismatches:
            self.found.append(found)


class PlanSearch:
    """Search for plans with each step, the fused sum that a plan repeats along K.

    a [M, K], b [N, K], results [M, N] with one pattern for NaN. specs: as in `explain`.
    """

    def __init__(
        self,
        specs: Sequence[Spec],
        a: Bits,
        b: Bits,
        results: Sequence[Bits],
        at_most: int,
        progress: Progress,
    ) -> None:
        self._specs, self._a, self._b, self._results, self._progress = specs, a, b, results, progress
        spec = specs[0]
        self._sizes, self._steps = [spec.k] if spec.a.is_integer else sizes(spec.k), steps_to_try(specs)
        self._rows = _rows(results, max(1, at_most // (spec.n * spec.k)))
        places = _most_sensitive_first(spec, a[self._rows], b)
        count = max(SAMPLE // 4, min(SAMPLE, SAMPLE_PRODUCTS // spec.k))
        self._sample, self._larger = (self._elements(places[:n]) for n in (count, LARGER_SAMPLE))

    def _elements(self, places: Ints) -> _Elements:
        rows, columns = self._rows[places[:, 0]], places[:, 1]
        return _Elements(rows, columns, self._a[rows], self._b[columns])

    def explanations(self) -> list[Explanation]:
        """Explain each result by plans of one fused sum after another.

        An f64 reference is tried after the first fused sum. The search ends where hardly any element is unexplained, or before
        chains in other formats if nearly all are explained.
        """
        best = [_Best(d[self._sample.rows, self._sample.columns]) for d in self._results]
        found: list[Explanation] = []
        for number, step in enumerate(self._steps, 1):
            self._progress("plans", number / len(self._steps))
            for plan, d in SampledPlans(step, self._sample.a, self._sample.b).results(self._sizes):
                for each in best:
                    each.offer(plan, d)
            if number == 1:
                for reference in f64_references(self._specs[0]):
                    for each in best:
                        each.offer(reference, self._sample.predicted(reference.model, each.got))
            is_last = number == len(self._steps)
            may_end = is_last or self._steps[number].is_chain_in_other_format
            if may_end or not any(each.mismatches for each in best):
                found = [self._compared(each, d) for each, d in zip(best, self._results, strict=True)]
                if all(each.nearly if may_end else each.mismatches * HARDLY_ANY <= each.compared for each in found):
                    found = [replace(each, stopped=not is_last) for each in found]
                    break
        return found

    def _compared(self, best: _Best, d: Bits) -> Explanation:
        """Compare the best plans of the sample with more elements, and the best of those with all."""
        count = len(self._sample.rows)
        if best.mismatches == count:
            return Explanation(d.size, count, count, ())
        self._progress("comparison of all elements", 0)
        survivors: dict[ProductModel, Candidate] = {}
        for found in best.found[: SURVIVORS if 2 * best.mismatches < count else 1]:
            candidate = found if isinstance(found, Candidate) else Candidate(found.step.name, found.findings, found.model())
            survivors.setdefault(candidate.model, candidate)
        larger = _Best(d[self._larger.rows, self._larger.columns])
        for model, candidate in survivors.items():
            larger.offer(candidate, self._larger.predicted(model, larger.got))
        finalists = [x for x in larger.found if isinstance(x, Candidate)]
        explained = [self._compared_with_all(candidate, d) for candidate in finalists[:FINALISTS]]
        least = min(explained, key=lambda x: x.mismatches)
        alike = tuple(x.plans[0] for x in explained if x.mismatches == least.mismatches)
        return replace(least, plans=alike, more=max(0, len(finalists) - FINALISTS) + max(0, len(best.found) - SURVIVORS))

    def _compared_with_all(self, candidate: Candidate, d: Bits) -> Explanation:
        got = d[self._rows]
        expected = predicted(candidate.model, self._a[self._rows], self._b, got)
        differ = np.argwhere(got != expected)
        rows = self._rows
        places = tuple(
            ElementMismatch(int(rows[y]), int(x), int(got[y, x]), int(expected[y, x])) for y, x in differ[:MOST_SHOWN]
        )
        return Explanation(d.size, got.size, len(differ), (candidate,), places=places, rows=(rows, expected))


def _rows(results: Sequence[Bits], most: int) -> Ints:
    """Return the rows to compare, in order: up to half are rows in which two results differ, the others are evenly spaced."""
    m = len(results[0])
    if most >= m:
        return np.arange(m)
    differing = np.flatnonzero((results[0] != results[-1]).any(axis=1))[: -(-most // 2)]
    others = np.setdiff1d(np.arange(m), differing)
    some = others[np.linspace(0, len(others) - 1, most - len(differing)).astype(np.int64)]
    return np.sort(np.concatenate([differing, some]))


def _most_sensitive_first(spec: Spec, a: Bits, b: Bits) -> Ints:
    """Return rows and columns [n, 2] of elements, four kinds in turn.

    The kinds are a sum near a tie, a random element, a sum near a number of D's format, and a random element. All are random if
    D is an integer.
    """
    most = max(1, EXACT_OPERANDS // spec.k)
    rows, columns = (np.unique(np.linspace(0, len(x) - 1, min(len(x), most)).astype(np.int64)) for x in (a, b))
    rng = np.random.default_rng(0)
    size = len(rows) * len(columns)
    order = rng.permutation(size)
    if spec.out.is_float:
        with np.errstate(all="ignore"):
            exact = (spec.a.values(a[rows]) @ spec.b.values(b[columns]).T).reshape(-1)
            _, exponents = np.frexp(exact)
            last = np.maximum(exponents - 1, spec.out.min_exponent) - spec.out.mantissa_bits
            fraction = np.where(exact == 0, np.nan, np.ldexp(np.abs(exact), -last) % 1)
        ties, numbers = np.abs(fraction - 0.5), np.minimum(fraction, 1 - fraction)
        turns = np.stack([ties.argsort(), order, numbers.argsort(), rng.permutation(size)], axis=1).reshape(-1)
        order = np.fromiter(dict.fromkeys(turns[: 8 * LARGER_SAMPLE].tolist()), np.int64)
    return np.stack([rows[order // len(columns)], columns[order % len(columns)]], axis=1)


# Maximum number of products to add to compare one plan with all elements.
AT_MOST = 1 << 29
# Maximum distance of successive rows, or columns, with mismatches in one region.
REGION_GAP = 8
# Minimum number of elements of a region, or of mismatches in it; and maximum number of regions.
LEAST_REGION, LEAST_DIFFERING, MOST_REGIONS = 32, 16, 4
# Regions that cover more than this share of a result are not explained separately.
MOST_OF = 0.9
# Miscounts of a result without a plan are reported if they explain this share of the squared difference.
REPORTED_SHARE = 0.4


def explain(
    specs: Sequence[Spec],
    a: Bits,
    b: Bits,
    results: Sequence[Bits],
    at_most: int = AT_MOST,
    progress: Progress = lambda name, part: None,
) -> list[Explanation]:
    """Explain one or two results [M, N] of a [M, K] and b [N, K], bit patterns.

    specs: one for each format in which a unit may read the operands, such as f32 and tf32 for words of f32.
    """
    out = specs[0].out
    work = [_OneResult(specs, a, b, d, one_nan(d, out), at_most, progress) for d in results]
    plain = [each for each in work if not each.counts or each.counts.explained <= ENOUGH]  # not clearly miscounted
    search = [PlanSearch(specs, a, b, [each.d for each in plain], at_most, progress).explanations()] if plain else []
    known = dict(zip(map(id, plain), *search, strict=True)) if plain else {}
    found = [each.explanation(known.get(id(each))) for each in work]
    return found if len(found) == 1 else _alike(found)


@dataclass
class _OneResult:
    """One result, explained by known plans, miscounts and regions. words: as recorded; d: with one pattern for all NaNs."""

    specs: Sequence[Spec]
    a: Bits
    b: Bits
    words: Bits
    d: Bits
    at_most: int
    progress: Progress

    def __post_init__(self) -> None:
        spec = self.specs[0]
        self.progress("miscounts", 0)
        with np.errstate(all="ignore"):
            self.counts: Miscounts = fit_miscounts(spec.out.values(self.d), spec.a.values(self.a), spec.b.values(self.b))

    def explanation(self, plain: Explanation | None) -> Explanation:
        """Return the best explanation. plain: the one by known plans, if they were tried."""
        found = [] if plain is None else [self._by_regions(plain)]
        if not found or not found[0].nearly:
            found += [self._miscounted()] if self.counts else []
        best = min(found, key=_share)
        best = replace(best, places=tuple(replace(x, got=int(self.words[x.row, x.column])) for x in best.places))
        return best if best.nearly else replace(best, unknown=self._unknown(best))

    def _miscounted(self) -> Explanation:
        """Explain the result by known plans of operands that are arranged so that every product counts once."""
        found = Explanation(self.d.size, self.d.size, self.d.size, ())
        once = f"no: {'; '.join(self.counts.sentences())}"
        for of_a, of_b in arrangements(self.counts):
            if not found.nearly:
                a, b = _arranged(self.a, of_a), _arranged(self.b, of_b)
                specs = [replace(spec, k=a.shape[1]) for spec in self.specs]
                search = PlanSearch(specs, a, b, [self.d], self.at_most, self.progress)
                found = min(found, *search.explanations(), key=_share)
        plans = (replace(x, findings={**x.findings, "each_product_once": once}) for x in found.plans)
        return replace(found, plans=tuple(plans))

    def _by_regions(self, found: Explanation) -> Explanation:
        """Explain separately the rows and columns in which the first plan fails."""
        rows = found.rows
        if not found.mismatches or rows is None:
            return found
        numbers, expected = rows
        differ = self.d[numbers] != expected
        found_in = [(at, differ[at]) for at in _rectangles(differ)]
        regions = [at for at, part in found_in if part.size >= LEAST_REGION or part.sum() >= LEAST_DIFFERING]
        size = sum((y.stop - y.start) * (x.stop - x.start) for y, x in regions)
        if not regions or len(regions) > MOST_REGIONS or size > MOST_OF * differ.size:
            return found
        parts, mismatches = [], found.mismatches
        for y, x in regions:
            specs = [replace(spec, m=y.stop - y.start, n=x.stop - x.start) for spec in self.specs]
            operands = self.a[numbers[y]], self.b[x], [self.words[numbers[y], x]]
            (part,) = explain(specs, *operands, self.at_most, self.progress)
            if part.nearly:
                ends = int(numbers[y][0]), int(numbers[y][-1])
                parts.append(ExplainedRegion(ends, (x.start, x.stop - 1), _moved(part, numbers[y], x.start)))
                mismatches += part.mismatches - int(differ[y, x].sum())
        places = tuple(place for place in found.places if not any(part.holds(place.row, place.column) for part in parts))
        return replace(found, mismatches=mismatches, regions=tuple(parts), places=places)

    def _unknown(self, found: Explanation) -> Unknown:
        """Compare the result with sums in f64, and find the rows and columns in which the nearest plan fails."""
        rows, expected = found.rows or (np.arange(len(self.d))[: max(1, self.at_most // self.b.size)], None)
        spec, got = self.specs[0], self.d[rows]
        exact = rounded_once(spec, self.a[rows], self.b)
        steps = np.abs(ordered(spec.out, got) - ordered(spec.out, exact))
        known = steps[(steps > 0) & np.isfinite(spec.out.values(got)) & np.isfinite(spec.out.values(exact))]
        differ = got != (exact if expected is None else expected)
        y, x = (np.flatnonzero(differ.any(axis=axis)) for axis in (1, 0))
        miscounts = tuple(self.counts.sentences()) if self.counts and self.counts.explained > REPORTED_SHARE else ()
        return Unknown(
            compared=got.size,
            differing_from_exact=int(np.count_nonzero(steps)),
            median_ulp=int(np.median(known)) if known.size else 0,
            largest_ulp=int(known.max(initial=0)),
            rows=(int(rows[y[0]]), int(rows[y[-1]])),
            columns=(int(x[0]), int(x[-1])),
            miscounts=miscounts,
            miscounts_explain=self.counts.explained if miscounts else 0.0,
        )


def _moved(part: Explanation, rows: Ints, column: int) -> Explanation:
    """Return the explanation of a part with its rows and columns in the whole result. column: the first."""
    places = tuple(replace(x, row=int(rows[x.row]), column=column + x.column) for x in part.places)
    regions = []
    for each in part.regions:
        (top, bottom), (left, right) = each.rows, each.columns
        area = (int(rows[top]), int(rows[bottom])), (column + left, column + right)
        regions.append(ExplainedRegion(*area, _moved(each.found, rows, column)))
    return replace(part, places=places, regions=tuple(regions))


def _share(found: Explanation) -> float:
    return found.mismatches / found.compared


def _rectangles(differ: Truths) -> Iterator[tuple[slice, slice]]:
    """Yield rectangles that contain all differing elements, at a distance of more than REGION_GAP lines."""
    for y in _ranges(differ.any(axis=1)):
        for x in _ranges(differ[y].any(axis=0)):
            inner = _ranges(differ[y, x].any(axis=1))
            yield slice(y.start + inner[0].start, y.start + inner[-1].stop), x


def _ranges(there: NDArray[Any] | np.bool[bool]) -> list[slice]:
    found = np.flatnonzero(there)
    return [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(found, np.flatnonzero(np.diff(found) > REGION_GAP) + 1)]


def _alike(found: Sequence[Explanation]) -> list[Explanation]:
    """Put first those plans of two results that differ least."""
    x, y = found
    if not x.plans or not y.plans:
        return [x, y]
    first, second = min(((p, q) for p in x.plans for q in y.plans), key=lambda two: len(differences(*two)))
    best = ((x, first), (y, second))
    return [replace(each, plans=(plan, *(other for other in each.plans if other is not plan))) for each, plan in best]


# A zero in place of an operand.
OMITTED = -1
# Maximum number of times that a product may be counted.
MOST_COUNTED = 2


def _arranged(words: Bits, ks: Ints) -> Bits:
    """Return lines [lines, K] with the k of each product in turn, or a zero."""
    return np.where(ks == OMITTED, 0, words[:, ks]).astype(words.dtype)


def arrangements(found: Miscounts) -> Iterator[tuple[Ints, Ints]]:
    """Yield the k of A and of B of each product in turn, or OMITTED, that explain the miscounts, the likeliest first."""
    every, missing, twice = np.arange(len(found.counts)), found.counts == -1, found.counts == 1
    if found.is_mispaired:
        yield np.where(missing, OMITTED, every), np.where(missing, OMITTED, found.partner)
        if len(np.unique(found.partner)) == len(every):
            order = np.argsort(found.partner)
            yield np.where(missing, OMITTED, every)[order], np.where(missing, OMITTED, found.partner)[order]
        return
    if missing.all() or (found.counts < -1).any() or (found.counts >= MOST_COUNTED).any():
        return
    if missing.any() and not twice.any():
        alike = [np.where(missing, OMITTED, every), every[~missing]]
    elif missing.any():
        alike = []
        if missing.sum() == twice.sum():
            alike = [every.copy()]
            alike[0][missing] = every[twice]
    else:  # repeated directly after the first ones (one loop pass too many), or at the end
        ks, end = every[twice], int(every[twice][-1]) + 1
        behind = [np.concatenate([every[:end], ks, every[end:]])] if end - ks[0] == len(ks) else []
        alike = [*behind, np.concatenate([every, ks])]
    yield from ((ks, ks) for ks in alike)
