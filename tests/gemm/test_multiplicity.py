"""Products that are dropped or doubled in some elements alone are found, wherever they are."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest
from long_tail import some
from planted_boxes import FunctionBox
from planted_functions import chain
from planted_sums import Array

from accprobe.gemm.characterise import characterise
from accprobe.gemm.findings import findings, row, status
from accprobe.gemm.spec import Spec
from accprobe.isa.formats import FORMATS
from accprobe.report.product_words import miscounted
from accprobe.testing import assert_every_k_once

M, N, K = 16, 12, 140


def dropped(*places: tuple[slice | int, slice | int, int]) -> Callable[[Array, Array], Array]:
    """A chain in which some elements do not have one k."""

    def function(a: Array, b: Array) -> Array:
        d = chain(a, b)
        for rows, columns, k in places:
            left = np.array(a)
            left[:, k] = 0
            d[rows, columns] = chain(left, b)[rows, columns]
        return d

    return function


def doubled(a: Array, b: Array) -> Array:
    d = chain(a, b)
    d[2, 11] += a[2, 139] * b[139, 11]
    return d


def both_dropped(a: Array, b: Array) -> Array:
    without = np.array(a)
    without[:, 40] = 0
    d = chain(without, b)
    without[:, 130] = 0
    d[13, 3] = chain(without, b)[13, 3]
    return d


def exchanged(a: Array, b: Array) -> Array:
    """An element has k = 10 twice, and not k = 9."""
    d, other = chain(a, b), np.array(a)
    other[:, 9] = 0
    d[4, 4] = chain(other, b)[4, 4] + a[4, 10] * b[10, 4]
    return d


def subtracted(a: Array, b: Array) -> Array:
    d, other = chain(a, b), np.array(a)
    other[:, 12] = -other[:, 12]
    d[3, 3] = chain(other, b)[3, 3]
    return d


ALL = slice(None)
WRONG = {
    "an element": (dropped((13, 3, 120)), [("rows 13, columns 3", "1 missing: k = 120")]),
    "a column": (dropped((ALL, 0, 9)), [("columns 0", "1 missing: k = 9")]),
    "two elements, each its own": (
        dropped((1, 1, 7), (5, 6, 139)),
        [("rows 1, columns 1", "1 missing: k = 7"), ("rows 5, columns 6", "1 missing: k = 139")],
    ),
    "everywhere, and one more": (
        both_dropped,
        [("rows", "1 missing: k = 40"), ("rows 13, columns 3", "2 missing: k = 40, 130")],
    ),
    "one for another": (exchanged, [("rows 4, columns 4", "1 missing: k = 9; 1 counted more than once: k = 10")]),
    "taken away": (subtracted, [("rows 3, columns 3", "1 subtracted: k = 12")]),
    "twice": (doubled, [("rows 2, columns 11", "1 counted more than once: k = 139")]),
}


@pytest.mark.parametrize("name", some(list(WRONG), 4))
def test_what_some_elements_do_not_count_is_named(name: str) -> None:
    function, expected = WRONG[name]
    outcome = characterise(FunctionBox(Spec(M, N, K, *[FORMATS["f32"]] * 3), function), elements=1 << 10)
    notes = dict(miscounted(row(outcome, "own")))
    for where, which in expected:
        assert [note for at, note in notes.items() if where in at and note == which], notes
    assert len(notes) == len(expected)
    with pytest.raises(AssertionError) as refused:
        assert_every_k_once(function, shape=(M, N, K))
    assert all(ks in str(refused.value) for _, which in expected for ks in re.findall("k = [0-9-]+", which))


def test_nothing_is_said_of_what_counts_all() -> None:
    outcome = characterise(FunctionBox(Spec(M, N, K, *[FORMATS["f32"]] * 3), chain), elements=1 << 10)
    assert status(outcome) == ("confirmed", "")
    assert len(outcome.found) == 1
    assert findings(outcome)["each_product_once"].value == "yes"
