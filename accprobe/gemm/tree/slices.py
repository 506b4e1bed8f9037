"""Determine which chains are slices of K (split-K) and which are promoted chunks within one slice.

A tree does not distinguish them. Chunks of a slice are added in increasing order of K and have one size except for the last.
Sums of slices are added in any order and may be rounded to a narrow format first. Several readings may describe the same
additions.

Slices that are added in an order that changes (atomics) are found from the sets of results of identical calls. X in one chain
and -X in another absorb a unit of a third chain or let it survive. If the two chains belong to one slice, they cancel before
that slice is added, so the units of all other slices survive in every call. Otherwise the units of a third slice survive in
some calls only, and those of these two slices never.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import Ints, Units, layout_of, power, units_in
from accprobe.gemm.tree.decomposition import FusedGroups, Reduction, every_chain, order_name, renumbered
from accprobe.gemm.tree.tree_builder import NoTree, measured_units
from accprobe.model.product import Nested, nested

# Maximum number of slices in a reading that keeps the structure of the tree.
MOST_READ = 16


@dataclass(frozen=True)
class KSlice:
    """The chains of a slice of K. chunked: whether their sums are added in increasing order of K."""

    chains: Sequence[FusedGroups]
    chunked: bool

    @property
    def groups(self) -> FusedGroups:
        return tuple(group for chain in self.chains for group in chain)

    @property
    def chunk(self) -> int | None:
        """Return the products of the largest chunk, if there are several."""
        return max(sizes(self.chains)) if self.chunked and len(self.chains) > 1 else None


def k_slice(part: FusedGroups | Reduction) -> KSlice:
    found = chunks(part)
    return KSlice(found or list(every_chain(part)), chunked=found is not None)


def slice_readings(tree: FusedGroups | Reduction) -> Iterator[FusedGroups | Reduction]:
    """Yield the possible divisions of the tree into slices, the likeliest first.

    They are: one slice for each chain, chunks of equal size grouped into slices, and the tree itself. All describe the same
    additions; only the formats of partial sums distinguish them.
    """
    if not isinstance(tree, Reduction):
        yield tree
        return
    flat = tree.flat()
    even = list(_of_even_chunks(flat))
    has_name = order_name(flat.nested, len(flat.parts)).isalpha()
    likely = [flat, *even, tree] if has_name else [*even, tree, flat]
    seen: list[Reduction] = []
    for reading in likely:
        if reading not in seen and (not seen or len(reading.parts) <= MOST_READ):
            seen.append(reading)
            yield reading


def chunks(part: FusedGroups | Reduction) -> list[FusedGroups] | None:
    """Return the chains of a slice whose sums are added in increasing order of K, otherwise None."""
    if not isinstance(part, Reduction):
        return [part]
    flat = part.flat()
    run = _run(flat.nested)
    chains = [] if run is None else [_chain(flat, i) for i in run]
    return chains if chains and _follow(chains) else None


def _follow(chains: Sequence[FusedGroups]) -> bool:
    """Return whether each chain starts after the previous one ends, except for k that both have."""
    before, last = set[int](), -1
    for chain in chains:
        ks = {k for group in chain for k in group} - before
        if ks and min(ks) < last:
            return False
        before |= ks
        last = max(before)
    return True


def sizes(chains: Sequence[FusedGroups]) -> list[int]:
    """Return how many products of each chain no earlier chain has."""
    found, before = [], set[int]()
    for chain in chains:
        ks = {k for group in chain for k in group} - before
        found.append(len(ks))
        before |= ks
    return found


def is_even(of: Sequence[int]) -> bool:
    """Return whether all sizes are equal, except that the last may be smaller."""
    return all(size == of[0] for size in of[:-1]) and of[-1] <= of[0]


def _of_even_chunks(flat: Reduction) -> Iterator[Reduction]:
    """Yield slices of equal chunks, then variants with fewer chunks in the first slice, which the additions do not exclude."""
    of_chain = sizes([_chain(flat, i) for i in range(len(flat.parts))])
    longest = max(of_chain)

    def slices(node: Nested) -> tuple[list[list[int]], Nested]:
        run = _run(node)
        if run is not None and all(of_chain[i] == longest for i in run[:-1]):
            return [run], 0
        assert isinstance(node, tuple)
        parts: list[list[int]] = []
        order: list[Nested] = []
        for x in node:
            inside, nested = slices(x)
            order.append(renumbered(nested, range(len(parts), len(parts) + len(inside))))
            parts += inside
        return parts, tuple(order)

    (first, *others), order = slices(flat.nested)
    for count in range(len(first), 0, -1):
        left = [[chain] for chain in first[count:]]
        numbers = [_forward(len(left) + 1), *range(len(left) + 1, len(left) + 1 + len(others))]
        yield _grouped(flat, [first[:count], *left, *others], renumbered(order, numbers))


def _grouped(flat: Reduction, slices: Sequence[Sequence[int]], order: Nested) -> Reduction:
    """Return the chains of a reduction grouped into slices of one or several chunks."""
    if len(slices) == 1:
        return Reduction(tuple(_chain(flat, i) for i in slices[0]), _forward(len(slices[0])))
    by_start = sorted(range(len(slices)), key=lambda i: slices[i][0])
    parts = [[_chain(flat, i) for i in slices[number]] for number in by_start]
    merged = tuple(part[0] if len(part) == 1 else Reduction(tuple(part), _forward(len(part))) for part in parts)
    return Reduction(merged, renumbered(order, [by_start.index(i) for i in range(len(slices))]))


def _forward(parts: int) -> Nested:
    return nested("forward", parts)


def _chain(flat: Reduction, number: int) -> FusedGroups:
    part = flat.parts[number]
    assert not isinstance(part, Reduction)
    return part


def _run(node: Nested) -> list[int] | None:
    """Return the parts if they are added one after the other in increasing order, otherwise None."""
    if isinstance(node, int):
        return [node]
    numbers = [x for x in node if isinstance(x, int)]
    others = [x for x in node if not isinstance(x, int)]
    if not others:
        return sorted(numbers)
    before = _run(others[0]) if len(others) == 1 else None
    return [*before, *numbers] if before is not None and before[-1] < min(numbers, default=-1) else None


# Maximum number of slices, as every order of them is tried.
MOST_SLICES = 8

# Rows and columns in which units are counted, evenly spaced.
MOST_ROWS, MOST_COLUMNS = 64, 512

# Identical calls in which the units of other chains survive before two chains count as one slice. If one order occurs nine
# times of ten and each call is a single sample, two slices are mistaken for one in one of five runs. Each tile with an order
# of its own is a further sample.
QUIET = 16


def in_slices(subject: RecordedCallable, rows: Ints, columns: Ints, chains: Sequence[FusedGroups]) -> Reduction:
    """Return the chains as chunks of slices that are added in any order. Raises NoTree if there are too many slices or fewer
    than three.
    """
    each = measured_units(
        subject, rows, columns, np.array(sorted(k for chain in chains for group in chain for k in group), np.int64)
    )
    rows, columns = (lines[:: -(-len(lines) // most)] for lines, most in ((rows, MOST_ROWS), (columns, MOST_COLUMNS)))
    firsts = np.array([chain[0][0] for chain in chains], np.int64)
    slices: list[list[int]] = []
    for number in range(len(chains)):
        of = next(
            (slice_ for slice_ in slices[::-1] if _are_of_one(subject, rows, columns, each, firsts, slice_[0], number)), None
        )
        if of is None:
            slices.append([])
            of = slices[-1]
        of.append(number)
        if len(slices) > MOST_SLICES:
            raise NoTree(f"more than {MOST_SLICES} slices are added in an order that changes")
    if len(slices) < 3:
        raise NoTree("results change between identical calls, but not through the order of three or more slices")
    parts = [tuple(chains[i] for i in slice_) for slice_ in slices]
    merged = tuple(part[0] if len(part) == 1 else Reduction(part, nested("forward", len(part))) for part in parts)
    return Reduction(merged, nested("forward", len(merged)))


def _are_of_one(subject: RecordedCallable, rows: Ints, columns: Ints, each: Units, firsts: Ints, one: int, other: int) -> bool:
    """Return whether the units of some chain survive in every call, and those of each other chain always or never."""
    spec = subject.spec
    if len(firsts) < 3:
        return False
    beside = np.resize(np.delete(firsts, [one, other]), len(rows))
    a, b = layout_of(spec).blank()
    large_a, large_b = each.large
    for k, negative in ((firsts[one], False), (firsts[other], True)):
        a[:, k], b[:, k] = power(spec.a, large_a), power(spec.b, large_b, negative=negative)
    a[rows, beside] = power(spec.a, each.unit[0])
    b[:, beside] = power(spec.b, each.unit[1])
    chain = np.searchsorted(np.unique(beside), beside)
    always, never = (np.ones(chain.max() + 1, bool) for _ in range(2))
    for _ in range(QUIET):
        units = units_in(subject.product(a, b, keep=False)[np.ix_(rows, columns)], spec, each)
        always &= _in_each(chain, units == 1)
        never &= _in_each(chain, units == 0)
        if not (always | never).all() or not always.any():
            return False
    return True


def _in_each(chain: Ints, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether a condition holds in all rows of each chain."""
    return np.asarray(np.bincount(chain, ~there.all(axis=1)) == 0)
