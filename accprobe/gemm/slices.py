"""Which chains are slices of K, and which are chunks that are promoted inside one.

The tree has no such names. Chunks of a slice are added one after the other, as K goes, and are of one size but for the last;
the sums of slices are added in some order, and may be kept in a narrow format before. Several readings are the same additions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.decomposition import FusedGroups, Reduction, every_chain, renumbered
from accprobe.gemm.pairs import Ints
from accprobe.gemm.plans import order_name
from accprobe.gemm.tree_builder import NoTree, measured_units
from accprobe.gemm.units import Units, power, units_in
from accprobe.model.product import Nested, nested

MOST_READ = 16
"""Slices that a reading may have which leaves the tree as it grew."""


@dataclass(frozen=True)
class KSlice:
    """A slice of K by its chains. chunked: whether they are added one after the other, as K goes."""

    chains: Sequence[FusedGroups]
    chunked: bool

    @property
    def groups(self) -> FusedGroups:
        """All sums."""
        return tuple(group for chain in self.chains for group in chain)

    @property
    def chunk(self) -> int | None:
        """Products of the largest of several chunks."""
        return max(sizes(self.chains)) if self.chunked and len(self.chains) > 1 else None


def k_slice(part: FusedGroups | Reduction) -> KSlice:
    found = chunks(part)
    return KSlice(found or list(every_chain(part)), chunked=found is not None)


def slice_readings(tree: FusedGroups | Reduction) -> Iterator[FusedGroups | Reduction]:
    """The tree with slices for its parts, the likeliest first: each chain one, where they are merged in an order that has a
    name; chunks of even size together; as it grew. All are the same additions: only formats that slices are kept in tell them
    apart.
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
    """The chains of a slice whose sums are added one after the other, as K goes; None where it is nothing such."""
    if not isinstance(part, Reduction):
        return [part]
    flat = part.flat()
    run = _run(flat.nested)
    chains = [] if run is None else [_chain(flat, i) for i in run]
    return chains if chains and _follow(chains) else None


def _follow(chains: Sequence[FusedGroups]) -> bool:
    """Whether none begins before the one before it has ended, k aside that both have."""
    before, last = set[int](), -1
    for chain in chains:
        ks = {k for group in chain for k in group} - before
        if ks and min(ks) < last:
            return False
        before |= ks
        last = max(before)
    return True


def sizes(chains: Sequence[FusedGroups]) -> list[int]:
    """How many products each has that none before it has."""
    found, before = [], set[int]()
    for chain in chains:
        ks = {k for group in chain for k in group} - before
        found.append(len(ks))
        before |= ks
    return found


def is_even(of: Sequence[int]) -> bool:
    """Whether all are of one size but for the last, which may be smaller."""
    return all(size == of[0] for size in of[:-1]) and of[-1] <= of[0]


def _of_even_chunks(flat: Reduction) -> Iterator[Reduction]:
    """Slices of as many chunks as are of one size; then with fewer in the first slice, which the additions do not tell."""
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
    """Chains of a merging as slices, each of them of one chunk or several."""
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
    """Parts that are added one after the other in the order of their numbers, or None."""
    if isinstance(node, int):
        return [node]
    numbers = [x for x in node if isinstance(x, int)]
    others = [x for x in node if not isinstance(x, int)]
    if not others:
        return sorted(numbers)
    before = _run(others[0]) if len(others) == 1 else None
    return [*before, *numbers] if before is not None and before[-1] < min(numbers, default=-1) else None


MOST_SLICES = 8
"""Slices, every order of which is tried."""

MOST_ROWS, MOST_COLUMNS = 64, 512
"""Rows and columns in which units are counted, far from one another."""

QUIET = 16
"""Identical calls in which the units of other chains always come out, of two chains that are of one slice: where one order has
them first nine times of ten, and each call is one sample alone, two slices are taken for one in one of five runs. Each tile of
rows and columns with an order of its own is a further sample.
"""


def in_slices(asked: RecordedCallable, rows: Ints, columns: Ints, chains: Sequence[FusedGroups]) -> Reduction:
    """The chains as chunks of slices, each of which goes up K. Raises NoTree where there are too many slices, or so few that
    their order does not matter.
    """
    each = measured_units(
        asked, rows, columns, np.array(sorted(k for chain in chains for group in chain for k in group), np.int64)
    )
    rows, columns = (lines[:: -(-len(lines) // most)] for lines, most in ((rows, MOST_ROWS), (columns, MOST_COLUMNS)))
    firsts = np.array([chain[0][0] for chain in chains], np.int64)
    slices: list[list[int]] = []
    for number in range(len(chains)):
        of = next(
            (slice_ for slice_ in slices[::-1] if _are_of_one(asked, rows, columns, each, firsts, slice_[0], number)), None
        )
        if of is None:
            slices.append([])
            of = slices[-1]
        of.append(number)
        if len(slices) > MOST_SLICES:
            raise NoTree(f"more than {MOST_SLICES} slices are added in any order")
    if len(slices) < 3:
        raise NoTree("results change from call to call, and not by the order in which three slices or more are added")
    parts = [tuple(chains[i] for i in slice_) for slice_ in slices]
    merged = tuple(part[0] if len(part) == 1 else Reduction(part, nested("forward", len(part))) for part in parts)
    return Reduction(merged, nested("forward", len(merged)))


def _are_of_one(asked: RecordedCallable, rows: Ints, columns: Ints, each: Units, firsts: Ints, one: int, other: int) -> bool:
    """Whether the units of some chain come out in every call, and those of all others always or never."""
    spec = asked.spec
    if len(firsts) < 3:
        return False
    beside = np.resize(np.delete(firsts, [one, other]), len(rows))
    a, b = np.zeros((spec.m, spec.k), spec.a.dtype), np.zeros((spec.n, spec.k), spec.b.dtype)
    large_a, large_b = each.large
    for k, negative in ((firsts[one], False), (firsts[other], True)):
        a[:, k], b[:, k] = power(spec.a, large_a), power(spec.b, large_b, negative=negative)
    a[rows, beside] = power(spec.a, each.unit[0])
    b[:, beside] = power(spec.b, each.unit[1])
    chain = np.searchsorted(np.unique(beside), beside)
    always, never = (np.ones(chain.max() + 1, bool) for _ in range(2))
    for _ in range(QUIET):
        units = units_in(asked.product(a, b, keep=False)[np.ix_(rows, columns)], spec, each)
        always &= _in_each(chain, units == 1)
        never &= _in_each(chain, units == 0)
        if not (always | never).all() or not always.any():
            return False
    return True


def _in_each(chain: Ints, there: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Of each chain, whether it is so in all its rows."""
    return np.asarray(np.bincount(chain, ~there.all(axis=1)) == 0)
