"""Which known plan gives these very bits: operands and results that somebody kept, no callable to ask.

Missing, repeated and mispaired k show in the difference from the exact product (`accprobe.evaluate.miscounts`); a plan has to
confirm them bit for bit. Where the plan that explains most fails in some rows and columns alone, these are explained apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accprobe.evaluate.error_free import Truths
from accprobe.evaluate.miscounts import ENOUGH, Miscounts, fit_miscounts
from accprobe.gemm.blackbox import one_nan
from accprobe.gemm.characterise import Tell
from accprobe.gemm.explanation import Candidate, ComparedRows, ExplainedRegion, Explanation, Unexplained, Unknown, differences
from accprobe.gemm.known_plans import arrangements
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plan_search import PlanSearch
from accprobe.gemm.references import rounded_once
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import Bits, Format

AT_MOST = 1 << 29
"""Products whose sums are computed to hold one plan against all elements."""

REGION_GAP = 8
"""Rows, or columns, in which nothing differs by chance between others of the same region."""

LEAST_REGION, MOST_REGIONS = 32, 4
"""Elements that a region has at least, and regions that are looked for."""

MOST_OF = 0.9
"""Regions that make up more of a result than this are the result."""

TELLING = 0.4
"""What least squares finds is reported of a result without a plan where it explains so much of the squared difference."""


def explain(
    specs: Sequence[Spec],
    a: Bits,
    b: Bits,
    results: Sequence[Bits],
    recorded: Sequence[Candidate] = (),
    at_most: int = AT_MOST,
    tell: Tell = lambda name, part: None,
) -> list[Explanation]:
    """Explain one or two results [M, N] of a [M, K] and b [N, K], bit patterns. specs: how operands may be read."""
    out = specs[0].out
    work = [_OneResult(specs, a, b, one_nan(d, out), recorded, at_most, tell) for d in results]
    plain = [each for each in work if not each.is_miscounted]
    search = [PlanSearch(specs, a, b, [each.d for each in plain], at_most, tell).explanations(recorded)] if plain else []
    known = dict(zip(map(id, plain), *search, strict=True)) if plain else {}
    found = [each.explanation(known.get(id(each))) for each in work]
    return found if len(found) == 1 else _alike(found)


@dataclass
class _OneResult:
    """One result, of which more is looked for than the plans that libraries have."""

    specs: Sequence[Spec]
    a: Bits
    b: Bits
    d: Bits
    recorded: Sequence[Candidate]
    at_most: int
    tell: Tell

    def __post_init__(self) -> None:
        spec = self.specs[0]
        self.tell("miscounts", 0)
        with np.errstate(all="ignore"):
            self.counts: Miscounts = fit_miscounts(spec.out.values(self.d), spec.a.values(self.a), spec.b.values(self.b))

    @property
    def is_miscounted(self) -> bool:
        """Whether missing, repeated or mispaired k surely explain what is wrong."""
        return bool(self.counts) and self.counts.explained > ENOUGH

    def explanation(self, plain: Explanation | None) -> Explanation:
        """plain: by the plans that libraries have, where they were tried."""
        found = [] if plain is None else [self._by_regions(plain)]
        if not found or not found[0].nearly:
            found += [self._miscounted()] if self.counts else []
        best = min(found, key=lambda each: each.wrong / each.compared)
        return best if best.nearly else replace(best, unknown=self._unknown(best))

    def _miscounted(self) -> Explanation:
        """By plans of operands that are arranged so that every product counts once."""
        found = Explanation(self.d.size, self.d.size, self.d.size, ())
        once = f"no: {'; '.join(self.counts.sentences())}"
        for others, arranged in product((False, True), arrangements(self.counts)):
            if not found.nearly:
                a, b = arranged.operands(self.a, self.b)
                specs = [replace(spec, k=a.shape[1]) for spec in self.specs]
                search = PlanSearch(specs, a, b, [self.d], self.at_most, self.tell, arranged.sizes)
                found = min(found, *search.explanations((), others), key=lambda each: each.wrong / each.compared)
        return replace(found, plans=tuple(replace(x, told={**x.told, "each_product_once": once}) for x in found.plans))

    def _by_regions(self, found: Explanation) -> Explanation:
        """With plans of their own for rows and columns in which the first plan fails."""
        held = found.held
        if not found.wrong or held is None:
            return found
        differ = self.d[held.rows] != held.expected
        regions = [(y, x) for y, x in _rectangles(differ) if (y.stop - y.start) * (x.stop - x.start) >= LEAST_REGION]
        size = sum((y.stop - y.start) * (x.stop - x.start) for y, x in regions)
        if not regions or len(regions) > MOST_REGIONS or size > MOST_OF * differ.size:
            return found
        parts, wrong = [], found.wrong
        for y, x in regions:
            part = self._part(held, y, x)
            if part.nearly:
                parts.append(ExplainedRegion((int(held.rows[y][0]), int(held.rows[y][-1])), (x.start, x.stop - 1), part))
                wrong += part.wrong - int(differ[y, x].sum())
        inside = [(part.rows, part.columns) for part in parts]
        places = tuple(place for place in found.places if not any(_is_in(place, *where) for where in inside))
        return replace(found, wrong=wrong, regions=tuple(parts), places=places)

    def _part(self, held: ComparedRows, y: slice, x: slice) -> Explanation:
        rows, specs = held.rows[y], [replace(spec, m=y.stop - y.start, n=x.stop - x.start) for spec in self.specs]
        (found,) = explain(specs, self.a[rows], self.b[x], [self.d[rows, x]], self.recorded, self.at_most, self.tell)
        return found

    def _unknown(self, found: Explanation) -> Unknown:
        """What holds of the result, whatever its plan."""
        rows = found.held.rows if found.held else np.arange(len(self.d))[: max(1, self.at_most // self.b.size)]
        spec, got = self.specs[0], self.d[rows]
        exact = rounded_once(spec, self.a[rows], self.b)
        steps = np.abs(_ordered(got, spec.out) - _ordered(exact, spec.out))
        differ = got != (found.held.expected if found.held else exact)
        y, x = (np.flatnonzero(differ.any(axis=axis)) for axis in (1, 0))
        told = tuple(self.counts.sentences()) if self.counts and self.counts.explained > TELLING else ()
        return Unknown(
            compared=got.size,
            differing=int(np.count_nonzero(steps)),
            median=int(np.median(steps[steps > 0])) if steps.any() else 0,
            largest=int(steps.max()),
            rows=(int(rows[y[0]]), int(rows[y[-1]])),
            columns=(int(x[0]), int(x[-1])),
            miscounts=told,
            explained=self.counts.explained if told else 0.0,
        )


def _ordered(words: Bits, fmt: Format) -> Ints:
    """Integers whose differences count the numbers of the format in between."""
    if fmt.is_integer:
        return fmt.integers(words)
    size = (words & fmt.dtype.type(fmt.sign_bit - 1)).astype(np.int64)
    return np.where(words & fmt.dtype.type(fmt.sign_bit), -size, size)


def _rectangles(differ: Truths) -> Iterator[tuple[slice, slice]]:
    """Rows and columns that have all elements which differ, those apart that lie more than REGION_GAP apart."""
    for y in _ranges(differ.any(axis=1)):
        for x in _ranges(differ[y].any(axis=0)):
            inner = _ranges(differ[y, x].any(axis=1))
            yield slice(y.start + inner[0].start, y.start + inner[-1].stop), x


def _ranges(there: NDArray[Any] | np.bool[bool]) -> list[slice]:
    found = np.flatnonzero(there)
    return [slice(int(run[0]), int(run[-1]) + 1) for run in np.split(found, np.flatnonzero(np.diff(found) > REGION_GAP) + 1)]


def _is_in(place: Unexplained, rows: tuple[int, int], columns: tuple[int, int]) -> bool:
    return rows[0] <= place.row <= rows[1] and columns[0] <= place.column <= columns[1]


def _alike(found: Sequence[Explanation]) -> list[Explanation]:
    """Of plans that give the same bits, those of two results first that differ in least."""
    x, y = found
    if not x.plans or not y.plans:
        return [x, y]
    first, second = min(((p, q) for p in x.plans for q in y.plans), key=lambda two: len(differences(*two)))
    return [replace(each, plans=_first(plan, each.plans)) for each, plan in ((x, first), (y, second))]


def _first(plan: Candidate, plans: Sequence[Candidate]) -> tuple[Candidate, ...]:
    return (plan, *(other for other in plans if other is not plan))
