"""Determine which chains are slices of K (split-K) and which are promoted chunks within one slice.

A tree does not distinguish them. Chunks of a slice are added in increasing order of K and have one size except for the last.
Sums of slices are added in any order and may be rounded to a narrow format first. Several readings may describe the same
additions.

Slices that are added in an order that changes (atomics) are found from the sets of results of identical calls. X in one chain
and -X in another absorb a unit of a third chain or let it survive. If the two chains belong to one slice, they cancel before
that slice is added. Then the units of all other slices survive in every call. Otherwise the units of a third slice survive in
some calls only, and the units of these two slices never survive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from accprobe.callables.operands import Ints, layout_of, power
from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.tree.decomposition import flat, forward, order_name, renumbered, reordered
from accprobe.gemm.tree.units import Units, measured_units, units_in
from accprobe.infer.tree_builder import NoTree
from accprobe.model.product import Chain, Merged, Nested, Node, chains_of, nested

# Maximum number of slices in every reading of the tree but the first.
MOST_READ = 16


@dataclass(frozen=True)
class KSlice:
    """The chains of a slice of K. chunked: whether their sums are added in increasing order of K."""

    chains: Sequence[Chain]
    chunked: bool

    @property
    def taken(self) -> Ints:
        return np.concatenate([chain.taken for chain in self.chains])

    @property
    def chunk(self) -> int | None:
        """Return the products of the largest chunk, if there are several."""
        return max(sizes(self.chains)) if self.chunked and len(self.chains) > 1 else None


def k_slice(part: Node) -> KSlice:
    found = chunks(part)
    return KSlice(found or list(chains_of(part)), chunked=found is not None)


def slice_readings(tree: Node) -> Iterator[Node]:
    """Yield the possible divisions of the tree into slices, the likeliest first.

    They are: one slice for each chain, chunks of equal size grouped into slices, and the tree itself. All describe the same
    additions; only the formats of partial sums distinguish them.
    """
    if isinstance(tree, Chain):
        yield tree
        return
    each = flat(tree)
    even = list(_of_even_chunks(each))
    seen: list[Merged] = []
    for reading in [each, *even, tree] if order_name(each).isalpha() else [*even, tree, each]:
        if reading not in seen and (not seen or len(reading.parts) <= MOST_READ):
            seen.append(reading)
            yield reading


def chunks(part: Node) -> list[Chain] | None:
    """Return the chains of a slice if their sums are added in increasing order of K, otherwise None."""
    if isinstance(part, Chain):
        return [part]
    each = flat(part)
    chains, run = list(chains_of(each)), _run(each.nested)
    if run is None:
        return None
    before, last = set[int](), -1
    for ks in (set(chains[i].taken.tolist()) - before for i in run):  # each starts after the previous ends, but for shared k
        if ks and min(ks) < last:
            return None
        before |= ks
        last = max(before)
    return [chains[i] for i in run]


def sizes(chains: Sequence[Chain | KSlice]) -> list[int]:
    """Return how many products of each chain, or slice, no earlier one has."""
    found, before = [], set[int]()
    for each in chains:
        ks = set(each.taken.tolist()) - before
        found.append(len(ks))
        before |= ks
    return found


def _of_even_chunks(tree: Merged) -> Iterator[Merged]:
    """Yield slices of equal chunks, then variants with fewer chunks in the first slice, which the additions do not exclude."""
    chains = list(chains_of(tree))
    of_chain = sizes(chains)
    longest = max(of_chain)

    def slices(node: Nested) -> tuple[list[list[int]], Nested]:
        run = _run(node)
        if run is not None and all(of_chain[i] == longest for i in run[:-1]):
            return [run], 0
        assert isinstance(node, tuple)
        parts: list[list[int]] = []
        order: list[Nested] = []
        for x in node:
            inside, within = slices(x)
            order.append(renumbered(within, range(len(parts), len(parts) + len(inside))))
            parts += inside
        return parts, tuple(order)

    def grouped(slices: Sequence[Sequence[int]], order: Nested) -> Merged:
        """Return the chains grouped into slices of one or several chunks."""
        if len(slices) == 1:
            return forward([chains[i] for i in slices[0]])
        parts = [as_slice([chains[i] for i in numbers]) for numbers in slices]
        return reordered(parts, order, sorted(range(len(slices)), key=lambda i: slices[i][0]))

    (first, *others), order = slices(tree.nested)
    for count in range(len(first), 0, -1):
        left = [[chain] for chain in first[count:]]
        numbers = [nested("forward", len(left) + 1), *range(len(left) + 1, len(left) + 1 + len(others))]
        yield grouped([first[:count], *left, *others], renumbered(order, numbers))


def as_slice(chains: Sequence[Chain]) -> Node:
    """Return one chain, or chunks that are added in turn."""
    return chains[0] if len(chains) == 1 else forward(chains)


def _run(node: Nested) -> list[int] | None:
    """Return the parts if they are added one after the other in increasing order, otherwise None.

    Without recursion, because a chain is as deep as it is long.
    """
    added: list[list[int]] = []
    while not isinstance(node, int):
        others = [x for x in node if not isinstance(x, int)]
        if len(others) > 1:
            return None
        added.append(sorted(x for x in node if isinstance(x, int)))
        if not others:
            break
        node = others[0]
    else:
        added.append([node])
    run = added.pop()
    for numbers in reversed(added):
        if not numbers or run[-1] >= numbers[0]:
            return None
        run += numbers
    return run


# Maximum number of slices, as every order of them is tried.
MOST_SLICES = 8
# Rows and columns in which units are counted, evenly spaced.
MOST_ROWS, MOST_COLUMNS = 64, 512
# Identical calls that must agree before two chains count as one slice: each other chain survives in all of them or in none. If
# one order occurs nine times of ten and each call is one sample, two slices count as one in a fifth of the runs. Each tile with
# a separate accumulation order is a further sample.
QUIET = 16


def in_slices(subject: RecordedCallable, rows: Ints, columns: Ints, chains: Sequence[Chain]) -> Merged:
    """Return the chains as chunks of slices that are added in any order. Raises NoTree for fewer than 3.

    It also does so for more than MOST_SLICES slices.
    """
    units = measured_units(subject, rows, columns, np.sort(np.concatenate([chain.taken for chain in chains])))
    rows, columns = (lines[:: -(-len(lines) // most)] for lines, most in ((rows, MOST_ROWS), (columns, MOST_COLUMNS)))
    firsts = np.array([chain.taken[0] for chain in chains], np.int64)
    slices: list[list[int]] = []
    for number in range(len(chains)):
        own = next((x for x in slices[::-1] if _are_of_one(subject, rows, columns, units, firsts, x[0], number)), None)
        if own is None:
            slices.append([number])
        else:
            own.append(number)
        if len(slices) > MOST_SLICES:
            raise NoTree(f"more than {MOST_SLICES} slices are added in an order that changes")
    if len(slices) < 3:
        raise NoTree("results change between identical calls, but not through the order of three or more slices")
    return forward([as_slice([chains[i] for i in own]) for own in slices])


def _are_of_one(subject: RecordedCallable, rows: Ints, columns: Ints, each: Units, firsts: Ints, one: int, other: int) -> bool:
    """Return whether the units of each other chain survive always or never, and of at least one chain always."""
    spec = subject.spec
    if len(firsts) < 3:
        return False
    beside = np.resize(np.delete(firsts, [one, other]), len(rows))
    a, b = layout_of(spec).blank()
    for k, negative in ((firsts[one], False), (firsts[other], True)):
        a[:, k], b[:, k] = power(spec.a, each.large[0]), power(spec.b, each.large[1], negative=negative)
    a[rows, beside] = power(spec.a, each.unit[0])
    b[:, beside] = power(spec.b, each.unit[1])
    chain = np.searchsorted(np.unique(beside), beside)
    always, never = (np.ones(chain.max() + 1, bool) for _ in range(2))
    for _ in range(QUIET):
        units = units_in(subject.product(a, b, keep=False)[np.ix_(rows, columns)], spec, each)
        always &= np.bincount(chain, (units != 1).any(axis=1)) == 0  # in all rows of each chain
        never &= np.bincount(chain, (units != 0).any(axis=1)) == 0
        if not (always | never).all() or not always.any():
            return False
    return True
