"""Queries of many pairs in one call: few calls, and correct sizes for any shape of D."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from marks import some
from numpy.typing import NDArray

from accprobe.gemm.blackbox import RecordedCallable
from accprobe.gemm.layout import Units, unit_candidates
from accprobe.gemm.spec import Spec
from accprobe.gemm.tree.decomposition import decompose
from accprobe.gemm.tree.pairs import ColumnPairs, ProductPairs
from accprobe.gemm.tree.tree_builder import PartialTree, measured_units
from accprobe.isa.formats import FORMATS
from accprobe.model.product import Chain

FLOATS = ("e4m3", "e5m2", "f16", "bf16", "tf32", "f32")


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


def test_joined_are_those_that_meet_before_another() -> None:
    k, chunk, width = 64, 32, 4
    pairs = ProductPairs(
        RecordedCallable(TreeBox(_spec(8, 8, k), chunk, width)), np.arange(8), np.arange(8), Units((-14, -14), (15, 15), 64)
    )
    ks = np.array([28, 29, 32, 40, 50, 63])  # product 0 meets the chunk from 32 on only when that is whole
    assert pairs.joined_with(40, ks, 0).tolist() == (ks >= 32).tolist()


@pytest.mark.parametrize(("m", "n", "k"), [(16, 64, 1024), (1, 8, 512)])
def test_few_calls_where_d_is_small(m: int, n: int, k: int) -> None:
    """Each column has its own j, once for numbers without a common digit and once for the rest."""
    box = TreeBox(_spec(m, n, k), k, 16)
    units = Units((-14, -14), (15, 15), 2048)
    ProductPairs(RecordedCallable(box), np.arange(m), np.arange(n), units).sizes(0, np.arange(k), np.arange(k))
    assert box.calls <= 3 * k // n


@pytest.mark.parametrize("name", FLOATS)
@pytest.mark.parametrize("out", ["f32", "bf16", "f16"])
def test_numbers_are_of_the_formats_and_the_nearest_of_f16(name: str, out: str) -> None:
    fmt = FORMATS[name]
    several = list(unit_candidates(Spec(1, 1, 1, fmt, fmt, FORMATS[out])))
    for each in several:
        for exponent in (*each.unit, *each.large):
            assert fmt.try_encode(1, exponent) is not None
        assert each.most <= each.modulus / 2
    last, f16 = several[-1], FORMATS["f16"]
    assert f16.try_encode(1, sum(last.unit)) is not None
    assert f16.try_encode(1, sum(last.large)) is not None


def test_a_descending_chain_begins_with_its_first_sum() -> None:
    """Blocks of four from the last to the first, as attention may take its keys: product 0 joins what was there before."""
    last = PartialTree(8, ((9, 10, 11),))
    middle = PartialTree(4, ((5, 6, 7, last),)).from_its_start()
    tree = decompose(PartialTree(0, ((1, 2, 3, middle),)).from_its_start(), 4)
    assert isinstance(tree, Chain)
    assert tree.sums(4) == ((8, 9, 10, 11), (4, 5, 6, 7), (0, 1, 2, 3))


class KeepingBox:
    """Sums of slices of K kept in a format."""

    def __init__(self, spec: Spec, slices: int, kept: str) -> None:
        self.spec, self._slices, self._kept = spec, slices, FORMATS[kept]

    def product(
        self, a: NDArray[np.unsignedinteger], b: NDArray[np.unsignedinteger], scales: object = None
    ) -> NDArray[np.uint32]:
        values_a, values_b = self.spec.a.values(a), self.spec.b.values(b)
        size = self.spec.k // self._slices
        total = np.zeros((self.spec.m, self.spec.n), np.float32)
        for start in range(0, self.spec.k, size):
            with np.errstate(over="ignore", invalid="ignore"):
                part = values_a[:, start : start + size] @ values_b[:, start : start + size].T
                total += part.astype(self._kept.ml_dtype).astype(np.float32)
        return total.view(np.uint32)


@pytest.mark.parametrize(("kept", "reaches", "most"), [("f32", 58, 8192), ("f16", 36, 1024), ("bf16", 58, 256)])
def test_numbers_are_as_far_apart_as_partial_sums_allow(kept: str, reaches: int, most: int) -> None:
    spec = _spec(32, 32, 2720)
    units = measured_units(RecordedCallable(KeepingBox(spec, 2, kept)), np.arange(32), np.arange(32), np.arange(2720))
    assert (sum(units.large) - sum(units.unit), units.most) == (reaches, most)
