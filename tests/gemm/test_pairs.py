"""Queries of many pairs in one call: few calls, and correct sizes for any shape of D."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from marks import some
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import Units
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.decomposition import decompose
from accprobe.gemm.tree.pairs import ColumnPairs, ProductPairs
from accprobe.gemm.tree.tree_builder import PartialTree
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain


class TreeBox:
    """Units that survive beside two large products in a given tree: K in chunks, each a chain of sums.

    Every product of the chunk before the later of the two, and every whole chunk before it, is lost; so are those between them.
    """

    def __init__(self, spec: Spec, chunk: int, width: int) -> None:
        self.spec, self._chunk, self._width = spec, chunk, width
        self.calls = 0

    def product(
        self, a: NDArray[np.unsignedinteger], b: NDArray[np.unsignedinteger], scales: object = None
    ) -> NDArray[np.uint32]:
        self.calls += 1
        values = self.spec.a.values(a)[:, None, :] * self.spec.b.values(b)[None]
        total = np.zeros(values.shape[:2])
        for start in range(0, self.spec.k, self._chunk):
            part = np.zeros_like(total)
            for first in range(start, min(start + self._chunk, self.spec.k), self._width):
                part = _swamped(np.dstack([part, values[..., first : min(first + self._width, start + self._chunk)]]))
            total = _swamped(np.dstack([total, part]))
        return total.astype(np.float32).view(np.uint32)


def _swamped(terms: NDArray[np.float64]) -> NDArray[np.float64]:
    """The sum of terms, of which those are lost that are 2^26 times smaller than the largest."""
    largest = np.abs(terms).max(axis=-1, keepdims=True)
    return np.asarray(np.where(np.abs(terms) < largest * 2.0**-26, 0, terms).sum(axis=-1))


def _spec(m: int, n: int, k: int, fmt: str = "f16") -> Spec:
    return Spec(m, n, k, FORMATS[fmt], FORMATS[fmt], FORMATS["f32"])


def _size(chunk: int, width: int, i: int, j: int, k: int) -> int:
    """Return the size of the smallest subtree with both: to the end of the later one's sum, or of its chunk."""
    later = max(i, j)
    start, stop = later // chunk * chunk, min(later // chunk * chunk + chunk, k)
    if min(i, j) < start:
        return stop
    return min(start + ((later - start) // width + 1) * width, stop) - (start if start else 0)


@pytest.mark.parametrize(("m", "n"), [(1, 1), (2, 3), (5, 40), (64, 64)])
@pytest.mark.parametrize("most", some([1 << 13, 7]))
def test_sizes_are_those_of_the_tree(m: int, n: int, most: int) -> None:
    k, chunk, width = 75, 32, 4
    units = Units((-14, -14), (15, 15), most)
    pairs = ProductPairs(RecordedCallable(TreeBox(_spec(m, n, k), chunk, width)), np.arange(m), np.arange(n), units)
    every = np.arange(k)
    for i in (0, 33, 74):
        expected = [1 if j == i else _size(chunk, width, i, j, k) for j in range(k)]
        assert pairs.sizes(i, every, every).tolist() == expected


@pytest.mark.parametrize(("width", "queries"), [(1, 600), (4, 1800)])
def test_sizes_of_a_fixed_a_are_sorted_where_few_units_can_be_counted(width: int, queries: int) -> None:
    """A fused sum of 4 has no order, so its units are counted after all."""
    spec = replace(_spec(1, 8, 75), a_exponent=0)
    subject = RecordedCallable(TreeBox(spec, 32, width))
    every, one = np.arange(75), np.arange(1)
    sizes = ColumnPairs(subject, one, np.arange(8), Units((0, -14), (0, 15), 7)).sizes(33, every, every)
    assert sizes.tolist() == [1 if j == 33 else _size(32, width, 33, j, 75) for j in every]
    assert subject.calls * 8 <= queries + 8


@pytest.mark.parametrize(("m", "n", "k"), [(16, 64, 1024), (1, 8, 512)])
def test_few_calls_where_d_is_small(m: int, n: int, k: int) -> None:
    """Each column has its own j, once for numbers without a common digit and once for the rest."""
    box = TreeBox(_spec(m, n, k), k, 16)
    units = Units((-14, -14), (15, 15), 2048)
    ProductPairs(RecordedCallable(box), np.arange(m), np.arange(n), units).sizes(0, np.arange(k), np.arange(k))
    assert box.calls <= 3 * k // n


def test_a_descending_chain_begins_with_its_first_sum() -> None:
    """Blocks of four from the last to the first, as attention may take its keys: product 0 joins what was there before."""
    last = PartialTree(8, ((9, 10, 11),))
    middle = PartialTree(4, ((5, 6, 7, last),)).from_its_start()
    tree = decompose(PartialTree(0, ((1, 2, 3, middle),)).from_its_start(), 4)
    assert isinstance(tree, Chain)
    assert tree.sums(4) == ((8, 9, 10, 11), (4, 5, 6, 7), (0, 1, 2, 3))
